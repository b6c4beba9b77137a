"""A pipeline under measurement: a store, a worker in its own process, and this process's ends.

This process produces requests and is the subscriber: it reads the versions and checks each link.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from benchmarks.machine import ONE_THREAD
from benchmarks.worker import Job
from lethe.consumers.contract import topics
from lethe.consumers.contract.events import MODEL_VERSION, Version
from lethe.consumers.contract.signatures import TrustedKeys
from lethe.consumers.contract.version_chain import check_version
from lethe.consumers.log.base import Log, Message, Partition, Producer, Reader
from lethe.consumers.log.kafka.kafka_python.log import KafkaPythonLog
from lethe.consumers.log.streams.log import StreamsLog
from lethe.consumers.service.embedded_valkey import EmbeddedValkey
from lethe.engine.errors import LogUnavailable
from lethe.engine.store.connection import connect

PARTITIONS = 1
"""Of each topic: the subscriber then follows all models without changing partitions."""

_SCRIPTS = Path(__file__).resolve().parent.parent
_VERSION_SECONDS = 60.0
_READ = 1000


class Stuck(Exception):
    """A worker ended, or no version came."""


class Process:
    """A worker process; see `benchmarks.worker` and, for the other module, `benchmarks.floor`."""

    def __init__(
        self,
        argument: str,
        log: IO[str],
        *,
        module: str = "benchmarks.worker",
        partitions: int = PARTITIONS,
    ) -> None:
        self._log = log
        environment = {
            **os.environ,
            **ONE_THREAD,
            "LETHE_PARTITIONS": str(partitions),
            "PYTHONPATH": os.pathsep.join((str(_SCRIPTS), str(_SCRIPTS.parent))),
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, argument],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, env=environment,
        )  # fmt: skip

    def wait_ready(self) -> None:
        """Return once the worker has registered its models and taken over its partitions."""
        assert self._process.stdout is not None  # noqa: S101  # it is a pipe
        if self._process.stdout.readline().strip() != "ready":
            self._log.seek(0)
            raise Stuck(f"a worker ended while starting:\n{self._log.read()[-2000:]}")

    def check(self) -> None:
        """Raise `Stuck` if the process has ended."""
        if self._process.poll() is not None:
            self._log.seek(0)
            raise Stuck(f"a worker ended early:\n{self._log.read()[-2000:]}")

    @property
    def seconds(self) -> float:
        """Processor time that its threads have used so far."""
        threads = Path(f"/proc/{self._process.pid}/task").glob("*/schedstat")
        return sum(int(one.read_text().split()[0]) for one in threads) / 1e9

    def finish(self) -> dict[str, float]:
        """End the process; return what it says at its end."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        assert self._process.stdout is not None  # noqa: S101  # it is a pipe
        last = self._process.stdout.read().strip().rpartition("\n")[2]
        if not last:
            self._log.seek(0)
            raise Stuck(f"a worker ended early:\n{self._log.read()[-2000:]}")
        found: dict[str, float] = json.loads(last)
        return found

    def tell(self, line: str) -> None:
        """Send a command."""
        assert self._process.stdin is not None  # noqa: S101  # it is a pipe
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def close(self) -> None:
        """End the process and wait for it."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


@dataclass(slots=True)
class Subscriber:
    """Reads the versions of all models and checks each link; `Stuck` when none comes."""

    reader: Reader
    partition: Partition
    offset: int = 0
    newest: dict[str, Version] = field(default_factory=dict)
    trusted: TrustedKeys | None = None

    def read(self, timeout: float) -> list[Version]:
        """Return the versions that are new, checked."""
        records, self.offset = self.reader.read(self.partition, self.offset, timeout, _READ)
        if self.trusted is not None:
            for record in records:
                self.trusted.check(MODEL_VERSION, record.value or b"", record.headers)
        versions = [Version.model_validate_json(record.value or b"") for record in records]
        for version in versions:
            check_version(version, self.newest.get(version.model_id))
            self.newest[version.model_id] = version
        return versions

    def wait(self) -> list[Version]:
        """Return the next versions."""
        deadline = time.monotonic() + _VERSION_SECONDS
        while time.monotonic() < deadline:
            if versions := self.read(1.0):
                return versions
        raise Stuck(f"no version in {_VERSION_SECONDS:g} s")


@dataclass(slots=True)
class Pipeline:
    """The ends of one pipeline."""

    name: str
    redis_url: str
    prefix: str
    producer: Producer
    subscriber: Subscriber
    worker: Process
    sent: int = 0

    def request(self, model: str, rows: list[str]) -> Message:
        """Return a request."""
        self.sent += 1
        body = {"request_id": f"request-{self.sent:07d}", "model_id": model, "row_ids": rows}
        value = json.dumps(body).encode()
        return Message(self.prefix + topics.DELETIONS, model.encode(), value)

    def ask(self, model: str, rows: list[str]) -> float:
        """Send one request; return the seconds until its version was seen and checked."""
        message = self.request(model, rows)
        begin = time.perf_counter()
        self.producer.publish([message])
        while True:
            for version in self.subscriber.wait():
                if version.request_ids:
                    return time.perf_counter() - begin


@contextmanager
def pipeline(directory: Path, job: Job, kafka: str | None) -> Iterator[Pipeline]:
    """Start a store and a worker; yield the pipeline once the worker waits for requests.

    ``job`` needs no servers yet. On Kafka, which pipelines share, topics have names of their own
    and are deleted afterwards.
    """
    directory.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        url = stack.enter_context(EmbeddedValkey(directory)).url
        log_file = stack.enter_context((directory / "worker.log").open("w+"))
        prefix = "" if kafka is None else f"bench-{uuid.uuid4().hex[:12]}."
        job = job.model_copy(update={"redis_url": url, "kafka": kafka, "prefix": prefix})
        if kafka is not None:
            stack.callback(delete_topics, kafka, prefix)
        worker = Process(job.model_dump_json(), log_file)
        stack.callback(worker.close)
        worker.wait_ready()
        log: Log
        if kafka is None:
            client = connect(url)
            stack.callback(client.close)
            log = StreamsLog(client)
        else:
            log = KafkaPythonLog(kafka, client_id="lethe-bench")
        producer, reader = log.producer(), log.reader()
        stack.callback(producer.close)
        stack.callback(reader.close)
        [partition] = reader.partitions(job.prefix + topics.VERSIONS)
        subscriber = Subscriber(reader, partition, reader.bounds(partition).begin)
        while subscriber.offset < reader.bounds(partition).end:
            subscriber.read(1.0)
        yield Pipeline(job.role, url, job.prefix, producer, subscriber, worker)


def delete_topics(kafka: str, prefix: str) -> None:
    """Delete a pipeline's topics."""
    log = KafkaPythonLog(kafka, client_id="lethe-bench")
    for spec in topics.specs():
        with suppress(LogUnavailable):  # the floor has not all of them
            log.delete_topic(prefix + spec.name)
