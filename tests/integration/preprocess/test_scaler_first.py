"""Columns whose scaler stands before their imputer, in the service."""

from __future__ import annotations

from pathlib import Path

import pytest

from lethe.consumers.audit.verify import verify
from lethe.consumers.registration.table.preprocess_file import read_preprocess_file
from lethe.engine.errors import InvalidData
from lethe.engine.fit.objective import Kind
from lethe.engine.preprocess.input.columns import Columns, Date, Numeric, OneHot
from lethe.engine.refresh.size import RefreshSize
from tests.support.extras import need
from tests.support.platform import Platform
from tests.support.prepared import BOTH, PreparedTable, check_changes, check_exports

FIRST: Columns = {
    "age": Numeric(scaler_first=True),
    "rate": Numeric(standardise="scale", scaler_first=True),
    "score": Numeric(),
    "joined": Date(standardise="centre", scaler_first=True),
    "town": OneHot(),
}
ORDERED: Columns = {
    "fee": Numeric("median", "robust", scaler_first=True),
    "use": Numeric("mean", (0.0, 1.0), scaler_first=True),
    "top": Numeric("most_frequent", "max-abs", scaler_first=True),
    "age": Numeric("median", scaler_first=True),
    "plan": OneHot(),
}


@BOTH
def test_after_deletions_inserts_and_corrections_it_is_the_refitted_pipeline(
    platform: Platform, sums: bool
) -> None:
    table = PreparedTable(platform, FIRST, exact_sums=sums)
    table.register()
    check_changes(table, (3, 4, 5, *range(20, 40)))


def test_so_it_is_with_order_statistics(memory: Platform) -> None:
    table = PreparedTable(memory, ORDERED)
    table.register()
    check_changes(table, (3, 4, 5, *range(20, 40)))


@pytest.mark.parametrize("columns", [FIRST, ORDERED], ids=["moments", "order"])
def test_a_logistic_model_with_rows_in_files_states_a_bound(
    memory: Platform, columns: Columns
) -> None:
    table = PreparedTable(memory, columns, 600, kind=Kind.LOGISTIC, rows_url=memory.folder())
    table.register(budget=0.5)
    table.check()
    table.delete(0, 1, 2)
    memory.drain()
    table.check()
    memory.refresh("m", RefreshSize.REBUILD)
    table.check()
    assert verify(memory.store, "m").holds


@BOTH
def test_what_is_published_predicts_as_the_refitted_pipeline(memory: Platform, sums: bool) -> None:
    need("skops", "onnxruntime")
    columns = {name: one for name, one in FIRST.items() if name != "joined"}  # no skops of dates
    table = PreparedTable(memory, columns, exact_sums=sums)
    table.register()
    table.delete(*range(30))
    memory.drain()
    check_exports(table)


def test_a_file_names_it(tmp_path: Path) -> None:
    path = tmp_path / "columns.toml"
    path.write_text('[columns.a]\nstep = "numeric"\nscaler_first = true\n')
    assert read_preprocess_file(path) == {"a": Numeric(scaler_first=True)}
    path.write_text('[columns.a]\nstep = "date"\nscaler_first = "yes"\n')
    with pytest.raises(InvalidData, match="column 'a': scaler_first is true or false, not 'yes'"):
        read_preprocess_file(path)
    path.write_text('[columns.a]\nstep = "date"\nimpute = "none"\nscaler_first = true\n')
    with pytest.raises(InvalidData, match="column 'a': scaler_first is of a column that is both"):
        read_preprocess_file(path)
