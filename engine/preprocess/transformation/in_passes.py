"""The base transformation of rows that are read in blocks: their statistics, in two passes.

Where order statistics are kept, in two more (`engine.preprocess.transformation.order_in_passes`).

A first pass finds means, a second what is left of each and the squares about it. Rounding differs
from that of `engine.preprocess.transformation.base.fit_base`, and nothing else: the statistics
that are published come from `engine.preprocess.transformation.sums`, in units of this base.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial, reduce
from operator import add

import numpy as np
from numpy.typing import NDArray

from lethe.engine.fit.objective import Array
from lethe.engine.preprocess.input.columns import TargetEncode
from lethe.engine.preprocess.input.table import Table, Vocabulary
from lethe.engine.preprocess.transformation.base import (
    BaseTransformation,
    BeginBase,
    category_counts,
    check_target,
)
from lethe.engine.preprocess.transformation.blocks import GivenInBlocks
from lethe.engine.preprocess.transformation.categories import OneHotPart
from lethe.engine.preprocess.transformation.encoding import (
    TargetMoments,
    ordinal_codes,
    smoothed_means,
)
from lethe.engine.preprocess.transformation.layout import Layout
from lethe.engine.preprocess.transformation.order_in_passes import windows_in_passes


@dataclass(frozen=True, slots=True)
class _Moments:
    """Sums over some rows: of each column of numbers, the target last, and of each entry.

    Attributes
    ----------
    n
        Number of rows.
    known, total, squares, least, most
        (a + 1,) of the values that are there: how many, their sums and those of their squares, less
        an origin, and the ends of their range, as they are.
    counts
        (q,) rows of each category that is encoded.
    target, target_squares
        (q,) their sums of the target and of its square, less the origin.
    """

    n: int
    known: NDArray[np.int_]
    total: Array
    squares: Array
    least: Array
    most: Array
    counts: NDArray[np.int_]
    target: Array
    target_squares: Array

    def __add__(self, other: _Moments) -> _Moments:
        return _Moments(
            self.n + other.n,
            self.known + other.known,
            self.total + other.total,
            self.squares + other.squares,
            np.minimum(self.least, other.least),
            np.maximum(self.most, other.most),
            self.counts + other.counts,
            self.target + other.target,
            self.target_squares + other.target_squares,
        )

    @property
    def mean(self) -> Array:
        """(a + 1,) less the origin."""
        return self.total / np.maximum(self.known, 1)

    @property
    def differ(self) -> NDArray[np.bool_]:
        """(a + 1,) whether values that are there differ."""
        return self.least < self.most


@np.errstate(over="ignore", invalid="ignore")
def _moments(layout: Layout, origin: Array, table: Table, y: Array, _: Array) -> _Moments:
    values = np.column_stack([table.numbers, y[:, 0]])
    there = ~np.isnan(values)
    off = np.where(there, values - origin, 0.0)
    counts = np.zeros(layout.entries, dtype=np.int_)
    target, squares = np.zeros(layout.entries), np.zeros(layout.entries)
    t = off[:, -1]
    for coded in layout.coded:
        entry, own = coded.entry_of[table.codes[:, coded.source]] - coded.first, coded.entries
        k = len(coded.codes)
        counts[own] = np.bincount(entry, minlength=k)
        target[own] = np.bincount(entry, weights=t, minlength=k)
        squares[own] = np.bincount(entry, weights=t * t, minlength=k)
    return _Moments(
        len(table),
        there.sum(axis=0),
        off.sum(axis=0),
        (off * off).sum(axis=0),
        values.min(axis=0, initial=np.inf, where=there),
        values.max(axis=0, initial=-np.inf, where=there),
        counts,
        target,
        squares,
    )


@np.errstate(over="ignore", invalid="ignore")  # what is not finite then is refused
def fit_base_in_passes(
    layout: Layout, vocabularies: Sequence[Vocabulary], rows: GivenInBlocks, *, centred: bool
) -> BaseTransformation:
    """Fit the transformation to rows, in two passes; as `fit_base`, errors too. Cost O(n p)."""
    first = reduce(add, rows.each(partial(_moments, layout, np.zeros(len(layout.numeric) + 1))))
    # Of equal values that value, and not a rounded mean away from it; of none 0.
    one = (first.known > 0) & ~first.differ
    origin = np.where(one, first.least, first.mean)
    found = reduce(add, rows.each(partial(_moments, layout, origin)))
    n, left = found.n, found.mean
    variance = np.maximum(found.squares - found.known * left**2, 0.0) / n
    encodes = any(isinstance(part.column, TargetEncode) for part in layout.coded)
    target_mean = float(origin[-1]) if encodes else 0.0
    if encodes:
        check_target(target_mean, float(variance[-1]), found.differ[-1])
    begun = BeginBase(layout, n, target_mean, centred=centred)
    windows = windows_in_passes(layout, rows)
    for part in layout.numeric:
        j = part.source
        known = int(found.known[j])
        seen = known if part.column.scaler_first and known else n  # values that scalers see
        fill = begun.order(part, windows.get(part.feature, []), seen - known, origin[j] + left[j])
        imputed = left[j] if fill is None else fill - origin[j]
        share, off = (seen - known) / seen, imputed - left[j]
        spread = variance[j] * (n / seen) + share * (1.0 - share) * off**2
        of = origin[j], left[j] + share * off, spread, found.differ[j]
        unit = begun.placed(part.feature, *of, np.array([imputed]), seen)
        if part.entry >= 0:
            begun.value[part.entry] = unit[0]
    totals = float(found.total[-1]), float(found.squares[-1]), n
    for coded in layout.coded:
        own = coded.entries
        counts = found.counts[own]
        if isinstance(coded.column, TargetEncode):
            moments = TargetMoments(found.target[own], found.target_squares[own], *totals)
            known_from, values = target_mean, smoothed_means(coded.column.smooth, counts, moments)
        else:
            known_from = 0.0
            values = ordinal_codes(coded, vocabularies[coded.source], counts)
        there = values[counts > 0]
        differ = bool((there != there[0]).any())
        mean = float(counts @ values) / n if differ else float(there[0])
        spread = float(counts @ (values - mean) ** 2) / n
        of = known_from, mean, spread, differ
        begun.value[own] = begun.placed(coded.feature, *of, values, n)
    for hot in layout.counted:
        counted = reduce(add, rows.each(partial(_category_counts, hot)))
        begun.categories(hot, counted, vocabularies[hot.source])
    return begun.base()


def _category_counts(hot: OneHotPart, table: Table, *_: Array) -> NDArray[np.int64]:
    return category_counts(hot, table)
