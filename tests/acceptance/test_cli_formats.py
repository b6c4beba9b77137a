"""One table, registered from CSV and from Parquet, changed through the other format: one model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from lethe.consumers.service.embedded_valkey import EmbeddedValkey
from tests.support.command import Lethe

pytestmark = [
    pytest.mark.redis,
    pytest.mark.thorough,
    pytest.mark.xdist_group("test_cli_formats"),
]

STEPS = """
[columns.income]
step = "numeric"
[columns.member]
step = "one-hot"
[columns.code]
step = "one-hot"
[columns.joined]
step = "date"
"""


def table(first: int, count: int, seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    income = [None if i % 8 == 5 else float(x) for i, x in enumerate(rng.normal(5, 2, count))]
    days = [f"20{10 + i % 9}-0{1 + i % 9}-11" for i in range(count)]
    return pa.table(
        {
            "id": [f"u{first + i}" for i in range(count)],
            "income": income,
            "member": [None if i % 9 == 7 else i % 2 == 0 for i in range(count)],
            "code": [(7, 10, 9)[i % 3] for i in range(count)],
            "joined": days,
            "spare": rng.normal(size=count),
            "y": rng.normal(size=count),
        }
    )


def written(path: Path, rows: pa.Table) -> str:
    if path.suffix == ".csv":
        pacsv.write_csv(rows, path)
    else:
        pq.write_table(rows, path)
    return str(path)


def test_a_model_is_the_same_by_whatever_format_its_rows_came(tmp_path: Path) -> None:
    (tmp_path / "steps.toml").write_text(STEPS)
    parameters: dict[str, Any] = {}
    with EmbeddedValkey(tmp_path / "valkey") as server:
        lethe = Lethe(server.data_dir)
        for first, second in (("csv", "parquet"), ("parquet", "csv")):
            rows = written(tmp_path / f"rows.{first}", table(0, 60, 1))
            made = lethe("register", first, "--data", rows, "--id", "id", "--target", "y", "--kind",
                         "linear", "--ridge", "1", "--preprocess", str(tmp_path / "steps.toml"),
                         "--method", "exact")  # fmt: skip
            assert "left out: spare (numbers)" in made.out
            new = written(tmp_path / f"new.{second}", table(60, 20, 2))
            better = written(tmp_path / f"better.{second}", table(5, 10, 3))
            lethe("insert", first, "--id", "id", "--data", new)
            lethe("work", "--until-idle")  # no order is promised between the topics
            lethe("correct", first, "--id", "id", "--data", better)
            lethe("delete", first, "--row", "u1", "--row", "u61")
            lethe("work", "--until-idle")
            assert lethe("status", first, "--json").document["rows_live"] == 78
            lethe("verify", first)
            out = tmp_path / f"{first}.json"
            lethe("export", first, "--out", str(out))
            parameters[first] = out.read_text()
    one, other = (json.loads(text) for text in (parameters["csv"], parameters["parquet"]))
    assert one["feature_names"] == other["feature_names"]
    np.testing.assert_allclose(one["theta"], other["theta"], rtol=1e-9, atol=1e-12)


def test_a_table_with_columns_that_are_no_numbers_is_registered_and_says_what_they_hold(
    tmp_path: Path,
) -> None:
    ids = [UUID(int=i) for i in range(20)]
    columns = {
        "id": pa.array([one.bytes for one in ids], pa.binary(16)),
        "tags": [["a"]] * 20,
        "place": [{"street": "b"}] * 20,
        "stay": pa.array(range(20), pa.duration("s")),
        "x": [i * 0.5 for i in range(20)],
        "y": [float(i % 3) for i in range(20)],
    }
    rows = written(tmp_path / "rows.parquet", pa.table(columns))
    with EmbeddedValkey(tmp_path / "valkey") as server:
        lethe = Lethe(server.data_dir)
        given = ("--data", rows, "--target", "y", "--kind", "linear", "--ridge", "1")
        refused = lethe("register", "m", *given, "--id", "tags", code=2).err
        assert "column 'tags': holds list<element: string>; ids are text or whole" in refused
        assert lethe("status", "--json").document["models"] == []
        said = lethe("register", "m", *given, "--id", "id").out
        assert "tags (list<element: string>), place (struct<street: string>)" in said
        assert "stay (duration[s])" in said
        assert "[columns.x]" in said
        assert "[columns.tags]" not in said
        lethe("delete", "m", "--row", str(ids[7]))
        lethe("work", "--until-idle")
        assert lethe("status", "m", "--json").document["rows_live"] == 19
