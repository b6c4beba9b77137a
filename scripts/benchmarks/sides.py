"""Sides under measurement, workers and the floor: each a process with a store of its own.

This process is the client: it produces the requests, and reads receipts and versions.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, Any, Generic, TypeVar

import numpy as np
import redis

from benchmarks.ends import ANSWER_SECONDS, Ends, LogEnds, StreamEnds, Stuck, SubscriberEnds
from benchmarks.shape import Shape
from benchmarks.synthetic import request
from benchmarks.worker import Job
from harness.machine import ONE_THREAD
from harness.results import ROOT
from lethe.consumers.contract import topics
from lethe.consumers.contract.signatures import TrustedKeys
from lethe.consumers.log.base import Log
from lethe.consumers.log.kafka.log import KafkaLog
from lethe.consumers.log.streams.log import StreamsLog
from lethe.consumers.service.embedded_valkey import EmbeddedValkey
from lethe.consumers.workers.deletion_worker import BatchLimits
from lethe.engine.errors import LogUnavailable
from lethe.engine.store.server.connection import connect

SETTLE_SECONDS = 0.02
"""What follows a version (trimming, erasing, advancing) ends before the other side begins."""

_LOOK_SECONDS = 0.02

E = TypeVar("E", bound=Ends)


class Process:
    """A worker process; see `benchmarks.worker`, and `benchmarks.floor` for the other modules."""

    def __init__(
        self, argument: str, log: IO[str], *, partitions: int, module: str = "benchmarks.worker"
    ) -> None:
        self._log = log
        environment = {
            **os.environ,
            **ONE_THREAD,
            "LETHE_PARTITIONS": str(partitions),
            "PYTHONPATH": os.pathsep.join((str(ROOT / "scripts"), str(ROOT))),
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, argument],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, env=environment,
        )  # fmt: skip
        assert self._process.stdin is not None  # noqa: S101  # it is a pipe
        assert self._process.stdout is not None  # noqa: S101  # it is a pipe
        self._in, self._out = self._process.stdin, self._process.stdout

    def wait_ready(self) -> None:
        """Return once the worker has registered its models and taken over its partitions."""
        if self._out.readline().strip() != "ready":
            raise self._stuck("while starting")

    def check(self) -> None:
        """Raise `Stuck` if the process has ended."""
        if self._process.poll() is not None:
            raise self._stuck("early")

    def _stuck(self, when: str) -> Stuck:
        self._log.seek(0)
        return Stuck(f"a worker ended {when}:\n{self._log.read()[-2000:]}")

    @property
    def seconds(self) -> float:
        """Processor time that its threads have used so far."""
        threads = Path(f"/proc/{self._process.pid}/task").glob("*/schedstat")
        return sum(int(one.read_text().split()[0]) for one in threads) / 1e9

    def tell(self, line: str) -> None:
        """Send a command."""
        self._in.write(line + "\n")
        self._in.flush()

    def finish(self) -> dict[str, float]:
        """End the process; return what it says at its end."""
        self._in.close()
        last = self._out.read().strip().rpartition("\n")[2]
        if not last:
            raise self._stuck("early")
        found: dict[str, float] = json.loads(last)
        return found

    def close(self) -> None:
        """End the process and wait for it."""
        if not self._in.closed:
            self._in.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._out.close()


@dataclass(frozen=True, slots=True)
class Asked:
    """A request: its model and its rows, by number."""

    model: int
    rows: Iterable[int]


@dataclass(slots=True)
class Side(Generic[E]):
    """One side: its ends, its process, its store, and what it was told to do."""

    name: str
    ends: E
    process: Process
    store: redis.Redis
    job: Job
    sent: int = 0

    def requests(self, asked: Sequence[Asked]) -> list[tuple[bytes, bytes]]:
        """Return requests as they are sent."""
        first, self.sent = self.sent + 1, self.sent + len(asked)
        return [request(number, one.model, one.rows) for number, one in enumerate(asked, first)]

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

    def ask(self, model: int, rows: Iterable[int]) -> float:
        """Send one request; return the seconds until its version was seen."""
        requests = self.requests([Asked(model, rows)])
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
) -> Iterator[Side[LogEnds]]:
    """Yield a worker that is ready, with a store of its own.

    ``job`` needs no servers yet. On Kafka, which sides share, topics have names of their own and
    are deleted afterwards; with a ``prefix`` they are somebody else's to delete.
    """
    with ExitStack() as stack:
        process, client, job = _worker(stack, directory, job, kafka, partitions, prefix)
        ends = LogEnds(_log(kafka, client), job.prefix)
        stack.callback(ends.close)
        yield Side("worker", ends, process, client, job)


@contextmanager
def subscribed(
    directory: Path, name: str, job: Job, kafka: str | None, trusted: TrustedKeys | None = None
) -> Iterator[Side[SubscriberEnds]]:
    """Yield a worker of one partition whose versions are checked as a subscriber checks them."""
    with ExitStack() as stack:
        process, client, job = _worker(stack, directory, job, kafka, 1, None)
        ends = SubscriberEnds(_log(kafka, client), job.prefix, trusted)
        stack.callback(ends.close)
        yield Side(name, ends, process, client, job)


def _worker(
    stack: ExitStack,
    directory: Path,
    job: Job,
    kafka: str | None,
    partitions: int,
    prefix: str | None,
) -> tuple[Process, redis.Redis, Job]:
    url, client = _store(stack, directory)
    name = _prefix(stack, kafka) if prefix is None else prefix
    job = job.model_copy(update={"redis_url": url, "kafka": kafka, "prefix": name})
    process = _start(stack, directory, job.model_dump_json(), "benchmarks.worker", partitions)
    return process, client, job


def log_name(kafka: str | None) -> str:
    """Return what records call the log."""
    return "streams" if kafka is None else "kafka"


def closed_loop(
    sides: Sequence[Side[SubscriberEnds]], seed: int, *, n: int, k: int, models: int, requests: int
) -> dict[str, list[float]]:
    """Send one request at a time, to the sides in turns; return milliseconds to its version.

    Each of the models, of n rows, gets so many requests of k rows. Who goes first alternates, and
    the first model only warms up.
    """
    samples: dict[str, list[float]] = {side.name: [] for side in sides}
    rng = np.random.default_rng(seed)
    for model in range(models):
        order = rng.permutation(n).tolist()
        for turn in range(requests):
            rows = order[turn * k : (turn + 1) * k]
            for side in sides if turn % 2 == 0 else reversed(sides):
                seconds = side.ask(model, rows)
                time.sleep(SETTLE_SECONDS)
                if model > 0:
                    samples[side.name].append(seconds * 1e3)
    return samples


@contextmanager
def floor_side(
    directory: Path,
    shape: Shape,
    job: Job,
    kafka: str | None,
    partitions: int,
    name: str = "floor",
) -> Iterator[Side[Ends]]:
    """Yield a floor that is ready, with as many models as ``job`` says.

    ``name``: ``floor``, or ``contract floor`` (`benchmarks.contract_floor`).
    """
    with ExitStack() as stack:
        url, client = _store(stack, directory)
        prefix = _prefix(stack, kafka)
        log = _log(kafka, client)
        if kafka is not None:
            specs = topics.specs(partitions)
            log.ensure_topics([replace(spec, name=prefix + spec.name) for spec in specs])
        plan = {
            "redis_url": url,
            "kafka": kafka,
            "prefix": prefix,
            "shape": asdict(shape),
            "method": job.method,
            "models": job.models,
            "n": job.n,
            "d": job.d,
            "records": job.records,
            "partitions": partitions,
        }
        module = f"benchmarks.{name.replace(' ', '_')}"
        process = _start(stack, directory, json.dumps(plan), module, partitions)
        job = job.model_copy(update={"kafka": kafka})
        if kafka is None:
            yield Side(name, StreamEnds(client, partitions), process, client, job)
            return
        ends = LogEnds(log, prefix)
        stack.callback(ends.close)
        yield Side(name, ends, process, client, job)


def delete_topics(kafka: str, prefix: str) -> None:
    """Delete a side's topics."""
    log = KafkaLog(kafka, client_id="lethe-bench")
    for spec in topics.specs():
        with suppress(LogUnavailable):  # the floor has not all of them
            log.delete_topic(prefix + spec.name)


def topic_prefix() -> str:
    """Return what a side's topics on a shared Kafka begin with."""
    return f"bench-{uuid.uuid4().hex[:12]}."


def _prefix(stack: ExitStack, kafka: str | None) -> str:
    if kafka is None:
        return ""
    name = topic_prefix()
    stack.callback(delete_topics, kafka, name)
    return name


def _log(kafka: str | None, client: redis.Redis) -> Log:
    return StreamsLog(client) if kafka is None else KafkaLog(kafka, client_id="lethe-bench")


def _store(stack: ExitStack, directory: Path) -> tuple[str, redis.Redis]:
    directory.mkdir(parents=True, exist_ok=True)
    url = stack.enter_context(EmbeddedValkey(directory)).url
    client = connect(url)
    stack.callback(client.close)
    return url, client


def _start(
    stack: ExitStack, directory: Path, argument: str, module: str, partitions: int
) -> Process:
    log = stack.enter_context((directory / "process.log").open("w+"))
    process = Process(argument, log, module=module, partitions=partitions)
    stack.callback(process.close)
    process.wait_ready()
    return process
