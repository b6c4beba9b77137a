"""The layer of changes: deleting, inserting, correcting; and refreshes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, assert_never

import numpy as np
from numpy.typing import ArrayLike

from lethe.engine.changes import check_live, check_new, kept_weights, new_rows
from lethe.engine.deletion.methods import method_named
from lethe.engine.errors import IllConditioned, InvalidData
from lethe.engine.estimator.base import WEIGHTED_TWICE, BaseModel, overflow_allowed
from lethe.engine.estimator.columns import check_columns, dense_features
from lethe.engine.estimator.refitting import changed
from lethe.engine.estimator.targets import learnt
from lethe.engine.fit.objective import Rows
from lethe.engine.fitted import Fitted, moved_by
from lethe.engine.preprocess.input.table import Table, TableLike
from lethe.engine.preprocess.library import PreparedModel
from lethe.engine.preprocess.library.state import PreparedRows
from lethe.engine.preprocess.refitted import RawRows
from lethe.engine.refresh.policy import Choice, Limits, choose
from lethe.engine.refresh.refreshes import complete
from lethe.engine.refresh.size import RefreshSize
from lethe.engine.result import ChangeResult, DeletionResult


class ChangingModel(BaseModel):
    """A fitted model whose rows are deleted, inserted and corrected."""

    @overflow_allowed
    def delete(self, ids: Iterable[str], method: str = "pru") -> DeletionResult:
        """Delete rows by id; ids that are already deleted are ignored.

        If no update exists, the model is refitted on the remaining rows: once every row is deleted,
        theta is 0; once a class of a logistic model has lost its last row, the intercept (with
        several classes, that of each) is penalised from then on (`intercept_penalised`).

        Parameters
        ----------
        ids
            Row ids, in any order; duplicates count once.
        method
            ``pru``, ``exact`` or ``influence``. If it differs from the last call's method, the
            model is completed first (`engine.refresh.refreshes.complete`).

        Raises
        ------
        UnknownRows
            Some id was never a row of this model; nothing is deleted.
        IllConditioned
            Leverage too near to 1, or a step or an error that is not finite; nothing is
            deleted. Rebuild without the rows instead: ``refresh("rebuild", without=ids)``.
        InvalidData
            Transformers that are fitted anew cannot be fitted to the rows that would be left;
            nothing is deleted.

        Notes
        -----
        Cost O(K k d + k^2 d), K rows deleted since the last compact or rebuild: independent of n,
        except for a new sample of the live rows, O(n d), once half of the old one is deleted.
        """
        method_named(method)  # refuse an unknown method whatever the ids are
        with self._lock:
            before = self._fitted
            to_delete = before.members.live_among(ids)
            state = before.draft()
            if not to_delete:
                error = state.error
            elif state.refitted is not None:
                state = changed(before, state.refitted, (), None, to_delete, method)
                error = state.error
            elif state.needs_refit(to_delete):
                state.rebuild(to_delete)
                state.method = None
                error = state.error
            else:
                error = state.delete(to_delete, method)
            moved = self._shaped(moved_by(state, before.published, before.feature_names))
            self._adopt(state)
        return DeletionResult(to_delete, moved, error, error.bound)

    def _adopt(self, state: Fitted) -> None:
        """Make a draft the model's state, now that nothing can fail any more."""
        state.erase()
        self._state = state

    # -- inserting and correcting -------------------------------------------------------------

    @overflow_allowed
    def insert(
        self,
        X: TableLike,
        y: ArrayLike,
        ids: Sequence[str],
        sample_weight: ArrayLike | None = None,
        method: str = "pru",
    ) -> ChangeResult:
        """Insert rows, as if they had been there when the model was fitted.

        Parameters
        ----------
        X, y, sample_weight
            k x p features, (k,) or (k, m) targets, and (k,) weights, not below 0; labels are
            those that the model was fitted on, and so are the columns of a data frame.
        ids
            k ids that the model has never had: a deleted id never comes back.
        method
            As of `delete`; a projection is onto the span of all rows deleted or inserted.

        Raises
        ------
        InvalidData
            Shapes, ids, labels or numbers cannot be used; nothing is inserted.
        IllConditioned
            A step or an error is not a finite number; nothing is inserted.

        Notes
        -----
        Cost O(k d^2 + K k d), K rows changed since the last compact or rebuild, and O(n d) for a
        new sample of the live rows.
        """
        with self._lock:
            names, rows = self._new_rows(X, y, ids, sample_weight)
            check_new(self._fitted.members, names)
            return self._change(names, self._weighed(rows), (), method)

    @overflow_allowed
    def correct(
        self,
        X: TableLike,
        y: ArrayLike,
        ids: Sequence[str],
        sample_weight: ArrayLike | None = None,
        method: str = "pru",
    ) -> ChangeResult:
        """Correct live rows: as if they had been these when the model was fitted.

        The parameters are those of `insert`, the ids those of live rows. Without ``sample_weight``
        a row keeps its weight.

        Raises
        ------
        UnknownRows
            Some id is not a live row; nothing is corrected.
        InvalidData, IllConditioned
            As `insert`, and `delete` of the rows as they were; nothing is corrected.

        Notes
        -----
        Cost: that of `insert` and `delete` together.
        """
        with self._lock:
            names, rows = self._new_rows(X, y, ids, sample_weight)
            check_live(self._fitted.members, names)
            if sample_weight is None:
                rows = replace(rows, weight=kept_weights(self._fitted.members, names))
            return self._change(names, self._weighed(rows), names, method)

    def _new_rows(
        self, X: TableLike, y: ArrayLike, ids: Sequence[str], sample_weight: ArrayLike | None
    ) -> tuple[tuple[str, ...], Rows]:
        state = self._fitted
        d, m = state.stream.published.shape
        table: Table | None = None
        raw: Any = None
        features: ArrayLike
        if isinstance(state, PreparedModel):
            table, features = state.read(X)
        else:
            check_columns(X, state.columns, type(self).__name__)
            if state.refitted is None:
                features = dense_features(self._transformed(X, state))
            else:  # unknown until the transformer is fitted to them, too
                raw = state.refitted.read(X)
                features = np.zeros((raw.shape[0], d - int(state.intercept)))
        if sample_weight is not None and state.members.balanced:
            raise InvalidData(WEIGHTED_TWICE)
        names, rows = new_rows(
            self.kind,
            features,
            learnt(self._target, y),
            ids,
            sample_weight,
            intercept=state.intercept,
            shape=(d - int(state.intercept), m),
            classes=state.classes,
        )
        if table is not None:
            rows = PreparedRows(rows.X, rows.y, rows.weight, table)
        if raw is not None:
            rows = RawRows(rows.X, rows.y, rows.weight, raw, learnt(self._target, y))
        return names, rows

    def _weighed(self, rows: Rows) -> Rows:
        """Return new rows with the weights of their classes; balanced ones follow by a rebuild."""
        weights = self._fitted.members.class_weights
        return rows if weights is None or not len(rows) else weights.weighed(rows)

    def _change(
        self, names: tuple[str, ...], rows: Rows, old: tuple[str, ...], method: str
    ) -> ChangeResult:
        method_named(method)
        before = self._fitted
        state = before.draft()
        if len(rows) and state.refitted is not None:
            state = changed(before, state.refitted, names, rows, old, method)
        elif len(rows) and state.needs_refit_for(rows, old):
            state.refit_with(names, rows, old)
        elif len(rows):
            state.change(names, rows, old, method)
        error = state.error
        moved = self._shaped(moved_by(state, before.published, before.feature_names))
        self._adopt(state)
        return ChangeResult(names, moved, error, error.bound)

    # -- refresh ------------------------------------------------------------------------------

    @overflow_allowed
    def refresh(
        self, size: RefreshSize | str | None = None, *, without: Iterable[str] = ()
    ) -> Choice:
        """Refresh by the policy of `engine.refresh.policy`, or by a given size.

        Parameters
        ----------
        size
            None lets the policy choose the smallest sufficient size; a polish that misses its
            target is then followed by a rebuild. So is every polish that ends without a bound.
        without
            Rows to delete by leaving them out of a rebuild, whatever ``size`` says.

        Returns
        -------
        Choice
            The size and its reason.

        Raises
        ------
        InvalidData
            There is no such size; or as of `delete`.
        UnknownRows, IllConditioned, NotConverged
            Nothing was changed.
        """
        if size is not None and size not in list(RefreshSize):
            raise InvalidData(
                f"there is no refresh {size!r}; choose one of {', '.join(RefreshSize)}"
            )
        with self._lock:
            state = self._fitted.draft()
            leave_out = state.members.live_among(without)
            if leave_out and state.refitted is not None:
                state = changed(state, state.refitted, (), None, leave_out, None)
                choice = Choice(RefreshSize.REBUILD, "")
            else:
                choice = self._refreshed(state, size, leave_out)
            state.method = None
            self._adopt(state)
        return choice

    def _refreshed(
        self, state: Fitted, size: RefreshSize | str | None, leave_out: tuple[str, ...]
    ) -> Choice:
        """Refresh a draft."""
        requested = (
            RefreshSize.REBUILD if leave_out else None if size is None else RefreshSize(size)
        )
        limits = self.limits or Limits()
        facts = state.facts(self.error_budget)
        choice = choose(facts, limits, requested)
        target = limits.far_under * facts.budget
        size = RefreshSize.REBUILD if state.members.weighted == 0 else choice.size
        match size:
            case RefreshSize.REBUILD:
                self._rebuild(state, leave_out)
            case RefreshSize.COMPLETE:
                state.stream = complete(state.stream)
            case RefreshSize.COMPACT:
                choice = self._compact(state, choice)
            case RefreshSize.POLISH:
                choice = self._polish(state, choice, target, needed=requested is None)
            case _:
                assert_never(size)
        return choice

    def _polish(self, state: Fitted, choice: Choice, target: float, *, needed: bool) -> Choice:
        """Polish; rebuild if it ends without a bound or misses a needed target."""
        left = state.polish(target)
        if state.certified is None:
            return self._rebuild(state, (), "a polish ended without a bound")
        if needed and not left <= target:
            return self._rebuild(state, (), "a polish did not reach its target")
        return choice

    def _compact(self, state: Fitted, choice: Choice) -> Choice:
        try:
            state.compact()
        except IllConditioned as error:
            return self._rebuild(state, (), f"a compact cannot be had: {error}")
        return choice

    def _rebuild(self, state: Fitted, leave_out: tuple[str, ...], reason: str = "") -> Choice:
        state.rebuild(leave_out)
        return Choice(RefreshSize.REBUILD, reason)
