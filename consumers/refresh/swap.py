"""Reads a refresh result and turns it into a transition of the live state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from lethe.consumers.refresh.lost_rows import with_rows_resolved
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
from lethe.engine.deletion.stream import distance_to_exact
from lethe.engine.error.budget import OverBudget
from lethe.engine.errors import IllConditioned, StoreUnavailable, Uncertified
from lethe.engine.refresh.kind import RefreshKind
from lethe.engine.store.layout.keys import GenerationKeys
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
    stale = stale_reason(state, result)
    if stale is not None:
        return _drop(state, result, origin, now, stale)
    try:
        return _swap(store, state, result, arrays, origin, now)
    except Uncertified as error:
        return _drop(state, result, origin, now, str(error))


def _swap(
    store: ModelStore,
    state: ModelState,
    result: JobResult,
    arrays: Mapping[bytes, bytes],
    origin: Origin,
    now: datetime,
) -> Outcome:
    if _changes_nothing(state, result):
        transition = dropped(state, result.job_id, origin, now=now)
        return Outcome(transition, f"nothing to refresh: {result.reason}")
    match result.size:
        case RefreshKind.COMPLETE | RefreshKind.POLISH:
            transition = small_refresh(state, result, arrays, origin, now=now)
            return Outcome(transition, f"refreshed: {result.size}, {result.reason}")
        case RefreshKind.COMPACT | RefreshKind.REBUILD:
            resolved = with_rows_resolved(store, state, result.resolved)
            state = replace(state, deferred={**state.deferred, **resolved})
            if result.staged_key is None:
                return _swap_empty(store, state, result, origin, now)
            where = state.keys.generation(result.staged_key)
            return _swap_generation(store, state, result, where, arrays, origin, now)


def _changes_nothing(state: ModelState, result: JobResult) -> bool:
    """Return whether a completion that nobody asked for finds theta_exact published already."""
    if result.asked or result.drifted or result.size is not RefreshKind.COMPLETE:
        return False
    return len(state.stream.Q) == 0 and distance_to_exact(state.stream) == 0


def _swap_empty(
    store: ModelStore, state: ModelState, result: JobResult, origin: Origin, now: datetime
) -> Outcome:
    rows = [row for request in result.resolved for row in _rows(state, request)]
    ledgered = store.rows_in_ledger(state.keys, rows)
    if _rows_left(state, ledgered, rows) != 0:
        return _drop(state, result, origin, now, "the model has rows left after all")
    transition = emptied(state, result, ledgered, origin, now=now)
    transition = _disclosing(store, state, result, transition)
    return Outcome(transition, f"refreshed: {result.size}, {result.reason}")


def _swap_generation(
    store: ModelStore,
    state: ModelState,
    result: JobResult,
    where: GenerationKeys,
    arrays: Mapping[bytes, bytes],
    origin: Origin,
    now: datetime,
) -> Outcome:
    rows = [row for request in result.resolved for row in _rows(state, request)]
    ledgered = store.rows_in_ledger(state.keys, rows)
    staged = read_staged(store, where, state.meta, result, arrays)
    caught_up = _EXPIRED if staged is None else _up_to_date(store, state, result, staged)
    if isinstance(caught_up, str):
        return _drop(state, result, origin, now, caught_up)
    misfit = _misfit_reason(result, caught_up, _rows_left(state, ledgered, rows))
    if misfit is not None:
        return _drop(state, result, origin, now, misfit)
    persist = to_persist(store.client, where.required(), where.optional())
    if persist is None:  # it has expired since it was read
        return _drop(state, result, origin, now, _EXPIRED)
    transition = new_generation(state, result, caught_up, persist, ledgered, origin, now=now)
    transition = with_scale_measured(
        _disclosing(store, state, result, transition),
        state,
        result.disclosure_then,
        result.disclosure,
        same=caught_up.same and not result.caught_up,
    )
    if _must_hold(state, result, transition):
        return _held(state, result, caught_up, origin, now)
    return Outcome(transition, f"refreshed: {result.size}, {result.reason}")


def _disclosing(
    store: ModelStore, state: ModelState, result: JobResult, transition: Transition
) -> Transition:
    """Add what the version discloses of the rows of deferred requests that it deletes."""
    commit = transition.commit
    if state.meta.disclosure is None or not commit.answers:
        return transition
    erased = rows_erased({r: _rows(state, r) for r in result.resolved})
    records: Mapping[str, bytes] = {}
    factor = None
    if commit.erased and not commit.empties:
        records = store.records_if_there(state.generation_keys, commit.erased)
        factor = load_factor(store, transition.after)
    return with_disclosures(transition, state, records, erased=erased, factor=factor)


def _up_to_date(
    store: ModelStore, state: ModelState, result: JobResult, staged: StagedGeneration
) -> CaughtUp | str:
    """Return the staged generation with the live rows, or why it cannot take them."""
    later = store.deletions_since(state, result.sealed, state.meta.deletions_logged)
    touched = rows_touched(store, state, result.changed)
    if touched is None:
        raise StoreUnavailable(f"model {state.model_id!r}: the store is at another commit by now")
    if touched.changed and store.row_keys is not None:
        return "rows changed before their records were encrypted"
    if touched.changed and to_persist(store.client, staged.keys.required(), ()) is None:
        return _EXPIRED  # new rows need its factor
    try:
        return catch_up(store, staged, state.meta, later, touched.changed)
    except IllConditioned as error:
        return f"it cannot catch up: {error}"


def _rows(state: ModelState, request: str) -> tuple[str, ...]:
    return (*state.deferred[request].row_ids, *state.deferred[request].retired)


def _rows_left(state: ModelState, ledgered: frozenset[str], rows: list[str]) -> int:
    retired = {row for request in state.deferred.values() for row in request.retired}
    return state.meta.rows_live - len(set(rows) - ledgered - retired)


def _must_hold(state: ModelState, result: JobResult, transition: Transition) -> bool:
    """Return whether the result of deferred requests is over a budget that holds versions back."""
    holds = state.meta.config.over_budget is OverBudget.HOLD and not state.awaiting_rebuild
    return holds and bool(result.resolved) and transition.after.meta.error.over


def _held(
    state: ModelState, result: JobResult, caught_up: CaughtUp, origin: Origin, now: datetime
) -> Outcome:
    """Drop the result; reject its requests if even the rebuild itself is over the budget."""
    if not caught_up.same:
        return _drop(state, result, origin, now, "later requests take it over the budget")
    message = "the rebuild is over the error budget: its requests are rejected"
    return Outcome(unreachable(state, result, origin, now=now), message)


def _misfit_reason(result: JobResult, caught_up: CaughtUp, rows_left: int) -> str | None:
    """Return why a staged generation cannot become live, or None.

    With one class left and no ridge on the intercept there is no minimiser. The live model's own
    guard does not notice, because it still counts the rows of deferred requests.
    """
    left = caught_up.rows(result.rows)
    if left != rows_left:
        return "its rows are not the live rows"
    if left == 0:
        return "later deletions took its last rows"
    penalised = caught_up.staged.generation.objective.penalty.min() > 0
    counts = caught_up.class_counts(result.class_counts)
    if counts is not None and 0 in counts and not penalised:
        return "later deletions took its last rows of a class"
    return None


def _drop(state: ModelState, result: JobResult, origin: Origin, now: datetime, why: str) -> Outcome:
    transition = dropped(state, result.job_id, origin, now=now)
    return Outcome(transition, f"refresh result dropped: {why}")
