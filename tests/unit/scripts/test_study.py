"""A study leaves a table a section, and what each was measured with; what fails can be kept."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.machine import of_parts
from harness.records import Record
from harness.results import Row, noted, read_table, write_table
from harness.study import Section, Setup, Study

SETTING = {"d": 1}


def _logs(_plan: None, setup: Setup) -> Iterator[Record]:
    (setup.directory / "process.log").write_text("why it ended")
    yield Record(SETTING, "steps", "1", 1.0, goal=0.5)
    yield Record({"k": 2}, "seconds", "s", 0.123456)


def _fails(plan: None, setup: Setup) -> Iterator[Record]:
    yield from _logs(plan, setup)
    raise RuntimeError("a worker ended early")


STUDY = Study("toy", (Section("the logs", None, None, _logs), Section("fails", None, None, _fails)))


def _run(directory: Path, *options: str) -> Path:
    """Run the section that works; return the directory of its results."""
    results = directory / "toy"
    assert STUDY.main(None, ["--only", "the logs", "--results", str(results), *options]) == 0
    return results


def test_a_section_becomes_a_table_with_its_goals(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steps, seconds = read_table(_run(tmp_path) / "the-logs.csv")

    assert (steps["d"], steps["value"], steps["goal"], steps["met"]) == (1, 1.0, "<= 0.5", False)
    assert (seconds["d"], seconds["k"], seconds["value"]) == (None, 2, 0.1235)
    assert "NOT MET: steps: worst 1, goal <= 0.5, 0 of 1 cells" in capsys.readouterr().out


def test_a_section_that_is_measured_again_leaves_those_of_others(tmp_path: Path) -> None:
    results = tmp_path / "toy"
    write_table(results / "other.csv", [{"value": 1}])
    write_table(results / "machine.csv", [{"part": "other", "cores": "64"}])

    _run(tmp_path, "--seed", "7")

    assert read_table(results / "other.csv") == [{"value": 1}]
    machines = noted(results)
    assert machines["other"] == {"cores": "64"}
    assert machines["the logs"]["seed"] == "7"
    assert of_parts(machines)["cores"].startswith("other: 64; the logs: ")


def test_a_quick_run_writes_only_where_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.study.RESULTS", tmp_path / "results")

    assert STUDY.main(None, ["--quick", "--only", "the logs"]) == 0

    assert not (tmp_path / "results").exists()


def test_a_table_is_read_as_it_was_written(tmp_path: Path) -> None:
    rows: list[Row] = [
        {"a": 'x, "y"', "b": 1, "c": 2.5, "d": True},
        {"a": "z", "b": None, "c": 1e-300},
    ]

    write_table(tmp_path / "t.csv", rows)

    assert read_table(tmp_path / "t.csv") == [rows[0], {**rows[1], "d": None}]


def test_what_a_section_that_fails_leaves_is_kept(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    with pytest.raises(RuntimeError, match="a worker ended early"):
        STUDY.main(None, ["--quick", "--only", "fails", "--keep", str(kept)])
    assert (kept / "process.log").read_text() == "why it ended"


def test_servers_do_not_go_on_with_the_data_of_a_run_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _run(tmp_path / "first", "--keep", str(tmp_path / "kept"))
    with pytest.raises(SystemExit):
        _run(tmp_path / "second", "--keep", str(tmp_path / "kept"))
    assert "is not empty" in capsys.readouterr().err
