"""Rows as a refitted pipeline transforms them, by code that the engine does not use.

Statistics are taken afresh from the live rows as they were given, in extended precision where the
machine has it, and as scikit-learn's transformers define them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from lethe.engine.fit.objective import Array, Rows
from lethe.engine.preprocess.input.table import Table
from lethe.engine.store.layout.columns import ColumnRecord

Long: TypeAlias = NDArray[np.longdouble]
Codes: TypeAlias = NDArray[np.int32]


def pipeline_rows(
    columns: Sequence[ColumnRecord], table: Table, y: Array, weight: Array, *, intercept: bool
) -> Rows:
    """Return the rows of the pipeline's last step, n x d. Cost O(n p)."""
    features = list(_features(columns, table, y[:, 0].astype(np.longdouble)))
    if intercept:
        features.append(np.ones((len(table), 1), dtype=np.longdouble))
    return Rows(np.hstack(features).astype(np.float64), y, weight)


def _features(columns: Sequence[ColumnRecord], table: Table, target: Long) -> Iterator[Long]:
    numbers, codes = iter(table.numbers.T), iter(table.codes.T)
    for column in columns:
        if column.step in ("numeric", "date"):
            x = _imputed(next(numbers).astype(np.longdouble))
        elif column.step == "one-hot":
            places = np.arange(len(column.categories))
            yield (next(codes)[:, None] == places).astype(np.longdouble)
            continue
        elif column.step == "ordinal":
            x = _ordinal(column, next(codes))
        else:
            x = _target_means(column, next(codes), target)
        yield (_standardised(x) if column.standardise else x)[:, None]


def _imputed(x: Long) -> Long:
    missing = np.isnan(x)
    if missing.all():
        return np.zeros_like(x)
    return np.where(missing, x[~missing].mean(), x)


def _ordinal(column: ColumnRecord, codes: Codes) -> Long:
    """Return the place of each row's category: among those that were named, or that are there."""
    if column.ordered:
        return codes.astype(np.longdouble)
    return np.searchsorted(np.unique(codes), codes).astype(np.longdouble)


def _target_means(column: ColumnRecord, codes: Codes, target: Long) -> Long:
    """Return the smoothed mean of the target in each row's category."""
    out, overall, spread = np.empty_like(target), target.mean(), target.var()
    for code in np.unique(codes):
        own = target[codes == code]
        n = np.longdouble(len(own))
        if column.smooth == "auto":
            within = own.var()
            below = spread * n + within
            share = spread * n / below if below > 0 else np.longdouble(0)
        else:
            share = n / (n + np.longdouble(column.smooth))
        out[codes == code] = share * own.mean() + (1 - share) * overall
    return out


def _standardised(x: Long) -> Long:
    """Return x with mean 0 and deviation 1; where scikit-learn counts it as constant, with 0."""
    mean, variance, n = x.mean(), x.var(), len(x)
    eps = np.finfo(np.float64).eps
    constant = variance <= n * eps * variance + (n * mean * eps) ** 2
    out: Long = (x - mean) if constant else (x - mean) / np.sqrt(variance)
    return out
