"""`make paper-quick`: every experiment once at small sizes, and what must hold at any size."""

from __future__ import annotations

import math
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from paper.records import Record, Results
from tests.support.servers import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.xdist_group("bench")]

OURS = "exact from dual rows"
LINEAR = ("table2", "table3", "table4", "theorem")


@dataclass(frozen=True)
class Run:
    """What one quick run left."""

    directory: Path
    results: Results
    page: str
    printed: str
    progress: str

    def of(self, **fields: object) -> list[Record]:
        """Return the records whose fields have these values; there must be some."""
        found = [
            record
            for record in self.results.records
            if all(getattr(record, name) == value for name, value in fields.items())
        ]
        assert found, fields
        return found


def paper(directory: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the script on files of this directory."""
    return subprocess.run(
        [
            sys.executable, str(ROOT / "scripts" / "study.py"), "paper", "--quick", *options,
            "--results", str(directory / "results"),
            "--page", str(directory / "paper.md"),
        ],
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def sections(page: str) -> list[str]:
    return [line.removeprefix("## ") for line in page.splitlines() if line.startswith("## ")]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One quick run of the script."""
    directory = tmp_path_factory.mktemp("paper")
    done = paper(directory)
    assert done.returncode == 0, done.stdout + done.stderr
    results = Results.open(directory / "results", quick=True)
    return Run(directory, results, (directory / "paper.md").read_text(), done.stdout, done.stderr)


def test_every_figure_is_finite_and_lies_where_it_should(run: Run) -> None:
    assert run.results.quick
    for record in run.results.records:
        assert math.isfinite(record.value)
        assert record.samples >= 1
        assert record.cell in run.results.cells
        assert record.k < record.n
        if record.spread is not None:
            low, high = record.spread
            assert low <= high
        if record.metric == "seconds":
            assert record.value > 0


def test_no_figure_stands_twice(run: Run) -> None:
    keys = [
        (r.table, r.d, r.n, r.k, r.p, r.outlier, r.ridge, r.method, r.metric)
        for r in run.results.records
    ]
    assert len(set(keys)) == len(keys)


def test_small_sizes_are_not_set_beside_the_papers_figures(run: Run) -> None:
    for record in run.results.records:
        if record.table in LINEAR:
            assert record.paper is None


def test_ours_equals_retraining_in_every_linear_cell(run: Run) -> None:
    for table, metric in (
        ("table2", "relative error to retraining"),
        ("table3", "largest relative error to retraining"),
        ("table4", "largest relative error to retraining"),
        ("theorem", "largest relative error to retraining"),
    ):
        for record in run.of(table=table, method=OURS, metric=metric):
            assert record.value <= 1e-8, record


def test_ours_leaves_nothing_of_the_injected_feature(run: Run) -> None:
    for record in run.of(table="table3", method=OURS, metric="FIT"):
        assert record.spread is not None
        assert max(abs(figure) for figure in (record.value, *record.spread)) < 1e-6, record


def test_the_paper_s_own_methods_do_leave_something(run: Run) -> None:
    assert max(r.value for r in run.of(table="table3", method="pru", metric="FIT")) > 0.5
    assert min(r.value for r in run.of(table="table4", method="pru", metric="L2")) > 0.5


def test_both_forms_of_the_pru_agree_and_the_misprint_does_not(run: Run) -> None:
    for ours in run.of(table="table3", method="pru", metric="FIT"):
        where = {"table": "table3", "k": ours.k, "p": ours.p}
        [published] = run.of(**where, method="pru as published", metric="FIT")
        assert published.value == pytest.approx(ours.value, abs=1e-5)
        [right] = run.of(
            **where, method="pru as published", metric="relative error of LKO predictions"
        )
        [wrong] = run.of(
            **where, method="pru, T_ij as printed", metric="relative error of LKO predictions"
        )
        assert right.value < 1e-6
        assert wrong.value > 1


def test_the_influence_step_dies_at_the_rate_of_the_theorem(run: Run) -> None:
    steps = run.of(table="theorem", method="influence", metric="step / exact step")
    theory = {
        r.outlier: r.value
        for r in run.of(table="theorem", metric="step / exact step")
        if r.method.startswith("theory")
    }
    assert len(steps) > 4
    for record in steps:
        assert record.value == pytest.approx(theory[record.outlier], rel=1e-3)
    first, last = steps[0], steps[-1]
    assert last.value < 1e-4 * first.value


def test_every_method_of_table_2_is_timed_in_every_cell(run: Run) -> None:
    times = run.of(table="table2", metric="seconds")
    methods = {record.method for record in times}
    settings = {(record.k, record.d) for record in times}

    assert len(methods) == 8
    assert len(times) == len(methods) * len(settings)


def test_memory_of_the_precomputation_is_measured(run: Run) -> None:
    for record in run.of(table="table2", method="dual rows"):
        assert record.value == 8 * record.n * record.d
    for record in run.of(table="table2", method="hat matrix (computed)"):
        assert record.value == 8 * record.n**2


def test_every_experiment_has_its_section_and_nothing_is_missing(run: Run) -> None:
    tables = {record.table for record in run.results.records}

    assert tables >= set(LINEAR)
    assert "Not run yet" not in run.page
    assert "Small sizes" in run.page
    for name in tables:
        assert f"scripts/study.py paper --only {name}`; seed" in run.page


def test_what_was_checked_is_printed_and_stands_on_the_page(run: Run) -> None:
    lines = [line for line in run.printed.splitlines() if line]

    assert lines
    for line in lines:
        verdict, _, sentence = line.partition("  ")
        assert verdict == "pass", line
        assert f"- pass: {sentence.partition(': ')[2]}" in run.page


def test_figures_are_drawn(run: Run) -> None:
    for name in ("paper-theorem", "paper-runtimes"):
        assert (run.directory / "images" / f"{name}.png").stat().st_size > 1000


def written(directory: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in (directory / "results").iterdir()}


def test_a_second_run_has_nothing_to_do(run: Run) -> None:
    before = written(run.directory)

    again = paper(run.directory)

    assert again.returncode == 0
    assert f"0 cells to run, {len(run.results.cells)} present" in again.stderr
    assert written(run.directory) == before


def test_one_part_is_run_afresh_into_the_same_tables(run: Run, tmp_path: Path) -> None:
    shutil.copytree(run.directory / "results", tmp_path / "results")

    again = paper(tmp_path, "--only", "theorem", "--fresh")

    assert "1 cells to run" in again.stderr
    before, after = written(run.directory), written(tmp_path)
    assert before.pop("machine.csv") != after.pop("machine.csv")
    assert after == before  # the same seed, the same figures


def test_a_page_of_part_of_the_results_says_what_is_missing(run: Run, tmp_path: Path) -> None:
    shutil.copytree(run.directory / "results", tmp_path / "results")
    machine = tmp_path / "results" / "machine.csv"
    lines = machine.read_text().splitlines(keepends=True)
    machine.write_text("".join([lines[0], *(line for line in lines if "table4" in line)]))

    done = paper(tmp_path, "--render")

    assert done.returncode == 0, done.stderr
    page = (tmp_path / "paper.md").read_text()
    assert sections(page) == sections(run.page)
    assert "Not run yet: table3 all." in page
    assert "Not run yet: table4" not in page


def test_the_page_in_the_tree_is_rendered_from_the_results(tmp_path: Path) -> None:
    page = tmp_path / "paper.md"
    command = [sys.executable, str(ROOT / "scripts" / "study.py"), "paper", "--render"]
    subprocess.run([*command, "--page", str(page)], capture_output=True, check=True)

    assert page.read_text() == (ROOT / "docs" / "paper.md").read_text()


def test_nothing_of_this_host_is_written(run: Run) -> None:
    everything = run.page + "".join(written(run.directory).values())

    assert str(ROOT) not in everything
    assert str(Path.home()) not in everything


def test_progress_goes_to_stderr(run: Run) -> None:
    assert "cells to run" in run.progress
    assert "table3 all: " in run.progress
    assert "cells to run" not in run.printed
