"""What this project does in place of the published algorithms: from dual rows, by the engine.

Inputs are those of `reproduction.published`; the precomputation is the dual rows W = X A^-1.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from lethe.engine.deletion.downdate import leave_out
from lethe.engine.deletion.generation import at_rest
from lethe.engine.deletion.methods import ProjectiveResidualUpdate
from lethe.engine.deletion.methods.method import Step
from paper.data import Array, Index

_PRU = ProjectiveResidualUpdate()


def exact_from_dual_rows(X: Array, y: Array, theta: Array, deleted: Index, W: Array) -> Array:
    """Return the exact leave-k-out answer: the product's kernel, `downdate.leave_out`.

    Its result includes the rows of V that the next batch needs. Cost O(k^2 d + k^3).
    """
    U = X[deleted]
    error = (U @ theta - y[deleted])[:, None]
    moved: Array = theta + leave_out(U, W[deleted], error, np.ones(len(U))).delta[:, 0]
    return moved


def pru_from_dual_rows(X: Array, y: Array, theta: Array, deleted: Index, W: Array) -> Array:
    """Return the projective residual update as the product makes it: vectorised, rank-revealing.

    The exact step projected onto the span of the deleted rows. Cost O(k^2 d).
    """
    U, dual = X[deleted], W[deleted]
    error = (U @ theta - y[deleted])[:, None]
    anchor = theta[:, None]
    moved = anchor + leave_out(U, dual, error, np.ones(len(U))).delta
    step = Step(U, dual, lambda: error, moved, at_rest(anchor, 0.0))
    return _PRU.publish(step).theta[:, 0]


def pru_by_gram_matrix(X: Array, y: Array, theta: Array, deleted: Index, W: Array) -> Array:
    """Return the projective residual update by the Gram matrix of the deleted rows.

    The least work for a projection, and no answer when rows are dependent (LinAlgError), so the
    product does not use it. It is here to be fair to the PRU in a table of times. Cost O(k^2 d).
    """
    U, dual = X[deleted], W[deleted]
    B = U @ dual.T
    error = U @ theta - y[deleted]
    q = cho_solve(cho_factor(np.eye(len(U)) - B, check_finite=False), error, check_finite=False)
    gram = cho_factor(U @ U.T, check_finite=False)
    projected: Array = theta + U.T @ cho_solve(gram, B @ q, check_finite=False)
    return projected


def influence_from_dual_rows(X: Array, y: Array, theta: Array, deleted: Index, W: Array) -> Array:
    """Return the influence method's answer, theta + W^T e. Cost O(k d) in place of O(d^2)."""
    moved: Array = theta + W[deleted].T @ (X[deleted] @ theta - y[deleted])
    return moved
