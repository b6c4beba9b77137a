"""The precomputation of one generation: everything that a deletion needs, computed offline.

The paper stores the n x n hat matrix. We store the dual rows w_i = A^-1 x_i, n x d: any block of
the hat matrix is then one small product, H[I, J] = X_I W_J^T S_J (docs/algebra.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

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
from lethe.engine.fit.objective import (
    Array,
    Kind,
    Objective,
    Rows,
    RowsInBlocks,
    lengths,
    over,
)
from lethe.engine.fit.total import total_loss

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
        W = X A^-1, n x d, row i belonging to row i of X; none of rows in blocks.
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
    objective: Objective, rows: RowsInBlocks, start: Array | None = None, *, rounded: bool = False
) -> Precomputation:
    """Fit and precompute. Cost O(n d^2) time, X and W in memory.

    ``rounded`` is as of `engine.fit.fit.fit`. Of rows in blocks no dual row is kept, and after the
    fit there are two passes.

    Raises
    ------
    InvalidData, IllConditioned, NotConverged
        As `engine.fit.fit.fit`.
    """
    fitted = fit(objective, rows, start, rounded=rounded)
    return from_fit(objective, rows, fitted)


def from_fit(objective: Objective, rows: RowsInBlocks, fitted: Fit) -> Precomputation:
    """Add dual rows and the certificate to a fit."""
    theta, factor = fitted.theta, fitted.factor
    W, measured = _measured(objective, rows, theta, factor)
    certificate = _certified(objective, theta, factor, measured, fitted.gradient)
    check_inverse(factor.smallest, measured.dual_error)
    return Precomputation(theta, factor, W, certificate, measured.dual_error, fitted.rounded)


def certify_afresh(objective: Objective, rows: RowsInBlocks, theta: Array) -> Certificate:
    """Return the certificate of any theta (d x m) by the Hessian of these rows at theta itself.

    Cost O(n d^2), that of a precomputation without its fit; of rows in blocks three passes.

    Raises
    ------
    IllConditioned
        That Hessian cannot be factored.
    """
    loss = total_loss(objective, rows)
    factor, gradient = factorise(loss.hessian(theta)), loss.gradient(theta)
    _, measured = _measured(objective, rows, theta, factor)
    return _certified(objective, theta, factor, measured, gradient)


class _Measured(NamedTuple):
    """What the rows say of a fit.

    Attributes
    ----------
    reach
        max over the rows of sqrt(x_i^T A^-1 x_i); 0 of a linear model.
    scale
        `Objective.gradient_scale` at theta.
    dual_error
        That of the dual rows (`dual_error`).
    """

    reach: float
    scale: float
    dual_error: float

    @classmethod
    def of(
        cls, objective: Objective, rows: Rows, theta: Array, factor: Factor, W: Array
    ) -> _Measured:
        """Measure rows whose dual rows are there."""
        reach, scale = _reach(objective, rows.X, W), objective.gradient_scale(rows, theta)
        return cls(reach, scale, dual_error(objective, rows, theta, W, factor.largest))

    @classmethod
    def in_passes(
        cls, objective: Objective, rows: RowsInBlocks, theta: Array, factor: Factor
    ) -> _Measured:
        """Measure rows that are read in blocks, in two passes."""
        z = _directions(objective)
        Az, scale = objective.penalty[:, None] * z, objective.base_scale(theta)
        for product, part in over(rows, partial(_products, objective, theta, z)):
            Az = Az + product
            scale += part
        reach, ratio = 0.0, 0.0
        for far, worst in over(rows, partial(_dual_block, objective, factor, z, Az)):
            reach, ratio = max(reach, far), _larger(ratio, worst)
        return cls(reach, scale, PROBED * ratio + gradient_allowance(factor.largest))


def _measured(
    objective: Objective, rows: RowsInBlocks, theta: Array, factor: Factor
) -> tuple[Array, _Measured]:
    """Return the dual rows of rows in memory, none of others, and what the rows say of a fit."""
    if isinstance(rows, Rows):
        W = dual_rows(factor, rows.X)
        return W, _Measured.of(objective, rows, theta, factor, W)
    return np.empty((0, objective.d)), _Measured.in_passes(objective, rows, theta, factor)


def _products(objective: Objective, theta: Array, z: Array, rows: Rows) -> tuple[Array, float]:
    """Return what rows add to A z, and to what rounding of the gradient is proportional to."""
    along = rows.X @ z
    s = objective.curvature(rows, theta)[:, None]
    return rows.X.T @ (s * along), objective.error_scale(rows, theta)


def _dual_block(
    objective: Objective, factor: Factor, z: Array, Az: Array, rows: Rows
) -> tuple[float, float]:
    """Return the reach of rows, and the largest part of a residual of their dual rows."""
    W = dual_rows(factor, rows.X)
    return _reach(objective, rows.X, W), float(np.max(_ratios(rows.X @ z, W, Az), initial=0.0))


def _reach(objective: Objective, X: Array, W: Array) -> float:
    if objective.kind is Kind.LINEAR:  # not used for a quadratic
        return 0.0
    return float(np.sqrt(np.max(np.einsum("ij,ij->i", X, W), initial=0.0)))


def _certified(
    objective: Objective, theta: Array, factor: Factor, measured: _Measured, gradient: Array
) -> Certificate:
    at = Measured(theta, gradient, measured.scale)
    return certify_at_hessian(objective, factor, at, reach=measured.reach)


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
    for block in _blocks_of(rows):
        ratios[block] = _ratios(along[block], W[block], Az)
    return PROBED * float(np.max(ratios, initial=0.0)) + gradient_allowance(largest)


def _ratios(along: Array, W: Array, Az: Array) -> Array:
    """Return |x_i.z - w_i.A z| / |w_i| of each row, the largest over the directions z."""
    with np.errstate(invalid="ignore"):  # detected in the ratios
        residuals = np.abs(along - W @ Az).max(axis=1)
        dual_lengths, ratios = lengths(W), np.zeros(len(W))
        np.divide(residuals, dual_lengths, out=ratios, where=dual_lengths != 0)
        ratios[(dual_lengths == 0) & (residuals > 0)] = np.inf
    return ratios


def _larger(one: float, other: float) -> float:
    """Return the larger number; unlike max, this keeps a NaN."""
    return float(np.maximum(one, other))


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
    z = _directions(objective)
    s = objective.curvature(rows, theta)[:, None]
    along = np.empty((len(rows), PROBES))
    Az = objective.penalty[:, None] * z
    for block in _blocks_of(rows):
        along[block] = rows.X[block] @ z
        Az += rows.X[block].T @ (s[block] * along[block])
    return z, along, Az


def _directions(objective: Objective) -> Array:
    return np.random.default_rng(0).standard_normal((objective.d, PROBES))


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
