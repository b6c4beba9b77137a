"""A run of the paper's experiments resumes: whole cells, and whole trials within a cell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.results import noted
from lethe.engine.errors import InvalidData
from paper.experiment import Cell, Sample, run_trials, summarise
from paper.records import CellRun, Record, Results

PLAN = {"d": 10, "k": [1, 2]}
MACHINE = {"cores": "2"}


def record(value: float, table: str = "table3", k: int = 1) -> Record:
    return Record(
        table=table, d=10, n=100, k=k, method="m", metric="FIT", value=value, ridge=1.0, samples=3
    )


def run(table: str = "table3", seed: int = 1) -> CellRun:
    return CellRun(table=table, plan=dict(PLAN), seed=seed, seconds=0.5)


def test_a_cell_counts_as_present_for_the_same_plan_and_seed_alone(tmp_path: Path) -> None:
    Results.open(tmp_path, quick=True).put("a", run(), [record(1.0)], MACHINE)

    again = Results.open(tmp_path, quick=True)

    assert again.has("a", PLAN, 1)
    assert not again.has("a", PLAN, 2)
    assert not again.has("a", {**PLAN, "d": 11}, 1)
    assert not again.has("b", PLAN, 1)
    assert {path.name for path in tmp_path.iterdir()} == {"machine.csv", "table3.csv"}


def test_records_are_read_as_they_were_put(tmp_path: Path) -> None:
    results = Results.open(tmp_path, quick=True)
    common: dict[str, Any] = {
        "table": "table3",
        "d": 10,
        "n": 100,
        "k": 1,
        "method": "m",
        "ridge": 1.0,
    }
    records = [
        Record(**common, metric="FIT", value=0.1, spread=(0.05, 0.2), paper=0.3, samples=3),
        Record(**common, metric="L2", value=2.0, paper=1.0, paper_spread=(0.5, 1.5), samples=3),
        Record(**common, metric="L2 of one", value=1e-300, samples=1, p=0.5),
    ]

    results.put("a", run(), records, MACHINE)

    expected = [one.model_copy(update={"cell": "a"}) for one in records]
    assert results.records == expected
    assert Results.open(tmp_path, quick=True).records == expected


def test_a_cell_that_is_run_again_replaces_its_records(tmp_path: Path) -> None:
    results = Results.open(tmp_path, quick=True)
    results.put("a", run(), [record(1.0), record(2.0, k=2)], MACHINE)
    results.put("b", run("table4"), [record(3.0, "table4")], MACHINE)

    results.put("a", run(), [record(4.0)], MACHINE)

    read = Results.open(tmp_path, quick=True)
    assert [r.value for r in read.of("table3")] == [4.0]
    assert [r.value for r in read.of("table4")] == [3.0]


def test_each_cell_says_on_which_machine_it_was_run(tmp_path: Path) -> None:
    results = Results.open(tmp_path, quick=True)
    results.put("a", run(), [record(1.0)], {"cores": "2"})
    results.put("b", run(), [record(2.0, k=2)], {"cores": "8"})

    assert {key: facts["cores"] for key, facts in noted(tmp_path).items()} == {"a": "2", "b": "8"}


def test_a_run_of_another_size_is_refused(tmp_path: Path) -> None:
    Results.open(tmp_path, quick=True).put("a", run(), [record(1.0)], MACHINE)

    with pytest.raises(InvalidData, match="another kind"):
        Results.open(tmp_path, quick=False)


class Interrupted(Exception):
    """The run is interrupted."""


def samples(number: int) -> list[Sample]:
    return [Sample(1, 0.5, None, "m", "FIT", number / 3)]


def interrupted_after(cell: Cell, whole: int, seed: int = 1) -> None:
    def trial(number: int) -> list[Sample]:
        if number == whole:
            raise Interrupted
        return samples(number)

    with pytest.raises(Interrupted):
        run_trials(cell, seed, 5, trial, lambda _share: None)


def rerun(cell: Cell, seed: int = 1) -> tuple[list[int], list[list[Sample]]]:
    ran: list[int] = []

    def trial(number: int) -> list[Sample]:
        ran.append(number)
        return samples(number)

    return ran, run_trials(cell, seed, 5, trial, lambda _share: None)


@pytest.fixture
def cell(tmp_path: Path) -> Cell:
    return Cell("table3 all", PLAN, 1.0, partial=tmp_path / "partial" / "table3-all.jsonl")


def test_an_interrupted_cell_goes_on_after_its_last_whole_trial(cell: Cell) -> None:
    interrupted_after(cell, 3)

    ran, trials = rerun(cell)

    assert ran == [3, 4]
    assert trials == [samples(number) for number in range(5)]


def test_a_trial_that_was_cut_short_is_run_again(cell: Cell) -> None:
    interrupted_after(cell, 3)
    assert cell.partial is not None
    cell.partial.write_text(cell.partial.read_text()[:-4])

    ran, trials = rerun(cell)

    assert ran == [2, 3, 4]
    assert trials == [samples(number) for number in range(5)]
    assert rerun(cell) == ([], trials)


def test_trials_of_another_seed_are_not_taken(cell: Cell) -> None:
    interrupted_after(cell, 3, seed=2)

    ran, _ = rerun(cell, seed=1)

    assert ran == [0, 1, 2, 3, 4]


def test_samples_become_means_medians_and_largest_values() -> None:
    values = {"mean": [1.0, 2.0, 6.0], "median": [1.0, 2.0, 6.0], "largest": [1.0, 2.0, 6.0]}
    trials = [
        [Sample(5, 0.1, None, "m", metric, numbers[t]) for metric, numbers in values.items()]
        for t in range(3)
    ]

    made = summarise(
        trials,
        {"table": "table3", "n": 100, "d": 10, "ridge": 1.0},
        {(5, 0.1, None, "m", "mean"): {"paper": 0.93}},
        medians=("median",),
        largest=("largest",),
    )

    assert [(r.metric, r.value, r.paper, r.samples) for r in made] == [
        ("mean", 3.0, 0.93, 3),
        ("median", 2.0, None, 3),
        ("largest", 6.0, None, 3),
    ]
    assert {(r.k, r.p, r.outlier) for r in made} == {(5, 0.1, None)}
    assert made[0].spread == (1.5, 4.0)
