"""The same table is the same model, whether it comes as CSV, Parquet, JSON or a data frame."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from lethe import LinearModel
from lethe.consumers.registration.table.file import open_file
from lethe.consumers.registration.table.reader import (
    Columns,
    proposed_steps,
    read_prepared_table,
    read_table,
)
from lethe.consumers.registration.table.typed import json_values, typed_columns
from lethe.engine.fit.objective import Kind
from lethe.engine.preprocess.input import table as engine_table
from lethe.engine.preprocess.input.columns import (
    Column,
    Date,
    Numeric,
    OneHot,
    Ordinal,
    TargetEncode,
)
from lethe.engine.store.layout.preprocessing import columns_of, vocabularies_of

ROLES = Columns("id", ("y",))
N = 24
STEPS: dict[str, Column] = {
    "number": Numeric(),
    "truth as a number": Numeric(),
    "truth": OneHot(),
    "town": OneHot(),
    "code": OneHot(),
    "rank": Ordinal(),
    "named rank": Ordinal(categories=("1", "2", "3")),
    "post": TargetEncode(smooth=1.0),
    "day": Date(),
}


def values(first: int = 0) -> dict[str, list[Any]]:
    """Return columns of every kind, with missing values where their steps take them."""
    rows = range(first, first + N)
    return {
        "id": [f"r{i}" for i in rows],
        "y": [float(i % 5) + 0.25 for i in rows],
        "number": [None if i % 7 == 3 else i * 0.5 for i in rows],
        "truth as a number": [i % 3 == 0 for i in rows],
        "truth": [None if i % 8 == 5 else i % 2 == 0 for i in rows],
        "town": [None if i % 9 == 4 else ("Ulm", "Bonn", "Ems")[i % 3] for i in rows],
        "code": [None if i % 10 == 6 else (7, 10, 9)[i % 3] for i in rows],
        "rank": [(2, 10, 1)[i % 3] for i in rows],
        "named rank": [(1, 2, 3)[i % 3] for i in rows],
        "post": [(100, 20, 3)[i % 3] for i in rows],
        "day": [None if i % 6 == 1 else date(2020, 1 + i % 12, 1 + i % 28) for i in rows],
    }


def written(path: Path, columns: dict[str, list[Any]]) -> Path:
    table = pa.table(columns)
    if path.suffix == ".csv":
        pacsv.write_csv(table, path)
    else:
        pq.write_table(table, path)
    return path


def test_a_file_registers_the_same_columns_and_rows_in_either_format(tmp_path: Path) -> None:
    read = [
        read_prepared_table(written(tmp_path / name, values()), ROLES, Kind.LINEAR, STEPS).data
        for name in ("rows.csv", "rows.parquet")
    ]
    of_csv, of_parquet = read
    assert of_csv.preprocess == of_parquet.preprocess
    assert of_csv.table is not None
    assert of_parquet.table is not None
    np.testing.assert_array_equal(of_csv.table.numbers, of_parquet.table.numbers)
    np.testing.assert_array_equal(of_csv.table.codes, of_parquet.table.codes)
    assert of_csv.feature_names == of_parquet.feature_names


@pytest.mark.parametrize("registered", ["rows.csv", "rows.parquet"])
def test_rows_to_insert_are_read_the_same_in_every_format(tmp_path: Path, registered: str) -> None:
    path = written(tmp_path / registered, values())
    records = read_prepared_table(path, ROLES, Kind.LINEAR, STEPS).data.preprocess
    columns, known = columns_of(records), vocabularies_of(records)
    new = values(first=N)
    frame = pd.DataFrame({name: new[name] for name in STEPS})
    tables = {"data frame": engine_table.read_table(columns, frame, known)}
    for name in ("new.csv", "new.parquet"):
        path = written(tmp_path / name, new)
        texts = {n for n, c in columns.items() if isinstance(c, Date) or not isinstance(c, Numeric)}
        given = typed_columns(
            open_file(path, {"id", *map(str, texts)}),
            {str(n): column for n, column in columns.items()},
            complete=False,
        )
        message = json.loads(json.dumps({n: json_values(v) for n, v in given.items()}))
        tables[name] = engine_table.read_table(columns, message, known)
    plain = {n: [str(v) if isinstance(v, date) else v for v in new[n]] for n in STEPS}
    tables["JSON"] = engine_table.read_table(columns, plain, known)
    as_text = {n: [v if v is None else str(v).lower() for v in plain[n]] for n in ("truth", "code")}
    tables["JSON of text"] = engine_table.read_table(columns, {**plain, **as_text}, known)
    wanted = tables["data frame"]
    for name, table in tables.items():
        np.testing.assert_array_equal(table.numbers, wanted.numbers, err_msg=name)
        np.testing.assert_array_equal(table.codes, wanted.codes, err_msg=name)
        assert table.vocabularies == wanted.vocabularies == known, name


def test_a_library_model_of_a_frame_takes_rows_that_are_spelt_otherwise() -> None:
    first, new = values(), values(first=N)
    frame = pd.DataFrame({name: first[name] for name in STEPS})
    one, other = (LinearModel(preprocess=dict(STEPS)).fit(frame, first["y"]) for _ in "12")
    one.insert(pd.DataFrame({name: new[name] for name in STEPS}), new["y"], new["id"])
    spelt = {
        name: [v if v is None else str(v) for v in new[name]]
        if name in ("truth", "code", "rank", "post", "day")
        else new[name]
        for name in STEPS
    }
    other.insert(spelt, new["y"], new["id"])
    np.testing.assert_array_equal(one.published, other.published)


@pytest.mark.parametrize("name", ["rows.csv", "rows.parquet"])
def test_every_format_proposes_the_same_steps(tmp_path: Path, name: str) -> None:
    columns = values()
    columns["written day"] = [f"2021-03-{1 + i % 28:02d}" for i in range(N)]
    columns["written truth"] = ["true" if i % 2 else "false" for i in range(N)]
    proposed = proposed_steps(written(tmp_path / name, columns), ROLES)
    assert proposed == {
        "number": "numeric",
        "truth as a number": "one-hot",
        "truth": "one-hot",
        "town": "one-hot",
        "code": "numeric",
        "rank": "numeric",
        "named rank": "numeric",
        "post": "numeric",
        "day": "date",
        "written day": "date",
        "written truth": "one-hot",
    }


@pytest.mark.parametrize("name", ["rows.csv", "rows.parquet"])
def test_columns_that_are_left_out_are_called_what_they_hold(tmp_path: Path, name: str) -> None:
    path = written(tmp_path / name, values())
    read = read_prepared_table(path, ROLES, Kind.LINEAR, {"town": OneHot()})
    assert read.left_out["number"] == read.left_out["rank"] == "numbers"
    assert read.left_out["truth"] == "true and false"
    assert read.left_out["day"] == "dates"
    left = read_table(path, Columns("id", ("y",), ("rank",)), Kind.LINEAR).left_out
    assert dict(left) == {}


@pytest.mark.parametrize("name", ["rows.csv", "rows.parquet"])
def test_codes_with_leading_zeros_stay_text(tmp_path: Path, name: str) -> None:
    columns = {**values(), "post": [f"0{i % 3}" for i in range(N)]}
    path = written(tmp_path / name, columns)
    data = read_prepared_table(path, ROLES, Kind.LINEAR, {"post": OneHot()}).data
    assert data.preprocess[0].categories == ("00", "01", "02")
