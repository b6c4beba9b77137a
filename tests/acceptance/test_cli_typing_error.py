"""A value typed 10^5 times too large, rows deleted meanwhile, the value corrected: by the CLI."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lethe.consumers.service.embedded_valkey import EmbeddedValkey
from tests.support.command import Lethe

pytestmark = [pytest.mark.redis, pytest.mark.xdist_group("test_cli_typing_error")]


def tables() -> tuple[pa.Table, pa.Table]:
    """Return 300 rows of which 8 alone have feature 4, and row 9 as it was typed."""
    rng = np.random.default_rng(23)
    X = rng.normal(size=(300, 5))
    X[8:, 4] = 0
    y = rng.normal(size=300)
    X[0, 4] = 1
    wrong = rng.normal(size=(1, 5)) * 1e5

    def table(features: Any, first: int, count: int) -> pa.Table:
        columns = {f"x{j}": features[:, j] for j in range(5)}
        ids = [str(i) for i in range(first, first + count)]
        return pa.table({"id": ids, **columns, "y": y[first : first + count]})

    return table(X, 0, 300), table(wrong, 9, 1)


@pytest.mark.parametrize("intercept", [(), ("--no-intercept",)], ids=["intercept", "none"])
def test_a_typing_error_and_its_correction_leave_a_model_that_verifies(
    tmp_path: Path, intercept: tuple[str, ...]
) -> None:
    rows, wrong = tables()
    pq.write_table(rows, tmp_path / "rows.parquet")
    pq.write_table(wrong, tmp_path / "wrong.parquet")
    pq.write_table(rows.slice(9, 1), tmp_path / "right.parquet")
    correct, without = ("correct", "m", "--id", "id", "--data"), ("--no-exact-sums",)
    with EmbeddedValkey(tmp_path / "valkey") as server:
        lethe = Lethe(server.data_dir)
        lethe("register", "m", "--data", str(tmp_path / "rows.parquet"), "--id", "id", "--target",
              "y", "--kind", "linear", "--ridge", "1e-4", *without, *intercept)  # fmt: skip
        for request in (
            (*correct, str(tmp_path / "wrong.parquet")),
            ("delete", "m", *(part for i in range(8) for part in ("--row", str(i)))),
            (*correct, str(tmp_path / "right.parquet")),
        ):
            lethe(*request)
            lethe("work", "deletions", "--until-idle")
        unknown = lethe("versions", "m", "--json").document["versions"][-1]
        lethe("work", "--until-idle")
        repaired = lethe("versions", "m", "--json").document["versions"][-1]
        verified = lethe("verify", "m", "--json").document
        lethe("check")
    assert (unknown["error"]["kind"], unknown["error"]["value"]) == ("unknown", None)
    assert repaired["refresh"]["size"] == "rebuild"
    assert "V has lost its digits" in repaired["refresh"]["reason"]
    assert repaired["error"]["kind"] == "rounded"
    assert verified["distance"] <= repaired["error"]["bound"] <= 1e-7


def test_with_exact_sums_every_version_of_a_typing_error_is_retraining_bit_for_bit(
    tmp_path: Path,
) -> None:
    """Nobody asks for them; and nothing waits, nothing is unknown, nothing is rebuilt."""
    rows, wrong = tables()
    pq.write_table(rows, tmp_path / "rows.parquet")
    pq.write_table(wrong, tmp_path / "wrong.parquet")
    pq.write_table(rows.slice(9, 1), tmp_path / "right.parquet")
    pq.write_table(rows.slice(8), tmp_path / "left.parquet")
    correct = ("correct", "m", "--id", "id", "--data")
    with EmbeddedValkey(tmp_path / "valkey") as server:
        lethe = Lethe(server.data_dir)
        lethe("register", "m", "--data", str(tmp_path / "rows.parquet"), "--id", "id", "--target",
              "y", "--kind", "linear", "--ridge", "1e-4", "--method", "exact")  # fmt: skip
        for request in (
            (*correct, str(tmp_path / "wrong.parquet")),
            ("delete", "m", *(part for i in range(8) for part in ("--row", str(i)))),
            (*correct, str(tmp_path / "right.parquet")),
        ):
            lethe(*request)
            lethe("work", "--until-idle")
            assert lethe("verify", "m", "--digest", "--json").document["equal"]
        versions = lethe("versions", "m", "--json").document["versions"]
        own = lethe(
            "verify", "m", "--digest", "--data", str(tmp_path / "left.parquet"), "--id", "id"
        )
    assert [version["error"]["kind"] for version in versions] == ["rounded"] * 4
    assert [version["refresh"] for version in versions] == [None] * 4
    assert "identical" in own.out


def test_a_value_out_of_range_is_refused_with_its_column_unless_the_model_takes_it(
    tmp_path: Path,
) -> None:
    """What is typed 10^5 times too large may be carried; 10^150 times too large, nothing can."""
    rows, wrong = tables()
    pq.write_table(rows, tmp_path / "rows.parquet")
    far = wrong.set_column(3, "x2", pa.array([1e150]))
    pq.write_table(far, tmp_path / "wrong.parquet")
    register = ("--data", str(tmp_path / "rows.parquet"), "--id", "id", "--target", "y", "--kind",
                "linear", "--ridge", "1e-4", "--no-exact-sums")  # fmt: skip
    with EmbeddedValkey(tmp_path / "valkey") as server:
        lethe = Lethe(server.data_dir)
        lethe("register", "m", *register)
        lethe("register", "takes", *register, "--take-out-of-range")
        for model in ("m", "takes"):
            lethe("correct", model, "--id", "id", "--data", str(tmp_path / "wrong.parquet"))
        lethe("work", "--until-idle")
        refused = lethe("versions", "m", "--json").document["versions"]
        taken = lethe("versions", "takes", "--json").document["versions"]
        lethe("delete", "takes", "--row", "9")
        lethe("work", "--until-idle")
        after = lethe("versions", "takes", "--json").document["versions"][-1]
    assert [version["version"] for version in refused] == [0]
    assert taken[-1]["error"]["kind"] == "unknown"
    assert after["error"]["relative"] <= after["error"]["budget"]
