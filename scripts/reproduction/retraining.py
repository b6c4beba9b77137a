"""Retraining a linear model: the oracle of the linear tables. NumPy and SciPy only.

Normal equations, then refinement with the gradient taken from the data themselves: the answer
rests on the live rows, not on how the Gram matrix was put together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse.linalg import LinearOperator

Array: TypeAlias = NDArray[np.float64]

LINEAR_RIDGE = 1e-4
"""Ridge strength of the linear experiments: the default of the authors' program; the paper prints
none. Without any, the feature injection test has no unique answer after the deletion."""

_REFINEMENTS = 1


@dataclass(frozen=True, slots=True)
class LinearFit:
    """A ridge model: theta (d,), and the Cholesky factor of its Hessian as SciPy keeps it."""

    theta: Array
    factor: tuple[Array, bool]

    @property
    def inverse(self) -> LinearOperator:
        """A^-1 as an operator: two triangular solves in place of a d x d matrix."""
        d = len(self.theta)
        return LinearOperator((d, d), matvec=self.solve, matmat=self.solve, dtype=np.float64)

    def solve(self, right: Array) -> Array:
        """Return A^-1 right. Cost O(d^2) a column."""
        solved: Array = cho_solve(self.factor, right, check_finite=False)
        return solved


def gradient(X: Array, y: Array, theta: Array, ridge: float, live: Array | None = None) -> Array:
    """Return grad L at theta; ``live`` (n,) holds 0 for rows that are left out. Cost O(n d)."""
    error = X @ theta - y
    if live is not None:
        error = error * live
    whole: Array = X.T @ error + ridge * theta
    return whole


def retrain(
    X: Array, y: Array, ridge: float, gram: Array | None = None, live: Array | None = None
) -> LinearFit:
    """Return the minimiser of sum (x.theta - y)^2 / 2 + ridge |theta|^2 / 2 over live rows.

    Parameters
    ----------
    gram
        X^T X over the live rows, if it is known.
    """
    if gram is None:
        rows = X if live is None else X[live > 0]
        gram = rows.T @ rows
    A = gram.copy()
    A[np.diag_indices_from(A)] += ridge
    factor = cho_factor(A, lower=True, overwrite_a=True, check_finite=False)
    targets = y if live is None else y * live
    theta: Array = cho_solve(factor, X.T @ targets, check_finite=False)
    for _ in range(_REFINEMENTS):
        slope = gradient(X, y, theta, ridge, live)
        theta = theta - cho_solve(factor, slope, check_finite=False)
    return LinearFit(theta, factor)
