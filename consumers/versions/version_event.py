"""A version of a model: its error, what it publishes, and its event with the digest. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from lethe.consumers.contract import version_chain
from lethe.consumers.contract.events import RefreshInfo, SourceRange, Version
from lethe.consumers.versions.certificates import output_error
from lethe.engine.error.estimate import ErrorKind, PublishedError, published_error
from lethe.engine.store.layout.fitted_columns import Learnt, empty_columns, fitted_columns
from lethe.engine.store.layout.records import Certificate, ErrorRecord
from lethe.engine.store.layout.state import ModelState, PublishedPipeline


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


def with_pipeline_published(state: ModelState) -> ModelState:
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
    certificate: Certificate | None,
    now: datetime,
) -> Version:
    """Return a state's version event with its digest; ``state.digest`` is the previous one's."""
    meta, config = state.meta, state.meta.config
    frozen = config.frozen_transformer is not None
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
        certificate=certificate,
        request_ids=tuple(request_ids),
        refresh=refresh,
        source=source,
        created_at=now,
        commit=state.head.commit + 1,
        commit_prev=state.head.digest,
        receipt_log=None if meta.receipt_log is None else meta.receipt_log.head(),
        completed=completed,
        preprocess="live" if config.preprocess else "frozen" if frozen else None,
    )
    return unsigned.model_copy(update={"digest": version_chain.version_digest(unsigned)})
