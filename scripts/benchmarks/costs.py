"""Section ``costs``: gap reads of two workers, memory of a request, time of a fold."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.ends import LogEnds
from benchmarks.pipeline import Process, delete_topics
from benchmarks.records import Record, Setting, compared, derived
from benchmarks.sides import Asked, worker_side
from benchmarks.synthetic import model_id, register_model, request_id, row_id
from benchmarks.worker import Job
from lethe.consumers.contract import topics
from lethe.consumers.contract.sealing import SealKeys
from lethe.consumers.log.base import Message
from lethe.consumers.log.memory import MemoryLog
from lethe.consumers.registration.register import Registrar
from lethe.consumers.service.embedded_valkey import EmbeddedValkey
from lethe.consumers.service.logs import configure_logging
from lethe.consumers.workers.deletion_worker import DeletionWorker
from lethe.engine.fit.objective import Kind
from lethe.engine.store.connection import NoBarrier, connect
from lethe.engine.store.keys import COMMIT_PARTITIONS
from lethe.engine.store.store import ModelStore

SECTION = "costs"
_POLL = 256


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured; ``rows`` of each model are deleted, and 20 more stay."""

    d: int = 1000
    rows: int = 200
    models: int = 20
    requests: int = 100_000
    fold_models: int = 50


QUICK = Plan(d=50, rows=20, models=4, requests=1000, fold_models=4)
_SPARE_ROWS = 20


def run(plan: Plan, seed: int, directory: Path, kafka: str | None) -> Iterable[Record]:
    """Measure; gap reads and the fold need a Kafka."""
    if kafka is not None:
        yield from _two_workers(plan, seed, directory / "two", kafka)
    yield from _memory(plan, seed, directory / "memory")
    if kafka is not None:
        yield from _fold(plan, seed, directory / "fold", kafka)


def _job(plan: Plan, seed: int, models: int, **more: Any) -> Job:
    return Job(
        role="deletions", redis_url="", models=models, n=plan.rows + _SPARE_ROWS, d=plan.d,
        seed=seed, shared=True, **more,
    )  # fmt: skip


# -- two workers ------------------------------------------------------------------------------


def _two_workers(plan: Plan, seed: int, directory: Path, kafka: str) -> Iterator[Record]:
    number = plan.models * plan.rows
    with ExitStack() as stack:
        job = _job(plan, seed, plan.models)
        first = stack.enter_context(worker_side(directory, job, kafka, COMMIT_PARTITIONS))
        other = job.model_copy(
            update={
                "models": 0, "kafka": kafka, "redis_url": first.job.redis_url,
                "prefix": first.job.prefix,
            }
        )  # fmt: skip
        log = stack.enter_context((directory / "other.log").open("w+"))
        second = Process(other.model_dump_json(), log, partitions=COMMIT_PARTITIONS)
        stack.callback(second.close)
        second.wait_ready()
        pairs = [(model, row) for row in range(plan.rows) for model in range(plan.models)]
        order = np.random.default_rng(seed).permutation(number)
        first.ends.send(first.requests([Asked(pairs[i][0], [pairs[i][1]]) for i in order]))
        first.wait_answers(number)
        found = [first.finish(), second.finish()]
        ends = first.ends
        assert isinstance(ends, LogEnds)  # noqa: S101  # it is a worker's
        versions = [json.loads(value) for value in ends.versions()]
        receipts = ends.answered()
    won, contested = (sum(one[name] for one in found) for name in ("won", "contested"))
    setting: Setting = {"log": "kafka", "models": plan.models, "workers": 2, "requests": number}
    yield compared(
        SECTION, setting, "gap reads a commit", [contested / (won + contested)], at_most=0.01,
        n=int(won + contested),
    )  # fmt: skip
    least = min(one["won"] for one in found) / won
    yield derived(SECTION, setting, "commits of the less busy worker", "1", least, int(won))
    once = {(one["model_id"], one["version"]) for one in versions}
    for name, published, distinct in (
        ("version", len(versions), len(once)),
        ("receipt", receipts, number),
    ):
        yield compared(
            SECTION, setting, f"times that a {name} is published", [published / distinct],
            at_most=1.0, n=distinct,
        )  # fmt: skip


# -- memory -----------------------------------------------------------------------------------


def _memory(plan: Plan, seed: int, directory: Path) -> Iterator[Record]:
    """Count the bytes of requests that were answered for good, through the worker itself.

    All name one row, which the first of them deletes: the others are ALREADY_APPLIED, and leave
    nothing but their receipts in the index. The log is in this process's memory.
    """
    configure_logging("WARNING", "json")
    directory.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        client = connect(stack.enter_context(EmbeddedValkey(directory)).url)
        stack.callback(client.close)
        client.config_set("appendonly", "no")  # its buffers would count
        store, log = ModelStore(client, NoBarrier()), MemoryLog()
        log.ensure_topics(topics.specs(1))
        seals = SealKeys([bytes(32)])
        producer = log.producer()
        registrar = Registrar(store, producer, log.reader(), seals)
        register_model(registrar, model_id(0), Kind.LINEAR, plan.rows, plan.d, seed)
        worker = DeletionWorker(log, store, seals)
        stack.callback(worker.close)

        def send(first: int, last: int) -> None:
            bodies = [
                {"request_id": request_id(i), "model_id": model_id(0), "row_ids": [row_id(0)]}
                for i in range(first, last)
            ]
            key = model_id(0).encode()
            producer.publish(
                [Message(topics.DELETIONS, key, json.dumps(body).encode()) for body in bodies]
            )
            while not worker.idle():
                worker.run_once(0.0)

        send(0, _POLL)
        before = _used(client)
        for first in range(_POLL, _POLL + plan.requests, _POLL):
            send(first, min(first + _POLL, _POLL + plan.requests))
        grown = _used(client) - before
    of_each = grown / plan.requests - len(request_id(0))
    setting: Setting = {"requests": plan.requests, "d": plan.d}
    yield compared(
        SECTION, setting, "memory of a final request, beyond its id", [of_each], at_most=150,
        unit="bytes", n=plan.requests,
    )  # fmt: skip


def _used(client: Any) -> int:
    return int(client.info("memory")["used_memory"])


# -- a fold -----------------------------------------------------------------------------------


def _fold(plan: Plan, seed: int, directory: Path, kafka: str) -> Iterator[Record]:
    """Let a store from before all deletions follow the log."""
    prefix = f"bench-{uuid.uuid4().hex[:12]}."
    now, then = directory / "now", directory / "then"
    number = plan.fold_models * plan.rows
    with ExitStack() as stack:
        stack.callback(delete_topics, kafka, prefix)
        registering = _job(plan, seed, plan.fold_models)
        with worker_side(now, registering, kafka, 1, prefix=prefix):
            pass
        shutil.copytree(now, then, ignore=shutil.ignore_patterns("*.lock", "*.sock", "*.pid"))
        # One request of each model lies in a poll: a commit each.
        deleting = _job(plan, seed, 0, records=plan.fold_models)
        with worker_side(now, deleting, kafka, 1, prefix=prefix) as side:
            side.pause()
            side.ends.send(
                side.requests(
                    [Asked(m, [row]) for row in range(plan.rows) for m in range(plan.fold_models)]
                )
            )
            side.work()
            side.wait_answers(number)
            commits = side.finish()["won"]
        folding = _job(plan, seed, 0).model_copy(update={"role": "fold"})
        with worker_side(then, folding, kafka, 1, prefix=prefix) as side:
            found = side.finish()
    if found["halted"] or found["applied"] < commits:
        raise AssertionError(f"{found['applied']} of {commits} commits were folded")
    setting: Setting = {"log": "kafka", "d": plan.d, "models": plan.fold_models}
    yield compared(
        SECTION, setting, f"fold of {commits:.0f} commits", [found["seconds"]], at_most=60.0,
        unit="s", n=1,
    )  # fmt: skip
