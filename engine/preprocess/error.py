"""The published error of a model with preprocessing, in the units of its pipeline's last step."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from lethe.engine.deletion.generation import (
    Generation,
    Stream,
    has_lost_digits,
    length_above,
)
from lethe.engine.error.estimate import UNKNOWN, ErrorKind, PublishedError, relative_to
from lethe.engine.error.sentinels import Sentinels
from lethe.engine.errors import UNSTATED, IllConditioned, StatisticsMoved
from lethe.engine.fit import blocks
from lethe.engine.fit.factor import Factor
from lethe.engine.fit.objective import Array, Kind, norm
from lethe.engine.preprocess.answer import LiveAnswer
from lethe.engine.preprocess.estimate import moved_rows, pipeline_estimate
from lethe.engine.preprocess.movement import Movement, conjugate_gradients
from lethe.engine.preprocess.published import PipelineUnits, distance_bound
from lethe.engine.preprocess.remainder import logistic_bound
from lethe.engine.preprocess.transformation.base import BaseTransformation
from lethe.engine.preprocess.transformation.layout import Places
from lethe.engine.refresh.blockwise import generation_of, rows_of, stream_of

_ESTIMATED = 1e-3  # relative residual of the estimate's systems


class Sample(NamedTuple):
    """The sentinels, their entries (m' x g), and the number of live rows they were drawn from."""

    sentinels: Sentinels
    entries: Places
    rows_live: int


def pipeline_error(
    base: BaseTransformation,
    generation: Generation,
    factor: Factor,
    stream: Stream,
    answer: LiveAnswer,
    units: PipelineUnits,
    sample: Sample,
    *,
    fresh: bool,
) -> PublishedError:
    """Return the error of what is published against the pipeline refitted on the live rows.

    That of a logistic model is estimated where it is not ``fresh`` from its fit; if a bound is
    proved as well, the error has both.

    Raises
    ------
    IllConditioned
        It is not a finite number.
    """
    proved = proved_error(base, generation, stream, answer, units)
    if generation.objective.kind is Kind.LINEAR or (fresh and proved.bound is not None):
        return proved
    if has_lost_digits(stream):
        return proved
    remains = sampled_estimate(base, generation, factor, stream, answer, units, sample)
    if remains is None:
        return proved
    left = _over_blocks(distance_bound, base, generation, stream, answer, units)
    known, scale = _distance_known(generation, stream, units)
    estimated = stated(known + left + remains, scale, ErrorKind.ESTIMATE)
    return replace(estimated, bound=proved.bound)


def proved_error(
    base: BaseTransformation,
    generation: Generation,
    stream: Stream,
    answer: LiveAnswer,
    units: PipelineUnits,
) -> PublishedError:
    """Return a bound of `pipeline_error`, which needs neither factor nor sample.

    Of a logistic model none may be proved (`engine.preprocess.remainder`): the error is unknown.

    Raises
    ------
    IllConditioned
        It is not a finite number.
    """
    if has_lost_digits(stream):
        return UNKNOWN
    known, scale = _distance_known(generation, stream, units)
    if generation.objective.kind is Kind.LINEAR:
        left = distance_bound(base, generation, stream, answer, units)
        return stated(known + left, scale, ErrorKind.EXACT)
    left = _over_blocks(logistic_bound, base, generation, stream, answer, units)
    if math.isinf(left):
        return UNKNOWN
    return stated(known + left, scale, ErrorKind.CERTIFICATE)


def _over_blocks(
    bound: Callable[[BaseTransformation, Generation, Stream, LiveAnswer, PipelineUnits], float],
    base: BaseTransformation,
    generation: Generation,
    stream: Stream,
    answer: LiveAnswer,
    units: PipelineUnits,
) -> float:
    """Return a bound of a distance of all blocks: theirs are of parts of one vector."""
    d = generation.objective.d
    return math.hypot(
        *(
            bound(
                base, generation_of(generation, c), stream_of(stream, c, d), answer.block(c), units
            )
            for c in range(generation.blocks)
        )
    )


def _distance_known(
    generation: Generation, stream: Stream, units: PipelineUnits
) -> tuple[float, float]:
    """Return a bound of the distance to theta_exact in the pipeline's units, and the scale."""
    theta = stream.theta_exact
    known = units.rounding(theta)
    if stream.published is not theta:
        known += length_above(units.parameters(stream.published - theta))
        known += units.rounding(stream.published)
    published = units.parameters(stream.published)
    return known, relative_to(published, units.parameters(generation.theta_b))


def sampled_estimate(
    base: BaseTransformation,
    generation: Generation,
    factor: Factor,
    stream: Stream,
    answer: LiveAnswer,
    units: PipelineUnits,
    sample: Sample,
) -> float | None:
    """Return `pipeline_estimate` of all blocks, from the sentinels.

    None if one of them has none. Cost O(m' d) and two solves a block.
    """
    moved = moved_rows(base.layout, answer.live, sample.sentinels.rows.X, sample.entries)
    h, d, total = generation.blocks, generation.objective.d, 0.0
    for c in range(h):
        own = replace(
            sample.sentinels,
            rows=rows_of(sample.sentinels.rows, c, h),
            W=blocks.part(sample.sentinels.W, c, d),
        )
        there = generation_of(generation, c), stream_of(stream, c, d)
        inverse = partial(_solved, *there, factor.block(c), answer.moved[c])
        try:
            one = pipeline_estimate(*there, own, moved, units, inverse, sample.rows_live)
        except StatisticsMoved:  # its systems cannot be solved
            return None
        if one is None:
            return None
        total = math.hypot(total, one)
    return total


def _solved(
    generation: Generation, stream: Stream, factor: Factor, moved: Movement, v: Array
) -> Array:
    enough = _ESTIMATED * norm(v)
    return conjugate_gradients(generation, stream, factor, moved, v, enough).step


def stated(value: float, scale: float, kind: ErrorKind) -> PublishedError:
    """Return an error, relative to ``scale``; raise `IllConditioned` if it cannot be stated."""
    relative = value / scale
    if not math.isfinite(relative):
        raise IllConditioned(UNSTATED)
    return PublishedError(value, kind, None if kind is ErrorKind.ESTIMATE else value, relative)
