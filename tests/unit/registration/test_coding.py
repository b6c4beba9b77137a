"""Tables with preprocessing that are read in blocks: as if they were read at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from lethe.consumers.registration.coding import MOST_VALUES, Coding
from lethe.consumers.registration.table.foreseen import Columns, foresee
from lethe.consumers.registration.table.in_blocks import TableInBlocks
from lethe.consumers.registration.table.reader import read_prepared_table
from lethe.consumers.registration.training_data import TrainingData
from lethe.engine.errors import InvalidData
from lethe.engine.exact.sums import Sums
from lethe.engine.fit.objective import Kind, Rows
from lethe.engine.preprocess.input.columns import (
    Column,
    Date,
    Numeric,
    OneHot,
    Ordinal,
    TargetEncode,
)
from lethe.engine.preprocess.input.settings import Settings
from lethe.engine.preprocess.rounded.raw import RawColumns
from lethe.engine.store.layout.preprocessing import (
    given_table,
    given_values,
    layout_of,
    recorded,
    vocabularies_of,
)

ROLES = Columns(id="id", targets=("y",), subject=None)
COLUMNS: dict[str, Column] = {
    "whole": OneHot(),
    "a": Numeric(),
    "truth": OneHot(unknown="ignore"),
    "mixed": TargetEncode(),
    "full": Numeric(impute=None, standardise=False),
    "size": Ordinal(categories=("S", "M", "L", "XL")),
    "grade": Ordinal(standardise=True),
    "post": TargetEncode(smooth=2.0),
    "day": Date(),
}
TEXT: dict[str, list[str]] = {
    "whole": ["7", "7.0", "", " 8", "10", "7"],
    "a": ["1.5", "", "nan", "-2", "3e2", "0"],
    "truth": ["true", "False", "TRUE", "", "false", "true"],
    "mixed": ["7", "seven", "7.0", "", "true", "7"],
    "full": ["1", "2", "3", "4", "5", "-6"],
    "size": ["M", "S", "L", "M", "M", "S"],
    "grade": ["b", "a", "c", "b", "c", "a"],
    "post": ["N1", "N2", "N1", "", "SE", "N2"],
    "day": ["2021-03-01", "", "2020-02-29", "1999-12-31", "nan", "2021-03-01"],
}
Y = [0.5, -4.0, 2.25, 1e-3, -8.0, 7.0]


def csv_files(folder: Path) -> Path:
    """Write the rows two to a file, so that each is a block."""
    folder.mkdir()
    for start in range(0, len(Y), 2):
        part = slice(start, start + 2)
        named = {name: values[part] for name, values in TEXT.items()}
        table = pa.table({"id": [f"r{i}" for i in range(6)][part], "y": Y[part], **named})
        pacsv.write_csv(table, folder / f"part-{start}.csv")
    return folder


def parquet_files(folder: Path) -> Path:
    """Write the like with types."""
    folder.mkdir()
    days = [None if len(day) < 4 else date.fromisoformat(day) for day in TEXT["day"]]
    named: dict[str, pa.Array] = {
        **{name: pa.array(values) for name, values in TEXT.items()},
        "whole": pa.array([7, 7, None, 8, 10, 7]),
        "a": pa.array([1.5, None, np.nan, -2, 300, 0]),
        "truth": pa.array([True, False, True, None, False, True]),
        "full": pa.array([1, 2, 3, 4, 5, -6]),
        "day": pa.array(days, pa.date32()),
    }
    table = pa.table({"id": [f"r{i}" for i in range(6)], "y": Y, **named})
    for start in range(0, len(Y), 2):
        pq.write_table(table.slice(start, 2), folder / f"part-{start}.parquet")
    return folder


def in_blocks(data: Path, columns: Mapping[str, Column]) -> list[TrainingData]:
    foreseen = foresee(data, ROLES, Kind.LINEAR, columns, limited=False)
    return list(TableInBlocks.of(foreseen, ROLES, Kind.LINEAR, columns).blocks())


@pytest.mark.parametrize("write", [csv_files, parquet_files])
@pytest.mark.parametrize("gone", [frozenset[str](), frozenset({"r3", "r4"})])
def test_rows_in_blocks_are_those_of_the_table(
    write: Callable[[Path], Path], gone: frozenset[str], tmp_path: Path
) -> None:
    """Without rows that were deleted, categories are those of the rows that are left."""
    data = write(tmp_path / "table")
    whole = read_prepared_table(data, ROLES, Kind.LINEAR, COLUMNS).data.without(gone)
    blocks = in_blocks(data, COLUMNS)
    coding = blocks[0].coding
    assert coding is not None
    kept = [block.without(gone) for block in blocks if gone.difference(block.ids) or not gone]
    kept = [block for block in kept if block.ids]
    for block in kept:
        coding.keep(block.X, block.y)
    coded = coding.finished()
    assert coded.records == whole.preprocess
    y = np.concatenate([block.y for block in kept])
    X = np.concatenate([block.X for block in kept])
    rows = coded.recoded(Rows(X, y, np.ones(len(y))))
    assert whole.table is not None
    assert rows.X.tobytes() == given_values(whole.table).tobytes()
    settings = Settings(COLUMNS, Kind.LINEAR, 1.0, intercept=True, penalise_intercept=False)
    records = coded.records
    raw = RawColumns(settings, layout_of(records), vocabularies_of(records))
    given = raw.rows(given_table(records, rows.X, "rows"), y, rows.weight)
    numbers = np.fmax.reduce(np.abs(X), initial=0.0)
    largest = coded.largest_of(raw, numbers)
    assert largest.tobytes() == np.abs(given.X).max(axis=0).tobytes()
    assert Sums.of(given).unit.shape == (raw.width + 1,)


def test_a_named_category_that_no_row_has_keeps_its_place() -> None:
    columns: dict[str, Column] = {"size": Ordinal(categories=("S", "M", "L"))}
    coding = Coding(columns, as_written=True)
    values = coding.coded({"size": np.array(["L", "S"], dtype=object)})
    coding.keep(values, np.array([[1.0], [2.0]]))
    coded = coding.finished()
    assert coded.records[0].categories == ("S", "M", "L")
    assert coded.codes[0].tolist() == [2, 0]
    assert coded.largest[0].tolist() == [2.0, -1.0, 1.0]
    known, _ = recorded(columns, given_table(coded.records, np.array([[2.0], [0.0]]), "rows"))
    assert known == coded.records


def test_a_column_without_a_value_is_refused() -> None:
    coding = Coding({"a": Numeric()}, as_written=False)
    coding.keep(coding.coded({"a": np.array([np.nan, np.nan])}), np.zeros((2, 1)))
    with pytest.raises(InvalidData, match="'a': no row has a value"):
        coding.finished()


def test_a_column_of_very_many_values_is_refused_where_it_is_read() -> None:
    coding = Coding({"town": OneHot()}, as_written=False)
    few = np.array([f"town {i}" for i in range(MOST_VALUES)], dtype=object)
    coding.coded({"town": few})
    with pytest.raises(InvalidData, match="'town' has more than 1,000 different values"):
        coding.coded({"town": np.array(["another"], dtype=object)})
