"""A fitted library model whose preprocessing is part of it: its fit, changes and refreshes.

An operation that raises changes nothing, as in `engine.fitted`.
"""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import dataclass, replace

import numpy as np

from lethe.engine.deletion.change import RowMoves, RowsAndDuals, change
from lethe.engine.deletion.generation import Generation, Stream, at_rest
from lethe.engine.deletion.insertion import base_dual_rows
from lethe.engine.error.estimate import PublishedError
from lethe.engine.error.sentinels import SENTINELS, Sentinels
from lethe.engine.errors import IllConditioned, StatisticsMoved
from lethe.engine.fit.objective import Array, Kind, Rows
from lethe.engine.fitted import Fitted
from lethe.engine.preprocess.answer import (
    LiveAnswer,
    Prepared,
    contribution,
    measured_answer,
    prepare,
    published_by,
    settled_answer,
)
from lethe.engine.preprocess.input.settings import Settings
from lethe.engine.preprocess.input.table import Table, Vocabulary
from lethe.engine.preprocess.library.state import GivenRows, PreparedRows, PreparedState
from lethe.engine.preprocess.transformation.base import ABSENT
from lethe.engine.preprocess.transformation.sums import Sums
from lethe.engine.refresh.refreshes import complete
from lethe.engine.rows import Mask, Membership


@dataclass(slots=True)
class PreparedFit(PreparedState):
    """A fitted model with preprocessing, as it is changed."""

    @classmethod
    def of_table(cls, settings: Settings, given: GivenRows, seed: int) -> PreparedFit:
        """Fit a table. Cost O(n d^2).

        Raises
        ------
        InvalidData, IllConditioned, NotConverged
            As `engine.models`.
        """
        made = cls._prepare(settings, given.table, given.y, given.weight, 0)
        members = Membership.of(settings.kind, given.names, made.rows, made.dual_rows)
        fitted = cls(
            members=members,
            generation=made.generation,
            stream=made.stream,
            factor=made.factor,
            sentinels=cls._sentinels_of(members, made.generation, seed),
            certified=made.certified,
            classes=given.classes,
            seed=seed,
            intercept=settings.intercept,
            ridge=settings.ridge,
            columns=settings.names,
            settings=settings,
            table=given.table,
            entries=made.entries,
            base=made.base,
            answer=made.answer,
        )
        _ = fitted.error
        return fitted

    @classmethod
    def _prepare(
        cls,
        settings: Settings,
        table: Table,
        y: Array,
        weight: Array,
        number: int,
        near: PreparedState | None = None,  # noqa: ARG003 (where a search would begin)
    ) -> Prepared:
        """Return a generation of a table; ``near`` is the state before, if there is one."""
        return prepare(settings, table, y, weight, number)

    @classmethod
    def _sentinels_of(
        cls, members: Membership, generation: Generation, seed: int, without: tuple[str, ...] = ()
    ) -> Sentinels:
        """Return a sample of the live rows, from which errors are estimated."""
        return members.sentinels(generation, seed, without)

    # -- changes ------------------------------------------------------------------------------

    def delete(self, ids: tuple[str, ...], method: str) -> PublishedError:
        """Delete live rows by a step and corrections, and return the error.

        Cost: a deletion's, and O(d^2 + K d + q d) a correction.
        """
        leaving = self.members.moved(ids)
        after = change(self.generation, self._begun(method), RowMoves(leaving=leaving), method)
        try:
            sums = self._sums_without(self.answer.sums, ids, leaving.rows)
            after, answer = self._settled(after, sums, self.table.vocabularies, method)
        except StatisticsMoved:
            self.rebuild(ids)
            return self.error
        sentinels, remaining = self.sentinels.without(frozenset(ids)), len(self.members) - len(ids)
        if 2 * len(sentinels.ids) < min(SENTINELS, remaining):
            seed = self.seed + self.generation.number
            sentinels = self._sentinels_of(self.members, self.generation, seed, ids)
        error = self._error_of(after, answer, sentinels, remaining, None)
        self.stream, self.answer, self.sentinels = after, answer, sentinels
        self.certified, self.method = None, method
        self.leave(ids)
        return error

    def change(
        self, new_ids: tuple[str, ...], new: Rows, old: tuple[str, ...], method: str
    ) -> None:
        """Insert rows, and delete live rows ``old`` in the same step: as of `Fitted`."""
        if not isinstance(new, PreparedRows):
            raise TypeError("rows of a model with preprocessing come with their table")
        generation = self.generation
        _, entries = self.base.rows(new.table)
        W, off = base_dual_rows(generation, self.factor, new.X)
        leaving = self.members.moved(old) if old else None
        moved = RowMoves(RowsAndDuals(new, W, off), leaving)
        stream = change(generation, self._begun(method), moved, method)
        arriving = contribution(generation, self.base, new, entries, W, off)
        sums = self.answer.sums.changed(self.base.layout, arriving, 1)
        if leaving is not None:
            sums = self._sums_without(sums, old, leaving.rows)
        try:
            stream, answer = self._settled(stream, sums, new.table.vocabularies, method)
        except StatisticsMoved:
            self.refit_with(new_ids, new, old)
            return
        changed = replace(
            self, members=deepcopy(self.members), table=deepcopy(self.table),
            entries=self.entries.copy(), stream=stream, answer=answer, certified=None,
        )  # fmt: skip
        changed.leave(old)
        changed.erase()
        changed.members.add(new_ids, new, W)
        changed.table = changed.table.below(new.table)
        changed.entries = np.vstack([changed.entries, entries])
        seed = self.seed + len(self.members.ids)
        changed.sentinels = self._sentinels_of(changed.members, generation, seed)
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
        changed.leave(old)
        changed.erase()
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

    def _sums_without(self, sums: Sums, ids: tuple[str, ...], rows: Rows) -> Sums:
        entries = self.entries[self.members.places(ids)]
        leaving = contribution(self.generation, self.base, rows, entries)
        return sums.changed(self.base.layout, leaving, -1)

    def _settled(
        self, stream: Stream, sums: Sums, vocabularies: tuple[Vocabulary, ...], method: str
    ) -> tuple[Stream, LiveAnswer]:
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

    def erase(self) -> None:
        """Overwrite the data of the rows that have left. Cost O(k d)."""
        places = self.members.places(self.leaving)
        self.table.forget(places)
        self.entries[places] = ABSENT
        super(PreparedFit, self).erase()

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
        W = self.members.W[live]
        try:
            stream, answer = measured_answer(
                self.base,
                self.generation,
                self.stream,
                self.factor,
                rows,
                entries,
                W,
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
        changed = self.draft()
        super(PreparedFit, changed).compact()
        if self.settings.kind is Kind.LINEAR and math.isinf(changed.polish(0.0)):
            raise IllConditioned("the live statistics are too far from those of the fit")
        self._take_over(changed)

    def rebuild(self, leave_out: tuple[str, ...]) -> None:
        """Refit the pipeline on the live rows without ``leave_out``. Cost O(n d^2)."""
        remain = self.members.live_without(leave_out)
        self.members.rebalance(remain)
        if not self.members.rows.weight[remain].any():
            self.sentinels = self.sentinels.without(frozenset(leave_out))
            origin = np.zeros_like(self.stream.theta_exact)
            self.stream = at_rest(origin, 0.0, self.generation.blocks)
            self.leave(leave_out)
            return
        rows, number = self.members.rows.take(remain), self.generation.number + 1
        table = deepcopy(self.table)
        table.forget(self.members.places(leave_out))
        table = table.pruned(self.settings.columns)
        made = self._prepare(self.settings, table.take(remain), rows.y, rows.weight, number, self)
        changed = replace(
            self, members=deepcopy(self.members), table=table, generation=made.generation,
            stream=made.stream, factor=made.factor, base=made.base, answer=made.answer,
            certified=made.certified,
        )  # fmt: skip
        changed.members.forget(leave_out)
        changed._place(made, remain)
        changed.sentinels = self._sentinels_of(changed.members, made.generation, self.seed + number)
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
