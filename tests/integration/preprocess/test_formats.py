"""A table is the same model whatever format its rows come in: to register, insert and correct.

The truth is scikit-learn's pipeline, fitted to the values that the formats are written from.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import date, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lethe import LinearModel
from lethe.consumers.contract.version_chain import theta_of
from lethe.consumers.registration.table.reader import (
    Columns as Roles,
    proposed_steps,
    read_given_rows,
    read_prepared_table,
)
from lethe.engine.fit.objective import Kind
from lethe.engine.preprocess.input.columns import (
    Columns,
    Date,
    Numeric,
    OneHot,
    Ordinal,
    TargetEncode,
)
from lethe.engine.store.layout.config import ModelConfig
from tests.support import pipelines
from tests.support.pipelines import Array
from tests.support.platform import Platform
from tests.support.prepared import PreparedTable

pd: Any = import_module("pandas")  # has no types

COLUMNS: Columns = {
    "size": Numeric(),
    "paid": Numeric(),
    "flag": OneHot(),
    "floor": OneHot(unknown="ignore"),
    "rank": Ordinal(),
    "town": OneHot(),
    "post": TargetEncode(),
    "since": Date(),
}
"""Numbers, true and false as numbers and as categories, whole numbers, text, and dates."""

TYPES: dict[str, Any] = {
    "size": pa.float64(),
    "paid": pa.bool_(),
    "flag": pa.bool_(),
    "floor": pa.int64(),
    "rank": pa.int64(),
    "town": pa.string(),
    "post": pa.string(),
    "since": pa.date32(),
}
ROLES = Roles(id="id", targets=("y",))
N = 40

Rows = Mapping[str, Sequence[Any]]
"""Columns with values of Python, None where missing, and ids and targets."""


def drawn() -> dict[str, list[Any]]:
    draw = np.random.default_rng(7)
    rows: dict[str, list[Any]] = {
        "id": [f"u{i}" for i in range(N)],
        "size": draw.normal(60, 9, N).round(2).tolist(),
        "paid": (draw.random(N) < 0.5).tolist(),
        "flag": (draw.random(N) < 0.5).tolist(),
        "floor": draw.choice([2, 10, -1], N).tolist(),
        "rank": draw.choice([1, 9, 10], N).tolist(),
        "town": draw.choice(["Ulm", "Bonn", "true"], N).tolist(),
        "post": draw.choice(["01067", "89073", "50667"], N).tolist(),
        "since": [date(2015, 1, 1) + timedelta(int(days)) for days in draw.integers(0, 3000, N)],
        "y": draw.normal(size=N).round(3).tolist(),
    }
    for place, name in enumerate(("size", "paid", "flag", "floor", "town", "post", "since")):
        for row in range(place, N, 9):
            rows[name][row] = None
    return rows


FIRST = drawn()
INSERTED: Rows = {
    "id": ["n1", "n2"], "size": [55.5, None], "paid": [True, None], "flag": [False, None],
    "floor": [10, None], "rank": [9, 10], "town": ["true", None], "post": ["01067", None],
    "since": [date(2019, 5, 6), None], "y": [1.5, -2.0],
}  # fmt: skip
CORRECTED: Rows = {
    "id": ["u3"], "size": [70.25], "paid": [False], "flag": [True], "floor": [None],
    "rank": [1], "town": ["Bonn"], "post": ["89073"], "since": [date(2016, 2, 29)], "y": [0.25],
}  # fmt: skip

# -- the formats ----------------------------------------------------------------------------------


def csv(spell: Callable[[str, Any], str]) -> Callable[[Path, Rows], Path]:
    def write(directory: Path, rows: Rows) -> Path:
        lines = [",".join(rows)]
        for values in zip(*rows.values(), strict=True):
            named = zip(rows, values, strict=True)
            lines.append(",".join("" if v is None else spell(name, v) for name, v in named))
        path = directory / f"{len(lines)}.csv"
        path.write_text("\n".join(lines) + "\n")
        return path

    return write


def lower(_: str, value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def with_points(name: str, value: Any) -> str:
    """Return a value as pandas writes it: whole numbers with gaps have a point."""
    return f"{value}.0" if name in ("floor", "rank") else str(value)


def parquet(**other: Any) -> Callable[[Path, Rows], Path]:
    """Return what writes a Parquet file; ``other`` types than those of `TYPES`, None: categories.

    A column of such a type that holds nothing has no type at all.
    """

    def write(directory: Path, rows: Rows) -> Path:
        made: dict[str, Any] = {}
        for name, values in rows.items():
            made[name] = pa.array(values, TYPES.get(name))
            if name in other and all(value is None for value in values):
                made[name] = pa.nulls(len(values))
            elif name in other:
                kind = other[name]
                made[name] = made[name].cast(kind) if kind else made[name].dictionary_encode()
        path = directory / f"{len(rows['id'])}.parquet"
        pq.write_table(pa.table(made), path)
        return path

    return write


FILES: dict[str, Callable[[Path, Rows], Path]] = {
    "CSV": csv(lambda _, value: str(value)),
    "CSV, lower case": csv(lower),
    "CSV of pandas": csv(with_points),
    "Parquet": parquet(),
    "Parquet of pandas": parquet(
        floor=pa.float64(), rank=pa.float64(), town=None, flag=None, since=pa.timestamp("ns")
    ),
    "Parquet of Polars": parquet(
        town=pa.string_view(), post=pa.large_string(), floor=pa.int32(), rank=pa.uint8(),
        size=pa.decimal128(9, 3), since=pa.string(),
    ),
}  # fmt: skip


def given_by_file(form: str, directory: Path, rows: Rows, config: ModelConfig) -> list[Any]:
    """Return the rows of a file as `lethe insert` and `lethe correct` send them."""
    roles = Roles(id="id", targets=("y",), classes=())
    read = read_given_rows(FILES[form](directory, rows), roles, config)
    return [
        {"id": row_id, "values": list(values), "target": float(y[0])}
        for row_id, values, y in zip(read.ids, read.values, read.y, strict=True)
    ]


def given_by_json(rows: Rows) -> list[Any]:
    """Return rows as another program sends them to the topic."""
    names = [str(name) for name in COLUMNS]
    values = zip(*(rows[name] for name in names), strict=True)
    listed = [
        {"id": row_id, "values": dict(zip(names, row, strict=True)), "target": y}
        for row_id, row, y in zip(rows["id"], values, rows["y"], strict=True)
    ]
    return list(json.loads(json.dumps(listed, default=date.isoformat)))


# -- the models -----------------------------------------------------------------------------------


def registered(memory: Platform, path: Path, model_id: str) -> ModelConfig:
    data = read_prepared_table(path, ROLES, Kind.LINEAR, dict(COLUMNS.items())).data
    config = ModelConfig(
        model_id=model_id,
        kind=Kind.LINEAR,
        method="exact",
        ridge=1.0,
        fit_intercept=True,
        feature_names=data.feature_names,
        target_names=("y",),
        error_budget=0.5,
        preprocess=data.preprocess,
    )
    memory.registrar().register(config, data)
    return config


def applied(memory: Platform, model_id: str, op: str, rows: list[Any]) -> None:
    request = memory.send_change(model_id, op, *rows)
    memory.drain()
    receipt = memory.final(request, model_id)
    assert receipt.status == "APPLIED", receipt.detail


def truth_of(*tables: Rows) -> Array:
    """Return scikit-learn's parameters of the rows of tables; a later row replaces an earlier."""
    live = {
        row_id: place
        for place, row_id in enumerate(row_id for table in tables for row_id in table["id"])
    }
    places = list(live.values())
    joined = {name: [v for table in tables for v in table[str(name)]] for name in (*COLUMNS, "y")}
    X = np.empty((len(places), len(COLUMNS)), dtype=object)
    for j, name in enumerate(COLUMNS):
        X[:, j] = [joined[name][place] for place in places]
    y = np.array(joined["y"])[places]
    return pipelines.parameters(pipelines.pipeline(COLUMNS).fit(X, y))


@pytest.mark.parametrize("form", FILES)
def test_a_table_registers_the_same_model_from_every_file(
    memory: Platform, tmp_path: Path, form: str
) -> None:
    config = registered(memory, FILES[form](tmp_path, FIRST), "m")
    categories = {one.name: one.categories for one in config.preprocess if one.categories}
    assert categories == {
        "flag": (False, True, None),
        "floor": (-1, 2, 10, None),
        "rank": (1, 9, 10),
        "town": ("Bonn", "Ulm", "true", None),
        "post": ("01067", "50667", "89073", None),
    }
    kinds = {name: {type(v) for v in known if v is not None} for name, known in categories.items()}
    assert kinds == {"flag": {bool}, "floor": {int}, "rank": {int}, "town": {str}, "post": {str}}
    theta = theta_of(memory.parameters())[:, 0]
    np.testing.assert_allclose(theta, truth_of(FIRST), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("change", [*FILES, "JSON"])
@pytest.mark.parametrize("first", ["CSV", "Parquet"])
def test_a_row_changes_a_model_alike_in_every_format(
    memory: Platform, tmp_path: Path, first: str, change: str
) -> None:
    config = registered(memory, FILES[first](tmp_path, FIRST), "m")
    for op, rows in (("insert", INSERTED), ("correct", CORRECTED)):
        if change == "JSON":
            applied(memory, "m", op, given_by_json(rows))
            continue
        given = given_by_file(change, tmp_path, rows, config)
        for row, same in zip(given, given_by_json(rows), strict=True):
            *values, since = row["values"]
            *expected, day = same["values"].values()
            assert values == expected
            assert (since or "")[:10] == (day or "")  # or midnight of that day
        applied(memory, "m", op, given)
    theta = theta_of(memory.parameters())[:, 0]
    np.testing.assert_allclose(theta, truth_of(FIRST, INSERTED, CORRECTED), rtol=1e-9, atol=1e-12)


def test_a_data_frame_makes_the_same_model_in_the_library() -> None:
    def frame(rows: Rows) -> Any:
        return pd.DataFrame({name: rows[str(name)] for name in COLUMNS})

    model = LinearModel(preprocess=COLUMNS).fit(frame(FIRST), FIRST["y"], FIRST["id"])
    model.insert(frame(INSERTED), INSERTED["y"], INSERTED["id"], method="exact")
    model.correct(frame(CORRECTED), CORRECTED["y"], CORRECTED["id"], method="exact")
    theta = np.append(model.theta, model.intercept)
    np.testing.assert_allclose(theta, truth_of(FIRST, INSERTED, CORRECTED), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("form", FILES)
def test_the_same_steps_are_proposed_for_a_table_from_every_file(tmp_path: Path, form: str) -> None:
    proposed = proposed_steps(FILES[form](tmp_path, FIRST), ROLES)
    assert proposed == {
        "size": "numeric",
        "paid": "one-hot",
        "flag": "one-hot",
        "floor": "numeric",
        "rank": "numeric",
        "town": "one-hot",
        "post": proposed["post"],  # a number in a CSV file, until somebody says otherwise
        "since": "date",
    }


@pytest.mark.parametrize(
    ("known", "given"),
    [
        (["True", "False"], [True, False]),
        (["true", "FALSE"], [True, False]),
        ([True, False], ["True", "false"]),
        (["2", "10"], [2, 10.0]),
        ([2, 10], ["2", "10.0"]),
        (["2.0", "10.0"], [2, 10]),
        ([True, False], [1, "0"]),
        (["a", None], ["a", " "]),
    ],
)
def test_a_model_that_was_registered_with_other_types_takes_the_same_values(
    memory: Platform, known: list[Any], given: list[Any]
) -> None:
    """Categories from CSV files have been text, whatever they spell."""
    columns: Columns = {"c": OneHot()}
    rows = {"c": np.array(known * 5, dtype=object)}
    table = PreparedTable(memory, columns, rows={"c": rows["c"]}, y=np.arange(10.0) % 4)
    table.register()
    place = len(table.y)
    listed = [
        {"id": f"row-{place + i}", "values": [value], "target": 3.0}
        for i, value in enumerate(given)
    ]
    applied(memory, "m", "insert", listed)
    table.rows = {"c": np.append(table.rows["c"], np.array(known, dtype=object))}
    table.y = np.append(table.y, [3.0, 3.0])
    table.live |= dict.fromkeys((place, place + 1))
    table.check()


@pytest.mark.parametrize(
    ("known", "given"), [(["01067", "a"], 1067), (["2", "2.0"], 2), ([2, 10], "02"), ([2, 10], "x")]
)
def test_what_spells_no_category_or_two_is_refused(
    memory: Platform, known: list[Any], given: Any
) -> None:
    rows = {"c": np.array(known * 5, dtype=object)}
    PreparedTable(memory, {"c": OneHot()}, rows={"c": rows["c"]}, y=np.arange(10.0)).register()
    request = memory.send_change("m", "insert", {"id": "new", "values": [given], "target": 1.0})
    receipt = memory.answer(request)
    assert (receipt.status, receipt.code) == ("REJECTED", "SCHEMA")
    assert "column 'c' has a category that no row had" in (receipt.detail or "")
