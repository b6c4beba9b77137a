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
Every bound adds an allowance for rounding, eps x condition x |theta|.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from engine.factor import EPS, Factor
from engine.objective import Array, Kind, Objective, norm

ROUNDOFF = 4.0  # times eps x condition x |theta|; measured need: below 1 (tests/unit)
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
    """

    bound: float | None
    argument: str


def roundoff_allowance(condition: float, theta: Array) -> float:
    """Return the stated allowance for rounding: `ROUNDOFF` eps condition |theta|."""
    return ROUNDOFF * EPS * condition * norm(theta)


def certify_at_hessian(
    objective: Objective, factor: Factor, gradient: Array, theta: Array, reach: float
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
    theta
        The point, d x m.
    reach
        rho = max over live rows of sqrt(x_i^T H^-1 x_i).

    Notes
    -----
    Cost O(d^2 m).
    """
    rounding = roundoff_allowance(factor.condition, theta)
    newton = factor.solve(gradient)
    if objective.kind is Kind.LINEAR:
        return Certificate(norm(newton) + rounding, "quadratic")
    nu = math.sqrt(max(float((gradient * newton).sum()), 0.0))
    tail = _self_concordant_tail(nu, reach, factor.smallest)
    if tail is not None:
        return Certificate(norm(newton) + tail + rounding, "self-concordant")
    return _strong_convexity(objective, gradient, rounding)


def certify_with_stale_factor(
    objective: Objective,
    *,
    gradient: Array,
    newton: Array,
    theta: Array,
    reach: float,
    margin_change: float,
    smallest: float,
    condition: float,
) -> Certificate:
    """Certify with A_t, the generation's factor and its deletions, in place of H.

    Parameters
    ----------
    objective
        The loss.
    gradient
        Measured gradient g of the live loss at ``theta``, d x m.
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
    condition
        An upper bound of the condition number of A_t, for the rounding allowance.
    """
    rounding = roundoff_allowance(condition, theta)
    if objective.kind is Kind.LINEAR:
        return Certificate(norm(newton) + rounding, "quadratic")
    nu_t = math.sqrt(max(float((gradient * newton).sum()), 0.0))
    if margin_change <= _MARGIN_LIMIT:
        stretch = math.exp(margin_change)
        tail = _self_concordant_tail(
            math.sqrt(stretch) * nu_t, math.sqrt(stretch) * reach, smallest / stretch
        )
        if tail is not None:
            lead = norm(newton) + math.expm1(margin_change) * nu_t / math.sqrt(smallest)
            return Certificate(lead + tail + rounding, "stale-factor")
    return _strong_convexity(objective, gradient, rounding)


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


def _strong_convexity(objective: Objective, gradient: Array, rounding: float) -> Certificate:
    weakest = float(objective.penalty.min())
    if weakest > 0:
        return Certificate(norm(gradient) / weakest + rounding, "strong-convexity")
    return Certificate(None, "none")
