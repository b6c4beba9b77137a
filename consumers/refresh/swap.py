"""Reads a refresh result and turns it into a transition of the live state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from lethe.consumers.refresh.resolved import with_rows_resolved
from lethe.consumers.refresh.swap_commit import (
    dropped,
    emptied,
    new_generation,
    small_refresh,
    stale_reason,
    unreachable,
)
from lethe.consumers.versions.disclosures import rows_erased, with_disclosures, with_scale_measured
from lethe.consumers.versions.draft import Origin, Transition
from lethe.engine.deletion.generation import distance_to_exact
from lethe.engine.error.budget import OverBudget
from lethe.engine.errors import IllConditioned, StoreUnavailable, Uncertified
from lethe.engine.fit.classes import unbounded
from lethe.engine.refresh.size import RefreshSize
from lethe.engine.store.layout.meta import with_meta
from lethe.engine.store.layout.state import ModelState
from lethe.engine.store.offline.catch_up import CaughtUp, catch_up
from lethe.engine.store.offline.jobs import JobResult, read_result, read_staged
from lethe.engine.store.offline.snapshot import load_factor
from lethe.engine.store.offline.staging import StagedGeneration, to_persist
from lethe.engine.store.offline.touched import rows_touched
from lethe.engine.store.store import ModelStore

_EXPIRED = "its staged generation has expired"


@dataclass(frozen=True, slots=True)
class Outcome:
    """A transition, or None if nothing changes; and a message for the log."""

    transition: Transition | None
    message: str


def swap(
    store: ModelStore, state: ModelState, job_id: str, origin: Origin, now: datetime
) -> Outcome:
    """Return the outcome of a refresh event.

    The event only names a job whose result must be in the store: a forged event changes nothing, a
    stale result is dropped, and if its job was the pending one, another is scheduled.
    """
    stored = read_result(store.client, state.keys, job_id)
    if stored is None:
        transition = dropped(state, job_id, origin, now=now)
        return Outcome(transition, "no result of this refresh job is stored")
    if isinstance(stored, str):
        transition = dropped(state, job_id, origin, now=now, order_again=False)
        return Outcome(transition, f"the refresh failed: {stored}")
    result, arrays = stored
    return _Swap(store, state, result, origin, now).outcome(arrays)


@dataclass(frozen=True, slots=True)
class _Swap:
    """The swap of one result, in a model's state, by the record that names its job."""

    store: ModelStore
    state: ModelState
    result: JobResult
    origin: Origin
    now: datetime

    def outcome(self, arrays: Mapping[bytes, bytes]) -> Outcome:
        """Return the outcome; ``arrays`` are those of the result."""
        stale = stale_reason(self.state, self.result)
        if stale is not None:
            return self._drop(stale)
        try:
            return self._swap(arrays)
        except Uncertified as error:
            return self._drop(str(error))

    def _swap(self, arrays: Mapping[bytes, bytes]) -> Outcome:
        state, result = self.state, self.result
        if self._changes_nothing():
            transition = dropped(state, result.job_id, self.origin, now=self.now)
            return Outcome(transition, f"nothing to refresh: {result.reason}")
        match result.size:
            case RefreshSize.COMPLETE | RefreshSize.POLISH:
                return self._done(small_refresh(state, result, arrays, self.origin, now=self.now))
            case RefreshSize.COMPACT | RefreshSize.REBUILD:
                resolved = with_rows_resolved(self.store, state, result.resolved)
                swap = replace(self, state=replace(state, deferred={**state.deferred, **resolved}))
                if result.staged_key is None:
                    return swap._empty()
                return swap._generation(result.staged_key, arrays)

    def _changes_nothing(self) -> bool:
        """Return whether a completion that nobody asked for finds theta_exact published already."""
        result, stream = self.result, self.state.stream
        if result.asked or result.drifted or result.size is not RefreshSize.COMPLETE:
            return False
        return len(stream.Q) == 0 and distance_to_exact(stream) == 0

    def _empty(self) -> Outcome:
        ledgered = self._ledgered()
        if self._rows_left(ledgered) != 0:
            return self._drop("the model has rows left after all")
        transition = emptied(self.state, self.result, ledgered, self.origin, now=self.now)
        return self._done(self._disclosing(transition))

    def _generation(self, name: str, arrays: Mapping[bytes, bytes]) -> Outcome:
        store, state, result = self.store, self.state, self.result
        where = state.keys.generation(name)
        ledgered = self._ledgered()
        staged = read_staged(store, where, state.meta, result, arrays)
        caught_up = _EXPIRED if staged is None else self._up_to_date(staged)
        if isinstance(caught_up, str):
            return self._drop(caught_up)
        misfit = _misfit_reason(result, caught_up, self._rows_left(ledgered))
        if misfit is not None:
            return self._drop(misfit)
        persist = to_persist(store.client, where.required(), where.optional())
        if persist is None:  # it has expired since it was read
            return self._drop(_EXPIRED)
        transition = new_generation(
            state, result, caught_up, persist, ledgered, self.origin, now=self.now
        )
        transition = with_scale_measured(
            self._disclosing(transition),
            state,
            result.disclosure_then,
            result.disclosure,
            same=caught_up.same and not result.caught_up,
        )
        if _must_hold(state, result, transition):
            return self._held(caught_up)
        return self._done(transition)

    def _disclosing(self, transition: Transition) -> Transition:
        """Add what the version discloses of the rows of deferred requests that it deletes."""
        state, commit = self.state, transition.commit
        if state.meta.disclosure is None or not commit.answers:
            return transition
        erased = rows_erased({r: _rows(state, r) for r in self.result.resolved})
        records: Mapping[str, bytes] = {}
        factor = None
        if commit.erased and not commit.empties:
            records = self.store.records_of(state, commit.erased)
            factor = load_factor(self.store, transition.after)
        return with_disclosures(transition, state, records, erased=erased, factor=factor)

    def _up_to_date(self, staged: StagedGeneration) -> CaughtUp | str:
        """Return the staged generation with the live rows, or why it cannot take them."""
        store, state = self.store, self.state
        later = store.deletions_since(state, self.result.deletions, state.meta.deletions_logged)
        touched = rows_touched(store, state, self.result.changed)
        if touched is None:
            raise StoreUnavailable(
                f"model {state.model_id!r}: the store is at another commit by now"
            )
        if touched.changed and store.row_keys is not None:
            return "rows changed before their records were encrypted"
        needs_factor = touched.changed or (later and state.meta.config.rows_url is not None)
        if needs_factor and to_persist(store.client, staged.keys.required(), ()) is None:
            return _EXPIRED
        try:
            meta = with_meta(state.meta, row_files=self.result.row_files)
            return catch_up(store, staged, meta, later, touched.changed)
        except IllConditioned as error:
            return f"it cannot catch up: {error}"

    def _ledgered(self) -> frozenset[str]:
        """Return the rows of the resolved requests that are deleted already."""
        return self.store.rows_in_ledger(self.state.keys, self._resolved_rows())

    def _resolved_rows(self) -> list[str]:
        return [row for request in self.result.resolved for row in _rows(self.state, request)]

    def _rows_left(self, ledgered: frozenset[str]) -> int:
        retired = {row for request in self.state.deferred.values() for row in request.retired}
        return self.state.meta.rows_live - len(set(self._resolved_rows()) - ledgered - retired)

    def _held(self, caught_up: CaughtUp) -> Outcome:
        """Drop the result; reject its requests if even the rebuild itself is over the budget."""
        if not caught_up.same:
            return self._drop("later requests take it over the budget")
        message = "the rebuild is over the error budget: its requests are rejected"
        return Outcome(unreachable(self.state, self.result, self.origin, now=self.now), message)

    def _drop(self, why: str) -> Outcome:
        transition = dropped(self.state, self.result.job_id, self.origin, now=self.now)
        return Outcome(transition, f"refresh result dropped: {why}")

    def _done(self, transition: Transition) -> Outcome:
        return Outcome(transition, f"refreshed: {self.result.size}, {self.result.reason}")


def _rows(state: ModelState, request: str) -> tuple[str, ...]:
    return (*state.deferred[request].row_ids, *state.deferred[request].retired)


def _must_hold(state: ModelState, result: JobResult, transition: Transition) -> bool:
    """Return whether the result of deferred requests is over a budget that holds versions back."""
    holds = state.meta.config.over_budget is OverBudget.HOLD and not state.awaiting_rebuild
    return holds and bool(result.resolved) and transition.after.meta.error.over


def _misfit_reason(result: JobResult, caught_up: CaughtUp, rows_left: int) -> str | None:
    """Return why a staged generation cannot become live, or None.

    With one class left, or no count above 0, and no ridge on the intercept there is no minimiser.
    The live model's own guard does not notice, because it still counts the rows of deferred
    requests.
    """
    left = caught_up.rows(result.rows)
    if left != rows_left:
        return "its rows are not the live rows"
    if left == 0:
        return "later deletions took its last rows"
    penalised = caught_up.staged.generation.objective.penalty.min() > 0
    counts = caught_up.class_counts(result.class_counts)
    if (
        counts is not None
        and unbounded(caught_up.staged.generation.objective.kind, counts)
        and not penalised
    ):
        return "later deletions took its last rows of a class, or its last counts above 0"
    return None
