"""A worker process of the bench: registers its models, says ``ready``, works until stdin ends.

Run as ``python -m bench.worker JSON``. Lines on stdin: ``pause`` stops before the next
poll, ``go`` goes on; the end of the input stops the worker, which then says what it counted.
"""

from __future__ import annotations

import json
import sys
import threading
import time

import numpy as np
from pydantic import BaseModel, ConfigDict, SecretStr

from bench.mixtures import Mixture, register_mixture
from bench.synthetic import model_id, register_model, share_precomputation
from lethe.consumers.commits.recovery.fold import Fold
from lethe.consumers.contract import topics
from lethe.consumers.registration.register import Registrar
from lethe.consumers.service.configuration.settings import Settings
from lethe.consumers.service.connect import Runtime, open_runtime
from lethe.consumers.service.loop import collect_rarely
from lethe.consumers.service.telemetry.logs import configure_logging
from lethe.consumers.service.telemetry.metrics import Metrics
from lethe.consumers.workers import deletion_worker
from lethe.consumers.workers.deletion_worker import BatchLimits, DeletionWorker
from lethe.consumers.workers.refresh_worker import RefreshWorker
from lethe.engine.fit.objective import Kind
from lethe.engine.store.layout.keys import COMMIT_PARTITIONS


class Job(BaseModel):
    """What the process is to do.

    Attributes
    ----------
    role
        ``deletions``, ``refresh``, or ``fold`` (once, then it ends).
    redis_url, kafka
        The servers; without Kafka the log is Redis Streams.
    prefix
        Put before topic and group names, so that pipelines can share a Kafka.
    kind, method, models, n, d, seed
        Models to register first.
    mixture
        What they are made of in place of ``kind``, ``method`` and ``d``, if preprocessing is
        measured.
    shared
        Whether they all have the same data: it is precomputed once.
    exact_sums
        Whether linear models have exact sums.
    records
        Of a poll, at most.
    """

    model_config = ConfigDict(frozen=True)

    role: str
    redis_url: str
    kafka: str | None = None
    prefix: str = ""
    kind: Kind = Kind.LINEAR
    method: str = "pru"
    models: int = 0
    n: int = 0
    d: int = 0
    seed: int = 0
    mixture: Mixture | None = None
    shared: bool = False
    exact_sums: bool = False
    records: int = BatchLimits().records


def rename_topics(prefix: str) -> None:
    """Put the prefix before the names of this process's topics and group."""
    for name in (
        *("DELETIONS", "COMMITS", "RECEIPTS", "VERSIONS", "MODELS", "REFRESH_JOBS"),
        *("ROW_CHANGES", "DEAD_LETTERS", "ERASURES"),
        *("ERASURE_RECEIPTS", "SUPPRESSIONS"),
    ):
        setattr(topics, name, prefix + getattr(topics, name))
    deletion_worker.GROUP = prefix + deletion_worker.GROUP


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
    if job.shared:
        share_precomputation()
    settings = Settings(
        redis_url=SecretStr(job.redis_url),
        kafka_bootstrap_servers=job.kafka,
    )
    commands = Commands()
    with open_runtime(settings) as runtime:
        runtime.ensure_topics()
        _register(job, runtime)
        if job.role == "refresh":
            _refresh(runtime, commands)
        elif job.role == "fold":
            _fold(runtime)
        else:
            _delete(job, runtime, commands)


def _register(job: Job, runtime: Runtime) -> None:
    if not job.models:
        return
    store, producer, reader = runtime.store(), runtime.log.producer(), runtime.log.reader()
    registrar = Registrar(store, producer, reader, runtime.seals(store), signer=runtime.signer())
    for index in range(job.models):
        seed = job.seed if job.shared else job.seed + index
        if job.mixture is not None:
            rng = np.random.default_rng(seed)
            register_mixture(registrar, model_id(index), job.mixture, job.n, rng)
            continue
        register_model(
            registrar,
            model_id(index),
            job.kind,
            job.n,
            job.d,
            seed,
            job.method,
            exact_sums=job.exact_sums,
        )
    producer.close()
    reader.close()


def _delete(job: Job, runtime: Runtime, commands: Commands) -> None:
    store, metrics = runtime.store(), Metrics()
    worker = DeletionWorker(
        runtime.log,
        store,
        runtime.seals(store),
        signer=runtime.signer(),
        metrics=metrics,
        limits=BatchLimits(records=job.records),
        at_step=commands.at_step,
    )
    while not (worker.idle() or commands.stop.is_set()):
        worker.run_once(0.05)
    print("ready", flush=True)
    collect_rarely()
    worker.run(commands.stop)
    worker.close()
    found = {how: metrics.commits.labels(how)._value.get() for how in ("won", "contested")}
    print(json.dumps(found), flush=True)


def _fold(runtime: Runtime) -> None:
    """Fold all partitions into a store that has fallen behind; say how long it took."""
    store = runtime.store()
    fold = Fold(store, runtime.log.reader(), runtime.log.producer(), runtime.seals(store))
    begin = time.perf_counter()
    folded = [fold.run(index) for index in range(COMMIT_PARTITIONS)]
    seconds = time.perf_counter() - begin
    print("ready", flush=True)
    applied = sum(one.applied for one in folded)
    halted = sum(len(one.halted) for one in folded)
    print(json.dumps({"seconds": seconds, "applied": applied, "halted": halted}), flush=True)


def _refresh(runtime: Runtime, commands: Commands) -> None:
    worker = RefreshWorker(runtime.log, runtime.store())
    while not (worker.idle() or commands.stop.is_set()):
        worker.run_once(0.05)
    print("ready", flush=True)
    worker.run(commands.stop)
    worker.close()


if __name__ == "__main__":
    main(sys.argv[1])
