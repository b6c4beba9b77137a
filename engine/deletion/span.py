"""Orthonormal bases of row spans: block Gram-Schmidt, done twice, rank-revealing.

The paper's PseudoInv (Algorithm 4) runs plain Gram-Schmidt and divides by zero on duplicated
rows. Here each new block is projected off the basis, then factored by QR with column pivoting,
which drops what is dependent; all of it twice, which is enough for orthogonality to rounding
(Giraud, Langou, Rozloznik 2005). Rows that are far from dependent need no pivoting: the Cholesky
factor of their Gram matrix, which takes a tenth of the time, is as good when it is applied twice
(Yamamoto, Nakatsukasa, Yanagisawa, Fukaya 2015).
"""

from __future__ import annotations

import math

import numpy as np
from scipy.linalg import qr
from scipy.linalg.lapack import dpotrf, dtrtri

from lethe.engine.fit.factor import EPS
from lethe.engine.fit.objective import Array, lengths, norm

_ALMOST = 0.1  # of 1 / k: a Gram matrix this near to the identity has condition 1.3 at most
_WELL = 1e3  # unit rows of which more than 1 / this is left are certainly independent
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

    Where rows came one by one and one of them was almost dependent on those before, rounding in its
    direction can pass for a direction of later rows: in 1 of 100 sequences of 30 rows of
    15 dimensions. Then one direction more is projected onto, which is nearer to theta_exact.
    """
    if len(U) == 1:
        return _direction(Q, U)
    d = U.shape[1]
    row_lengths = lengths(U)
    rest = U[row_lengths > 0] / row_lengths[row_lengths > 0, None]
    free_dimensions = d - Q.shape[0]
    rest = _independent(_orthogonal(Q, rest), free_dimensions)
    rest = _orthogonal(Q, rest)
    gram = rest @ rest.T
    if not _almost_identity(gram):
        # A row that was mostly rounding has lost its direction: determine the rank again.
        rest = _orthogonal(Q, _independent(rest, free_dimensions))
        gram = rest @ rest.T
    return np.ascontiguousarray(_orthonormal(rest, gram))


def _direction(Q: Array, u: Array) -> Array:
    """Return `extend_basis` of one row, 1 x d: a unit vector, or nothing. Cost O(r d)."""
    r, d = Q.shape
    empty, length = u[:0], norm(u)
    if not 0.0 < length < math.inf or r >= d:
        return empty
    unit = u / length
    if r == 0:
        return unit / norm(unit)
    cut = _SLACK * EPS * math.sqrt(d)
    unit = _orthogonal(Q, unit)
    remaining = norm(unit)
    if not remaining > cut:
        return empty
    # No third pass: what exceeds the cut is several times as long as its rounding.
    unit = _orthogonal(Q, unit / remaining)
    return unit / norm(unit)


def _orthogonal(Q: Array, rows: Array) -> Array:
    """Return rows minus their projection onto Q."""
    if len(Q) == 0:
        return rows
    return rows - (rows @ Q.T) @ Q


def _independent(rows: Array, limit: int) -> Array:
    """Return orthonormal rows of the same span, at most ``limit``; dependent ones are dropped."""
    if len(rows) == 0:
        return rows
    if len(rows) <= limit:
        L, failed = dpotrf(rows @ rows.T, lower=True)
        inverse, singular = dtrtri(L, lower=True) if not failed else (L, failed)
        # Their lengths were 1, so what is left of them is not rounding. NaN does not pass.
        if not singular and norm(inverse) <= _WELL:
            orthonormal: Array = inverse @ rows
            return orthonormal
    cut = _SLACK * EPS * np.sqrt(rows.shape[1])
    columns, R, _ = qr(rows.T, mode="economic", pivoting=True, check_finite=False)
    rank = int(np.count_nonzero(np.abs(np.diag(R)) > cut))
    independent: Array = columns[:, :rank].T[:limit]
    return independent


def _almost_identity(gram: Array) -> bool:
    k = len(gram)
    return k == 0 or bool(np.abs(gram - np.eye(k)).max() <= _ALMOST / k)


def _orthonormal(rows: Array, gram: Array) -> Array:
    """Return almost orthonormal rows made orthonormal: by the factor of their Gram matrix."""
    if len(rows) == 0:
        return rows
    L, _ = dpotrf(gram, lower=True)
    inverse, _ = dtrtri(L, lower=True)
    orthonormal: Array = inverse @ rows
    return orthonormal


def project(Q: Array, vector: Array) -> Array:
    """Return Q^T Q vector for vector of shape d x m. Cost O(r d m)."""
    projected: Array = Q.T.dot(Q.dot(vector))  # of vectors, faster than as a product of matrices
    return projected
