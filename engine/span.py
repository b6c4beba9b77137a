"""Orthonormal bases of row spans: block Gram-Schmidt, done twice, rank-revealing.

The paper's PseudoInv (Algorithm 4) runs plain Gram-Schmidt and divides by zero on duplicated
rows. Here each new block is projected off the basis, then factored by QR with column pivoting,
which drops what is dependent; all of it twice, which is enough for orthogonality to rounding
(Giraud, Langou, Rozloznik 2005).
"""

from __future__ import annotations

import math

import numpy as np
from scipy.linalg import cholesky, qr, solve_triangular

from engine.factor import EPS
from engine.objective import Array, lengths, norm

_ALMOST = 0.1  # of 1 / k: so near to the identity a Gram matrix has condition 1.3 at most
_SLACK = 16.0  # times eps sqrt(d): a relative length below this is rounding, not direction


def extend_basis(Q: Array, U: Array) -> Array:
    """Return rows that extend the orthonormal rows Q to span those of U as well.

    Parameters
    ----------
    Q
        r x d, orthonormal rows (r may be 0).
    U
        k x d, any rows: duplicated, dependent, zero, k > d.

    Returns
    -------
    Array
        r' x d with r' <= min(k, d - r): orthonormal rows, orthogonal to Q.

    Notes
    -----
    Cost O(k r d + k^2 d). One row needs no factorisation.
    """
    if len(U) == 1:
        return _direction(Q, U)
    d = U.shape[1]
    long = lengths(U)
    rest = U[long > 0] / long[long > 0, None]
    room = d - Q.shape[0]
    rest = _independent(_orthogonal(Q, rest), room)
    rest = _orthogonal(Q, rest)
    if not _almost_orthonormal(rest):
        # A row that was mostly rounding has lost its direction: look at ranks again.
        rest = _orthogonal(Q, _independent(rest, room))
    return np.ascontiguousarray(_orthonormal(rest))


def _direction(Q: Array, u: Array) -> Array:
    """Return `extend_basis` of one row, 1 x d: a unit vector, or nothing. Cost O(r d)."""
    r, d = Q.shape
    nothing, long = u[:0], norm(u)
    if not 0.0 < long < math.inf or r >= d:
        return nothing
    unit = u / long
    if r == 0:
        return unit / norm(unit)
    cut = _SLACK * EPS * math.sqrt(d)
    unit = _orthogonal(Q, unit)
    left = norm(unit)
    if not left > cut:
        return nothing
    # No third time: what the cut lets through is several times as long as its rounding.
    unit = _orthogonal(Q, unit / left)
    return unit / norm(unit)


def _orthogonal(Q: Array, rows: Array) -> Array:
    """Return rows minus their projection onto Q."""
    return rows - (rows @ Q.T) @ Q


def _independent(rows: Array, room: int) -> Array:
    """Return orthonormal rows of the same span, at most ``room``; dependent ones are dropped."""
    if len(rows) == 0:
        return rows
    cut = _SLACK * EPS * np.sqrt(rows.shape[1])
    columns, R, _ = qr(rows.T, mode="economic", pivoting=True, check_finite=False)
    rank = int(np.count_nonzero(np.abs(np.diag(R)) > cut))
    independent: Array = columns[:, :rank].T[:room]
    return independent


def _almost_orthonormal(rows: Array) -> bool:
    gram = rows @ rows.T
    return len(rows) == 0 or bool(np.abs(gram - np.eye(len(rows))).max() <= _ALMOST / len(rows))


def _orthonormal(rows: Array) -> Array:
    """Return almost orthonormal rows made orthonormal: by the factor of their Gram matrix."""
    if len(rows) == 0:
        return rows
    factor = cholesky(rows @ rows.T, lower=True, check_finite=False)
    made: Array = solve_triangular(factor, rows, lower=True, check_finite=False)
    return made


def project(Q: Array, vector: Array) -> Array:
    """Return Q^T Q vector for vector of shape d x m. Cost O(r d m)."""
    projected: Array = Q.T.dot(Q.dot(vector))  # of vectors, faster than as a product of matrices
    return projected
