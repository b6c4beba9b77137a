"""The precomputation of one generation: everything that a deletion needs, made offline.

The paper stores the n x n hat matrix. We store the dual rows w_i = A^-1 x_i, n x d: any block of
the hat matrix is then one small product, H[I, J] = X_I W_J^T S_J (design page 1.2).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg.blas import dtrmm
from scipy.linalg.lapack import dlauum, dtrtri

from engine.certificate import Certificate, certify_at_hessian
from engine.factor import Factor, factorise
from engine.fit import Fit, fit
from engine.objective import Array, Objective, Rows, mirror_lower

BLOCK_ROWS = 4096  # rows multiplied at once: keeps the extra memory small

INFLATION_LIMIT = 1e3
"""Up to this largest variance inflation factor, A_jj (A^-1)_jj, dual rows are X times A^-1.

One product at the full GEMM rate. Past it they are (X L^-T) L^-1, a tenth slower. Both are scale
invariant and equally near to the true dual rows (measured against extended precision, equal to
triangular solves up to a factor of 4 at any condition); but W A differs from X by eps x condition
in the one product, and by about its square root in the two.
"""


@dataclass(frozen=True, slots=True)
class Precomputation:
    """A fit and its dual rows.

    Attributes
    ----------
    theta
        d x m, the minimiser.
    factor
        Cholesky factor of the Hessian at theta.
    dual_rows
        W = X A^-1, n x d, row i belonging to row i of X.
    certificate
        Bound of the distance from theta to the true minimiser (rounding, for linear models).
    """

    theta: Array
    factor: Factor
    dual_rows: Array
    certificate: Certificate


def precompute(objective: Objective, rows: Rows, start: Array | None = None) -> Precomputation:
    """Fit and precompute. Cost O(n d^2) time, X and W in memory.

    Raises
    ------
    InvalidData, IllConditioned, NotConverged
        As `engine.fit.fit`.
    """
    fitted = fit(objective, rows, start)
    return from_fit(objective, rows, fitted)


def from_fit(objective: Objective, rows: Rows, fitted: Fit) -> Precomputation:
    """Add dual rows and the certificate to a fit."""
    theta, factor = fitted.theta, fitted.factor
    W = dual_rows(factor, rows.X)
    certificate = _certified(objective, rows, theta, factor, W, fitted.gradient)
    return Precomputation(theta, factor, W, certificate)


def certify_afresh(objective: Objective, rows: Rows, theta: Array) -> Certificate:
    """Return the certificate of any theta (d x m) by the Hessian of these rows at theta itself.

    Cost O(n d^2): what a precomputation without its fit costs.

    Raises
    ------
    IllConditioned
        That Hessian cannot be factored.
    """
    factor = factorise(objective.hessian(rows, theta))
    W = dual_rows(factor, rows.X)
    return _certified(objective, rows, theta, factor, W, objective.gradient(rows, theta))


def _certified(
    objective: Objective, rows: Rows, theta: Array, factor: Factor, W: Array, gradient: Array
) -> Certificate:
    return certify_at_hessian(
        objective,
        factor,
        gradient=gradient,
        gradient_scale=objective.gradient_scale(rows, theta),
        theta=theta,
        reach=float(np.sqrt(np.max(np.einsum("ij,ij->i", rows.X, W), initial=0.0))),
    )


def dual_rows(factor: Factor, X: Array) -> Array:
    """Return W = X A^-1, n x d. Cost 2 n d^2 + 2 d^3 / 3.

    Triangular solves would need as many operations, but BLAS runs them at half the rate of
    products or less; so L^-1 is formed once. See `INFLATION_LIMIT` for what that costs in digits.
    """
    triangle, _ = dtrtri(factor.L, lower=True)
    A_jj = np.einsum("ij,ij->i", factor.L, factor.L)
    inflation = A_jj * np.einsum("ij,ij->j", triangle, triangle)
    W = np.empty(X.shape)
    blocks = [slice(begin, begin + BLOCK_ROWS) for begin in range(0, len(X), BLOCK_ROWS)]
    if np.max(inflation, initial=1.0) <= INFLATION_LIMIT:
        inverse, _ = dlauum(triangle, lower=True, overwrite_c=True)
        mirror_lower(inverse)
        for block in blocks:
            np.matmul(X[block], inverse, out=W[block])
        return W
    for block in blocks:
        # A block's transpose has LAPACK's column order: L^-T L^-1 x_i for its columns x_i.
        half = dtrmm(1.0, triangle, X[block].T, lower=True)
        W[block] = dtrmm(1.0, triangle, half, lower=True, trans_a=True, overwrite_b=True).T
    return W


def leverages(X: Array, W: Array, curvature: Array) -> Array:
    """Return the diagonal of the hat matrix, h_ii = x_i . w_i s_i, shape (n,). Cost O(n d)."""
    diagonal: Array = np.einsum("ij,ij->i", X, W) * curvature
    return diagonal
