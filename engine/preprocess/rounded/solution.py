"""A linear pipeline whose rows come and go: its exact sums, what it has learnt, and its parameters.

It stands in a stream where a bare linear model has its `engine.exact.running.Solution`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lethe.engine.exact.kept import Kept, Moved
from lethe.engine.exact.rounding import Minimiser
from lethe.engine.exact.rows import ChangedRows
from lethe.engine.exact.running import Solution
from lethe.engine.exact.sums import RunningSums, Sums
from lethe.engine.fit.objective import Array, Rows, RowsInBlocks, ridge_penalty
from lethe.engine.preprocess.rounded.minimiser import dual_rows, minimiser
from lethe.engine.preprocess.rounded.raw import RawColumns
from lethe.engine.preprocess.rounded.statistics import ExactStatistics, Whole
from lethe.engine.preprocess.transformation.statistics import Statistics


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSolution(Solution):
    """Attributes are those of `Solution`, whose sums are over raw rows, and these.

    Attributes
    ----------
    raw
        What is where in a raw row.
    plain
        The sums without weights, of which the statistics are; None if every weight is 1.
    live
        The statistics of the live rows.
    """

    raw: RawColumns
    plain: Sums | None
    live: ExactStatistics

    @classmethod
    def of_sums(
        cls,
        raw: RawColumns,
        sums: Sums,
        plain: Sums | None = None,
    ) -> PipelineSolution:
        """Return the solution for the rows that ``sums`` are of.

        Cost and errors are those of `minimiser`.
        """
        settings, layout = raw.settings, raw.layout
        penalty = ridge_penalty(
            settings.ridge,
            layout.features + int(settings.intercept),
            intercept=settings.intercept,
            penalise_intercept=settings.penalise_intercept,
        )
        S = Whole(sums)
        live = ExactStatistics.of(raw, S if plain is None else Whole(plain))
        if sums.entries.is_zero() or _is_empty(raw, live):
            found = Minimiser(np.zeros((len(penalty), sums.m)), rounded=True)
        else:
            found = minimiser(raw, live, S)
        return cls(
            sums, penalty, found, None,
            raw=raw, plain=plain, live=live,
        )  # fmt: skip

    @classmethod
    def of_rows(cls, raw: RawColumns, rows: Rows) -> PipelineSolution:
        """Return the solution for raw rows. Cost O(n D^2) for each pair of slices, and O(d^3)."""
        sums = Sums.of(rows)
        plain = None if _plain(rows) else Sums.of(_unweighted(rows), sums.unit)
        return cls.of_sums(raw, sums, plain)

    @classmethod
    def read(cls, raw: RawColumns, kept: Kept) -> PipelineSolution:
        """Return the solution for the sums that a store has. Cost and errors as of `of_sums`."""
        sums, plain = _after(kept.written, kept.plain, kept.since)
        return replace(cls.of_sums(raw, sums, plain), kept=kept)

    def changed(self, leaving: Rows | None, arriving: Rows | None) -> PipelineSolution:
        """Return the solution without some raw rows and with others. Cost O(k D^2 + d^3).

        A row without a weight counts, too: statistics have no weights.
        """
        moved = [
            Moved(sign, rows)
            for rows, sign in ((leaving, -1), (arriving, 1))
            if rows is not None and len(rows)
        ]
        if not moved:
            return self
        sums, plain = _after(self.sums, self.plain, moved)
        solution = self.of_sums(self.raw, sums, plain)
        if self.kept is None:
            return solution
        kept = self.kept.joined(moved) or replace(solution.whole(), most=self.kept.most)
        return replace(solution, kept=kept)

    def whole(self) -> Kept:
        """Return the sums of the live rows as a store keeps them, whole."""
        return Kept(self.sums, plain=self.plain)

    def is_of(self, rows: RowsInBlocks) -> bool:
        """Return whether the sums are those of these raw rows, digit for digit."""
        running = RunningRaw(self.sums.unit, self.sums.m)
        for block in rows.blocks():
            running.add(block)
        plain = (running.plain or running.weighted).sums()
        return running.weighted.sums().equal(self.sums) and (self.plain or self.sums).equal(plain)

    def same_sums(self, other: Solution) -> bool:
        """Return whether these are the same sums, with weights and without."""
        return (
            self.sums.equal(other.sums)
            and isinstance(other, PipelineSolution)
            and ((self.plain or self.sums).equal(other.plain or other.sums))
        )

    def without(self, leaving: Rows) -> PipelineSolution:
        """Return the solution without some raw rows."""
        return self.changed(leaving, None)

    def dual_rows(self, X: Array) -> Array:
        """Return the last step's H^-1 x for raw rows, k x d, to float64's accuracy."""
        if _is_empty(self.raw, self.live):
            return np.zeros((len(X), len(self.penalty)))
        return dual_rows(self.raw, self.live, Whole(self.sums), X)

    def statistics(self) -> Statistics:
        """Return the live statistics as float64."""
        return self.live.rounded(self.raw)

    def without_idle(self, theta: Array) -> Array:
        """Return parameters with 0 for features of one value, of which a projection knows not."""
        theta = theta.copy()
        theta[: self.raw.layout.features][self.live.idle] = 0.0
        return theta

    def seen(self, rows: Rows) -> Rows:
        """Return raw rows as the last step sees them, k x d, in float64. Cost O(k D)."""
        raw, stated = self.raw, self.statistics()
        layout, intercept = raw.layout, raw.settings.intercept
        X = np.zeros((len(rows), layout.features + int(intercept)))
        own = raw.own >= 0
        X[:, : layout.features][:, own] = rows.X[:, raw.own[own]]
        for hot in layout.one_hot:
            if hot.shared is not None:
                rare = self.live.sharing(layout, hot.shared)
                X[:, hot.shared] = rows.X[:, raw.own[rare]].sum(axis=1)
        np.add.at(X.T, layout.entry_feature, (rows.X[:, raw.entries] * stated.shift).T)
        X[:, : layout.features] -= stated.mean
        X[:, : layout.features] /= stated.deviation
        X[:, : layout.features][:, self.live.idle] = 0.0
        if intercept:
            X[:, -1] = 1.0
        return Rows(X, rows.y, rows.weight)

    def __reduce__(self) -> tuple[Callable[..., PipelineSolution], tuple[Any, ...]]:
        """Copy and pickle the sums of the live rows alone."""
        return self.of_sums, (self.raw, self.sums, self.plain)


class RunningRaw:
    """Sums of raw rows that come in blocks: with weights, and without where these are not 1."""

    def __init__(self, unit: NDArray[np.int_], m: int) -> None:
        self.weighted = RunningSums(unit, m)
        self.plain: RunningSums | None = None

    def add(self, rows: Rows) -> None:
        """Add rows; cost and errors are those of `RunningSums.add`."""
        if self.plain is None and not _plain(rows):
            self.plain = deepcopy(self.weighted)
        self.weighted.add(rows)
        if self.plain is not None:
            self.plain.add(_unweighted(rows))

    def solution(self, raw: RawColumns) -> PipelineSolution:
        """Return the solution for the rows so far. Cost and errors as of `of_sums`."""
        plain = None if self.plain is None else self.plain.sums()
        return PipelineSolution.of_sums(raw, self.weighted.sums(), plain)


def _after(sums: Sums, plain: Sums | None, moved: Sequence[Moved]) -> tuple[Sums, Sums | None]:
    """Return sums with and without weights after rows came and went; see `PipelineSolution`."""
    for sign, rows in moved:
        if plain is None and not _plain(rows):
            plain = sums
        if plain is not None:
            plain = plain.changed(ChangedRows.of(_unweighted(rows), sign, plain.unit))
        sums = sums.changed(ChangedRows.of(rows, sign, sums.unit))
    return sums, plain


def _is_empty(raw: RawColumns, live: ExactStatistics) -> bool:
    """Return whether there is no parameter to solve for: no intercept, and nothing varies."""
    return bool(live.idle.all()) and not raw.settings.intercept


def _plain(rows: Rows) -> bool:
    return bool((rows.weight == 1.0).all())


def _unweighted(rows: Rows) -> Rows:
    return Rows(rows.X, rows.y, np.ones(len(rows)))
