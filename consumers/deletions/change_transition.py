"""The transition that a batch of inserts and corrections makes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from lethe.consumers.commits.apply import arrays_of
from lethe.consumers.commits.recovery.changed_rows import ChangedRows, changed_sentinels
from lethe.consumers.contract.receipt import Receipt
from lethe.consumers.deletions.row_changes import Change, ChangeDecision, ChangeStep
from lethe.consumers.deletions.transition import answer_of, answered, repeats_of
from lethe.consumers.versions.refresh_schedule import order_refresh
from lethe.consumers.versions.transition import Origin, Transition, next_version, scalars_of
from lethe.engine.store.layout.meta import with_meta
from lethe.engine.store.layout.state import ModelState


def change_transition(
    before: ModelState, step: ChangeStep, origin: Origin, *, now: datetime
) -> Transition:
    """Return the commit of a batch of change requests, and the state after it.

    Without a row that changes there is no version; a refresh is ordered all the same if the
    generation is used up, for those that were rejected because it is.
    """
    after, clears_Q = before, False
    if step.changed is not None:
        after = _after(before, step, step.changed, now)
        completions = after.stream.completions
        after, job = next_version(after, now)
        clears_Q = after.stream.completions > completions
    else:
        after, job = order_refresh(before, before.version, now)
    ids = [change.request_id for change in step.applied]
    commit, after = answered(
        before,
        after,
        _receipts(after, step.decisions, now),
        repeats_of(before.model_id, step.decisions, now),
        origin,
        makes_version=None if step.changed is None else ids,
        clears_Q=clears_Q,
        now=now,
        changes=tuple(change.kept for change in step.applied),
        job=job,
    )
    if step.changed is None:
        return Transition(commit, after)
    sums = None if step.pipeline is None else step.pipeline.answer.sums
    arrays = arrays_of(before, step.stream, sums)
    return Transition(
        commit,
        after,
        arrays.cleared() if clears_Q else arrays,
        written=step.changed.written,
    )


def _after(before: ModelState, step: ChangeStep, rows: ChangedRows, now: datetime) -> ModelState:
    """Return the state after the step, before its version is created."""
    meta = before.meta
    inserted = sum(len(c.kept.row_ids) for c in step.applied if c.kept.inserts)
    corrected = sum(len(c.kept.row_ids) for c in step.applied if not c.kept.inserts)
    changed = with_meta(
        meta,
        **scalars_of(step.stream),
        rows_live=meta.rows_live + inserted,
        rows_inserted=meta.rows_inserted + inserted,
        rows_corrected=meta.rows_corrected + corrected,
        class_counts=step.class_counts,
        first_deletion_at=meta.first_deletion_at or now,
        certified_bound=None,
    )
    return replace(
        before,
        meta=changed,
        stream=step.stream,
        sentinels=changed_sentinels(before, rows),
        pipeline=step.pipeline,
    )


def _receipts(
    after: ModelState, decisions: Sequence[ChangeDecision], now: datetime
) -> list[tuple[Receipt, bytes]]:
    """Return the receipts to store, with the digests of their requests' content."""
    stored: list[tuple[Receipt, bytes]] = []
    for decision in decisions:
        if isinstance(decision, Change):
            stored.append((_applied(after, decision, now), decision.body))
        else:
            answer = answer_of(after.model_id, decision, now)
            stored += [] if answer is None else [answer]
    return stored


def _applied(after: ModelState, change: Change, now: datetime) -> Receipt:
    rows = len(change.kept.row_ids)
    return Receipt(
        request_id=change.request_id,
        model_id=after.model_id,
        op=change.request.op,
        status="APPLIED",
        rows_inserted=rows if change.kept.inserts else 0,
        rows_corrected=0 if change.kept.inserts else rows,
        version=after.version,
        generation=after.meta.generation,
        error=after.meta.error,
        source=change.source,
        completed_at=now,
        rows_commitment=change.commitment,
    )
