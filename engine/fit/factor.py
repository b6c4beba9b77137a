"""The factored Hessian: A = L L^T, and bounds of its spectrum.

Equivalent SciPy calls: ``scipy.linalg.cho_factor`` and ``cho_solve``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError, cholesky, eigvalsh_tridiagonal
from scipy.linalg.lapack import dlange, dpotrf, dtrtrs

from lethe.engine.errors import IllConditioned
from lethe.engine.fit.objective import Array, norm

EPS = float(np.finfo(np.float64).eps)

_LANCZOS_STEPS = 12
"""Solves spent on the smallest eigenvalue, which is verified afterwards. From a random start the
relative error is 0.103 (ln d / 11)^2 on average whatever the spectrum, 6 % at d = 4000
(Kuczynski and Wozniakowski 1992); the power method would need over 100 for that."""
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
        other: take one out (`block`) before solving.
    smallest
        A lower bound of the smallest eigenvalue of A, verified by a second factorisation.
    largest
        An upper bound of the largest eigenvalue (largest absolute row sum).
    """

    L: Array
    smallest: float
    largest: float

    def block(self, c: int) -> Factor:
        """Return block c of a stacked factor: a view. Its bounds are those over all blocks."""
        d = self.L.shape[1]
        if len(self.L) == d:
            return self
        return Factor(self.L[c * d : (c + 1) * d], self.smallest, self.largest)

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
    # LAPACK is called directly: of a small system, SciPy's checks take twice as long as the solves.
    lower = bool(L.flags.f_contiguous)
    F = L if lower else L.T  # what LAPACK reads without a copy
    half, _ = dtrtrs(F, B, lower=lower, trans=not lower)
    solved: Array = dtrtrs(F, half, lower=lower, trans=lower, overwrite_b=True)[0]
    return solved


def factorise(A: Array) -> Factor:
    """Factor A once; apply many times.

    Raises
    ------
    IllConditioned
        A is not positive definite to working precision: raise the ridge or rescale features.

    Notes
    -----
    Cost O(d^3 / 3) twice or a few times, and 12 steps of O(d^2): the later factorisations verify
    the eigenvalue bound. (The Lanczos method alone errs on the unsafe side.)
    """
    L = lower_triangle(A)
    largest = float(dlange("1", A))
    return Factor(L, _verified_smallest(A, L, largest), largest)


def with_triangle(L: Array) -> Factor:
    """Return the factor of L L^T, its bounds taken from that product. Cost O(d^3).

    Raises
    ------
    IllConditioned
        As `factorise`.
    """
    A = L @ L.T
    largest = float(dlange("1", A))
    return Factor(L, _verified_smallest(A, L, largest), largest)


def _verified_smallest(A: Array, L: Array, largest: float) -> float:
    """Return mu such that A - (mu + rounding) I was verified to be positive definite.

    Rounding is allowed for as measured (`_ROUNDING`); the proved worst case (Rump 2006) is d times
    as large and was never met.
    """
    rounding = _ROUNDING * EPS * largest
    unit = power_of_two(largest)
    mu = _SHRINK * unit / largest_of_inverse(lambda v: solve_with(L, v), len(L), unit)
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


def power_of_two(size: float) -> float:
    """Return the power of 2 that is at most ``size``, and more than half of it."""
    return math.ldexp(1.0, math.frexp(size)[1] - 1)


def smallest_usable(smallest: float, largest: float) -> float:
    """Return the bound that `factorise` would verify of an A with these eigenvalues, or less.

    0 or less where it would refuse.
    """
    return _SHRINK * smallest - _ROUNDING * EPS * largest


def largest_of_inverse(solve: Callable[[Array], Array], d: int, unit: float) -> float:
    """Return the largest Ritz value of unit A^-1: at most its largest eigenvalue, near it.

    Lanczos with full reorthogonalisation, done twice. ``solve`` returns A^-1 v for v of shape (d,).
    ``unit``, a power of 2 of the size of A, keeps its squares inside float64 and changes no digit.
    """
    start: Array = np.random.default_rng(0).standard_normal((d,))
    v = start / np.linalg.norm(start)
    basis = np.empty((0, len(v)))
    diagonal: list[float] = []
    off_diagonal: list[float] = []
    for _ in range(min(len(v), _LANCZOS_STEPS)):
        basis = np.vstack([basis, v])
        w = unit * solve(v)
        if not norm(w) <= EPS**-2:  # |w| is at most the eigenvalue that is sought
            raise IllConditioned(_SINGULAR)
        diagonal.append(float(v @ w))
        for _ in range(2):
            w = w - basis.T @ (basis @ w)
        off_diagonal.append(float(np.linalg.norm(w)))
        if off_diagonal[-1] <= EPS * max(diagonal):  # the start has no part outside of the basis
            break
        v = w / off_diagonal[-1]
    return float(
        eigvalsh_tridiagonal(np.array(diagonal), np.array(off_diagonal[: len(diagonal) - 1]))[-1]
    )
