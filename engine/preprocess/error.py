"""The published error of a model with preprocessing, in the units of its pipeline's last step."""

from __future__ import annotations

import math
from typing import NamedTuple

from lethe.engine.deletion.generation import Generation, Stream
from lethe.engine.error.estimate import ErrorKind, PublishedError, relative_to
from lethe.engine.error.sentinels import Sentinels
from lethe.engine.errors import UNSTATED, IllConditioned
from lethe.engine.fit.factor import Factor
from lethe.engine.fit.objective import Array, Kind, norm
from lethe.engine.preprocess.answer import Answer
from lethe.engine.preprocess.estimate import moved_rows, pipeline_estimate
from lethe.engine.preprocess.movement import conjugate_gradients
from lethe.engine.preprocess.published import PipelineUnits, distance_bound
from lethe.engine.preprocess.transformation.base import BaseTransformation
from lethe.engine.preprocess.transformation.layout import Places

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
    answer: Answer,
    units: PipelineUnits,
    sample: Sample,
    certified: float | None,
) -> PublishedError:
    """Return the error of what is published against the pipeline refitted on the live rows.

    ``certified`` is a bound of a logistic model's |theta_exact - theta*| in base units, if its fit
    has just given one.

    Raises
    ------
    IllConditioned
        It is not a finite number.
    """
    known, scale = _distance_known(base, generation, stream, answer, units)
    if generation.objective.kind is Kind.LINEAR:
        return _stated(known, scale, ErrorKind.EXACT)
    if certified is not None:
        bound = known + units.growth * certified
        return _stated(bound, scale, ErrorKind.CERTIFICATE)
    remains = sampled_estimate(base, generation, factor, stream, answer, units, sample)
    if remains is None:
        return PublishedError(None, ErrorKind.UNKNOWN, None, None)
    carried = units.growth * stream.carried
    return _stated(known + carried + remains, scale, ErrorKind.ESTIMATE)


def linear_error(
    base: BaseTransformation,
    generation: Generation,
    stream: Stream,
    answer: Answer,
    units: PipelineUnits,
) -> PublishedError:
    """Return `pipeline_error` of a linear model, which needs neither factor nor sample.

    Raises
    ------
    IllConditioned
        It is not a finite number.
    """
    known, scale = _distance_known(base, generation, stream, answer, units)
    return _stated(known, scale, ErrorKind.EXACT)


def _distance_known(
    base: BaseTransformation,
    generation: Generation,
    stream: Stream,
    answer: Answer,
    units: PipelineUnits,
) -> tuple[float, float]:
    """Return a bound of the distance to the live quadratic model's optimum, and the error's scale.

    All of it is known: the distance to theta_exact, and what rounding has left there.
    """
    theta = stream.theta_exact
    known = units.rounding(theta) + distance_bound(base, generation, stream, answer, units)
    if stream.published is not theta:
        known += norm(units.parameters(stream.published - theta))
        known += units.rounding(stream.published)
    published = units.parameters(stream.published)
    return known, relative_to(published, units.parameters(generation.theta_b))


def sampled_estimate(
    base: BaseTransformation,
    generation: Generation,
    factor: Factor,
    stream: Stream,
    answer: Answer,
    units: PipelineUnits,
    sample: Sample,
) -> float | None:
    """Return `pipeline_estimate` from the sentinels. Cost O(m' d) and two solves."""
    moved = moved_rows(base.layout, answer.live, sample.sentinels.rows.X, sample.entries)

    def inverse(v: Array) -> Array:
        enough = _ESTIMATED * norm(v)
        return conjugate_gradients(generation, stream, factor, answer.moved, v, enough).step

    return pipeline_estimate(
        generation, stream, sample.sentinels, moved, units, inverse, sample.rows_live
    )


def _stated(value: float, scale: float, kind: ErrorKind) -> PublishedError:
    relative = value / scale
    if not math.isfinite(relative):
        raise IllConditioned(UNSTATED)
    return PublishedError(value, kind, None if kind is ErrorKind.ESTIMATE else value, relative)
