"""`make kernels`: a quick run measures every number, and says whether it meets its goal."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from harness.results import noted, read_table
from tests.support.servers import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

SECTIONS = ("cost-against-d", "cost-against-n")


@dataclass(frozen=True)
class Run:
    """What one quick run left."""

    results: Path
    printed: str

    def of(self, section: str, metric: str = "", **setting: Any) -> list[dict[str, Any]]:
        """Return the figures that match."""
        return [
            row
            for row in read_table(self.results / f"{section}.csv")
            if row["metric"].startswith(metric) and setting.items() <= row.items()
        ]

    @property
    def all(self) -> list[dict[str, Any]]:
        """Every figure."""
        return [row for section in SECTIONS for row in self.of(section)]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    directory = tmp_path_factory.mktemp("kernels")
    results = directory / "results"
    done = subprocess.run(
        [sys.executable, "scripts/study.py", "kernels", "--quick", "--results", str(results)],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(directory)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert list(directory.iterdir()) == [results]  # the mapped files are gone
    return Run(results, done.stdout)


def test_every_section_has_its_table_and_its_machine(run: Run) -> None:
    assert {path.stem for path in run.results.iterdir()} == {*SECTIONS, "machine"}
    assert set(noted(run.results)) == {name.replace("-", " ") for name in SECTIONS}


def test_every_number_has_its_goal_and_the_verdict_that_follows(run: Run) -> None:
    asked = [row for row in run.all if row.get("goal")]
    assert {row["goal"] for row in asked} == {"<= 1.1", "<= 1.2"}
    for row in asked:
        assert row["met"] == (row["value"] <= float(row["goal"].removeprefix("<= ")))
    verdicts = [line for line in run.printed.splitlines() if line.startswith(("met:", "NOT MET:"))]
    assert len(verdicts) == 4


def test_figures_are_finite_and_say_how_many_samples_they_come_from(run: Run) -> None:
    for row in run.all:
        assert math.isfinite(row["value"])
        assert row["samples"] >= 1
        if row["unit"] in {"us", "s"}:
            assert row["value"] > 0
            assert row["wall"] is not None
            assert row["iqr"] is not None


def test_slopes_and_ratios_follow_from_the_times_beside_them(run: Run) -> None:
    for slope in run.of("cost-against-d", "slope in d"):
        times = run.of("cost-against-d", "step", method=slope["method"], k=slope["k"])
        small, large = times
        step = math.log(large["value"] / small["value"])
        assert slope["value"] == pytest.approx(step / math.log(large["d"] / small["d"]), abs=2e-3)
    for ratio in run.of("cost-against-n", "n = "):
        case = {"method": ratio["method"], "k": ratio["k"]}
        few, many = run.of("cost-against-n", "rows read", **case)
        assert ratio["value"] == pytest.approx(many["value"] / few["value"], rel=1e-3)


def test_the_results_in_the_repository_are_those_of_a_full_run() -> None:
    for path in (ROOT / "results" / "kernels").glob("cost-*.csv"):
        rows = read_table(path)
        assert rows
        assert [row for row in rows if row["unit"] == "us" and row["samples"] < 30] == []
