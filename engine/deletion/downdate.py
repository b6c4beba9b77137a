"""Leaving k rows out: the step that every method builds on (docs/algebra.md).

Rows U (k x d) with errors e, curvatures S and dual rows W = U A^-1. With B = U W^T and
M = I - S^1/2 B S^1/2 = C C^T,

    q = e + S^1/2 M^-1 S^1/2 B e,      delta = W^T q,      A'^-1 = A^-1 + V^T V,
    V = C^-1 S^1/2 W.

``delta`` is the exact leave-k-out step of a linear model and the exact Newton step of a logistic
one. It equals the LKO step of the paper's Algorithm 2 with T_ij = h_ij / (1 - h_ii) (the
algorithm prints 1 - h_jj; its derivation, in Theorem 4's proof, has 1 - h_ii), but divides by no
curvature, so saturated logistic rows are safe. Cost O(k^2 d + k^3): that of the PRU.

One row needs no factorisation (Sherman and Morrison 1950). M is the number p = 1 - s x.w, and

    q = e / p,      delta = w q^T,      V = (s / p)^1/2 w^T:

one scalar product, and two multiples of the dual row. Most requests delete one row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.linalg.blas import ddot
from scipy.linalg.lapack import dgesv, dpotrf, dpotrs, dtrtri

from lethe.engine.errors import IllConditioned
from lethe.engine.fit.objective import Array

SMALLEST_PIVOT = 4e-9
"""Gate on 1 - leverage, for each row of the block: k rows are refused under k times this.

Rounding of M (eps k in norm) is magnified by 1 / (1 - h). Measured on the feature injection test
(a column present in the deleted rows only: 1 - h = ridge / |column|^2; ridge 1, 1e-2, 1e-4;
against retraining in extended precision, worst of 120 each), what is left of the injected
weight, relative to it and times 1 - h, and so what is left at the gate:

    rows       1          2          20         100
    left (1-h) 8e-16      2e-15      3e-14      3e-13
    at gate    2e-7       3e-7       4e-7       8e-7

It is below 1e-6 (tests/unit/engine/deletion/test_downdate.py). Refused rows wait for a
rebuild without them, which is exact.
"""


class Downdate(NamedTuple):
    """The effect of leaving k rows out.

    Attributes
    ----------
    delta
        The step of theta, d x m: W^T q.
    q
        k x m, the errors that the rows have once they are out.
    V
        k x d: A'^-1 = A^-1 + V^T V.
    smallest_pivot
        Smallest squared pivot of C: 1 - leverage of some row once the rows before it are out. It
        lies between the smallest eigenvalue of M and the smallest 1 - h_ii.
    """

    delta: Array
    q: Array
    V: Array
    smallest_pivot: float


def leave_out(U: Array, W: Array, error: Array, curvature: Array) -> Downdate:
    """Leave the rows U out.

    Parameters
    ----------
    U
        k x d, the rows; k may exceed d.
    W
        k x d, their dual rows A^-1 x_i for the *present* A.
    error
        k x m, first derivative of each row's weighted loss at the present theta.
    curvature
        (k,), second derivative, >= 0.

    Raises
    ------
    IllConditioned
        Some leverage is too near to 1 (`SMALLEST_PIVOT`), or a number is not finite.
    """
    k = len(U)
    if k == 0:
        zero = np.zeros((U.shape[1], error.shape[1]))
        return Downdate(zero, np.zeros_like(error), np.zeros_like(W), 1.0)
    if k == 1:
        pivot, scale = leave_one_out(U, W, curvature.item())
        q = error / pivot
        return Downdate(W.T.dot(q), q, W * scale, pivot)
    return by_cholesky(U, W, error, curvature)


def bring_in(U: Array, W: Array, error: Array, curvature: Array) -> Downdate:
    """Bring the rows U in: `leave_out` with the other sign. Cost O(k^2 d + k^3).

    M = I + S^1/2 B S^1/2, q = (I + S B)^-1 e, delta = -W^T q, A'^-1 = A^-1 - V^T V. The pivots
    are 1 or more, so there is no gate; ``smallest_pivot`` of the result is 1.

    Raises
    ------
    IllConditioned
        A number is not finite.
    """
    if len(U) == 0:
        return leave_out(U, W, error, curvature)
    update = by_cholesky(U, W, error, curvature, sign=1.0)
    return update._replace(delta=-update.delta, smallest_pivot=1.0)


def side_by_side(parts: Sequence[Downdate]) -> Downdate:
    """Return the step of several blocks: their arrays side by side."""
    return Downdate(
        np.hstack([one.delta for one in parts]),
        np.hstack([one.q for one in parts]),
        np.hstack([one.V for one in parts]),
        min(one.smallest_pivot for one in parts),
    )


def by_cholesky(U: Array, W: Array, error: Array, curvature: Array, sign: float = -1.0) -> Downdate:
    """Return `leave_out` of k >= 1 rows, by the Cholesky factor of M. Cost O(k^2 d + k^3).

    With ``sign`` 1 as `bring_in`; delta is W^T q all the same.
    """
    k = len(U)
    root = np.sqrt(curvature)[:, None]
    B = U @ W.T
    M = (B + B.T) * (0.5 * sign * root * root.T)
    M.flat[:: k + 1] += 1.0
    # LAPACK is called directly: for few rows SciPy's checks cost more than the algebra. What
    # they catch is checked here: NaN can pass through the factorisation unnoticed.
    if not np.isfinite(M).all():
        raise _refused(math.nan)
    C, failed = dpotrf(M.T, lower=True, overwrite_a=True)
    if failed:
        raise _refused(0.0)
    smallest = float(C.diagonal().min()) ** 2
    if smallest < SMALLEST_PIVOT * k:
        raise _refused(smallest, k)
    if sign > 0:
        # Not e - S^1/2 M^-1 S^1/2 B e: of a row far out q is as nothing beside e, and the two
        # terms cancel. Pivoting takes rows of S B as they are scaled.
        B *= curvature[:, None]
        B.flat[:: k + 1] += 1.0
        _, _, q, _ = dgesv(B, error, overwrite_a=True)
    else:
        inner, _ = dpotrs(C, root * (B @ error), lower=True)
        q = error + root * inner
    # A product with C^-1 takes two thirds of the time of a triangular solve, and is as near to the
    # true V up to the gate (within a factor of 4, against extended precision).
    inverse, _ = dtrtri(C, lower=True, overwrite_c=True)
    V = (inverse * root.T) @ W
    return Downdate(W.T @ q, q, V, smallest)


def leave_one_out(x: Array, w: Array, s: float) -> tuple[float, float]:
    """Return p = 1 - s x.w and (s / p)^1/2, by which one row is left out: see the module.

    Parameters
    ----------
    x, w
        1 x d, the row and its dual row A^-1 x for the *present* A.
    s
        Its curvature, >= 0.

    Raises
    ------
    IllConditioned
        As `leave_out`.

    Notes
    -----
    Cost O(d).
    """
    pivot = 1.0 - s * ddot(x, w) if s >= 0.0 else math.nan
    if not SMALLEST_PIVOT <= pivot < math.inf:
        raise _refused(pivot)
    return pivot, math.sqrt(s / pivot)


def _refused(pivot: float, k: int = 1) -> IllConditioned:
    """Return the error of k rows whose smallest squared pivot does not pass the gate."""
    if not math.isfinite(pivot):
        return IllConditioned("the rows' leverage is not a finite number")
    if pivot <= 0.0:
        return IllConditioned("the rows' leverage is 1 to working precision")
    gate = SMALLEST_PIVOT * k
    return IllConditioned(
        f"the rows' leverage is too near to 1 (pivot {pivot:.1e}, gate {gate:.0e})"
    )
