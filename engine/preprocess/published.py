"""From base units to the pipeline's: parameters, and how far they may be from retraining.

The final step of the live pipeline sees (x' - mean) / deviation. Its parameters are, with theta and
b those in base units,

    coef = deviation theta,    intercept = b + mean . theta,

a linear map T, through which distances and bounds go.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from lethe.engine.deletion.generation import Generation, Stream, smallest_eigenvalue
from lethe.engine.fit.factor import EPS
from lethe.engine.fit.objective import Array, norm
from lethe.engine.preprocess.answer import LiveAnswer
from lethe.engine.preprocess.transformation.base import BaseTransformation
from lethe.engine.preprocess.transformation.statistics import Statistics

_SLACK = 1.0 + 1e-12  # for the rounding of a bound itself
_FEW = 8.0  # roundings in a product with T, and in its statistics


@dataclass(frozen=True, slots=True)
class PipelineUnits:
    """T for live statistics, with or without an intercept.

    Attributes
    ----------
    mean, deviation
        (p,) each.
    amplified
        (p,) what rounding in a deviation is proportional to.
    intercept
        Whether theta's last row is one.
    """

    mean: Array
    deviation: Array
    amplified: Array
    intercept: bool

    @classmethod
    def of(cls, live: Statistics, *, intercept: bool) -> PipelineUnits:
        """Return the map for ``live`` statistics."""
        return cls(live.mean, live.deviation, live.amplified, intercept)

    def parameters(self, theta: Array) -> Array:
        """Return T theta, d x m. Cost O(d m)."""
        p = len(self.mean)
        out = theta.copy()
        out[:p] *= self.deviation[:, None]
        if self.intercept:
            out[-1] += self.mean @ theta[:p]
        return out

    def transposed(self, v: Array) -> Array:
        """Return T^T v, d x m. Cost O(d m)."""
        p = len(self.mean)
        out = v.copy()
        out[:p] *= self.deviation[:, None]
        if self.intercept:
            out[:p] += self.mean[:, None] * v[-1]
        return out

    def rounding(self, theta: Array) -> float:
        """Return an allowance for rounding in `parameters`, and in the statistics it is by."""
        p = len(self.mean)
        coefficients = (self.deviation * self.amplified)[:, None] * theta[:p]
        shifted = norm(np.abs(self.mean) + self.deviation) * norm(theta[:p])
        return _FEW * EPS * (norm(coefficients) + shifted + norm(theta))

    @property
    def shrinkage(self) -> float:
        """A bound of |T^-1|."""
        across = norm(self.mean / self.deviation) if self.intercept else 0.0
        return float(np.max(1.0 / self.deviation, initial=1.0)) + across

    @property
    def growth(self) -> float:
        """A bound of |T|."""
        across = norm(self.mean) if self.intercept else 0.0
        return float(np.max(self.deviation, initial=1.0)) + across


def published_parameters(
    base: BaseTransformation, answer: LiveAnswer, units: PipelineUnits, stream: Stream
) -> Array:
    """Return the parameters of the pipeline's last step as published, d x m. Cost O(d m).

    A feature that has one and the same value in all live rows, or a category's without a live
    row, has the weight 0: that is its optimum, up to which rounding may have left it.
    """
    theta = units.parameters(stream.published)
    theta[: len(base.constant)][_idle(base, answer)] = 0.0
    return theta


def _idle(base: BaseTransformation, answer: LiveAnswer) -> np.ndarray:
    """Return which features have one value in all live rows (p,).

    A feature that counts as constant may have several, next to each other.
    """
    layout, sums, live = base.layout, answer.sums, answer.live
    idle: np.ndarray = base.constant & (sums.present == 0)  # 0 in base units throughout
    idle[layout.entry_feature[live.shift != 0]] = False
    idle[layout.gap_features[sums.counts[layout.gap_entries] == sums.rows]] = True
    for hot in layout.one_hot:
        own = hot.features
        all_rows = base.constant[own] & (base.centre[own] != 0)  # have the category: 0, too
        idle[own] = (live.present[own] == 0) | base.left_out[own] | all_rows
    return idle


def gradient_bound(
    generation: Generation, stream: Stream, answer: LiveAnswer, units: PipelineUnits
) -> float:
    """Return a bound of the live objective's gradient at theta_exact, of one block.

    What was measured, what rounding had left before (`Stream.residual`), and allowances: for the
    rows in base units and the sums over them, for F, and for the centres of the columns.
    """
    theta = stream.theta_exact
    allowance = answer.sums.allowance(theta) + answer.moved[0].allowance(theta)
    return answer.left + stream.residual + allowance + off_centre(generation, stream, units)


def off_centre(generation: Generation, stream: Stream, units: PipelineUnits) -> float:
    """Return what centres that are rounded leave in the gradient of a penalised intercept.

    The pipeline penalises b + mean.theta, and the engine b: both are the same in columns that are
    centred by their mean. A mean far from 0 is stored to eps of itself, and ``mean`` is the rest. A
    free intercept takes it up.
    """
    weight = float(generation.objective.penalty[-1]) if units.intercept else 0.0
    if weight == 0.0:
        return 0.0
    theta, intercept = stream.theta_exact[:-1], stream.theta_exact[-1]
    along = units.mean @ theta
    return _SLACK * weight * (norm(units.mean) * norm(intercept + along) + norm(along))


def distance_bound(
    base: BaseTransformation,
    generation: Generation,
    stream: Stream,
    answer: LiveAnswer,
    units: PipelineUnits,
) -> float:
    """Return a bound of |T (theta_exact - theta*)| for the live quadratic model.

    The smaller of two arguments (docs/algebra.md). By the ridge: with a free intercept, in the
    coordinates of features centred by their weighted means, the Hessian has blocks of at least the
    ridge and of the sum of curvatures. By the factor: in base units its root is that of A_t, less
    the norm of what has moved in the rows and in the penalty.
    """
    gradient = gradient_bound(generation, stream, answer, units)
    deviation = units.deviation
    roots = np.sqrt(generation.objective.penalty[: len(deviation)])
    penalty_moved = float(np.max(roots * np.abs(deviation - 1.0), initial=0.0))
    root = math.sqrt(max(smallest_eigenvalue(generation, stream), 0.0))
    root -= rows_moved(answer) + penalty_moved
    by_factor = units.growth * gradient / root**2 if root > 0 else math.inf
    return min(by_factor, _by_ridge(base, generation, answer, units, gradient))


def _by_ridge(
    base: BaseTransformation,
    generation: Generation,
    answer: LiveAnswer,
    units: PipelineUnits,
    gradient: float,
) -> float:
    penalty, p = generation.objective.penalty, base.layout.features
    if penalty.min() > 0:  # in the pipeline's units the Hessian is at least that
        return units.shrinkage * gradient / float(penalty.min())
    centre = live_centre(base, answer)
    if centre is None:
        return math.inf
    least = float(units.deviation.min(initial=1.0))
    coefficients = gradient * (1.0 + norm(centre.mean)) / (float(penalty[:p].min()) * least)
    off = norm((units.mean - centre.mean) / units.deviation)
    return math.hypot(coefficients, gradient / centre.total + off * coefficients)


def rows_moved(answer: LiveAnswer) -> float:
    """Return a bound of |S^1/2 N Delta|: what the live values of entries have moved the rows by."""
    paired = answer.moved[0].paired
    return math.sqrt(float(np.max(np.sum(np.abs(paired), axis=1), initial=0.0)))


class Centre(NamedTuple):
    """The live rows' mean, weighted by curvatures, in base units (p,); and their sum."""

    mean: Array
    total: float


def live_centre(base: BaseTransformation, answer: LiveAnswer) -> Centre | None:
    """Return the weighted mean of the live rows; None if no row has a curvature."""
    sums = answer.sums
    total = float(sums.weighted.high[-1])
    if not total > 0:
        return None
    drawn = sums.weighted.high[: base.layout.features].copy()
    np.add.at(drawn, base.layout.entry_feature, answer.live.shift * sums.crossed.at((..., -1)))
    return Centre(drawn / total, total)
