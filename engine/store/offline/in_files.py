"""A generation of rows in files: fitted in passes, with no dual row stored.

A worker makes the dual rows of what it deletes from the factor. The sentinels' are stored with
copies of their rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np

from lethe.engine.deletion.generation import Generation, begin
from lethe.engine.deletion.insertion import base_dual_rows
from lethe.engine.disclosure import ResidualScale, begin_scale_in_passes
from lethe.engine.error.certified import Ledger, begin_ledger_in_passes, with_fresh_noise
from lethe.engine.error.sentinels import Sentinels, choose_sentinels, possible_parts
from lethe.engine.error.terms import ObjectiveNoise
from lethe.engine.fit.classes import class_counts, unbounded, weighted_counts
from lethe.engine.fit.factor import Factor
from lethe.engine.fit.objective import (
    Array,
    Kind,
    Objective,
    Rows,
    over,
    ridge_penalty,
)
from lethe.engine.fit.precompute import dual_rows
from lethe.engine.preprocess.answer import prepare_in_passes
from lethe.engine.preprocess.live import LivePipeline
from lethe.engine.preprocess.transformation.blocks import OfGiven
from lethe.engine.refresh.blockwise import precompute_blocks
from lethe.engine.refresh.refreshes import NewGeneration
from lethe.engine.rowstore.buckets import Buckets, RowsOfBuckets
from lethe.engine.store.layout.columns import ColumnRecord
from lethe.engine.store.layout.config import ModelConfig
from lethe.engine.store.layout.preprocessing import (
    given_table,
    layout_of,
    settings_of,
    vocabularies_of,
)
from lethe.engine.store.layout.records import Status
from lethe.engine.store.row_files import as_model_has

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class OfFiles:
    """A new generation of rows in files.

    Attributes
    ----------
    new
        It; its dual rows have no rows.
    sentinels
        With their rows; none of a linear model.
    class_counts
        How many rows each class has; None of a linear model.
    status
        Whether the intercept had to be penalised.
    ledger
        Of a certified model.
    scale
        What distances are measured in, if disclosures are kept.
    pipeline
        The preprocessing, of a model that has some and no sums.
    """

    new: NewGeneration
    sentinels: Sentinels
    class_counts: tuple[int, ...] | None = None
    status: Status = "ACTIVE"
    ledger: Ledger | None = None
    scale: ResidualScale | None = None
    pipeline: LivePipeline | None = None


def nobody(config: ModelConfig) -> Rows:
    """Return no rows of a model."""
    return Rows(np.empty((0, config.d)), np.empty((0, config.m)), np.empty(0))


def no_sentinels(config: ModelConfig) -> Sentinels:
    """Return the sentinels of a model that needs none."""
    return Sentinels((), nobody(config), np.empty((0, config.blocks * config.d)))


def fit_files(
    config: ModelConfig,
    buckets: Buckets,
    number: int,
    start: Array | None = None,
    on_pass: Callable[[int], None] = lambda _: None,
) -> OfFiles:
    """Fit a model without exact sums to the rows in files, and precompute.

    Noise in the objective of a certified model is drawn anew.

    Parameters
    ----------
    config, buckets
        The model, and all its rows.
    number
        Of the generation.
    start
        Where Newton's method begins; not with preprocessing, whose units are others each time.
    on_pass
        Called with the number of the pass over the rows that begins.

    Raises
    ------
    InvalidData, IllConditioned, NotConverged
        As `engine.fit.fit.fit`.

    Notes
    -----
    Cost O(n d^2) for each pass: one for each Newton step, and six, or seven of a certified
    logistic model or one that keeps disclosures, or nine with preprocessing. Memory does not depend
    on n but for 8 bytes a row of a logistic model, by which its sentinels are chosen: one with
    preprocessing has none, for its error is a bound.
    """
    of_buckets = RowsOfBuckets(buckets, config.fit_intercept)
    if config.preprocess:
        of_buckets = RowsOfBuckets(buckets, intercept=False, features=config.d)
    rows = _Counted(of_buckets, on_pass)
    counted = [*over(rows, partial(_counts, config.kind))]
    one_sided = unbounded(config.kind, _added([weighted for weighted, _ in counted]))
    if config.preprocess:
        counts = None if config.kind is Kind.LINEAR else _added([every for _, every in counted])
        return _fit_pipeline(config, rows, number, counts, one_sided=one_sided)
    penalty = ridge_penalty(
        config.ridge,
        config.d,
        intercept=config.fit_intercept,
        penalise_intercept=one_sided or config.certify is not None,
    )
    objective = Objective(config.kind, penalty)
    if isinstance(config.certify, ObjectiveNoise):
        objective = with_fresh_noise(objective, config.m, config.certify.sigma)
    made = precompute_blocks(objective, rows, start)
    generation, stream = begin(number, objective, made)
    new = NewGeneration(generation, stream, made.factor, made.dual_rows, made.certificate.bound)
    ledger = None
    if config.certify is not None:
        residual = made.certificate.residual
        ledger = begin_ledger_in_passes(objective, rows, made.factor, residual)
    if config.kind is Kind.LINEAR:
        scale = None
        if config.disclosure:
            theta, wrong = stream.theta_exact, generation.dual_error
            scale = begin_scale_in_passes(rows, made.factor, theta, wrong)
        return OfFiles(new, no_sentinels(config), ledger=ledger, scale=scale)
    counts = _added([of_classes for _, of_classes in counted])
    status: Status = "INTERCEPT_PENALISED" if config.fit_intercept and one_sided else "ACTIVE"
    parts = np.concatenate([*over(rows, partial(_parts, generation, made.factor))])
    places, pi = choose_sentinels(parts, number)
    chosen = buckets.at(places)
    theirs = as_model_has(config, chosen)
    W, _ = base_dual_rows(generation, made.factor, theirs.X)
    return OfFiles(new, Sentinels(chosen.ids, theirs, W, pi), counts, status, ledger)


def _fit_pipeline(
    config: ModelConfig,
    rows: _Counted,
    number: int,
    counts: tuple[int, ...] | None,
    *,
    one_sided: bool,
) -> OfFiles:
    """Fit preprocessing and model to rows as they were given."""
    layout, known = layout_of(config.preprocess), vocabularies_of(config.preprocess)
    given, settings = _Given(config, rows), settings_of(config)
    made = prepare_in_passes(settings, layout, known, given, number, single=one_sided)
    return OfFiles(
        NewGeneration(made.generation, made.stream, made.factor, made.dual_rows, made.certified),
        no_sentinels(config),
        counts,
        made.status,
        pipeline=LivePipeline(made.base, known, made.answer, config.fit_intercept),
    )


@dataclass(frozen=True, slots=True)
class _Given:
    """Rows of files as they were given."""

    config: ModelConfig
    rows: _Counted

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def outputs(self) -> int:
        return self.rows.outputs

    def each(self, kernel: OfGiven[T]) -> Iterator[T]:
        return self.rows.each(self._of_rows(kernel))

    def here(self, kernel: OfGiven[T]) -> Iterator[T]:
        return map(self._of_rows(kernel), self.rows.blocks())

    def _of_rows(self, kernel: OfGiven[T]) -> Callable[[Rows], T]:
        what = f"model {self.config.model_id!r}, a bucket"
        return partial(_of_given, kernel, self.config.preprocess, what)


def _of_given(kernel: OfGiven[T], records: Sequence[ColumnRecord], what: str, rows: Rows) -> T:
    return kernel(given_table(records, rows.X, what), rows.y, rows.weight)


class _Counted:
    """Rows in blocks that count the passes over them."""

    def __init__(self, rows: RowsOfBuckets, on_pass: Callable[[int], None]) -> None:
        self._rows = rows
        self._on_pass = on_pass
        self._passes = 0

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def outputs(self) -> int:
        return self._rows.outputs

    def blocks(self) -> Iterator[Rows]:
        return self._rows.blocks()

    def each(self, kernel: Callable[[Rows], T]) -> Iterator[T]:
        self._passes += 1
        self._on_pass(self._passes)
        return self._rows.each(kernel)


def _counts(kind: Kind, rows: Rows) -> tuple[tuple[int, ...], tuple[int, ...]]:
    of_classes = () if kind is Kind.LINEAR else class_counts(rows.y)
    return weighted_counts(kind, rows), of_classes


def _added(counts: list[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(map(sum, zip(*counts, strict=True)))


def _parts(generation: Generation, factor: Factor, rows: Rows) -> Array:
    """Return what each row can add to the estimate (`possible_parts`)."""
    W = np.hstack([dual_rows(factor.block(c), rows.X) for c in range(generation.blocks)])
    return possible_parts(generation, rows, W)
