"""A linear pipeline refitted to the last bit, by code that the engine does not use.

Every feature is made row by row as the pipeline makes it, standardised by a square root, and the
normal equations of the last step are solved, all in ball arithmetic: each number carries a bound of
its error, and a parameter is known once its whole ball rounds to one float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import flint
import numpy as np
from numpy.typing import NDArray

from lethe.engine.errors import InvalidData
from lethe.engine.fit.objective import Array
from lethe.engine.preprocess.input.table import Table
from lethe.engine.store.layout.columns import ColumnRecord

_BITS, _MOST_BITS = 512, 4096
_BLOCK = 2048  # rows whose features are held at once


def pipeline_refit(
    columns: Sequence[ColumnRecord],
    table: Table,
    y: Array,
    weight: Array,
    *,
    ridge: float,
    intercept: bool,
) -> Array:
    """Return the parameters of the pipeline's last step, each the nearest float64, d x m.

    Parameters
    ----------
    columns, table
        n >= 1 rows as they were given.
    y, weight
        n x m, and (n,) for the last step alone.
    ridge, intercept
        Of the last step; an intercept is free.

    Raises
    ------
    InvalidData
        A parameter is beyond float64.

    Notes
    -----
    Cost O(n d^2) products of 512 bits. What 4,096 bits cannot tell from half way between two
    numbers counts as half way, and is rounded to the even one.
    """
    bits = _BITS
    while bits <= _MOST_BITS:
        with flint.ctx.workprec(bits):
            balls = _parameters(columns, table, y, weight, ridge, intercept)
            rounded = _rounded(balls, half_way=bits == _MOST_BITS)
        if rounded is not None:
            return rounded
        bits *= 2
    raise InvalidData("a parameter of the refit is beyond float64")


def _parameters(
    columns: Sequence[ColumnRecord],
    table: Table,
    y: Array,
    weight: Array,
    ridge: float,
    intercept: bool,
) -> list[list[Any]]:
    features = _features(columns, table, y[:, 0])
    varied = [
        i
        for i, values in enumerate(features)
        if not (_all_same(values) and (intercept or values[0] == 0))
    ]
    d = len(varied) + int(intercept)
    if d == 0:
        return [[flint.arb(0)] * y.shape[1] for _ in features]
    balls = [[flint.arb(v) for v in y[:, c].tolist()] for c in range(y.shape[1])]
    weights = [flint.arb(w) for w in weight.tolist()]
    one = flint.arb(1)
    total = flint.arb_mat(d, d + len(balls))
    for start in range(0, len(table), _BLOCK):
        block = range(start, min(start + _BLOCK, len(table)))
        X = [[features[i][row] for row in block] for i in varied]
        X += [[one for _ in block]] if intercept else []
        weighted = [[v * weights[row] for v, row in zip(x, block, strict=True)] for x in X]
        with_targets = X + [[target[row] for row in block] for target in balls]
        total += flint.arb_mat(weighted) * flint.arb_mat(with_targets).transpose()
    sums = total.tolist()
    for i in range(len(varied)):
        sums[i][i] += flint.arb(ridge)
    try:
        solved = flint.arb_mat([row[:d] for row in sums]).solve(
            flint.arb_mat([row[d:] for row in sums])
        )
    except ZeroDivisionError as error:
        raise InvalidData("these rows have no single minimiser: the Hessian is singular") from error
    theta = [[flint.arb(0)] * len(balls) for _ in range(len(features) + int(intercept))]
    places = [*varied, *([len(features)] if intercept else [])]
    for place, row in zip(places, solved.tolist(), strict=True):
        theta[place] = row
    return theta


def _features(columns: Sequence[ColumnRecord], table: Table, target: Array) -> list[list[Any]]:
    """Return each feature's value in every row, as balls."""
    numbers, codes = iter(table.numbers.T), iter(table.codes.T)
    features: list[list[Any]] = []
    for column in columns:
        if column.step == "one-hot":
            own = next(codes)
            for place in range(len(column.categories)):
                features.append([flint.arb(int(code == place)) for code in own.tolist()])
            continue
        if column.step in ("numeric", "date"):
            values = _imputed(next(numbers))
        elif column.step == "ordinal":
            own = next(codes)
            ordered = own if column.ordered else np.searchsorted(np.unique(own), own)
            values = [flint.fmpq(int(code)) for code in ordered.tolist()]
        else:
            values = _target_means(column, next(codes), target)
        features.append(_standardised(values) if column.standardise else _as_balls(values))
    return features


def _fraction(value: float) -> Any:
    return flint.fmpq(*value.as_integer_ratio())


def _imputed(numbers: Array) -> list[Any]:
    known = [_fraction(v) for v in numbers[~np.isnan(numbers)].tolist()]
    mean = sum(known, flint.fmpq(0)) / max(len(known), 1)
    return [mean if v != v else _fraction(v) for v in numbers.tolist()]  # noqa: PLR0124 (NaN)


def _target_means(column: ColumnRecord, codes: NDArray[np.int32], target: Array) -> list[Any]:
    """Return the smoothed mean of the target in each row's category."""
    t = [_fraction(v) for v in target.tolist()]
    mean, spread = _moments(t)
    code_of = {}
    for code in np.unique(codes).tolist():
        own = [t[row] for row in np.flatnonzero(codes == code).tolist()]
        own_mean, within = _moments(own)
        if column.smooth == "auto":
            weight, of = spread * len(own), spread * len(own) + within
        else:
            weight, of = flint.fmpq(len(own)), len(own) + _fraction(float(column.smooth))
        code_of[code] = mean + (weight / of) * (own_mean - mean) if of != 0 else mean
    return [code_of[code] for code in codes.tolist()]


def _moments(values: list[Any]) -> tuple[Any, Any]:
    """Return the mean and the variance of fractions."""
    n, zero = len(values), flint.fmpq(0)
    mean = sum(values, zero) / n
    return mean, sum((v * v for v in values), zero) / n - mean * mean


def _standardised(values: list[Any]) -> list[Any]:
    """Return values with mean 0, and deviation 1 unless scikit-learn counts them as constant."""
    n, (mean, variance) = len(values), _moments(values)
    eps = flint.fmpq(1, 2**52)
    constant = variance <= n * eps * variance + (n * mean * eps) * (n * mean * eps)
    deviation = flint.arb(1) if constant else flint.arb(variance).sqrt()
    made = {v: flint.arb(v - mean) / deviation for v in set(values)}
    return [made[v] for v in values]


def _as_balls(values: list[Any]) -> list[Any]:
    made = {v: flint.arb(v) for v in set(values)}
    return [made[v] for v in values]


def _all_same(values: list[Any]) -> bool:
    first = values[0]
    return all(v is first or v == first for v in values)


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
