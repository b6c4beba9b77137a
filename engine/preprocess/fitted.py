"""A fitted library model whose preprocessing is part of it.

The engine's rows are rows in base units (`engine.preprocess.base`), and its stream is that of a
bare model on them, with one difference: theta_exact is the answer for the live statistics, which
every change settles anew (`engine.preprocess.movement`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from lethe.engine.deletion.insertion import base_dual_rows, insert
from lethe.engine.deletion.methods import method_named
from lethe.engine.deletion.stream import Stream, at_rest, delete
from lethe.engine.error.estimate import ErrorKind, PublishedError
from lethe.engine.error.sentinels import SENTINELS, Sentinels
from lethe.engine.errors import IllConditioned, InvalidData
from lethe.engine.fit.objective import Array, Kind, Rows
from lethe.engine.fitted import Fitted
from lethe.engine.preprocess.answer import (
    Answer,
    Prepared,
    contribution,
    measured_answer,
    prepare,
    published_by,
    settled_answer,
)
from lethe.engine.preprocess.base import ABSENT, BaseTransformation
from lethe.engine.preprocess.error import Sample, pipeline_error, sampled_estimate
from lethe.engine.preprocess.layout import Places
from lethe.engine.preprocess.predicting import pipeline_features
from lethe.engine.preprocess.published import PipelineUnits
from lethe.engine.preprocess.settings import Settings
from lethe.engine.preprocess.statistics import StatisticsMoved
from lethe.engine.preprocess.sums import Sums
from lethe.engine.preprocess.table import Table, Vocabulary, numeric_names, read_table
from lethe.engine.refresh.kinds import complete
from lethe.engine.rows import Mask, Membership, checked_rows


@dataclass(frozen=True, slots=True)
class PreparedRows(Rows):
    """Rows in base units, with the table that they were made from.

    Rows that the base does not know (a new category, a first missing number) have 0 there.
    """

    table: Table


@dataclass(slots=True, kw_only=True)
class PreparedFit(Fitted):
    """Everything that `fit` produces for a model with preprocessing.

    Attributes
    ----------
    settings
        What was asked for.
    table, entries
        The rows before any transformation, and their entries (n x g), by place; 0 where deleted.
    base
        The transformation to base units.
    answer
        The live answer.
    """

    settings: Settings
    table: Table
    entries: Places
    base: BaseTransformation
    answer: Answer

    @classmethod
    def fit(
        cls,
        settings: Settings,
        X: Any,
        y: ArrayLike,
        ids: Sequence[str] | None,
        sample_weight: ArrayLike | None,
        seed: int,
    ) -> PreparedFit:
        """Fit a table. Cost O(n d^2).

        Raises
        ------
        InvalidData, IllConditioned, NotConverged
            As `engine.models`.
        """
        table = read_table(settings.columns, X)
        nothing = np.zeros((len(table), 1))  # features are not numbers yet
        names, rows, classes = checked_rows(
            settings.kind, nothing, y, ids, sample_weight, intercept=False
        )
        settings.check_targets(rows.y)
        for name, column in zip(numeric_names(settings.columns), table.numbers.T, strict=True):
            if np.isnan(column).all():
                raise InvalidData(f"column {name!r} has no value in any row; leave it out")
        made = prepare(settings, table, rows.y, rows.weight, 0)
        members = Membership.of(settings.kind, names, made.rows, made.dual_rows)
        fitted = cls(
            members=members,
            generation=made.generation,
            stream=made.stream,
            factor=made.factor,
            sentinels=members.sentinels(made.generation, seed),
            certified=made.certified,
            classes=classes,
            seed=seed,
            intercept=settings.intercept,
            ridge=settings.ridge,
            columns=settings.names,
            settings=settings,
            table=table,
            entries=made.entries,
            base=made.base,
            answer=made.answer,
        )
        _ = fitted.error
        return fitted

    # -- reading ------------------------------------------------------------------------------

    @property
    def units(self) -> PipelineUnits:
        """The map from base units to the pipeline's."""
        return self._units_of(self.answer)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features that theta belongs to, of one-hot ones with their category."""
        return self.base.layout.names

    @property
    def published(self) -> Array:
        """The final step's published parameters, d x m, the intercept last."""
        return self.units.parameters(self.stream.published)

    @property
    def error(self) -> PublishedError:
        """Error of what is published against the pipeline refitted on the live rows."""
        if self.members.weighted == 0:
            return PublishedError(0.0, ErrorKind.EXACT, 0.0, 0.0)
        return self._error_of(
            self.stream, self.answer, self.sentinels, len(self.members), self.certified
        )

    def _error_of(
        self,
        stream: Stream,
        answer: Answer,
        sentinels: Sentinels,
        rows_live: int,
        certified: float | None,
    ) -> PublishedError:
        """Return the error of a state whose other parts are this one's.

        Raises
        ------
        IllConditioned
            It is not a finite number.
        """
        return pipeline_error(
            self.base,
            self.generation,
            self.factor,
            stream,
            answer,
            self._units_of(answer),
            self._sample(sentinels, rows_live),
            certified,
        )

    def estimate(self) -> float | None:
        """Return the sentinels' estimate in the pipeline's units; 0 where there is a bound."""
        if self.settings.kind is Kind.LINEAR or self.certified is not None:
            return 0.0
        return sampled_estimate(
            self.base,
            self.generation,
            self.factor,
            self.stream,
            self.answer,
            self.units,
            self._sample(self.sentinels, len(self.members)),
        )

    def _sample(self, sentinels: Sentinels, rows_live: int) -> Sample:
        """Return the sample with its entries; a linear model's error needs no sample."""
        linear = self.settings.kind is Kind.LINEAR
        places = self.members.places(() if linear else sentinels.ids)
        return Sample(sentinels, self.entries[places], rows_live)

    def _units_of(self, answer: Answer) -> PipelineUnits:
        return PipelineUnits.of(answer.live, intercept=self.settings.intercept)

    def features(self, X: Any) -> Array:
        """Return what the live pipeline makes of a table, n x p.

        Raises
        ------
        InvalidData
            As `pipeline_features`.
        """
        sums = self.answer.sums
        return pipeline_features(
            self.settings.columns,
            self.base,
            self.answer.live,
            sums.counts,
            sums.present,
            self.table.vocabularies,
            X,
        )

    def read(self, X: Any) -> tuple[Table, Array]:
        """Return new rows as a table, and their features in base units (0 where unknown).

        Raises
        ------
        InvalidData
            As `read_table`.
        """
        table = read_table(self.settings.columns, X, self.table.vocabularies)
        features, _ = self.base.rows(table)
        return table, np.nan_to_num(features, nan=0.0)

    # -- changes ------------------------------------------------------------------------------

    def needs_refit(self, ids: tuple[str, ...]) -> bool:
        """Return whether there is no step: of `Fitted`, or the intercept is penalised for now."""
        return self._intercept_held or super(PreparedFit, self).needs_refit(ids)

    @property
    def _intercept_held(self) -> bool:
        """Whether the intercept is penalised because a class has no row: then nothing moves."""
        penalised = bool(self.generation.objective.penalty[-1] > 0)
        return penalised and self.settings.free_intercept

    def needs_refit_for(self, new: Rows, old: tuple[str, ...]) -> bool:
        """Return whether a change cannot be a step; a new category, or a first gap, is none."""
        known = isinstance(new, PreparedRows) and self.base.knows(new.table)
        return (
            self._intercept_held or not known or super(PreparedFit, self).needs_refit_for(new, old)
        )

    def delete(self, ids: tuple[str, ...], method: str) -> PublishedError:
        """Delete live rows by a step and corrections, and return the error.

        Cost: a deletion's, and O(d^2 + K d + q d) a correction.
        """
        places = self.members.places(ids)
        rows, W = self.members.rows.take(places), self.members.W[places]
        stream = self._begun(method)
        after = delete(self.generation, stream, rows, W, method_named(method)).stream
        leaving = contribution(self.generation, self.base, rows, self.entries[places])
        try:
            sums = self.answer.sums.changed(self.base.layout, leaving, -1)
            after, answer = self._settled(after, sums, self.table.vocabularies, method)
        except StatisticsMoved:
            self.rebuild(ids)
            return self.error
        sentinels, remaining = self.sentinels.without(frozenset(ids)), len(self.members) - len(ids)
        error = self._error_of(after, answer, sentinels, remaining, None)
        self._forget(ids)
        self.sentinels = sentinels
        self.stream, self.answer, self.certified, self.method = after, answer, None, method
        if 2 * len(sentinels.ids) >= min(SENTINELS, remaining):
            return error
        self.sentinels = self.members.sentinels(self.generation, self.seed + self.generation.number)
        return self.error

    def change(
        self, new_ids: tuple[str, ...], new: Rows, old: tuple[str, ...], method: str
    ) -> None:
        """Insert rows, and delete live rows ``old`` in the same step: as of `Fitted`."""
        if not isinstance(new, PreparedRows):
            raise TypeError("rows of a model with preprocessing come with their table")
        generation, layout = self.generation, self.base.layout
        _, entries = self.base.rows(new.table)
        W, off = base_dual_rows(generation, self.factor, new.X)
        stream = insert(generation, self._begun(method), new, W, method_named(method), off).stream
        arriving = contribution(generation, self.base, new, entries)
        sums = self.answer.sums.changed(layout, arriving, 1)
        if old:
            places = self.members.places(old)
            rows, dual = self.members.rows.take(places), self.members.W[places]
            stream = delete(generation, stream, rows, dual, method_named(method)).stream
            leaving = contribution(generation, self.base, rows, self.entries[places])
            sums = sums.changed(layout, leaving, -1)
        try:
            stream, answer = self._settled(stream, sums, new.table.vocabularies, method)
        except StatisticsMoved:
            self.refit_with(new_ids, new, old)
            return
        changed = replace(
            self, members=deepcopy(self.members), table=deepcopy(self.table),
            entries=self.entries.copy(), stream=stream, answer=answer, certified=None,
        )  # fmt: skip
        changed._forget(old)
        changed.members.add(new_ids, new, W)
        changed.table = changed.table.below(new.table)
        changed.entries = np.vstack([changed.entries, entries])
        changed.sentinels = changed.members.sentinels(generation, self.seed + len(self.members.ids))
        _ = changed.error  # it can be stated
        self._take_over(changed)
        self.method = method

    def refit_with(self, new_ids: tuple[str, ...], new: Rows, old: tuple[str, ...]) -> None:
        """Do `change` by a rebuild. Cost O(n d^2)."""
        if not isinstance(new, PreparedRows):
            raise TypeError("rows of a model with preprocessing come with their table")
        changed = replace(
            self, members=deepcopy(self.members), table=self.table.below(new.table),
            entries=np.vstack([self.entries, np.full((len(new), self.entries.shape[1]), -1)]),
        )  # fmt: skip
        changed._forget(old)
        changed.members.add(new_ids, new, np.zeros((len(new), self.members.W.shape[1])))
        changed.rebuild(())
        self._take_over(changed)

    def _take_over(self, other: Fitted) -> None:
        super(PreparedFit, self)._take_over(other)
        if isinstance(other, PreparedFit):
            self.members, self.table, self.entries = other.members, other.table, other.entries
            self.base, self.answer = other.base, other.answer

    def _begun(self, method: str) -> Stream:
        """Return the stream that a change by ``method`` begins with, completed if it is another."""
        if self.method in (None, method):
            return self.stream
        return complete(self.stream)

    def _settled(
        self, stream: Stream, sums: Sums, vocabularies: tuple[Vocabulary, ...], method: str
    ) -> tuple[Stream, Answer]:
        """Return the live answer after a step, and publish it by ``method``."""
        stream, answer = settled_answer(
            self.base,
            self.generation,
            stream,
            self.factor,
            sums,
            vocabularies,
            self.answer.gradient,
        )
        return published_by(stream, method), answer

    def _forget(self, ids: tuple[str, ...]) -> None:
        """Overwrite rows. Cost O(k d)."""
        places = self.members.places(ids)
        self.members.forget(ids)
        self.table.forget(places)
        self.entries[places] = ABSENT

    # -- refreshes ----------------------------------------------------------------------------

    def polish(self, target: float) -> float:
        """Measure the gradient by a pass over the live rows, and settle anew. Cost O(n d).

        Only a rebuild brings a logistic model to its optimum: infinity is returned, and no bound.
        """
        if self.certified is not None and self.certified <= target:
            return self.certified
        if self.settings.kind is not Kind.LINEAR:
            self.certified = None
            return math.inf
        live = self.members.live
        rows, entries = self.members.rows.take(live), self.entries[live]
        try:
            stream, answer = measured_answer(
                self.base,
                self.generation,
                self.stream,
                self.factor,
                rows,
                entries,
                self.table.vocabularies,
            )
        except StatisticsMoved:
            self.certified = None
            return math.inf
        error = self._error_of(stream, answer, self.sentinels, len(self.members), None)
        self.stream, self.answer, self.certified = stream, answer, error.bound
        return math.inf if error.bound is None else error.bound

    def compact(self) -> None:
        """Fold V away, and measure a linear model's gradient afresh. Cost O(n K d).

        Raises
        ------
        IllConditioned
            As of `Fitted`, or the gradient cannot be settled; nothing is changed.
        """
        changed = replace(self, members=deepcopy(self.members))
        super(PreparedFit, changed).compact()
        if self.settings.kind is Kind.LINEAR and math.isinf(changed.polish(0.0)):
            raise IllConditioned("the live statistics are too far from those of the fit")
        self._take_over(changed)

    def rebuild(self, leave_out: tuple[str, ...]) -> None:
        """Refit the pipeline on the live rows without ``leave_out``. Cost O(n d^2)."""
        remain = self.members.live_without(leave_out)
        if not self.members.rows.weight[remain].any():
            self._forget(leave_out)
            self.sentinels = self.sentinels.without(frozenset(leave_out))
            origin = np.zeros_like(self.stream.theta_exact)
            self.stream = at_rest(origin, 0.0, self.generation.blocks)
            return
        rows, number = self.members.rows.take(remain), self.generation.number + 1
        table = deepcopy(self.table)
        table.forget(self.members.places(leave_out))
        table = table.pruned()
        made = prepare(self.settings, table.take(remain), rows.y, rows.weight, number)
        changed = replace(
            self, members=deepcopy(self.members), table=table, generation=made.generation,
            stream=made.stream, factor=made.factor, base=made.base, answer=made.answer,
            certified=made.certified,
        )  # fmt: skip
        changed.members.forget(leave_out)
        changed._place(made, remain)
        changed.sentinels = changed.members.sentinels(made.generation, self.seed + number)
        _ = changed.error  # it can be stated
        self._take_over(changed)

    def _place(self, made: Prepared, live: Mask) -> None:
        """Put the rows of a generation at the places of the live ones, and 0 elsewhere."""
        n, members = len(live), self.members
        X, W = np.zeros((n, made.rows.X.shape[1])), np.zeros((n, made.dual_rows.shape[1]))
        entries = np.full((n, made.entries.shape[1]), ABSENT)
        X[live], W[live], entries[live] = made.rows.X, made.dual_rows, made.entries
        members.rows, members.W = Rows(X, members.rows.y, members.rows.weight), W
        self.entries = entries
