"""A worker in a process of its own, and its two ends: requests go in, versions come out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from bench.synthetic import request
from bench.worker import Job
from harness.machine import ONE_THREAD
from harness.results import ROOT
from lethe.consumers.contract import topics
from lethe.consumers.contract.events import Version
from lethe.consumers.contract.version_chain import check_version
from lethe.consumers.log.base import Log, Message
from lethe.consumers.log.kafka.log import KafkaLog
from lethe.consumers.log.streams.log import StreamsLog
from lethe.consumers.service.embedded_valkey import EmbeddedValkey
from lethe.consumers.workers.deletion_worker import BatchLimits
from lethe.engine.errors import LogUnavailable
from lethe.engine.store.server.connection import connect

ANSWER_SECONDS = 60.0
_READ = 1000
_LOOK_SECONDS = 0.02
_SETTLE_SECONDS = 0.02
"""What follows a version (trimming, erasing, advancing) ends before the next request is sent."""


class Stuck(Exception):
    """A process ended, or no answer came."""


class Process:
    """A worker process; see `bench.worker`."""

    def __init__(self, job: Job, log: IO[str], *, partitions: int) -> None:
        self._log = log
        environment = {
            **os.environ,
            **ONE_THREAD,
            "LETHE_PARTITIONS": str(partitions),
            "PYTHONPATH": os.pathsep.join(str(ROOT / name) for name in ("src", "scripts", "")),
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.worker", job.model_dump_json()],
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


class Ends:
    """The ends on a log: a producer, and a subscriber that checks each version's link.

    Attributes
    ----------
    newest
        Of each model, its newest version.
    """

    def __init__(self, log: Log, prefix: str) -> None:
        self._prefix = prefix
        self._producer, self._reader = log.producer(), log.reader()
        self._receipts = self._reader.partitions(prefix + topics.RECEIPTS)
        self._versions = dict.fromkeys(self._reader.partitions(prefix + topics.VERSIONS), 0)
        self.newest: dict[str, Version] = {}

    def send(self, requests: Sequence[tuple[bytes, bytes]]) -> None:
        """Send requests (key and value), and return once they are in the log."""
        self.publish(topics.DELETIONS, requests)

    def publish(self, topic: str, messages: Sequence[tuple[bytes, bytes]]) -> None:
        """Send messages (key and value) to a topic, and return once they are in the log."""
        topic = self._prefix + topic
        self._producer.publish(
            [Message(topic, key, value) for key, value in messages], timeout=ANSWER_SECONDS
        )

    def answered(self) -> int:
        """Return how many receipts there are."""
        return sum(self._reader.ends(self._receipts).values())

    def skip_versions(self) -> None:
        """Read and check the versions so far; of one partition only, as what follows."""
        [partition] = self._versions
        end = self._reader.bounds(partition).end
        while self._versions[partition] < end:
            self._read()

    def next_versions(self) -> list[Version]:
        """Wait for the next versions; return them, checked."""
        deadline = time.monotonic() + ANSWER_SECONDS
        while time.monotonic() < deadline:
            if versions := self._read():
                return versions
        raise Stuck(f"no version in {ANSWER_SECONDS:g} s")

    def _read(self) -> list[Version]:
        """Return what came within a second, checked, without what a fold published again."""
        [partition] = self._versions
        records, after = self._reader.read(partition, self._versions[partition], 1.0, _READ)
        self._versions[partition] = after
        fresh = []
        for record in records:
            version = Version.model_validate_json(record.value or b"")
            before = self.newest.get(version.model_id)
            if before is not None and before.digest == version.digest:
                continue
            check_version(version, before)
            self.newest[version.model_id] = version
            fresh.append(version)
        return fresh

    def wait_version(self) -> None:
        """Return once a version of a request was seen and checked."""
        while not any(version.request_ids for version in self.next_versions()):
            pass

    def versions(self) -> list[Version]:
        """Return all versions of all partitions."""
        found = []
        for partition in self._versions:
            bounds = self._reader.bounds(partition)
            offset = bounds.begin
            while offset < bounds.end:
                records, offset = self._reader.read(partition, offset, 1.0, _READ)
                found += [Version.model_validate_json(record.value or b"") for record in records]
        return found

    def close(self) -> None:
        """Release the connections."""
        self._producer.close()
        self._reader.close()


@dataclass(frozen=True, slots=True)
class Asked:
    """A request: its model and its rows, by number."""

    model: int
    rows: Iterable[int]


@dataclass(slots=True)
class Side:
    """A worker: its ends, its process, and what it was told to do."""

    name: str
    ends: Ends
    process: Process
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


@contextmanager
def worker_side(
    directory: Path,
    job: Job,
    kafka: str | None,
    *,
    name: str = "worker",
    partitions: int = 1,
    prefix: str | None = None,
) -> Iterator[Side]:
    """Yield a worker that is ready, with a store of its own.

    ``job`` needs no servers yet. On Kafka, which sides share, topics have names of their own and
    are deleted afterwards; with a ``prefix`` they are somebody else's to delete.
    """
    with ExitStack() as stack:
        directory.mkdir(parents=True, exist_ok=True)
        url = stack.enter_context(EmbeddedValkey(directory)).url
        client = connect(url)
        stack.callback(client.close)
        if prefix is None:
            prefix = "" if kafka is None else topic_prefix()
            if kafka is not None:
                stack.callback(delete_topics, kafka, prefix)
        job = job.model_copy(update={"redis_url": url, "kafka": kafka, "prefix": prefix})
        log = stack.enter_context((directory / "process.log").open("w+"))
        process = Process(job, log, partitions=partitions)
        stack.callback(process.close)
        process.wait_ready()
        ends = Ends(StreamsLog(client) if kafka is None else _kafka_log(kafka), prefix)
        stack.callback(ends.close)
        yield Side(name, ends, process, job)


def closed_loop(
    sides: Sequence[Side], seed: int, *, n: int, k: int, models: int, requests: int
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
                time.sleep(_SETTLE_SECONDS)
                if model > 0:
                    samples[side.name].append(seconds * 1e3)
    return samples


def log_name(kafka: str | None) -> str:
    """Return what records call the log."""
    return "streams" if kafka is None else "kafka"


def delete_topics(kafka: str, prefix: str) -> None:
    """Delete a side's topics."""
    log = _kafka_log(kafka)
    for spec in topics.specs():
        with suppress(LogUnavailable):
            log.delete_topic(prefix + spec.name)


def topic_prefix() -> str:
    """Return what a side's topics on a shared Kafka begin with."""
    return f"bench-{uuid.uuid4().hex[:12]}."


def _kafka_log(address: str) -> KafkaLog:
    return KafkaLog(address, client_id="lethe-bench")
