"""The transition that a batch of deletion requests makes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import numpy as np

from lethe.consumers.commits.apply import NOTHING, Live, arrays_of
from lethe.consumers.commits.commit import Commit, CommitKind, Tombstones
from lethe.consumers.contract.commitment import tombstone_of
from lethe.consumers.contract.events import SourceRange
from lethe.consumers.contract.receipt import CONFLICT, Receipt
from lethe.consumers.contract.requests import source_of
from lethe.consumers.deletions.compute import StepResult
from lethe.consumers.deletions.decide import (
    Accepted,
    Conflicting,
    Decision,
    Deferred,
    Duplicate,
    DuplicateInBatch,
    Rejected,
    deferred_record,
    op_of,
)
from lethe.consumers.deletions.validate import Refused, Valid
from lethe.consumers.log.base import Record
from lethe.consumers.versions.certificates import certificate_of
from lethe.consumers.versions.refresh_schedule import order_refresh
from lethe.consumers.versions.transition import (
    Origin,
    Transition,
    applied_receipt,
    commit_of,
    next_version,
    publish_version,
    scalars_of,
    with_receipts,
    without_rows,
)
from lethe.engine.store.layout.meta import with_meta
from lethe.engine.store.layout.records import Certificate
from lethe.engine.store.layout.state import DeferredRequest, ModelState
from lethe.engine.store.server.rewrite import ERASURE_SECONDS


def unknown_model(item: Valid | Refused) -> Receipt | None:
    """Return the receipt of a request for a model that is not registered.

    It follows from the record and its timestamp in the log alone, so it is not stored: when the
    record is read again it gets the same receipt, byte for byte. None: it names no request.
    """
    if isinstance(item, Valid):
        model_id, request_id = item.request.model_id, item.request.request_id
        code, detail = "UNKNOWN_MODEL", f"model {model_id!r} is not registered"
    elif item.model_id is not None and item.request_id is not None:
        model_id, request_id, code, detail = item.model_id, item.request_id, item.code, item.detail
    else:
        return None
    return Receipt(
        request_id=request_id,
        model_id=model_id,
        op=op_of(item),
        status="REJECTED",
        code=code,
        detail=detail,
        source=source_of(item.record),
        completed_at=item.record.logged_at,
    )


def deletion_transition(
    before: ModelState, batch: StepResult, origin: Origin, *, now: datetime, clock: float
) -> Transition:
    """Return the commit of a batch, and the state after it; ``clock`` is the store's time (s)."""
    deferrals = [d for d in batch.decisions if isinstance(d, Deferred)]
    retired = [row for d in batch.decisions if isinstance(d, Accepted) for row in d.retired]
    waiting = {d.accepted.request_id: deferred_record(d) for d in deferrals}
    after = _after(before, batch, retired, waiting, now)
    job, clears_Q = None, False
    if batch.deleted:
        completions = after.stream.completions
        after, job = next_version(after, now)
        clears_Q = after.stream.completions > completions
    elif deferrals:
        after, job = order_refresh(after, after.version, now)
    certificate = certificate_of(after)
    receipts = _receipts(after, batch.decisions, certificate, now)
    ids = [d.request_id for d in batch.decisions if isinstance(d, Accepted) and d.rows]
    commit, after = answered(
        before,
        after,
        receipts,
        repeats_of(before.model_id, batch.decisions, now),
        origin,
        makes_version=ids if batch.deleted else None,
        clears_Q=clears_Q,
        now=now,
        deleted=(*batch.deleted, *retired),
        tombstones=_tombstones(before, batch.decisions, clock),
        erased=batch.deleted,
        deferred=waiting,
        job=job,
        empties=batch.empty,
    )
    if batch.empty:
        return Transition(commit, after, NOTHING, Live(after.generation_keys, ()))
    arrays = None
    if batch.deleted:
        sums = None if batch.pipeline is None else batch.pipeline.answer.sums
        arrays = arrays_of(before, batch.stream, sums)
    return Transition(commit, after, arrays.cleared() if arrays and clears_Q else arrays)


def answered(
    before: ModelState,
    after: ModelState,
    receipts: Sequence[tuple[Receipt, bytes]],
    repeats: Sequence[str | bytes],
    origin: Origin,
    *,
    makes_version: Sequence[str] | None,
    clears_Q: bool,
    now: datetime,
    **more: Any,
) -> tuple[Commit, ModelState]:
    """Return the commit that gives a batch its receipts, and the state with its version.

    Parameters
    ----------
    before, after
        The state before, and that after the batch but for receipts and version.
    receipts, repeats
        Receipts to keep, with the digests of their requests' content; as `repeats_of`.
    makes_version
        Ids of the requests that make a version; None if there is none.
    more
        Other fields of the commit.
    """
    after, answers = with_receipts(after, receipts)
    sent = {answer.receipt.request_id: answer.value for answer in answers}
    version = None
    if makes_version is not None:
        after, version = publish_version(
            after,
            request_ids=makes_version,
            refresh=None,
            origin=origin,
            completed=clears_Q,
            now=now,
        )
    commit = commit_of(
        before,
        after,
        CommitKind.REQUESTS,
        origin,
        version=version,
        answers=answers,
        repeats=tuple(sent[repeat] if isinstance(repeat, str) else repeat for repeat in repeats),
        clears_Q=clears_Q,
        **more,
    )
    return commit, after


def _tombstones(
    before: ModelState, decisions: Sequence[Decision], clock: float
) -> Tombstones | None:
    """Return what keeps inserts from bringing rows that these requests should have deleted.

    Its end is by the store's clock, which all workers share, and which then forgets it.
    """
    requests = [d.accepted if isinstance(d, Deferred) else d for d in decisions]
    unknown = {
        row
        for request in requests
        if isinstance(request, Accepted | Rejected)
        for row in request.unknown
    }
    if not unknown or before.secret is None:
        return None
    marks = tuple(sorted(tombstone_of(before.secret, row) for row in unknown))
    return Tombstones(int(clock + ERASURE_SECONDS), marks)


def _after(
    before: ModelState,
    batch: StepResult,
    retired: Sequence[str],
    waiting: Mapping[str, DeferredRequest],
    now: datetime,
) -> ModelState:
    """Return the state after the step, before its version is created."""
    meta = before.meta
    if batch.ends_pause:  # what the pending job staged expires
        meta = with_meta(meta, failures=None, pending_job=None)
    logged = meta.deletions_logged + len(batch.deleted) + len(retired)
    if not batch.deleted:
        return replace(
            before,
            meta=with_meta(meta, deletions_logged=logged),
            deferred={**before.deferred, **waiting},
        )
    stream = batch.stream
    if not all(
        np.isfinite(theta).all() for theta in (stream.theta_exact, stream.published)
    ):  # the last check before the commit: engine.deletion.downdate checked this in step 5
        raise AssertionError(f"model {before.model_id!r}: a step is not finite")
    changed = with_meta(
        meta,
        **scalars_of(stream),
        rows_live=meta.rows_live - len(batch.deleted),
        rows_deleted=meta.rows_deleted + len(batch.deleted),
        deletions_logged=logged,
        class_counts=batch.class_counts,
        first_deletion_at=meta.first_deletion_at or now,
        certified_bound=None,
        ledger=batch.ledger,
    )
    after = replace(
        before,
        meta=changed,
        stream=stream,
        pipeline=batch.pipeline,
        sentinels=before.sentinels.without(frozenset(batch.deleted)),
        deferred={**before.deferred, **waiting},
    )
    return without_rows(after) if batch.empty else after


def _receipts(
    after: ModelState,
    decisions: Sequence[Decision],
    certificate: Certificate | None,
    now: datetime,
) -> list[tuple[Receipt, bytes]]:
    """Return the receipts to store, with the digests of their requests' content."""
    stored: list[tuple[Receipt, bytes]] = []
    for decision in decisions:
        match decision:
            case Accepted():
                receipt = applied_receipt(
                    after,
                    decision.request_id,
                    rows_deleted=len(decision.rows),
                    rows_unknown=decision.rows_unknown,
                    source=decision.source,
                    commitment=decision.commitment,
                    certificate=certificate,
                    now=now,
                )
                stored.append((receipt, decision.body))
            case Deferred():
                receipt = _deferred_receipt(after, decision, now)
                stored.append((receipt, decision.accepted.body))
            case _:
                answer = answer_of(after.model_id, decision, now)
                stored += [] if answer is None else [answer]
    return stored


def answer_of(model_id: str, decision: Decision, now: datetime) -> tuple[Receipt, bytes] | None:
    """Return the receipt to store of a request that is rejected, and its body; None of others."""
    if isinstance(decision, Rejected):
        return _rejected(model_id, decision, now), decision.body
    return None


def repeats_of(model_id: str, decisions: Sequence[object], now: datetime) -> list[bytes | str]:
    """Return receipts that are only sent.

    These are the bytes of receipts of earlier requests and of conflicts, and the ids of requests
    that this batch contains twice.
    """
    repeats: list[bytes | str] = []
    for decision in decisions:
        match decision:
            case Conflicting():
                repeats.append(_conflict(model_id, decision, now).value())
            case Duplicate():
                repeats.append(decision.receipt.value())
            case DuplicateInBatch():
                repeats.append(decision.request_id)
    return repeats


def _deferred_receipt(after: ModelState, deferral: Deferred, now: datetime) -> Receipt:
    accepted = deferral.accepted
    return Receipt(
        request_id=accepted.request_id,
        model_id=after.model_id,
        status="DEFERRED",
        code=deferral.code,
        detail=f"{deferral.detail}; {_remedy(deferral.code)}",
        rows_unknown=accepted.rows_unknown,
        version=after.version,
        generation=after.meta.generation,
        source=accepted.source,
        completed_at=now,
        rows_commitment=accepted.commitment,
    )


def _remedy(code: str) -> str:
    if code == "VERSIONS_SPENT":
        return "it waits for `lethe register --replace`"
    return "it waits for a rebuild without its rows"


def _rejected(model_id: str, decision: Rejected, now: datetime) -> Receipt:
    return Receipt(
        request_id=decision.request_id,
        model_id=model_id,
        op=decision.op,
        status="REJECTED",
        code=decision.code,
        detail=decision.detail,
        rows_unknown=decision.rows_unknown,
        source=decision.source,
        completed_at=now,
        rows_commitment=decision.commitment,
    )


def _conflict(model_id: str, decision: Conflicting, now: datetime) -> Receipt:
    return Receipt(
        request_id=decision.request_id,
        model_id=model_id,
        op=decision.op,
        status="REJECTED",
        code=CONFLICT,
        detail="this request id was used before for another body; the first receipt stands",
        source=decision.source,
        completed_at=now,
        conflicts_with=decision.first,
    )


def origin_of(records: Sequence[Record]) -> Origin:
    """Return the origin of a commit that processes these records (one partition, in order)."""
    first, last = records[0], records[-1]
    return Origin(
        str(first.partition),
        last.offset + 1,
        SourceRange(
            topic=first.partition.topic,
            partition=first.partition.index,
            first_offset=first.offset,
            last_offset=last.offset,
        ),
    )
