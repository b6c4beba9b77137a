"""A refit by code that the engine does not use.

Nothing of `engine.fit.fit` or `engine.fit.objective` is used for it. Linear models: QR of
the augmented system [sqrt(w) X; sqrt(penalty)], which never forms X^T X, of each block of rows
and then of the triangles (TSQR: Demmel, Grigori, Hoemmen and Langou 2012). All other models:
``scipy.optimize.minimize`` with loss, gradient and Hessian written here. All end with
Newton steps whose gradient is summed in extended precision; the length of the last step bounds how
far off the oracle itself may be, and is added to the tolerance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, qr, solve_triangular
from scipy.optimize import minimize
from scipy.special import expit, log_expit, log_softmax

from lethe.engine.errors import NotConverged
from lethe.engine.fit.objective import Array, Kind, Rows, RowsInBlocks, norm
from lethe.engine.refresh.blockwise import rows_in_block

_REFINEMENTS = 6
_RESIDUAL = 1e-8  # relative to |theta|: an oracle that is further off is rejected
_EPS = float(np.finfo(np.float64).eps)
_SMALLEST = 1e-150  # theta 0: no relative error
_STACKED = 4096  # rows, at least, that are added to a triangle at once
_EXACT_LIMIT = 400  # d above which the trust region is solved by a Krylov method
_ITERATIONS = 500

Long: TypeAlias = NDArray[np.longdouble]
_StepAt: TypeAlias = Callable[[Array], Array]
_Kernel: TypeAlias = Callable[[Array, Rows], tuple[float, Array, Array]]


@dataclass(frozen=True, slots=True)
class Oracle:
    """A refit: its theta (d x m), how it was computed, and how far off it may be itself."""

    theta: Array
    method: str
    residual: float


def refit(kind: Kind, penalty: Array, rows: RowsInBlocks, noise: Array | None = None) -> Oracle:
    """Return the minimiser over ``rows`` by code that the engine does not use.

    With several classes, each is refitted against the rest, or all as one softmax. ``noise`` is
    the linear term of a certified model, d x m.

    Raises
    ------
    NotConverged
        The residual is so large that any model would pass.
    """
    if kind is Kind.LINEAR:
        oracle = _linear(penalty, rows, noise)
    elif kind is Kind.SOFTMAX:
        oracle = _coupled(penalty, rows)
    else:
        h = rows.outputs
        parts = [
            _optimised(
                kind, penalty, rows_in_block(rows, c, h), None if noise is None else noise[:, c]
            )
            for c in range(h)
        ]
        theta = np.hstack([part.theta for part in parts])
        residual = norm(np.array([part.residual for part in parts]))
        oracle = Oracle(theta, parts[0].method, residual)
    if not oracle.residual <= _RESIDUAL * norm(oracle.theta) + _SMALLEST:
        raise NotConverged(
            f"the independent refit ({oracle.method}) has not converged ({oracle.residual:.1e} is "
            "left), so it cannot judge the model; raise the ridge strength or rescale the features"
        )
    return oracle


def _linear(penalty: Array, rows: RowsInBlocks, noise: Array | None) -> Oracle:
    R, right = _triangle(penalty, rows)
    theta: Array = solve_triangular(R, right)
    if noise is not None:
        theta = theta - solve_triangular(R, solve_triangular(R, noise, trans="T"))

    def step_at(point: Array) -> Array:
        slope = gradient_of(rows, penalty, point, Kind.LINEAR, noise)
        step: Array = solve_triangular(R, solve_triangular(R, slope, trans="T"))
        return step

    theta, residual = _refined(theta, step_at)
    return Oracle(theta, "QR of the augmented system", residual)


def _triangle(penalty: Array, rows: RowsInBlocks) -> tuple[Array, Array]:
    """Return R and Q^T y of the augmented system. Cost O(n d^2); memory O(d^2)."""
    d = len(penalty)
    stack: list[Array] = []
    for part in rows.each(_triangle_of):
        stack.append(part)
        if sum(map(len, stack)) >= max(_STACKED, 3 * part.shape[1]):
            stack = [_triangular(stack)]
    # Last: a small penalty above large rows would lose its digits.
    ridge = np.hstack([np.diag(np.sqrt(penalty)), np.zeros((d, stack[0].shape[1] - d))])
    triangle = _triangular([*stack, ridge])
    return triangle[:d, :d], triangle[:d, d:]


def _triangle_of(block: Rows) -> Array:
    z = np.hstack([block.X, block.y]).astype(np.float64)  # of a pipeline, X is longer
    return _triangular([np.sqrt(block.weight)[:, None] * z])


def _triangular(stack: list[Array]) -> Array:
    [R] = qr(np.vstack(stack), mode="r", check_finite=False)
    triangle: Array = R[: R.shape[1]].copy()  # R has a row for each of the block
    return triangle


class _LogLoss:
    """The penalised loss of one vector theta, with gradient and Hessian; one pass."""

    def __init__(self, kernel: _Kernel, penalty: Array, rows: RowsInBlocks, tilt: Array) -> None:
        self._kernel = kernel
        self._penalty = penalty
        self._rows = rows
        self._tilt = tilt
        self._theta = np.full(len(penalty), np.nan)
        self._sums = 0.0, tilt, np.empty((0, 0))

    def value(self, theta: Array) -> float:
        log_likelihood, _, _ = self._at(theta)
        return float(-log_likelihood + 0.5 * self._penalty @ theta**2 + self._tilt @ theta)

    def gradient(self, theta: Array) -> Array:
        _, slope, _ = self._at(theta)
        return slope + self._penalty * theta + self._tilt

    def hessian(self, theta: Array) -> Array:
        _, _, curved = self._at(theta)
        return curved + np.diag(self._penalty)

    def _at(self, theta: Array) -> tuple[float, Array, Array]:
        if not np.array_equal(theta, self._theta):
            value, slope, curved = 0.0, np.zeros(len(theta)), np.zeros((len(theta), len(theta)))
            for likely, part, bent in self._rows.each(partial(self._kernel, theta)):
                value, slope, curved = value + likely, slope + part, curved + bent
            self._theta, self._sums = theta.copy(), (value, slope, curved)
        return self._sums


def _log_likelihood(theta: Array, rows: Rows) -> tuple[float, Array, Array]:
    """Return the log-likelihood of rows, and gradient and Hessian of its negative."""
    margin, target, weight = rows.X @ theta, rows.y[:, 0], rows.weight
    probability = expit(margin)
    likely = target * log_expit(margin) + (1 - target) * log_expit(-margin)
    curved: Array = (rows.X.T * (weight * probability * (1 - probability))) @ rows.X
    return float(weight @ likely), rows.X.T @ (weight * (probability - target)), curved


def _log_likelihood_of_counts(theta: Array, rows: Rows) -> tuple[float, Array, Array]:
    """Return the same of counts, up to what they alone add; infinite where a mean overflows."""
    margin, target, weight = rows.X @ theta, rows.y[:, 0], rows.weight
    with np.errstate(over="ignore", invalid="ignore"):
        mean = np.exp(margin)
        curved: Array = (rows.X.T * (weight * mean)) @ rows.X
        return (
            float(weight @ (target * margin - mean)),
            rows.X.T @ (weight * (mean - target)),
            curved,
        )


def _multinomial_log_likelihood(
    basis: Array, flat: Array, rows: Rows
) -> tuple[float, Array, Array]:
    """Return the same of one softmax, in the d (C - 1) coordinates B of theta = B basis^T.

    Columns of ``basis`` (C x (C - 1)) are orthonormal, and each of sum 0: so is theta's every row.
    """
    (d, classes), target = (rows.X.shape[1], len(basis)), rows.y
    margin = rows.X @ (flat.reshape(d, classes - 1) @ basis.T)
    logs = log_softmax(margin, axis=1)
    probability, weight = np.exp(logs), rows.weight
    likely = float(weight @ np.sum(target * logs, axis=1))
    pulled = rows.X.T @ (weight[:, None] * (probability - target)) @ basis
    bent = np.einsum("ic,cj,ck->ijk", probability, basis, basis)
    inner = probability @ basis
    bent -= inner[:, :, None] * inner[:, None, :]
    size = classes - 1
    curved = np.empty((d, size, d, size))
    for j in range(size):
        for k in range(size):
            curved[:, j, :, k] = (rows.X.T * (weight * bent[:, j, k])) @ rows.X
    return likely, pulled.ravel(), curved.reshape(d * size, d * size)


def _coupled(penalty: Array, rows: RowsInBlocks) -> Oracle:
    """Refit classes that share one softmax, among the theta whose rows have sum 0.

    The minimiser is one of them (docs/algebra.md, Softmax), and among them it is the only one.
    """
    classes = rows.outputs
    basis = np.linalg.svd(np.eye(classes) - 1.0 / classes)[0][:, : classes - 1]
    d, size = len(penalty), classes - 1
    weights = np.repeat(penalty, size)
    kernel = partial(_multinomial_log_likelihood, basis)
    loss = _LogLoss(kernel, weights, rows, np.zeros(d * size))
    point, method = _minimised(loss, d * size)

    def step_at(theta: Array) -> Array:
        slope = gradient_of(rows, penalty, theta, Kind.SOFTMAX) @ basis
        curved = loss.hessian((theta @ basis).ravel())
        step: Array = cho_solve(cho_factor(curved), slope.ravel()).reshape(d, size) @ basis.T
        return step

    theta, residual = _refined(point.reshape(d, size) @ basis.T, step_at)
    return Oracle(theta, method, residual)


def _minimised(loss: _LogLoss, d: int) -> tuple[Array, str]:
    """Return the minimiser as SciPy finds it, (d,), and by what."""
    method = "trust-exact" if d <= _EXACT_LIMIT else "trust-krylov"
    solution = minimize(
        loss.value,
        np.zeros(d),
        jac=loss.gradient,
        hess=loss.hessian,
        method=method,
        options={"gtol": 1e-8 * max(1.0, norm(loss.gradient(np.zeros(d)))), "maxiter": _ITERATIONS},
    )
    return np.asarray(solution.x), f"scipy.optimize {method}"


def _optimised(kind: Kind, penalty: Array, rows: RowsInBlocks, noise: Array | None) -> Oracle:
    d = len(penalty)
    kernel = _log_likelihood if kind is Kind.LOGISTIC else _log_likelihood_of_counts
    loss = _LogLoss(kernel, penalty, rows, np.zeros(d) if noise is None else noise)
    point, method = _minimised(loss, d)

    def step_at(point: Array) -> Array:
        tilt = None if noise is None else noise[:, None]
        slope = gradient_of(rows, penalty, point, kind, tilt)
        step: Array = cho_solve(cho_factor(loss.hessian(point[:, 0])), slope)
        return step

    theta, residual = _refined(point.reshape(d, 1), step_at)
    return Oracle(theta, method, residual)


def _refined(theta: Array, step_at: _StepAt) -> tuple[Array, float]:
    """Take Newton steps while they shrink; return the point and how far off it may be."""
    step = step_at(theta)
    for _ in range(_REFINEMENTS):
        if norm(step) <= _EPS * norm(theta):
            break
        moved = theta - step
        following = step_at(moved)
        if not norm(following) < norm(step):
            break
        theta, step = moved, following
    # Storing theta rounds each coordinate by half a unit in the last place.
    return theta, norm(step) + _EPS * norm(theta)


def _means(kind: Kind, margin: Long) -> Long:
    """Return what a model expects of rows with these margins."""
    match kind:
        case Kind.LINEAR:
            return margin
        case Kind.LOGISTIC:
            return np.asarray(1 / (1 + np.exp(-margin)))
        case Kind.POISSON:
            return np.exp(margin)
        case Kind.SOFTMAX:
            odds = np.exp(margin - margin.max(axis=1, keepdims=True))
            return np.asarray(odds / odds.sum(axis=1, keepdims=True))


def gradient_of(
    rows: RowsInBlocks, penalty: Array, theta: Array, kind: Kind, noise: Array | None = None
) -> Array:
    """Return the gradient, summed in extended precision where the machine has it."""
    point: Long = theta.astype(np.longdouble)
    total: Long = penalty.astype(np.longdouble)[:, None] * point
    if noise is not None:
        total = total + noise
    for part in rows.each(partial(_slope, kind=kind, point=point)):
        total = total + part
    return np.asarray(total, dtype=np.float64)


def _slope(block: Rows, kind: Kind, point: Long) -> Long:
    X: Long = block.X.astype(np.longdouble)
    errors = _means(kind, X @ point) - block.y
    return np.asarray(X.T @ (block.weight[:, None] * errors))
