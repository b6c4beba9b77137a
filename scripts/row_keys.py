"""What encrypted row records cost: registration, and a request from poll to watermark.

    python scripts/row_keys.py

Two stores of the same model, one with a store of row keys and one without, on embedded servers with
appendfsync always; requests in turns, so that both meet the same machine. docs/erasure.md.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import structlog
from threadpoolctl import threadpool_limits

from benchmarks.synthetic import model_id, register_model, row_id
from lethe.consumers.contract import topics
from lethe.consumers.contract.sealing import SealKeys
from lethe.consumers.log.base import Message
from lethe.consumers.log.memory import MemoryLog
from lethe.consumers.registration.register import Registrar
from lethe.consumers.service.embedded_valkey import EmbeddedValkey
from lethe.consumers.workers.deletion_worker import DeletionWorker
from lethe.engine.fit.objective import Kind
from lethe.engine.store.connection import Barrier, connect
from lethe.engine.store.row_keys import RowKeys
from lethe.engine.store.store import ModelStore

N, D, REQUESTS = 2000, (100, 1000), 100
ROWS = (1, 10)


class Side:
    """A store, with or without keys, its log and its worker."""

    def __init__(self, url: str, keys_url: str | None) -> None:
        client = connect(url)
        keys = None if keys_url is None else RowKeys(connect(keys_url))
        store = ModelStore(client, Barrier(client, required=True), keys)
        log = MemoryLog()
        log.ensure_topics(topics.specs(1))
        self.producer = log.producer()
        seals = SealKeys([bytes(32)])
        self.registrar = Registrar(store, self.producer, log.reader(), seals)
        self.worker = DeletionWorker(log, store, seals)
        self.worker.run_once(0.0)

    def register(self, d: int) -> float:
        """Register a model of d features; return the seconds."""
        begin = time.perf_counter()
        register_model(self.registrar, model_id(d), Kind.LINEAR, N, d, seed=1)
        return time.perf_counter() - begin

    def delete(self, d: int, name: str, rows: range) -> float:
        """Delete rows; return the seconds of the worker's turn."""
        body = {"request_id": name, "model_id": model_id(d), "row_ids": [row_id(i) for i in rows]}
        value = json.dumps(body).encode()
        self.producer.publish([Message(topics.DELETIONS, model_id(d).encode(), value, ())])
        begin = time.perf_counter()
        taken = self.worker.run_once(0.0)
        seconds = time.perf_counter() - begin
        if taken != 1:
            raise RuntimeError(f"{name}: {taken} records were taken")
        return seconds


@contextmanager
def sides() -> Iterator[tuple[Side, Side]]:
    """Start the servers."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        urls = [stack.enter_context(EmbeddedValkey(directory / str(i))).url for i in range(3)]
        yield Side(urls[0], None), Side(urls[1], urls[2])


def main() -> None:
    """Measure and print."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    with threadpool_limits(1), sides() as (plain, sealed):
        for d in D:
            took = [side.register(d) for side in (plain, sealed)]
            say(f"register n={N} d={d}", took[0], took[1])
            first = 0
            for k in ROWS:
                samples: tuple[list[float], list[float]] = ([], [])
                for i in range(REQUESTS if k == 1 else REQUESTS // 2):
                    for side, found in zip((plain, sealed), samples, strict=True):
                        found.append(side.delete(d, f"{d}-{k}-{i}", range(first, first + k)))
                    first += k
                medians = [float(np.median(found[5:])) for found in samples]
                say(f"request d={d} k={k}, median", *medians)


def say(what: str, plain: float, sealed: float) -> None:
    """Print a line."""
    ratio = sealed / plain
    print(f"{what:28} {1e3 * plain:9.2f} ms  encrypted {1e3 * sealed:9.2f} ms  x {ratio:.2f}")


if __name__ == "__main__":
    main()
