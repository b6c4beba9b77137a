"""A fitted linear model of the library whose preprocessing is part of it, right to the last bit.

It is `engine.fitted_linear.FittedLinear` on raw rows: its exact sums are those of
`engine.preprocess.rounded`, and every version is the last step's parameters, correctly rounded.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from lethe.engine.exact.digits import OutOfRange
from lethe.engine.exact.running import Solution
from lethe.engine.fit.objective import Array, Kind, Objective, Rows
from lethe.engine.fitted_linear import FittedLinear
from lethe.engine.preprocess.input.settings import Settings
from lethe.engine.preprocess.input.table import Table
from lethe.engine.preprocess.library.state import GivenRows, PreparedRows
from lethe.engine.preprocess.rounded.raw import RawColumns, untransformed
from lethe.engine.preprocess.rounded.solution import PipelineSolution
from lethe.engine.preprocess.transformation.layout import Layout, lay_out
from lethe.engine.preprocess.transformation.predicting import pipeline_features


@dataclass(slots=True, kw_only=True)
class RoundedPipeline(FittedLinear):
    """A fitted pipeline; its other attributes are those of `FittedLinear`, of raw rows.

    Attributes
    ----------
    settings
        What was asked for.
    table
        The rows as they were given, by place; 0 where deleted.
    """

    settings: Settings
    table: Table

    @classmethod
    def of_table(cls, settings: Settings, given: GivenRows, raw: RawColumns) -> Self:
        """Return a fresh fit of a table. Cost O(n D^2 + d^3), D columns of raw rows.

        Raises
        ------
        InvalidData, IllConditioned
            As `engine.preprocess.rounded.solution.PipelineSolution.of_rows`.
        """
        rows = raw.rows(given.table, given.y, given.weight)
        try:
            solution = PipelineSolution.of_rows(raw, rows)
        except OutOfRange as error:
            raise error.named(given.names, ()) from None
        return cls.of_solution(
            Objective(Kind.LINEAR, solution.penalty),
            given.names,
            rows,
            solution,
            intercept=settings.intercept,
            ridge=settings.ridge,
            columns=settings.names,
            settings=settings,
            table=given.table,
        )

    @property
    def pipeline(self) -> PipelineSolution:
        """Exact sums, statistics and parameters of the live rows."""
        return _of_pipeline(self.solution)

    @property
    def layout(self) -> Layout:
        """Where everything is."""
        return self.pipeline.raw.layout

    @property
    def present(self) -> NDArray[np.int64]:
        """(p,) rows of each feature of a category."""
        return self.pipeline.live.present

    @property
    def left_out(self) -> NDArray[np.bool_]:
        """(p,) whether a feature is that of a category that is left out."""
        return self.pipeline.live.left_out

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features that theta belongs to, of one-hot ones with their category."""
        return self.layout.names

    @property
    def published(self) -> Array:
        """The final step's published parameters, d x m, the intercept last."""
        theta = self.stream.published
        if theta is self.stream.theta_exact:
            return theta
        return self.pipeline.without_idle(theta)

    @property
    def offsets(self) -> Array:
        """(p,) the size of what is subtracted from each feature, in its own units."""
        live = self.pipeline.statistics()
        return np.abs(live.mean) / live.deviation

    def features(self, X: Any) -> Array:
        """Return what the live pipeline makes of a table, n x p.

        Raises
        ------
        InvalidData
            As `Settings.read` and `pipeline_features`.
        """
        pipeline = self.pipeline
        return pipeline_features(
            untransformed(self.layout),
            pipeline.statistics(),
            pipeline.live.counts,
            self.settings.read(X, self.table.vocabularies),
        )

    def read(self, X: Any) -> tuple[Table, Array]:
        """Return new rows as a table, and their features as they are (0 where unknown).

        Raises
        ------
        InvalidData
            As `Settings.read`.
        """
        table = self.settings.read(X, self.table.vocabularies)
        features, _ = untransformed(self.layout).rows(table)
        return table, np.nan_to_num(features, nan=0.0)

    def needs_refit_for(self, new: Rows, old: tuple[str, ...]) -> bool:
        """Return whether a change cannot be a step; a new category, or a first gap, is none."""
        known = isinstance(new, PreparedRows) and untransformed(self.layout).knows(new.table)
        return not known or super(RoundedPipeline, self).needs_refit_for(new, old)

    def change(
        self, new_ids: tuple[str, ...], new: Rows, old: tuple[str, ...], method: str
    ) -> None:
        """Insert rows, and delete live rows ``old`` in the same step. Cost that of `delete`."""
        table = _table_of(new)
        arriving = self.pipeline.raw.rows(table, new.y, new.weight)
        leaving = self.members.rows.take(self.members.places(old)) if old else None
        try:
            solution = self.solution.changed(leaving, arriving)
        except OutOfRange as error:
            raise error.named(new_ids, ()) from None
        self._step(solution, leaving, arriving, method)
        self._exchange_table(table, old)
        self._exchange(new_ids, arriving, old)

    def refit_with(self, new_ids: tuple[str, ...], new: Rows, old: tuple[str, ...]) -> None:
        """Do `change` by a fit to all rows."""
        table = _table_of(new)
        self._exchange_table(table, old)
        rows = Rows(np.zeros((len(new), self.members.rows.X.shape[1])), new.y, new.weight)
        self._exchange(new_ids, rows, old)
        self._fit_afresh(self.members.live)

    def _exchange_table(self, new: Table, old: tuple[str, ...]) -> None:
        table = deepcopy(self.table)
        table.forget(self.members.places(old))
        self.table = table.below(new)

    def rebuild(self, leave_out: tuple[str, ...]) -> None:
        """Fit the pipeline to the live rows without ``leave_out``. Cost O(n D^2 + d^3).

        Categories that none of them has lose their place.
        """
        remain = self.members.live_without(leave_out)
        if self.members.rows.weight[remain].any():
            self.members = deepcopy(self.members)
            self.table = deepcopy(self.table)
            self.table.forget(self.members.places(leave_out))
            self.members.forget(leave_out)
            self._fit_afresh(remain)
        else:
            gone = self.members.rows.take(self.members.places(leave_out))
            self._begin(self.solution.without(gone))
            self.leave(leave_out)

    def _fit_afresh(self, live: np.ndarray) -> None:
        """Begin a generation with places for what the live rows have."""
        table, members = self.table.pruned(self.settings.columns), self.members
        members.rebalance(live)
        kept = table.take(live)
        raw = RawColumns(self.settings, lay_out(self.settings.columns, kept), table.vocabularies)
        rows = raw.rows(kept, members.rows.y[live], members.rows.weight[live])
        X = np.zeros((len(live), raw.width))
        X[live] = rows.X
        self.table, members.rows = table, Rows(X, members.rows.y, members.rows.weight)
        try:
            solution = PipelineSolution.of_rows(raw, rows)
        except OutOfRange as error:
            raise error.named(members.live_ids(), ()) from None
        objective = Objective(Kind.LINEAR, solution.penalty)
        self.generation = replace(self.generation, objective=objective)
        self._begin(solution)

    def erase(self) -> None:
        """Overwrite the data of the rows that have left. Cost O(k d)."""
        self.table.forget(self.members.places(self.leaving))
        super(RoundedPipeline, self).erase()


def _of_pipeline(solution: Solution) -> PipelineSolution:
    if not isinstance(solution, PipelineSolution):
        raise TypeError("the solution is that of a bare model")
    return solution


def _table_of(new: Rows) -> Table:
    if not isinstance(new, PreparedRows):
        raise TypeError("rows of a model with preprocessing come with their table")
    return new.table
