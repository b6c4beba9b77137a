"""A proved bound of a logistic pipeline's error, from sums alone (docs/algebra.md, The remainder).

The live quadratic model continues each row's error from its margin at the fit, m_i = x_i . theta_b,
to that of its live row, x'_i . theta. With t_i = x'_i . theta - m_i, the loss's own gradient at
theta_exact is the quadratic model's, which is nearly 0, plus the sum over live rows of x'_i rem_i,

    rem_i = e_i(m_i + t_i) - e_i(m_i) - s_i t_i,      |rem_i| <= s_i (exp|t_i| - 1 - |t_i|),

because |s'| <= s. In the norm of the quadratic model's Hessian H that sum is at most
phi(tau) tau Q^1/2, phi(tau) = (exp tau - 1 - tau) / tau^2, with tau >= |t_i| for every live row and
Q = sum s_i t_i^2; and Q is known exactly from the sums. No row is read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np

from lethe.engine.deletion.generation import (
    Generation,
    Stream,
    inverse_error,
    smallest_eigenvalue,
)
from lethe.engine.error.certificate import gradient_allowance
from lethe.engine.fit.factor import EPS
from lethe.engine.fit.objective import Array, norm
from lethe.engine.preprocess.answer import LiveAnswer
from lethe.engine.preprocess.extents import unbalanced
from lethe.engine.preprocess.published import (
    PipelineUnits,
    gradient_bound,
    hessian_moved,
    live_centre,
)
from lethe.engine.preprocess.transformation.base import BaseTransformation
from lethe.engine.preprocess.transformation.layout import Layout

_SLACK = 1.0 + 1e-9  # for the rounding of the bound itself
_FEW = 8.0  # roundings in a margin
_STEEPEST = 30.0  # margins that have moved further: e^30 is of no use, and exp stays finite


def logistic_bound(
    base: BaseTransformation,
    generation: Generation,
    stream: Stream,
    answer: LiveAnswer,
    units: PipelineUnits,
) -> float:
    """Return a bound of |T (theta_exact - theta*)|; infinity where none is proved.

    theta* is the minimiser of the live pipeline's own loss. Cost O(q (d + q)).
    """
    off = unbalanced(base.layout, generation.objective.penalty, stream.theta_exact)
    moved = moved_margins(base, generation, stream, answer)
    if not moved.most <= _STEEPEST:
        return math.inf
    gradient = _gradient_bound(generation, stream, answer) + off.gradient
    floors = _floors(base, generation, stream, answer, units)
    nu = min(floor.dual(gradient) for floor in floors) + moved.remainder
    reach = min(floor.reach for floor in floors)
    part = math.exp(moved.most) * reach * nu
    if not part < 1.0:
        return math.inf
    distance = -math.log1p(-part) / reach if reach > 0 else 0.0
    apart = min(floor.published(distance) for floor in floors)
    return _SLACK * (apart + units.growth * off.distance)


def _gradient_bound(generation: Generation, stream: Stream, answer: LiveAnswer) -> float:
    """Return a bound of the quadratic model's gradient; errors at the fit are rounded, too."""
    sums = answer.sums
    rounded = sums.square_size * norm(generation.theta_b) + sums.error_size
    return gradient_bound(stream, answer) + gradient_allowance(rounded)


# -- how far margins have moved ---------------------------------------------------------------


class MovedMargins(NamedTuple):
    """tau, and a bound of Q."""

    most: float
    squares: float

    @property
    def remainder(self) -> float:
        """A bound of the remainder in the norm of H^-1."""
        return excess(self.most) * self.most * math.sqrt(self.squares)


def excess(t: float) -> float:
    """Return phi(t) = (e^t - 1 - t) / t^2 for t >= 0, or a little more."""
    return (math.expm1(t) - t) / t**2 if t > 1e-3 else 0.5 * (1.0 + t)


def moved_margins(
    base: BaseTransformation, generation: Generation, stream: Stream, answer: LiveAnswer
) -> MovedMargins:
    """Bound t_i = x_i . step + n_i . (shift theta), of the largest row and of all together."""
    sums, live, theta = answer.sums, answer.live, stream.theta_exact
    if stream.gradient is None:
        raise AssertionError("the stream is not one of live statistics")
    step, penalty = theta - generation.theta_b, generation.objective.penalty[:, None]
    size, ends = norm(step), norm(theta) + norm(generation.theta_b)
    of = base.layout.entry_feature
    entered = live.shift[:, None] * theta[of]
    # A_t step is the difference of two gradients of the generation's own quadratic model.
    known = stream.gradient - sums.errors.high
    pulled = norm(stream.gradient) + sums.error_size + norm(penalty * theta) + size
    unsure = size * (
        stream.residual
        + gradient_allowance(pulled + norm(penalty * generation.theta_b))
        + gradient_allowance(sums.square_size * ends)
    )
    in_hessian = max(float(np.sum(step * (known - penalty * generation.theta_b))), 0.0) + unsure
    C, pairs = sums.crossed.at(), sums.paired.at() @ entered
    across, paired = float(np.sum(entered * (C @ step))), float(np.sum(entered * pairs))
    sizes = norm(entered) * (norm(C) * size + norm(pairs))
    squares = float(np.sum(step * (known - penalty * theta))) + 2.0 * across + paired
    squares = max(squares, 0.0) + unsure + gradient_allowance(sizes)
    by_length = sums.longest * size
    by_hessian = _longest_dual(generation, stream, answer) * math.sqrt(in_hessian)
    rounded = sums.longest * ends + _most_by_feature(base.layout, live.unit * np.abs(theta[of, 0]))
    most = min(by_length, by_hessian) + _most_by_feature(base.layout, np.abs(entered[:, 0]))
    return MovedMargins(_SLACK * most + _FEW * EPS * rounded, _SLACK * squares)


def _most_by_feature(layout: Layout, values: Array) -> float:
    """Return the sum over features of the largest value of an entry: a row has one in each."""
    most = np.zeros(layout.features)
    np.maximum.at(most, layout.entry_feature, values)
    return float(np.sum(most))


def _longest_dual(generation: Generation, stream: Stream, answer: LiveAnswer) -> float:
    """Return a bound of (x_i^T A_t^-1 x_i)^1/2 over the live rows."""
    sums = answer.sums
    left = smallest_eigenvalue(generation, stream)
    if not left > 0:
        return math.inf
    stretch = 1.0 + inverse_error(generation, stream) / left
    return math.sqrt(stretch * (sums.reach**2 + stream.v_trace * sums.longest**2))


# -- what is at most as steep as the live Hessian -----------------------------------------------


class _Floor(Protocol):
    """A lower bound of H, the live quadratic model's Hessian, over balanced directions."""

    @property
    def reach(self) -> float:
        """A bound of (x'_i^T H^-1 x'_i)^1/2 over the live rows."""

    def dual(self, gradient: float) -> float:
        """Return a bound of |g| in the norm of H^-1, of a gradient of that length."""

    def published(self, distance: float) -> float:
        """Return a bound of |T v|, for v of that length in the norm of H."""


@dataclass(frozen=True, slots=True)
class _ByEigenvalue:
    """H is at least ``root``^2 everywhere, and |T v| is at most ``growth`` / ``root`` |v|_H."""

    root: float
    reach: float
    growth: float

    def dual(self, gradient: float) -> float:
        return gradient / self.root

    def published(self, distance: float) -> float:
        return self.growth * distance / self.root


@dataclass(frozen=True, slots=True)
class _ByRidge:
    """With rows centred by their weighted mean, H is at least lam deviation^2, and S.

    ``root`` is that of the ridge, ``intercept`` that of S, ``least`` the smallest deviation,
    ``centre`` the length of the weighted mean, and ``off`` how far the mean is from it.
    """

    root: float
    intercept: float
    least: float
    centre: float
    off: float
    longest: float

    @property
    def reach(self) -> float:
        return math.hypot(
            (self.longest + self.centre) / (self.root * self.least), 1.0 / self.intercept
        )

    def dual(self, gradient: float) -> float:
        coefficients = gradient * (1.0 + self.centre) / (self.root * self.least)
        return math.hypot(coefficients, gradient / self.intercept)

    def published(self, distance: float) -> float:
        coefficients = distance / self.root
        return math.hypot(coefficients, distance / self.intercept + self.off * coefficients)


def _floors(
    base: BaseTransformation,
    generation: Generation,
    stream: Stream,
    answer: LiveAnswer,
    units: PipelineUnits,
) -> list[_Floor]:
    """Return lower bounds of H: by the ridge, and by the factor where it gives one."""
    penalty, p, deviation = generation.objective.penalty, base.layout.features, units.deviation
    least = float(deviation.min(initial=1.0))
    shifted = np.zeros(p)
    np.maximum.at(shifted, base.layout.entry_feature, np.abs(answer.live.shift))
    entered = norm(shifted)
    longest = answer.sums.longest + entered
    floors: list[_Floor] = []
    if penalty.min() > 0:
        # In the pipeline's units H is at least the ridge, so that T grows it by no more than that.
        root = math.sqrt(float(penalty.min())) / units.shrinkage
        floors.append(_ByEigenvalue(root, longest / root, 1.0 / units.shrinkage))
    elif (centre := live_centre(base, answer)) is not None:
        root = math.sqrt(float(penalty[:p].min()))
        off = norm((units.mean - centre.mean) / deviation)
        intercept = math.sqrt(centre.total)
        floors.append(_ByRidge(root, intercept, least, norm(centre.mean), off, longest))
    over_balanced = replace(generation, smallest=answer.sums.balanced)
    root_t = math.sqrt(max(smallest_eigenvalue(over_balanced, stream), 0.0))
    # H is at least kept^2 A_t: the penalty's part shrinks, and moved rows take something away, as
    # do means that have moved where the intercept is penalised.
    kept = least - (hessian_moved(answer) / root_t if root_t > 0 else math.inf)
    if kept > 0:
        root = kept * root_t
        dual = _longest_dual(generation, stream, answer) / kept + entered / root
        floors.append(_ByEigenvalue(root, min(dual, longest / root), units.growth))
    return floors
