"""Orthonormal bases of row spans: block Gram-Schmidt, done twice, rank-revealing.

The paper's PseudoInv (Algorithm 3) runs plain Gram-Schmidt and divides by zero on duplicated
rows. Here each new block is projected off the basis, then factored by QR with column pivoting,
which drops what is dependent; all of it twice, which is enough for orthogonality to rounding
(Giraud, Langou, Rozloznik 2005).
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import qr

from engine.factor import EPS
from engine.objective import Array

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
    Cost O(k r d + k^2 d).
    """
    d = U.shape[1]
    lengths = np.linalg.norm(U, axis=1)
    rest = U[lengths > 0] / lengths[lengths > 0, None]
    cut = _SLACK * EPS * np.sqrt(d)
    for _ in range(2):
        for _ in range(2):
            rest = rest - (rest @ Q.T) @ Q
        if len(rest) == 0:
            break
        columns, R, _ = qr(rest.T, mode="economic", pivoting=True, check_finite=False)
        rank = int(np.count_nonzero(np.abs(np.diag(R)) > cut))
        rest = columns[:, :rank].T[: d - Q.shape[0]]
    return np.ascontiguousarray(rest)


def project(Q: Array, vector: Array) -> Array:
    """Return Q^T Q vector for vector of shape d x m. Cost O(r d m)."""
    projected: Array = Q.T @ (Q @ vector)
    return projected
