"""The precomputation of one generation: everything that a deletion needs, made offline.

The paper stores the n x n hat matrix. We store the dual rows w_i = A^-1 x_i, n x d: any block of
the hat matrix is then one small product, H[I, J] = X_I W_J^T S_J (design page 1.2).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.certificate import Certificate, certify_at_hessian
from engine.factor import Factor
from engine.fit import Fit, fit
from engine.objective import Array, Objective, Rows

BLOCK_ROWS = 4096  # rows a triangular solve takes at once: keeps the extra memory small


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
    W = dual_rows(fitted.factor, rows.X)
    reach = float(np.sqrt(np.max(np.einsum("ij,ij->i", rows.X, W), initial=0.0)))
    certificate = certify_at_hessian(
        objective,
        fitted.factor,
        gradient=fitted.gradient,
        gradient_scale=objective.gradient_scale(rows, fitted.theta),
        theta=fitted.theta,
        reach=reach,
    )
    return Precomputation(fitted.theta, fitted.factor, W, certificate)


def dual_rows(factor: Factor, X: Array) -> Array:
    """Return W = X A^-1, n x d. Cost O(n d^2)."""
    W = np.empty_like(X)
    for begin in range(0, X.shape[0], BLOCK_ROWS):
        block = slice(begin, begin + BLOCK_ROWS)
        W[block] = factor.solve(X[block].T).T
    return W


def leverages(X: Array, W: Array, curvature: Array) -> Array:
    """Return the diagonal of the hat matrix, h_ii = x_i . w_i s_i, shape (n,). Cost O(n d)."""
    diagonal: Array = np.einsum("ij,ij->i", X, W) * curvature
    return diagonal
