"""A worker process of the bench: registers its models, says ``ready``, works until stdin ends.

Run as ``python -m benchmarks.worker JSON``. Lines on stdin: ``pause`` stops before the next
poll, ``go`` goes on; the end of the input stops the worker.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from pydantic import BaseModel, ConfigDict, SecretStr

import consumers.deletion_worker
from benchmarks import null_worker, plain_worker
from benchmarks.synthetic import model_id, register_model
from consumers import topics
from consumers.deletion_worker import DeletionWorker
from consumers.refresh_worker import RefreshWorker
from consumers.runtime import Runtime, open_runtime
from consumers.settings import Settings
from consumers.telemetry import configure_logging
from engine.objective import Kind


class Job(BaseModel):
    """What the process is to do.

    Attributes
    ----------
    role
        ``deletions``, ``evidence`` (the same; `signing_key` is given), ``plain`` (without
        evidence), ``null`` (without mathematics) or ``refresh``.
    redis_url, kafka
        The servers; without Kafka the log is Redis Streams.
    prefix
        Put before topic and group names, so that pipelines can share a Kafka.
    signing_key
        The file of a private key, if events are signed.
    kind, models, n, d, seed
        Models to register first.
    """

    model_config = ConfigDict(frozen=True)

    role: str
    redis_url: str
    kafka: str | None = None
    prefix: str = ""
    signing_key: Path | None = None
    kind: Kind = Kind.LINEAR
    models: int = 0
    n: int = 0
    d: int = 0
    seed: int = 0


def rename_topics(prefix: str) -> None:
    """Put the prefix before the names of this process's topics and group."""
    for name in ("DELETIONS", "RECEIPTS", "VERSIONS", "MODELS", "REFRESH_JOBS", "DEAD_LETTERS"):
        setattr(topics, name, prefix + getattr(topics, name))
    topics.ERASURES = prefix + topics.ERASURES
    consumers.deletion_worker.GROUP = prefix + consumers.deletion_worker.GROUP


class Commands:
    """What stdin says: go on, pause, stop."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self._go = threading.Event()
        self._go.set()
        threading.Thread(target=self._read, daemon=True).start()

    def at_step(self, name: str) -> None:
        """Wait before a poll while the bench says so."""
        if name == "poll":
            self._go.wait()

    def _read(self) -> None:
        for line in sys.stdin:
            if line.strip() == "pause":
                self._go.clear()
            else:
                self._go.set()
        self.stop.set()
        self._go.set()


def main(argument: str) -> None:
    """Work."""
    job = Job.model_validate_json(argument)
    configure_logging("INFO", "json")
    rename_topics(job.prefix)
    if job.role == "null":
        null_worker.install()
    if job.role == "plain":
        plain_worker.install()
    settings = Settings(
        redis_url=SecretStr(job.redis_url),
        kafka_bootstrap_servers=job.kafka,
        signing_key=job.signing_key,
    )
    commands = Commands()
    with open_runtime(settings) as runtime:
        runtime.ensure_topics()
        _register(job, runtime)
        if job.role == "refresh":
            _refresh(runtime, commands)
        else:
            _delete(runtime, commands)


def _register(job: Job, runtime: Runtime) -> None:
    store, producer, reader = runtime.store(), runtime.log.producer(), runtime.log.reader()
    for index in range(job.models):
        name = model_id(index)
        register_model(store, producer, reader, name, job.kind, job.n, job.d, job.seed + index)
    producer.close()
    reader.close()


def _delete(runtime: Runtime, commands: Commands) -> None:
    worker = DeletionWorker(runtime.log, runtime.store(), at_step=commands.at_step)
    while not (worker.idle() or commands.stop.is_set()):
        worker.run_once(0.05)
    print("ready", flush=True)
    worker.run(commands.stop)
    worker.close()


def _refresh(runtime: Runtime, commands: Commands) -> None:
    worker = RefreshWorker(runtime.log, runtime.store())
    while not (worker.idle() or commands.stop.is_set()):
        worker.run_once(0.05)
    print("ready", flush=True)
    worker.run(commands.stop)
    worker.close()


if __name__ == "__main__":
    main(sys.argv[1])
