"""The sums that a linear model is a function of, with every digit.

    S = sum_i weight_i z_i z_i^T,   z_i = (x_i, y_i)

over the live rows: X^T X and X^T y, and y^T y for the variance of the residuals. They are whole
numbers in fixed units (`engine.exact.digits`), so a sum does not depend on the order of the rows,
and what a row brought, it takes with it: S after any stream of changes is, byte for byte, S of the
rows that remain, in the same units.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lethe.engine.exact.digits import (
    SUMMED,
    Digits,
    OutOfRange,
    added,
    cut,
    scaled,
    side_by_side,
    sliced,
    units_of,
)
from lethe.engine.exact.rows import ChangedRows, cut_weights
from lethe.engine.fit.objective import Array, Rows

_CARRIED = 8
"""Blocks of `SUMMED` rows that int64 sums before it is balanced: up to `LONGEST` pairs of slices,
each of at most 2^53, meet at one place, and 8 x 48 x 2^53 is below 2^62."""

_SPARSE = 0.25
"""A slice with digits in fewer of the rows is multiplied with those rows alone."""


@dataclass(frozen=True, slots=True)
class Sums:
    """The sums of some rows, exactly.

    Attributes
    ----------
    unit
        (D,) int: column j of z is measured in 2^unit_j. D is d + m.
    entries
        D x D: entry (j, k) of S in units of 2^(unit_j + unit_k). Symmetric and balanced.
    m
        Number of targets, the last columns of z.
    """

    unit: NDArray[np.int_]
    entries: Digits
    m: int

    @classmethod
    def of(cls, rows: Rows, unit: NDArray[np.int_] | None = None) -> Sums:
        """Return the sums of rows, in the units of other sums or in those that suit them.

        Cost O(n D^2) for each pair of slices: three slices a column for most data, less for
        whole numbers and float32; of weighted rows, twice as many.

        Raises
        ------
        InvalidData
            The numbers of a column differ too much in size: `engine.exact.digits.OutOfRange`.
        """
        if unit is None:
            unit = units_of(largest_of(rows))
        running = RunningSums(unit, rows.y.shape[1])
        running.add(rows)
        return running.sums()

    def changed(self, rows: ChangedRows) -> Sums:
        """Return the sums with rows that came or went. Cost O(D^2) a row."""
        z, change = side_by_side(rows.x, rows.target), _Total(len(self.unit))
        for start in range(0, len(rows), SUMMED):
            block = slice(start, start + SUMMED)
            part = z.of((block, slice(None)))
            change.add(_pieces(scaled(part, rows.factor.of(block))), _pieces(part))
        return Sums(self.unit, added([self.entries, change.balanced()]), self.m)

    def equal(self, other: Sums) -> bool:
        """Return whether these are the same sums, in the same units."""
        mine, others = self.entries, other.entries
        return (
            bool(np.array_equal(self.unit, other.unit))
            and mine.first == others.first
            and bool(np.array_equal(mine.places, others.places))
        )

    @property
    def d(self) -> int:
        """Number of features, the intercept included."""
        return len(self.unit) - self.m


class RunningSums:
    """The sums of rows that come in blocks, whichever blocks and in whichever order.

    Parameters
    ----------
    unit, m
        As of `Sums`.
    """

    def __init__(self, unit: NDArray[np.int_], m: int) -> None:
        self._unit, self._m = unit, m
        self._total = _Total(len(unit))
        self._rows = 0

    def add(self, rows: Rows) -> None:
        """Add rows; cost and errors are those of `Sums.of`, which counts rows from the first."""
        for start in range(0, len(rows), SUMMED):
            try:
                self._total.add_rows(rows.take(slice(start, start + SUMMED)), self._unit)
            except OutOfRange as error:
                raise error.moved(self._rows + start) from None
        self._rows += len(rows)

    def add_sums(self, part: Sums) -> None:
        """Add the sums of other rows, in the same units. Cost O(P D^2), P the digits."""
        if not np.array_equal(part.unit, self._unit):
            raise AssertionError("sums in other units")
        self._total.add_digits(part.entries)

    def sums(self) -> Sums:
        """Return the sums so far."""
        return Sums(self._unit, self._total.balanced(), self._m)


def largest_of(rows: Rows) -> Array:
    """Return the largest magnitude of each column of (X, y), (D,)."""
    return np.concatenate([_largest(rows.X), _largest(rows.y)])


def _largest(values: Array) -> Array:
    """Return the largest magnitude of each column, without a copy of the values."""
    largest: Array = np.maximum(values.max(axis=0, initial=0.0), -values.min(axis=0, initial=0.0))
    return largest


@dataclass(frozen=True, slots=True)
class _Piece:
    """The digits of some columns at one place: ``matrix`` is k x c."""

    place: int
    columns: NDArray[np.intp]
    matrix: Array
    rows: NDArray[np.intp] | None
    """The rows that have a digit there, if they are few; None for all."""


def _pieces(numbers: Digits) -> list[_Piece]:
    return _pieces_of(numbers.first, [place.astype(np.float64) for place in numbers.places])


def _pieces_of(first: int, slices: list[Array]) -> list[_Piece]:
    pieces = []
    for place, digits in enumerate(slices, first):
        columns = np.flatnonzero(digits.any(axis=0))
        matrix = digits if len(columns) == digits.shape[1] else digits[:, columns]
        rows = np.flatnonzero(matrix.any(axis=1))
        few = len(rows) < _SPARSE * len(digits)
        pieces.append(_Piece(place, columns, matrix, rows if few else None))
    return pieces


class _Total:
    """A sum of products of pieces, in int64 that is balanced before it is full."""

    def __init__(self, D: int) -> None:
        self._sum = Digits(0, np.zeros((1, D, D), np.int64))
        self._added = 0

    def add_rows(self, rows: Rows, unit: NDArray[np.int_]) -> None:
        """Add weight_i z_i z_i^T of at most `SUMMED` rows."""
        z = np.hstack([rows.X, rows.y])
        if (rows.weight == 1.0).all():
            pieces = _pieces_of(*sliced(z, unit))
            self.add(pieces, pieces)
        else:
            digits = cut(z, unit)
            self.add(_pieces(scaled(digits, cut_weights(rows.weight))), _pieces(digits))

    def add(self, left: list[_Piece], right: list[_Piece]) -> None:
        """Add left^T right."""
        if not left or not right:
            return
        self._make_room(left[0].place + right[0].place, left[-1].place + right[-1].place + 1)
        dense_left = [piece for piece in left if piece.rows is None]
        dense_right = dense_left if left is right else [p for p in right if p.rows is None]
        self._add_products(dense_left, dense_right, None)
        for piece in left:
            if piece.rows is not None:
                self._add_products([piece], right, piece.rows)
        for piece in right:
            if piece.rows is not None:
                self._add_products(dense_left, [piece], piece.rows)

    def add_digits(self, digits: Digits) -> None:
        """Add balanced digits."""
        if len(digits.places):
            self._make_room(digits.first, digits.end)
            start = digits.first - self._sum.first
            self._sum.places[start : start + len(digits.places)] += digits.places

    def _add_products(
        self, left: list[_Piece], right: list[_Piece], rows: NDArray[np.intp] | None
    ) -> None:
        if not left or not right:
            return
        a = _side_by_side(left, rows)
        products = (a.T @ (a if left is right else _side_by_side(right, rows))).astype(np.int64)
        i = 0
        for one in left:
            j = 0
            for other in right:
                block = products[i : i + len(one.columns), j : j + len(other.columns)]
                place = self._sum.places[one.place + other.place - self._sum.first]
                place[np.ix_(one.columns, other.columns)] += block
                j += len(other.columns)
            i += len(one.columns)

    def _make_room(self, first: int, end: int) -> None:
        if self._added == _CARRIED:
            self._sum, self._added = self.balanced(), 0
        self._added += 1
        if first < self._sum.first or end > self._sum.end:
            before, after = max(self._sum.first - first, 0), max(end - self._sum.end, 0)
            places = np.pad(self._sum.places, ((before, after), (0, 0), (0, 0)))
            self._sum = Digits(self._sum.first - before, places)

    def balanced(self) -> Digits:
        return self._sum.balanced()


def _side_by_side(pieces: list[_Piece], rows: NDArray[np.intp] | None) -> Array:
    parts = [piece.matrix if rows is None else piece.matrix[rows] for piece in pieces]
    return parts[0] if len(parts) == 1 else np.hstack(parts)
