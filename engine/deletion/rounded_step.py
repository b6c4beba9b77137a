"""Steps of a stream that has exact sums: a linear model whose theta_exact is correctly rounded.

Such a stream has no V and no base dual rows: what a row takes with it is subtracted from the sums,
exactly, and theta_exact follows from the sums alone (`engine.exact`). There is no step that can be
refused for the row's leverage.
"""

from __future__ import annotations

import sys

from lethe.engine.deletion.correction import DELETED
from lethe.engine.deletion.generation import Deletion, Generation, Stream, at_rest
from lethe.engine.deletion.methods.method import DeletionMethod, Step
from lethe.engine.errors import IllConditioned, InvalidData
from lethe.engine.exact.running import Solution
from lethe.engine.fit.objective import Array, Objective, Rows


def begin_rounded(
    number: int, objective: Objective, solution: Solution
) -> tuple[Generation, Stream]:
    """Begin a generation at the minimiser of the rows that a solution is of.

    Its Hessian is in the sums: the bounds of its spectrum say nothing, and nothing asks for them.
    """
    theta = solution.minimiser.theta
    generation = Generation(number, objective, theta, 0.0, sys.float_info.max, 0.0, rounded=True)
    return generation, at_rest(theta, 0.0, 0)._replace(solution=solution)


def rounded_step(
    generation: Generation,
    stream: Stream,
    before: Solution,
    rows: Rows,
    W: Array,
    method: DeletionMethod,
    sign: float,
) -> Deletion:
    """Leave rows out (``sign`` `DELETED`) or bring them in, and publish by ``method``.

    ``before`` is the stream's solution. Cost that of `engine.exact.running.Solution.changed`.

    Raises
    ------
    IllConditioned
        No rows are left that have a minimiser, or it is beyond float64; the state before stands.
    InvalidData
        A row that is brought in is out of range (`engine.exact.digits.LONGEST`).
    """
    if not len(rows):
        return Deletion(stream, stream.V.array[:0], stream.Q.array[:0], 1.0)
    if sign == DELETED:
        try:
            solution = before.changed(rows, None)
        except InvalidData as error:
            raise IllConditioned(str(error)) from error
    else:
        solution = before.changed(None, rows)
    objective, theta, seen = generation.objective, solution.minimiser.theta, before.seen(rows)
    published, basis = method.publish(
        Step(seen.X, W, lambda: sign * objective.error(seen, stream.theta_r), theta, stream)
    )
    after = stream._replace(
        theta_exact=theta, published=published, Q=stream.Q.append(basis), solution=solution
    )
    return Deletion(after, stream.V.array[:0], basis, 1.0)
