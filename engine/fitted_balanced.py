"""A fitted linear model whose classes have balanced weights: exact sums, one of each class.

    S = sum_c n / (C n_c) S_c

A change moves the weights of all rows, but those of a class by one factor: the sums of each class
follow the rows as in `engine.fitted_linear`, and the normal equations are put together anew. The
weights are rounded to float64, as scikit-learn's are, and nothing else is: every version is the
minimiser for these weights, correctly rounded. There is no pass over the features of rows that
stay.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from lethe.engine.exact.digits import Digits, OutOfRange, added, scaled, units_of
from lethe.engine.exact.rows import ChangedRows, cut_weights
from lethe.engine.exact.running import Solution
from lethe.engine.exact.sums import Sums, largest_of
from lethe.engine.fit.class_weights import balanced_weights, class_of
from lethe.engine.fit.magnitude import check_data
from lethe.engine.fit.objective import Kind, Objective, Rows
from lethe.engine.fitted_linear import FittedLinear, check_size, named_columns


@dataclass(slots=True, kw_only=True)
class BalancedLinear(FittedLinear):
    """Everything that a linear fit with balanced weights produces.

    Attributes
    ----------
    of_classes
        The sums of each class, of rows with a weight of 1, in the same units.
    """

    of_classes: tuple[Sums, ...]

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
        """Return a fresh fit of rows that have their balanced weights.

        Raises
        ------
        InvalidData, IllConditioned
            As `FittedLinear.of_rows`.
        """
        check_data(objective, rows)
        unit = units_of(largest_of(rows))
        nothing = Sums.of(rows.take(slice(0)), unit)
        try:
            sums = _moved([nothing] * _classes(rows), rows, 1)
        except OutOfRange as error:
            raise error.named(names, named_columns(rows, columns, intercept=intercept)) from None
        solution = Solution.of(_weighed(sums, _counts(rows)), objective.penalty)
        return cls.of_solution(
            objective,
            names,
            rows,
            solution,
            intercept=intercept,
            ridge=ridge,
            columns=columns,
            of_classes=sums,
        )

    def refit_with(self, new_ids: tuple[str, ...], new: Rows, old: tuple[str, ...]) -> None:
        """Insert rows, and delete live rows ``old``. Cost O(k d^2 + C d^2 + d^3 + n m)."""
        check_size(new)
        sums = _moved(self.of_classes, self.members.rows.take(self.members.places(old)), -1)
        try:
            sums = _moved(sums, new, 1)
        except OutOfRange as error:
            columns = named_columns(new, self.columns, intercept=self.intercept)
            raise error.named(new_ids, columns) from None
        self._exchange(new_ids, new, old)
        self._solve(sums, self.members.live)

    def rebuild(self, leave_out: tuple[str, ...]) -> None:
        """Begin a generation without ``leave_out``. Cost O(k d^2 + C d^2 + d^3 + n m)."""
        gone = self.members.rows.take(self.members.places(leave_out))
        self._solve(_moved(self.of_classes, gone, -1), self.members.live_without(leave_out))
        self.leave(leave_out)

    def _solve(self, sums: tuple[Sums, ...], remain: NDArray[np.bool_]) -> None:
        """Begin a generation of the rows that remain, whose sums these are."""
        self.members.rebalance(remain)
        weighed = _weighed(sums, _counts(self.members.rows.take(remain)))
        self._begin(Solution.of(weighed, self.solution.penalty))
        self.of_classes = sums


def _classes(rows: Rows) -> int:
    return max(2, rows.outputs)


def _counts(rows: Rows) -> NDArray[np.intp]:
    """Return the number of rows of each class."""
    return np.bincount(class_of(Kind.LINEAR, rows.y), minlength=_classes(rows))


def _moved(sums: Iterable[Sums], rows: Rows, sign: int) -> tuple[Sums, ...]:
    """Return the sums of each class after rows left (-1) or arrived (1)."""
    place = class_of(Kind.LINEAR, rows.y)
    found = []
    for c, own in enumerate(sums):
        chosen = np.flatnonzero(place == c)
        part = replace(rows.take(chosen), weight=np.ones(len(chosen)))
        try:
            found.append(own.changed(ChangedRows.of(part, sign, own.unit)) if len(chosen) else own)
        except OutOfRange as error:
            raise OutOfRange(int(chosen[error.row]), error.column) from None
    return tuple(found)


def _weighed(sums: tuple[Sums, ...], counts: NDArray[np.intp]) -> Sums:
    """Return the sums of the rows with their balanced weights."""
    parts = [
        scaled(own.entries, _factor(weight, len(own.unit)))
        for own, weight in zip(sums, balanced_weights(counts).tolist(), strict=True)
        if weight > 0.0 and not own.entries.is_zero()
    ]
    return replace(sums[0], entries=added(parts)) if parts else sums[0]


def _factor(weight: float, width: int) -> Digits:
    return cut_weights(np.full(width, weight))
