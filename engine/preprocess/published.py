"""From base units to the pipeline's: parameters, and how far they may be from retraining.

The final step of the live pipeline sees (x' - mean) / deviation. Its parameters are, with theta and
b those in base units,

    coef = deviation theta,    intercept = b + mean . theta,

a linear map T, through which distances and bounds go.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from lethe.engine.deletion.generation import Generation, Stream, smallest_eigenvalue
from lethe.engine.error.certificate import gradient_allowance
from lethe.engine.fit.factor import EPS
from lethe.engine.fit.objective import Array, norm
from lethe.engine.preprocess.base import BaseTransformation
from lethe.engine.preprocess.movement import Movement
from lethe.engine.preprocess.statistics import Statistics
from lethe.engine.preprocess.sums import Sums

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

    def rounding(self, theta: Array) -> float:
        """Return an allowance for rounding in `parameters`, and in the statistics it is by."""
        p = len(self.mean)
        coefficients = (self.deviation * self.amplified)[:, None] * theta[:p]
        shifted = norm(np.abs(self.mean) + self.deviation) * norm(theta[:p])
        return _FEW * EPS * (norm(coefficients) + shifted + norm(theta))

    @property
    def growth(self) -> float:
        """A bound of |T|."""
        across = norm(self.mean) if self.intercept else 0.0
        return float(np.max(self.deviation, initial=1.0)) + across


def gradient_bound(stream: Stream, sums: Sums, moved: Movement, left: float, theta: Array) -> float:
    """Return a bound of the live objective's gradient at ``theta``, the stream's theta_exact.

    What was measured, what rounding had left before (`Stream.residual`), and allowances: for the
    rows in base units and the sums over them, and for F.
    """
    return left + stream.residual + sums_allowance(sums, theta) + moved.allowance(theta)


def sums_allowance(sums: Sums, theta: Array) -> float:
    """Return what rounding of rows in base units, and of sums, does to a gradient at ``theta``."""
    return gradient_allowance(sums.square_size * norm(theta) + sums.response_size)


def distance_bound(
    base: BaseTransformation,
    generation: Generation,
    stream: Stream,
    sums: Sums,
    live: Statistics,
    moved: Movement,
    units: PipelineUnits,
    gradient: float,
) -> float:
    """Return a bound of |T (theta - theta*)| from one of the gradient at theta.

    The smaller of two arguments (docs/algebra.md). By the ridge: with a free intercept, in the
    coordinates of features centred by their weighted means, the Hessian has blocks of at least the
    ridge and of the sum of curvatures. By the factor: in base units its root is that of A_t, less
    the norm of what has moved in the rows and in the penalty.
    """
    by_ridge = _by_ridge(base, generation, sums, live, units, gradient)
    rows_moved = math.sqrt(float(np.max(np.sum(np.abs(moved.paired), axis=1), initial=0.0)))
    roots = np.sqrt(generation.objective.penalty[: len(live.deviation)])
    penalty_moved = float(np.max(roots * np.abs(live.deviation - 1.0), initial=0.0))
    root = math.sqrt(max(smallest_eigenvalue(generation, stream), 0.0))
    root -= rows_moved + penalty_moved
    return min(by_ridge, units.growth * gradient / root**2 if root > 0 else math.inf)


def _by_ridge(
    base: BaseTransformation,
    generation: Generation,
    sums: Sums,
    live: Statistics,
    units: PipelineUnits,
    gradient: float,
) -> float:
    penalty, p = generation.objective.penalty, base.layout.features
    ridge = float(penalty[:p].min())
    if penalty.min() > 0:  # then nothing is standardised, and T is the identity
        return gradient / float(penalty.min())
    total = float(sums.weighted.high[-1])
    if not total > 0:
        return math.inf
    drawn = sums.weighted.high[:p].copy()
    np.add.at(drawn, base.layout.entry_feature, live.shift * sums.crossed.high[:, -1])
    centre = drawn / total
    least = float(units.deviation.min(initial=1.0))
    coefficients = gradient * (1.0 + norm(centre)) / (ridge * least)
    off = norm((units.mean - centre) / units.deviation)
    return math.hypot(coefficients, gradient / total + off * coefficients)
