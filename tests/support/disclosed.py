"""What versions must have disclosed of deleted rows, from the registered rows and dense refits."""

from __future__ import annotations

from collections.abc import Set
from functools import partial
from typing import TypeAlias

import numpy as np
import pytest
from numpy.typing import NDArray

from lethe.consumers.audit.disclosures import DisclosedRow, most_disclosed
from lethe.engine.rowstore import passes, writer
from lethe.engine.store.layout.disclosed import RowFate
from tests.support.families import Array, Data, Index
from tests.support.platform import Platform

Mask: TypeAlias = NDArray[np.bool_]

ALL = 1 << 40


def keep_rows_in_files(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have models registered with their rows in files, of several buckets and blocks."""
    monkeypatch.setattr(writer, "BUCKET_BYTES", 2048)
    monkeypatch.setattr(passes, "BLOCK_BYTES", 4096)
    register = partial(platform.register, rows_url=platform.folder())
    monkeypatch.setattr(platform, "register", register)


def disclosures_of(platform: Platform, model_id: str = "m") -> dict[str, DisclosedRow]:
    """Return what is kept, by row."""
    report = most_disclosed(platform.store, model_id, ALL)
    assert report.total == len(report.rows)
    return {row.row_id: row for row in report.rows}


def check_deleted(
    platform: Platform, model_id: str, ledger: dict[str, int], erased: Set[str]
) -> None:
    """Compare with refits what is kept of rows that were only deleted, since the registration.

    ``ledger`` has the version that deleted each; of ``erased`` ones nothing may be kept.
    """
    data = platform.data[model_id]
    kept = disclosures_of(platform, model_id)
    deleted_at = {int(row.removeprefix("row-")): version for row, version in ledger.items()}
    assert kept.keys() == ledger.keys() - erased
    for name, row in kept.items():
        i, [entry] = int(name.removeprefix("row-")), row.versions
        assert (entry.version, entry.fate) == (deleted_at[i], RowFate.DELETED)
        n = len(data.X)
        live = np.array([deleted_at.get(j, ALL) > entry.version for j in range(n)])
        before = np.array([deleted_at.get(j, ALL) >= entry.version for j in range(n)])
        if not live.any():
            assert (entry.distance, entry.length) == (None, None)
            continue
        back = live.copy()
        back[i] = True
        distance, length = dense(data, np.flatnonzero(back), np.flatnonzero(live), before)
        assert entry.distance == pytest.approx(distance, rel=1e-6)
        assert entry.length == pytest.approx(length, rel=1e-6)


def dense(data: Data, with_row: Index, after: Index, before: Mask) -> tuple[float, float]:
    """Return Cook's distance in units of ``before`` (a mask), and the length of the step."""
    X = np.column_stack([data.X, np.ones(len(data.X))]) if data.intercept else data.X
    penalty = np.full(X.shape[1], data.ridge)
    if data.intercept:
        penalty[-1] = 0.0

    def fit(index: Index) -> tuple[Array, Array]:
        A = X[index].T @ X[index] + np.diag(penalty)
        return A, np.linalg.solve(A, X[index].T @ data.y[index])

    A, theta = fit(with_row)
    delta = theta - fit(after)[1]
    index = np.flatnonzero(before)
    A_before, theta_before = fit(index)
    p = float(np.trace(np.linalg.solve(A_before, X[index].T @ X[index])))
    squares = float(np.sum((data.y[index] - X[index] @ theta_before) ** 2))
    squared = float((delta.T @ A @ delta)[0, 0])
    return squared / (p * squares / (len(index) - p)), float(np.linalg.norm(delta))
