"""A model that is fitted and staged, but not committed yet: registration makes it live."""

from __future__ import annotations

import uuid
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

import numpy as np

from lethe.consumers.contract.commitment import new_secret
from lethe.consumers.contract.version_chain import GENESIS
from lethe.consumers.registration.error_budget import check_error_budget
from lethe.consumers.registration.training_data import TrainingData
from lethe.consumers.service.telemetry.progress import Progress
from lethe.consumers.versions.certificates import check_first, first_ledger, noisy
from lethe.consumers.versions.disclosures import measured_scale
from lethe.engine.deletion.generation import Generation, Stream, begin
from lethe.engine.error.certified import Ledger
from lethe.engine.error.sentinels import sample_sentinels
from lethe.engine.errors import LetheError
from lethe.engine.exact.digits import OutOfRange
from lethe.engine.exact.rounding import ROUNDED_FEATURES
from lethe.engine.fit.classes import class_counts, one_sided
from lethe.engine.fit.counts import check_counts
from lethe.engine.fit.factor import Factor
from lethe.engine.fit.magnitude import check_data
from lethe.engine.fit.multinomial import SoftmaxObjective, check_classes
from lethe.engine.fit.objective import Array, Kind, Objective, Rows, ridge_penalty
from lethe.engine.fit.precompute import Precomputation
from lethe.engine.preprocess.answer import prepare
from lethe.engine.preprocess.input.table import Table
from lethe.engine.preprocess.live import LivePipeline
from lethe.engine.preprocess.rounded.raw import RawColumns
from lethe.engine.refresh import coupled
from lethe.engine.refresh.blockwise import precompute_blocks
from lethe.engine.refresh.refreshes import begin_with_sums
from lethe.engine.store.generation import Sampled, scalars_of
from lethe.engine.store.layout.config import ModelConfig
from lethe.engine.store.layout.exact_sums import solution_of
from lethe.engine.store.layout.keys import DatasetKeys, GenerationKeys, ModelKeys
from lethe.engine.store.layout.meta import Meta, RowFiles, with_meta
from lethe.engine.store.layout.preprocessing import (
    layout_of,
    raw_columns,
    settings_of,
)
from lethe.engine.store.layout.records import ErrorRecord, Status
from lethe.engine.store.layout.state import STAGED, Head, ModelState
from lethe.engine.store.offline import staging
from lethe.engine.store.row_files import remove_all
from lethe.engine.store.store import ModelStore

if TYPE_CHECKING:  # Arrow: few commands that take part of this need it
    from lethe.engine.store.offline.in_files import OfFiles


@dataclass(frozen=True, slots=True)
class Candidate:
    """A staged model that waits for its commit; ``new`` are the ids of its rows."""

    state: ModelState
    where: GenerationKeys
    dataset: DatasetKeys
    data: TrainingData
    new: frozenset[str]


@dataclass(frozen=True, slots=True)
class Fit:
    """A fresh generation of the training rows, and what is staged of it."""

    generation: Generation
    stream: Stream
    rows: Rows
    dual_rows: Array
    factor: Factor
    status: Status
    bound: float | None
    ledger: Ledger | None = None
    pipeline: LivePipeline | None = None
    in_files: OfFiles | None = None
    """What of it the rows in files say; ``rows`` are then none."""


def _fit(config: ModelConfig, data: TrainingData, number: int) -> Fit:
    """Fit and precompute. Cost O(n d^2).

    Raises
    ------
    InvalidData, IllConditioned, NotConverged
        The data cannot be used, or keep no error budget.
    """
    try:
        if data.table is not None:
            return _fit_pipeline(config, data, data.table, number)
        if config.exact_sums:
            objective, rows, status = _objective(config, data)
            check_data(objective, rows)
            return _fit_sums(config, number, objective, rows, status)
    except OutOfRange as error:
        columns = () if config.preprocess else (*config.coefficient_names, *config.target_names)
        raise error.named(data.ids, columns) from None
    if config.kind is Kind.SOFTMAX:
        return _fit_coupled(config, data, number)
    objective, rows, fit, status = _precompute(config, data)
    generation, stream = begin(number, objective, fit)
    check_error_budget(config, generation, stream)
    ledger = first_ledger(config, objective, rows, fit)
    check_first(config, ledger, generation, stream, fit.factor)
    return Fit(
        generation, stream, rows, fit.dual_rows, fit.factor, status, fit.certificate.bound, ledger
    )


def _fit_coupled(config: ModelConfig, data: TrainingData, number: int) -> Fit:
    """Fit classes that share one Hessian. Cost O(n d^2 C^2 + (d C)^3)."""
    plain, rows, status = _objective(config, data)
    made = coupled.begin(number, SoftmaxObjective.of(plain.penalty, rows), rows)
    check_error_budget(config, made.generation, made.stream)
    return Fit(
        made.generation, made.stream, rows, made.dual_rows, made.factor, status, made.certified
    )


def _fit_sums(
    config: ModelConfig,
    number: int,
    objective: Objective,
    rows: Rows,
    status: Status,
    raw: RawColumns | None = None,
) -> Fit:
    """Sum up, and solve. Cost O(n d^2)."""
    solution = solution_of(rows, objective.penalty, raw)
    made = begin_with_sums(number, objective, solution, len(rows))
    check_error_budget(config, made.generation, made.stream)
    return Fit(
        made.generation, made.stream, rows, made.dual_rows, made.factor, status, made.certified
    )


def _fit_pipeline(config: ModelConfig, data: TrainingData, table: Table, number: int) -> Fit:
    """Fit a model with its preprocessing. Cost O(n d^2)."""
    weight, layout = config.weights_of(data.y), layout_of(config.preprocess)
    if config.kind is Kind.POISSON:
        check_counts(Rows(data.X, data.y, weight))
    if config.exact_sums:
        raw = raw_columns(config)
        penalty = ridge_penalty(
            config.ridge, config.d, intercept=config.fit_intercept, penalise_intercept=False
        )
        objective = Objective(config.kind, penalty)
        return _fit_sums(config, number, objective, raw.rows(table, data.y, weight), "ACTIVE", raw)
    made = prepare(settings_of(config), table, data.y, weight, number, layout=layout)
    pipeline = LivePipeline(
        made.base, table.vocabularies, made.answer, intercept=config.fit_intercept
    )
    check_error_budget(config, made.generation, made.stream, pipeline)
    return Fit(
        made.generation,
        made.stream,
        made.rows,
        made.dual_rows,
        made.factor,
        made.status,
        made.certified,
        pipeline=pipeline,
    )


def _objective(config: ModelConfig, data: TrainingData) -> tuple[Objective, Rows, Status]:
    X = data.with_intercept() if config.fit_intercept else data.X
    rows = Rows(np.ascontiguousarray(X), data.y, config.weights_of(data.y))
    rows.check_finite()
    if config.kind is Kind.POISSON:
        check_counts(rows)
    if config.kind is Kind.SOFTMAX:
        check_classes(rows.y.shape[1])
    unbounded = config.fit_intercept and one_sided(config.kind, rows)
    penalty = ridge_penalty(
        config.ridge,
        config.d,
        intercept=config.fit_intercept,
        penalise_intercept=unbounded or config.certify is not None,
    )
    objective = noisy(config, Objective(config.kind, penalty))
    status: Status = "INTERCEPT_PENALISED" if unbounded else "ACTIVE"
    return objective, rows, status


def _precompute(
    config: ModelConfig, data: TrainingData
) -> tuple[Objective, Rows, Precomputation, Status]:
    objective, rows, status = _objective(config, data)
    rounded = config.d <= ROUNDED_FEATURES
    return objective, rows, precompute_blocks(objective, rows, rounded=rounded), status


def stage(
    store: ModelStore,
    config: ModelConfig,
    data: TrainingData,
    number: int,
    commit: int,
    *,
    progress: Progress,
    now: datetime,
) -> Candidate:
    """Fit, and stage the generation and the row ids beside the live model, if there is one.

    ``number`` is the generation's, ``commit`` the number that its commit will probably have.
    Interrupted, it removes what it has staged; killed, its keys expire. Cost O(n d^2) time, O(n d)
    bytes.
    """
    fit, name = _fit(config, data, number), uuid.uuid4().hex
    staging.note_registration(store.client, ModelKeys(config.model_id), name, commit)
    return stage_fit(store, config, data, fit, name, progress=progress, now=now)


def stage_fit(
    store: ModelStore,
    config: ModelConfig,
    data: TrainingData,
    fit: Fit,
    name: str,
    *,
    progress: Progress,
    now: datetime,
    files: RowFiles | None = None,
) -> Candidate:
    """Write a fit beside the live model, under keys of this name. Cost O(n d) bytes."""
    generation, stream, rows = fit.generation, fit.stream, fit.rows
    keys = ModelKeys(config.model_id)
    where, dataset = keys.generation(name), keys.dataset(name)
    if fit.in_files is None:
        sentinels = sample_sentinels(generation, data.ids, rows, fit.dual_rows, generation.number)
    else:
        sentinels = fit.in_files.sentinels
    try:
        staging.stage_generation(
            store.client,
            where,
            generation=generation,
            stream=stream,
            L=fit.factor.L,
            ids=data.ids,
            rows=rows,
            W=fit.dual_rows,
            sentinels=Sampled.of(sentinels, copied=fit.in_files is not None),
            pipeline=fit.pipeline,
            table=data.table,
            on_rows=lambda done: progress("storing rows", done, len(data.ids)),
            row_keys=store.row_keys,
        )
        staging.stage_dataset(store.client, dataset, data.ids)
    except (KeyboardInterrupt, LetheError):
        with suppress(LetheError):  # a store that is away expires it
            discard(store, config, where, dataset)
        raise
    state = ModelState(
        keys=keys,
        head=Head(),
        version=-1,
        digest=GENESIS,
        meta=with_meta(
            _meta(config, rows, fit.status, name, stream, fit.bound, now),
            rows_live=len(rows) if files is None else files.rows,
            row_files=files,
            class_counts=_class_counts(config, fit),
            ledger=fit.ledger,
            disclosure=measured_scale(config, generation, stream, rows, fit.dual_rows)
            if fit.in_files is None
            else fit.in_files.scale,
        ),
        generation=generation,
        stream=stream,
        sentinels=sentinels,
        offsets={},
        deferred={},
        arrays_id=STAGED,
        rows_generation=name,
        secret=new_secret(),
        pipeline=fit.pipeline,
    )
    return Candidate(state, where, dataset, data, frozenset(data.ids))


def _class_counts(config: ModelConfig, fit: Fit) -> tuple[int, ...] | None:
    if fit.in_files is not None:
        return fit.in_files.class_counts
    return None if config.kind is Kind.LINEAR else class_counts(fit.rows.y)


def discard(
    store: ModelStore, config: ModelConfig, where: GenerationKeys, dataset: DatasetKeys
) -> None:
    """Remove what a registration staged, which no commit names, and the files that it wrote."""
    if store.row_keys is not None:
        store.row_keys.retire_generation(where)
    staging.discard(store.client, [*where.everything(), *dataset.everything()])
    if config.rows_url is not None:
        remove_all(config.model_id, where.name, config.rows_url, store.row_keys)
    staging.end_registration(store.client, where.model, where.name)


def _meta(
    config: ModelConfig,
    rows: Rows,
    status: Status,
    name: str,
    stream: Stream,
    certified_bound: float | None,
    now: datetime,
) -> Meta:
    """Return meta for a model without a predecessor; registration adds what it continues from."""
    return Meta(
        config=config,
        status=status,
        generation=0,
        generation_key=name,
        dataset_key=name,
        rows_live=len(rows.y),
        rows_deleted=0,
        deletions_logged=0,
        **scalars_of(stream),
        error=ErrorRecord(
            value=0.0,
            kind="exact",
            bound=None,
            certified_version=None,
            budget=config.error_budget,
            relative=0.0,
        ),
        certified_bound=certified_bound,
        refreshed_at=now,
    )
