"""Certificates: bounds of |theta - theta*| that a pass over the live rows proves.

With H the Hessian of the live loss at theta, g its gradient there,

    nu = sqrt(g^T H^-1 g),   mu <= lam_min(H),   rho = max_i sqrt(x_i^T H^-1 x_i),

the logistic and the Poisson loss obey |s'| <= s (generalised self-concordance; Bach 2010,
"Self-concordant analysis for logistic regression"), so that if rho nu < 1,
a = -ln(1 - rho nu) / rho bounds |theta* - theta|_H, and with r = rho a

    |theta* - theta| <= |H^-1 g| + ((e^r - 1 - r) / r) a / sqrt(mu).

The intercept need not be penalised. Where only a stale factor A_t is available and margins have
moved by at most m since it was made, e^-m A_t <= H <= e^m A_t (docs/error.md).
Where a system H x = g was solved in part, its residual replaces the factor
(`certify_with_residual`). Where rho nu >= 1, strong convexity gives |g| / min penalty, if every
coordinate is penalised.
Every bound adds an allowance for rounding (`roundoff_allowance`). The proofs are in docs/error.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np

from lethe.engine.errors import UNSTATED, IllConditioned
from lethe.engine.fit.factor import EPS, Factor
from lethe.engine.fit.objective import Array, Kind, Objective, Rows, RowsInBlocks, norm

ROUNDOFF = 4.0
"""Times eps in `roundoff_allowance`. Measured need, against an oracle in extended precision over
all families of tests/support/families.py and up to n = 200,000 sorted rows: 0.45."""

_MARGIN_LIMIT = 30.0  # e^30: beyond it the stale bound is useless; exp stays finite


@dataclass(frozen=True, slots=True)
class Certificate:
    """A bound of the distance to the minimiser, in the Euclidean norm over all of theta.

    Attributes
    ----------
    bound
        None if no argument applies: polish first, or measure with a fresh factor.
    argument
        ``quadratic``, ``self-concordant``, ``stale-factor``, ``solved``, ``strong-convexity`` or
        ``none``.
    estimate
        The length of the Newton step, rounding included: the error left if there is no bound.
    residual
        A bound of |g|, the length of the live loss's gradient at the point: as it was measured, and
        `gradient_allowance`. It bounds no distance; but what rounding and deletions do to it is
        known (`engine.deletion.stream`).
    """

    bound: float | None
    argument: str
    estimate: float
    residual: float

    def __post_init__(self) -> None:
        """Refuse values that are not finite, which later comparisons would not reveal.

        Raises
        ------
        IllConditioned
            An error cannot be stated.
        """
        if not math.isfinite(self.estimate if self.bound is None else self.estimate + self.bound):
            raise IllConditioned(UNSTATED)

    @property
    def left(self) -> float:
        """The bound, or the estimate if there is none."""
        return self.estimate if self.bound is None else self.bound


def gradient_allowance(gradient_scale: float) -> float:
    """Return what rounding may have done to a measured gradient: `ROUNDOFF` eps gradient_scale."""
    return ROUNDOFF * EPS * gradient_scale


def roundoff_allowance(gradient_scale: float, smallest: float, theta: Array) -> float:
    """Return the stated allowance: `ROUNDOFF` eps (gradient_scale / smallest + |theta|).

    A gradient that is wrong by eps x scale moves the minimiser by at most that over the smallest
    eigenvalue; storing theta adds eps |theta|.

    Parameters
    ----------
    gradient_scale
        What the rounding of the gradient is relative to (`Objective.gradient_scale`).
    smallest
        A lower bound of the smallest eigenvalue of the Hessian.
    theta
        The point, d x m.
    """
    return ROUNDOFF * EPS * (gradient_scale / smallest + norm(theta))


@dataclass(frozen=True, slots=True)
class Measured:
    """What a pass over the live rows measured.

    Attributes
    ----------
    theta
        The point, d x m.
    gradient
        The gradient g of the live loss there, d x m.
    scale
        What its rounding is relative to (`Objective.gradient_scale`).
    """

    theta: Array
    gradient: Array
    scale: float

    @classmethod
    def at(cls, objective: Objective, rows: RowsInBlocks, theta: Array) -> Measured:
        """Measure. Cost O(n d m)."""
        if isinstance(rows, Rows):
            gradient = objective.gradient(rows, theta)
            return cls(theta, gradient, objective.gradient_scale(rows, theta))
        gradient, scale = objective.base_gradient(theta), objective.base_scale(theta)
        for added, size in rows.each(partial(_gradient_of_rows, objective, theta)):
            gradient, scale = gradient + added, scale + size
        return cls(theta, gradient, scale)

    @property
    def residual(self) -> float:
        """A bound of |g|: as it was measured, and `gradient_allowance`."""
        return norm(self.gradient) + gradient_allowance(self.scale)

    def rounding(self, smallest: float) -> float:
        """Return `roundoff_allowance` for a Hessian whose least eigenvalue is at least that."""
        return roundoff_allowance(self.scale, smallest, self.theta)


def _gradient_of_rows(objective: Objective, theta: Array, rows: Rows) -> tuple[Array, float]:
    """Return what rows add to the gradient, and to what its rounding is relative to."""
    return objective.of_rows.gradient(rows, theta), objective.error_scale(rows, theta)


def certify_at_hessian(
    objective: Objective, factor: Factor, measured: Measured, *, reach: float
) -> Certificate:
    """Certify with the factor of the Hessian at theta itself.

    Parameters
    ----------
    objective
        The loss; for a linear one the bound is exact.
    factor
        Factor of the live Hessian at the point.
    measured
        The point and its gradient.
    reach
        rho = max over live rows of sqrt(x_i^T H^-1 x_i).

    Notes
    -----
    Cost O(d^2 m).
    """
    residual, gradient = measured.residual, measured.gradient
    newton = factor.solve(gradient)
    estimate = norm(newton) + measured.rounding(factor.smallest)
    if objective.kind is Kind.LINEAR:
        return Certificate(estimate, "quadratic", estimate, residual)
    nu = math.sqrt(max(float((gradient * newton).sum()), 0.0))
    tail = _self_concordant_tail(nu, reach, factor.smallest)
    if tail is not None:
        return Certificate(estimate + tail, "self-concordant", estimate, residual)
    return _strong_convexity(objective, residual, estimate)


def certify_by_residual(measured: Measured, smallest: float) -> Certificate:
    """Certify a linear model by |g| / mu. Cost O(d m).

    |H^-1 g| is shorter (`certify_at_hessian`), but does not cover later deletions: g stays when
    rows leave, and H gets smaller.
    """
    residual = measured.residual
    bound = residual / smallest
    return Certificate(bound, "quadratic", bound, residual)


def certify_with_stale_factor(
    objective: Objective,
    measured: Measured,
    *,
    newton: Array,
    reach: float,
    margin_change: float,
    smallest: float,
    off: float = 0.0,
) -> Certificate:
    """Certify with A_t, the generation's factor and its deletions, in place of H.

    Parameters
    ----------
    objective
        The loss.
    measured
        The point and its gradient.
    newton
        A_t^-1 g, d x m.
    reach
        max over live rows of sqrt(x_i^T A_t^-1 x_i).
    margin_change
        m = max over live rows of |x_i . (theta - theta_b)|, theta_b where A_b was made.
    smallest
        A lower bound of lam_min(A_t).
    off
        A bound of |P - A_t^-1|, if ``newton`` was computed as P g.

    Notes
    -----
    Cost O(d m).
    """
    residual, rounding = measured.residual, measured.rounding(smallest)
    gradient = norm(measured.gradient)
    step = norm(newton) + off * gradient
    estimate = step + rounding
    along = max(float((measured.gradient * newton).sum()), 0.0)
    nu_t = math.sqrt(along + off * gradient * gradient)
    if margin_change <= _MARGIN_LIMIT:
        stretch = math.exp(margin_change)
        tail = _self_concordant_tail(
            math.sqrt(stretch) * nu_t, math.sqrt(stretch) * reach, smallest / stretch
        )
        if tail is not None:
            # Rounding, too, is pulled back by H^-1 <= e^m A_t^-1.
            lead = step + math.expm1(margin_change) * nu_t / math.sqrt(smallest)
            bound = lead + tail + stretch * rounding
            return Certificate(bound, "stale-factor", estimate, residual)
    return _strong_convexity(objective, residual, estimate)


@dataclass(frozen=True, slots=True)
class HessianFloor:
    """A matrix K <= H that needs no factor, because its inverse is known in closed form.

    With every coordinate penalised, K = min penalty I. With a free intercept (the last coordinate,
    constant 1) and curvatures s at theta, S = sum s_i and z = (sum s_i x_i) / S, Jensen gives
    X^T S X >= S z z^T, so K = ridge diag(1, .., 1, 0) + S z z^T.

    Attributes
    ----------
    ridge
        Smallest penalty of the penalised coordinates.
    total, centre
        S, and z without its last entry 1; None where every coordinate is penalised.
    longest
        Largest length of a row.
    """

    ridge: float
    total: float
    centre: Array | None
    longest: float

    @property
    def smallest(self) -> float:
        """Return lam_min(K): that of a 2 x 2 matrix, times 1 - 1e-9 for its rounding. O(d)."""
        if self.centre is None:
            return self.ridge
        tt = float(self.centre @ self.centre)
        trace = self.ridge + self.total * (tt + 1.0)
        if not 0.0 < trace < math.inf:
            return 0.0
        # The determinant, over the square of the trace: neither is inside of float64 by itself.
        part = self.ridge / trace * (self.total / trace)
        return (1 - 1e-9) * 2 * part * trace / (1.0 + math.sqrt(max(1.0 - 4 * part, 0.0)))

    @property
    def reach(self) -> float:
        """Return a bound of max_i sqrt(x_i^T K^-1 x_i). O(d)."""
        if self.centre is None:
            return self.longest / math.sqrt(self.ridge)
        if not (self.ridge > 0 and self.total > 0):
            return math.inf
        distance = self.longest + norm(self.centre)
        return math.hypot(distance / math.sqrt(self.ridge), 1.0 / math.sqrt(self.total))

    def energy(self, r: Array) -> float:
        """Return r^T K^-1 r for r of shape d x 1. O(d)."""
        if self.centre is None:
            return float(np.sum(r * r)) / self.ridge
        last = float(r[-1, 0])
        centred = r[:-1, 0] - last * self.centre
        return float(centred @ centred) / self.ridge + last * last / self.total


def hessian_floor(objective: Objective, drawn: Array, total: float, longest: float) -> HessianFloor:
    """Return K for live rows whose curvatures s at theta are known. Cost O(d).

    The last coordinate may be free, if its column is constant 1; no other may.

    Parameters
    ----------
    objective
        The loss.
    drawn, total
        X^T s, (d,), and sum s_i; not used if every coordinate is penalised.
    longest
        Largest length of a row.
    """
    if objective.penalty.min() > 0:
        return HessianFloor(float(objective.penalty.min()), 0.0, None, longest)
    ridge = float(objective.penalty[:-1].min()) if objective.d > 1 else 0.0
    centre = drawn[:-1] / total if total > 0 else np.zeros(objective.d - 1)
    return HessianFloor(ridge, total, centre, longest)


def certify_with_residual(
    objective: Objective,
    measured: Measured,
    *,
    step: Array,
    unsolved: Array,
    energy: float,
    reach: float,
    smallest: float,
) -> Certificate:
    """Certify with a system H step = gradient that conjugate gradients solved in part.

    Parameters
    ----------
    objective
        The loss.
    measured
        The point and its gradient, d x 1.
    step, unsolved
        Any x, and r = g - H x, d x 1.
    energy
        An upper bound of r^T H^-1 r.
    reach, smallest
        An upper bound of rho and a lower bound of lam_min(H).

    Notes
    -----
    H^-1 g = x + H^-1 r, so |H^-1 g| <= |x| + sqrt(energy / smallest), and nu^2 = x.g + x.r +
    r^T H^-1 r. Cost O(d).
    """
    residual = measured.residual
    left = math.sqrt(energy / smallest)
    estimate = norm(step) + left + measured.rounding(smallest)
    nu = math.sqrt(max(float((step * (measured.gradient + unsolved)).sum()), 0.0) + energy)
    tail = _self_concordant_tail(nu, reach, smallest)
    if tail is not None:
        return Certificate(estimate + tail, "solved", estimate, residual)
    return _strong_convexity(objective, residual, estimate)


def _self_concordant_tail(nu: float, rho: float, mu: float) -> float | None:
    """Return ((e^r - 1 - r) / r) a / sqrt(mu), or None where rho nu >= 1."""
    if rho * nu >= 1.0:
        return None
    if rho * nu == 0.0:
        return 0.0
    a = -math.log1p(-rho * nu) / rho
    r = rho * a
    remainder = r / 2 * (1 + r / 3) * (1 + r * r) if r < 1e-4 else (math.expm1(r) - r) / r
    return remainder * a / math.sqrt(mu)


def _strong_convexity(objective: Objective, residual: float, estimate: float) -> Certificate:
    weakest = float(objective.penalty.min())
    if weakest > 0:
        return Certificate(residual / weakest, "strong-convexity", estimate, residual)
    return Certificate(None, "none", estimate, residual)
