"""A fitted linear model of the library that keeps exact sums: it is right to the last bit.

What a change does to the sums is exact, and every version is the minimiser of the live rows,
correctly rounded (`engine.exact`). There is nothing here that rounding could add up in: no V, no
bound that is carried on, no row that cannot be deleted by a step. A refresh has nothing to do but
to complete a projection.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from lethe.engine.deletion.generation import begin
from lethe.engine.deletion.methods import method_named
from lethe.engine.deletion.methods.method import Step
from lethe.engine.deletion.rounded_step import begin_rounded
from lethe.engine.error.estimate import ErrorKind, PublishedError, published_error
from lethe.engine.error.sentinels import Sentinels
from lethe.engine.errors import InvalidData
from lethe.engine.exact.digits import OutOfRange
from lethe.engine.exact.running import Solution
from lethe.engine.exact.sums import Sums
from lethe.engine.fit.factor import Factor
from lethe.engine.fit.magnitude import LARGEST, check_data
from lethe.engine.fit.objective import Array, Kind, Objective, Rows, lengths, norm
from lethe.engine.fitted import Fitted
from lethe.engine.refresh.blockwise import precompute_blocks
from lethe.engine.refresh.refreshes import complete
from lethe.engine.rows import Membership


@dataclass(slots=True, kw_only=True)
class FittedLinear(Fitted):
    """Everything that a linear fit produces; its other attributes are those of `Fitted`.

    Attributes
    ----------
    begun
        `solution` at the last compact or rebuild: the influence method uses its Hessian.
    """

    begun: Solution

    @classmethod
    def of_rows(
        cls,
        objective: Objective,
        names: tuple[str, ...],
        rows: Rows,
        *,
        intercept: bool,
        ridge: float,
        columns: tuple[str, ...] | None,
    ) -> Self:
        """Return a fresh fit of ``rows``.

        Raises
        ------
        InvalidData, IllConditioned
            As `engine.fit.magnitude.check_data` and `engine.exact.running.Solution.of`.
        """
        check_data(objective, rows)
        try:
            solution = Solution.of(Sums.of(rows), objective.penalty)
        except OutOfRange as error:
            raise error.named(names, named_columns(rows, columns, intercept=intercept)) from None
        return cls.of_solution(
            objective, names, rows, solution, intercept=intercept, ridge=ridge, columns=columns
        )

    @classmethod
    def of_solution(
        cls,
        objective: Objective,
        names: tuple[str, ...],
        rows: Rows,
        solution: Solution,
        **more: Any,
    ) -> Self:
        """Return a fresh state; ``solution`` is of these rows, and ``more`` are other fields."""
        generation, stream = begin_rounded(0, objective, solution)
        nothing = np.empty((len(rows), 0))
        return cls(
            Membership.of(Kind.LINEAR, names, rows, nothing),
            generation,
            stream,
            Factor(np.empty((0, 0)), generation.smallest, generation.largest),
            Sentinels((), rows.take(slice(0)), nothing[:0]),
            solution.minimiser.error,
            (),
            seed=0,
            begun=solution,
            **more,
        )

    @property
    def solution(self) -> Solution:
        """Exact sums and the minimiser of the live rows."""
        if self.stream.solution is None:
            raise AssertionError("a linear model of the library has exact sums")
        return self.stream.solution

    @property
    def error(self) -> PublishedError:
        """Error of what is published: that of rounding once, and a projection's distance."""
        if self.members.weighted == 0:
            return PublishedError(0.0, ErrorKind.EXACT, 0.0, 0.0)
        return published_error(self.generation, self.stream, self.sentinels, len(self.members))

    def delete(self, ids: tuple[str, ...], method: str) -> PublishedError:
        """Delete live rows, and return the error. The cost is that of `Solution.changed`."""
        members = self.members
        rows = members.rows.take(members.places(ids))
        self._step(self.solution.changed(rows, None), rows, None, method)
        self.leave(ids)
        return self.error

    def change(
        self, new_ids: tuple[str, ...], new: Rows, old: tuple[str, ...], method: str
    ) -> None:
        """Insert rows, and delete live rows ``old`` in the same step. Cost that of `delete`."""
        check_size(new)
        leaving = self.members.rows.take(self.members.places(old)) if old else None
        try:
            solution = self.solution.changed(leaving, new)
        except OutOfRange as error:
            names = named_columns(new, self.columns, intercept=self.intercept)
            raise error.named(new_ids, names) from None
        self._step(solution, leaving, new, method)
        self._exchange(new_ids, new, old)

    def refit_with(self, new_ids: tuple[str, ...], new: Rows, old: tuple[str, ...]) -> None:
        """Do `change` by a fit to all rows: where no row is left before or after it."""
        check_size(new)
        self._exchange(new_ids, new, old)
        rows, penalty = self.members.rows, self.solution.penalty
        try:
            solution = Solution.of(Sums.of(rows), penalty)
        except OutOfRange as error:
            columns = named_columns(rows, self.columns, intercept=self.intercept)
            raise error.named(self.members.ids, columns) from None
        self._begin(solution)

    def _exchange(self, new_ids: tuple[str, ...], new: Rows, old: tuple[str, ...]) -> None:
        self.members = deepcopy(self.members)
        self.members.forget(old)
        self.members.add(new_ids, new, np.empty((len(new), 0)))

    def _step(
        self, solution: Solution, leaving: Rows | None, arriving: Rows | None, method: str
    ) -> None:
        """Publish ``solution`` by a method: one step for the rows that left, one for new ones."""
        stream, publishing = self.stream, method_named(method)
        if self.method not in (None, method):
            stream = complete(stream)
        objective, theta = self.generation.objective, solution.minimiser.theta
        for rows, sign in ((arriving, -1.0), (leaving, 1.0)):
            if rows is None or not len(rows):
                continue
            seen = self.begun.seen(rows)
            W = self.begun.dual_rows(rows.X) if method == "influence" else seen.X[:, :0]
            published, basis = publishing.publish(
                Step(seen.X, W, _errors(objective, seen, stream.theta_r, sign), theta, stream)
            )
            stream = stream._replace(
                theta_exact=theta, published=published, Q=stream.Q.append(basis)
            )
        stream = stream._replace(solution=solution)
        published_error(self.generation, stream, self.sentinels, 1)  # it can be stated
        self.stream, self.method = stream, method
        self.certified = solution.minimiser.error

    def polish(self, target: float) -> float:  # noqa: ARG002 (it is at the optimum)
        """Publish the minimiser; it is the point at which the influence method takes errors."""
        self.stream = complete(self.stream)._replace(theta_r=self.stream.theta_exact)
        return self.solution.minimiser.error

    def compact(self) -> None:
        """Publish the minimiser; its Hessian is the influence method's. Nothing is folded away."""
        self.stream = complete(self.stream)
        self.begun = replace(self.solution, sums=self.solution.live_sums, warm=None)

    def rebuild(self, leave_out: tuple[str, ...]) -> None:
        """Begin a generation without ``leave_out``. Cost O(k d^2 + d^3): no pass over the rows."""
        gone = self.members.rows.take(self.members.places(leave_out))
        self._begin(self.solution.without(gone))
        self.leave(leave_out)

    def _begin(self, solution: Solution) -> None:
        """Begin a generation."""
        number, objective = self.generation.number + 1, self.generation.objective
        self.generation, self.stream = begin_rounded(number, objective, solution)
        self.begun, self.certified = solution, solution.minimiser.error

    def sums(self) -> Sums:
        """Return the exact sums of the live rows. Cost O(d^2)."""
        return self.solution.live_sums

    def diagnosed(self) -> Fitted:
        """Return the state with the dual rows of the live rows. Cost O(n d^2)."""
        live, objective = self.members.live, self.generation.objective
        precomputation = precompute_blocks(objective, self.members.rows.take(live))
        precomputation = replace(precomputation, theta=self.stream.theta_exact)
        generation, stream = begin(self.generation.number, objective, precomputation)
        return Fitted(
            self.members.with_dual_rows(live, precomputation.dual_rows),
            generation,
            stream,
            precomputation.factor,
            self.sentinels,
            self.certified,
            self.classes,
            self.seed,
            self.intercept,
            self.ridge,
            self.columns,
        )


def named_columns(rows: Rows, columns: tuple[str, ...] | None, *, intercept: bool) -> list[str]:
    """Return names of features and targets, as far as they have any: else their places.

    Those of a whole transformer have other names than the columns of X.
    """
    p, m = rows.X.shape[1] - int(intercept), rows.y.shape[1]
    own = columns is not None and len(columns) == p
    names = list(columns) if columns is not None and own else [str(j) for j in range(p)]
    targets = ["y"] if m == 1 else [f"y[{c}]" for c in range(m)]
    return [*names, *(["intercept"] if intercept else []), *targets]


def check_size(rows: Rows) -> None:
    """Refuse new rows with which the Hessian would not be of numbers of float64."""
    size = norm(lengths(rows.X) * np.maximum(np.sqrt(rows.weight), 1.0))
    if not size <= LARGEST:
        raise InvalidData(
            f"the new rows are too large to compute with: the root of their sum of squares is "
            f"{size:.0e}, at most {LARGEST:.0e}; correct them"
        )


def _errors(objective: Objective, rows: Rows, theta: Array, sign: float) -> Callable[[], Array]:
    return lambda: sign * objective.error(rows, theta)
