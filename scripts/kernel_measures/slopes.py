"""Section ``cost against d``: the product's deletion step, and its slope in d.

`engine.deletion.stream.delete` of k rows of a fresh generation, methods exact and PRU. The
precomputation is synthetic as in `kernel_measures.leave_out`. Rows stay the same, so that they are
in the caches wherever these can hold them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from kernel_measures.clock import in_turns
from kernel_measures.deletions import Deletion, renew_all
from kernel_measures.figures import Figure, Goal, slope, timed
from lethe.engine.deletion.stream import Generation, at_rest
from lethe.engine.fit.objective import Kind, Objective, Rows

SECTION = "cost against d"
METHODS = ("exact", "pru")
_STEEPEST = Goal("<=", 1.1)


@dataclass(frozen=True, slots=True)
class Plan:
    """Sizes."""

    d: Sequence[int] = (250, 500, 1000, 2000, 4000)
    k: Sequence[int] = (1, 10, 100)
    repeats: int = 41


QUICK = Plan(d=(50, 100), k=(1, 10), repeats=5)


def run(plan: Plan, seed: int) -> Iterable[Figure]:
    """Time the steps, sizes and methods in turns, and fit the slopes."""
    for k in plan.k:
        calls = {f"{m} {d}": _step(m, d, k, seed) for d in plan.d for m in METHODS}
        samples = in_turns(calls, plan.repeats, fresh=partial(renew_all, calls.values()))
        for method in METHODS:
            figures = [
                timed(SECTION, {"method": method, "d": d, "k": k}, "step", samples[f"{method} {d}"])
                for d in plan.d
            ]
            yield from figures
            yield Figure(
                SECTION,
                {"method": method, "k": k},
                "slope in d",
                "1",
                slope(plan.d, [figure.value for figure in figures]),
                samples=len(figures),
                goal=_STEEPEST,
            )


def _step(method: str, d: int, k: int, seed: int) -> Deletion:
    """Return the deletion of k rows from a stream at rest."""
    rng = np.random.default_rng((seed, d, k))
    c = 2.0 * (np.sqrt(d) + np.sqrt(k)) ** 2
    X = rng.standard_normal((k, d))
    rows = Rows(X, rng.standard_normal((k, 1)), np.ones(k))
    theta = rng.standard_normal((d, 1))
    generation = Generation(
        0, Objective(Kind.LINEAR, np.ones(d)), theta, smallest=c, largest=c, dual_error=0.0
    )
    return Deletion(generation, at_rest(theta, 0.0), rows, X / c, method)
