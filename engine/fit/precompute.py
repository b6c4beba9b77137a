"""The precomputation of one generation: everything that a deletion needs, computed offline.

The paper stores the n x n hat matrix. We store the dual rows w_i = A^-1 x_i, n x d: any block of
the hat matrix is then one small product, H[I, J] = X_I W_J^T S_J (docs/algebra.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg.blas import dtrmm
from scipy.linalg.lapack import dtrtri

from lethe.engine.error.certificate import (
    Certificate,
    Measured,
    certify_at_hessian,
    gradient_allowance,
)
from lethe.engine.errors import IllConditioned
from lethe.engine.fit.factor import Factor, factorise
from lethe.engine.fit.fit import Fit, fit
from lethe.engine.fit.objective import Array, Kind, Objective, Rows, lengths

BLOCK_ROWS = 1024  # rows multiplied at once: keeps the extra memory small
_CACHED = 128  # rows that stay in the cache between two products with few columns

PROBES = 4
"""Random directions that `dual_error` measures along."""

PROBED = 10.0
"""Times the largest part of a residual along them. The residual of the worst row is longer than
that with chance 4e-5: all of `PROBES` normal numbers must be within 0.1."""

SAFE = 2.0
"""Times `dual_error`: the computed lam_min(A) must be at least that, so that half of it is certain.
With less, a bound would be meaningless."""


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
        The error of the dual rows (`dual_error`).
    rounded
        Whether theta is a linear model's minimiser, correctly rounded (`engine.exact`).
    """

    theta: Array
    factor: Factor
    dual_rows: Array
    certificate: Certificate
    dual_error: float
    rounded: bool = False


def precompute(
    objective: Objective, rows: Rows, start: Array | None = None, *, rounded: bool = False
) -> Precomputation:
    """Fit and precompute. Cost O(n d^2) time, X and W in memory.

    ``rounded`` is as of `engine.fit.fit.fit`.

    Raises
    ------
    InvalidData, IllConditioned, NotConverged
        As `engine.fit.fit.fit`.
    """
    fitted = fit(objective, rows, start, rounded=rounded)
    return from_fit(objective, rows, fitted)


def from_fit(objective: Objective, rows: Rows, fitted: Fit) -> Precomputation:
    """Add dual rows and the certificate to a fit."""
    theta, factor = fitted.theta, fitted.factor
    W = dual_rows(factor, rows.X)
    certificate = _certified(objective, rows, theta, factor, W, fitted.gradient)
    off = dual_error(objective, rows, theta, W, factor.largest)
    check_inverse(factor.smallest, off)
    return Precomputation(theta, factor, W, certificate, off, fitted.rounded)


def certify_afresh(objective: Objective, rows: Rows, theta: Array) -> Certificate:
    """Return the certificate of any theta (d x m) by the Hessian of these rows at theta itself.

    Cost O(n d^2), that of a precomputation without its fit.

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
    reach = 0.0  # not used for a quadratic
    if objective.kind is not Kind.LINEAR:
        reach = float(np.sqrt(np.max(np.einsum("ij,ij->i", rows.X, W), initial=0.0)))
    measured = Measured(theta, gradient, objective.gradient_scale(rows, theta))
    return certify_at_hessian(objective, factor, measured, reach=reach)


def dual_rows(factor: Factor, X: Array) -> Array:
    """Return W = X A^-1 = (X L^-T) L^-1, n x d. Cost 2 n d^2 + d^3 / 3.

    Two products with the triangle L^-1 are as near to the true dual rows as two triangular solves
    (`dual_error` measures the same), and BLAS runs them faster. One product with A^-1 is a tenth
    faster still, but leaves |x - A w| of the order of eps |A| |A^-1| |x| in place of eps |A| |w|:
    deleting a row of leverage h magnifies that by 1 / (1 - h).
    """
    triangle, _ = dtrtri(factor.L, lower=True)
    W = np.empty(X.shape)
    for begin in range(0, len(X), BLOCK_ROWS):
        block = slice(begin, begin + BLOCK_ROWS)
        # A block's transpose has LAPACK's column order: L^-T L^-1 x_i for its columns x_i.
        half = dtrmm(1.0, triangle, X[block].T, lower=True)
        W[block] = dtrmm(1.0, triangle, half, lower=True, trans_a=True, overwrite_b=True).T
    return W


def dual_error(objective: Objective, rows: Rows, theta: Array, W: Array, largest: float) -> float:
    """Return a bound of |x_i - A w_i| / |w_i| over the rows, as `PROBES` random directions show it.

    A is the Hessian of these rows at ``theta`` (one block's, d x 1 or of a linear model), by
    products with X alone, so that errors of the factor count, too. Along a direction z the
    residual is x_i.z - w_i.A z. An allowance of 4 eps |A| is added: sums of dual rows
    have that much rounding of their own. Cost O(n d `PROBES`), little more than reading X and W.
    """
    _z, along, Az = _probed(objective, rows, theta)
    ratios = np.zeros(len(rows))
    with np.errstate(invalid="ignore"):  # detected in the ratios
        for block in _blocks_of(rows):
            residuals = np.abs(along[block] - W[block] @ Az).max(axis=1)
            dual_lengths = lengths(W[block])
            np.divide(residuals, dual_lengths, out=ratios[block], where=dual_lengths != 0)
            ratios[block][(dual_lengths == 0) & (residuals > 0)] = np.inf
    return PROBED * float(np.max(ratios, initial=0.0)) + gradient_allowance(largest)


def factor_error(objective: Objective, rows: Rows, theta: Array, factor: Factor) -> float:
    """Return a bound of |A - L L^T| for a factor that was not made from the rows.

    A is as of `dual_error`, and so are the directions: they are not solved for, because a solution
    lies along the small eigenvalues, and would not show an error beside the large ones. Cost
    O(n d `PROBES`).
    """
    z, _, Az = _probed(objective, rows, theta)
    off = lengths((Az - factor.product(z)).T)
    return PROBED * float(np.max(off)) + gradient_allowance(factor.largest)


def _probed(objective: Objective, rows: Rows, theta: Array) -> tuple[Array, Array, Array]:
    """Return `PROBES` random directions z, X z and A z."""
    z = np.random.default_rng(0).standard_normal((objective.d, PROBES))
    s = objective.curvature(rows, theta)[:, None]
    along = np.empty((len(rows), PROBES))
    Az = objective.penalty[:, None] * z
    for block in _blocks_of(rows):
        along[block] = rows.X[block] @ z
        Az += rows.X[block].T @ (s[block] * along[block])
    return z, along, Az


def _blocks_of(rows: Rows) -> list[slice]:
    return [slice(begin, begin + _CACHED) for begin in range(0, len(rows), _CACHED)]


def check_inverse(smallest: float, off: float) -> None:
    """Refuse a Hessian whose inverse is not known accurately enough.

    Parameters
    ----------
    smallest
        A lower bound of its smallest eigenvalue, from its factor.
    off
        The error of its dual rows (`dual_error`).

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
