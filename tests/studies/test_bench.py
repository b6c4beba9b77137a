"""`make bench`: one quick run measures every section, and writes what it says."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

from tests.conftest import give_up
from tests.support.servers import ROOT, Missing, shared_kafka

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.xdist_group("bench")]


class Record(BaseModel):
    """A record of results/bench.json, in full: a field more is an error."""

    model_config = ConfigDict(strict=True, extra="forbid")

    section: str
    setting: dict[str, str | int]
    metric: str
    unit: str
    value: float
    samples: int
    iqr: float | None = None
    p99: float | None = None
    low: float | None = None
    high: float | None = None
    goal: str | None = None
    met: bool | None = None


class Document(BaseModel):
    """results/bench.json."""

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
    progress: str
    has_kafka: bool

    def of(self, section: str, metric: str, **setting: Any) -> list[Record]:
        """Return the records that match."""
        return [
            record
            for record in self.document.records
            if (record.section, record.metric) == (section, metric)
            and setting.items() <= record.setting.items()
        ]

    @property
    def logs(self) -> list[str]:
        """The logs that must have been measured."""
        return ["streams", "kafka"] if self.has_kafka else ["streams"]


@pytest.fixture(scope="module")
def kafka_or_none(session_dir: Path) -> Iterator[str | None]:
    """The test run's Kafka; None where there is none, unless this is CI."""
    try:
        with shared_kafka(session_dir) as address:
            yield address
    except Missing as missing:
        if os.environ.get("CI") == "true":
            give_up(missing)
        yield None


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, kafka_or_none: str | None) -> Run:
    """One quick run of the script."""
    made = tmp_path_factory.mktemp("bench")
    results, page = made / "results" / "bench.json", made / "docs" / "bench.md"
    environment = dict(os.environ)
    if kafka_or_none is not None:
        environment["LETHE_TEST_KAFKA"] = kafka_or_none
    done = subprocess.run(
        [
            sys.executable, str(ROOT / "scripts" / "bench.py"), "--quick",
            "--results", str(results), "--page", str(page),
        ],
        capture_output=True, text=True, check=False, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    document = Document.model_validate_json(results.read_text())
    return Run(document, page.read_text(), done.stdout, done.stderr, kafka_or_none is not None)


def test_every_number_is_a_measurement(run: Run) -> None:
    for record in run.document.records:
        assert record.samples >= 1
        assert math.isfinite(record.value)
        assert record.iqr is None or record.iqr >= 0
        if record.p99 is not None:
            assert record.samples >= 100
            assert record.p99 >= record.value
        if record.unit in ("us", "s", "1/s"):
            assert record.value > 0


def test_steps_are_timed_for_both_methods_with_a_slope_in_d(run: Run) -> None:
    for method in ("exact", "pru"):
        times = run.of("step", "step time", method=method, k=10, K=0)
        slopes = run.of("step", "slope in d", method=method, k=10, K=0)

        assert len(times) >= 2
        assert len(slopes) == 1
        first, last = times[0], times[-1]
        log_d = math.log(int(last.setting["d"]) / int(first.setting["d"]))
        assert slopes[0].value == pytest.approx(math.log(last.value / first.value) / log_d)


def test_end_to_end_stands_next_to_the_null_pipeline(run: Run) -> None:
    for log in run.logs:
        [lethe] = run.of("end to end", "end to end", log=log, pipeline="lethe")
        [null] = run.of("end to end", "end to end", log=log, pipeline="null")
        [ratio] = run.of("end to end", "lethe p50 / null p50", log=log)

        assert lethe.samples == null.samples
        assert ratio.value == pytest.approx(lethe.value / null.value)


def test_the_worker_with_evidence_stands_next_to_the_one_without(run: Run) -> None:
    for log in run.logs:
        [evidence] = run.of("evidence", "end to end", log=log, pipeline="evidence")
        [plain] = run.of("evidence", "end to end", log=log, pipeline="plain")
        [ratio] = run.of("evidence", "evidence p50 / plain p50", log=log)

        assert evidence.samples == plain.samples
        assert ratio.value == pytest.approx(evidence.value / plain.value)


def test_retraining_stands_next_to_the_deletion(run: Run) -> None:
    for kind in ("linear", "logistic"):
        [retraining] = run.of("retraining", "retraining", kind=kind)
        [step] = run.of("retraining", "deletion step", kind=kind, who="pru")
        [ratio] = run.of("retraining", "retraining / deletion", kind=kind, who="pru")

        assert ratio.value == pytest.approx(retraining.value / step.value)


def test_deletions_flow_while_a_rebuild_runs(run: Run) -> None:
    [rebuild] = run.of("during rebuild", "end to end", phase="rebuild")
    [calm] = run.of("during rebuild", "end to end", phase="calm")
    [length] = run.of("during rebuild", "rebuild, order to version")

    assert rebuild.samples >= 1
    assert calm.samples >= 1
    assert length.samples >= 1


def test_waiting_requests_are_coalesced(run: Run) -> None:
    for log in run.logs:
        [size] = run.of("throughput", "mean requests in a version", log=log)

        assert size.value > 1


def test_the_worker_stands_next_to_the_floor(run: Run) -> None:
    for log in run.logs:
        [ratio] = run.of("floor", "requests a second, worker / floor", log=log, method="pru")
        sides = [
            run.of("floor", "requests a second", log=log, who=who)[0] for who in ("worker", "floor")
        ]

        assert ratio.low is not None
        assert ratio.high is not None
        assert ratio.low <= ratio.value <= ratio.high
        assert ratio.goal == ">= 0.6"
        assert ratio.met == (ratio.value >= 0.6)
        assert all(side.samples == ratio.samples for side in sides)
        for percent in ("p50", "p99"):
            [of_one] = run.of("floor", f"{percent}, worker / floor", log=log)
            assert of_one.goal is not None


def test_worker_and_floor_move_the_same_bytes(run: Run) -> None:
    for log in run.logs:
        in_the_log = ["bytes to the log"] if log == "kafka" else []
        for name in ("bytes to the store", "bytes from the store", *in_the_log):
            [ratio] = run.of("floor", f"{name}, worker / floor", log=log)

            assert ratio.value == pytest.approx(1.0, abs=0.35), name  # at d = 50 ids weigh a lot


def test_what_a_poll_asks_of_its_servers_is_counted(run: Run) -> None:
    for log in run.logs:
        [flushes] = run.of("floor", "flushes a poll", log=log)
        [trips] = run.of("floor", "round trips a poll", log=log)

        assert 1 <= flushes.value <= 2
        # A quick run has few polls, and what goes by the clock in them: test_hot_path has a limit.
        assert trips.value >= 2


def test_costs_are_measured_with_their_goals(run: Run) -> None:
    [memory] = run.of("costs", "memory of a final request, beyond its id")
    assert 0 < memory.value < 1000
    if run.has_kafka:
        [once] = run.of("costs", "times that a version is published")
        [fold] = [r for r in run.document.records if r.metric.startswith("fold of ")]

        assert once.value == 1
        assert fold.value > 0


def test_models_with_preprocessing_stand_next_to_a_bare_one(run: Run) -> None:
    mixtures = {"standardised", "standardised, 3 imputed, 2 encoded"}
    middles = run.of("preprocessing", "p50 of a bare model's")
    processor = run.of("preprocessing", "processor time, of a bare model's")

    assert {(r.setting["log"], r.setting["preprocessing"]) for r in middles} == {
        (log, mixture) for log in run.logs for mixture in mixtures
    }
    assert {r.setting["preprocessing"] for r in processor} == mixtures
    assert all(r.goal == "<= 3" and r.met == (r.value <= 3) for r in middles)
    assert all(r.goal is None for r in processor)


def test_a_missing_kafka_is_said(run: Run) -> None:
    measured = {str(record.setting["log"]) for record in run.of("end to end", "end to end")}

    assert measured == set(run.logs)
    assert run.has_kafka == (run.document.notes == [])


def test_the_page_and_the_tables_say_what_the_document_says(run: Run) -> None:
    sections = dict.fromkeys(record.section for record in run.document.records)
    lines = run.page.splitlines()

    for section in sections:
        assert f"## {section.capitalize()}" in lines
        assert section in run.printed
    assert run.document.command in run.page
    for name, value in run.document.machine.items():
        assert f"| {name} | {value} |" in lines
    tables = [line for line in lines if line.startswith("| ")]
    heads = 1 + len(sections)  # the machine's, and one for each section
    assert len(tables) == heads + len(run.document.machine) + len(run.document.records)


def test_the_page_in_the_repository_is_rendered_from_its_results(tmp_path: Path) -> None:
    page = tmp_path / "bench.md"
    command = [sys.executable, str(ROOT / "scripts" / "bench.py"), "--render", "--page", str(page)]
    subprocess.run(command, capture_output=True, check=True)

    assert page.read_text() == (ROOT / "results" / "bench.md").read_text()


def test_nothing_of_this_host_is_written(run: Run) -> None:
    written = run.page + json.dumps(run.document.model_dump())

    assert str(ROOT) not in written
    assert str(Path.home()) not in written


def test_progress_goes_to_stderr(run: Run) -> None:
    assert "step: " in run.progress
    assert "step: " not in run.printed
