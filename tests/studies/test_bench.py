"""`make bench`: one quick run measures every section, and writes a table of each."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from harness.results import noted, read_table
from tests.conftest import give_up
from tests.support.servers import ROOT, Missing, shared_kafka

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.xdist_group("bench")]


@dataclass(frozen=True)
class Run:
    """What one quick run left."""

    results: Path
    printed: str
    progress: str
    has_kafka: bool

    def of(self, section: str, metric: str = "", **setting: Any) -> list[dict[str, Any]]:
        """Return the figures that match."""
        return [
            row
            for row in read_table(self.results / f"{section.replace(' ', '-')}.csv")
            if row["metric"].startswith(metric) and setting.items() <= row.items()
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
    results = tmp_path_factory.mktemp("bench") / "results"
    environment = dict(os.environ)
    if kafka_or_none is not None:
        environment["LETHE_TEST_KAFKA"] = kafka_or_none
    command = [sys.executable, str(ROOT / "scripts" / "study.py"), "bench", "--quick"]
    done = subprocess.run(
        [*command, "--results", str(results)],
        capture_output=True, text=True, check=False, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return Run(results, done.stdout, done.stderr, kafka_or_none is not None)


def test_every_section_has_its_table_and_every_number_is_a_measurement(run: Run) -> None:
    sections = noted(run.results)
    assert {path.stem.replace("-", " ") for path in run.results.iterdir()} == {*sections, "machine"}
    for section in sections:
        assert section in run.printed
        for row in run.of(section):
            assert row["samples"] >= 1
            assert math.isfinite(row["value"])
            assert (row.get("iqr") or 0) >= 0
            if row.get("p99") is not None:
                assert row["samples"] >= 100
                assert row["p99"] >= row["value"]
            if row["unit"] in ("us", "s", "ms", "1/s"):
                assert row["value"] > 0


def test_requests_are_timed_from_end_to_end_on_each_log(run: Run) -> None:
    assert [row["log"] for row in run.of("end to end")] == run.logs


def test_deletions_flow_while_a_rebuild_runs(run: Run) -> None:
    [rebuild] = run.of("during rebuild", "end to end", phase="rebuild")
    [calm] = run.of("during rebuild", "end to end", phase="calm")
    [length] = run.of("during rebuild", "rebuild, order to version")

    assert rebuild["samples"] >= 1
    assert calm["samples"] >= 1
    assert length["samples"] >= 1


def test_waiting_requests_are_coalesced(run: Run) -> None:
    for log in run.logs:
        [size] = run.of("throughput", "mean requests in a version", log=log)

        assert size["value"] > 1


def test_costs_are_measured_with_their_goals(run: Run) -> None:
    [memory] = run.of("costs", "memory of a final request, beyond its id")
    assert 0 < memory["value"] < 1000
    if run.has_kafka:
        [once] = run.of("costs", "times that a version is published")
        [fold] = run.of("costs", "fold of ")

        assert once["value"] == 1
        assert fold["value"] > 0


def test_models_with_preprocessing_stand_next_to_a_bare_one(run: Run) -> None:
    mixtures = {"standardised", "standardised, 3 imputed, 2 encoded"}
    middles = run.of("preprocessing", "p50 of a bare model's")
    processor = run.of("preprocessing", "processor time, of a bare model's")

    assert {(r["log"], r["preprocessing"]) for r in middles} == {
        (log, mixture) for log in run.logs for mixture in mixtures
    }
    assert {r["preprocessing"] for r in processor} == mixtures
    assert all(r["goal"] == "<= 3" and r["met"] == (r["value"] <= 3) for r in middles)
    assert all(r["goal"] is None for r in processor)


def test_a_missing_kafka_is_said(run: Run) -> None:
    assert run.has_kafka == ("no Kafka here" not in run.progress)


def test_nothing_of_this_host_is_written(run: Run) -> None:
    written = "".join(path.read_text() for path in run.results.iterdir())

    assert str(ROOT) not in written
    assert str(Path.home()) not in written


def test_progress_goes_to_stderr(run: Run) -> None:
    assert "costs: " in run.progress
    assert "costs: " not in run.printed
