"""Section ``throughput``: single-row requests that wait in the log, coalesced into batches.

The worker pauses before a poll while the requests are sent; the time runs from the word to go on
until the last version is seen.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.pipeline import Pipeline, pipeline
from benchmarks.records import Record, Setting, derived, measured
from benchmarks.synthetic import model_id, row_id
from benchmarks.worker import Job
from lethe.consumers.workers.deletion_worker import BatchLimits

SECTION = "throughput"


@dataclass(frozen=True, slots=True)
class Plan:
    """How many models share the requests evenly; one generation takes ``rows`` of each."""

    n: int = 400
    d: int = 1000
    models: int = 20
    rows: int = 250
    rounds: int = 2


QUICK = Plan(n=100, d=50, models=4, rows=25, rounds=1)


def run(plan: Plan, seed: int, directory: Path, kafka: str | None) -> Iterable[Record]:
    """Measure on one log; each round has models of its own."""
    log = "streams" if kafka is None else "kafka"
    job = Job(
        role="deletions", redis_url="", models=plan.models * plan.rounds,
        n=plan.n, d=plan.d, seed=seed,
    )  # fmt: skip
    rates, sizes = [], []
    with pipeline(directory / f"{log}-throughput", job, kafka) as one:
        for turn in range(plan.rounds):
            first = turn * plan.models
            pairs = [(first + m, r) for m in range(plan.models) for r in range(plan.rows)]
            shuffled = [
                pairs[i] for i in np.random.default_rng((seed, turn)).permutation(len(pairs))
            ]
            seconds, batches = _drain(one, shuffled)
            rates.append(len(pairs) / seconds)
            sizes += batches
    setting: Setting = {"log": log, "d": plan.d, "models": plan.models, "requests": len(pairs)}
    yield measured(SECTION, setting, "requests per second", "1/s", rates)
    yield measured(SECTION, setting, "requests in a version", "1", sizes)
    rows_per_version = float(np.mean(sizes))
    yield derived(SECTION, setting, "mean requests in a version", "1", rows_per_version, len(sizes))


def _drain(one: Pipeline, pairs: list[tuple[int, int]]) -> tuple[float, list[float]]:
    """Return the seconds, and how many requests each version had."""
    one.worker.tell("pause")
    time.sleep(2 * BatchLimits().poll_seconds)  # the poll under way ends
    one.producer.publish(
        [one.request(model_id(model), [row_id(row)]) for model, row in pairs], timeout=60.0
    )
    begin = time.perf_counter()
    one.worker.tell("go")
    left, batches = len(pairs), []
    while left > 0:
        for version in one.subscriber.wait():
            left -= len(version.request_ids)
            batches.append(float(len(version.request_ids)))
    return time.perf_counter() - begin, batches
