"""The deletion worker's work per batch: independent of n, linear in d (counted in bytes).

A worker's store connections report every byte that they send and read, from the first batch
after a warm start on: the state is in memory then, as it is in a worker that runs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import redis
from redis.connection import Connection

from lethe.consumers.contract import topics
from lethe.engine.error.budget import OverBudget
from lethe.engine.error.sentinels import SENTINELS
from lethe.engine.store.server.barrier import Barrier
from lethe.engine.store.server.connection import connect
from lethe.engine.store.store import ModelStore
from tests.support.families import Data
from tests.support.memory_log import HookCall, MemoryLog
from tests.support.platform import Platform, store_at

BATCHES = 5
ROWS = 10


@dataclass
class Traffic:
    sent: int = 0
    read: int = 0


class _Counted:
    """A socket that counts; everything else is the socket's own."""

    def __init__(self, inner: object, traffic: Traffic) -> None:
        self._inner, self._traffic = inner, traffic

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def sendall(self, data: bytes) -> None:
        self._traffic.sent += len(data)
        self._inner.sendall(data)  # type: ignore[attr-defined]  # a socket

    def recv_into(self, buffer: memoryview, *arguments: int) -> int:
        count: int = self._inner.recv_into(buffer, *arguments)  # type: ignore[attr-defined]  # as above
        self._traffic.read += count
        return count

    def recv(self, *arguments: int) -> bytes:
        data: bytes = self._inner.recv(*arguments)  # type: ignore[attr-defined]  # as above
        self._traffic.read += len(data)
        return data


def counting_store(url: str, traffic: Traffic) -> ModelStore:
    """Return a store whose connections count."""

    class Counting(Connection):
        def _connect(self) -> object:
            inner = super()._connect()  # type: ignore[no-untyped-call]  # redis-py's gap
            return _Counted(inner, traffic)

    plain = connect(url)
    pool = redis.ConnectionPool(
        connection_class=Counting, **plain.connection_pool.connection_kwargs
    )
    plain.close()
    client = redis.Redis(connection_pool=pool)
    return ModelStore(client, Barrier(client, required=True))


def data_of(n: int, p: int) -> Data:
    rng = np.random.default_rng(2)
    X = rng.standard_normal((n, p))
    y = X @ rng.standard_normal((p, 1)) + rng.standard_normal((n, 1))
    return Data("plain", "linear", X, y, np.ones(n), 1.0, True, np.arange(0))


def labelled(n: int, p: int) -> Data:
    plain = data_of(n, p)
    labels = (plain.y > 0).astype(np.float64)
    return Data("plain", "logistic", plain.X, labels, plain.weight, 1.0, True, plain.deleted)


@pytest.fixture
def measure(memory: Platform) -> Iterator[Callable[[str, Data, str], Traffic]]:
    stores: list[ModelStore] = []

    def of(name: str, data: Data, method: str) -> Traffic:
        memory.register(name, data, method=method, budget=1e6, over_budget=OverBudget.PUBLISH)
        traffic = Traffic()
        store = counting_store(memory.url, traffic)
        stores.append(store)
        worker = memory.deletion_worker(store)
        memory.send_index(name, *range(ROWS))
        memory.drain(worker)
        traffic.sent = traffic.read = 0
        for batch in range(1, 1 + BATCHES):
            # the last rows of the file, so that no smaller n can run out of them
            first = len(data.X) - ROWS * batch
            memory.send_index(name, *range(first, first + ROWS))
            memory.turn(worker)
        counted = Traffic(traffic.sent // BATCHES, traffic.read // BATCHES)
        assert memory.load(name).meta.rows_deleted == ROWS * (1 + BATCHES)
        memory.drain(worker)
        worker.close()
        memory._workers.remove(worker)
        return counted

    yield of
    for store in stores:
        store.close()


@dataclass
class Calls:
    """Round trips to the store and flushes of the log."""

    trips: int = 0
    flushes: int = 0
    topics: list[set[str]] = field(default_factory=list)


def counting_calls(store: ModelStore, calls: Calls) -> None:
    """Count round trips of a store: what is sent and answered at once is one."""
    client: Any = store.client
    plain, pipeline = client.execute_command, client.pipeline

    def execute(*arguments: Any, **options: Any) -> Any:
        calls.trips += 1
        return plain(*arguments, **options)

    def counted_pipeline(*arguments: Any, **options: Any) -> Any:
        made = pipeline(*arguments, **options)
        run = made.execute

        def execute_all(*more: Any, **named: Any) -> Any:
            calls.trips += 1
            return run(*more, **named)

        made.execute = execute_all
        return made

    client.execute_command, client.pipeline = execute, counted_pipeline


@pytest.mark.parametrize("models", [1, 20])
@pytest.mark.parametrize("by_subject", [False, True])
def test_a_warm_poll_takes_three_round_trips_and_two_flushes_whatever_the_number_of_models(
    memory: Platform, monkeypatch: pytest.MonkeyPatch, models: int, by_subject: bool
) -> None:
    """One to load (another one for subjects), one to apply and note; appended once, published once.

    Each is counted: a pipeline as one, and what goes beside them would be one more.
    """
    names = [f"model-{number}" for number in range(models)]
    for name in names:
        memory.register(name, data_of(60, 4), budget=1e6)
    store, calls = store_at(memory.url), Calls()
    worker = memory.deletion_worker(store)

    def ask(row: int) -> None:
        for name in names:
            if by_subject:
                body = {"request_id": f"{row}", "model_id": name, "subject_id": f"subject-{row}"}
                memory.send_raw(json.dumps(body).encode(), name.encode())
            else:
                memory.send_index(name, row)

    ask(0)
    memory.drain(worker)
    for row in (1, 2):  # the second poll notes what the first has published
        ask(row)
        assert worker.run_once(0.1) == models
    monkeypatch.setattr(worker._lag, "measure_if_due", lambda *_: False)
    monkeypatch.setattr(worker._housekeeper, "run_due", lambda: None)
    assert isinstance(memory.log, MemoryLog)

    def sent(moment: HookCall) -> None:
        if moment.call == "publish" and moment.stage == "before" and moment.messages:
            calls.flushes += 1
            calls.topics.append({message.topic for message in moment.messages})

    ask(3)
    counting_calls(store, calls)
    memory.log.hook = sent
    assert worker.run_once(0.1) == models
    memory.log.hook = lambda _: None
    assert calls.trips == (3 if by_subject else 2)
    assert calls.topics[0] == {topics.COMMITS}
    assert topics.COMMITS not in calls.topics[1]
    assert calls.flushes == 2
    memory.drain(worker)
    for name in names:
        assert len(memory.finals(name)) == 4
    store.close()


@pytest.mark.parametrize("make", [data_of, labelled])
def test_bytes_per_batch_do_not_grow_with_n(
    measure: Callable[[str, Data, str], Traffic], make: Callable[[int, int], Data]
) -> None:
    few, many = measure("few", make(500, 40), "pru"), measure("many", make(5_000, 40), "pru")
    # The same but for the digits of counts and ids, and theta's decimals
    assert many.sent == pytest.approx(few.sent, rel=0.03)
    assert many.read == pytest.approx(few.read, rel=0.03)


@pytest.mark.parametrize("method", ["pru", "exact"])
def test_bytes_per_batch_grow_linearly_with_d(
    measure: Callable[[str, Data, str], Traffic], method: str
) -> None:
    widths = [64, 256, 1024]
    found = [measure(f"d{p}", data_of(600, p), method) for p in widths]
    for kind in ("sent", "read"):
        bytes_of = [float(getattr(traffic, kind)) for traffic in found]
        first = (bytes_of[1] - bytes_of[0]) / (widths[1] - widths[0])
        second = (bytes_of[2] - bytes_of[1]) / (widths[2] - widths[1])
        assert second == pytest.approx(first, rel=0.1), (kind, bytes_of)
        # k rows of V and Q, four thetas, theta as decimals twice; k row records of x and w
        limit = 8 * (2 * ROWS + 4) + 6 * 25 if kind == "sent" else 8 * 2 * ROWS + 3 * 25
        assert second <= limit, (kind, second)


def test_loading_a_model_grows_with_d_and_not_with_n_or_d_squared(memory: Platform) -> None:
    """A takeover reads V, Q, the thetas and at most 256 sentinels; never the factor."""
    sizes = {}
    for n, p in ((500, 64), (5_000, 64), (500, 512)):
        memory.register(f"{n}-{p}", data_of(n, p), budget=1e6)
        traffic = Traffic()
        store = counting_store(memory.url, traffic)
        traffic.read = 0
        store.load_model(f"{n}-{p}")
        sizes[n, p] = traffic.read
        store.close()
    assert sizes[5_000, 64] == pytest.approx(sizes[500, 64], rel=0.03)
    record = 8 * 2 * 512 + 40
    assert sizes[500, 512] < 1.1 * SENTINELS * record
