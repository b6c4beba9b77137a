"""Synthetic models and requests, the same for every run of a seed."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from harness.results import ROOT

sys.path.insert(0, str(ROOT))  # the log in memory is the tests' own

import lethe.consumers.registration.candidate
from lethe.consumers.contract import topics
from lethe.consumers.contract.sealing import SealKeys
from lethe.consumers.log.base import Message
from lethe.consumers.registration.register import Registrar, TrainingData
from lethe.consumers.service.embedded_valkey import EmbeddedValkey
from lethe.consumers.service.loop import collect_rarely
from lethe.consumers.service.telemetry.logs import configure_logging
from lethe.consumers.workers.deletion_worker import DeletionWorker
from lethe.engine.fit.objective import Array, Kind
from lethe.engine.store.layout.config import ModelConfig
from lethe.engine.store.server.barrier import NoBarrier
from lethe.engine.store.server.connection import connect
from lethe.engine.store.store import ModelStore
from tests.support.memory_log import MemoryLog

RIDGE = 1.0
NO_BUDGET = 1e6
"""An error budget that nothing exceeds: no refresh is ordered while a step is measured."""


def matrices(kind: Kind, n: int, d: int, seed: int) -> tuple[Array, Array]:
    """Return n x d features and n x 1 targets of a noisy linear or logistic model."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    margin = X @ rng.standard_normal((d, 1)) / np.sqrt(d)
    if kind is Kind.LINEAR:
        return X, margin + 0.5 * rng.standard_normal((n, 1))
    y: Array = (rng.random((n, 1)) < 1.0 / (1.0 + np.exp(-2.0 * margin))).astype(np.float64)
    return X, y


def row_id(index: int) -> str:
    """Return the id of a row."""
    return f"row-{index:07d}"


def request_id(index: int) -> str:
    """Return the id of a request."""
    return f"request-{index:07d}"


def model_id(index: int) -> str:
    """Return the id of a model."""
    return f"model-{index}"


def request(number: int, model: int, rows: Iterable[int]) -> tuple[bytes, bytes]:
    """Return key and value of a request for rows of a model, all by number."""
    body = {
        "request_id": request_id(number),
        "model_id": model_id(model),
        "row_ids": [row_id(row) for row in rows],
    }
    return model_id(model).encode(), json.dumps(body).encode()


def register_model(
    registrar: Registrar,
    name: str,
    kind: Kind,
    n: int,
    d: int,
    seed: int,
    method: str = "pru",
    *,
    disclosure: bool = False,
    exact_sums: bool = False,
) -> None:
    """Register a synthetic model of d columns (no intercept)."""
    X, y = matrices(kind, n, d, seed)
    features = tuple(f"feature_{column}" for column in range(d))
    config = ModelConfig(
        model_id=name,
        kind=kind,
        method=method,
        ridge=RIDGE,
        fit_intercept=False,
        feature_names=features,
        target_names=("target",),
        error_budget=NO_BUDGET,
        disclosure=disclosure,
        exact_sums=exact_sums,
    )
    ids = tuple(row_id(index) for index in range(n))
    registrar.register(config, TrainingData(ids, X, y, features, ("target",), {}))


def share_precomputation() -> None:
    """Precompute once for models of the same data: this process's registrations share the result.

    Dozens of models are registered so that each round has fresh ones; what is measured comes later.
    """
    precompute: Callable[..., Any] = lethe.consumers.registration.candidate._precompute
    found: dict[str, Any] = {}

    def once(config: ModelConfig, data: TrainingData) -> Any:
        key = config.model_copy(update={"model_id": "any"}).model_dump_json()
        if key not in found:
            found[key] = precompute(config, data)
        return found[key]

    lethe.consumers.registration.candidate._precompute = once


class LocalWorker:
    """A deletion worker in this process, on the log in memory."""

    def __init__(self, store: ModelStore) -> None:
        log, seals = MemoryLog(), SealKeys([bytes(32)])
        log.ensure_topics(topics.specs(1))
        self.store = store
        self.producer = log.producer()
        self.registrar = Registrar(store, self.producer, log.reader(), seals)
        self.worker = DeletionWorker(log, store, seals)

    def in_turns(self, models: int, turns: int, k: int) -> list[list[float]]:
        """Delete k rows of each model in turn; return the microseconds of processor time of each.

        From poll to publication, for each model.
        """
        collect_rarely()
        taken: list[list[float]] = [[] for _ in range(models)]
        for turn in range(turns):
            rows = range(turn * k, (turn + 1) * k)
            for number, times in enumerate(taken):
                self.send([request(turn * models + number, number, rows)])
                begin = time.process_time()
                self.drain()
                times.append(1e6 * (time.process_time() - begin))
        return taken

    def send(self, requests: Iterable[tuple[bytes, bytes]]) -> None:
        """Put requests (key and value) into the log."""
        self.producer.publish([Message(topics.DELETIONS, key, value) for key, value in requests])

    def drain(self) -> None:
        """Work until nothing is left to do."""
        while not self.worker.idle():
            self.worker.run_once(0.0)


@contextmanager
def local_worker(directory: Path) -> Iterator[LocalWorker]:
    """Start a Valkey, with its files in a new directory, and a worker beside it."""
    configure_logging("WARNING", "json")
    directory.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        client = connect(stack.enter_context(EmbeddedValkey(directory)).url)
        stack.callback(client.close)
        local = LocalWorker(ModelStore(client, NoBarrier()))
        stack.callback(local.worker.close)
        yield local
