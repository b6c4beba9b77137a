"""What a worker owes the models of partitions that come, go, and cannot be worked on."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from lethe.consumers.contract import topics
from lethe.consumers.contract.events import RefreshRequested
from lethe.consumers.log.base import Message
from lethe.consumers.refresh import job as refresh_job
from lethe.consumers.workers import halts, refresh_worker
from lethe.engine.refresh.size import RefreshSize
from lethe.engine.store.layout.config import LimitsRecord
from lethe.engine.store.layout.keys import ModelKeys
from lethe.engine.store.offline.jobs import begin_attempt
from lethe.engine.store.store import ModelStore
from tests.integration.conftest import SESSION_SECONDS
from tests.support.invariants import check_model
from tests.support.memory_log import MemoryConsumer, MemoryLog
from tests.support.platform import Platform

pytestmark = pytest.mark.redis

SOON_FULL = LimitsRecord(floor_rows=1, fraction_of_d=1e-9)
"""A generation that eight rows fill: a request for ten is deferred to a rebuild."""

Dump = Mapping[bytes, bytes]


def dump(store: ModelStore, model_id: str) -> Dump:
    """Return everything that is stored of a model's commits partition."""
    client: Any = store.client
    pattern = f"lethe:{{{ModelKeys(model_id).partition.tag}}}:*"
    return {key: client.dump(key) for key in client.scan_iter(pattern)}


def restore(store: ModelStore, model_id: str, kept: Dump) -> None:
    """Put a model back to what it was, as a failover to a lagging replica does."""
    client: Any = store.client
    for key in dump(store, model_id):
        client.delete(key)
    for key, value in kept.items():
        client.restore(key, 0, value)


def damage(store: ModelStore, model_id: str) -> Dump:
    """Make a model's head unreadable; return what there was."""
    whole = dump(store, model_id)
    client: Any = store.client
    client.hset(ModelKeys(model_id).head, "meta", "{")
    return whole


def test_a_halted_model_loses_nothing_while_neighbours_and_partitions_come_and_go(
    memory: Platform,
) -> None:
    """Given a model that halts, when another worker leaves and neighbours go on, it keeps all."""
    memory.register("m")
    first, _ = memory.pair
    other = memory.deletion_worker()
    mine = _partition(memory, "m")
    neighbour = next(n for n in (f"n{i}" for i in range(50)) if _partition(memory, n) == mine)
    memory.register(neighbour)
    for worker in (first, other):
        worker.run_once(0.0)
    owner = next(w for w in (first, other) if mine in {p.index for p in w._consumer.assignment()})
    leaver = other if owner is first else first
    whole = damage(memory.store, "m")
    owner.recover()
    owner.run_once(0.0)

    waiting = memory.send_index("m", 1)
    owner.run_once(0.0)
    leaver.close()
    for _ in range(3):
        owner.run_once(0.0)
    memory.send_index(neighbour, 5)
    owner.run_once(0.0)
    assert ("m", waiting) not in {(r.model_id, r.request_id) for r in memory.receipts("m")}

    restore(memory.store, "m", whole)
    owner.recover()
    for _ in range(3):
        owner.run_once(0.0)
    assert memory.final(waiting, "m").status == "APPLIED"
    check_model(memory, "m")
    check_model(memory, neighbour)


def _partition(platform: Platform, model_id: str) -> int:
    reader = platform.log.reader()
    return reader.partition_for(topics.DELETIONS, model_id.encode()).index


def test_a_halted_model_is_looked_at_again_and_goes_on_once_it_is_repaired(
    memory: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(halts, "HALT_SECONDS", 0.0)
    memory.register("m")
    worker, _ = memory.pair
    whole = damage(memory.store, "m")
    worker.recover()
    worker.run_once(0.0)
    request = memory.send_index("m", 1)
    worker.run_once(0.0)
    assert len(memory.versions("m")) == 1

    restore(memory.store, "m", whole)
    for _ in range(3):
        worker.run_once(0.0)

    assert memory.final(request, "m").status == "APPLIED"
    check_model(memory, "m")


def test_jobs_read_ahead_are_not_lost_with_a_partition(
    memory: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a job under way, when its partition goes and comes back, later jobs are done too."""
    assert isinstance(memory.log, MemoryLog)
    log = memory.log
    models = ("a", "b", "c", "d")
    for model in models:
        memory.register(model, limits=SOON_FULL)
    worker, refresher = memory.pair
    for _ in range(2):
        worker.run_once(0.0)
        refresher.run_once(0.0)
    run_job = refresh_job.run_job
    evicted: list[bool] = []

    def slow(*args: Any, **options: Any) -> Any:
        if not evicted:
            evicted.append(True)
            assert isinstance(refresher._consumer, MemoryConsumer)
            log.evict(refresher._consumer)
            time.sleep(0.3)
        return run_job(*args, **options)

    monkeypatch.setattr(refresh_worker, "run_job", slow)
    requests = [memory.send_index(model, *range(10)) for model in models]
    memory.drain()

    assert evicted
    for model, request in zip(models, requests, strict=True):
        assert memory.final(request, model).status == "APPLIED"
        check_model(memory, model)


def test_refresh_jobs_that_the_log_has_removed_do_not_stop_the_worker(memory: Platform) -> None:
    assert isinstance(memory.log, MemoryLog)
    memory.register("m", limits=SOON_FULL)
    worker, first = memory.pair
    first.run_once(0.0)
    memory.send_index("m", *range(10))
    for _ in range(3):
        worker.run_once(0.0)
    jobs = memory.reader.partition_for(topics.REFRESH_JOBS, b"m")
    memory.store.cursors.set_watermarks({str(jobs): 0})
    memory.log.trim(jobs, 1)
    first.close()
    memory.register("later", limits=SOON_FULL)
    second = memory.refresh_worker()

    request = memory.send_index("later", *range(10))
    memory.drain(worker, second)

    assert memory.final(request, "later").status == "APPLIED"


def test_a_job_that_ends_its_worker_again_and_again_is_given_up(memory: Platform) -> None:
    """Given a job whose attempts never end in good order, the fourth worker does not try."""
    memory.register("m")
    memory.register("other", limits=SOON_FULL)
    event = memory.ordered("m", None)
    for _ in range(3):
        begin_attempt(memory.store.client, "m", event.job_id)
    memory.producer.publish([_order(event)])
    request = memory.send_index("other", *range(10))

    memory.drain()

    assert memory.load("m").version == 0
    assert memory.final(request, "other").status == "APPLIED"


def test_a_job_that_is_read_again_and_again_is_not_taken_for_a_failure(memory: Platform) -> None:
    """A log that is read again (the store went back) has orders of generations that are gone."""
    memory.register("m")
    event = memory.ordered("m", None)
    memory.refresh("m", RefreshSize.REBUILD)
    assert memory.load("m").meta.generation == 1
    memory.producer.publish([_order(event)] * 5)
    memory.drain()
    assert memory.raw().hgetall(ModelKeys("m").job(event.job_id)).get(b"failure") is None


def _order(event: RefreshRequested) -> Message:
    return Message(topics.REFRESH_JOBS, event.model_id.encode(), event.value())


def test_a_batch_of_models_that_are_slow_to_load_costs_no_lease(
    platform_on: Callable[..., Platform], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given models that together take longer to read than a silent member keeps its partitions."""
    platform = platform_on("streams")
    names = [f"m{number}" for number in range(8)]
    for name in names:
        platform.register(name)
        platform.send_index(name, 0)
    worker = platform.deletion_worker()
    load_as_of, resume, resumed = worker._store.load_as_of, worker._resume, list[float]()

    def slowly(model_id: str) -> Any:
        time.sleep(0.4 * SESSION_SECONDS)
        return load_as_of(model_id)

    def note() -> None:
        resumed.append(time.monotonic())
        resume()

    monkeypatch.setattr(worker._store, "load_as_of", slowly)
    monkeypatch.setattr(worker, "_resume", note)
    platform.drain(worker)
    assert len(resumed) == 1, "its partitions were lost, and taken over again"
    for name in names:
        check_model(platform, name)
