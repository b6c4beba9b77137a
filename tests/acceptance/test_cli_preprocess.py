"""A logistic model with its preprocessing, by the command: it forgets, down to a class's last row.

The command's own refit (``lethe verify``) judges it, and scikit-learn's pipeline beside it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet

from lethe.consumers.service.embedded_valkey import EmbeddedValkey
from lethe.engine.preprocess.input.columns import Columns, Date, Numeric, OneHot, Ordinal
from tests.support.command import Within
from tests.support.pipelines import Array, Rows, matrix, parameters, pipeline

pytestmark = [pytest.mark.redis, pytest.mark.xdist_group("test_cli_preprocess")]

COLUMNS: Columns = {
    "visits": Numeric(),
    "tried": Numeric(),
    "town": OneHot(),
    "plan": Ordinal(categories=("free", "paid")),
    "joined": Date(),
}
STEPS = """
[columns.visits]
step = "numeric"
[columns.tried]
step = "numeric"
[columns.town]
step = "one-hot"
[columns.plan]
step = "ordinal"
categories = ["free", "paid"]
[columns.joined]
step = "date"
"""
HEADER = "id,visits,tried,town,plan,joined,left"
N = 60
FIT = ("--id", "id", "--target", "left", "--kind", "logistic", "--ridge", "1", "--method", "exact")


def drawn() -> dict[str, str]:
    """Return rows by id: a number has gaps, and only u7 has another value of ``tried``."""
    draw, rows = np.random.default_rng(3), {}
    for i in range(N):
        visits = "" if i % 9 == 4 else f"{draw.normal(5, 2):.3f}"
        joined = date(2015, 1, 1) + timedelta(days=int(draw.integers(3000)))
        town, plan = draw.choice(["Ulm", "Bonn", "Kiel"]), draw.choice(["free", "paid"])
        left = "yes" if draw.random() < 0.2 else "no"
        rows[f"u{i}"] = f"{visits},{int(i == 7)},{town},{plan},{joined},{left}"
    return rows


def refitted(live: Mapping[str, str]) -> Array:
    """Return the parameters of scikit-learn's pipeline, fitted to the live rows."""
    visits, tried, town, plan, joined, left = zip(
        *(rest.split(",") for rest in live.values()), strict=True
    )
    rows: Rows = {
        "visits": np.array([float(v or "nan") for v in visits], dtype=object),
        "tried": np.array([float(v) for v in tried], dtype=object),
        "town": np.array(town, dtype=object),
        "plan": np.array(plan, dtype=object),
        "joined": np.array([date.fromisoformat(day) for day in joined], dtype=object),
    }
    y = np.array([int(v == "yes") for v in left])
    return parameters(pipeline(COLUMNS, kind="logistic").fit(matrix(COLUMNS, rows), y))


def test_a_logistic_pipeline_forgets_and_changes_down_to_a_classs_last_row(tmp_path: Path) -> None:
    live, rows, columns = drawn(), tmp_path / "rows.csv", tmp_path / "columns.toml"
    columns.write_text(STEPS)

    def written(given: Mapping[str, str]) -> str:
        rows.write_text("\n".join([HEADER, *(f"{row},{rest}" for row, rest in given.items())]))
        return str(rows)

    with EmbeddedValkey(tmp_path / "valkey") as server:
        lethe = Within(server.data_dir)
        lethe("register", "m", "--data", written(live), "--preprocess", str(columns), *FIT)

        def change(op: str, row: str, values: str, *codes: str) -> None:
            """Change a row; it is applied, or rejected with one of these codes."""
            asked = (op, "m", "--id", "id", "--data", written({row: values}), "--json", "--wait=99")
            [receipt] = lethe(*asked, code=1 if codes else 0).document
            assert receipt["code"] in (codes or (None,))
            if not codes:
                live[row] = values

        def unplaced(row: str, values: str, why: str) -> None:
            """Insert a row that the model has no place for: it is named, and nothing is sent."""
            asked = ("insert", "m", "--id", "id", "--data", written({row: values}))
            assert why in lethe(*asked, code=2).err

        def delete(*gone: str) -> None:
            answer = lethe("delete", "m", "--row", *gone, "--json", "--wait=99").document
            assert answer["status"] == "APPLIED"
            for row in gone:
                del live[row]

        with lethe.working() as worker:
            delete("u0", "u1")
            change("insert", "n1", "4.5,0,Ulm,free,2019-05-06,no")
            change("insert", "n2", ",0,Kiel,paid,20200102,yes")
            unplaced("n3", "4.5,0,Atlantis,free,2019-05-06,no", "column 'town': no row had 'Atl")
            unplaced("n4", "4.5,0,Ulm,free,,no", "column 'joined': no row had a missing value")
            change("insert", "n5", "4.5,0,Ulm,free,9999-12-31,no", "STATISTICS_MOVED")
            # Out of range, unless the last version is over the budget itself, before a refresh.
            far = "1e300,0,Ulm,free,2019-05-06,no"
            change("insert", "n6", far, "OUT_OF_RANGE", "ILL_CONDITIONED")
            change("correct", "u2", "9.5,0,Bonn,paid,2018-01-02,yes")
            change("correct", "u7", "4.5,0,Ulm,free,2019-05-06,no", "STATISTICS_MOVED")
            delete("u7")  # "tried" is constant from now on
            lethe("refresh", "m", "--size", "rebuild", "--wait=99")
            lethe("verify", "m")
            lethe("export", "m", "--out", str(tmp_path / "m.json"))
            exported = json.loads((tmp_path / "m.json").read_text())
            theta = np.append(exported["theta"], exported["intercept"])
            np.testing.assert_allclose(theta, refitted(live), atol=1e-6)
            delete(*(row for row, rest in live.items() if rest.endswith("yes")))
            lethe("verify", "m")
            status = lethe("status", "m", "--json").document
            change("insert", "n7", "4.5,0,Ulm,free,2019-05-06,yes", "STATISTICS_MOVED")
            delete("u3")
            worker.terminate()
            worker.communicate(timeout=120)
        lethe("verify", "m")
        lethe("check")
        lethe("audit", "m")
    assert status["status"] == "INTERCEPT_PENALISED"


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_columns_that_preprocessing_leaves_out_are_named_with_what_they_hold(
    tmp_path: Path, form: str
) -> None:
    ids, columns = [f"u{i}" for i in range(9)], tmp_path / "columns.toml"
    table = pa.table({
        "id": ids, "size": [float(i % 4) for i in range(9)], "age": list(range(9)),
        "paid": [i % 2 == 0 for i in range(9)], "note": ids, "y": [float(i % 5) for i in range(9)],
    })  # fmt: skip
    path = tmp_path / f"rows.{form}"
    (csv.write_csv if form == "csv" else parquet.write_table)(table, path)
    columns.write_text('[columns.size]\nstep = "numeric"\n')
    with EmbeddedValkey(tmp_path / "valkey") as server:
        asked = ("--data", str(path), "--preprocess", str(columns), "--id", "id", "--target", "y")
        answer = Within(server.data_dir)(
            "register", "m", *asked, "--kind", "linear", "--ridge", "1"
        )
    assert (
        "left out: age (numbers), paid (true and false), note (text); name them in the file of "
        "--preprocess to learn from them\n"
    ) in answer.out
