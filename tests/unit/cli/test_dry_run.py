"""``lethe register --dry-run`` says what it will take, asks no server, and registers nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lethe.consumers.cli import main
from lethe.consumers.cli.maintain import registering
from lethe.consumers.registration.plan import Plan
from lethe.consumers.registration.table import foreseen

Say = Callable[..., tuple[int, str, str]]


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Say:
    def no_server(*_: object) -> None:
        raise AssertionError("a server was asked")

    monkeypatch.setattr(registering, "open_runtime", no_server)

    def run(path: Path, *options: str, kind: str = "linear") -> tuple[int, str, str]:
        roles = ("--id", "id", "--target", "y", "--kind", kind, "--ridge", "1")
        code = main.run(["register", "m", "--data", str(path), *roles, "--dry-run", *options])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


@pytest.fixture
def table(tmp_path: Path) -> Path:
    for name, first in (("a", 0), ("b", 60)):
        ids = [f"u{i}" for i in range(first, first + 60)]
        columns: dict[str, Any] = {"id": ids, "y": [1.0] * 60, "city": ["Oslo"] * 60}
        columns |= {f"x{j}": [float(j)] * 60 for j in range(5)}
        pq.write_table(pa.table(columns), tmp_path / f"{name}.parquet")
    return tmp_path


def test_a_plan_is_text(say: Say, table: Path) -> None:
    code, out, err = say(table)

    assert (code, err) == (0, "")
    lines = {line[:21].strip(): line[21:].strip() for line in out.splitlines()[:-1]}
    assert lines["rows"] == "120"
    assert lines["features"] == "5 features and an intercept"
    assert lines["table"].startswith("2 files, 0.0 MB")
    assert lines["memory here"].startswith("about 2")
    assert lines["memory of the store"].startswith("about 0.0 MB")
    assert lines["processor time"].startswith("about 1 s (reading 0, fitting 0, storing 0)")
    assert out.endswith("\nnothing was registered\n")


def test_a_plan_is_one_json_document(say: Say, table: Path) -> None:
    code, out, err = say(table, "--json", "--no-intercept")

    assert (code, err) == (0, "")
    document = json.loads(out)
    size = sum(path.stat().st_size for path in table.iterdir())
    assert document["dry_run"] is True
    assert (document["rows"], document["features"], document["files"]) == (120, 5, 2)
    assert document["table_bytes"] == size
    assert set(document["seconds"]) == {"total", "reading", "fitting", "storing"}


def test_rows_of_csv_files_are_counted_by_their_lines(say: Say, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("id,a,y\n1,2,3\n2,3,4\n")

    assert "rows                 2 (lines but for headers)\n" in say(path)[1]


def test_a_plan_with_preprocessing_says_that_columns_make_more_features(
    say: Say, table: Path
) -> None:
    steps = table.parent / "steps.toml"
    steps.write_text('[columns.x0]\nstep = "numeric"\n[columns.city]\nstep = "one-hot"\n')

    assert "2 columns, each a feature or more and" in say(table, "--preprocess", str(steps))[1]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--features", "x9"), "has no column 'x9'"),
        (("--exact-sums", "--method", "influence"), "--exact-sums is for linear models"),
        (("--certify", "1,1e-4,10"), "method exact"),
    ],
)
def test_what_registration_would_refuse_is_refused(
    say: Say, table: Path, options: tuple[str, ...], expected: str
) -> None:
    code, out, err = say(table, *options)

    assert (code, out) == (2, "")
    assert err.startswith("lethe: ")
    assert err.count("\n") == 1
    assert expected in err


def test_dual_rows_are_planned_for_where_there_are_no_exact_sums(say: Say, table: Path) -> None:
    with_sums, without = (
        json.loads(say(table, "--json", option)[1])
        for option in ("--exact-sums", "--no-exact-sums")
    )

    assert without["memory_bytes"] - with_sums["memory_bytes"] == 120 * 6 * 8
    assert without["store_bytes"] - with_sums["store_bytes"] == 120 * 6 * 8
    assert Plan(1, 1, 1, 1, 1, 1, 1.0, 2.0, 3.0).seconds == 7.0


def test_a_table_that_the_store_does_not_take_goes_to_files_on_the_embedded_store(
    say: Say, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(foreseen, "MAX_NUMBERS", 100)
    monkeypatch.setenv("LETHE_DATA_DIR", str(tmp_path / "data"))
    code, out, err = say(table)
    assert (code, err) == (0, "")
    where = tmp_path / "data" / "rows"
    assert out.startswith(f"more rows than the store takes: in files at {where} (--rows)\n")
    assert json.loads(say(table, "--json")[1])["rows"] == 120

    monkeypatch.setenv("LETHE_REDIS_URL", "redis://store:6379")
    code, out, err = say(table)
    assert (code, out) == (2, "")
    assert "the most that the store takes; keep the rows in files (--rows URL" in err
