"""Sums over the live rows, from which rows are subtracted: they are functions of every row.

Counts are whole numbers, so a row that is gone is gone. The others are kept in twice the working
precision, so what a row added is subtracted again to the last digit of the sum, however many rows
came and went (Knuth's two-sum); a rebuild sums afresh. The two matrices have too many numbers for
that at every change: what up to `_LATE` rows have changed is summed apart, in the working precision
as it is within a block of rows, and joins the rest then.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass, fields
from itertools import chain
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dgemm
from scipy.sparse import csr_array, hstack, issparse

from lethe.engine.error.certificate import gradient_allowance
from lethe.engine.fit.objective import Array, Kind, lengths, norm
from lethe.engine.preprocess.transformation.layout import Layout, OrderPart, Places
from lethe.engine.preprocess.transformation.order import Interval, Window

_SUMMED = 1024  # rows summed at once, as in `engine.fit.objective`
_DENSE = 64  # so few rows: a dense indicator matrix is multiplied sooner than a sparse one is made
_CACHED = 1 << 14  # numbers added at once: what is made on the way stays in a cache
_LATE = 1024  # as many rows as are summed at once


class Total(NamedTuple):
    """Sums in twice the working precision: ``high`` + ``low``."""

    high: Array
    low: Array

    @classmethod
    def zero(cls, *shape: int) -> Self:
        """Return sums of nothing."""
        return cls(np.zeros(shape), np.zeros(shape))

    def add(self, values: Array) -> None:
        """Add ``values`` in place."""
        total = self.high + values
        part = total - self.high
        low = values - part
        part -= total
        part += self.high  # high - (total - part), what total has lost of it
        low += part
        low += self.low
        np.add(total, low, out=self.high)
        total -= self.high
        np.add(low, total, out=self.low)


class MatrixTotal(Total):
    """Sums of many numbers, where ``low`` alone has the newest changes."""

    def at(self, index: Any = ...) -> Array:
        """Return the sums at ``index``, in the working precision."""
        found: Array = self.high[index] + self.low[index]
        return found

    def copy(self, *, joined: bool) -> MatrixTotal:
        """Return sums whose ``low`` can be added to; ``joined``: in twice the working precision."""
        if not joined:
            return MatrixTotal(self.high, self.low.copy())
        total = Total(self.high.copy(), np.zeros_like(self.low))
        total.add(self.low)
        return MatrixTotal(*total)

    def add_product(self, N: Array | csr_array, Y: Array | csr_array, *, late: bool) -> None:
        """Add N^T Y in place; ``late``: to ``low`` alone, where both are dense and of few rows."""
        if late:
            dgemm(1.0, Y.T, N, 1.0, self.low.T, overwrite_c=True)
            return
        values, step = _dense(N.T @ Y), max(1, _CACHED // self.high.shape[1])
        for start in range(0, len(values), step):
            block = slice(start, start + step)
            Total(self.high[block], self.low[block]).add(values[block])


@dataclass(frozen=True, slots=True)
class Contribution:
    """k rows as they enter the sums.

    Attributes
    ----------
    X
        k x d, in base units, the intercept last.
    entries
        k x g, the places of a row (`BaseTransformation.rows`), -1 for none.
    curvature
        k x h, of the quadratic model of each of h blocks (`engine.fit.blocks`), s_i.
    response
        k x m, the working response p_i = s_i m_i - e_i at the reference: for a linear model
        weight times target.
    target
        (k,) less the base's mean, for target encoding.
    error
        k x m, e_i at the reference; k x 0 of a linear model, which has no use for it.
    reach
        (k,) bounds of (x_i^T A_b^-1 x_i)^1/2 in every block; 0 of rows that leave.
    cancelled
        (k,) what rounding in e_i is relative to beside |e_i| (`cancelled_in_errors`).
    """

    X: Array
    entries: Places
    curvature: Array
    response: Array
    target: Array
    error: Array
    reach: Array
    cancelled: Array

    def __len__(self) -> int:
        return len(self.X)

    @classmethod
    def joined(cls, parts: Sequence[Contribution]) -> Contribution:
        """Return the rows of all parts, of which there is one at least."""
        return cls(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(cls)))

    def take(self, block: slice) -> Contribution:
        """Return some of the rows."""
        return Contribution(
            self.X[block],
            self.entries[block],
            self.curvature[block],
            self.response[block],
            self.target[block],
            self.error[block],
            self.reach[block],
            self.cancelled[block],
        )


def cancelled_in_errors(kind: Kind, curvature: Array, error: Array) -> Array:
    """Return what rounding in errors (k x m) is relative to beside their length, (k,).

    A count and its mean cancel where a row fits well; s is the mean, and s - e the count, each
    times the weight. In a logistic error nothing cancels, and a linear model's sums have none.
    """
    if kind is not Kind.POISSON:
        return np.zeros(len(curvature))
    cancelled: Array = curvature + np.abs(curvature - error) - np.abs(error)
    return cancelled[:, 0]


class RowsSummed(NamedTuple):
    """Rows that were added to sums (``sign`` 1) or subtracted from them (-1)."""

    rows: Contribution
    sign: int


@dataclass(slots=True)
class Sums:
    """Sums over the live rows; `changed` returns new ones, and these stay as they are.

    With N the n x q matrix of 0 and 1 that says which entries a row has; what has curvatures in it
    has a part for each of h blocks, side by side (`engine.fit.blocks`):

    Attributes
    ----------
    rows
        Number of rows.
    counts
        (q,) N^T 1.
    present
        (p,) of one-hot features the rows of the category, 0 of what rare ones share; of the others
        those that are not 0.
    first, second
        (p,) sums and sums of squares of each feature, over the rows that have no entry in it.
    target
        (2, q) sums of the target and of its square over the rows of each entry.
    all_target
        (2,) the same over all rows.
    crossed
        q x (h d), C = N^T S X.
    paired
        q x (h q), B = N^T S N.
    responses
        q x m, N^T p.
    weighted
        (h d,) X^T s.
    errors
        d x m, X^T e; d x 0 of a linear model.
    square_size, response_size, error_size
        Sums over all blocks of s |x|^2, |x| |p| and |x| |e|, the last two with what cancelled in e,
        over every row that ever came or went since the rebuild: what rounding is proportional to.
    longest, reach
        The largest |x_i| and (x_i^T A_b^-1 x_i)^1/2 of a row that was ever there since the rebuild.
    balanced
        A lower bound of the smallest eigenvalue of A_b, in every block, over balanced directions,
        which the rebuild fixes (`engine.preprocess.remainder`).
    since
        What came and went since these sums were written whole, in that order, where that is noted:
        the store keeps sums as they were at a rebuild, and these rows beside them.
    windows
        One for each of `Layout.order`, of the values in base units.
    late
        How many rows' changes are in ``low`` alone of the matrices; at most `_LATE`.
    """

    rows: int
    counts: NDArray[np.int64]
    present: NDArray[np.int64]
    first: Total
    second: Total
    target: Total
    all_target: Total
    crossed: MatrixTotal
    paired: MatrixTotal
    responses: Total
    weighted: Total
    errors: Total
    square_size: float = 0.0
    response_size: float = 0.0
    error_size: float = 0.0
    longest: float = 0.0
    reach: float = 0.0
    balanced: float = 0.0
    windows: tuple[Window, ...] = ()
    since: tuple[RowsSummed, ...] = ()
    late: int = 0

    @classmethod
    def of(
        cls,
        layout: Layout,
        rows: Contribution,
        more: Iterable[Contribution] = (),
        intervals: Sequence[Interval] = (),
    ) -> Sums:
        """Return the sums over ``rows``, and over more of them. Cost O(n (p + g d)).

        ``intervals`` are those of the windows.
        """
        p, q, d, m = layout.features, layout.entries, rows.X.shape[1], rows.response.shape[1]
        h = rows.curvature.shape[1]
        sums = cls(
            rows=0,
            counts=np.zeros(q, dtype=np.int64),
            present=np.zeros(p, dtype=np.int64),
            first=Total.zero(p),
            second=Total.zero(p),
            target=Total.zero(2, q),
            all_target=Total.zero(2),
            crossed=MatrixTotal.zero(q, h * d),
            paired=MatrixTotal.zero(q, h * q),
            responses=Total.zero(q, m),
            weighted=Total.zero(h * d),
            errors=Total.zero(d, rows.error.shape[1]),
            windows=tuple(map(Window.empty, intervals)),
        )
        for part in chain((rows,), more):
            sums._add_all(layout, part, 1)
        return sums

    def changed(self, layout: Layout, rows: Contribution, sign: int) -> Sums:
        """Return the sums with ``rows`` added (``sign`` 1) or subtracted (-1).

        Cost O(k (p + g h d)) and a copy, O(q h (d + q)).
        """
        late = self.late + len(rows)
        late = late if late <= _LATE and len(rows) <= _DENSE else 0
        after = self._copy(joined=late == 0)
        after.late = late
        after._add_all(layout, rows, sign)
        return after

    def _copy(self, *, joined: bool) -> Sums:
        copied = copy(self)
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, MatrixTotal):
                setattr(copied, each.name, value.copy(joined=joined))
            elif isinstance(value, Total):
                setattr(copied, each.name, Total(value.high.copy(), value.low.copy()))
            elif isinstance(value, np.ndarray):
                setattr(copied, each.name, value.copy())
        return copied

    def block(self, c: int, h: int) -> Sums:
        """Return the sums of block c of h: views, and scalars that bound those of each block."""
        if h == 1:
            return self
        own = copy(self)
        for name in ("crossed", "paired", "weighted", "responses", "errors"):
            total = getattr(self, name)
            width = total.high.shape[-1] // h
            part = (..., slice(c * width, (c + 1) * width))
            setattr(own, name, type(total)(total.high[part], total.low[part]))
        return own

    @property
    def nbytes(self) -> int:
        """Bytes of what grows with entries and features."""
        totals = (self.crossed, self.paired, self.responses, self.weighted)
        since = sum(rows.X.nbytes for rows, _ in self.since)
        windows = sum(window.values.nbytes + window.counts.nbytes for window in self.windows)
        return sum(total.high.nbytes + total.low.nbytes for total in totals) + since + windows

    def allowance(self, theta: Array) -> float:
        """Return what rounding of these sums, and of the rows, does to a gradient at ``theta``."""
        return gradient_allowance(self.square_size * norm(theta) + self.response_size)

    def _add_all(self, layout: Layout, rows: Contribution, sign: int) -> None:
        """Add rows, or subtract them, in place."""
        for start in range(0, len(rows), _SUMMED):
            self._add(layout, rows.take(slice(start, start + _SUMMED)), sign)

    def _add(self, layout: Layout, rows: Contribution, sign: int) -> None:
        """Add a block of rows, or subtract it, in place."""
        features, y = rows.X[:, : layout.features], rows.target
        row_of, place = np.nonzero(rows.entries[:, : layout.moving] >= 0)
        entry = rows.entries[row_of, place]
        plain = features.copy()
        plain[row_of, layout.entry_feature[entry]] = 0.0
        self.rows += sign * len(rows)
        self.present += sign * _rows_of_features(layout, rows)
        self.first.add(sign * plain.sum(axis=0))
        self.second.add(sign * (plain * plain).sum(axis=0))
        self.all_target.add(sign * np.array([y.sum(), y @ y]))
        each = rows.curvature.T
        self.weighted.add(sign * np.concatenate([s @ rows.X for s in each]))
        x = lengths(rows.X)
        self.square_size += sum(float(s @ x**2) for s in each)
        self.response_size += float(x @ (lengths(rows.response) + rows.cancelled))
        self.errors.add(sign * (rows.X.T @ rows.error))
        self.error_size += float(x @ (lengths(rows.error) + rows.cancelled))
        self.longest = float(np.max(x, initial=self.longest))
        self.reach = float(np.max(rows.reach, initial=self.reach))
        self.windows = tuple(
            window.changed(_known(features, rows.entries, of), sign)
            for window, of in zip(self.windows, layout.order, strict=True)
        )
        if not len(entry):
            return
        N = _indicator(row_of, entry, (len(rows), layout.entries))
        self.counts += sign * np.bincount(entry, minlength=layout.entries)
        self.target.add(sign * (N.T @ np.column_stack([y, y * y])).T)
        self.responses.add(sign * (N.T @ rows.response))
        scaled, late = [(sign * s)[:, None] for s in each], self.late > 0
        self.crossed.add_product(N, _beside([s * rows.X for s in scaled]), late=late)
        self.paired.add_product(N, _beside([N * s for s in scaled]), late=late)


def _known(features: Array, entries: Places, of: OrderPart) -> Array:
    """Return the values of a column that are there."""
    values: Array = features[:, of.part.feature]
    return values if of.gap < 0 else values[entries[:, of.gap] < 0]


def _rows_of_features(layout: Layout, rows: Contribution) -> Places:
    """Return what the rows are in `Sums.present`."""
    found: Places = np.count_nonzero(rows.X[:, : layout.features], axis=0)
    for place, hot in enumerate(layout.counted, layout.moving):
        category = rows.entries[:, place]
        known = category[category >= 0] - hot.first
        found[hot.features] = np.bincount(known, minlength=hot.width)
    return found


def _indicator(row_of: Places, column: Places, shape: tuple[int, int]) -> Array | csr_array:
    """Return the matrix that is 1 in these columns of these rows."""
    if shape[0] > _DENSE:
        return csr_array((np.ones(len(column)), (row_of, column)), shape=shape)
    dense = np.zeros(shape)
    dense[row_of, column] = 1.0
    return dense


def _beside(parts: list[Array | csr_array]) -> Array | csr_array:
    if len(parts) == 1:
        return parts[0]
    return hstack(parts, format="csr") if issparse(parts[0]) else np.hstack(parts)


def _dense(product: Array | csr_array) -> Array:
    return product if isinstance(product, np.ndarray) else np.asarray(product.toarray())
