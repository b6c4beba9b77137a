"""``lethe insert`` and ``lethe correct`` as processes, from a file to a verified model."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from lethe.consumers.service.embedded_valkey import EmbeddedValkey
from tests.support.command import Lethe
from tests.support.training import table

pytestmark = [pytest.mark.redis, pytest.mark.xdist_group("test_cli_changes")]

FIT = ("--id", "id", "--target", "y", "--subject", "household", "--kind", "linear", "--ridge", "1")


def named(made: pa.Table, prefix: str) -> pa.Table:
    """Return a table whose row i has the id <prefix>i."""
    ids = pa.array([f"{prefix}{i}" for i in range(len(made))])
    return made.set_column(made.column_names.index("id"), "id", ids)


def test_rows_of_a_file_are_inserted_and_corrected_and_the_model_verifies(tmp_path: Path) -> None:
    first = table(logistic=False)
    new, better = named(table(logistic=False, rows=90, seed=8), "n"), table(logistic=False, seed=9)
    better = better.slice(10, 20)
    pq.write_table(first, tmp_path / "rows.parquet")
    pacsv.write_csv(new, tmp_path / "new.csv")
    pq.write_table(better, tmp_path / "better.parquet")
    pq.write_table(table(logistic=False, seed=11).slice(10, 20), tmp_path / "other.parquet")
    change = ("m", "--id", "id", "--json", "--wait", "120", "--data")
    whose = ("--subject", "household")
    with EmbeddedValkey(tmp_path / "valkey") as server:
        lethe = Lethe(server.data_dir)
        lethe("register", "m", "--data", str(tmp_path / "rows.parquet"), *FIT)
        with lethe.working() as worker:
            inserted = lethe("insert", *whose, *change, str(tmp_path / "new.csv")).document
            again = lethe("insert", *whose, *change, str(tmp_path / "new.csv")).document
            corrected = lethe("correct", *change, str(tmp_path / "better.parquet")).document
            other = lethe("correct", *change, str(tmp_path / "other.parquet")).document
            repeat = ("correct", "m", "--id", "id", "--wait=120", "--data")
            answered = lethe(*repeat, str(tmp_path / "better.parquet"))
            back = lethe("correct", *change, str(tmp_path / "better.parquet"), "--again").document
            twice = tmp_path / "twice.csv"
            pacsv.write_csv(new.slice(0, 5), twice)
            exists = lethe("insert", *whose, *change, str(twice), code=1).document
            still = lethe("insert", *whose, *change, str(twice), code=1).document
            lethe("delete", "m", "--row", "n0", "u11", "u100", "--wait", "120")
            status = lethe("status", "m", "--json").document
            worker.terminate()
            worker.communicate(timeout=120)
        shown = lethe("receipt", inserted[0]["request_id"], "--model", "m")
        last = named(table(logistic=False, rows=3, seed=10), "last")
        pacsv.write_csv(last, tmp_path / "last.csv")
        lethe("insert", *whose, "m", "--id", "id", "--data", str(tmp_path / "last.csv"))
        lethe("work", "--until-idle")
        lethe("verify", "m")
        lethe("audit", "m")
        lethe("check")
        version = lethe("versions", "m", "--json").document["versions"][-1]
        lethe("register", "m", "--data", str(tmp_path / "rows.parquet"), *FIT, "--replace")
        lethe("insert", *whose, "m", "--id", "id", "--data", str(tmp_path / "last.csv"))
        lethe("work", "--until-idle")
        anew = lethe("status", "m", "--json").document
    assert sum(receipt["rows_inserted"] for receipt in inserted) == 90
    assert again == inserted
    for changed in (corrected, other, back):
        assert sum(receipt["rows_corrected"] for receipt in changed) == 20
    assert f"answered before, and not executed again: {len(corrected)} request" in answered.out
    assert corrected[0]["request_id"] != back[0]["request_id"]
    assert {receipt["code"] for receipt in exists + still} == {"ROW_EXISTS"}
    assert exists[0]["request_id"] != still[0]["request_id"]  # what was rejected is decided anew
    assert version["rows_live"] == 240 + 90 - 3 + 3
    assert (status["rows_inserted"], status["rows_corrected"]) == (90, 60)
    assert "inserted" in shown.out
    assert anew["rows_live"] == 240 - 2 + 3  # a model that is registered anew takes them anew


@pytest.mark.parametrize(
    ("op", "change", "says"),
    [
        ("insert", {"missing": "a"}, "has no column 'a'"),
        ("correct", {"missing": "id"}, "has no column 'id'"),
        ("insert", {"text": "b"}, "b"),
        ("insert", {"twice": "id"}, "the same id"),
    ],
)
def test_a_file_that_cannot_be_used_gets_one_message_and_nothing_is_sent(
    tmp_path: Path, op: str, change: dict[str, str], says: str
) -> None:
    pq.write_table(table(logistic=False), tmp_path / "rows.parquet")
    bad = table(logistic=False, rows=6, seed=8)
    if "missing" in change:
        bad = bad.drop([change["missing"]])
    if "text" in change:
        at = bad.column_names.index(change["text"])
        bad = bad.set_column(at, change["text"], pa.array(["x"] * len(bad)))
    if "twice" in change:
        bad = pa.concat_tables([bad, bad])
    pacsv.write_csv(bad, tmp_path / "bad.csv")
    with EmbeddedValkey(tmp_path / "valkey") as server:
        lethe = Lethe(server.data_dir)
        lethe("register", "m", "--data", str(tmp_path / "rows.parquet"), *FIT)
        whose = ("--subject", "household") if op == "insert" else ()
        answer = lethe(op, "m", *whose, "--id", "id", "--data", str(tmp_path / "bad.csv"), code=2)
        unknown = lethe(op, "nobody", "--id", "id", "--data", str(tmp_path / "bad.csv"), code=2)
        gone = lethe(op, "m", "--id", "id", "--data", str(tmp_path / "none.csv"), code=2)
    assert says in answer.err
    assert "nobody" in unknown.err
    assert "none.csv" in gone.err
