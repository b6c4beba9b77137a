"""`make kernels`: one quick run measures every number, says whether it meets its goal, and why."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

from tests.support.servers import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


class Record(BaseModel):
    """A record of results/kernels.json, in full: a field more is an error."""

    model_config = ConfigDict(strict=True, extra="forbid")

    section: str
    setting: dict[str, str | int]
    metric: str
    unit: str
    value: float
    samples: int
    iqr: float | None = None
    wall: float | None = None
    goal: str | None = None
    met: bool | None = None


class Document(BaseModel):
    """results/kernels.json."""

    model_config = ConfigDict(strict=True, extra="forbid")

    format: int
    command: str
    seed: int
    machine: dict[str, str]
    notes: list[str]
    records: list[Record]


@dataclass(frozen=True)
class Run:
    """What one quick run left."""

    document: Document
    page: str
    printed: str

    def of(self, section: str, metric: str = "", **setting: Any) -> list[Record]:
        """Return the figures that match."""
        return [
            figure
            for figure in self.document.records
            if figure.section == section
            and figure.metric.startswith(metric)
            and setting.items() <= figure.setting.items()
        ]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    directory = tmp_path_factory.mktemp("kernels")
    results, page = directory / "kernels.json", directory / "kernels.md"
    command = [sys.executable, "scripts/kernels.py", "--quick"]
    done = subprocess.run(
        [*command, "--results", str(results), "--page", str(page)],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(directory)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    left = {path.name for path in directory.iterdir()}
    assert left == {results.name, page.name}  # the mapped files are gone
    return Run(Document.model_validate_json(results.read_text()), page.read_text(), done.stdout)


def test_every_number_is_measured_and_has_its_goal(run: Run) -> None:
    asked = {
        (f.section, f.metric.split(" n = ")[0], f.goal) for f in run.document.records if f.goal
    }
    assert {(section, goal) for section, _, goal in asked} == {
        ("leave out", ">= 2"),
        ("leave out", ">= 8"),
        ("leave out", ">= 1"),
        ("one row", "<= 2"),
        ("one row", "<= 2.5"),
        ("cost against d", "<= 1.1"),
        ("cost against n", "<= 1.2"),
        ("rebuild", ">= 0.8"),
        ("rebuild", "<= 1.3"),
        ("what the bound costs", "<= 1.15"),
        ("fit", "<= 5"),
    }


def test_a_verdict_is_what_value_and_goal_say(run: Run) -> None:
    for figure in run.document.records:
        if figure.goal is None:
            assert figure.met is None
            continue
        relation, number = figure.goal.split()
        reached = (
            figure.value >= float(number) if relation == ">=" else figure.value <= float(number)
        )
        assert figure.met == reached


def test_figures_are_finite_and_say_how_many_samples_they_come_from(run: Run) -> None:
    for figure in run.document.records:
        assert math.isfinite(figure.value)
        assert figure.samples >= 1
        if figure.unit in {"us", "s"}:
            assert figure.value > 0
            assert figure.wall is not None
            assert figure.iqr is not None


def test_ratios_and_slopes_follow_from_the_times_beside_them(run: Run) -> None:
    for ratio in run.of("leave out", "time over that of"):
        cell = {"d": ratio.setting["d"], "k": ratio.setting["k"]}
        (rival,) = run.of("leave out", "time", **ratio.setting)[:1]
        (ours,) = run.of("leave out", "time", **cell, method="exact from dual rows")
        assert ratio.value == pytest.approx(rival.value / ours.value)
    for ratio in run.of("one row", "time over that of the "):
        (time,) = (f for f in run.of("one row", "time") if f.setting == ratio.setting and f.iqr)
        what = ratio.metric.removeprefix("time over that of the ")
        (whole,) = (f for f in run.of("one row", "time", method=what) if f.iqr)
        assert ratio.value == pytest.approx(time.value / whole.value)
    for slope in run.of("cost against d", "slope in d"):
        small, large = run.of("cost against d", "step", **slope.setting)
        step = math.log(large.value / small.value)
        sizes = math.log(int(large.setting["d"]) / int(small.setting["d"]))
        assert slope.value == pytest.approx(step / sizes)


def test_the_share_of_the_rate_counts_what_the_algorithm_needs(run: Run) -> None:
    for share in run.of("rebuild", "share of the rate"):
        n, d = int(share.setting["n"]), int(share.setting["d"])
        (once,) = run.of("rebuild", "precomputation", **share.setting)
        which = share.metric.removeprefix("share of the rate of ")
        (product,) = run.of("rebuild", which, **share.setting)
        hessians = 1.0
        if share.setting["kind"] == "logistic":
            (counted,) = run.of("rebuild", "Hessians", **share.setting)
            hessians = counted.value
            assert hessians > 2
        needed = hessians * (n * d**2 + d**3 / 3) + 2 * n * d**2
        expected = needed / once.value / (2 * n * d**2 / product.value)
        assert share.value == pytest.approx(expected)


def test_nothing_is_faster_than_the_machine_multiplies() -> None:
    """At full size: there a share of more than the whole rate would be a miscount."""
    text = (ROOT / "results" / "kernels.json").read_text()
    found = [f for f in Document.model_validate_json(text).records if "share of" in f.metric]
    assert found
    assert all(figure.value < 1.0 for figure in found)


def test_memory_counts_the_rows_and_the_dual_rows(run: Run) -> None:
    measured = run.of("rebuild", "peak memory")
    assert len(measured) == 3
    assert all(figure.value > 1.0 for figure in measured)


def test_page_and_terminal_say_what_the_results_say(run: Run) -> None:
    verdicts = [line for line in run.printed.splitlines() if line.startswith(("met:", "NOT MET:"))]
    numbers = {(f.section, f.goal) for f in run.document.records if f.goal}
    assert len(verdicts) >= len(numbers)
    for verdict in verdicts:
        assert f"- {verdict.strip()}" in run.page
    assert "scripts/kernels.py --quick" in run.page
    assert "load before the run" in run.page
    for section in {figure.section for figure in run.document.records}:
        assert f"## {section.capitalize()}" in run.page


def test_the_page_in_the_repository_is_rendered_from_its_results(tmp_path: Path) -> None:
    page = tmp_path / "kernels.md"
    command = [sys.executable, "scripts/kernels.py", "--render", "--page", str(page)]
    subprocess.run(command, cwd=ROOT, capture_output=True, check=True)

    assert page.read_text() == (ROOT / "results" / "kernels.md").read_text()


def test_the_results_in_the_repository_are_those_of_a_full_run() -> None:
    document = Document.model_validate_json((ROOT / "results" / "kernels.json").read_text())

    assert document.command == "make kernels"
    assert [r for r in document.records if r.unit == "us" and r.samples < 30] == []
