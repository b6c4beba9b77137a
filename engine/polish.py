"""Polish: bring theta back to the optimum of the live rows without a new factor.

Newton-CG on the live loss. Hessian-vector products take one pass over the rows each and never a
d x d matrix; the stale factor preconditions, A_t^-1 v = L^-T L^-1 v + V^T (V v). A plain step
with the frozen factor stalls on nearly separable data (design page 1.5).
Equivalent, but for the preconditioner: ``scipy.optimize.minimize(method="trust-ncg")``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from engine.certificate import Certificate, certify_with_stale_factor
from engine.factor import EPS, Factor
from engine.objective import Array, Objective, Rows, norm

PASS_LIMIT = 60
"""Passes over the live rows; a rebuild costs about d / 2 of them."""

_ARMIJO = 1e-4
_BACKTRACKS = 40
_FORCING = 0.1  # first inner tolerance; it tightens with the gradient (Eisenstat, Walker 1996)
_BLOCK = 2048

Operator = Callable[[Array], Array]


@dataclass(frozen=True, slots=True)
class Polish:
    """The outcome of `polish`.

    Attributes
    ----------
    theta
        d x 1, the polished point.
    certificate
        Bound of its distance to the minimiser over the live rows.
    passes
        Passes over the live rows, gradients and Hessian products alike.
    """

    theta: Array
    certificate: Certificate
    passes: int


def stale_inverse(factor: Factor, V: Array) -> Operator:
    """Return v -> A_t^-1 v for v of shape d x m. Each call costs O(d^2 + K d)."""
    return lambda v: factor.solve(v) + V.T @ (V @ v)


def polish(
    objective: Objective,
    rows: Rows,
    W: Array,
    *,
    factor: Factor,
    V: Array,
    theta: Array,
    theta_b: Array,
    target: float,
    limit: int = PASS_LIMIT,
    on_pass: Callable[[int], None] = lambda _: None,
) -> Polish:
    """Minimise the live loss from ``theta`` until the certificate is at most ``target``.

    Where margins have moved too far for a certificate with the stale factor, and the intercept
    is not penalised, no bound can be had here: then it stops at a Newton step no longer than
    ``target``, whose length is the certificate's estimate (what is left is shorter still).

    Parameters
    ----------
    objective
        Logistic; a linear model's theta_exact needs no polish.
    rows, W
        The n live rows and their dual rows relative to A_b (for the certificate's reach).
    factor, V
        A_t^-1 = (L L^T)^-1 + V^T V.
    theta, theta_b
        Where to start, and where the factor's curvatures were taken; d x 1.
    target
        Absolute bound to reach.
    limit
        Passes at most. The best point so far is returned when it is used up.
    on_pass
        Called with the number of passes so far, for progress.

    Notes
    -----
    Cost O(n d) a pass, O(n K d) once for the certificate's reach.
    """
    inverse = stale_inverse(factor, V)
    reach = _reach(rows.X, W, V)
    smallest = 1.0 / (1.0 / factor.smallest + _spectral_norm(V))
    passes, length = 0, math.inf
    value = objective.value(rows, theta)
    while True:
        gradient = objective.gradient(rows, theta)
        passes += 1
        on_pass(passes)
        certificate = certify_with_stale_factor(
            objective,
            gradient=gradient,
            gradient_scale=objective.gradient_scale(rows, theta),
            newton=inverse(gradient),
            theta=theta,
            reach=reach,
            margin_change=float(np.max(np.abs(rows.X @ (theta - theta_b)))),
            smallest=smallest,
        )
        if certificate.bound is None:
            certificate = replace(certificate, estimate=min(length, norm(theta)))
        if passes >= limit or certificate.left <= target:
            return Polish(theta, certificate, passes)
        step, used = _newton_cg(objective, rows, theta, gradient, inverse, limit - passes)
        passes += used
        on_pass(passes)
        moved, value, used = _line_search(objective, rows, theta, value, gradient, step)
        passes += used
        if moved is None:
            return Polish(theta, certificate, passes)
        length = norm(moved - theta)
        theta = moved


def _newton_cg(
    objective: Objective,
    rows: Rows,
    theta: Array,
    gradient: Array,
    inverse: Operator,
    limit: int,
) -> tuple[Array, int]:
    """Solve H step = gradient by preconditioned CG. Returns the step and the passes used."""
    s = objective.curvature(rows, theta)[:, None]

    def product(v: Array) -> Array:
        return rows.X.T @ (s * (rows.X @ v)) + objective.penalty[:, None] * v

    residual = gradient.copy()
    z = inverse(residual)
    direction = z.copy()
    step = np.zeros_like(gradient)
    rz = float(np.sum(residual * z))
    first = rz
    tolerance = min(_FORCING, math.sqrt(math.sqrt(max(rz, 0.0)))) ** 2
    used = 0
    while used < max(limit, 1) and rz > max(tolerance * first, EPS**2 * first) and rz > 0:
        curved = product(direction)
        used += 1
        alpha = rz / float(np.sum(direction * curved))
        step += alpha * direction
        residual -= alpha * curved
        z = inverse(residual)
        rz, previous = float(np.sum(residual * z)), rz
        direction = z + (rz / previous) * direction
    return step, used


def _line_search(
    objective: Objective, rows: Rows, theta: Array, value: float, gradient: Array, step: Array
) -> tuple[Array | None, float, int]:
    """Return the point reached, its value and the passes used; None when nothing is left."""
    slope = float(np.sum(gradient * step))
    size = 1.0
    for used in range(1, _BACKTRACKS + 1):
        moved = theta - size * step
        trial = objective.value(rows, moved)
        if trial <= value - _ARMIJO * size * slope:
            return moved, trial, used
        if slope <= 64 * EPS * abs(value):
            # The decrease is below what the value resolves: judge by the gradient instead.
            lower = norm(objective.gradient(rows, moved)) < norm(gradient)
            return (moved if lower else None), trial, used + 1
        size /= 2
    return None, value, _BACKTRACKS


def _reach(X: Array, W: Array, V: Array) -> float:
    """Return max_i sqrt(x_i^T A_t^-1 x_i) over the rows, in blocks."""
    largest = 0.0
    for start in range(0, X.shape[0], _BLOCK):
        x, w = X[start : start + _BLOCK], W[start : start + _BLOCK]
        reach = np.einsum("ij,ij->i", x, w) + np.sum((x @ V.T) ** 2, axis=1)
        largest = max(largest, float(reach.max()))
    return math.sqrt(max(largest, 0.0))


def _spectral_norm(V: Array) -> float:
    """Return |V V^T|, exactly (K x K eigenvalues), or 0 for K = 0."""
    if V.shape[0] == 0:
        return 0.0
    gram = V @ V.T if V.shape[0] <= V.shape[1] else V.T @ V
    return float(np.linalg.eigvalsh(gram)[-1])
