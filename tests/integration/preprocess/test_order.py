"""Medians, modes, extremes and quartiles, in the service."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lethe.consumers.audit.verify import verify
from lethe.consumers.registration.table.preprocess_file import read_preprocess_file
from lethe.engine.errors import InvalidData
from lethe.engine.fit.objective import Kind
from lethe.engine.preprocess.input.columns import Columns, Numeric, OneHot
from lethe.engine.preprocess.transformation import order
from lethe.engine.refresh.size import RefreshSize
from tests.support.extras import need
from tests.support.platform import Platform
from tests.support.prepared import PreparedTable, check_changes, check_exports

ORDERED: Columns = {
    "age": Numeric("median"),
    "fee": Numeric("median", "robust"),
    "use": Numeric("mean", (0.0, 1.0)),
    "rate": Numeric(None, "max-abs"),
    "plan": Numeric("most_frequent", standardise=False),
    "town": OneHot(),
    "job": OneHot("ignore", impute="most_frequent"),
    "post": OneHot("infrequent_if_exist", min_frequency=25, impute="most_frequent"),
}


def table_of(platform: Platform, n: int = 150, **options: Any) -> PreparedTable:
    return PreparedTable(platform, ORDERED, n, seed=5, **options)


def largest(table: PreparedTable, column: str, n: int) -> list[int]:
    """Return the live rows with the largest values of a column."""
    values = np.nan_to_num(table.rows[column].astype(float), nan=-np.inf)
    return sorted(table.live, key=lambda place: -values[place])[:n]


def test_order_statistics_follow_the_live_rows(platform: Platform) -> None:
    table = table_of(platform)
    table.register()
    check_changes(table, largest(table, "use", 2), largest(table, "age", 5))
    table.delete(*largest(table, "fee", 9))
    platform.drain()
    table.check()
    assert verify(platform.store, "m").holds


def test_a_median_that_leaves_its_window_waits_for_a_rebuild(
    memory: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(order, "REACH", 3)
    table = table_of(memory)
    table.register()
    request = table.delete(*largest(table, "age", 20))
    memory.drain()
    assert "DEFERRED" in memory.statuses(request)
    assert memory.final(request).status == "APPLIED"
    assert memory.load("m").meta.generation == 1
    table.check()
    assert verify(memory.store, "m").holds


def test_another_most_frequent_category_waits_for_a_rebuild(memory: Platform) -> None:
    table = table_of(memory)
    table.register()
    named = table.rows["job"].tolist()
    mode = max(set(named) - {None}, key=named.count)
    request = table.delete(*[place for place in table.live if named[place] == mode][3:])
    memory.drain()
    assert "DEFERRED" in memory.statuses(request)
    assert memory.final(request).status == "APPLIED"
    table.check()
    assert verify(memory.store, "m").holds


def test_a_logistic_model_states_a_bound(memory: Platform) -> None:
    table = table_of(memory, 600, kind=Kind.LOGISTIC)
    table.register(budget=0.5)
    table.check()
    table.delete(*largest(table, "fee", 3))
    table.delete(*largest(table, "use", 3))
    memory.drain()
    table.check()
    assert verify(memory.store, "m").holds


@pytest.mark.parametrize("kind", [Kind.LINEAR, Kind.LOGISTIC])
def test_rows_in_files_have_the_same_order_statistics(memory: Platform, kind: Kind) -> None:
    table = table_of(memory, 600, kind=kind, rows_url=memory.folder())
    table.register(budget=0.5)
    table.check()
    table.delete(*largest(table, "age", 5))
    memory.drain()
    table.check()
    memory.refresh("m", RefreshSize.REBUILD)
    table.check()
    assert verify(memory.store, "m").holds


def test_what_is_published_predicts_as_the_refitted_pipeline(memory: Platform) -> None:
    need("skops", "onnxruntime")
    table = table_of(memory)
    table.register()
    table.delete(*range(10))
    memory.drain()
    check_exports(table)


def test_a_file_names_order_statistics(tmp_path: Path) -> None:
    path = tmp_path / "columns.toml"
    path.write_text(
        '[columns.a]\nstep = "numeric"\nimpute = "median"\nstandardise = "robust"\n'
        '[columns.b]\nstep = "date"\nstandardise = [0, 1]\n'
        '[columns.c]\nstep = "numeric"\nimpute = "most_frequent"\nstandardise = "max-abs"\n'
    )
    found = read_preprocess_file(path)
    assert found["a"] == Numeric("median", "robust")
    assert found["b"].standardise == (0.0, 1.0)
    assert found["c"] == Numeric("most_frequent", "max-abs")
    path.write_text('[columns.a]\nstep = "numeric"\nstandardise = [1, 0]\n')
    with pytest.raises(InvalidData, match=r"column 'a': standardise=.* the lower one first"):
        read_preprocess_file(path)


def test_exact_sums_are_refused(memory: Platform) -> None:
    with pytest.raises(InvalidData, match="no medians, modes or extremes"):
        table_of(memory, exact_sums=True).register()
