"""From decisions and a step to the next state and the commit that leads there. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

import numpy as np

from lethe.consumers.commits.apply import Arrays, Live
from lethe.consumers.commits.commit import Answer, Commit, CommitKind, Sealed
from lethe.consumers.contract import version_chain
from lethe.consumers.contract.events import (
    RefreshInfo,
    RefreshRequested,
    Source,
    SourceRange,
    Version,
)
from lethe.consumers.contract.receipt import Receipt
from lethe.consumers.versions.certificates import certificate_of, noised, output_error
from lethe.consumers.versions.refresh_schedule import order_refresh
from lethe.engine.deletion.stream import Stream, at_rest, distance_to_exact
from lethe.engine.error.estimate import ErrorKind, PublishedError, published_error
from lethe.engine.error.sentinels import Sentinels
from lethe.engine.fit.objective import Array
from lethe.engine.merkle import leaf_hash
from lethe.engine.refresh.refreshes import complete
from lethe.engine.store.apply import RowsWritten
from lethe.engine.store.generation import PARAMETERS, empty_generation, scalars_in, thetas_of
from lethe.engine.store.layout import codec
from lethe.engine.store.layout.config import ModelConfig
from lethe.engine.store.layout.fitted_columns import Learnt, empty_columns, fitted_columns
from lethe.engine.store.layout.meta import with_meta
from lethe.engine.store.layout.records import Certificate, ErrorRecord, ReceiptLog
from lethe.engine.store.layout.state import STAGED, DeferredRequest, ModelState, PublishedPipeline


@dataclass(frozen=True, slots=True)
class Transition:
    """A commit, the state after it, and what it does to V, Q, generations and rows.

    ``after`` lacks what follows from the commit's record: its head, and the id of the arrays.
    """

    commit: Commit
    after: ModelState
    arrays: Arrays | None = None
    live: Live | None = None
    written: RowsWritten | None = None


@dataclass(frozen=True, slots=True)
class Origin:
    """The log records that a commit processes, or none (registration)."""

    partition: str = ""
    next_offset: int = 0
    range: SourceRange | None = None


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
    live, bound = state.meta.rows_live, state.meta.certified_bound
    if live == 0:
        return PublishedError(0.0, ErrorKind.EXACT, 0.0, 0.0)
    if state.pipeline is not None:
        return state.pipeline.error(state.generation, state.stream)
    if state.meta.config.output_noise is not None:
        return output_error(state.meta.config, state.stream)
    return published_error(state.generation, state.stream, state.sentinels, live, bound)


# -- versions -------------------------------------------------------------------------------------


def published_digest(state: ModelState) -> str:
    """Return the digest of what a state publishes."""
    config, pipeline = state.meta.config, state.published_pipeline
    return version_chain.parameters_digest(
        state.published,
        config.feature_names,
        config.target_names,
        fit_intercept=config.fit_intercept,
        classes=config.class_names,
        columns=() if pipeline is None else pipeline.fitted,
    )


def _with_pipeline_published(state: ModelState) -> ModelState:
    """Return a state with what its version publishes, if it is a model with preprocessing."""
    config, pipeline, theta = state.meta.config, state.pipeline, state.stream.published
    if not config.preprocess:
        return state
    solution = state.stream.solution
    if solution is not None:
        theta, learnt = solution.without_idle(theta), Learnt.of_sums(solution)
    elif pipeline is not None:
        theta, learnt = pipeline.published(state.stream), Learnt.of_pipeline(pipeline)
    else:  # no row is left
        learnt = None
    if learnt is None:
        published = PublishedPipeline(theta, empty_columns(config.preprocess))
    else:
        published = PublishedPipeline(theta, fitted_columns(config.fixed_columns, learnt))
    return replace(state, published_pipeline=published)


def new_version(
    state: ModelState,
    *,
    request_ids: Sequence[str],
    refresh: RefreshInfo | None,
    source: SourceRange | None,
    completed: bool,
    now: datetime,
) -> Version:
    """Return a state's version event with its digest; ``state.digest`` is the previous one's."""
    meta, config = state.meta, state.meta.config
    unsigned = Version(
        model_id=config.model_id,
        generation=meta.generation,
        version=state.version,
        prev_digest=state.digest,
        digest="",
        parameters_digest=published_digest(state),
        method=config.method,
        kind=config.kind_name,
        status=meta.status,
        rows_live=meta.rows_live,
        rows_deleted=meta.rows_deleted,
        error=meta.error,
        certificate=certificate_of(state),
        request_ids=tuple(request_ids),
        refresh=refresh,
        source=source,
        created_at=now,
        commit=state.head.commit + 1,
        commit_prev=state.head.digest,
        receipt_log=None if meta.receipt_log is None else meta.receipt_log.head(),
        completed=completed,
        preprocess=_preprocess(config),
    )
    return unsigned.model_copy(update={"digest": version_chain.version_digest(unsigned)})


def _preprocess(config: ModelConfig) -> Literal["live", "frozen"] | None:
    if config.preprocess:
        return "live"
    return None if config.frozen_transformer is None else "frozen"


# -- transitions ----------------------------------------------------------------------------------


def scalars_of(stream: Stream) -> dict[str, Any]:
    """Return the scalars of a stream, as meta keeps them."""
    return {"K": len(stream.V), "r": len(stream.Q), **scalars_in(stream)}


def without_rows(state: ModelState) -> ModelState:
    """Return a state as it is once its last row is gone: EMPTY, in a generation of its own.

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
        generation_key=f"{number}-empty-{state.head.commit + 1}",
        reference_epoch=state.meta.reference_epoch + 1,
        class_counts=None if counts is None else (0,) * len(counts),
        first_deletion_at=None,
        certified_bound=None,
        ledger=None,
    )
    rows, W = state.sentinels.rows, state.sentinels.W
    return replace(
        state,
        meta=meta,
        arrays_id=STAGED,
        rows_generation=meta.generation_key,
        generation=empty_generation(config, number),
        stream=stream,
        pipeline=None,
        sentinels=Sentinels((), rows.take(slice(0, 0)), W[:0]),
    )


def next_version(
    state: ModelState, now: datetime, *, held: Array | None = None
) -> tuple[ModelState, RefreshRequested | None]:
    """Give a changed state the number and the error of its next version, for its receipts.

    ``held``: what the version before published, if the same rows were live then.

    A projection over the error budget is replaced by theta_exact (`engine.error.budget`). The same
    commit schedules a refresh if the error was over the budget before that, if requests wait for a
    rebuild, or if the generation is used up; at most one job is pending. The new job is returned.
    """
    state = noised(state, held)
    version, error = state.version + 1, measured_error(state)
    over = error.over(state.meta.config.error_budget)
    if over and state.meta.config.completes and distance_to_exact(state.stream) > 0:
        state = completed(state)
        error = measured_error(state)
    record = error_record(state, error, version)
    state = replace(state, version=version, meta=with_meta(state.meta, error=record))
    return order_refresh(state, version, now, over_budget=over)


def completed(state: ModelState) -> ModelState:
    """Return a state that publishes theta_exact; the commit then clears Q."""
    stream = complete(state.stream)
    return replace(state, stream=stream, meta=with_meta(state.meta, **scalars_of(stream)))


def with_receipts(
    state: ModelState, receipts: Sequence[tuple[Receipt, bytes]]
) -> tuple[ModelState, tuple[Answer, ...]]:
    """Add the final receipts to the receipt log; return all receipts as they are kept.

    Each comes with the digest of its request's content. A receipt is serialised here, once.
    """
    log = state.meta.receipt_log or ReceiptLog()
    answers: list[Answer] = []
    leaves: list[bytes] = []
    for receipt, body in receipts:
        value = receipt.value()
        place = log.size + len(leaves) if receipt.final else -1
        if receipt.final:
            leaves.append(leaf_hash(value))
        answers.append(Answer(receipt, value, body, place))
    if leaves or state.meta.receipt_log is None:
        meta = state.meta.model_copy(update={"receipt_log": log.appended(leaves)})
        state = replace(state, meta=meta)
    return state, tuple(answers)


def publish_version(
    state: ModelState,
    *,
    request_ids: Sequence[str],
    refresh: RefreshInfo | None,
    origin: Origin,
    completed: bool = False,
    now: datetime,
) -> tuple[ModelState, Version]:
    """Return the state of `next_version` with its digest, and the version.

    ``completed``: `next_version` replaced a projection by the exact answer. The receipts of the
    commit are already in the receipt log: the version names its head.
    """
    state = _with_pipeline_published(state)
    event = new_version(
        state,
        request_ids=request_ids,
        refresh=refresh,
        source=origin.range,
        completed=completed,
        now=now,
    )
    return replace(state, digest=event.digest, newest=event.value()), event


def commit_of(
    before: ModelState,
    after: ModelState,
    kind: CommitKind,
    origin: Origin,
    *,
    version: Version | None = None,
    **more: Any,
) -> Commit:
    """Return the commit from one state to the next; ``more`` are its other fields."""
    offsets = {origin.partition: origin.next_offset} if origin.partition else {}
    thetas = thetas_of(after.stream, before.stream) if version is not None else {}
    pipeline, columns = after.published_pipeline, b""
    if version is not None and pipeline is not None:
        thetas[PARAMETERS] = codec.pack(pipeline.theta)
        columns = pipeline.fitted.packed
    return Commit(
        model_id=before.model_id,
        number=before.head.commit + 1,
        prev=before.head.digest,
        kind=kind,
        meta=after.meta,
        newest=after.version,
        offsets=offsets,
        thetas=thetas,
        columns=columns,
        version=version,
        version_value=b"" if version is None else after.newest,
        **more,
    )


def opened(state: ModelState, opening: Mapping[str, int]) -> Transition:
    """Return the commit that says from which offset of each partition requests are the model's."""
    commit = commit_of(state, state, CommitKind.OPENING, Origin(), opening=opening)
    return Transition(commit, replace(state, opening=opening))


def committed(transition: Transition, sealed: Sealed, arrays_id: str) -> ModelState:
    """Return the state after a transition whose commit is sealed, with the id of its arrays."""
    after, commit = transition.after, transition.commit
    swapped = transition.live is not None
    return replace(
        after,
        head=sealed.head,
        seal=sealed.key,
        offsets={**after.offsets, **commit.offsets},
        arrays_id=arrays_id,
        deletions_from=commit.meta.deletions_logged - len(commit.deleted)
        if swapped
        else after.deletions_from,
    )


def rejected_receipt(
    request: DeferredRequest, model_id: str, code: str, detail: str, now: datetime
) -> Receipt:
    """Return the final receipt of a deferred request that is rejected."""
    return Receipt(
        request_id=request.request_id,
        model_id=model_id,
        status="REJECTED",
        code=code,
        detail=detail,
        rows_unknown=request.rows_unknown,
        source=Source.model_validate(request.source),
        completed_at=now,
        rows_commitment=request.rows_commitment,
    )


def applied_receipt(
    after: ModelState,
    request_id: str,
    *,
    rows_deleted: int,
    rows_unknown: int,
    source: Source,
    commitment: str | None,
    certificate: Certificate | None,
    now: datetime,
) -> Receipt:
    """Return the receipt of a request that is applied, or was already."""
    return Receipt(
        request_id=request_id,
        model_id=after.model_id,
        status="APPLIED" if rows_deleted else "ALREADY_APPLIED",
        rows_deleted=rows_deleted,
        rows_unknown=rows_unknown,
        version=after.version,
        generation=after.meta.generation,
        error=after.meta.error,
        certificate=certificate,
        source=source,
        completed_at=now,
        rows_commitment=commitment,
    )
