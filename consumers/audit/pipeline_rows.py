"""Rows as a refitted pipeline transforms them, by code that the engine does not use.

Statistics are taken afresh from the live rows as they were given, in extended precision where the
machine has it, and as scikit-learn's transformers define them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from lethe.engine.fit.objective import Array, Rows, RowsInBlocks
from lethe.engine.store.layout.columns import ColumnRecord
from lethe.engine.store.offline.live_rows import Given

Long: TypeAlias = NDArray[np.longdouble]
AnyLong: TypeAlias = Long | np.longdouble
T = TypeVar("T")

_NUMBERS = ("numeric", "date")


class PipelineRows:
    """The rows of the pipeline's last step, in the blocks in which they were ``given``.

    The statistics take two passes, means and then squares; each `blocks` is another one.
    Cost O(n p) a pass.
    """

    def __init__(
        self,
        columns: Sequence[ColumnRecord],
        given: Callable[[], Iterable[Given]],
        *,
        intercept: bool,
    ) -> None:
        self._columns, self._given, self._intercept = columns, given, intercept
        self._learnt = _learnt(columns, given)

    def __len__(self) -> int:
        return self._learnt.n

    @property
    def outputs(self) -> int:
        """How many targets each has."""
        return self._learnt.outputs

    def each(self, kernel: Callable[[Rows], T]) -> Iterator[T]:
        """Yield what a kernel makes of each block."""
        return map(kernel, self.blocks())

    def blocks(self) -> Iterator[Rows]:
        """Yield the rows, with d features each, in extended precision.

        Rounded to float64, they would move the minimiser by more than the error of one whose every
        digit is right.
        """
        for given in self._given():
            features = list(self._features(given))
            if self._intercept:
                features.append(np.ones((len(given.table), 1), dtype=np.longdouble))
            yield Rows(cast("Array", np.hstack(features)), given.y, given.weight)

    def rounded(self) -> RowsInBlocks:
        """Return the rows, in blocks, as float64."""
        return _Rounded(self)

    def in_memory(self) -> Rows:
        """Return all rows, as float64."""
        parts = list(self.rounded().blocks())
        return Rows(
            np.concatenate([part.X for part in parts]),
            np.concatenate([part.y for part in parts]),
            np.concatenate([part.weight for part in parts]),
        )

    def _features(self, given: Given) -> Iterator[Long]:
        learnt, numbers, codes = self._learnt, 0, 0
        for column in self._columns:
            if column.step in _NUMBERS:
                x = given.table.numbers[:, numbers].astype(np.longdouble)
                fill, mean, deviation = learnt.scaling(column, numbers)
                numbers += 1
                yield ((np.where(np.isnan(x), fill, x) - mean) / deviation)[:, None]
                continue
            own, counts = given.table.codes[:, codes], learnt.counts[codes]
            if column.step == "one-hot":
                codes += 1
                place = np.array(feature_of_each(column, counts.tolist(), learnt.n))
                features = np.arange(len(counts) + int(column.shares))
                has = place[:, None] == features
                share = counts @ has / np.longdouble(learnt.n)
                hot = has[own].astype(np.longdouble)
                yield _scaled(column, hot, share, share * (1 - share), learnt.n)
                continue
            of = _ordinal(column, counts)
            if column.step == "target-encode":
                of = learnt.target_means(column, codes)
            codes += 1
            share = counts / np.longdouble(learnt.n)
            mean = np.sum(share * of)
            variance = np.sum(share * (of - mean) ** 2)
            yield _scaled(column, of[own][:, None], mean, variance, learnt.n)


@dataclass(frozen=True, slots=True)
class _Rounded:
    """Rows in blocks as float64."""

    rows: PipelineRows

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def outputs(self) -> int:
        return self.rows.outputs

    def each(self, kernel: Callable[[Rows], T]) -> Iterator[T]:
        return map(kernel, self.blocks())

    def blocks(self) -> Iterator[Rows]:
        return (replace(block, X=block.X.astype(np.float64)) for block in self.rows.blocks())


@dataclass(frozen=True, slots=True)
class _Learnt:
    """Statistics of n rows: of columns of numbers, and of each category of the others."""

    n: int
    outputs: int
    known: NDArray[np.int_]
    mean: Long
    variance: Long
    counts: list[NDArray[np.int_]]
    own: list[Long]
    within: list[Long]
    overall: np.longdouble
    spread: np.longdouble
    numbers: list[Long]

    def scaling(self, column: ColumnRecord, place: int) -> tuple[AnyLong, ...]:
        """Return what fills a gap in a column of numbers, and what is subtracted and divides."""
        known = self.numbers[place]
        fill, variance = self.mean[place], self.variance[place]
        if column.impute == "median" and len(known):
            fill = np.median(known)
        elif column.impute == "most_frequent" and len(known):
            values, counts = np.unique(known, return_counts=True)
            fill = values[np.argmax(counts)]
        seen = self.known[place] if column.scaler_first and self.known[place] else self.n
        missing = seen - self.known[place]
        share = missing / np.longdouble(seen)
        mean = self.mean[place] + share * (fill - self.mean[place])
        variance = variance * (self.n / np.longdouble(seen))
        variance += share * (1 - share) * (fill - self.mean[place]) ** 2
        if column.standardise in (True, False, "centre", "scale"):
            return fill, *_halves(column, mean, variance, int(seen))
        filled = np.append(known, np.full(missing, fill))
        return fill, *_by_order(column, filled)

    def target_means(self, column: ColumnRecord, place: int) -> Long:
        """Return the smoothed mean of the target in each category of a column."""
        n, own = self.counts[place].astype(np.longdouble), self.own[place]
        if column.smooth == "auto":
            below = self.spread * n + self.within[place]
            share = np.where(below > 0, self.spread * n / np.where(below > 0, below, 1.0), 0.0)
        else:
            below = n + np.longdouble(column.smooth)
            share = n / np.where(below > 0, below, 1.0)
        means: Long = share * own + (1 - share) * self.overall
        return means


def _learnt(columns: Sequence[ColumnRecord], given: Callable[[], Iterable[Given]]) -> _Learnt:
    coded = [column for column in columns if column.step not in _NUMBERS]
    a, n, outputs = len(columns) - len(coded), 0, 1
    known = np.zeros(a, dtype=np.int_)
    mean, variance = (np.zeros(a, dtype=np.longdouble) for _ in range(2))
    ordered = [_keeps_order(column) for column in columns if column.step in _NUMBERS]
    numbers: list[list[Long]] = [[np.empty(0, dtype=np.longdouble)] for _ in ordered]
    counts = [np.zeros(len(column.categories), dtype=np.int_) for column in coded]
    own = [np.zeros(len(each), dtype=np.longdouble) for each in counts]
    within = [np.zeros(len(each), dtype=np.longdouble) for each in counts]
    overall = spread = np.longdouble(0)
    for table, y, _ in given():
        x, t = table.numbers.astype(np.longdouble), y[:, 0].astype(np.longdouble)
        known += (~np.isnan(x)).sum(axis=0)
        mean += np.nansum(x, axis=0)
        n, outputs, overall = n + len(table), y.shape[1], overall + t.sum()
        for kept, column in zip(compress(numbers, ordered), x.T[ordered], strict=True):
            kept.append(column[~np.isnan(column)])
        for j, codes in enumerate(table.codes.T):
            counts[j] += np.bincount(codes, minlength=len(counts[j]))
            np.add.at(own[j], codes, t)
    mean /= np.maximum(known, 1)
    overall /= max(n, 1)
    own = [total / np.maximum(each, 1) for each, total in zip(counts, own, strict=True)]
    for table, y, _ in given():
        x, t = table.numbers.astype(np.longdouble), y[:, 0].astype(np.longdouble)
        variance += np.nansum((x - mean) ** 2, axis=0)
        spread += ((t - overall) ** 2).sum()
        for j, codes in enumerate(table.codes.T):
            np.add.at(within[j], codes, (t - own[j][codes]) ** 2)
    within = [total / np.maximum(each, 1) for each, total in zip(counts, within, strict=True)]
    variance, spread = variance / max(n, 1), spread / max(n, 1)
    values = [np.concatenate(kept) for kept in numbers]
    return _Learnt(n, outputs, known, mean, variance, counts, own, within, overall, spread, values)


def _keeps_order(column: ColumnRecord) -> bool:
    moments = column.standardise in (True, False, "centre", "scale")
    return not moments or column.impute in ("median", "most_frequent")


def _by_order(column: ColumnRecord, values: Long) -> tuple[np.longdouble, np.longdouble]:
    """Return what is subtracted and what divides, by order statistics of n values."""
    least, lower, middle, upper, most = np.quantile(values, [0, 0.25, 0.5, 0.75, 1])
    if column.standardise == "robust":
        return middle, _not_constant(upper - lower)
    if column.standardise == "max-abs":
        return np.longdouble(0), _not_constant(np.abs(values).max())
    low, high = cast("tuple[float, float]", column.standardise)
    scale = _not_constant(most - least) / (np.longdouble(high) - low)
    return least - low * scale, scale


def _not_constant(spread: np.longdouble) -> np.longdouble:
    """Return a range; 1 where scikit-learn counts a column as constant by it."""
    return np.longdouble(1) if spread < 10 * np.finfo(np.float64).eps else spread


def feature_of_each(column: ColumnRecord, counts: Sequence[int], n: int) -> list[int]:
    """Return the place of the feature of each code of a one-hot column, -1 for none.

    ``counts`` are the rows of each code, of n; rare categories share a feature, the last.
    """
    gap = mode = -1
    if column.impute == "most_frequent":
        gap = column.categories.index(None)
        mode = max((c for c in range(len(counts)) if c != gap), key=lambda c: (counts[c], -c))
        counts = [count + (c == mode) * counts[gap] for c, count in enumerate(counts)]
        counts[gap] = 0
    there = {code: count for code, count in enumerate(counts) if count or column.ordered}
    least, most = column.min_frequency, column.max_categories
    if least is None:
        rare = set()
    else:
        rare = {c for c, count in there.items() if count < (n * least if least < 1 else least)}
    if most is not None and len(there) - len(rare) + 1 > most:
        ascending = sorted(there, key=lambda code: (there[code], code))
        rare |= set(ascending[: len(there) - most + 1])
    place = {code: len(counts) if code in rare else code for code in there}
    left = sorted(set(place.values()))
    dropped: int | None = None
    if isinstance(column.drop, tuple):
        dropped = next((i for i in there if column.categories[i] == column.drop[0]), None)
    elif column.drop == "first" or (column.drop == "if_binary" and len(left) == len("ab")):
        dropped = left[0] if left else None
    if gap >= 0:
        place[gap] = place[mode]
    return [-1 if place.get(c, -1) == dropped else place.get(c, -1) for c in range(len(counts))]


def _ordinal(column: ColumnRecord, counts: NDArray[np.int_]) -> Long:
    """Return the place of each category: among those that were named, or that are there."""
    there = np.ones_like(counts) if column.ordered else (counts > 0)
    return np.asarray(np.cumsum(there) - 1, dtype=np.longdouble)


def _halves(
    column: ColumnRecord, mean: AnyLong, variance: AnyLong, n: int
) -> tuple[AnyLong, AnyLong]:
    """Return what is subtracted and what divides; 1 where scikit-learn counts one as constant."""
    eps = np.finfo(np.float64).eps
    constant = variance <= n * eps * variance + (n * mean * eps) ** 2
    deviation = np.where(constant, np.longdouble(1), np.sqrt(variance))
    return (
        mean if column.standardise in (True, "centre") else np.longdouble(0),
        deviation if column.standardise in (True, "scale") else np.longdouble(1),
    )


def _scaled(column: ColumnRecord, values: Long, mean: AnyLong, variance: AnyLong, n: int) -> Long:
    """Return a column's features by their moments."""
    centre, scale = _halves(column, mean, variance, n)
    return (values - centre) / scale
