"""Small training files with rows that are easy to name: u0, u1, ... of households h0, h1, ..."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

ROWS = 240
FEATURES = ("a", "b", "c", "d")


def table(*, logistic: bool, rows: int = ROWS, seed: int = 7) -> pa.Table:
    """Return a table with id, household, four features and the target ``y``."""
    draw = np.random.default_rng(seed)
    X = draw.standard_normal((rows, len(FEATURES)))
    margin = X @ np.array([1.0, -2.0, 0.5, 0.0]) + 0.3
    noisy = margin + draw.standard_normal(rows)
    y = (noisy > 0).astype(np.int64) if logistic else noisy
    columns = {
        "id": [f"u{i}" for i in range(rows)],
        "household": [f"h{i // 3}" for i in range(rows)],
    }
    return pa.table({**columns, **dict(zip(FEATURES, X.T, strict=True)), "y": y})


def write(path: Path, *, logistic: bool, rows: int = ROWS, seed: int = 7) -> Path:
    """Write a table as the file's name says."""
    made = table(logistic=logistic, rows=rows, seed=seed)
    if path.suffix == ".csv":
        pacsv.write_csv(made, path)
    else:
        pq.write_table(made, path)
    return path
