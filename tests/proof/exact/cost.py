"""What exact sums cost: a warm deletion of one row, and a fit, beside a model without them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator

import numpy as np
from threadpoolctl import threadpool_limits

from lethe import LinearModel
from lethe.engine.fit.objective import Array
from lethe.engine.preprocess.input.columns import Columns, Numeric

_TURNS = 5
_DELETIONS = 40
FEATURES = (20, 100, 200)
STANDARDISED = (20, 50, 80)
ROWS, COLUMNS = 1_000_000, 50


def deletions() -> Iterator[tuple[str, float, float]]:
    """Yield processor microseconds of a deletion, with exact sums and without: medians."""
    for d in FEATURES:
        rng = np.random.default_rng(d)
        X, y = rng.normal(size=(20 * d, d)), rng.normal(size=20 * d)

        def fit(limit: int, X: Array = X, y: Array = y) -> LinearModel:
            return LinearModel(fit_intercept=False, rounded_features=limit).fit(X, y)

        yield f"d = {d}", *_beside(fit)
    for d in STANDARDISED:
        rng = np.random.default_rng(d)
        X, y = 50.0 + rng.normal(size=(20 * d, d)), rng.normal(size=20 * d)
        X[:, : d // 5][rng.random((20 * d, d // 5)) < 0.1] = np.nan  # a fifth has gaps
        columns: Columns = {i: Numeric() for i in range(d)}

        def fit_pipeline(
            limit: int, X: Array = X, y: Array = y, columns: Columns = columns
        ) -> LinearModel:
            return LinearModel(preprocess=columns, rounded_features=limit).fit(X, y)

        yield f"{d} standardised", *_beside(fit_pipeline)


def _beside(fit: Callable[[int], LinearModel]) -> tuple[float, float]:
    found: dict[int, list[float]] = {10_000: [], 0: []}
    with threadpool_limits(1):
        for _ in range(_TURNS):
            for limit, taken in found.items():
                model = fit(limit)
                model.delete(["0"], method="exact")
                times = []
                for i in range(1, _DELETIONS + 1):
                    begin = time.process_time()
                    model.delete([str(i)], method="exact")
                    times.append(time.process_time() - begin)
                taken.append(1e6 * statistics.median(times))
    with_sums, without = found.values()
    return statistics.median(with_sums), statistics.median(without)


def fits(rows: int = ROWS) -> Iterator[tuple[str, float, float]]:
    """Yield processor seconds of a fit, with exact sums and without."""
    rng = np.random.default_rng(0)
    doubles = rng.standard_normal((rows, COLUMNS))
    tables: dict[str, Array] = {
        "whole numbers": np.rint(100.0 * doubles),
        "float32": doubles.astype(np.float32).astype(np.float64),
        "doubles": doubles,
    }
    for name, X in tables.items():
        y = np.rint(X.sum(axis=1)) if name != "doubles" else X.sum(axis=1)
        times = []
        for limit in (COLUMNS, 0):
            with threadpool_limits(1):
                begin = time.process_time()
                LinearModel(fit_intercept=False, rounded_features=limit).fit(X, y)
                times.append(time.process_time() - begin)
        yield name, times[0], times[1]
