"""What a pipeline has learnt from its live rows, as fractions: functions of the sums over raw rows.

They are those of `engine.preprocess.transformation.statistics`, without rounding and in the units
of the table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import flint
import numpy as np
from numpy.typing import NDArray

from lethe.engine.exact.sums import Sums
from lethe.engine.fit.factor import EPS
from lethe.engine.preprocess.input.columns import Ordinal, TargetEncode
from lethe.engine.preprocess.rounded.raw import RawColumns
from lethe.engine.preprocess.transformation.encoding import ordinal_codes
from lethe.engine.preprocess.transformation.layout import CodedPart, Layout, Places
from lethe.engine.preprocess.transformation.statistics import Statistics

_DIGITS = 128
"""Bits of a deviation before it is rounded."""


class Whole:
    """The sums over raw rows as whole numbers: ``entries[j][k]`` 2^(exponent + unit_j + unit_k)."""

    def __init__(self, sums: Sums) -> None:
        whole, self.exponent = sums.entries.integers()
        self.entries: list[list[int]] = whole.tolist()
        self.unit: list[int] = sums.unit.tolist()
        self.d, self.m = sums.d, sums.m

    def of(self, j: int, k: int) -> Any:
        """Return the sum of column j times column k, a fraction."""
        exponent = self.exponent + self.unit[j] + self.unit[k]
        whole = self.entries[j][k]
        if exponent >= 0:
            return flint.fmpq(whole << exponent)
        return flint.fmpq(whole, 1 << -exponent)


@dataclass(frozen=True, slots=True)
class ExactStatistics:
    """Statistics of n live rows.

    Attributes
    ----------
    rows
        n.
    counts
        (q,) rows of each entry.
    present
        (p,) rows of each one-hot feature (`CategoryFeatures.rows`); n of the others.
    value
        (q,) of each entry: the mean of a column's numbers, or a category's code.
    mean, variance
        (p,) of each feature, with entries by their values where a scaler has seen these.
    scaled
        (p,) whether a feature is divided by its standard deviation.
    left_out
        (p,) whether a one-hot feature is left out (`CategoryFeatures`).
    rare
        (p,) whether a category has no feature but the one that rare ones share.
    idle
        (p,) whether a feature has one value in all rows or is left out, so that its parameter is 0.
    centred
        (p,) whether the mean is subtracted.
    target_mean
        Of the first target.
    """

    rows: int
    counts: NDArray[np.int64]
    present: NDArray[np.int64]
    value: tuple[Any, ...]
    mean: tuple[Any, ...]
    variance: tuple[Any, ...]
    scaled: NDArray[np.bool_]
    left_out: NDArray[np.bool_]
    rare: NDArray[np.bool_]
    idle: NDArray[np.bool_]
    centred: NDArray[np.bool_]
    target_mean: Any

    @classmethod
    def of(cls, raw: RawColumns, S: Whole) -> ExactStatistics:
        """Return the statistics of the rows that S is of, each with a weight of 1.

        Cost O(p + q) fractions.
        """
        layout, one, target = raw.layout, raw.one, S.d
        n = int(S.of(one, one).p)
        counts = np.array([int(S.of(int(e), one).p) for e in raw.entries], dtype=np.int64)
        present = np.full(layout.features, n, dtype=np.int64)
        zero = flint.fmpq(0)
        value, mean = [zero] * layout.entries, [zero] * layout.features
        variance, rows = [zero] * layout.features, [n] * layout.features  # that scalers learn from
        left_out, rare = np.zeros((2, layout.features), dtype=np.bool_)
        for hot in layout.one_hot:
            coded_rows = np.array([int(S.of(int(j), one).p) for j in raw.own[hot.categories]])
            found = hot.found(coded_rows, n, raw.vocabularies[hot.source])
            places = hot.features
            present[places], left_out[places], rare[places], _ = found
            if hot.shared is not None and n:
                share = flint.fmpq(int(present[hot.shared]), n)
                mean[hot.shared], variance[hot.shared] = share, share - share * share
        for j, column in enumerate(raw.own):
            if column < 0:
                continue
            total, squares = S.of(int(column), one), S.of(int(column), int(column))
            entry = _gap(raw, j)
            known = n if entry is None else n - int(counts[entry])
            if known:
                mean[j] = total / known
                rows[j] = known if layout.scaler_first[j] else n
                variance[j] = (squares - total * mean[j]) / rows[j]
            if entry is not None:
                value[entry] = mean[j]
        total = S.of(target, one)
        for coded in layout.coded:
            own = range(coded.first, coded.first + len(coded.codes))
            if isinstance(coded.column, TargetEncode):
                codes = _smoothed(coded, raw, S, counts, n, target)
            else:
                listed = ordinal_codes(coded, raw.vocabularies[coded.source], counts[coded.entries])
                codes = [flint.fmpq(int(code)) for code in listed]
            first = sum((int(counts[e]) * v for e, v in zip(own, codes, strict=True)), zero)
            second = sum((int(counts[e]) * v * v for e, v in zip(own, codes, strict=True)), zero)
            for e, code in zip(own, codes, strict=True):
                value[e] = code
            mean[coded.feature] = first / max(n, 1)
            variance[coded.feature] = second / max(n, 1) - mean[coded.feature] ** 2
        constant = np.array(
            [_is_constant(*of) for of in zip(variance, mean, rows, strict=True)], dtype=np.bool_
        )
        same = np.array([v == 0 for v in variance], dtype=np.bool_)
        nothing = np.array(
            [v == 0 and m == 0 for v, m in zip(variance, mean, strict=True)], dtype=np.bool_
        )
        return cls(
            n, counts, present, tuple(value), tuple(mean), tuple(variance),
            scaled=layout.scaled & ~constant,
            left_out=left_out,
            rare=rare,
            idle=np.where(raw.settings.free_intercept | layout.centred, same, nothing) | left_out,
            centred=layout.centred,
            target_mean=total / max(n, 1),
        )  # fmt: skip

    def sharing(self, layout: Layout, feature: int) -> Places:
        """Return the features of the rare categories that share a feature; none of another."""
        for hot in layout.one_hot:
            if hot.shared == feature:
                return hot.first + np.flatnonzero(self.rare[hot.categories])
        return np.empty(0, dtype=np.intp)

    def rounded(self, raw: RawColumns) -> Statistics:
        """Return the statistics as float64, each rounded once, for what reads new rows."""
        layout = raw.layout
        mean = np.where(self.centred, [nearest(m) for m in self.mean], 0.0)
        deviation = np.array(
            [
                _root(v) if scaled else 1.0
                for v, scaled in zip(self.variance, self.scaled, strict=True)
            ]
        )
        value = np.where(self.counts > 0, [nearest(v) for v in self.value], 0.0)
        imputed = np.zeros(layout.features)
        for part in layout.numeric:
            imputed[part.feature] = nearest(self.mean[part.feature])
        nothing = np.zeros(layout.entries)
        target_mean = nearest(self.target_mean)
        ones = np.ones(layout.features)
        return Statistics(
            value, mean, deviation, nothing, ones, np.abs(mean), imputed, target_mean,
            self.present, self.rare,
        )  # fmt: skip


def nearest(fraction: Any) -> float:
    """Return the float64 nearest to a fraction."""
    return int(fraction.p) / int(fraction.q)


def _root(fraction: Any) -> float:
    with flint.ctx.workprec(_DIGITS):
        return float(flint.arb(fraction).sqrt())


def _gap(raw: RawColumns, feature: int) -> int | None:
    """Return the entry of the missing numbers of a feature, if it has one."""
    found = np.flatnonzero(raw.layout.gap_features == feature)
    return int(raw.layout.gap_entries[found[0]]) if len(found) else None


def _is_constant(variance: Any, mean: Any, n: int) -> bool:
    """Return whether scikit-learn takes a column for constant, by its rule without rounding."""
    eps = flint.fmpq(*EPS.as_integer_ratio())
    off = n * mean * eps
    return bool(variance <= n * eps * variance + off * off)


def _smoothed(
    coded: CodedPart, raw: RawColumns, S: Whole, counts: NDArray[np.int64], n: int, target: int
) -> list[Any]:
    """Return the smoothed means of the target, as `transformation.encoding.smoothed_means`."""
    column = coded.column
    if isinstance(column, Ordinal):
        raise TypeError("an Ordinal has no smoothed means")
    mean = S.of(target, raw.one) / max(n, 1)
    variance = S.of(target, target) / max(n, 1) - mean * mean
    codes = []
    for i in range(len(coded.codes)):
        count, entry = int(counts[coded.first + i]), int(raw.entries[coded.first + i])
        if not count:
            codes.append(mean)
            continue
        own = S.of(entry, target) / count
        if column.smooth == "auto":
            squares = S.of(raw.smoothed[coded.feature] + i, target)
            weight = variance * count
            of = weight + squares / count - own * own
        else:
            weight = flint.fmpq(count)
            of = weight + flint.fmpq(*float(column.smooth).as_integer_ratio())
        codes.append(mean if of == 0 else mean + weight / of * (own - mean))
    return codes
