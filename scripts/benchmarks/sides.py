"""Two sides under measurement, the worker and the floor, each with a store of its own."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import redis

from benchmarks.ends import ANSWER_SECONDS, Ends, LogEnds, StreamEnds
from benchmarks.pipeline import Process, Stuck, delete_topics
from benchmarks.shape import Shape
from benchmarks.synthetic import model_id, request_id, row_id
from benchmarks.worker import Job
from lethe.consumers.contract import topics
from lethe.consumers.log.base import Log
from lethe.consumers.log.kafka.kafka_python.log import KafkaPythonLog
from lethe.consumers.log.streams.log import StreamsLog
from lethe.consumers.service.embedded_valkey import EmbeddedValkey
from lethe.consumers.workers.deletion_worker import BatchLimits
from lethe.engine.store.connection import connect

_LOOK_SECONDS = 0.02
_SETTLE_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Asked:
    """A request: its model and its rows, by number."""

    model: int
    rows: Sequence[int]


@dataclass(slots=True)
class Side:
    """One side: its ends, its process, its store, and what it was told to do."""

    name: str
    ends: Ends
    process: Process
    store: redis.Redis
    job: Job
    sent: int = 0

    def requests(self, asked: Sequence[Asked]) -> list[tuple[bytes, bytes]]:
        """Return requests as they are sent."""
        found = []
        for one in asked:
            self.sent += 1
            body = {
                "request_id": request_id(self.sent),
                "model_id": model_id(one.model),
                "row_ids": [row_id(row) for row in one.rows],
            }
            found.append((model_id(one.model).encode(), json.dumps(body).encode()))
        return found

    @property
    def answered(self) -> int:
        """How many receipts there are."""
        return self.ends.answered()

    def work(self) -> None:
        """Go on."""
        self.process.tell("go")

    def pause(self) -> None:
        """Stop before the next poll; return once the poll under way has ended."""
        self.process.tell("pause")
        time.sleep(2 * BatchLimits().poll_seconds)

    def rest(self) -> None:
        """Pause while the other side works.

        Not in single-node mode: a member that does not poll loses its lease.
        """
        if self.job.kafka is not None:
            self.process.tell("pause")

    def settle(self) -> None:
        """Let what follows a version (trimming, advancing) end before the other side begins."""
        time.sleep(_SETTLE_SECONDS)

    def finish(self) -> dict[str, float]:
        """End the process; return what it counted."""
        self.work()
        return self.process.finish()

    def wait_answers(self, number: int) -> None:
        """Return once there are so many receipts in all; some must come every minute."""
        deadline, before = time.monotonic() + ANSWER_SECONDS, -1
        while (there := self.ends.answered()) < number:
            if there > before:
                deadline, before = time.monotonic() + ANSWER_SECONDS, there
            if time.monotonic() > deadline:
                raise Stuck(f"{there} of {number} receipts came")
            self.process.check()
            time.sleep(_LOOK_SECONDS)

    def ask(self, asked: Asked) -> float:
        """Send one request; return the seconds until its version was seen."""
        requests = self.requests([asked])
        self.ends.skip_versions()
        begin = time.perf_counter()
        self.ends.send(requests)
        self.ends.wait_version()
        return time.perf_counter() - begin

    def traffic(self) -> tuple[int, int]:
        """Return the bytes that the store has read and sent so far."""
        stats: Any = self.store.info("stats")
        return int(stats["total_net_input_bytes"]), int(stats["total_net_output_bytes"])


@contextmanager
def worker_side(
    directory: Path, job: Job, kafka: str | None, partitions: int, *, prefix: str | None = None
) -> Iterator[Side]:
    """Yield a worker that is ready. With a ``prefix``, topics are somebody else's to delete."""
    with _store(directory) as (stack, client, url):
        name = _prefix(kafka) if prefix is None else prefix
        if kafka is not None and prefix is None:
            stack.callback(delete_topics, kafka, name)
        job = job.model_copy(update={"redis_url": url, "kafka": kafka, "prefix": name})
        process = _start(stack, directory, job.model_dump_json(), "benchmarks.worker", partitions)
        process.wait_ready()
        ends = LogEnds(_log(kafka, client), name)
        stack.callback(ends.close)
        yield Side("worker", ends, process, client, job)


@contextmanager
def floor_side(
    directory: Path, shape: Shape, job: Job, kafka: str | None, partitions: int
) -> Iterator[Side]:
    """Yield a floor that is ready, with as many models as ``job`` says."""
    with _store(directory) as (stack, client, url):
        name = _prefix(kafka)
        ends: Ends
        if kafka is not None:
            log = KafkaPythonLog(kafka, client_id="lethe-bench")
            specs = topics.specs(partitions)
            log.ensure_topics([replace(spec, name=name + spec.name) for spec in specs])
            stack.callback(delete_topics, kafka, name)
        plan = {
            "redis_url": url,
            "kafka": kafka,
            "prefix": name,
            "shape": shape.plain(),
            "models": job.models,
            "n": job.n,
            "records": job.records,
            "partitions": partitions,
        }
        process = _start(stack, directory, json.dumps(plan), "benchmarks.floor", partitions)
        process.wait_ready()
        if kafka is not None:
            ends = own = LogEnds(log, name)
            stack.callback(own.close)
        else:
            ends = StreamEnds(client, partitions)
        yield Side("floor", ends, process, client, job.model_copy(update={"kafka": kafka}))


def _prefix(kafka: str | None) -> str:
    return "" if kafka is None else f"bench-{uuid.uuid4().hex[:12]}."


def _log(kafka: str | None, client: redis.Redis) -> Log:
    return StreamsLog(client) if kafka is None else KafkaPythonLog(kafka, client_id="lethe-bench")


@contextmanager
def _store(directory: Path) -> Iterator[tuple[ExitStack, redis.Redis, str]]:
    directory.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        url = stack.enter_context(EmbeddedValkey(directory)).url
        client = connect(url)
        stack.callback(client.close)
        yield stack, client, url


def _start(
    stack: ExitStack, directory: Path, argument: str, module: str, partitions: int
) -> Process:
    log = stack.enter_context((directory / "process.log").open("w+"))
    process = Process(argument, log, module=module, partitions=partitions)
    stack.callback(process.close)
    return process
