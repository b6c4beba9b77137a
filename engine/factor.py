"""The factored Hessian: A = L L^T, and what can be said of its spectrum.

Equivalent SciPy calls: ``scipy.linalg.cho_factor`` and ``cho_solve``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError, cholesky, solve_triangular
from scipy.linalg.lapack import dlange, dpotrf

from engine.errors import IllConditioned
from engine.objective import Array

EPS = float(np.finfo(np.float64).eps)

_POWER_STEPS = 40  # enough for two digits of the smallest eigenvalue, which is then verified
_SHRINK = 0.8  # the verified bound starts at 80 % of the estimate
_HALVINGS = 60  # 2^-60: past double precision
_ROUNDING = 16.0  # times eps x largest: what forming and factoring A may hide of an eigenvalue

_SINGULAR = (
    "the Hessian is not positive definite to working precision; raise the ridge strength or "
    "rescale the features"
)


@dataclass(frozen=True, slots=True)
class Factor:
    """Cholesky factor of a symmetric positive definite A.

    Attributes
    ----------
    L
        Lower triangular, d x d, float64. With h blocks (h d) x d, their triangles one below the
        other: take one out (`engine.blockwise.factor_of`) before solving.
    smallest
        A lower bound of the smallest eigenvalue of A, verified by a second factorisation.
    largest
        An upper bound of the largest eigenvalue (largest absolute row sum).
    """

    L: Array
    smallest: float
    largest: float

    @property
    def condition(self) -> float:
        """Upper bound of the 2-norm condition number."""
        return self.largest / self.smallest

    def solve(self, B: Array) -> Array:
        """Return A^-1 B for B of shape d x r. Cost O(d^2 r)."""
        return solve_with(self.L, B)

    def product(self, B: Array) -> Array:
        """Return A B. Cost O(d^2 r)."""
        return self.L @ (self.L.T @ B)


def lower_triangle(A: Array) -> Array:
    """Return L with A = L L^T. Cost O(d^3 / 3).

    Raises
    ------
    IllConditioned
        A is not positive definite to working precision: raise the ridge or rescale features.
    """
    try:
        L: Array = cholesky(A, lower=True, check_finite=True)
    except (LinAlgError, ValueError) as error:
        raise IllConditioned(_SINGULAR) from error
    return L


def solve_with(L: Array, B: Array) -> Array:
    """Return (L L^T)^-1 B for B of shape d x r. Cost O(d^2 r)."""
    half = solve_triangular(L, B, lower=True, check_finite=False)
    solved: Array = solve_triangular(L, half, lower=True, trans="T", check_finite=False)
    return solved


def factorise(A: Array) -> Factor:
    """Factor A once; apply many times.

    Raises
    ------
    IllConditioned
        A is not positive definite to working precision: raise the ridge or rescale features.

    Notes
    -----
    Cost O(d^3 / 3) twice or a few times, and 40 steps of O(d^2): the later factorisations verify
    the eigenvalue bound. (Power iteration alone errs on the unsafe side.)
    """
    L = lower_triangle(A)
    largest = float(dlange("1", A))
    return Factor(L, _verified_smallest(A, L, largest), largest)


def _verified_smallest(A: Array, L: Array, largest: float) -> float:
    """Return mu such that A - (mu + rounding) I was seen to be positive definite.

    Rounding is charged as measured (`_ROUNDING`); the worst case that is proved (Rump 2006) is d
    times as large and never met.
    """
    rounding = _ROUNDING * EPS * largest
    v: Array = np.random.default_rng(0).standard_normal((A.shape[0],))
    growth = 1.0
    for _ in range(_POWER_STEPS):
        v = solve_with(L, v / np.linalg.norm(v))
        growth = float(np.linalg.norm(v))
    mu: float = _SHRINK / growth
    shifted = np.empty(A.shape, order="F")
    for _ in range(_HALVINGS):
        if mu <= rounding:
            break
        shifted[:] = A
        shifted[np.diag_indices_from(shifted)] -= mu
        _, failed = dpotrf(shifted, lower=True, clean=False, overwrite_a=True)
        if not failed:
            return mu - rounding
        mu = mu / 2
    raise IllConditioned(_SINGULAR)
