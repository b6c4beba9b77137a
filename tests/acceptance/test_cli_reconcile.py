"""``lethe reconcile`` and the refusals of ``lethe work --cdc``, as a person types them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from lethe.consumers.service.embedded_valkey import EmbeddedValkey
from tests.support.command import Lethe
from tests.support.training import ROWS, table

pytestmark = [pytest.mark.redis, pytest.mark.xdist_group("test_cli_reconcile")]

FIT = ("--id", "id", "--target", "y", "--subject", "household", "--kind", "linear", "--ridge", "1")


@pytest.fixture
def lethe(tmp_path: Path) -> Iterator[Lethe]:
    """Given model ``m`` of a table."""
    pq.write_table(table(logistic=False), tmp_path / "rows.parquet")
    with EmbeddedValkey(tmp_path / "valkey") as server:
        lethe = Lethe(server.data_dir)
        lethe("register", "m", "--data", str(tmp_path / "rows.parquet"), *FIT)
        yield lethe


def kept(path: Path, rows: pa.Table) -> str:
    """Write the ids of some rows alone."""
    pacsv.write_csv(rows.select(["id"]), path)
    return str(path)


def test_rows_that_a_table_no_longer_has_are_deleted_once(lethe: Lethe, tmp_path: Path) -> None:
    path = kept(tmp_path / "now.csv", table(logistic=False).slice(20))
    call = ("reconcile", "m", "--data", path, "--id", "id")
    looked = lethe(*call, "--dry-run", "--json").document
    assert (looked["rows_missing"], looked["request_ids"]) == (20, [])
    declined = lethe(*call, stdin="n\n", code=1)
    assert f"20 of {ROWS} live rows of m are not in {path}" in declined.err
    nobody = lethe(*call, stdin="", code=2)
    assert "no answer, so nothing was changed" in nobody.err
    assert "--yes" in nobody.err
    first = lethe(*call, "--json", stdin="y\n").document
    again = lethe(*call, "--yes", "--json").document
    assert first["request_ids"] == again["request_ids"]
    worked = lethe("work", "--until-idle", "--json").document
    assert worked["requests"] == {"APPLIED": 2}  # answered twice
    [model] = lethe("status", "--json").document["models"]
    assert (model["version"], model["rows_deleted"]) == (1, 20)  # applied once
    done = lethe(*call, "--yes", "--json").document
    assert (done["rows_live"], done["rows_missing"]) == (ROWS - 20, 0)
    assert done["request_ids"] == []
    lethe("verify", "m")


def test_a_table_that_cannot_be_the_whole_one_is_refused(lethe: Lethe, tmp_path: Path) -> None:
    rows = table(logistic=False)
    call = ("reconcile", "m", "--yes", "--id", "id", "--data")
    short = lethe(*call, kept(tmp_path / "short.csv", rows.slice(100)), code=2)
    assert "--max-fraction" in short.err
    empty = lethe(*call, kept(tmp_path / "empty.csv", rows.slice(0, 0)), code=2)
    assert "has no rows" in empty.err
    other = lethe("reconcile", "m", "--yes", "--id", "household", "--data",
                  str(tmp_path / "rows.parquet"), code=2)  # fmt: skip
    assert "the column of the model's ids" in other.err
    unknown = lethe("reconcile", "n", "--id", "id", "--data", str(tmp_path / "short.csv"), code=2)
    assert "'n'" in unknown.err
    raised = lethe(*call, str(tmp_path / "short.csv"), "--max-fraction", "0.5", "--json")
    assert raised.document["rows_missing"] == 100


def test_a_mapping_that_cannot_be_used_is_said_before_any_worker_runs(
    lethe: Lethe, tmp_path: Path
) -> None:
    mapping = tmp_path / "tables.toml"
    assert "--cdc" in lethe("work", "intake", code=2).err
    assert "check the path" in lethe("work", "--cdc", str(mapping), code=2).err
    mapping.write_text(
        '[[tables]]\ntopic = "t"\ntable = "s.t"\nmodels = ["m"]\nkey = { id = "text" }\n'
    )
    assert "connector" in lethe("work", "--cdc", str(mapping), code=2).err
    mapping.write_text(f'connector = "shop"\n{mapping.read_text()}')
    assert "give --kafka" in lethe("work", "--cdc", str(mapping), code=2).err
