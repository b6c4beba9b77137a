"""What every study says of its run can be repeated, and what it leaves can be kept."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.records import Record
from harness.results import ROOT
from harness.study import Section, Setup, Study

SETTING = {"d": 1}


def _logs(_plan: None, setup: Setup) -> Iterator[Record]:
    (setup.directory / "process.log").write_text("why it ended")
    yield Record(SETTING, "steps", "1", 1.0)


def _fails(plan: None, setup: Setup) -> Iterator[Record]:
    yield from _logs(plan, setup)
    raise RuntimeError("a worker ended early")


STUDY = Study(
    "toy",
    "Toy",
    "",
    (Section("logs", "", None, None, _logs), Section("fails", "", None, None, _fails)),
)


def _run(directory: Path, *options: str) -> Path:
    """Run the section that works; return the page."""
    results, page = directory / "other.json", directory / "other.md"
    files = ["--results", str(results), "--page", str(page)]
    assert STUDY.main(None, ["--only", "logs", *files, *options]) == 0
    return page


def test_the_command_that_repeats_a_run_can_be_typed(tmp_path: Path) -> None:
    page = _run(tmp_path, "--quick").read_text()

    command = "python scripts/toy.py --quick --only 'logs'"
    assert json.loads((tmp_path / "other.json").read_text())["command"] == command
    assert f"Made by `{command}`" in page


def test_a_page_names_the_results_that_it_was_made_from(tmp_path: Path) -> None:
    assert "rendered from `other.json`" in _run(tmp_path).read_text()
    evidence = ROOT / "results" / "evidence.json"
    bench = Study("toy", "Toy", "", (Section("evidence", "", None, None, _logs),))
    page = tmp_path / "evidence.md"
    bench.main(None, ["--render", "--results", str(evidence), "--page", str(page)])
    assert "rendered from `results/evidence.json`" in page.read_text()


def test_what_a_section_that_fails_leaves_is_kept(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    with pytest.raises(RuntimeError, match="a worker ended early"):
        STUDY.main(None, ["--only", "fails", "--keep", str(kept)])
    assert (kept / "process.log").read_text() == "why it ended"


def test_servers_do_not_go_on_with_the_data_of_a_run_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _run(tmp_path / "first", "--keep", str(tmp_path / "kept"))
    with pytest.raises(SystemExit):
        _run(tmp_path / "second", "--keep", str(tmp_path / "kept"))
    assert "is not empty" in capsys.readouterr().err
