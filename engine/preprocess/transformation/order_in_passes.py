"""Order statistics of columns whose rows are read in blocks, in two passes.

A first pass takes evenly spaced order statistics of each block: together they tell the rank of a
value to a small share of the rows. A second counts the values near to each quantile that is kept,
and the rows below and above.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce
from itertools import groupby
from operator import add
from typing import TypeAlias

import numpy as np

from lethe.engine.fit.objective import Array
from lethe.engine.preprocess.input.table import Table
from lethe.engine.preprocess.transformation.blocks import GivenInBlocks
from lethe.engine.preprocess.transformation.layout import Layout, OrderPart
from lethe.engine.preprocess.transformation.order import MOST_VALUES, Interval, Window

_TAKEN = 512
"""Values taken of a block: a rank that they tell is off by 1/512 of the rows at most."""

_Taken: TypeAlias = list[tuple[Array, Array]]  # of each quantile: values, and rows for each


def windows_in_passes(layout: Layout, rows: GivenInBlocks) -> dict[int, list[Window]]:
    """Return the windows of each numeric feature whose order statistics are kept.

    They are wider than those that are kept. Two passes, none if nothing is kept; cost O(n log n).
    """
    if not layout.order:
        return {}
    taken = reduce(add, ([part] for part in rows.each(partial(_taken, layout.order))))
    intervals = [
        _about(of, [part[i] for part in taken], len(rows)) for i, of in enumerate(layout.order)
    ]
    counted = rows.each(partial(_counted, layout.order, intervals))
    windows = reduce(
        lambda found, more: [a.joined(b) for a, b in zip(found, more, strict=True)], counted
    )
    pairs = zip(layout.order, windows, strict=True)
    return {
        feature: [window for _, window in found]
        for feature, found in groupby(pairs, lambda pair: pair[0].part.feature)
    }


def _known(table: Table, of: OrderPart) -> Array:
    column = table.numbers[:, of.part.source]
    return column[~np.isnan(column)]


def _taken(order: Sequence[OrderPart], table: Table, *_: Array) -> _Taken:
    """Return evenly spaced order statistics of each column, and how many rows each stands for."""
    found = []
    for of in order:
        known = np.sort(_known(table, of))
        kept = min(len(known), _TAKEN)
        places = np.linspace(0, max(len(known) - 1, 0), kept).round().astype(np.intp)
        found.append((known[places], np.full(kept, len(known) / max(kept, 1))))
    return found


def _about(of: OrderPart, taken: Sequence[tuple[Array, Array]], n: int) -> Interval:
    """Return an interval that a quantile is in, with many of the values next to it."""
    if of.part.column.impute == "most_frequent":
        return Interval()
    values = np.concatenate([values for values, _ in taken])
    rows = np.concatenate([rows for _, rows in taken])
    if not len(values):
        return Interval()
    sorted_ = np.argsort(values)
    values, ranks = values[sorted_], np.cumsum(rows[sorted_])
    known = float(ranks[-1])
    fill = float(np.average(values, weights=rows[sorted_]))
    if of.part.column.impute == "median":
        fill = float(values[np.searchsorted(ranks, known / 2)])
    missing = 0.0 if of.part.column.scaler_first else n - known
    rank = of.quantile * (known + missing)
    less = float(ranks[np.searchsorted(values, fill, side="right") - 1])
    rank = rank if rank <= less else max(rank - missing, less)
    slack = 4.0 * known / _TAKEN + 2.0 * len(taken)
    low, high = np.searchsorted(ranks, [rank - slack, rank + slack])
    whole = Interval()
    return Interval(
        float(values[low - 1]) if rank > slack and low else whole.low,
        float(values[high + 1]) if high + 1 < len(values) else whole.high,
    )


def _counted(
    order: Sequence[OrderPart], intervals: Sequence[Interval], table: Table, *_: Array
) -> list[Window]:
    found = []
    for of, interval in zip(order, intervals, strict=True):
        window = Window.empty(interval).changed(_known(table, of), 1)
        if of.part.column.impute == "most_frequent":  # one more than is kept of: it is refused
            most = slice(MOST_VALUES + 1)
            window = Window(interval, window.values[most], window.counts[most])
        found.append(window)
    return found
