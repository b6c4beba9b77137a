"""A model that is fitted and staged, but not committed yet: registration makes it live."""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np

from lethe.consumers.commits.publish import PARAMETERS_LIMIT
from lethe.consumers.contract.commitment import new_secret
from lethe.consumers.contract.version_chain import GENESIS
from lethe.consumers.registration.error_budget import check_error_budget
from lethe.consumers.service.telemetry.progress import Progress
from lethe.consumers.versions.certificates import check_first, first_ledger, noisy
from lethe.consumers.versions.disclosures import measured_scale
from lethe.consumers.versions.transition import scalars_of
from lethe.engine.deletion.stream import Generation, Stream, begin
from lethe.engine.error.certified import Ledger
from lethe.engine.error.sentinels import sample_sentinels
from lethe.engine.errors import InvalidData
from lethe.engine.fit.classes import class_counts, one_sided
from lethe.engine.fit.factor import Factor
from lethe.engine.fit.objective import Array, Kind, Objective, Rows, ridge_penalty, with_intercept
from lethe.engine.fit.precompute import Precomputation
from lethe.engine.preprocess.answer import prepare
from lethe.engine.preprocess.input.table import Table
from lethe.engine.preprocess.live import LivePipeline
from lethe.engine.refresh.blockwise import precompute_blocks
from lethe.engine.store.generation import Sampled
from lethe.engine.store.layout.columns import ColumnRecord
from lethe.engine.store.layout.config import ModelConfig
from lethe.engine.store.layout.keys import DatasetKeys, GenerationKeys, ModelKeys
from lethe.engine.store.layout.meta import Meta, with_meta
from lethe.engine.store.layout.preprocessing import (
    columns_of,
    layout_of,
    recorded,
    settings_of,
)
from lethe.engine.store.layout.records import ErrorRecord, Status
from lethe.engine.store.layout.state import STAGED, Head, ModelState
from lethe.engine.store.offline import staging
from lethe.engine.store.store import ModelStore

_NAMES_LIMIT = PARAMETERS_LIMIT - 16 * 1024
"""Bytes of column names, as JSON: an event may leave out theta but not the names; all the rest of
it takes less than 16 KiB."""

_COLUMN_BYTES, _NUMBER_BYTES = 300, 34
"""Of a fitted column, and of each of its categories, beyond what its configuration takes."""

_SHOWN = 8  # column names that a message lists


@dataclass(frozen=True, slots=True)
class TrainingData:
    """Training rows, as read from a file.

    Attributes
    ----------
    ids
        Row ids, distinct, 1 to 128 characters.
    X, y
        n x p features without intercept, n x m targets; float64.
    feature_names, target_names
        Names of the columns.
    subjects
        Subject id to row ids; empty without a subject column.
    class_names
        Names of a logistic model's classes, unless these are 0 and 1
        (`engine.fit.classes.encoded`).
    preprocess, table
        Of a model with preprocessing, its columns, and the rows as they were given; X then has no
        columns.
    frozen_transformer
        SHA-256 of the transformer that made the features, if one did.
    """

    ids: tuple[str, ...]
    X: Array
    y: Array
    feature_names: tuple[str, ...]
    target_names: tuple[str, ...]
    subjects: Mapping[str, Sequence[str]]
    class_names: tuple[str, ...] = ()
    preprocess: tuple[ColumnRecord, ...] = ()
    table: Table | None = None
    frozen_transformer: str | None = None

    def without(self, row_ids: frozenset[str]) -> TrainingData:
        """Return the rows but for these, which were deleted: they never come back.

        Raises
        ------
        InvalidData
            None would be left.
        """
        if not row_ids:
            return self
        keep = np.array([row not in row_ids for row in self.ids], dtype=np.bool_)
        if not keep.any():
            raise InvalidData(
                "every row of the file was deleted from this model before, or belongs to a subject "
                "that was erased; there is nothing to fit"
            )
        ids = tuple(row for row in self.ids if row not in row_ids)
        left = replace(self, ids=ids, X=self.X[keep], y=self.y[keep])
        if self.table is None:
            return left
        # A category that only those rows have is not named any more.
        columns, table = recorded(columns_of(self.preprocess), self.table.take(keep))
        names = layout_of(columns).names
        return replace(left, feature_names=names, preprocess=columns, table=table)

    def without_subjects(self, erased: Collection[str]) -> TrainingData:
        """Return the rows but for those of erased subjects, who are not named any more.

        Raises
        ------
        InvalidData
            None would be left.
        """
        if not erased:
            return self
        rows = frozenset(row for subject in erased for row in self.subjects.get(subject, ()))
        others = {name: rows for name, rows in self.subjects.items() if name not in erased}
        return replace(self.without(rows), subjects=others)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A staged model that waits for its commit; ``new`` are the ids of its rows."""

    state: ModelState
    where: GenerationKeys
    dataset: DatasetKeys
    data: TrainingData
    new: frozenset[str]


MOST_COEFFICIENTS = 180_000
"""Coefficients of one theta: a commit has up to four thetas, and must fit into 8 MiB."""


def check_size(config: ModelConfig) -> None:
    """Refuse a model whose thetas do not fit into a commit.

    Raises
    ------
    InvalidData
        It has too many coefficients.
    """
    if config.d * config.m > MOST_COEFFICIENTS:
        raise InvalidData(
            f"model {config.model_id!r}: {config.d} coefficients of {config.m} outputs are "
            f"{config.d * config.m:,} numbers, and a commit has room for {MOST_COEFFICIENTS:,}; "
            "take fewer features, or register it as several models"
        )


def check_names(config: ModelConfig) -> None:
    """Refuse names that do not fit into a parameters event: the commit could never be published.

    Raises
    ------
    InvalidData
        Together they are too long.
    """
    features, targets = config.feature_names, (*config.target_names, *config.class_names)
    size = len(json.dumps([features, targets], ensure_ascii=False).encode())
    size += sum(
        len(column.model_dump_json()) + _COLUMN_BYTES + _NUMBER_BYTES * len(column.categories)
        for column in config.preprocess
    )
    if size > _NAMES_LIMIT:
        raise InvalidData(
            f"model {config.model_id!r}: the names of its {len(features)} features and "
            f"{len(targets)} targets and classes take {size:,} bytes, and an event has room for "
            f"{_NAMES_LIMIT:,}; give the columns shorter names"
        )


def check_same_shape(before: ModelConfig, after: ModelConfig) -> None:
    """Refuse changes that subscribers may not expect: another kind of model, or other columns.

    Raises
    ------
    InvalidData
        It names what would change.
    """
    changes = []
    if before.kind is not after.kind:
        changes.append(f"kind ({before.kind} to {after.kind})")
    for what, old, new in (
        ("targets", before.target_names, after.target_names),
        ("classes", before.class_names, after.class_names),
        ("features", before.feature_names, after.feature_names),
        ("columns", _columns(before), _columns(after)),
    ):
        if old != new:
            changes.append(f"{what} ({_change(old, new)})")
    if changes:
        raise InvalidData(
            f"model {after.model_id!r}: this would change its {' and its '.join(changes)}, which "
            "programs that read it may not expect; name the columns as before (--target, "
            "--features), or pass --allow-change"
        )


def _columns(config: ModelConfig) -> tuple[str, ...]:
    """Return the columns of a model with preprocessing, with what is done to each."""
    return tuple(f"{column.name} ({column.step})" for column in config.preprocess)


def _change(old: Sequence[str], new: Sequence[str]) -> str:
    """Return what was removed and added, a few names of each; if nothing was, the order changed."""
    removed, added = [n for n in old if n not in new], [n for n in new if n not in old]
    parts = []
    for preposition, names in (("without", removed), ("with", added)):
        if names:
            more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
            parts.append(f"{preposition} {', '.join(map(repr, names[:_SHOWN]))}{more}")
    return "; ".join(parts) or "in another order"


@dataclass(frozen=True, slots=True)
class _Fit:
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


def _fit(config: ModelConfig, data: TrainingData, number: int) -> _Fit:
    """Fit and precompute. Cost O(n d^2).

    Raises
    ------
    InvalidData, IllConditioned, NotConverged
        The data cannot be used, or keep no error budget.
    """
    if data.table is not None:
        return _fit_pipeline(config, data, data.table, number)
    objective, rows, fit, status = _precompute(config, data)
    generation, stream = begin(number, objective, fit)
    check_error_budget(config, generation, stream)
    ledger = first_ledger(config, objective, rows, fit)
    check_first(config, ledger, generation, stream, fit.factor)
    return _Fit(
        generation, stream, rows, fit.dual_rows, fit.factor, status, fit.certificate.bound, ledger
    )


def _fit_pipeline(config: ModelConfig, data: TrainingData, table: Table, number: int) -> _Fit:
    """Fit a model with its preprocessing. Cost O(n d^2)."""
    weight, layout = np.ones(len(data.ids)), layout_of(config.preprocess)
    made = prepare(settings_of(config), table, data.y, weight, number, layout=layout)
    pipeline = LivePipeline(
        made.base, table.vocabularies, made.answer, intercept=config.fit_intercept
    )
    error = pipeline.error(made.generation, made.stream)
    if error.over(config.error_budget):
        raise InvalidData(
            f"model {config.model_id!r}: the fit itself is uncertain by {error.relative:.1e} "
            f"(relative), more than the error budget of {config.error_budget:g}; no refresh could "
            "meet it: raise the ridge or the error budget"
        )
    return _Fit(
        made.generation,
        made.stream,
        made.rows,
        made.dual_rows,
        made.factor,
        made.status,
        made.certified,
        pipeline=pipeline,
    )


def _precompute(
    config: ModelConfig, data: TrainingData
) -> tuple[Objective, Rows, Precomputation, Status]:
    X = with_intercept(data.X) if config.fit_intercept else data.X
    rows = Rows(np.ascontiguousarray(X), data.y, np.ones(len(data.ids)))
    rows.check_finite()
    unbounded = config.fit_intercept and one_sided(config.kind, rows)
    penalty = ridge_penalty(
        config.ridge,
        config.d,
        intercept=config.fit_intercept,
        penalise_intercept=unbounded or config.certify is not None,
    )
    objective = noisy(config, Objective(config.kind, penalty))
    status: Status = "INTERCEPT_PENALISED" if unbounded else "ACTIVE"
    return objective, rows, precompute_blocks(objective, rows), status


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
    Cost O(n d^2) time, O(n d) bytes.
    """
    fit = _fit(config, data, number)
    generation, stream, rows = fit.generation, fit.stream, fit.rows
    keys, name = ModelKeys(config.model_id), uuid.uuid4().hex
    where, dataset = keys.generation(name), keys.dataset(name)
    sentinels = sample_sentinels(generation, data.ids, rows, fit.dual_rows, number)
    staging.note_registration(store.client, keys, name, commit)
    staging.stage_generation(
        store.client,
        where,
        generation=generation,
        stream=stream,
        L=fit.factor.L,
        ids=data.ids,
        rows=rows,
        W=fit.dual_rows,
        sentinels=Sampled.of(sentinels),
        pipeline=fit.pipeline,
        table=data.table,
        on_rows=lambda done: progress("storing rows", done, len(data.ids)),
        row_keys=store.row_keys,
        seconds=None,
    )
    staging.stage_dataset(store.client, dataset, data.ids)
    state = ModelState(
        keys=keys,
        head=Head(),
        version=-1,
        digest=GENESIS,
        meta=with_meta(
            _meta(config, rows, fit.status, name, stream, fit.bound, now),
            ledger=fit.ledger,
            disclosure=measured_scale(config, generation, stream, rows, fit.dual_rows),
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
        class_counts=class_counts(rows.y) if config.kind is Kind.LOGISTIC else None,
        **scalars_of(stream),  # type: ignore[arg-type]  # int and float fields alike
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
