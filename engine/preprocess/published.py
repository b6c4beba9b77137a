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
from lethe.engine.preprocess.input.columns import Standardise
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
    amplified, mean_size
        (p,) what rounding in a deviation, and in a mean, is proportional to.
    intercept
        Whether theta's last row is one.
    """

    mean: Array
    deviation: Array
    amplified: Array
    mean_size: Array
    intercept: bool

    @classmethod
    def of(cls, live: Statistics, *, intercept: bool) -> PipelineUnits:
        """Return the map for ``live`` statistics."""
        return cls(live.mean, live.deviation, live.amplified, live.mean_size, intercept)

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
        size = np.maximum(np.abs(self.mean) + self.deviation, self.mean_size)
        shifted = norm(size) * norm(theta[:p])
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

    A feature that counts as constant may have several, next to each other. One that is other than
    0 throughout has a share in the penalty of the intercept, and a weight.
    """
    layout, sums, live = base.layout, answer.sums, answer.live
    idle: np.ndarray = base.constant & (sums.present == 0)  # 0 in base units throughout
    idle[layout.entry_feature[live.shift != 0]] = False
    missing = sums.counts[layout.gap_entries] == sums.rows
    moved = [_is_moved(one.column.standardise) for one in layout.numeric if one.entry >= 0]
    idle[layout.gap_features[missing & ~np.array(moved, dtype=np.bool_)]] = True
    for hot in layout.one_hot:
        own = hot.features
        all_rows = base.constant[own] & (base.centre[own] != 0)  # have the category: 0, too
        idle[own] = (live.present[own] == 0) | base.left_out[own] | all_rows
    return idle


def _is_moved(standardise: Standardise) -> bool:
    """Return whether a column of one value is other than 0 once it is brought to two numbers."""
    return isinstance(standardise, tuple) and standardise[0] != 0


def gradient_bound(stream: Stream, answer: LiveAnswer) -> float:
    """Return a bound of the live objective's gradient at theta_exact, of one block.

    What was measured, what rounding had left before (`Stream.residual`), and allowances: for the
    rows in base units and the sums over them, and for F.
    """
    theta = stream.theta_exact
    allowance = answer.sums.allowance(theta) + answer.moved[0].allowance(theta)
    return answer.left + stream.residual + allowance


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
    gradient = gradient_bound(stream, answer)
    deviation = units.deviation
    roots = np.sqrt(generation.objective.penalty[: len(deviation)])
    penalty_moved = float(np.max(roots * np.abs(deviation - 1.0), initial=0.0))
    root = math.sqrt(max(smallest_eigenvalue(generation, stream), 0.0))
    root -= hessian_moved(answer) + penalty_moved
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


def hessian_moved(answer: LiveAnswer) -> float:
    """Return how far a root of the Hessian has moved in its norm, but for the ridge of features.

    |S^1/2 N Delta|, what the live values of entries have moved the rows by, and of an intercept
    that is penalised what the means have.
    """
    moved = answer.moved[0]
    rows = float(np.max(np.sum(np.abs(moved.paired), axis=1), initial=0.0))
    return math.hypot(math.sqrt(rows), moved.held.apart)


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
