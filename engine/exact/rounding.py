"""The minimiser of a linear model, correctly rounded.

    (S_xx + diag(penalty)) theta = S_xy

has whole numbers on both sides (`engine.exact.sums`), and a solution that mathematics defines. Each
coefficient here is the float64 nearest to it; of two that are equally near, the even one, as
IEEE 754 rounds sums and products. What it was computed from, in which order and by which library,
leaves no trace.

A float64 factorisation proves a lower bound of the smallest eigenvalue, and finds corrections,
whose residuals are exact. Once everything within the bound of what is left rounds alike, the
coefficient is proved. What this cannot settle (a condition number beyond float64, a coefficient of
exactly 0, a tie) rational arithmetic does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrf, dpotri

from lethe.engine.errors import IllConditioned, InvalidData
from lethe.engine.exact.digits import (
    NEAREST,
    NOTHING,
    SUMMED,
    TOO_LONG,
    Digits,
    OutOfRange,
    added,
    cut,
)
from lethe.engine.exact.sums import Sums
from lethe.engine.fit.factor import EPS
from lethe.engine.fit.objective import Array, norm

_CORRECTIONS = 12
"""Most corrections before rational arithmetic takes over."""

_PLACES = 3
"""Digits of a correction: 44 bits and more, where a float64 factor seldom knows as many."""

_LONGEST_POINT = 16
"""Digits of a point at most: a coefficient that is exactly 0 has no first one."""

_VANISHED = 1e-150
"""Length of the part of a residual whose squares are below float64, at most."""

_FAR = 900
"""Exponents this far below the largest, with their digits, take fewer than `LONGEST` places."""

_SMALL = 1e-270
"""A number this small beside 1: what rounding it leaves may be below float64."""

_STALLED = 2.0**-8
"""A correction that leaves more than this of the residual is the last: the factor is of no use."""

ROUNDED_FEATURES = 200
"""Coefficients up to which a linear model's versions are rounded, unless told otherwise. Sums cost
about 20 products X^T X, and a change of a row 1 ms at 20 coefficients and 2 ms at 200; beyond that
both grow with their square."""

LARGEST_RATIONAL = 256
"""Coefficients up to which rational arithmetic decides: 0.1 s at 100, 0.6 s at 200."""

_SMALLEST = float(np.finfo(np.float64).smallest_subnormal)

SINGULAR = (
    "the Hessian is not positive definite to working precision; raise the ridge strength or "
    "rescale the features"
)
TOO_LARGE = "the parameters are too large to compute with; rescale the data"


@dataclass(frozen=True, slots=True)
class NormalEquations:
    """matrix y = right, for theta_jc = 2^(target_unit_c - unit_j) y_cj.

    Attributes
    ----------
    matrix
        d x d, S_xx + diag(penalty) in units of 2^(unit_j + unit_k).
    right
        m x d, S_yx in units of 2^(target_unit_c + unit_j).
    unit, target_unit
        (d,) and (m,).
    absent
        (d,) whether the feature is 0 in every row: so is its coefficient.
    """

    matrix: Digits
    right: Digits
    unit: NDArray[np.int_]
    target_unit: NDArray[np.int_]
    absent: NDArray[np.bool_]

    @classmethod
    def of(cls, sums: Sums, penalty: Array) -> NormalEquations:
        """Return the equations of a ridge regression on the rows that ``sums`` are of."""
        d, unit = sums.d, sums.unit[: sums.d]
        try:
            ridge = cut(penalty, 2 * unit)
        except OutOfRange:
            raise InvalidData(TOO_LONG) from None
        diagonal = Digits(ridge.first, np.zeros((len(ridge.places), d, d), np.int64))
        diagonal.places[:, np.arange(d), np.arange(d)] = ridge.places
        matrix = added([sums.entries.of((slice(d), slice(d))), diagonal])
        right = sums.entries.of((slice(d, None), slice(d))).trimmed()
        squares = sums.entries.of((np.arange(d), np.arange(d))).places
        absent = np.all(squares == 0, axis=0)
        return cls(matrix, right, unit, sums.unit[d:], absent)

    def theta(self, y: Array, exponent: NDArray[np.int_]) -> Array:
        """Return theta, d x m, of 2^exponent y.

        Raises
        ------
        InvalidData
            A coefficient is beyond float64.
        """
        with np.errstate(over="ignore"):
            theta = np.ldexp(y, exponent - self.unit + self.target_unit[:, np.newaxis])
        if not np.isfinite(theta).all():
            raise InvalidData(TOO_LARGE)
        transposed: Array = theta.T
        return transposed


class Product:
    """Multiplies points with a matrix of digits, exactly."""

    def __init__(self, matrix: Digits) -> None:
        self._first, (self._P, self._d, _) = matrix.first, matrix.places.shape
        self._stacked = matrix.places.reshape(-1, self._d).astype(np.float64)

    def negative(self, y: Digits) -> list[Digits]:
        """Return -matrix y, m x d; not balanced."""
        P, d, (B, m, _) = self._P, self._d, y.places.shape
        total = np.zeros((P + B, m, d), np.int64)
        columns = y.places.reshape(B * m, d).T.astype(np.float64)
        for start in range(0, d, SUMMED):
            part = slice(start, start + SUMMED)
            products = self._stacked[:, part] @ columns[part]
            by_place = products.astype(np.int64).reshape(P, d, B, m).transpose(0, 2, 3, 1)
            for b in range(B):
                total[b : b + P] -= by_place[:, b]
        return [Digits(self._first + y.first, total)]


@dataclass(frozen=True, slots=True)
class Inverse:
    """What float64 knows of the matrix, with its diagonal scaled to about 1.

    Attributes
    ----------
    scale
        (d,) exponents of 2: the scaled matrix is 2^scale_j matrix_jk 2^scale_k.
    matrix, inverse
        d x d, the scaled matrix and its inverse, rounded.
    smallest
        A proved lower bound of its smallest eigenvalue.
    size
        Trace of the scaled matrix and of all that was added to it or taken away since it was
        factored: what ``matrix`` has been rounded by is in proportion to it.
    """

    scale: NDArray[np.int_]
    matrix: Array
    inverse: Array
    smallest: float
    size: float

    @classmethod
    def of(cls, matrix: Digits) -> Inverse | None:
        """Return the inverse, or None if float64 cannot prove that the matrix is definite.

        Notes
        -----
        If the Cholesky factorisation of a symmetric C runs to its end, its smallest eigenvalue is
        at least -g trace(C), where g = (d + 1) u / (1 - 2 (d + 1) u) and u = 2^-53, in whichever
        order the sums are taken (Rump 2006, Verification of positive definiteness, Theorem 2.3).
        Here C is the scaled matrix, less a multiple of the identity, rounded.
        """
        d = matrix.places.shape[1]
        diagonal = np.arange(d)
        scale = -(matrix.of((diagonal, diagonal)).exponents() // 2)
        M = matrix.nearest(scale[:, np.newaxis] + scale)
        L, failed = dpotrf(M, lower=1)
        if failed:
            return None
        inverse, _ = dpotri(L, lower=1)
        inverse += np.tril(inverse, -1).T
        shift = 0.5 / float(np.linalg.norm(inverse))
        trace = float(np.trace(M))
        unsure = (4.0 * (d + 1) * EPS + 2.0 * NEAREST) * trace
        if not shift > 4.0 * unsure:  # also if it is NaN
            return None
        less = M.copy()
        less[diagonal, diagonal] -= shift
        _, failed = dpotrf(less, lower=1, clean=0, overwrite_a=1)
        return None if failed else cls(scale, M, inverse, shift - unsure, trace)


@dataclass(frozen=True, slots=True)
class Minimiser:
    """The minimiser, and what is proved of it.

    Attributes
    ----------
    theta
        d x m.
    rounded
        Whether every coefficient is the float64 nearest to the minimiser's.
    rational
        Whether it took rational arithmetic.
    beyond
        Bound of how far theta is from a point that rounds to it; 0 if the minimiser does.
    """

    theta: Array
    rounded: bool
    rational: bool = False
    beyond: float = 0.0

    @property
    def error(self) -> float:
        """Bound of the distance of theta to the minimiser: that of rounding it once, if it is."""
        return half_a_unit(self.theta) + self.beyond


def half_a_unit(theta: Array) -> float:
    """Return a bound of the distance by which rounding each coefficient once has moved theta."""
    return norm(np.spacing(np.abs(theta))) / 2.0 * (1.0 + EPS * theta.size)


@dataclass(frozen=True, slots=True)
class Corrected:
    """A point with many more digits than float64, and what is proved of it.

    Attributes
    ----------
    y, residual
        m x d: the point, and right - matrix y, exactly.
    exponent
        (m, d): the point is 2^exponent z, with z of about 1.
    nearest
        z as float64.
    proved
        Where ``nearest`` is what the solution, over 2^exponent, rounds to.
    distance
        (m, 1): bound of the distance of z to it.
    """

    y: Digits
    residual: Digits
    exponent: NDArray[np.int_]
    nearest: Array
    proved: NDArray[np.bool_]
    distance: Array


def corrected(
    y: Digits,
    residual: Digits,
    inverse: Inverse,
    negative_product: Callable[[Digits], list[Digits]],
    absent: NDArray[np.bool_],
) -> Corrected:
    """Return ``y`` with corrections until it is known what the solution rounds to, or they stall.

    The distance of y / 2^scale to the solution is at most |2^scale residual| / smallest.

    Parameters
    ----------
    y, residual
        m x d: where to begin, and right - matrix y.
    inverse
        Of the matrix.
    negative_product
        Returns -matrix c for a point c, as terms of a sum.
    absent
        (d,) which coefficients are known to be 0.
    """
    scale = inverse.scale
    largest = np.maximum(y.exponents() - scale, residual.exponents() + scale).max(axis=1)
    size = np.where(largest < NOTHING // 2, 0, largest)[:, np.newaxis]  # no square underflows
    exponent = scale + size
    left = residual.nearest(scale - size)
    worst = float(np.abs(left).max(initial=0.0))
    for _ in range(_CORRECTIONS):
        correction = cut(_near_largest(left @ inverse.inverse, -exponent), -exponent)
        correction = Digits(correction.first, correction.places[:_PLACES])
        y = added([y, correction])
        residual = added([residual, *negative_product(correction)])
        left = residual.nearest(scale - size)
        squares = np.einsum("cj,cj->c", left, left)[:, np.newaxis]
        vanished = np.where(residual.places.any(axis=(0, 2)), _VANISHED, 0.0)[:, np.newaxis]
        distance = (np.sqrt(squares) * (1.0 + 1e-6) + vanished) / inverse.smallest
        nearest, proved = _round(y, -exponent, distance)
        proved |= absent
        before, worst = worst, float(np.abs(left).max(initial=0.0))
        if proved.all() or not worst < _STALLED * before or len(y.places) > _LONGEST_POINT:
            break
    return Corrected(y, residual, exponent, nearest, proved, distance)


def _round(y: Digits, shift: NDArray[np.int_], distance: Array) -> tuple[Array, NDArray[np.bool_]]:
    """Return 2^shift y rounded, and where all that is within ``distance`` rounds to the same."""
    number = y.nearest(shift)
    if not (distance <= EPS * np.abs(number).max(axis=1, keepdims=True)).all():
        return number, np.zeros(number.shape, np.bool_)  # not even the largest
    high = _near_largest(number, shift)
    low = added([y, cut(-high, shift)]).nearest(shift)
    nearest = high + low
    low -= nearest - high  # exactly, as |low| <= |high|
    beyond = 2.0 * distance + 4.0 * NEAREST * np.abs(low)
    proved = (nearest + (low + beyond) == nearest) & (nearest + (low - beyond) == nearest)
    enough = (np.abs(nearest) > _SMALL) & (high == number)
    return nearest, proved & (enough | ~y.places.any(axis=0))


def _near_largest(values: Array, unit: NDArray[np.int_]) -> Array:
    """Return numbers whose digits are not too many to be cut: those far below the largest are 0."""
    exponent = np.frexp(values)[1] - unit
    largest = np.max(exponent, where=values != 0, initial=NOTHING)
    return np.where(exponent > largest - _FAR, values, 0.0)


def solved(equations: NormalEquations, inverse: Inverse, product: Product) -> Corrected:
    """Return the solution as far as float64's inverse leads to it."""
    nothing = Digits(0, equations.right.places[:0])
    return corrected(nothing, equations.right, inverse, product.negative, equations.absent)


def settled(equations: NormalEquations, point: Corrected) -> Minimiser | None:
    """Return the minimiser if every coefficient of the point is proved, else None."""
    if not point.proved.all():
        return None
    theta = equations.theta(point.nearest, point.exponent)
    normal = np.abs(theta) >= np.finfo(np.float64).tiny  # else it was rounded twice
    return Minimiser(theta, rounded=True) if (normal | (point.nearest.T == 0)).all() else None


def unsettled(equations: NormalEquations, point: Corrected) -> Minimiser:
    """Return the point as it is, with what is known of its distance to the solution."""
    theta = equations.theta(point.nearest, point.exponent)
    distance = np.broadcast_to(2.0 * point.distance, point.nearest.shape)
    beyond = norm(equations.theta(distance, point.exponent)) + theta.size * _SMALLEST
    return Minimiser(theta, rounded=False, beyond=beyond)


def rationally(equations: NormalEquations) -> Minimiser:
    """Return the minimiser by rational arithmetic.

    Raises
    ------
    IllConditioned
        d is above `LARGEST_RATIONAL`, or the matrix is singular.
    InvalidData
        A coefficient is beyond float64.
    """
    import flint  # noqa: PLC0415 (most models never need it)

    if len(equations.unit) > LARGEST_RATIONAL:
        raise IllConditioned(SINGULAR)
    matrix, matrix_exponent = equations.matrix.integers()
    right, right_exponent = equations.right.integers()
    A: Any = flint.fmpz_mat(matrix.tolist())
    try:
        solution = A.solve(flint.fmpz_mat(right.T.tolist()))
    except ZeroDivisionError as error:
        raise IllConditioned(SINGULAR) from error
    m, d = right.shape
    theta = np.empty((d, m))
    for j in range(d):
        for c in range(m):
            units = int(equations.target_unit[c] - equations.unit[j])
            quotient = solution[j, c]
            theta[j, c] = rounded_quotient(
                int(quotient.p), int(quotient.q), right_exponent - matrix_exponent + units
            )
    return Minimiser(theta, rounded=True, rational=True)


def rounded_quotient(p: int, q: int, exponent: int) -> float:
    """Return 2^exponent p / q, correctly rounded: Python's quotient of two integers is."""
    try:
        return (p << exponent) / q if exponent >= 0 else p / (q << -exponent)
    except OverflowError as error:
        raise InvalidData(TOO_LARGE) from error
