"""A linear pipeline refitted to the last bit, by code that the engine does not use.

Every feature is made row by row as the pipeline makes it, standardised by a square root, and the
normal equations of the last step are solved, all in ball arithmetic: each number carries a bound of
its error, and a parameter is known once its whole ball rounds to one float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import flint
import numpy as np

from lethe.consumers.audit.pipeline_rows import feature_of_each
from lethe.engine.errors import InvalidData
from lethe.engine.fit.objective import Array
from lethe.engine.preprocess.input.table import Table
from lethe.engine.store.layout.columns import ColumnRecord
from lethe.engine.store.offline.live_rows import Given

_BITS, _MOST_BITS = 512, 4096
_BLOCK = 2048  # rows whose features are held at once
_NUMBERS = ("numeric", "date")


def pipeline_refit(
    columns: Sequence[ColumnRecord],
    given: Callable[[], Iterable[Given]],
    *,
    ridge: float,
    intercept: bool,
) -> Array:
    """Return the parameters of the pipeline's last step, each the nearest float64, d x m.

    Parameters
    ----------
    columns
        What is done to each.
    given
        Yields n >= 1 rows, the same each time; weights are for the last step alone.
    ridge, intercept
        Of the last step; an intercept is free.

    Raises
    ------
    InvalidData
        A parameter is beyond float64.

    Notes
    -----
    Cost O(n d^2) products of 512 bits, in two passes, or more where these do not suffice. What
    4,096 bits cannot tell from half way between two numbers counts as half way, and is rounded to
    the even one.
    """
    features = list(_features(columns, _learnt(columns, given)))
    bits = _BITS
    while bits <= _MOST_BITS:
        with flint.ctx.workprec(bits):
            balls = _parameters(features, given, ridge, intercept)
            rounded = _rounded(balls, half_way=bits == _MOST_BITS)
        if rounded is not None:
            return rounded
        bits *= 2
    raise InvalidData("a parameter of the refit is beyond float64")


def _parameters(
    features: Sequence[_Feature],
    given: Callable[[], Iterable[Given]],
    ridge: float,
    intercept: bool,
) -> list[list[Any]]:
    varied = [i for i, feature in enumerate(features) if not feature.is_idle(intercept)]
    d, total = len(varied) + int(intercept), None
    one = flint.arb(1)
    for table, y, weight in _in_blocks(given):
        balls = [[flint.arb(v) for v in column] for column in y.T.tolist()]
        X = [features[i].balls(table) for i in varied]
        X += [[one] * len(table)] if intercept else []
        if total is None:
            total = flint.arb_mat(d, d + len(balls))
        if d:
            weights = [flint.arb(w) for w in weight.tolist()]
            weighted = [[v * w for v, w in zip(x, weights, strict=True)] for x in X]
            total += flint.arb_mat(weighted) * flint.arb_mat(X + balls).transpose()
    if total is None:
        raise AssertionError("there are rows")
    m = total.ncols() - d
    theta = [[flint.arb(0)] * m for _ in range(len(features) + int(intercept))]
    if d == 0:
        return theta
    sums = total.tolist()
    for i in range(len(varied)):
        sums[i][i] += flint.arb(ridge)
    try:
        solved = flint.arb_mat([row[:d] for row in sums]).solve(
            flint.arb_mat([row[d:] for row in sums])
        )
    except ZeroDivisionError as error:
        raise InvalidData("these rows have no single minimiser: the Hessian is singular") from error
    places = [*varied, *([len(features)] if intercept else [])]
    for place, row in zip(places, solved.tolist(), strict=True):
        theta[place] = row
    return theta


def _in_blocks(given: Callable[[], Iterable[Given]]) -> Iterator[Given]:
    for table, y, weight in given():
        for start in range(0, len(table), _BLOCK):
            part = slice(start, start + _BLOCK)
            yield Given(table.take(part), y[part], weight[part])


@dataclass(frozen=True, slots=True)
class _Feature:
    """A feature: of which column of a table, and how a value becomes one, in fractions.

    ``mean`` and ``variance`` are those of ``n`` values, which a scaler sees.
    ``value`` is that of each code; of a column of numbers None, and ``mean`` stands for what is
    missing.
    """

    n: int
    source: int
    mean: Any
    variance: Any
    value: Mapping[int, Any] | None = None
    standardise: object = False

    def is_idle(self, intercept: bool) -> bool:
        """Return whether all rows have one value, of which the parameter is 0."""
        return bool(self.variance == 0 and (intercept or self._centre == self.mean))

    def balls(self, table: Table) -> list[Any]:
        """Return the feature of each row."""
        if self.value is None:
            numbers = table.numbers[:, self.source].tolist()
            values = [self.mean if v != v else _fraction(v) for v in numbers]  # noqa: PLR0124 (NaN)
        else:
            values = [self.value[code] for code in table.codes[:, self.source].tolist()]
        deviation = self._deviation() if self.standardise in (True, "scale") else flint.arb(1)
        made = {v: flint.arb(v - self._centre) / deviation for v in set(values)}
        return [made[v] for v in values]

    @property
    def _centre(self) -> Any:
        return self.mean if self.standardise in (True, "centre") else flint.fmpq(0)

    def _deviation(self) -> Any:
        """Return the deviation: 1 where scikit-learn counts the feature as constant."""
        eps, n = flint.fmpq(1, 2**52), self.n
        least = n * eps * self.variance + (n * self.mean * eps) * (n * self.mean * eps)
        return flint.arb(1) if self.variance <= least else flint.arb(self.variance).sqrt()


@dataclass(slots=True)
class _Moments:
    """How many fractions there were, their sum, and that of their squares."""

    n: int = 0
    total: Any = field(default_factory=lambda: flint.fmpq(0))
    squares: Any = field(default_factory=lambda: flint.fmpq(0))

    def add(self, value: Any, times: int = 1) -> None:
        self.n += times
        self.total += times * value
        self.squares += times * value * value

    @property
    def mean(self) -> Any:
        return self.total / max(self.n, 1)

    @property
    def variance(self) -> Any:
        return self.squares / max(self.n, 1) - self.mean * self.mean


@dataclass(slots=True)
class _Learnt:
    """The known numbers of columns; the target, and within each code of the others."""

    numbers: list[_Moments]
    codes: list[dict[int, _Moments]]
    target: _Moments


def _learnt(columns: Sequence[ColumnRecord], given: Callable[[], Iterable[Given]]) -> _Learnt:
    a = sum(column.step in _NUMBERS for column in columns)
    learnt = _Learnt(
        [_Moments() for _ in range(a)], [{} for _ in range(len(columns) - a)], _Moments()
    )
    for table, y, _ in given():
        t = [_fraction(v) for v in y[:, 0].tolist()]
        for value in t:
            learnt.target.add(value)
        for moments, numbers in zip(learnt.numbers, table.numbers.T, strict=True):
            for number in numbers[~np.isnan(numbers)].tolist():
                moments.add(_fraction(number))
        for within, codes in zip(learnt.codes, table.codes.T, strict=True):
            for code, value in zip(codes.tolist(), t, strict=True):
                within.setdefault(code, _Moments()).add(value)
    return learnt


def _features(columns: Sequence[ColumnRecord], learnt: _Learnt) -> Iterator[_Feature]:
    n, numbers, codes = learnt.target.n, 0, 0
    for column in columns:
        if column.step in _NUMBERS:
            known = learnt.numbers[numbers]
            rows = known.n if column.scaler_first and known.n else n
            variance = known.variance * known.n / rows
            yield _Feature(rows, numbers, known.mean, variance, standardise=column.standardise)
            numbers += 1
            continue
        within = learnt.codes[codes]
        for value in _values(column, within, learnt.target):
            made = _Moments()
            for code, moments in within.items():
                made.add(value[code], moments.n)
            yield _Feature(n, codes, made.mean, made.variance, value, column.standardise)
        codes += 1


def _values(
    column: ColumnRecord, within: Mapping[int, _Moments], target: _Moments
) -> Iterator[Mapping[int, Any]]:
    """Yield the value of each code that a row has, of each feature of a column."""
    if column.step == "one-hot":
        counts = [within[code].n if code in within else 0 for code in range(len(column.categories))]
        feature = feature_of_each(column, counts, target.n)
        for place in range(len(counts) + int(column.shares)):
            yield {code: flint.fmpq(int(feature[code] == place)) for code in within}
    elif column.step == "ordinal":
        ordered = {code: code if column.ordered else i for i, code in enumerate(sorted(within))}
        yield {code: flint.fmpq(place) for code, place in ordered.items()}
    else:
        yield {code: _smoothed(column, own, target) for code, own in within.items()}


def _smoothed(column: ColumnRecord, own: _Moments, target: _Moments) -> Any:
    """Return the smoothed mean of the target in a category."""
    if column.smooth == "auto":
        weight = target.variance * own.n
        of = weight + own.variance
    else:
        weight, of = flint.fmpq(own.n), own.n + _fraction(float(column.smooth))
    return target.mean + (weight / of) * (own.mean - target.mean) if of != 0 else target.mean


def _fraction(value: float) -> Any:
    return flint.fmpq(*value.as_integer_ratio())


def _rounded(theta: list[list[Any]], *, half_way: bool) -> Array | None:
    """Return the float64 that each ball rounds to; None if one rounds to two, or to none."""
    out = np.zeros((len(theta), len(theta[0])))
    for j, row in enumerate(theta):
        for c, ball in enumerate(row):
            if not ball.is_finite():
                return None
            try:
                low, high = (float(end) for end in _ends(ball))
            except OverflowError:
                return None
            if low != high and not half_way:
                return None
            middle = (Fraction(low) + Fraction(high)) / 2
            out[j, c] = float(middle) + 0.0  # no negative 0
    return out


def _ends(ball: Any) -> tuple[Fraction, Fraction]:
    middle, radius = (
        int(part.man_exp()[0]) * Fraction(2) ** int(part.man_exp()[1])
        for part in (ball.mid(), ball.rad())
    )
    return middle - radius, middle + radius
