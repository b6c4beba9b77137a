"""The truth that everything is measured against: retraining, by routes of its own.

No normal equations and no code of the engine: a QR of the system augmented with the ridge, then
refinement with residuals in extended precision, until it changes nothing. Logistic models by
damped Newton steps of the same make. Good to about 1e-18 times the condition number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import qr, solve_triangular
from scipy.special import expit

from lethe.engine.fit.objective import Array
from stream.data import StreamData

Wide: TypeAlias = NDArray[np.longdouble]

_REFINEMENTS = 30
_NEWTON_STEPS = 100
_SETTLED = 1e-8  # of |theta|: a Newton step this short that no longer shrinks is rounding


def _wide(values: Any) -> Wide:
    return np.asarray(values, dtype=np.longdouble)


def _triangle(X: Array, s: Array, ridge: float) -> Array:
    """Return R with R^T R = X^T S X + ridge I, without forming that product."""
    root = np.sqrt(ridge) * np.eye(X.shape[1])
    R: Array = qr(np.vstack([np.sqrt(s)[:, None] * X, root]), mode="r")[0][: X.shape[1]]
    return R


def _solve(R: Array, g: Wide) -> Array:
    solved: Array = solve_triangular(R, solve_triangular(R, g.astype(np.float64), trans="T"))
    return solved


def _retrain_linear(X: Array, y: Array, ridge: float) -> Wide:
    R = _triangle(X, np.ones(len(X)), ridge)
    K, Y = _wide(X), _wide(y)
    theta = np.zeros(X.shape[1], dtype=np.longdouble)
    last = np.inf
    for _ in range(_REFINEMENTS):
        step = _solve(R, (Y - K @ theta) @ K - _wide(ridge) * theta)
        size = float(np.linalg.norm(step))
        if size == 0.0 or size > last / 2:
            break
        theta, last = theta + step, size
    return theta


def _log_loss(X: Array, y: Array, ridge: float, theta: Wide) -> float:
    plain = theta.astype(np.float64)
    margin = X @ plain
    losses = (1 - y) * np.logaddexp(0.0, margin) + y * np.logaddexp(0.0, -margin)
    return float(losses.sum() + 0.5 * ridge * plain @ plain)


def _retrain_logistic(X: Array, y: Array, ridge: float, start: Wide) -> Wide:
    K = _wide(X)
    theta, last = start, np.inf
    for _ in range(_NEWTON_STEPS):
        margin = K @ theta
        up, down = 1 / (1 + np.exp(-margin)), 1 / (1 + np.exp(margin))
        g = ((1 - y) * up - y * down) @ K + _wide(ridge) * theta
        step = _solve(_triangle(X, (up * down).astype(np.float64), ridge), g)
        size = float(np.linalg.norm(step))
        if size == 0.0 or (size > last / 2 and size < _SETTLED * float(np.linalg.norm(theta))):
            break
        scale, here = 1.0, _log_loss(X, y, ridge, theta)
        slack = 1e-13 * max(abs(here), 1.0)
        while _log_loss(X, y, ridge, theta - scale * step) > here + slack:
            scale /= 2
        theta, last = theta - scale * step, size
    return theta


def retrain(data: StreamData, deleted: int, start: Wide | None = None) -> Wide:
    """Return the minimiser without the first ``deleted`` rows of the stream, (d,).

    ``start`` is where Newton's method begins (logistic), by default 0; it only saves steps.
    """
    live = data.live(deleted)
    X, y = data.X[live], data.y[live]
    if data.kind == "linear":
        return _retrain_linear(X, y, data.ridge)
    begin = np.zeros(data.d, dtype=np.longdouble) if start is None else start
    return _retrain_logistic(X, y, data.ridge, begin)


def retrain_at(data: StreamData, marks: Iterable[int]) -> Mapping[int, Wide]:
    """Return the minimiser after each of these numbers of deletions, in rising order."""
    truths: dict[int, Wide] = {}
    last: Wide | None = None
    for mark in marks:
        last = truths[mark] = retrain(data, mark, last)
    return truths


def newton_step(data: StreamData, theta_b: Array, deleted: int) -> Array:
    """Return theta_b after one exact Newton step on the rows that remain, (d,).

    For a linear model that is retraining.
    """
    live = data.live(deleted)
    X, y = data.X[live], data.y[live]
    margin = X @ theta_b
    linear = data.kind == "linear"
    s = np.ones(len(X)) if linear else expit(margin) * expit(-margin)
    error = margin - y if linear else (1 - y) * expit(margin) - y * expit(-margin)
    K, R = _wide(X), _triangle(X, s, data.ridge)
    g = _wide(error) @ K + _wide(data.ridge) * _wide(theta_b)
    step = np.zeros(data.d, dtype=np.longdouble)
    for _ in range(5):
        missing = g - ((_wide(s) * (K @ step)) @ K + _wide(data.ridge) * step)
        step = step + _solve(R, missing)
    return (_wide(theta_b) - step).astype(np.float64)


def projection(U: Array, vector: Array) -> Array:
    """Return the orthogonal projection of ``vector`` (d,) onto the span of the rows U (SVD)."""
    _, size, Vt = np.linalg.svd(U, full_matrices=False)
    basis = Vt[size > 1e-12 * max(float(size.max(initial=0.0)), 1e-300)]
    projected: Array = basis.T @ (basis @ vector)
    return projected


def relative_error(theta: Array, truth: Wide) -> float:
    """Return |theta - truth| / |truth|, subtracted in extended precision."""
    gap = np.linalg.norm((_wide(theta) - truth).astype(np.float64))
    return float(gap / np.linalg.norm(truth.astype(np.float64)))
