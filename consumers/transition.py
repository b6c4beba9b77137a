"""From decisions and a step to the next state: the values that one commit writes.

Pure functions. Every message of a commit (parameters, receipts, version, refresh job) is made
here, as bytes that are stored in the outbox with the state and published from there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np

from consumers import chain, cloudevents, topics
from consumers.certificates import certificate_of
from consumers.events import (
    DELETION_RECEIPT,
    MODEL_PARAMETERS,
    MODEL_VERSION,
    REFRESH_REQUESTED,
    Parameters,
    Receipt,
    RefreshInfo,
    RefreshRequested,
    SourceRange,
    Version,
)
from consumers.refresh_order import order_refresh
from engine.error import ErrorKind, PublishedError, Sentinels, published_error
from engine.merkle import leaf_hash
from engine.objective import Array
from engine.store import codec
from engine.store.commit import Commit
from engine.store.generation import empty_generation
from engine.store.head import FORMAT, ErrorRecord, Meta
from engine.store.outbox import Entry, Stage, encode
from engine.store.reading import record
from engine.store.receipt_log import ReceiptLog
from engine.store.receipts import Kept, keep_receipt, open_receipt
from engine.store.state import Deferred, ModelState
from engine.stream import Stream, at_rest

PARAMETERS_LIMIT = 900_000
"""Bytes of a parameters event; larger ones are left in the store and named by uri."""


@dataclass(frozen=True, slots=True)
class Transition:
    """A commit, and the state once it has happened."""

    commit: Commit
    after: ModelState


def _unpublished(_: Receipt) -> Receipt | None:
    return None


@dataclass(frozen=True, slots=True)
class Origin:
    """The log records that a transition decides, or none (registration).

    ``published`` returns the receipt that the log has of a decision already, when a decision that
    the store has lost is made again: that one stands, byte for byte.
    """

    partition: str = ""
    next_offset: int = 0
    range: SourceRange | None = None
    published: Callable[[Receipt], Receipt | None] = _unpublished


def error_record(state: ModelState, error: PublishedError, version: int) -> ErrorRecord:
    """Return the error as versions and receipts carry it."""
    certified = version if error.bound is not None else state.meta.error.certified_version
    return ErrorRecord(
        value=error.value,
        kind=error.kind.value,
        bound=error.bound,
        certified_version=certified,
        budget=state.meta.config.error_budget,
        relative=error.relative,
    )


def measured_error(state: ModelState) -> PublishedError:
    """Return the error of a state's published parameters."""
    live, certified = state.meta.rows_live, state.meta.certified
    if live == 0:
        return PublishedError(0.0, ErrorKind.EXACT, 0.0, 0.0)
    return published_error(state.generation, state.stream, state.sentinels, live, certified)


# -- messages -------------------------------------------------------------------------------------


def receipt_entry(receipt: Receipt) -> Entry:
    """Return the message of a receipt; the same receipt gives the same bytes."""
    named = f"{receipt.model_id}\n{receipt.request_id}\n{receipt.status}\n{receipt.code}"
    event_id = hashlib.sha256(named.encode()).hexdigest()[:32]
    return Entry(
        Stage.RECEIPTS,
        topics.RECEIPTS,
        receipt.model_id.encode(),
        receipt.value(),
        cloudevents.headers(DELETION_RECEIPT, event_id, receipt.completed_at, receipt.model_id),
    )


def stored_receipt(receipt: Receipt, body: str) -> str:
    """Return a receipt as the state keeps it: ``F`` final or ``P`` pending, then JSON."""
    return keep_receipt(Kept(receipt.final, body, receipt.value().decode()))


def opened_receipt(stored: str, request_id: str) -> tuple[Kept, Receipt]:
    """Return what `stored_receipt` made.

    Raises
    ------
    CorruptState
        It made none of that.
    """
    what = f"request {request_id!r}"
    kept = open_receipt(stored, what)
    return kept, record(Receipt, kept.receipt, f"{what}, its receipt")


def leaves_of(receipts: Sequence[Receipt]) -> list[bytes]:
    """Return what receipts add to the log: hashes of the published bytes of the final ones."""
    return [leaf_hash(receipt.value()) for receipt in receipts if receipt.final]


def with_answers(
    deferred: Mapping[str, Deferred], receipts: Iterable[Receipt]
) -> dict[str, Deferred]:
    """Return deferred requests, those of them answered whose final receipt is among these."""
    answers = {r.request_id: {"answer": r.value().decode()} for r in receipts if r.final}
    return {name: d.model_copy(update=answers.get(name)) for name, d in deferred.items()}


def with_leaves(state: ModelState, leaves: Sequence[bytes]) -> ModelState:
    """Return a state whose receipt log has further entries; it begins here if it had none."""
    log = (state.meta.receipt_log or ReceiptLog()).appended(leaves)
    return replace(state, meta=state.meta.model_copy(update={"receipt_log": log}))


def job_entry(job: RefreshRequested, now: datetime) -> Entry:
    """Return the message that orders a refresh."""
    return Entry(
        Stage.AFTER,
        topics.REFRESH_JOBS,
        job.model_id.encode(),
        job.value(),
        cloudevents.headers(REFRESH_REQUESTED, job.job_id, now, job.model_id),
    )


def published_digest(state: ModelState) -> str:
    """Return the digest of what a state publishes."""
    config = state.meta.config
    return chain.parameters_digest(
        state.stream.published,
        config.feature_names,
        config.target_names,
        fit_intercept=config.fit_intercept,
        classes=config.class_names,
    )


def new_version(
    state: ModelState,
    *,
    request_ids: Sequence[str],
    refresh: RefreshInfo | None,
    source: SourceRange | None,
    now: datetime,
) -> Version:
    """Return the version event of a state, digest included; the state's is the last one's."""
    meta, config = state.meta, state.meta.config
    unsigned = Version(
        model_id=config.model_id,
        generation=meta.generation,
        version=state.version,
        prev_digest=state.digest,
        digest="",
        parameters_digest=published_digest(state),
        method=config.method,
        kind=config.kind.value,
        status=meta.status,
        rows_live=meta.rows_live,
        rows_deleted=meta.rows_deleted,
        error=meta.error,
        certificate=certificate_of(state),
        request_ids=tuple(request_ids),
        refresh=refresh,
        source=source,
        created_at=now,
        receipt_log=None if meta.receipt_log is None else meta.receipt_log.head(),
    )
    return unsigned.model_copy(update={"digest": chain.version_digest(unsigned)})


def version_entries(state: ModelState, version: Version) -> tuple[Entry, Entry]:
    """Return the messages of a version: its parameters, and itself."""
    key = version.model_id.encode()
    parameters = parameters_event(state, version)
    return (
        Entry(
            Stage.PARAMETERS,
            topics.MODELS,
            key,
            parameters.value(),
            cloudevents.headers(
                MODEL_PARAMETERS, version.digest[:32], version.created_at, version.model_id
            ),
        ),
        Entry(
            Stage.VERSIONS,
            topics.VERSIONS,
            key,
            version.value(),
            cloudevents.headers(
                MODEL_VERSION, version.digest[:32], version.created_at, version.model_id
            ),
        ),
    )


def parameters_event(state: ModelState, version: Version) -> Parameters:
    """Return the parameters event; too large a theta is named by uri and lies in the head."""
    config, published = state.meta.config, state.stream.published
    p = len(config.feature_names)
    flat = config.m == 1

    def shaped(block: Array) -> tuple[float, ...] | tuple[tuple[float, ...], ...]:
        if flat:
            return tuple(block[:, 0].tolist())
        return tuple(tuple(row) for row in block.tolist())

    intercept = published[p].tolist() if config.fit_intercept else None
    full = Parameters(
        **version.model_dump(
            include={
                "model_id", "generation", "version", "prev_digest", "digest",
                "parameters_digest", "method", "kind", "status",
            }
        ),
        created_at=version.created_at,
        feature_names=config.feature_names,
        target_names=config.target_names,
        fit_intercept=config.fit_intercept,
        intercept=None if intercept is None else intercept[0] if flat else tuple(intercept),
        theta=shaped(published[:p]),
        classes=config.class_names,
    )  # fmt: skip
    if len(full.value()) <= PARAMETERS_LIMIT:
        return full
    uri = f"lethe-store:{state.keys.head}#published"
    return full.model_copy(update={"theta": None, "intercept": None, "uri": uri})


# -- transitions ----------------------------------------------------------------------------------


def head_fields(state: ModelState, before: ModelState | None) -> dict[str, bytes]:
    """Return the fields of the head that differ: O(d) bytes, never more."""
    fields = {
        "format": str(FORMAT).encode(),
        "version": str(state.version).encode(),
        "digest": state.digest.encode(),
        "meta": state.meta.model_dump_json().encode(),
    }
    for name in ("theta_exact", "theta_r", "anchor", "published"):
        value = getattr(state.stream, name)
        if before is None or value is not getattr(before.stream, name):
            fields[name] = codec.pack(value)
    if before is None and state.secret is not None:
        fields["secret"] = state.secret
    return fields


def scalars_of(stream: Stream) -> dict[str, float | int]:
    """Return the scalars of a stream, as meta keeps them."""
    return {
        "K": len(stream.V),
        "r": len(stream.Q),
        "v_trace": stream.v_trace,
        "residual": stream.residual,
        "carried": stream.carried,
        "completions": stream.completions,
        "v_seconds": stream.v_seconds,
        "least_pivot": stream.least_pivot,
    }


def with_meta(meta: Meta, **changes: object) -> Meta:
    """Return meta with changes, checked."""
    return meta.model_validate({**dict(meta), **changes})


def without_rows(state: ModelState) -> ModelState:
    """Return a state as it is when its last row has gone: EMPTY, in a generation of its own.

    Factor, theta_b, V and Q derive from the rows that are gone: the commit discards the whole
    generation, and the new one has nothing to store. The caller counts the rows.
    """
    config, number = state.meta.config, state.meta.generation + 1
    counts = state.meta.class_counts
    stream = at_rest(np.zeros((config.d, config.m)), 0.0, config.blocks)
    meta = with_meta(
        state.meta,
        **scalars_of(stream),
        status="EMPTY",
        generation=number,
        generation_key=f"{number}-empty-{state.commit_seq}",
        reference_epoch=state.meta.reference_epoch + 1,
        class_counts=None if counts is None else (0,) * len(counts),
        first_deletion_at=None,
        certified=None,
        ledger=None,
    )
    rows, W = state.sentinels.rows, state.sentinels.W
    return replace(
        state,
        meta=meta,
        generation=empty_generation(config, number),
        stream=stream,
        sentinels=Sentinels((), rows.take(slice(0, 0)), W[:0]),
    )


def next_version(state: ModelState, now: datetime) -> tuple[ModelState, list[Entry]]:
    """Give a changed state the number and the error of its next version, for its receipts.

    A refresh job is ordered in the same commit when the error is over the budget, when requests
    wait for a rebuild, or when the generation is used up; at most one is pending. Its message is
    returned.
    """
    version = state.version + 1
    error = error_record(state, measured_error(state), version)
    state = replace(state, version=version, meta=with_meta(state.meta, error=error))
    state, job = order_refresh(state, version, now)
    return state, [] if job is None else [job_entry(job, now)]


def publish_version(
    state: ModelState,
    *,
    request_ids: Sequence[str],
    refresh: RefreshInfo | None,
    origin: Origin,
    now: datetime,
) -> tuple[ModelState, list[Entry]]:
    """Return the state of `next_version` with its digest, and the version's messages.

    The receipts of the commit are in its log by now: the version names the log's head.
    """
    event = new_version(
        state, request_ids=request_ids, refresh=refresh, source=origin.range, now=now
    )
    return replace(state, digest=event.digest), list(version_entries(state, event))


def entries_in_order(entries: Sequence[Entry]) -> list[bytes]:
    """Return encoded messages by stage: parameters, receipts, versions, then the rest."""
    order = list(Stage)
    return [encode(e) for e in sorted(entries, key=lambda entry: order.index(entry.stage))]


def parameters_value(entries: Sequence[Entry]) -> bytes | None:
    """Return the parameters event among the messages, if there is one."""
    found = [entry.value for entry in entries if entry.stage is Stage.PARAMETERS]
    return found[-1] if found else None


def step(before: ModelState, after: ModelState, origin: Origin) -> Commit:
    """Return the commit from one state to the next of the same generation, with nothing added."""
    return Commit(
        keys=before.keys,
        generation=after.generation_keys,
        expected=before.expected(origin.partition),
        partition=origin.partition,
        next_offset=origin.next_offset,
        head=head_fields(after, before),
        v_before=before.meta.K,
        q_before=before.meta.r,
    )


def advanced(state: ModelState, origin: Origin) -> ModelState:
    """Return the state as it is once the commit has happened."""
    decided = {origin.partition: origin.next_offset} if origin.partition else {}
    offsets = {**state.offsets, **decided}
    return replace(state, commit_seq=state.commit_seq + 1, offsets=offsets)
