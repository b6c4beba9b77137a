"""A linear pipeline fitted in many decimal digits, from its definition: nothing of the engine's.

Every feature is made as the pipeline makes it, standardised by a real square root, and the normal
equations of the last step are solved by elimination.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from decimal import Decimal, localcontext
from typing import Any

import numpy as np

from lethe.engine.preprocess.input.columns import (
    Column,
    Columns,
    Numeric,
    OneHot,
    Ordinal,
    Standardise,
    TargetEncode,
)
from tests.support.pipelines import EPOCH

_EPS = Decimal(2) ** -52


def minimiser(
    columns: Columns,
    rows: dict[Any, np.ndarray],
    y: np.ndarray,
    weight: np.ndarray | None = None,
    *,
    ridge: float = 1.0,
    intercept: bool = True,
    penalised: bool = False,
    digits: int = 500,
) -> np.ndarray:
    """Return the parameters of the last step as float64, (d, m), the intercept last."""
    with localcontext() as context:
        context.prec = digits
        targets = [[Decimal(float(v)) for v in row] for row in y.reshape(len(y), -1)]
        weights = [Decimal(1)] * len(y) if weight is None else [Decimal(float(w)) for w in weight]
        made = [
            _standardised(values, column.standardise, _seen(column, list(rows[name])))
            for name, column in columns.items()
            for values in _features(column, list(rows[name]), [row[0] for row in targets])
        ]
        if intercept:
            made.append([Decimal(1)] * len(y))
        penalty = [Decimal(ridge)] * len(made)
        if intercept and not penalised:
            penalty[-1] = Decimal(0)
        theta = _solved(made, targets, weights, penalty)
        noise = Decimal(10) ** (30 - digits)
        return np.array([[float(v) if abs(v) > noise else 0.0 for v in row] for row in theta])


def _features(column: Column, values: list[Any], y: list[Decimal]) -> Iterator[list[Decimal]]:
    if isinstance(column, Numeric):
        numbers = [_number(v) for v in values]
        known = [v for v in numbers if v is not None]
        mean = sum(known, Decimal(0)) / len(known) if known else Decimal(0)
        yield [mean if v is None else v for v in numbers]
        return
    if isinstance(column, Ordinal) and column.categories is not None:
        yield [Decimal(column.categories.index(v)) for v in values]
        return
    there = sorted(set(values), key=lambda value: (value is None, value))
    if isinstance(column, OneHot):
        there = there if column.categories is None else list(column.categories)
        kinds: list[set[Any]] = [{category} for category in there]
        counts = [values.count(category) for category in there]
        rare = _rare(column, counts, len(values)) if column.shares else set()
        if rare:
            kinds = [{c} for i, c in enumerate(there) if i not in rare]
            kinds.append({there[i] for i in rare})
        if column.drop == "first" or (column.drop == "if_binary" and len(kinds) == len("ab")):
            kinds = kinds[1:]
        elif isinstance(column.drop, tuple):
            kinds = [kind for kind in kinds if kind != {column.drop[0]}]
        for kind in kinds:
            yield [Decimal(v in kind) for v in values]
    elif isinstance(column, Ordinal):
        yield [Decimal(there.index(v)) for v in values]
    else:
        code = {category: _encoded(column, category, values, y) for category in there}
        yield [code[v] for v in values]


def _rare(column: OneHot, counts: list[int], n: int) -> set[int]:
    """Return the places of rare categories: what scikit-learn's user guide says of them."""
    least, most = column.min_frequency or 1, column.max_categories or len(counts) + 1
    rare = {i for i, count in enumerate(counts) if count < (least if least >= 1 else least * n)}
    if most <= len(counts) - len(rare):  # one of the most is that of the rare ones
        frequent = sorted(range(len(counts)), key=lambda i: (-counts[i], -i))[: most - 1]
        rare = rare | (set(range(len(counts))) - set(frequent))
    return rare


def _number(value: Any) -> Decimal | None:
    if value is None:
        return None
    return Decimal((value - EPOCH).days) if isinstance(value, date) else Decimal(float(value))


def _encoded(column: TargetEncode, category: Any, values: list[Any], y: list[Decimal]) -> Decimal:
    own = [t for t, v in zip(y, values, strict=True) if v == category]
    mean, own_mean = _mean(y), _mean(own)
    if column.smooth == "auto":
        weight = _mean([(t - mean) ** 2 for t in y]) * len(own)
        of = weight + _mean([(t - own_mean) ** 2 for t in own])
    else:
        weight = Decimal(len(own))
        of = weight + Decimal(float(column.smooth))
    return mean + weight / of * (own_mean - mean) if of else mean


def _mean(values: list[Decimal]) -> Decimal:
    return sum(values, Decimal(0)) / len(values)


def _seen(column: Column, values: list[Any]) -> list[int]:
    """Return the rows whose values a column's scaler sees; all if it would see none."""
    known = [i for i, v in enumerate(values) if v is not None]
    first = isinstance(column, Numeric) and column.scaler_first
    return known if first and known else [*range(len(values))]


def _standardised(
    values: list[Decimal], standardise: Standardise, rows: list[int]
) -> list[Decimal]:
    if standardise is False:
        return values
    seen = [values[i] for i in rows]
    n, mean = len(seen), _mean(seen)
    variance = _mean([(v - mean) ** 2 for v in seen])
    constant = variance <= n * _EPS * variance + (n * mean * _EPS) ** 2
    deviation = Decimal(1) if constant or standardise == "centre" else variance.sqrt()
    mean = Decimal(0) if standardise == "scale" else mean
    return [(v - mean) / deviation for v in values]


def _solved(
    X: list[list[Decimal]], y: list[list[Decimal]], w: list[Decimal], penalty: list[Decimal]
) -> list[list[Decimal]]:
    """Return (X W X^T + diag(penalty))^-1 X W y for X d x n, by Gauss and Jordan."""
    columns = X + [list(column) for column in zip(*y, strict=True)]
    weighted = [[a * b for a, b in zip(x, w, strict=True)] for x in X]
    A = [
        [sum((a * b for a, b in zip(x, column, strict=True)), Decimal(0)) for column in columns]
        for x in weighted
    ]
    d = len(X)
    for j in range(d):
        A[j][j] += penalty[j]
    for k in range(d):
        pivot = max(range(k, d), key=lambda i: abs(A[i][k]))
        A[k], A[pivot] = A[pivot], A[k]
        A[k] = [a / A[k][k] for a in A[k]]
        for i in range(d):
            if i != k:
                A[i] = [a - A[i][k] * b for a, b in zip(A[i], A[k], strict=True)]
    return [row[d:] for row in A]
