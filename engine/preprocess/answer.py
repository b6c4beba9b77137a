"""A generation of a model with preprocessing, and the live answer beside its stream."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, TypeVar

import numpy as np

from lethe.engine.deletion.generation import Generation, Stream, begin
from lethe.engine.deletion.span import project
from lethe.engine.error.certificate import Measured, gradient_allowance
from lethe.engine.fit import blocks
from lethe.engine.fit.classes import one_sided
from lethe.engine.fit.factor import Factor
from lethe.engine.fit.objective import (
    Array,
    Kind,
    Objective,
    Rows,
    RowsInBlocks,
    norm,
    ridge_penalty,
)
from lethe.engine.fit.precompute import Precomputation, dual_rows
from lethe.engine.preprocess.extents import balanced_eigenvalue, dual_lengths
from lethe.engine.preprocess.input.settings import Settings
from lethe.engine.preprocess.input.table import Table, Vocabulary
from lethe.engine.preprocess.movement import Movement, movement, settle
from lethe.engine.preprocess.transformation.base import BaseTransformation, fit_base
from lethe.engine.preprocess.transformation.blocks import GivenInBlocks
from lethe.engine.preprocess.transformation.in_passes import fit_base_in_passes
from lethe.engine.preprocess.transformation.layout import Layout, Places
from lethe.engine.preprocess.transformation.statistics import Statistics, live_statistics
from lethe.engine.preprocess.transformation.sums import (
    Contribution,
    Sums,
    cancelled_in_errors,
)
from lethe.engine.refresh.blockwise import generation_of, precompute_blocks, stream_of
from lethe.engine.refresh.refreshes import complete

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LiveAnswer:
    """The live answer beside the stream.

    Attributes
    ----------
    sums, live, moved
        Sums over the live rows, their statistics, and what those change in each block.
    gradient
        d x m, the generation's own gradient at theta_exact, up to the stream's residual.
    left
        The live objective's gradient there, as it was measured.
    corrections
        Products with A_t^-1 that the last change took.
    """

    sums: Sums
    live: Statistics
    moved: tuple[Movement, ...]
    gradient: Array
    left: float
    corrections: int

    def block(self, c: int) -> LiveAnswer:
        """Return one block's part; ``left`` is that of all blocks."""
        h = len(self.moved)
        if h == 1:
            return self
        gradient = blocks.outputs(self.gradient, c, h)
        sums, moved = self.sums.block(c, h), self.moved[c : c + 1]
        return replace(self, sums=sums, moved=moved, gradient=gradient)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A generation from a table: see `prepare`.

    ``status`` says whether the intercept is penalised, because a class has no row.
    """

    generation: Generation
    stream: Stream
    factor: Factor
    dual_rows: Array
    rows: Rows
    entries: Places
    base: BaseTransformation
    answer: LiveAnswer
    certified: float | None
    status: Literal["ACTIVE", "INTERCEPT_PENALISED"]


def prepare(
    settings: Settings,
    table: Table,
    y: Array,
    weight: Array,
    number: int,
    layout: Layout | None = None,
) -> Prepared:
    """Fit transformation and model to a table. Cost O(n d^2).

    ``layout`` as of `engine.preprocess.transformation.base.fit_base`.
    """
    single = one_sided(settings.kind, Rows(np.empty((len(y), 0)), y, weight))
    free = settings.free_intercept and not single
    base = fit_base(settings.columns, table, y[:, 0], centred=free, layout=layout)
    X, entries = base.rows(table, intercept=settings.intercept)
    rows = Rows(X, y, weight)
    rows.check_finite()

    def parts(generation: Generation, made: Precomputation) -> Iterator[Contribution]:
        yield contribution(generation, base, rows, entries, made.dual_rows)

    made = _prepared(settings, base, rows, parts, table.vocabularies, number, single=single)
    return replace(made, rows=rows, entries=entries)


def prepare_in_passes(
    settings: Settings,
    layout: Layout,
    vocabularies: tuple[Vocabulary, ...],
    given: GivenInBlocks,
    number: int,
    *,
    single: bool,
) -> Prepared:
    """Fit transformation and model to rows that are read in blocks; none is in what is returned.

    ``single``: a class has no row. Two passes for the statistics, those of
    `engine.fit.precompute.precompute`, and two more. Cost O(n d^2).
    """
    free = settings.free_intercept and not single
    base = fit_base_in_passes(layout, vocabularies, given, centred=free)

    def parts(generation: Generation, made: Precomputation) -> Iterator[Contribution]:
        kernel = partial(_contribution, base, settings.intercept, generation, made.factor)
        return given.here(kernel)

    rows = _InBaseUnits(given, base, settings.intercept)
    return _prepared(settings, base, rows, parts, vocabularies, number, single=single)


def _prepared(
    settings: Settings,
    base: BaseTransformation,
    rows: RowsInBlocks,
    parts: Callable[[Generation, Precomputation], Iterator[Contribution]],
    vocabularies: tuple[Vocabulary, ...],
    number: int,
    *,
    single: bool,
) -> Prepared:
    """Fit to rows in base units; ``parts`` returns them as they enter the sums."""
    penalty = ridge_penalty(
        settings.ridge,
        base.layout.features + int(settings.intercept),
        intercept=settings.intercept,
        penalise_intercept=not settings.free_intercept or single,
    )
    objective = Objective(settings.kind, penalty)
    made = precompute_blocks(objective, rows)
    generation, stream = begin(number, objective, made)
    stream, gradient = _gradient_of_fit(generation, stream, rows)
    sums = summed(base, generation, made.factor, parts(generation, made))
    stream, answer = settled_answer(
        base, generation, stream, made.factor, sums, vocabularies, gradient
    )
    exact = stream.theta_exact
    stream = stream._replace(anchor=exact, published=exact)
    nobody = Rows(made.dual_rows[:0], np.empty((0, rows.outputs)), np.empty(0))
    return Prepared(
        generation, stream, made.factor, made.dual_rows, nobody,
        np.empty((0, base.layout.places), dtype=np.intp), base, answer, made.certificate.bound,
        "INTERCEPT_PENALISED" if settings.intercept and single else "ACTIVE",
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _InBaseUnits:
    """Rows in blocks as they are given, in base units."""

    given: GivenInBlocks
    base: BaseTransformation
    intercept: bool

    def __len__(self) -> int:
        return len(self.given)

    @property
    def outputs(self) -> int:
        return self.given.outputs

    def blocks(self) -> Iterator[Rows]:
        return self.given.here(partial(_in_base_units, _itself, self.base, self.intercept))

    def each(self, kernel: Callable[[Rows], T]) -> Iterator[T]:
        return self.given.each(partial(_in_base_units, kernel, self.base, self.intercept))


def _itself(rows: Rows) -> Rows:
    return rows


def _in_base_units(
    kernel: Callable[[Rows], T],
    base: BaseTransformation,
    intercept: bool,
    table: Table,
    y: Array,
    weight: Array,
) -> T:
    X, _ = base.rows(table, intercept=intercept)
    return kernel(Rows(X, y, weight))


def _contribution(
    base: BaseTransformation,
    intercept: bool,
    generation: Generation,
    factor: Factor,
    table: Table,
    y: Array,
    weight: Array,
) -> Contribution:
    X, entries = base.rows(table, intercept=intercept)
    W = np.hstack([dual_rows(factor.block(c), X) for c in range(generation.blocks)])
    return contribution(generation, base, Rows(X, y, weight), entries, W)


def _gradient_of_fit(
    generation: Generation, stream: Stream, rows: RowsInBlocks
) -> tuple[Stream, Array]:
    """Return the gradient at the fit, and the stream with what rounding leaves of it."""
    objective, theta = generation.objective, stream.theta_exact
    if objective.kind is Kind.LINEAR:  # refined: only the residual is left
        return stream, np.zeros_like(theta)
    measured = Measured.at(objective, rows, theta)
    residual = gradient_allowance(measured.scale)
    return stream._replace(residual=residual, carried=0.0), measured.gradient


def summed(
    base: BaseTransformation, generation: Generation, factor: Factor, parts: Iterator[Contribution]
) -> Sums:
    """Return the sums over all rows of a generation, at least some. Cost O(n d + d^3)."""
    sums = Sums.of(base.layout, next(parts), parts, base.intervals)
    if generation.objective.kind is Kind.LINEAR:
        return sums
    penalty, each = generation.objective.penalty, range(generation.blocks)
    balanced = (balanced_eigenvalue(base.layout, penalty, factor.block(c)) for c in each)
    return replace(sums, balanced=min(balanced))


def contribution(
    generation: Generation,
    base: BaseTransformation,
    rows: Rows,
    entries: Places,
    W: Array | None = None,
    dual_error: float = 0.0,
) -> Contribution:
    """Return rows as they enter the sums of a generation. Cost O(k d m).

    ``W`` (k x h d) are the base dual rows of rows that arrive, and ``dual_error`` bounds the error
    of those that are not the generation's own.
    """
    objective, theta = generation.objective, generation.theta_b
    curvature = objective.curvatures(rows, theta)
    response = rows.weight[:, None] * rows.y
    target = rows.y[:, 0] - base.target_mean
    error, reach = np.empty((len(rows), 0)), np.zeros(len(rows))
    cancelled = np.zeros(len(rows))
    if objective.kind is not Kind.LINEAR:
        margin = rows.X @ theta
        error = objective.error_at(rows, margin)
        cancelled = cancelled_in_errors(objective.kind, curvature, error)
        response = curvature * margin - error
        if W is not None:
            off, d = max(dual_error, generation.dual_error), objective.d
            own = (blocks.part(W, c, d) for c in range(generation.blocks))
            reach = np.max([dual_lengths(rows.X, part, off) for part in own], axis=0)
    return Contribution(rows.X, entries, curvature, response, target, error, reach, cancelled)


def settled_answer(
    base: BaseTransformation,
    generation: Generation,
    stream: Stream,
    factor: Factor,
    sums: Sums,
    vocabularies: tuple[Vocabulary, ...],
    gradient: Array,
) -> tuple[Stream, LiveAnswer]:
    """Return the stream at the live answer, and that answer: a block after the other."""
    h, d = generation.blocks, generation.objective.d
    live = live_statistics(base, vocabularies, sums)
    moved = movements(base, sums, live, generation)
    settled = [
        settle(
            generation_of(generation, c),
            stream_of(stream, c, d),
            factor.block(c),
            blocks.outputs(gradient, c, h),
            moved[c],
            sums.block(c, h).allowance(blocks.outputs(stream.theta_exact, c, h)),
        )
        for c in range(h)
    ]
    if h == 1:
        [one] = settled
        answer = LiveAnswer(sums, live, moved, one.gradient, one.left, one.corrections)
        return one.stream._replace(gradient=one.gradient), answer
    gradient = np.hstack([one.gradient for one in settled])
    left = math.hypot(*(one.left for one in settled))
    added = math.hypot(*(one.stream.residual - stream.residual for one in settled))
    after = stream._replace(
        theta_exact=np.hstack([one.stream.theta_exact for one in settled]),
        residual=stream.residual + added,
        gradient=gradient,
    )
    most = max(one.corrections for one in settled)
    return after, LiveAnswer(sums, live, moved, gradient, left, most)


def movements(
    base: BaseTransformation, sums: Sums, live: Statistics, generation: Generation
) -> tuple[Movement, ...]:
    """Return what the live statistics change in each block. Cost O(q (d + q)) a block."""
    h, penalty = generation.blocks, generation.objective.penalty
    return tuple(movement(base, sums.block(c, h), live, penalty) for c in range(h))


def resumed_answer(
    base: BaseTransformation,
    generation: Generation,
    stream: Stream,
    sums: Sums,
    vocabularies: tuple[Vocabulary, ...],
) -> LiveAnswer:
    """Return the live answer that a stream is at, from the sums over the live rows.

    Cost O(q (d + q)) a block.

    Raises
    ------
    StatisticsMoved
        As of `live_statistics`.
    """
    if stream.gradient is None:
        raise AssertionError("the stream is not one of live statistics")
    live = live_statistics(base, vocabularies, sums, read=True)
    moved, h = movements(base, sums, live, generation), generation.blocks
    gradients = (
        one.gradient(blocks.outputs(stream.theta_exact, c, h)) for c, one in enumerate(moved)
    )
    left = norm(stream.gradient + np.hstack(list(gradients)))
    return LiveAnswer(sums, live, moved, stream.gradient, left, 0)


def published_by(stream: Stream, method: str) -> Stream:
    """Return a stream at the live answer that publishes it as a method does."""
    exact = stream.theta_exact
    if method == "exact":
        return stream._replace(published=exact)
    if method == "pru":
        return stream._replace(
            published=stream.anchor + project(stream.Q.array, exact - stream.anchor)
        )
    return stream


def measured_answer(
    base: BaseTransformation,
    generation: Generation,
    stream: Stream,
    factor: Factor,
    rows: Rows,
    entries: Places,
    W: Array,
    vocabularies: tuple[Vocabulary, ...],
) -> tuple[Stream, LiveAnswer]:
    """Return `settled_answer` with gradient and sums taken afresh from all live rows, published.

    Of a linear model. Cost O(n d).
    """
    measured = Measured.at(generation.objective, rows, stream.theta_exact)
    parts = iter((contribution(generation, base, rows, entries, W),))
    sums = summed(base, generation, factor, parts)
    fresh = stream._replace(residual=gradient_allowance(measured.scale), carried=0.0)
    after, answer = settled_answer(
        base, generation, fresh, factor, sums, vocabularies, measured.gradient
    )
    return complete(after), answer
