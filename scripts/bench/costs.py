"""Section ``costs``: what else a commit costs.

Gap reads: two workers share the models on Kafka; the share of commits whose place in the log did
not continue what their writer knew. Memory: what the store's data grow by over final requests
(they name a row that is deleted already, so that nothing but their receipts is new), less the id.
Fold: a store from before the first deletion follows the log with all commits.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.side import Asked, Process, delete_topics, topic_prefix, worker_side
from bench.synthetic import local_worker, model_id, register_model, request, request_id
from bench.worker import Job
from harness.records import Record, Setting, compared
from harness.study import Section, Setup
from lethe.engine.fit.objective import Kind
from lethe.engine.store.layout.keys import COMMIT_PARTITIONS

_POLL = 256
_SPARE_ROWS = 20


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured; ``rows`` of each model are deleted, and 20 more stay."""

    d: int = 1000
    rows: int = 200
    models: int = 20
    requests: int = 100_000
    fold_models: int = 50


def run(plan: Plan, setup: Setup) -> Iterable[Record]:
    """Measure; gap reads and the fold need a Kafka."""
    directory, kafka = setup.directory / "costs", setup.kafka
    if kafka is not None:
        yield from _two_workers(plan, setup.seed, directory / "two", kafka)
    yield from _memory(plan, setup.seed, directory / "memory")
    if kafka is not None:
        yield from _fold(plan, setup.seed, directory / "fold", kafka)


def _job(plan: Plan, seed: int, models: int, role: str = "deletions") -> Job:
    return Job(
        role=role, redis_url="", models=models, n=plan.rows + _SPARE_ROWS, d=plan.d,
        seed=seed, shared=True,
    )  # fmt: skip


# -- two workers ------------------------------------------------------------------------------


def _two_workers(plan: Plan, seed: int, directory: Path, kafka: str) -> Iterator[Record]:
    number = plan.models * plan.rows
    with ExitStack() as stack:
        job = _job(plan, seed, plan.models)
        first = stack.enter_context(
            worker_side(directory, job, kafka, partitions=COMMIT_PARTITIONS)
        )
        other = first.job.model_copy(update={"models": 0})
        log = stack.enter_context((directory / "other.log").open("w+"))
        second = Process(other, log, partitions=COMMIT_PARTITIONS)
        stack.callback(second.close)
        second.wait_ready()
        asked = [Asked(model, [row]) for row in range(plan.rows) for model in range(plan.models)]
        order = np.random.default_rng(seed).permutation(number)
        first.ends.send(first.requests([asked[i] for i in order]))
        first.wait_answers(number)
        found = [first.finish(), second.finish()]
        versions = first.ends.versions()
        receipts = first.ends.answered()
    won, contested = (sum(one[name] for one in found) for name in ("won", "contested"))
    setting: Setting = {"log": "kafka", "models": plan.models, "workers": 2, "requests": number}
    commits = int(won + contested)
    gaps = contested / commits
    yield compared(setting, "gap reads a commit", [gaps], 0.01, samples=commits)
    least = min(one["won"] for one in found) / won
    yield Record(setting, "commits of the less busy worker", "1", least, int(won))
    once = {(one.model_id, one.version) for one in versions}
    for name, published, distinct in (
        ("version", len(versions), len(once)),
        ("receipt", receipts, number),
    ):
        metric, times = f"times that a {name} is published", published / distinct
        yield compared(setting, metric, [times], 1.0, samples=distinct)


# -- memory -----------------------------------------------------------------------------------


def _memory(plan: Plan, seed: int, directory: Path) -> Iterator[Record]:
    """Count the bytes of requests that were answered for good, through the worker itself.

    All name one row, which the first of them deletes: the others are ALREADY_APPLIED, and leave
    nothing but their receipts in the index. The log is in this process's memory.
    """
    with local_worker(directory) as local:
        client = local.store.client
        client.config_set("appendonly", "no")  # its buffers would count
        register_model(local.registrar, model_id(0), Kind.LINEAR, plan.rows, plan.d, seed)
        before = 0
        for first in range(0, _POLL + plan.requests, _POLL):
            last = min(first + _POLL, _POLL + plan.requests)
            local.send(request(number, 0, [0]) for number in range(first, last))
            local.drain()
            before = before or _used(client)
        grown = _used(client) - before
    of_each = grown / plan.requests - len(request_id(0))
    setting: Setting = {"requests": plan.requests, "d": plan.d}
    yield compared(
        setting, "memory of a final request, beyond its id", [of_each], 150,
        unit="bytes", samples=plan.requests,
    )  # fmt: skip


def _used(client: Any) -> int:
    """Return the bytes of the data: a registration's input buffer would count for seconds after."""
    return int(client.info("memory")["used_memory_dataset"])


# -- a fold -----------------------------------------------------------------------------------


def _fold(plan: Plan, seed: int, directory: Path, kafka: str) -> Iterator[Record]:
    """Let a store from before all deletions follow the log."""
    prefix = topic_prefix()
    now, then = directory / "now", directory / "then"
    number = plan.fold_models * plan.rows
    with ExitStack() as stack:
        stack.callback(delete_topics, kafka, prefix)
        registering = _job(plan, seed, plan.fold_models)
        with worker_side(now, registering, kafka, prefix=prefix):
            pass
        shutil.copytree(now, then, ignore=shutil.ignore_patterns("*.lock", "*.sock", "*.pid"))
        # One request of each model lies in a poll: a commit each.
        deleting = _job(plan, seed, 0).model_copy(update={"records": plan.fold_models})
        with worker_side(now, deleting, kafka, prefix=prefix) as side:
            side.pause()
            asked = [Asked(m, [row]) for row in range(plan.rows) for m in range(plan.fold_models)]
            side.ends.send(side.requests(asked))
            side.work()
            side.wait_answers(number)
            commits = side.finish()["won"]
        folding = _job(plan, seed, 0, role="fold")
        with worker_side(then, folding, kafka, prefix=prefix) as side:
            found = side.finish()
    if found["halted"] or found["applied"] < commits:
        raise AssertionError(f"{found['applied']} of {commits} commits were folded")
    setting: Setting = {"log": "kafka", "d": plan.d, "models": plan.fold_models}
    metric = f"fold of {commits:.0f} commits"
    yield compared(setting, metric, [found["seconds"]], 60.0, unit="s")


SECTION = Section(
    "costs",
    Plan(),
    Plan(d=50, rows=20, models=4, requests=1000, fold_models=4),
    run,
    on_kafka=True,
)
