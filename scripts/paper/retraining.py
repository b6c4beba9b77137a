"""Retraining: the oracle of all tables. NumPy and SciPy only.

Linear: normal equations, then refinement with the gradient taken from the data themselves: the
answer rests on the live rows, not on how the Gram matrix was put together.

Logistic: Newton's method on the ridge-regularised cross-entropy; the Newton equations are solved
by conjugate gradients with an earlier Hessian's Cholesky factor as preconditioner, so that fitting
nearly the same data again costs a few passes. What it leaves does not rest on trust in that: the
loss is strongly convex, |theta - theta*| <= |gradient| / ridge, and the run prints this bound.
tests/unit compares it with scikit-learn.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.special import expit

from paper.data import Array

LINEAR_RIDGE = 1e-4
"""Ridge strength of the linear experiments: the default of the authors' program; the paper prints
none. Without any, the feature injection test has no unique answer after the deletion."""

LOGISTIC_TOLERANCE = 1e-10
"""Of |gradient| / ridge, relative to |theta|."""

_NEWTON_STEPS = 100
_INNER_STEPS = 25  # of conjugate gradients; a factor that needs more is made anew
_FORCING = 1e-3
_ARMIJO = 1e-4
_RESOLVED = 1e-12  # relative decrease below which the loss does not judge a step


class Inverse:
    """A^-1 of a positive definite A, as two triangular solves in place of a d x d matrix."""

    def __init__(self, A: Array) -> None:
        self._factor = cho_factor(A, lower=True, check_finite=False)

    def __matmul__(self, right: Array) -> Array:
        """Return A^-1 right. Cost O(d^2) a column."""
        solved: Array = cho_solve(self._factor, right, check_finite=False)
        return solved


class LinearFit(NamedTuple):
    """A ridge model: theta (d,), and the inverse of its Hessian."""

    theta: Array
    inverse: Inverse


def linear_gradient(
    X: Array, y: Array, theta: Array, ridge: float, live: Array | None = None
) -> Array:
    """Return grad L at theta; ``live`` (n,) holds 0 for rows that are left out. Cost O(n d)."""
    error = X @ theta - y
    if live is not None:
        error = error * live
    whole: Array = X.T @ error + ridge * theta
    return whole


def retrain(
    X: Array, y: Array, ridge: float, gram: Array | None = None, live: Array | None = None
) -> LinearFit:
    """Return the minimiser of sum (x.theta - y)^2 / 2 + ridge |theta|^2 / 2 over live rows.

    Parameters
    ----------
    gram
        X^T X over the live rows, if it is known.
    """
    if gram is None:
        rows = X if live is None else X[live > 0]
        gram = rows.T @ rows
    A = gram.copy()
    A[np.diag_indices_from(A)] += ridge
    inverse = Inverse(A)
    theta = inverse @ (X.T @ (y if live is None else y * live))
    slope = linear_gradient(X, y, theta, ridge, live)
    return LinearFit(theta - inverse @ slope, inverse)


def residual(margin: Array, y: Array) -> Array:
    """Return y - h without cancellation: rows that are fitted well keep their digits."""
    left: Array = y * expit(-margin) - (1 - y) * expit(margin)
    return left


def curvature(margin: Array) -> Array:
    """Return h (1 - h)."""
    weights: Array = expit(margin) * expit(-margin)
    return weights


def logistic_hessian(X: Array, theta: Array, ridge: float) -> Array:
    """Return X^T S X + ridge I, as the paper's appendix has it. Cost O(n d^2)."""
    scaled = X * np.sqrt(curvature(X @ theta))[:, None]
    A: Array = scaled.T @ scaled
    A[np.diag_indices_from(A)] += ridge
    return A


def logistic_gradient(X: Array, y: Array, theta: Array, ridge: float) -> Array:
    """Return X^T (h - y) + ridge theta."""
    slope: Array = ridge * theta - X.T @ residual(X @ theta, y)
    return slope


def logistic_loss(X: Array, y: Array, theta: Array, ridge: float) -> float:
    """Return the cross-entropy (with the minus sign that the appendix leaves out) and penalty."""
    margin = X @ theta
    losses = (1 - y) * np.logaddexp(0, margin) + y * np.logaddexp(0, -margin)
    return float(losses.sum() + ridge / 2 * (theta @ theta))


class LogisticRetraining:
    """Fits one data set after another, each from the last answer and with the last factor."""

    def __init__(self, ridge: float) -> None:
        self.ridge = ridge
        self._theta: Array | None = None
        self._inverse: Inverse | None = None

    def fit(self, X: Array, y: Array) -> Array:
        """Return the minimiser, shape (d,). Raises ArithmeticError if it is not reached."""
        theta: Array = np.zeros(X.shape[1]) if self._theta is None else self._theta
        for _ in range(_NEWTON_STEPS):
            slope = logistic_gradient(X, y, theta, self.ridge)
            left = float(np.linalg.norm(slope)) / self.ridge
            if left <= LOGISTIC_TOLERANCE * max(float(np.linalg.norm(theta)), 1.0):
                self._theta = theta
                return theta
            theta = self._damped(X, y, theta, slope, self._newton_step(X, theta, slope))
        raise ArithmeticError(f"retraining left {left:.1e} after {_NEWTON_STEPS} Newton steps")

    def _newton_step(self, X: Array, theta: Array, slope: Array) -> Array:
        if self._inverse is not None:
            step = self._conjugate_gradients(X, theta, slope, self._inverse)
            if step is not None:
                return step
        self._inverse = Inverse(logistic_hessian(X, theta, self.ridge))
        return self._inverse @ slope

    def _conjugate_gradients(
        self, X: Array, theta: Array, slope: Array, earlier: Inverse
    ) -> Array | None:
        """Return H^-1 slope to a relative `_FORCING`; None if ``earlier`` is of no use for it."""
        weights = curvature(X @ theta)
        step, rest = np.zeros(len(slope)), slope.copy()
        z = earlier @ rest
        direction, size = z, float(rest @ z)
        enough = _FORCING**2 * size
        for _ in range(_INNER_STEPS):
            curved = X.T @ (weights * (X @ direction)) + self.ridge * direction
            length = size / float(direction @ curved)
            step += length * direction
            rest -= length * curved
            z = earlier @ rest
            before, size = size, float(rest @ z)
            if size <= enough:
                return step
            direction = z + size / before * direction
        return None

    def _damped(self, X: Array, y: Array, theta: Array, slope: Array, step: Array) -> Array:
        value, gain = logistic_loss(X, y, theta, self.ridge), float(slope @ step)
        if gain <= _RESOLVED * value:
            return theta - step
        size = 1.0
        while logistic_loss(X, y, theta - size * step, self.ridge) > value - _ARMIJO * size * gain:
            size /= 2
        return theta - size * step
