"""Certificates: bounds of |theta - theta*| that a pass over the live rows makes true.

With H the Hessian of the live loss at theta, g its gradient there,

    nu = sqrt(g^T H^-1 g),   mu <= lam_min(H),   rho = max_i sqrt(x_i^T H^-1 x_i),

the logistic loss obeys |s'| <= s (generalised self-concordance; Bach 2010, "Self-concordant
analysis for logistic regression"), so that if rho nu < 1, a = -ln(1 - rho nu) / rho bounds
|theta* - theta|_H, and with r = rho a

    |theta* - theta| <= |H^-1 g| + ((e^r - 1 - r) / r) a / sqrt(mu).

Nothing is asked of the penalty on the intercept. Where only a stale factor A_t is at hand and
margins have moved by at most m since it was made, e^-m A_t <= H <= e^m A_t (design page 1.6).
Where rho nu >= 1, strong convexity gives |g| / min penalty, if every coordinate is penalised.
Every bound adds an allowance for rounding (`roundoff_allowance`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from engine.factor import EPS, Factor
from engine.objective import Array, Kind, Objective, norm

ROUNDOFF = 4.0
"""Times eps in `roundoff_allowance`. Measured need, against an oracle in extended precision over
all families of tests/families.py and up to n = 200,000 sorted rows: 0.45."""

_MARGIN_LIMIT = 30.0  # e^30: beyond it the stale bound is of no use, and exp stays finite


@dataclass(frozen=True, slots=True)
class Certificate:
    """A bound of the distance to the minimiser, in the Euclidean norm over all of theta.

    Attributes
    ----------
    bound
        None where no argument applies: polish first, or measure with a fresh factor.
    argument
        ``quadratic``, ``self-concordant``, ``stale-factor``, ``strong-convexity`` or ``none``.
    estimate
        The length of the Newton step, rounding included: what is left where there is no bound.
    """

    bound: float | None
    argument: str
    estimate: float

    @property
    def left(self) -> float:
        """The bound, or the estimate where there is none."""
        return self.estimate if self.bound is None else self.bound


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


def certify_at_hessian(
    objective: Objective,
    factor: Factor,
    *,
    gradient: Array,
    gradient_scale: float,
    theta: Array,
    reach: float,
) -> Certificate:
    """Certify with the factor of the Hessian at theta itself.

    Parameters
    ----------
    objective
        The loss; for a linear one the bound is exact.
    factor
        Factor of the live Hessian at ``theta``.
    gradient
        Measured gradient of the live loss at ``theta``, d x m.
    gradient_scale
        What its rounding is relative to (`Objective.gradient_scale`).
    theta
        The point, d x m.
    reach
        rho = max over live rows of sqrt(x_i^T H^-1 x_i).

    Notes
    -----
    Cost O(d^2 m).
    """
    rounding = roundoff_allowance(gradient_scale, factor.smallest, theta)
    newton = factor.solve(gradient)
    estimate = norm(newton) + rounding
    if objective.kind is Kind.LINEAR:
        return Certificate(estimate, "quadratic", estimate)
    nu = math.sqrt(max(float((gradient * newton).sum()), 0.0))
    tail = _self_concordant_tail(nu, reach, factor.smallest)
    if tail is not None:
        return Certificate(estimate + tail, "self-concordant", estimate)
    return _strong_convexity(objective, gradient, rounding, estimate)


def certify_with_stale_factor(
    objective: Objective,
    *,
    gradient: Array,
    gradient_scale: float,
    newton: Array,
    theta: Array,
    reach: float,
    margin_change: float,
    smallest: float,
) -> Certificate:
    """Certify with A_t, the generation's factor and its deletions, in place of H.

    Parameters
    ----------
    objective
        The loss.
    gradient
        Measured gradient g of the live loss at ``theta``, d x m.
    gradient_scale
        What its rounding is relative to (`Objective.gradient_scale`).
    newton
        A_t^-1 g, d x m.
    theta
        The point.
    reach
        max over live rows of sqrt(x_i^T A_t^-1 x_i).
    margin_change
        m = max over live rows of |x_i . (theta - theta_b)|, theta_b where A_b was made.
    smallest
        A lower bound of lam_min(A_t).

    Notes
    -----
    Cost O(d m).
    """
    rounding = roundoff_allowance(gradient_scale, smallest, theta)
    estimate = norm(newton) + rounding
    if objective.kind is Kind.LINEAR:
        return Certificate(estimate, "quadratic", estimate)
    nu_t = math.sqrt(max(float((gradient * newton).sum()), 0.0))
    if margin_change <= _MARGIN_LIMIT:
        stretch = math.exp(margin_change)
        tail = _self_concordant_tail(
            math.sqrt(stretch) * nu_t, math.sqrt(stretch) * reach, smallest / stretch
        )
        if tail is not None:
            # Rounding, too, is pulled back by H^-1 <= e^m A_t^-1.
            lead = norm(newton) + math.expm1(margin_change) * nu_t / math.sqrt(smallest)
            return Certificate(lead + tail + stretch * rounding, "stale-factor", estimate)
    return _strong_convexity(objective, gradient, rounding, estimate)


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


def _strong_convexity(
    objective: Objective, gradient: Array, rounding: float, estimate: float
) -> Certificate:
    weakest = float(objective.penalty.min())
    if weakest > 0:
        return Certificate(norm(gradient) / weakest + rounding, "strong-convexity", estimate)
    return Certificate(None, "none", estimate)
