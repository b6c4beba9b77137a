"""The transition that a refresh result makes: the deletion worker swaps it in, in log order.

A result states which deletions and changes of rows it was made from. Later ones are never lost: a
completion and a polish apply to the present state, and a new generation catches up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from lethe.consumers.commits.apply import NOTHING, LiveGeneration, no_rows
from lethe.consumers.commits.commit import CommitKind, Staged
from lethe.consumers.commits.recovery.catch_up import Swapped, added_to
from lethe.consumers.contract import codes
from lethe.consumers.contract.events import RefreshInfo
from lethe.consumers.versions.draft import Draft, Origin, Transition, without_rows
from lethe.consumers.versions.receipts import Asked
from lethe.consumers.versions.refresh_schedule import one_more_failure
from lethe.engine.deletion.generation import Stream
from lethe.engine.error.certified import after_polish
from lethe.engine.refresh.kinds import concurrent_remainder
from lethe.engine.refresh.refreshes import (
    Polished,
    adopt_polish,
    complete,
    disbelieve,
)
from lethe.engine.refresh.size import RefreshSize
from lethe.engine.store.generation import scalars_of
from lethe.engine.store.layout import codec
from lethe.engine.store.layout.meta import Meta, with_meta
from lethe.engine.store.layout.state import STAGED, ModelState
from lethe.engine.store.offline.catch_up import CaughtUp
from lethe.engine.store.offline.jobs import JobResult
from lethe.engine.store.row_files import former_files


def stale_reason(state: ModelState, result: JobResult) -> str | None:
    """Return why a result no longer fits the state, or None."""
    if result.generation_key != state.meta.generation_key:
        return "the model has another generation by now"
    if result.size is RefreshSize.COMPLETE and result.completions != state.stream.completions:
        return "the model was completed by now"
    if result.size is RefreshSize.POLISH and state.meta.rows_live == 0:
        return "no row is left"
    if result.size is RefreshSize.POLISH and result.reference_epoch != state.meta.reference_epoch:
        return "the model has another reference point by now"
    if not state.deferred.keys() >= set(result.resolved):
        return "a request that it resolves is no longer deferred"
    return None


def dropped(
    before: ModelState,
    job_id: str,
    origin: Origin,
    *,
    now: datetime,
    order_again: bool = True,
) -> Transition | None:
    """Drop the result of the pending job, and schedule another; of any other, change nothing: None.

    What the job staged expires.
    """
    pending = before.meta.pending_job
    if pending is None or pending.job_id != job_id:
        return None
    failures = before.meta.failures if order_again else one_more_failure(before.meta, now)
    draft = Draft(before, CommitKind.REFRESH, now, origin)
    draft.state = replace(before, meta=with_meta(before.meta, pending_job=None, failures=failures))
    if order_again:
        draft.order_refresh()
    return draft.finish()


def small_refresh(
    before: ModelState,
    result: JobResult,
    arrays: Mapping[bytes, bytes],
    origin: Origin,
    *,
    now: datetime,
) -> Transition:
    """Swap in a completion or a polish: same generation, new anchor, Q emptied."""
    meta = before.meta
    if result.size is RefreshSize.COMPLETE:
        stream = complete(before.stream)
        if result.drifted:
            stream = disbelieve(stream)
        changes: dict[str, object] = {}
    else:
        stream, changes = _polished(before, result, arrays)
        changes["reference_epoch"] = meta.reference_epoch + 1
    changed = _refreshed(meta, result, now, **scalars_of(stream), **changes)
    changed = with_meta(changed, status=meta.status)  # rows may have gone since the job began
    draft = Draft(before, CommitKind.REFRESH, now, origin)
    draft.state = replace(before, stream=stream, meta=changed)
    draft.number_version(held=before.stream.published)
    return draft.finish(refresh=_info(result), arrays=no_rows(before), clears_Q=True)


def _polished(
    before: ModelState, result: JobResult, arrays: Mapping[bytes, bytes]
) -> tuple[Stream, dict[str, object]]:
    """Return the stream at the polished point, and the fields of meta that change with it.

    These are its bound, if nothing was deleted since, and the ledger of a certified model.
    """
    config = before.meta.config
    shape = (config.d, config.m)
    what = f"model {config.model_id!r}, job {result.job_id}"
    polished = Polished(
        codec.unpack(arrays.get(b"theta"), shape, what),
        codec.unpack(arrays.get(b"theta_snapshot"), shape, what),
        result.certified,
        result.passes,
        result.left,
        result.refuted,
        result.residual,
    )
    changed = before.meta.rows_changed - result.changed
    concurrent = before.meta.deletions_logged - result.deletions + 2 * changed  # each in, and out
    error = concurrent_remainder(
        before.generation,
        before.stream,
        polished,
        before.sentinels.rows,
        before.sentinels.W,
        concurrent,
        before.sentinels.pi,
    )
    stream = adopt_polish(before.stream, polished, concurrent=concurrent, concurrent_error=error)
    changes: dict[str, object] = {"certified_bound": None if concurrent else result.certified}
    ledger, reference = before.meta.ledger, result.reference
    if ledger is not None and reference is not None:
        moved = before.stream.theta_exact - polished.theta_snapshot
        changes["ledger"] = after_polish(ledger, reference, moved, concurrent, config.kind)
    return stream, changes


def _refreshed(meta: Meta, result: JobResult, now: datetime, **changes: object) -> Meta:
    """Return meta after a refresh: its job is no longer pending."""
    return with_meta(_without_job(meta, result), status=result.status, refreshed_at=now, **changes)


def _without_job(meta: Meta, result: JobResult) -> Meta:
    """Return meta after a job that did what it could: it is no longer pending."""
    pending = meta.pending_job
    if pending is not None and pending.job_id == result.job_id:
        pending = None
    return with_meta(meta, pending_job=pending, failures=None)


def _info(result: JobResult) -> RefreshInfo:
    return RefreshInfo(
        job_id=result.job_id, size=result.size, reason=result.reason, seconds=result.seconds
    )


def new_generation(
    before: ModelState,
    result: JobResult,
    caught_up: CaughtUp,
    persist: Sequence[str],
    ledgered: frozenset[str],
    origin: Origin,
    *,
    now: datetime,
) -> Transition:
    """Swap in a compact or a rebuild: the staged generation becomes live."""
    staged = caught_up.staged
    # A compact keeps theta_b, which was fitted while the deleted rows were there.
    compacted = result.size is RefreshSize.COMPACT
    oldest = before.meta.first_deletion_at if compacted else None
    changed = _refreshed(
        before.meta,
        result,
        now,
        **scalars_of(staged.stream),
        generation=staged.generation.number,
        generation_key=staged.keys.name,
        reference_epoch=before.meta.reference_epoch + 1,
        class_counts=caught_up.class_counts(result.class_counts),
        first_deletion_at=oldest or _changed_since(before.meta, result, caught_up, now),
        certified_bound=result.certified if caught_up.same else None,
        ledger=staged.ledger,
        row_files=None
        if result.row_files is None
        else result.row_files.with_in_store(caught_up.in_store),
    )
    state = replace(
        before,
        meta=changed,
        generation=staged.generation,
        stream=staged.stream,
        pipeline=staged.pipeline,
        sentinels=staged.sentinels,
        arrays_id=STAGED,
        rows_generation=staged.keys.name,
    )
    swapped_in = Staged(
        staged.keys.name,
        None,
        result.staged_mark,
        caught_up.deleted,
        (f"gen:{before.rows_generation}", *former_files(before.meta)),
        tuple(caught_up.records),
    )
    live = LiveGeneration(staged.keys, tuple(persist))
    added = added_to(caught_up, clears_Q=False)
    return _with_resolved(before, state, result, ledgered, origin, now, added, live, swapped_in)


def _changed_since(
    meta: Meta, result: JobResult, caught_up: CaughtUp, now: datetime
) -> datetime | None:
    """Return since when rows may have changed that the generation, or its files, still have.

    Files that a refresh has written hold what was deleted or corrected while it ran.
    """
    if result.row_files is None:
        return now if len(caught_up.staged.stream.V) else None
    if caught_up.same and not result.caught_up:
        return None
    pending = meta.pending_job
    return pending.ordered_at if pending and pending.job_id == result.job_id else now


def unreachable(
    before: ModelState, result: JobResult, origin: Origin, *, now: datetime
) -> Transition:
    """Reject the requests that a rebuild resolves: it is over the error budget without their rows.

    For models that hold their last version (`engine.error.budget`). What the job staged expires.
    """
    remaining = {r: d for r, d in before.deferred.items() if r not in result.resolved}
    draft = Draft(before, CommitKind.REFRESH, now, origin)
    draft.state = replace(before, meta=_without_job(before.meta, result), deferred=remaining)
    draft.order_refresh()
    detail = "a rebuild without its rows is over the error budget; nothing was deleted"
    for request in result.resolved:
        draft.answer_rejected(Asked.of(before.deferred[request]), codes.BUDGET_UNREACHABLE, detail)
    return draft.finish(undeferred=tuple(result.resolved))


def emptied(
    before: ModelState,
    result: JobResult,
    ledgered: frozenset[str],
    origin: Origin,
    *,
    now: datetime,
) -> Transition:
    """Swap in a rebuild with no rows left: the deferred requests named all of them."""
    meta = _refreshed(before.meta, result, now)
    state = without_rows(replace(before, meta=meta))
    live = LiveGeneration(state.generation_keys, ())
    nothing = Swapped(NOTHING)
    return _with_resolved(before, state, result, ledgered, origin, now, nothing, live, None)


def _with_resolved(
    before: ModelState,
    state: ModelState,
    result: JobResult,
    ledgered: frozenset[str],
    origin: Origin,
    now: datetime,
    added: Swapped,
    live: LiveGeneration,
    staged: Staged | None,
) -> Transition:
    """Give the deferred requests that the result resolves their final receipts; make the version.

    ``ledgered`` are those of their rows that another request has deleted in the meantime.
    """
    resolved = [before.deferred[request] for request in result.resolved]
    new: dict[str, str] = {}
    for request in resolved:
        remaining_rows = [row for row in request.row_ids if row not in ledgered]
        new |= {row: request.request_id for row in remaining_rows if row not in new}
    retired = {row for request in resolved for row in request.retired} - ledgered - new.keys()
    meta = with_meta(
        state.meta,
        rows_live=state.meta.rows_live - len(new),
        rows_deleted=state.meta.rows_deleted + len(new),
        deletions_logged=state.meta.deletions_logged + len(new) + len(retired),
    )
    remaining = {r: d for r, d in state.deferred.items() if r not in result.resolved}
    draft = Draft(before, CommitKind.REFRESH, now, origin)
    draft.state = replace(
        state, meta=meta, deferred=remaining, deletions_from=before.meta.deletions_logged
    )
    draft.number_version(held=None if new else before.stream.published)
    for request in resolved:
        if request.subject_id is not None and not request.row_ids:
            detail = "the subject has no rows in this model, now or before"
            draft.answer_rejected(Asked.of(request), codes.UNKNOWN_ROWS, detail)
        else:
            own = sum(new.get(row) == request.request_id for row in request.row_ids)
            draft.answer_applied(Asked.of(request), rows_deleted=own)
    return draft.finish(
        request_ids=result.resolved,
        refresh=_info(result),
        arrays=added.arrays,
        live=live,
        written=added.written,
        deleted=(*new, *sorted(retired)),
        erased=tuple(new),
        undeferred=tuple(result.resolved),
        staged=staged,
        empties=staged is None,
    )
