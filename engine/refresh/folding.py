"""Compact: fold the stream's V into factor and dual rows, without refitting.

With T = V L (K x d), A_t = L (I + T^T J T)^-1 L^T. Let I + T^T J T = U U^T with U *upper*
triangular; then A_t = (L U^-T)(L U^-T)^T, and L U^-T is lower triangular: the downdated factor.
Dual rows become W + X V^T J V. V cannot simply be dropped or folded into L alone: stored dual
rows are relative to A_b (docs/algebra.md, Refreshes).
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import solve_triangular

from lethe.engine.deletion.generation import Stream
from lethe.engine.fit.factor import Factor, lower_triangle, with_triangle
from lethe.engine.fit.objective import Array

_BLOCK = 2048


def downdated_factor(factor: Factor, stream: Stream) -> Factor:
    """Return the factor of A_t, with the spectrum of what was made. Cost O(K d^2 + d^3).

    Raises
    ------
    IllConditioned
        It is not positive definite to working precision.
    """
    T = stream.V.array @ factor.L
    grown = np.eye(factor.L.shape[0]) + T.T @ stream.V.signed(T)
    U = lower_triangle(grown[::-1, ::-1])[::-1, ::-1]
    L = solve_triangular(U, factor.L.T, lower=False).T
    return with_triangle(np.tril(L))


def compacted_dual_rows(stream: Stream, X: Array, W: Array) -> Array:
    """Return W + X V^T J V for live rows X. Cost O(n K d)."""
    compacted = np.empty_like(W)
    for start in range(0, len(X), _BLOCK):
        block = slice(start, start + _BLOCK)
        np.add(stream.V.of_rows(X[block]), W[block], out=compacted[block])
    return compacted
