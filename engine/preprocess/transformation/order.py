"""Order statistics of columns whose rows come and go, without the rows: medians, extremes, modes.

A *window* is an interval of values. Of the rows within it each value is counted; of the others no
more is known than how many are below it and above it. So rows come and go in any order, and an
order statistic is exact as long as its rank is within. Once it has left the window, a rebuild lays
another one about it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lethe.engine.errors import InvalidData, StatisticsMoved
from lethe.engine.fit.factor import EPS
from lethe.engine.fit.objective import Array
from lethe.engine.preprocess.input.columns import Numeric, by_order

REACH = 256
"""Distinct values that a window has on each side of its rank: 8 KB. As many rows as that may leave
at one end before a rebuild, and of rows that leave at random, thousands of times as many."""

MOST_VALUES = 4 * REACH
"""Distinct values of a column whose most frequent one is kept: all of them are counted."""

_LARGEST = float(np.finfo(np.float64).max)

_CONSTANT = 10.0 * EPS
"""scikit-learn takes a smaller range, or distance of quartiles, for that of a constant."""

_EITHER = 1.0 / _CONSTANT**2 / EPS
"""`Scaling.amplified` where rounding decides if a column is one: its scale is then 1 or tiny."""

_MEAN = 32.0  # roundings in a mean


class Interval(NamedTuple):
    """The values that a window counts, both ends included; without an end, up to float64's."""

    low: float = -_LARGEST
    high: float = _LARGEST


@dataclass(frozen=True, slots=True)
class Filled:
    """Missing values: how many there are, and what stands in for them.

    ``size`` is what rounding in that is proportional to, if it is more than the value.
    """

    value: float = 0.0
    times: int = 0
    size: float = 0.0

    def size_among(self, statistics: Sequence[float]) -> float:
        """Return the size where one of these may be the value, as it is or without rounding."""
        off = _MEAN * EPS * self.size
        near = any(abs(one - self.value) <= off for one in statistics)
        return self.size if self.times and near else 0.0


@dataclass(frozen=True, slots=True)
class Window:
    """The live values of a column in an interval.

    Attributes
    ----------
    interval
        It.
    values, counts
        (w,) the values in it that some row has, increasing, and how many rows have each.
    below, above
        How many rows have a value outside, on each side.
    """

    interval: Interval
    values: Array
    counts: NDArray[np.int64]
    below: int = 0
    above: int = 0

    @classmethod
    def empty(cls, interval: Interval) -> Window:
        """Return a window of no rows."""
        return cls(interval, np.empty(0), np.empty(0, dtype=np.int64))

    @classmethod
    def of(cls, values: Array) -> Window:
        """Return the window of all ``values``. Cost O(n log n)."""
        return cls.empty(Interval()).changed(values, 1)

    def narrowed(self, least: float, most: float, reach: int) -> Window:
        """Return a window of the values from ``least`` to ``most``, and ``reach`` on each side."""
        start = max(int(np.searchsorted(self.values, least)) - reach, 0)
        stop = int(np.searchsorted(self.values, most, side="right")) + reach
        stop = min(stop, len(self.values))
        return Window(
            Interval(
                float(self.values[start]) if start else self.interval.low,
                float(self.values[stop - 1]) if stop < len(self.values) else self.interval.high,
            ),
            self.values[start:stop],
            self.counts[start:stop],
            self.below + int(self.counts[:start].sum()),
            self.above + int(self.counts[stop:].sum()),
        )

    def __len__(self) -> int:
        """How many rows it knows of, within and outside."""
        return self.below + int(self.counts.sum()) + self.above

    def changed(self, values: Array, sign: int) -> Window:
        """Return the window with values added (``sign`` 1) or taken away (-1). O(w + k log k)."""
        low, high = self.interval
        inside, counts = np.unique(values[(values >= low) & (values <= high)], return_counts=True)
        below, above = np.count_nonzero(values < low), np.count_nonzero(values > high)
        moved = Window(self.interval, inside, sign * counts, sign * int(below), sign * int(above))
        return self.joined(moved)

    def joined(self, other: Window) -> Window:
        """Return the window of the rows of two windows of the same interval."""
        values, found = np.unique(np.concatenate([self.values, other.values]), return_inverse=True)
        counts = np.zeros(len(values), dtype=np.int64)
        np.add.at(counts, found, np.concatenate([self.counts, other.counts]))
        there = counts != 0
        values, counts = values[there], counts[there]
        return Window(
            self.interval, values, counts, self.below + other.below, self.above + other.above
        )

    def at(self, rank: int, filled: Filled) -> float:
        """Return the value of a rank, from 0 on, among the rows and what is filled in.

        Raises
        ------
        StatisticsMoved
            It is outside.
        """
        fill, times = filled.value, filled.times
        if times and fill <= self.interval.high:
            known = fill >= self.interval.low
            less = self.below + int(self.counts[self.values < fill].sum()) if known else self.below
            if known and less <= rank < less + times:
                return fill
            rank -= times if rank >= less else 0
        place = int(np.searchsorted(np.cumsum(self.counts), rank - self.below, side="right"))
        if not (rank >= self.below and place < len(self.values)):
            raise StatisticsMoved("a median, quartile or extreme has left the values kept about it")
        return float(self.values[place])

    def quantile(self, q: float, filled: Filled | None = None) -> float:
        """Return a quantile by linear interpolation, of one value at least.

        Raises
        ------
        StatisticsMoved
            It is outside.
        """
        lower, upper, share = self.between(q, filled or Filled())
        return lower + share * (upper - lower)

    def between(self, q: float, filled: Filled) -> tuple[float, float, float]:
        """Return the two values that a quantile is between, and its place from 0 to 1."""
        position = (len(self) + filled.times - 1) * q
        rank = math.floor(position)
        lower, share = self.at(rank, filled), position - rank
        return lower, self.at(rank + 1, filled) if share else lower, share

    def mode(self) -> float:
        """Return the most frequent value, and of several the least.

        Raises
        ------
        StatisticsMoved
            There are values outside, or more than are kept.
        """
        if self.below or self.above or len(self.values) > MOST_VALUES:
            raise StatisticsMoved(f"a column has more than {MOST_VALUES} values: none is counted")
        return float(self.values[np.argmax(self.counts)])


def kept_quantiles(column: Numeric) -> tuple[float, ...]:
    """Return the quantiles that a column's statistics are made of, increasing."""
    kept: set[float] = {0.5} if column.impute in ("median", "most_frequent") else set()
    if column.standardise == "robust":
        kept |= {0.25, 0.5, 0.75}
    elif by_order(column.standardise):
        kept |= {0.0, 1.0}
    return tuple(sorted(kept))


class Scaling(NamedTuple):
    """What is subtracted from a feature, and what then divides it; whether as from a constant.

    ``amplified`` is what rounding in the scale is proportional to, as a multiple of it, and
    ``centre_size`` what that in the centre is proportional to.
    """

    centre: float
    scale: float
    constant: bool
    amplified: float
    centre_size: float


class Order:
    """Order statistics of one column.

    Parameters
    ----------
    column
        What is done to it.
    windows
        One for each of `kept_quantiles`.
    zero, unit
        What is 0 in the column's own units, and how large 1 is in these.
    """

    def __init__(
        self, column: Numeric, windows: Sequence[Window], zero: float = 0.0, unit: float = 1.0
    ) -> None:
        self.windows = windows
        self._column, self._zero, self._unit = column, zero, unit
        self._of = dict(zip(kept_quantiles(column), windows, strict=True))

    def narrowed(self, missing: int, mean: float) -> Order:
        """Return those of smaller windows, as a base begins with.

        ``mean`` stands in for ``missing`` values where it is what is imputed.

        Raises
        ------
        InvalidData
            The most frequent of more than `MOST_VALUES` values is to be kept.
        """
        if self._column.impute == "most_frequent":
            count = max((len(window.values) for window in self.windows), default=0)
            if count > MOST_VALUES:
                raise InvalidData(
                    f"has {count} values or more, and the most frequent one is kept of up to "
                    f"{MOST_VALUES}; set impute='median'"
                )
            return self
        fill = self.imputed()
        filled = Filled(mean if fill is None else fill, missing)
        windows = []
        for quantile, window in self._of.items():
            least, most = 0.0, 0.0  # of a column without a value
            if len(window):
                least, most, _ = window.between(quantile, filled)
            windows.append(window.narrowed(least, most, REACH))
        return Order(self._column, windows)

    def imputed(self) -> float | None:
        """Return what stands in for a missing value; None if it is no order statistic, or of none.

        Raises
        ------
        StatisticsMoved
            It has left the values that are kept.
        """
        window = self._of.get(0.5)
        if window is None or not len(window):
            return None
        match self._column.impute:
            case "median":
                return window.quantile(0.5)
            case "most_frequent":
                return window.mode()
        return None

    def scaling(self, filled: Filled) -> Scaling | None:
        """Return the scaling once missing values are filled in; None if it is not by order.

        Raises
        ------
        StatisticsMoved
            It has left the values that are kept.
        """
        standardise = self._column.standardise
        if not by_order(standardise):
            return None
        ends, at = [], {}
        for quantile, window in self._of.items():
            lower, upper, share = window.between(quantile, filled)
            ends += [lower, upper]
            at[quantile] = lower + share * (upper - lower)
        if isinstance(standardise, tuple):
            (low, high), centre, spread = standardise, at[0.0], at[1.0] - at[0.0]
        elif standardise == "robust":
            low, high, centre, spread = 0.0, 1.0, at[0.5], at[0.75] - at[0.25]
        else:
            low, high, centre = 0.0, 1.0, self._zero
            spread = max(abs(at[0.0] - centre), abs(at[1.0] - centre))
        constant = spread * self._unit < _CONSTANT
        scale = (1.0 / self._unit if constant else spread) / (high - low)
        filling = filled.size_among(ends)
        size, off = max(*map(abs, ends), abs(centre), filling), _MEAN * EPS * filling
        amplified = 1.0 if constant else 1.0 + 2.0 * size / spread
        if (spread - off) * self._unit < _CONSTANT <= (spread + off) * self._unit:
            amplified = _EITHER
        moved = low * scale
        return Scaling(centre - moved, scale, constant, amplified, size + amplified * abs(moved))
