"""Fitting from scratch: the minimiser of the objective, and the Hessian's factor at it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lethe.engine.errors import IllConditioned, InvalidData, NotConverged
from lethe.engine.exact.running import Solution
from lethe.engine.exact.sums import Sums
from lethe.engine.fit.factor import EPS, Factor, factorise, lower_triangle, solve_with
from lethe.engine.fit.magnitude import check_data, check_fitted
from lethe.engine.fit.multinomial import unvec, vec
from lethe.engine.fit.objective import Array, Kind, Objective, Rows, RowsInBlocks, norm
from lethe.engine.fit.total import TotalLoss, total_loss

_REFINEMENTS = 2  # of the linear solution; the third changes nothing at condition 1e10
_SETTLED = 1e-9  # a correction of this relative size leaves its square: far below rounding
_NEWTON_LIMIT = 200
_RESOLVED = 64.0  # times eps: a decrease below this part of the value is rounding
_LAST_STEPS = 5
_ARMIJO = 1e-4
_BACKTRACKS = 50


@dataclass(frozen=True, slots=True)
class Fit:
    """A fitted model: ``theta`` (d x m), the factor of the Hessian at it, and its gradient.

    ``rounded`` tells whether theta is a linear model's minimiser, correctly rounded.
    """

    theta: Array
    factor: Factor
    gradient: Array
    rounded: bool = False


def fit(
    objective: Objective, rows: RowsInBlocks, start: Array | None = None, *, rounded: bool = False
) -> Fit:
    """Minimise the objective over ``rows``.

    Parameters
    ----------
    objective, rows
        The loss and the penalty, and n rows.
    start
        Where Newton's method begins.
    rounded
        Whether a linear model's theta is to be correctly rounded (`engine.exact`), if it can be:
        not of rows in blocks.

    Linear models: the normal equations (X^T X + lam I) theta = X^T Y (the paper prints XY) by
    Cholesky, with iterative refinement. Other models: Newton's method with backtracking
    (Murphy 2012, cited in the paper's section 4.2). Cost O(n d^2) per Newton step: of rows in
    blocks a pass each, and one at the start.

    Raises
    ------
    InvalidData
        No rows, a number that is not finite, or numbers past the limits of `engine.fit.magnitude`.
    IllConditioned
        The Hessian cannot be factored.
    NotConverged
        Newton's method did not reach its tolerance.
    """
    if len(rows) == 0:
        raise InvalidData("there is no row to fit; give at least one")
    pull = check_data(objective, rows)
    loss, zero = total_loss(objective, rows), np.zeros((objective.d, rows.outputs))
    with np.errstate(over="ignore", invalid="ignore"):  # overflow is detected below
        if objective.kind is Kind.LINEAR:
            fitted = _fit_linear(loss, zero)
            if rounded and isinstance(rows, Rows):
                fitted = _rounded(objective, rows, fitted)
        else:
            fitted = _fit_by_newton(loss, zero, start)
    check_fitted(fitted.factor, fitted.theta, pull)
    return fitted


def _fit_linear(loss: TotalLoss, zero: Array) -> Fit:
    factor = factorise(loss.hessian(zero))
    theta = -factor.solve(loss.gradient(zero))
    gradient = loss.gradient(theta)
    for _ in range(_REFINEMENTS):
        step = factor.solve(gradient)
        theta = theta - step
        gradient = loss.gradient(theta)
        if norm(step) <= _SETTLED * norm(theta):
            break
    return Fit(theta, factor, gradient)


def _rounded(objective: Objective, rows: Rows, fitted: Fit) -> Fit:
    """Return the fit with its theta correctly rounded, or as it is where nothing is proved."""
    if objective.linear is not None:
        return fitted
    try:
        found = Solution.of(Sums.of(rows), objective.penalty).minimiser
    except (InvalidData, IllConditioned):
        return fitted
    if not found.rounded:
        return fitted
    return Fit(found.theta, fitted.factor, objective.gradient(rows, found.theta), rounded=True)


def _fit_by_newton(loss: TotalLoss, zero: Array, start: Array | None) -> Fit:
    theta, value = zero, loss.value(zero)
    if start is not None and (warm := loss.value(start)) < value:
        theta, value = start.copy(), warm
    for _ in range(_NEWTON_LIMIT):
        gradient, step = _newton_step(loss, theta)
        slope = float(np.sum(gradient * step))
        if slope <= _RESOLVED * EPS * max(abs(value), 1.0):
            return _last_steps(loss, theta, step)
        size = 1.0
        for _ in range(_BACKTRACKS):
            moved = theta - size * step
            trial = loss.value(moved)
            if trial <= value - _ARMIJO * size * slope:
                break
            size /= 2
        else:
            return _last_steps(loss, theta, step)
        theta, value = moved, trial
    raise NotConverged(
        f"Newton's method did not converge in {_NEWTON_LIMIT} steps; raise the ridge strength"
    )


def _newton_step(loss: TotalLoss, theta: Array) -> tuple[Array, Array]:
    """Return the gradient and A^-1 times it, d x m: one output, or all classes of a softmax."""
    gradient = loss.gradient(theta)
    step = solve_with(lower_triangle(loss.hessian(theta)), vec(gradient))
    return gradient, unvec(step, len(theta))


def _last_steps(loss: TotalLoss, theta: Array, step: Array) -> Fit:
    """Take full Newton steps, as long as they shrink: the value no longer resolves progress."""
    for _ in range(_LAST_STEPS):
        moved = theta - step
        _, next_step = _newton_step(loss, moved)
        if not norm(next_step) < norm(step) / 2:
            break
        theta, step = moved, next_step
    factor = factorise(loss.hessian(theta))
    return Fit(theta, factor, loss.gradient(theta))
