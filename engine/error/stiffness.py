"""The least stiffness: how much of a quadratic model is left in the direction that lost most.

A_t has the curvatures at theta_b, H those at theta_exact. A Newton step with A_t shows how far away
the minimiser is only if H is not far below A_t in any direction: where v^T H v is a hundredth of
v^T A_t v, the minimiser is a hundred times as far along v as the step shows, however small a part
of the step that is.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from lethe.engine.deletion.correction import Correction
from lethe.engine.fit import blocks
from lethe.engine.fit.objective import Array

LANCZOS_STEPS = 12
"""Largest number of steps; each reads the sample and V as often as the estimate itself does. Of 641
hard states, all eigenvalues flagged 124, and twelve steps flagged the same ones."""

_RESOLVED = 1e-12  # of the largest Ritz value: a next direction this short is rounding


def least_stiffness(X: Array, W: Array, V: Correction, changed: Array, least: float) -> float:
    """Return the least v^T H v / v^T A_t v over all v, as if curvatures had only fallen.

    That is 1 - lam_max(F^1/2 X A_t^-1 X^T F^1/2), F the diagonal of what the curvatures of sampled
    rows have fallen by. By the Lanczos method with all vectors kept, from a fixed random start. The
    result errs upwards, and the iteration ends as soon as it reaches ``least``.

    Parameters
    ----------
    X, W, V
        m' sampled rows, their dual rows relative to A_b, and A_t^-1 = A_b^-1 + V^T J V; of h blocks
        as in `engine.fit.blocks`.
    changed
        m' x h, the change of their curvatures over their chances.
    least
        The value that the caller compares with.

    Notes
    -----
    Cost O(m' d + K d) a step.
    """
    root, d = np.sqrt(np.maximum(-changed, 0.0)), X.shape[1]

    def applied(u: Array) -> Array:
        weighted = root * u.reshape(root.shape)
        pulled = V.times(X.T @ weighted)
        product: Array = (root * (X @ (blocks.weighted_sum(W, weighted, d) + pulled))).ravel()
        return product

    return least_of(applied, root.ravel() > 0, least)


def least_of(applied: Callable[[Array], Array], fallen: NDArray[np.bool_], least: float) -> float:
    """Return 1 less the largest eigenvalue of a symmetric operator on the ``fallen`` coordinates.

    `LANCZOS_STEPS` applications at most, and none once it has reached ``least``.
    """
    steps = min(LANCZOS_STEPS, int(np.count_nonzero(fallen)))
    if steps == 0:
        return 1.0
    start = np.random.default_rng(0).standard_normal(len(fallen)) * fallen
    return 1.0 - _largest(applied, start, steps, 1.0 - least)


def _largest(applied: Callable[[Array], Array], start: Array, steps: int, enough: float) -> float:
    """Return the largest Ritz value of a symmetric operator, or one that is ``enough``."""
    basis = [start / np.linalg.norm(start)]
    diagonal: list[float] = []
    off_diagonal: list[float] = []
    while True:
        image = applied(basis[-1])
        diagonal.append(float(image @ basis[-1]))
        tridiagonal = np.diag(diagonal) + np.diag(off_diagonal, 1) + np.diag(off_diagonal, -1)
        if not np.isfinite(tridiagonal).all():
            return math.inf
        largest = float(np.linalg.eigvalsh(tridiagonal)[-1])
        if largest >= enough or len(basis) == steps:
            return largest
        vectors = np.array(basis)
        for _ in range(2):  # one pass loses orthogonality
            image = image - vectors.T @ (vectors @ image)
        length = float(np.linalg.norm(image))
        if length <= _RESOLVED * max(largest, 0.0):
            return largest
        basis.append(image / length)
        off_diagonal.append(length)
