"""Rows by their digits: the errors that they have at a point, and how they pull on it.

A row x with target t, weight w and sign s (1 of a row that arrived, -1 of one that left) adds
s w x x^T to the matrix of the normal equations, and s w x t to their right-hand side, so that the
residual at y has s w x (t - x.y) more. Everything here is exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lethe.engine.exact.digits import (
    BITS,
    SUMMED,
    Digits,
    OutOfRange,
    added,
    cut,
    scaled,
    stacked,
    units_of,
)
from lethe.engine.fit.objective import Array, Rows

MOST = 64
"""Rows that are kept beside the sums: more, and adding them up takes less time."""


@dataclass(frozen=True, slots=True)
class ChangedRows:
    """Rows that came or went, k of them.

    Attributes
    ----------
    x
        (P, k, d): the features, in the units of their columns.
    factor
        (k,): sign times weight.
    target
        (k, m): the targets, in the units of theirs.
    """

    x: Digits
    factor: Digits
    target: Digits

    @classmethod
    def of(cls, rows: Rows, sign: int, unit: NDArray[np.int_]) -> ChangedRows:
        """Return the digits of rows that left (-1) or arrived (1), if they have a weight."""
        places = np.flatnonzero(rows.weight)
        if len(places) < len(rows):
            rows = rows.take(places)
        d, beside = rows.X.shape[1], 0
        try:
            factor = cut_weights(sign * rows.weight)
            x, beside = cut(rows.X, unit[:d]), d
            return cls(x, factor, cut(rows.y, unit[d:]))
        except OutOfRange as error:
            column = error.column if error.column is None else error.column + beside
            raise OutOfRange(int(places[error.row]), column) from None

    def __len__(self) -> int:
        return int(self.x.places.shape[1])

    def joined(self, other: ChangedRows) -> ChangedRows:
        """Return both, these first."""
        return ChangedRows(
            stacked(self.x, other.x),
            stacked(self.factor, other.factor),
            stacked(self.target, other.target),
        )

    def pull(self, y: Digits, *, targets: bool = True) -> Digits:
        """Return sum_i s_i w_i x_i (t_i - x_i.y), m x d, or without t_i; not balanced.

        Parameters
        ----------
        y
            m x d, balanced.
        targets
            Whether the targets count.
        """
        error = self._errors(y) if not targets else added([self.target, self._errors(y)])
        return self._weighted_sum(scaled(error, self.factor))

    def _errors(self, y: Digits) -> Digits:
        """Return -x_i.y, k x m."""
        (P, k, d), (B, m, _) = self.x.places.shape, y.places.shape
        columns = y.places.reshape(B * m, d).T.astype(np.float64)
        rows = self.x.places.reshape(P * k, d).astype(np.float64)
        total = np.zeros((P + B, k, m), np.int64)
        for start in range(0, d, SUMMED):
            part = slice(start, start + SUMMED)
            products = rows[:, part] @ columns[part]
            by_place = products.reshape(P, k, B, m).transpose(0, 2, 1, 3).astype(np.int64)
            for p in range(P):
                total[p : p + B] -= by_place[p]
        return Digits(self.x.first + y.first, total).balanced()

    def _weighted_sum(self, factor: Digits) -> Digits:
        """Return sum_i x_i factor_i, m x d."""
        (P, k, d), (B, _, m) = self.x.places.shape, factor.places.shape
        rows = self.x.places.transpose(0, 2, 1).reshape(P * d, k).astype(np.float64)
        columns = factor.places.transpose(1, 0, 2).reshape(k, B * m).astype(np.float64)
        by_place = (rows @ columns).reshape(P, d, B, m).transpose(0, 2, 3, 1).astype(np.int64)
        total = np.zeros((P + B, m, d), np.int64)
        for p in range(P):
            total[p : p + B] += by_place[p]
        return Digits(self.x.first + factor.first, total)


def cut_weights(weight: Array) -> Digits:
    """Return the digits of weights, in units of 1."""
    if (np.abs(weight) == 1.0).all():
        return Digits(0, weight.astype(np.int64)[np.newaxis])
    unit = BITS * (int(units_of(np.max(np.abs(weight), initial=0.0))) // BITS)
    digits = cut(weight, unit)
    return Digits(digits.first - unit // BITS, digits.places)
