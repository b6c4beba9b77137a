"""A second opinion on a generation: lam_min(A_t) and the distance to the optimum, from the rows.

A stream's own bookkeeping says that lam_min(A_t) is at least mu and that theta_exact is within a
distance of the optimum. Neither is believed here. With u any vector, A_t u is a pass over the live
rows, and so

    lam_min(A_t) <= u.A_t u / |u|^2,        |A_t^-1 g| >= |g.u| / |A_t u|,

g being the gradient at theta_exact: both refute a claim that is on their wrong side, whatever u is.
The u are those of a block Krylov space of L^-1 A_t L^-T, from g and a random vector: L is the
factor of the generation, which its fit has verified, so that what deletions and insertions have
changed stands out as isolated eigenvalues, the ones that Krylov spaces find first (Parlett 1980,
*The Symmetric Eigenvalue Problem*, chapter 12). V has no part in it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.linalg import eigh, qr, solve_triangular

from lethe.engine.error.certificate import ROUNDOFF, gradient_allowance
from lethe.engine.fit.factor import EPS, Factor
from lethe.engine.fit.objective import Array, Rows, lengths

STEPS = 8
"""Passes over the live rows; each takes a product with two vectors."""

_DEPENDENT = 1e-8  # of a direction's length: what is left of it beside the basis is rounding


class Opinion(NamedTuple):
    """What the rows say.

    Attributes
    ----------
    smallest
        lam_min(A_t) is at most this.
    distance
        |A_t^-1 g| is at least this.
    """

    smallest: float
    distance: float


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
        Passes.

    Notes
    -----
    Cost O(n d + d^2) a step.
    """
    if not np.isfinite(gradient).all():
        return Opinion(math.inf, math.nan)
    d = len(penalty)
    lower, s = factor.L, curvature[:, None]
    start = np.random.default_rng(0).standard_normal((d, 1))
    block = np.hstack([_solved(lower, gradient.sum(axis=1, keepdims=True)), start])
    basis, images = np.empty((d, 0)), np.empty((d, 0))
    for _ in range(steps):
        block = _new_directions(basis, block)
        if not block.shape[1]:
            break
        u = _solved(lower, block, transposed=True)
        block, basis = _solved(lower, _product(rows, s, penalty, u)), np.hstack([basis, block])
        images = np.hstack([images, block])
    chosen = _candidates(lower, basis, images, gradient)
    return _judged(rows, s, penalty, chosen, gradient, scale)


def _product(rows: Rows, s: Array, penalty: Array, u: Array) -> Array:
    product: Array = rows.X.T @ (s * (rows.X @ u)) + penalty[:, None] * u
    return product


def _solved(lower: Array, B: Array, *, transposed: bool = False) -> Array:
    """Return L^-1 B, or L^-T B."""
    solved: Array = solve_triangular(lower, B, lower=True, trans="T" if transposed else "N")
    return solved


def _new_directions(basis: Array, block: Array) -> Array:
    """Return an orthonormal basis of what the block adds to the span of ``basis``."""
    sizes = lengths(block.T)
    fresh = block[:, sizes > 0] / sizes[sizes > 0]
    for _ in range(2):
        fresh = fresh - basis @ (basis.T @ fresh)
    Q, R, _ = qr(fresh, mode="economic", pivoting=True)
    new: Array = Q[:, np.abs(np.diagonal(R)) > _DEPENDENT]
    return new


def _candidates(lower: Array, basis: Array, images: Array, gradient: Array) -> Array:
    """Return vectors of length 1, d x r: Ritz vectors, and A_t^-2 g for each output.

    On the space A_t^-1 is the sum of u u^T / value over the Ritz pairs of L^-1 A_t L^-T. The
    smallest Ritz vector of A_t itself, in Euclidean length, is another direction.
    """
    inner = basis.T @ images
    values, vectors = eigh((inner + inner.T) / 2)
    positive = values > 0
    ritz = _solved(lower, basis @ vectors[:, positive], transposed=True)
    inverse = ritz / values[positive]
    Q, R, order = qr(_solved(lower, basis, transposed=True), mode="economic", pivoting=True)
    rank = int(np.sum(np.abs(np.diagonal(R)) > _DEPENDENT * abs(R[0, 0])))
    products = (Q[:, :rank].T @ (lower @ images[:, order[:rank]])).T
    own = solve_triangular(R[:rank, :rank], products, trans="T").T
    shortest = Q[:, :rank] @ eigh((own + own.T) / 2)[1][:, :1]
    twice = inverse @ (ritz.T @ (inverse @ (ritz.T @ gradient)))
    found = np.hstack([ritz, shortest, twice])
    sizes = lengths(found.T)
    kept = np.isfinite(sizes) & (sizes > 0)
    chosen: Array = found[:, kept] / sizes[kept]
    return chosen


def _judged(
    rows: Rows, s: Array, penalty: Array, u: Array, gradient: Array, scale: float
) -> Opinion:
    """Return what the vectors u, of length 1, refute: one more pass, rounding allowed for."""
    margins = rows.X @ u
    squares = np.sum(s * margins**2, axis=0) + penalty @ u**2
    trace = float(s[:, 0] @ np.einsum("ij,ij->i", rows.X, rows.X)) + float(penalty.max())
    roots = np.sqrt(squares) + ROUNDOFF * EPS * math.sqrt(trace)
    products = rows.X.T @ (s * margins) + penalty[:, None] * u
    along = np.max(np.abs(gradient.T @ u), axis=0, initial=0.0) - gradient_allowance(scale)
    distances = along / (lengths(products.T) + gradient_allowance(trace))
    return Opinion(
        float(np.min(roots, initial=math.inf)) ** 2, float(np.max(distances, initial=0.0))
    )
