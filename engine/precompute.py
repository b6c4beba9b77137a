"""The precomputation of one generation: everything that a deletion needs, made offline.

The paper stores the n x n hat matrix. We store the dual rows w_i = A^-1 x_i, n x d: any block of
the hat matrix is then one small product, H[I, J] = X_I W_J^T S_J (design page 1.2).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg.blas import dtrsm

from engine.certificate import Certificate, certify_at_hessian
from engine.errors import IllConditioned
from engine.factor import Factor, factorise
from engine.fit import Fit, fit
from engine.objective import Array, Objective, Rows

BLOCK_ROWS = 4096  # rows multiplied at once: keeps the extra memory small

PROBES = 8
"""Random directions that `dual_error` measures along."""

PROBED = 4.0
"""Times the largest part of a residual along them: a row's residual is longer than that with
chance 2e-6, as all 8 normal numbers must then be below 1/4."""

SAFE = 2.0
"""Times `dual_error`: what is known of lam_min(A) must be at least that, so that half of it is
certain. With less a bound would say nothing."""


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
    dual_error
        What the dual rows are off by (`dual_error`).
    """

    theta: Array
    factor: Factor
    dual_rows: Array
    certificate: Certificate
    dual_error: float


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
    off = dual_error(objective, rows, theta, W)
    check_inverse(factor.smallest, off)
    return Precomputation(theta, factor, W, certificate, off)


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
    """Return W = X A^-1, n x d, by two triangular solves. Cost 2 n d^2.

    A solve is backward stable: |x - A w| is of the order of eps |A| |w| whatever the condition of
    A. A product with A^-1 leaves eps |A| |A^-1| |x|, which deleting a row of leverage h magnifies
    by 1 / (1 - h).
    """
    W = np.empty(X.shape)
    for begin in range(0, len(X), BLOCK_ROWS):
        block = slice(begin, begin + BLOCK_ROWS)
        # A block's transpose has LAPACK's column order: L^-T L^-1 x_i for its columns x_i.
        half = dtrsm(1.0, factor.L, X[block].T, lower=True)
        W[block] = dtrsm(1.0, factor.L, half, lower=True, trans_a=True, overwrite_b=True).T
    return W


def dual_error(objective: Objective, rows: Rows, theta: Array, W: Array) -> float:
    """Return a bound of |x_i - A w_i| / |w_i| over the rows, as `PROBES` random directions show it.

    A is the Hessian of these rows at ``theta``, by products with X alone: whatever is wrong with
    the factor counts, too. The part of the residual along a random direction z is x_i.z - w_i.A z.
    Cost O(n d `PROBES`).
    """
    z = np.random.default_rng(0).standard_normal((objective.d, PROBES))
    s = objective.curvature(rows, theta)[:, None]
    along = rows.X @ z
    Az = objective.penalty[:, None] * z
    for begin in range(0, len(rows), BLOCK_ROWS):
        block = slice(begin, begin + BLOCK_ROWS)
        Az = Az + rows.X[block].T @ (s[block] * along[block])
    off = np.abs(along - W @ Az).max(axis=1, initial=0.0)
    lengths = np.sqrt(np.einsum("ij,ij->i", W, W))
    worst = np.divide(off, lengths, out=np.zeros_like(off), where=lengths > 0)
    return PROBED * float(worst.max(initial=0.0))


def check_inverse(smallest: float, off: float) -> None:
    """Refuse a Hessian of whose inverse too little is known.

    Parameters
    ----------
    smallest
        A lower bound of its smallest eigenvalue, as its factor has it.
    off
        What its dual rows are off by (`dual_error`).

    Raises
    ------
    IllConditioned
        Less than `SAFE` times ``off`` is left.
    """
    if not smallest >= SAFE * off:
        raise IllConditioned(
            f"the Hessian's smallest eigenvalue is {smallest:.1e}, and rounding hides up to "
            f"{off:.1e} of it; raise the ridge strength or rescale the features"
        )


def leverages(X: Array, W: Array, curvature: Array) -> Array:
    """Return the diagonal of the hat matrix, h_ii = x_i . w_i s_i, shape (n,). Cost O(n d)."""
    diagonal: Array = np.einsum("ij,ij->i", X, W) * curvature
    return diagonal
