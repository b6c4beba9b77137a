"""The reference: scikit-learn, trained from scratch on the remaining rows.

It shares no code with the engine. Solvers stop some way before the optimum, so one Newton step with
the gradient in extended precision follows. The length of a second such step is the reference's own
rounding error: measured, not assumed.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge

from lethe.engine.fit.objective import Array

_TOLERANCE = 1e-12
_SAFETY = 2.0  # the Newton step is the distance up to a second-order term; this covers it

Vector = NDArray[np.float64] | NDArray[np.longdouble]


@dataclass(frozen=True, slots=True)
class Retrained:
    """Parameters of a model trained from scratch."""

    theta: Array  # (d + 1,) weights, then the intercept
    rounding: float  # how far they may be from the true optimum
    seconds: float  # duration of the training


def retrain(kind: str, X: Array, y: Array, ridge: float) -> Retrained:
    """Train on rows X (n x d, without intercept) and targets y (n,)."""
    begin = time.perf_counter()
    with warnings.catch_warnings():
        # A solver that misses its tolerance warns; `rounding` measures the distance instead.
        warnings.simplefilter("ignore", ConvergenceWarning)
        if kind == "linear":
            model = Ridge(alpha=ridge, solver="svd").fit(X, y)
        else:
            model = LogisticRegression(
                C=1.0 / ridge, solver="newton-cholesky", tol=_TOLERANCE, max_iter=200
            ).fit(X, y)
    seconds = time.perf_counter() - begin
    fitted = np.append(np.ravel(model.coef_), np.ravel(model.intercept_)).astype(np.longdouble)
    theta = (fitted - _newton_step(kind, X, y, ridge, fitted)).astype(np.float64)
    remaining = float(np.linalg.norm(_newton_step(kind, X, y, ridge, theta)))
    last_digit = float(np.finfo(np.float64).eps * np.linalg.norm(theta))
    return Retrained(theta, _SAFETY * remaining + last_digit, seconds)


def _newton_step(kind: str, X: Array, y: Array, ridge: float, theta: Vector) -> Vector:
    """Return A^-1 g at theta, the gradient g in extended precision."""
    K = np.hstack([X, np.ones((len(X), 1))])
    penalty = np.append(np.full(X.shape[1], ridge), 0.0)
    margin = K.astype(np.longdouble) @ theta.astype(np.longdouble)
    mean = margin if kind == "linear" else 1 / (1 + np.exp(-margin))
    s = np.ones(len(X)) if kind == "linear" else (mean * (1 - mean)).astype(np.float64)
    gradient = K.astype(np.longdouble).T @ (mean - y) + penalty * theta
    hessian = K.T @ (s[:, None] * K) + np.diag(penalty)
    step: Vector = np.linalg.solve(hessian, gradient.astype(np.float64))
    return step
