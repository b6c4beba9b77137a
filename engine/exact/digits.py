"""Whole numbers that are longer than a float64, as arrays of their digits.

A number is sum_p digit_p 2^(unit - 22 (first + p)), with digits that are whole numbers: each of its
places is one array, so that sums and products of whole matrices are sums and products of arrays.
Digits are balanced, -2^21 <= digit < 2^21, and then they are the only ones of their number: two
equal numbers are equal bytes, whatever they were computed from.

A product of two digits is below 2^42, and float64 holds whole numbers up to 2^53. So BLAS may add
up to `SUMMED` products in whatever order it likes, and no bit is lost (Ozaki, Ogita, Oishi and Rump
2012 cut matrices in the same way). Sums of more are taken in int64.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lethe.engine.errors import InvalidData
from lethe.engine.fit.objective import Array

BITS = 22
"""Bits of a digit: three digits cover 66 bits, which is enough for most columns of float64."""

NEAREST = 2.0**-49
"""Relative error of `Digits.nearest`. A number is at least half of its first digit, and the place p
after that adds at most 2^(21 - 22 p) of it: in whichever order they are added, three additions
round by up to 2^-53 of 3 / 2 each, and all others together by less than 2^-60."""

SUMMED = 1 << (53 - 2 * (BITS - 1))
"""Products of two digits that float64 adds up exactly: 2,048."""

LONGEST = 48
"""Digits of a number at most: 1,056 bits, a range of 10^300 with the digits of a float64."""

NOTHING = -(1 << 30)
"""Exponent of 0."""

_BASE = float(1 << BITS)
_HALF = 1 << (BITS - 1)

_SMALLEST_EXPONENT = -1021
"""Of a float64 whose last bit is still above the smallest subnormal number."""

_RANGE = f"2^{BITS * LONGEST - 53}"

TOO_LONG = (
    "the numbers of one column differ too much in size to be summed exactly: the largest is over "
    f"{_RANGE} times the smallest that is not 0; rescale the features or the ridge strength, or "
    "correct the rows"
)


class OutOfRange(InvalidData):
    """A number differs too much in size from others of its column.

    Attributes
    ----------
    row, column
        Where it is, from 0; None for the column of weights.
    """

    def __init__(self, row: int, column: int | None) -> None:
        super().__init__(row, column)
        self.row, self.column = row, column

    def __str__(self) -> str:
        return self.described(str(self.row), None if self.column is None else str(self.column))

    def moved(self, rows: int) -> OutOfRange:
        """Return the error for a whole table, in which the part begins after so many rows."""
        return OutOfRange(self.row + rows, self.column)

    def named(self, rows: Sequence[str], columns: Sequence[str]) -> InvalidData:
        """Return the error with names; where a column has none, of its row alone."""
        if self.column is None:
            return InvalidData(self.described(repr(rows[self.row]), None))
        known = self.column < len(columns)
        column = repr(columns[self.column]) if known else ""
        return InvalidData(self.described(repr(rows[self.row]), column))

    @staticmethod
    def described(row: str, column: str | None) -> str:
        """Return the message; ``column`` None: its weight, and empty: one of its numbers."""
        what = "weight" if column is None else f"number in column {column}" if column else "number"
        return (
            f"row {row}: its {what} differs too much in size from those of other rows to be summed "
            f"exactly: by over {_RANGE} times; correct the row, or rescale the column"
        )


Units: TypeAlias = NDArray[np.int_] | int
Whole: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Digits:
    """An array of whole numbers, by their digits.

    Attributes
    ----------
    first
        Place of the first digit: the array is sum_p places[p] 2^(unit - BITS (first + p)), in a
        unit that its owner knows.
    places
        (P, ...) int64.
    """

    first: int
    places: Whole

    @property
    def end(self) -> int:
        """Place after the last one."""
        return self.first + len(self.places)

    def of(self, index: Any) -> Digits:
        """Return a part of the array: ``index`` of one place."""
        return Digits(self.first, self.places[(slice(None), *np.index_exp[index])])

    def is_zero(self) -> bool:
        """Return whether every number is 0."""
        return not self.places.any()

    def balanced(self) -> Digits:
        """Return the only balanced digits of these numbers, without empty places at either end.

        Digits of magnitudes below 2^62 are taken. Cost O(P) arrays, a few times over.
        """
        places = np.concatenate([np.zeros((3, *self.places.shape[1:]), np.int64), self.places])
        while True:
            carry = (places + _HALF) >> BITS
            if not carry.any():
                return Digits(self.first - 3, places).trimmed()
            places -= carry << BITS
            places[:-1] += carry[1:]

    def trimmed(self) -> Digits:
        """Return the numbers without places that are 0 in all of them, at either end."""
        used = np.flatnonzero(self.places.any(axis=tuple(range(1, self.places.ndim))))
        if not len(used):
            return Digits(0, self.places[:0])
        return Digits(self.first + int(used[0]), self.places[used[0] : used[-1] + 1])

    def nearest(self, shift: Units = 0) -> Array:
        """Return the numbers times 2^shift as float64, to a relative error of `NEAREST`.

        Of balanced digits. What is below the smallest float64 becomes 0.
        """
        P, shape = len(self.places), self.places.shape[1:]
        exponent = np.arange(-BITS * self.first, -BITS * self.end, -BITS)
        exponent = exponent.reshape(P, *(1 for _ in shape)) + shift
        total: Array = np.ldexp(self.places.astype(np.float64), exponent).sum(axis=0)
        return total

    def exponents(self) -> NDArray[np.int_]:
        """Return e of each number, at most 2^e and above 2^(e - 4); of 0, `NOTHING`."""
        shape = self.places.shape[1:]
        if not len(self.places):
            return np.full(shape, NOTHING)
        leading = np.argmax(self.places != 0, axis=0)
        digit = np.take_along_axis(self.places, leading[np.newaxis], axis=0)[0]
        exponent = np.frexp(np.abs(digit).astype(np.float64))[1] + 1 - BITS * (self.first + leading)
        return np.where(digit == 0, NOTHING, exponent)

    def integers(self) -> tuple[NDArray[np.object_], int]:
        """Return the numbers as Python's integers, and the exponent of 2 of their unit."""
        total = np.zeros(self.places.shape[1:], dtype=object)
        start = len(self.places) % 2
        if start:
            total = self.places[0].astype(object)
        for high, low in zip(self.places[start::2], self.places[start + 1 :: 2], strict=True):
            total = (total << (2 * BITS)) + ((high << BITS) + low).astype(object)
        return total, -BITS * (self.end - 1) if len(self.places) else 0


def added(parts: Iterable[Digits]) -> Digits:
    """Return the balanced sum of one or more arrays of one shape and one unit."""
    given = list(parts)
    shape = given[0].places.shape[1:]
    given = [part for part in given if len(part.places)]
    if not given:
        return Digits(0, np.zeros((0, *shape), np.int64))
    first, end = min(part.first for part in given), max(part.end for part in given)
    places = np.zeros((end - first, *shape), np.int64)
    for part in given:
        places[part.first - first : part.end - first] += part.places
    return Digits(first, places).balanced()


def scaled(values: Digits, factor: Digits) -> Digits:
    """Return factor_i values_ij, balanced unless every factor is 1 or -1, for k x c and (k,)."""
    parts = [
        Digits(values.first + factor.first + p, values.places * place[:, np.newaxis])
        for p, place in enumerate(factor.places)
    ]
    if len(parts) == 1 and (np.abs(factor.places) == 1).all():
        return parts[0]
    return added(parts or [Digits(0, values.places[:0])])


def stacked(upper: Digits, lower: Digits) -> Digits:
    """Return the rows of two arrays in one."""
    return _joined(upper, lower, 1)


def side_by_side(left: Digits, right: Digits) -> Digits:
    """Return the columns of two arrays, k x c and k x c', in one."""
    return _joined(left, right, 2)


def _joined(one: Digits, other: Digits, axis: int) -> Digits:
    first, end = min(one.first, other.first), max(one.end, other.end)
    shape = list(one.places.shape)
    shape[0], at = end - first, shape[axis]
    shape[axis] = at + other.places.shape[axis]
    places = np.zeros(shape, np.int64)
    before, after = np.split(places, [at], axis)
    before[one.first - first : one.end - first] = one.places
    after[other.first - first : other.end - first] = other.places
    return Digits(first, places)


def units_of(largest: Array) -> NDArray[np.int_]:
    """Return the units in which numbers up to ``largest`` have one digit before the point."""
    return np.frexp(largest)[1].astype(np.int_) - (BITS - 1)


def cut(values: Array, unit: Units) -> Digits:
    """Return the digits of float64 numbers, exactly; they are not balanced.

    Parameters
    ----------
    values
        (..., D), finite.
    unit
        The unit of each of the D columns, or of all. Values that are larger than one digit of it
        have places before the first.

    Raises
    ------
    InvalidData
        The digits reach over more than `LONGEST` places; `OutOfRange` of a table or of weights.
    """
    first, slices = sliced(values, unit)
    if not slices:
        return Digits(0, np.zeros((0, *values.shape), np.int64))
    return Digits(first, np.stack([piece.astype(np.int64) for piece in slices]))


def sliced(values: Array, unit: Units) -> tuple[int, list[Array]]:
    """Return the first place, and the digits of each place as float64: what `cut` has in int64."""
    mantissa, exponent = np.frexp(values)
    exponent -= unit
    scales = exponent[mantissa != 0]
    if not len(scales):
        return 0, []
    before = int(scales.max()) // BITS
    if int(scales.min()) - BITS * before < _SMALLEST_EXPONENT:  # ldexp would lose bits
        raise _too_long(mantissa, exponent)
    rest = np.ldexp(mantissa, exponent - BITS * before)
    slices: list[Array] = []
    while rest.any():
        if len(slices) == LONGEST:
            raise _too_long(mantissa, exponent)
        digit = np.rint(rest)
        slices.append(digit)
        rest = (rest - digit) * _BASE
    return -before, slices


def _too_long(mantissa: Array, exponent: NDArray[np.int_]) -> InvalidData:
    """Return the error that names the number furthest from its unit, of a table or of weights."""
    far = np.where(mantissa == 0, 0, np.abs(exponent))
    if far.ndim > 2:
        return InvalidData(TOO_LONG)
    row, *column = np.unravel_index(int(np.argmax(far)), far.shape)
    return OutOfRange(int(row), int(column[0]) if column else None)
