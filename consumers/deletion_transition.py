"""The transition that a batch of deletion requests makes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import islice

import numpy as np

from consumers import topics
from consumers.certificates import certificate_of
from consumers.decide import (
    Accepted,
    Again,
    Batch,
    Conflicting,
    Decision,
    Deferral,
    Rejected,
    Repeated,
    deferred_record,
)
from consumers.events import MAX_REQUEST_BYTES, Receipt, Source, SourceRange
from consumers.log.base import Headers, Record
from consumers.refresh_order import order_refresh
from consumers.transition import (
    Origin,
    Transition,
    advanced,
    entries_in_order,
    job_entry,
    leaves_of,
    next_version,
    parameters_value,
    publish_version,
    receipt_entry,
    scalars_of,
    step,
    stored_receipt,
    with_answers,
    with_leaves,
    with_meta,
    without_rows,
)
from consumers.validate import Refused
from engine.store import codec
from engine.store.commit import Commit
from engine.store.outbox import Entry, Stage
from engine.store.state import ModelState, Unregistered

_UNREGISTERED_RECEIPTS = 10_000
_UNREGISTERED_SECONDS = 30 * 86_400
"""What is kept for a model that is not registered, and for how long after its last request.

Anybody can make up names. Beyond the limit a repeat is answered afresh. The time is the retention
of ``lethe.deletions``: after it no record can be read again, so no offset is needed any more.
"""

_LATEST_MS = 253_402_300_800_000  # the year 10000, which no datetime holds
_DEAD_LETTER_KEY = 1024
_DEAD_LETTER_HEADERS = 60 * 1024
"""Bytes of a dead letter's key and of the headers that it came with; see `topics.specs`."""


def dead_letter(refused: Refused) -> Entry:
    """Return the message that keeps an unreadable record, byte for byte.

    Whatever the log let in, this message fits: a key, headers or a value beyond the limits of
    dead letters would stop the worker. A value that is cut has its length in ``lethe-truncated``.
    """
    record = refused.record
    source = f"{record.partition.topic}/{record.partition.index}/{record.offset}"
    key, value = record.key or b"", record.value or b""
    cut: Headers = ()
    if len(value) > MAX_REQUEST_BYTES:
        cut = (("lethe-truncated", str(len(value)).encode()),)
    size = sum(len(name.encode()) + len(content) for name, content in record.headers)
    return Entry(
        Stage.AFTER,
        topics.DEAD_LETTERS,
        key if len(key) <= _DEAD_LETTER_KEY else b"",
        value[:MAX_REQUEST_BYTES],
        (
            *(record.headers if size <= _DEAD_LETTER_HEADERS else ()),
            *cut,
            ("lethe-error-code", refused.code.encode()),
            ("lethe-error", refused.detail.encode("utf-8", errors="replace")),
            ("lethe-source", source.encode()),
        ),
    )


def repeated_entry(repeated: Repeated) -> Entry:
    """Return the message that sends a receipt again, byte for byte."""
    receipt = Receipt.model_validate_json(repeated.receipt)
    return replace(receipt_entry(receipt), value=repeated.receipt.encode())


def log_time(record: Record, now: datetime) -> datetime:
    """Return when the log took a record; now, if its time makes no sense."""
    if not 0 < record.timestamp_ms < _LATEST_MS:
        return now
    return datetime.fromtimestamp(record.timestamp_ms / 1000, UTC)


def unregistered_transition(
    record: Unregistered,
    model_id: str,
    decisions: Sequence[Decision],
    refused: Sequence[Refused],
    origin: Origin,
    *,
    now: datetime,
    arrived: Mapping[int, datetime] | None = None,
    published: Sequence[Receipt] = (),
) -> Commit:
    """Return the commit that decides requests for a model which is not registered.

    Or records that name none: then the model id is empty, and the record that stays is the
    partition's. A store that lost this commit has it made again, and a takeover compares no
    history for such models: so the receipts must come out the same, byte for byte. Their time is
    that of the log, by offset in ``arrived``; and ``published`` receipts of the same requests
    stand, wherever these are read first this time.
    """
    stands = {first.request_id: first for first in reversed(published)}
    origin = replace(origin, published=lambda made: stands.get(made.request_id))
    answers = _answers(model_id, None, decisions, origin, now, arrived)
    entries = [*answers.entries]
    entries += [dead_letter(item) for item in refused if item.dead_letter]
    room = max(0, _UNREGISTERED_RECEIPTS - record.receipts)
    return Commit(
        keys=record.keys,
        generation=record.keys.generation("none"),
        expected=record.expected(origin.partition),
        partition=origin.partition,
        next_offset=origin.next_offset,
        requests=dict(islice(answers.kept.items(), room)),
        outbox=entries_in_order(entries),
        expire_seconds=_UNREGISTERED_SECONDS if model_id else None,
    )


def deletion_transition(
    before: ModelState,
    batch: Batch,
    refused: Sequence[Refused],
    origin: Origin,
    *,
    now: datetime,
) -> Transition:
    """Return the commit of a batch, and the state after it."""
    deferrals = [d for d in batch.decisions if isinstance(d, Deferral)]
    retired = [row for d in batch.decisions if isinstance(d, Accepted) for row in d.retired]
    after = _after(before, batch, retired, deferrals, now)
    entries: list[Entry] = []
    if batch.deleted:
        after, entries = next_version(after, now)
    elif deferrals:
        after, job = order_refresh(after, after.version, now)
        entries = [] if job is None else [job_entry(job, now)]
    answers = _answers(after.model_id, after, batch.decisions, origin, now)
    leaves = leaves_of(answers.receipts)
    waiting = with_answers(after.deferred, answers.receipts)
    after = with_leaves(replace(after, deferred=waiting), leaves)
    if batch.deleted:
        ids = [d.request_id for d in batch.decisions if isinstance(d, Accepted) and d.rows]
        after, version = publish_version(
            after, request_ids=ids, refresh=None, origin=origin, now=now
        )
        entries += version
    entries += answers.entries
    entries += [dead_letter(item) for item in refused if item.dead_letter]
    deleted = [*batch.deleted, *retired]
    commit = replace(
        step(before, after, origin),
        V_rows=[codec.pack_signed_row(row) for row in batch.V_rows],
        Q_rows=[codec.pack(row) for row in batch.Q_rows],
        v_before=0 if batch.empty else before.meta.K,
        q_before=0 if batch.empty else before.meta.r,
        deleted=deleted,
        deleted_version=after.version,
        erase=[f"{before.meta.generation_key}/{row}" for row in batch.deleted],
        receipt_log=leaves,
        requests=answers.kept,
        deferred={
            name: request.model_dump_json()
            for name, request in waiting.items()
            if name not in before.deferred
        },
        outbox=entries_in_order(entries),
        parameters=parameters_value(entries),
        discarded=[f"gen:{before.meta.generation_key}"] if batch.empty else [],
    )
    return Transition(commit, advanced(after, origin))


def _after(
    before: ModelState,
    batch: Batch,
    retired: Sequence[str],
    deferrals: Sequence[Deferral],
    now: datetime,
) -> ModelState:
    """Return the state after the step, before its version is made."""
    meta = before.meta
    waiting = {d.accepted.request_id: deferred_record(d) for d in deferrals}
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
    ):  # the last gate before the commit: engine.downdate has checked on compute
        raise AssertionError(f"model {before.model_id!r}: a step is not finite")
    changed = with_meta(
        meta,
        **scalars_of(stream),
        rows_live=meta.rows_live - len(batch.deleted),
        rows_deleted=meta.rows_deleted + len(batch.deleted),
        deletions_logged=logged,
        class_counts=batch.class_counts,
        first_deletion_at=meta.first_deletion_at or now,
        certified=None,
        ledger=batch.ledger,
    )
    after = replace(
        before,
        meta=changed,
        stream=stream,
        sentinels=before.sentinels.without(frozenset(batch.deleted)),
        deferred={**before.deferred, **waiting},
    )
    return without_rows(after) if batch.empty else after


@dataclass(slots=True)
class _Answers:
    """The answers of a batch, in the order of the requests.

    ``receipts`` are those that are kept, ``kept`` the same as they are stored; ``entries`` are
    messages, repeats and conflicts among them.
    """

    receipts: list[Receipt] = field(default_factory=list)
    kept: dict[str, str] = field(default_factory=dict)
    entries: list[Entry] = field(default_factory=list)


def _answers(
    model_id: str,
    after: ModelState | None,
    decisions: Sequence[Decision],
    origin: Origin,
    now: datetime,
    arrived: Mapping[int, datetime] | None = None,
) -> _Answers:
    answers = _Answers()
    sent: dict[str, Entry] = {}
    for decision in decisions:
        if isinstance(decision, Repeated):
            answers.entries.append(repeated_entry(decision))
        elif isinstance(decision, Again):
            answers.entries.append(sent[decision.request_id])
        else:
            moment = now if arrived is None else arrived.get(_offset(decision), now)
            made, body = _receipt(model_id, after, decision, moment)
            receipt = made if body is None else origin.published(made) or made
            answers.entries.append(receipt_entry(receipt))
            if body is not None:
                if receipt.code != "UNKNOWN_MODEL":  # of before there was a log, and adopted
                    answers.receipts.append(receipt)
                answers.kept[receipt.request_id] = stored_receipt(receipt, body)
                sent[receipt.request_id] = answers.entries[-1]
    return answers


def _offset(decision: Rejected | Conflicting | Accepted | Deferral) -> int:
    source = decision.accepted.source if isinstance(decision, Deferral) else decision.source
    return source.offset


def _receipt(
    model_id: str, after: ModelState | None, decision: Decision, now: datetime
) -> tuple[Receipt, str | None]:
    """Return a receipt and the body it is kept under; None: it is sent and not kept."""
    if after is not None and isinstance(decision, Accepted):
        receipt = applied_receipt(
            after,
            decision.request_id,
            rows_deleted=len(decision.rows),
            rows_unknown=decision.rows_unknown,
            source=decision.source,
            commitment=decision.commitment,
            now=now,
        )
        return receipt, decision.body
    if after is not None and isinstance(decision, Deferral):
        return _deferred_receipt(after, decision, now), decision.accepted.body
    return _refusal(model_id, decision, now)


def _deferred_receipt(after: ModelState, deferral: Deferral, now: datetime) -> Receipt:
    accepted = deferral.accepted
    return Receipt(
        request_id=accepted.request_id,
        model_id=after.model_id,
        status="DEFERRED",
        code=deferral.code,
        detail=f"{deferral.detail}; it waits for a rebuild without its rows",
        rows_unknown=accepted.rows_unknown,
        version=after.version,
        generation=after.meta.generation,
        source=accepted.source,
        completed_at=now,
        rows_commitment=accepted.commitment,
    )


def applied_receipt(
    after: ModelState,
    request_id: str,
    *,
    rows_deleted: int,
    rows_unknown: int,
    source: Source,
    commitment: str | None,
    now: datetime,
) -> Receipt:
    """Return the receipt of a request that stands."""
    return Receipt(
        request_id=request_id,
        model_id=after.model_id,
        status="APPLIED" if rows_deleted else "ALREADY_APPLIED",
        rows_deleted=rows_deleted,
        rows_unknown=rows_unknown,
        version=after.version,
        generation=after.meta.generation,
        error=after.meta.error,
        certificate=certificate_of(after),
        source=source,
        completed_at=now,
        rows_commitment=commitment,
    )


def _refusal(model_id: str, decision: Decision, now: datetime) -> tuple[Receipt, str | None]:
    """Return a REJECTED receipt; with no body, it is sent and not kept."""
    if isinstance(decision, Rejected):
        return Receipt(
            request_id=decision.request_id,
            model_id=model_id,
            status="REJECTED",
            code=decision.code,
            detail=decision.detail,
            rows_unknown=decision.rows_unknown,
            source=decision.source,
            completed_at=now,
            rows_commitment=decision.commitment,
        ), decision.body
    if isinstance(decision, Conflicting):
        return _conflict(model_id, decision.request_id, decision.source, decision.first, now), None
    raise TypeError(f"{type(decision).__name__} is no refusal")


def _conflict(
    model_id: str, request_id: str, source: Source, first: Source, now: datetime
) -> Receipt:
    return Receipt(
        request_id=request_id,
        model_id=model_id,
        status="REJECTED",
        code="REQUEST_ID_CONFLICT",
        detail="this request id was used before for another body; the first receipt stands",
        source=source,
        completed_at=now,
        conflicts_with=first,
    )


def origin_of(records: Sequence[Record]) -> Origin:
    """Return the origin that decides these records (one partition, ascending offsets)."""
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
