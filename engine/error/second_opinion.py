"""A second opinion on a generation: lam_min(A_t) and the distance to the optimum, from the rows.

A stream's own bookkeeping says that lam_min(A_t) is at least mu and that theta_exact is within a
distance of the optimum. Neither is believed here. With g the gradient at theta_exact and A_t u a
pass over the live rows, for whatever vectors u and x

    lam_min(A_t) <= u.A_t u / |u|^2,        |A_t^-1 g| >= |x| - |g - A_t x| / lam_min(A_t),

so that claims can be refuted, and none is refuted that is true. u and x are looked for in a block
Krylov space of L^-1 A_t L^-T, from L^-1 g and a random vector. L is the factor of the generation,
which its fit has verified: what deletions and insertions have changed stands out as isolated
eigenvalues, which Krylov spaces find first (Parlett 1980, *The Symmetric Eigenvalue Problem*,
chapter 12). V has no part in it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh, qr, solve_triangular, svd

from lethe.engine.error.certificate import ROUNDOFF, gradient_allowance
from lethe.engine.fit.factor import EPS, Factor
from lethe.engine.fit.objective import Array, Rows, lengths, norm

STEPS = 6
"""Passes over the live rows; one more judges what was found."""

_OUTPUTS = 3  # directions of the gradient that the space begins with
_JUDGED = 2  # Ritz vectors whose u.A_t u is measured once more
_DEPENDENT = 1e-8  # of a direction's length: what is left of it beside the basis is rounding


@dataclass(frozen=True, slots=True)
class Opinion:
    """What the rows say.

    Attributes
    ----------
    smallest
        lam_min(A_t) is at most this.
    length, unsolved
        |x| and a bound of |g - A_t x|.
    """

    smallest: float
    length: float
    unsolved: float

    def distance(self, smallest: float) -> float:
        """Return what |A_t^-1 g| is at least, if lam_min(A_t) is at least ``smallest``."""
        return self.length - self.unsolved / smallest if smallest > 0 else 0.0


def second_opinion(
    rows: Rows,
    curvature: Array,
    penalty: Array,
    factor: Factor,
    gradient: Array,
    scale: float,
    *,
    steps: int = STEPS,
) -> Opinion:
    """Ask the rows.

    Parameters
    ----------
    rows, curvature
        The n live rows, and the curvature of each, (n,).
    penalty
        (d,), the diagonal of the penalty.
    factor
        L with L L^T = A_b, one block's.
    gradient, scale
        The gradient at theta_exact by the quadratic model, d x m, and what its rounding is
        proportional to (`Objective.gradient_scale`).
    steps
        Passes, each with a few vectors.

    Notes
    -----
    Cost O(n d + d^2) a step.
    """
    if not np.isfinite(gradient).all():
        return Opinion(math.inf, math.nan, 0.0)
    lower, s, d = factor.L, curvature[:, None], len(penalty)
    start = np.random.default_rng(0).standard_normal((d, 1))
    block = np.hstack([_directions(_solved(lower, gradient)), start])
    basis, images = np.empty((d, 0)), np.empty((d, 0))
    for _ in range(steps):
        block = _new_directions(basis, block)
        if not block.shape[1]:
            break
        u = _solved(lower, block, transposed=True)
        block, basis = _solved(lower, _product(rows, s, penalty, u)), np.hstack([basis, block])
        images = np.hstack([images, block])
    ritz, values = _ritz(lower, basis, images)
    x = ritz @ ((ritz.T @ gradient) / values[:, None])
    sizes = lengths(ritz.T)
    softest = np.argsort(values / sizes**2)[:_JUDGED]
    u = np.hstack([ritz[:, softest] / sizes[softest], _shortest(lower, basis, images)])
    return _judged(rows, s, penalty, u, x, gradient, scale)


def _product(rows: Rows, s: Array, penalty: Array, u: Array) -> Array:
    """Return A_t u, column by column: BLAS is slower with a few columns than with one."""
    products = [rows.X.T @ (s[:, 0] * (rows.X @ column)) for column in u.T]
    return np.column_stack(products) + penalty[:, None] * u


def _solved(lower: Array, B: Array, *, transposed: bool = False) -> Array:
    """Return L^-1 B, or L^-T B."""
    solved: Array = solve_triangular(lower, B, lower=True, trans="T" if transposed else "N")
    return solved


def _directions(B: Array) -> Array:
    """Return the directions in which columns are longest, at most `_OUTPUTS`."""
    left: Array = svd(B, full_matrices=False)[0]
    return left[:, :_OUTPUTS] if norm(B) > 0 else B[:, :0]


def _new_directions(basis: Array, block: Array) -> Array:
    """Return an orthonormal basis of what the block adds to the span of ``basis``."""
    sizes = lengths(block.T)
    fresh = block[:, sizes > 0] / sizes[sizes > 0]
    for _ in range(2):
        fresh = fresh - basis @ (basis.T @ fresh)
    Q, R, _ = qr(fresh, mode="economic", pivoting=True)
    new: Array = Q[:, np.abs(np.diagonal(R)) > _DEPENDENT]
    return new


def _ritz(lower: Array, basis: Array, images: Array) -> tuple[Array, Array]:
    """Return u with u_i.A_t u_j = value_i for i = j and 0 otherwise, d x r, and the values, (r,).

    On the space A_t^-1 is then the sum of u u^T / value.
    """
    inner = basis.T @ images
    values, vectors = eigh((inner + inner.T) / 2)
    kept = values > 0
    return _solved(lower, basis @ vectors[:, kept], transposed=True), values[kept]


def _shortest(lower: Array, basis: Array, images: Array) -> Array:
    """Return the vector u of length 1 in the space for which u.A_t u is least, d x 1."""
    Q, R, order = qr(_solved(lower, basis, transposed=True), mode="economic", pivoting=True)
    rank = int(np.sum(np.abs(np.diagonal(R)) > _DEPENDENT * abs(R[0, 0])))
    Q, R = Q[:, :rank], R[:rank, :rank]
    inner = solve_triangular(R, (Q.T @ (lower @ images[:, order[:rank]])).T, trans="T")
    least: Array = Q @ eigh((inner + inner.T) / 2)[1][:, :1]
    return least


def _judged(
    rows: Rows, s: Array, penalty: Array, u: Array, x: Array, gradient: Array, scale: float
) -> Opinion:
    """Return what u (of length 1, d x r) and x (d x m) refute: one more pass, rounding allowed for.

    u.A_t u is a sum of squares: its root is wrong by no more than its terms are.
    """
    margins = np.column_stack([rows.X @ column for column in np.hstack([u, x]).T])
    of_u = margins[:, : u.shape[1]]
    squares = np.sum(s * of_u**2, axis=0) + penalty @ u**2
    trace = float(s[:, 0] @ np.einsum("ij,ij->i", rows.X, rows.X)) + float(penalty.max())
    roots = np.sqrt(squares) + ROUNDOFF * EPS * math.sqrt(trace)
    pulled = [rows.X.T @ (s[:, 0] * column) for column in margins[:, u.shape[1] :].T]
    missing = gradient - np.column_stack(pulled) - penalty[:, None] * x
    unsolved = norm(missing) + gradient_allowance(scale) + gradient_allowance(trace) * norm(x)
    return Opinion(float(np.min(roots)) ** 2, norm(x), unsolved)
