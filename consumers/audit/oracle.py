"""A refit by code that the engine does not use.

Nothing of `engine.fit.fit` or `engine.fit.objective` is used for it. Linear models: QR of
the augmented system [sqrt(w) X; sqrt(penalty)], which never forms X^T X, a block of rows after the
other (sequential TSQR: Demmel, Grigori, Hoemmen and Langou 2012). Logistic models:
``scipy.optimize.minimize`` with loss, gradient and Hessian written here. Both end with Newton steps
whose gradient is summed in extended precision; the length of the last step bounds how far off the
oracle itself may be, and is added to the tolerance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, qr, solve_triangular
from scipy.optimize import minimize
from scipy.special import expit, log_expit

from lethe.engine.errors import NotConverged
from lethe.engine.fit.objective import Array, Kind, Rows, RowsInBlocks, in_memory, norm

_REFINEMENTS = 6
_RESIDUAL = 1e-8  # relative to |theta|: an oracle that is further off is rejected
_EPS = float(np.finfo(np.float64).eps)
_SMALLEST = 1e-150  # theta 0: no relative error
_STACKED = 4096  # rows, at least, that are added to a triangle at once
_EXACT_LIMIT = 400  # d above which the trust region is solved by a Krylov method
_ITERATIONS = 500

Long: TypeAlias = NDArray[np.longdouble]
_StepAt: TypeAlias = Callable[[Array], Array]


@dataclass(frozen=True, slots=True)
class Oracle:
    """A refit: its theta (d x m), how it was computed, and how far off it may be itself."""

    theta: Array
    method: str
    residual: float


def refit(kind: Kind, penalty: Array, rows: RowsInBlocks, noise: Array | None = None) -> Oracle:
    """Return the minimiser over ``rows`` by code that the engine does not use.

    With several classes, each is refitted against the rest. ``noise`` is the linear term of a
    certified model, d x m.

    Raises
    ------
    NotConverged
        The residual is so large that any model would pass.
    """
    if kind is Kind.LINEAR:
        oracle = _linear(penalty, rows, noise)
    else:
        held = in_memory(rows)
        columns = [slice(c, c + 1) for c in range(held.y.shape[1])]
        parts = [
            _logistic(
                penalty,
                Rows(held.X, held.y[:, c], held.weight),
                None if noise is None else noise[:, c],
            )
            for c in columns
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
    for block in rows.blocks():
        z = np.hstack([block.X, block.y]).astype(np.float64)  # of a pipeline, X is longer
        stack.append(np.sqrt(block.weight)[:, None] * z)
        if sum(map(len, stack)) >= max(_STACKED, 3 * stack[0].shape[1]):
            stack = [_triangular(stack)]
    # Last: a small penalty above large rows would lose its digits.
    ridge = np.hstack([np.diag(np.sqrt(penalty)), np.zeros((d, stack[0].shape[1] - d))])
    triangle = _triangular([*stack, ridge])
    return triangle[:d, :d], triangle[:d, d:]


def _triangular(stack: list[Array]) -> Array:
    [R] = qr(np.vstack(stack), mode="r", check_finite=False)
    triangle: Array = R[: R.shape[1]]
    return triangle


def _logistic(penalty: Array, rows: Rows, noise: Array | None) -> Oracle:
    d = len(penalty)
    target, weight = rows.y[:, 0], rows.weight
    tilt = np.zeros(d) if noise is None else noise[:, 0]

    def value(theta: Array) -> float:
        margin = rows.X @ theta
        log_likelihood = target * log_expit(margin) + (1 - target) * log_expit(-margin)
        return float(-weight @ log_likelihood + 0.5 * penalty @ theta**2 + tilt @ theta)

    def gradient(theta: Array) -> Array:
        slope: Array = rows.X.T @ (weight * (expit(rows.X @ theta) - target)) + penalty * theta
        return slope + tilt

    def hessian(theta: Array) -> Array:
        probability = expit(rows.X @ theta)
        curved: Array = (rows.X.T * (weight * probability * (1 - probability))) @ rows.X
        curved[np.diag_indices(d)] += penalty
        return curved

    method = "trust-exact" if d <= _EXACT_LIMIT else "trust-krylov"
    solution = minimize(
        value,
        np.zeros(d),
        jac=gradient,
        hess=hessian,
        method=method,
        options={"gtol": 1e-8 * max(1.0, norm(gradient(np.zeros(d)))), "maxiter": _ITERATIONS},
    )

    def step_at(point: Array) -> Array:
        slope = gradient_of(rows, penalty, point, Kind.LOGISTIC, noise)
        step: Array = cho_solve(cho_factor(hessian(point[:, 0])), slope)
        return step

    theta, residual = _refined(np.asarray(solution.x).reshape(d, 1), step_at)
    return Oracle(theta, f"scipy.optimize {method}", residual)


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
        case Kind.SOFTMAX | Kind.POISSON:
            raise AssertionError("the service keeps none of them")


def gradient_of(
    rows: RowsInBlocks, penalty: Array, theta: Array, kind: Kind, noise: Array | None = None
) -> Array:
    """Return the gradient, summed in extended precision where the machine has it."""
    point: Long = theta.astype(np.longdouble)
    total: Long = penalty.astype(np.longdouble)[:, None] * point
    if noise is not None:
        total = total + noise
    for block in rows.blocks():
        X: Long = block.X.astype(np.longdouble)
        errors = _means(kind, X @ point) - block.y
        total = total + X.T @ (block.weight[:, None] * errors)
    return np.asarray(total, dtype=np.float64)
