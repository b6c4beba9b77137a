"""Refreshes of several models at once: large ones delay no small ones, and none is lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from lethe.consumers.cli.maintain.refresh import _outdated
from lethe.consumers.contract import topics
from lethe.consumers.contract.events import RefreshRequested
from lethe.consumers.log.streams.log import StreamsLog
from lethe.consumers.refresh import queue
from lethe.consumers.refresh.job import run_job
from lethe.consumers.service.configuration.settings import LEAST_MEMORY
from lethe.consumers.service.telemetry.health import Health
from lethe.consumers.service.telemetry.metrics import Metrics
from lethe.consumers.service.telemetry.steps import Step
from lethe.consumers.workers import refresh_worker
from lethe.consumers.workers.drained import lags
from lethe.consumers.workers.leases import Lease, RefreshShown, read_leases
from lethe.consumers.workers.refresh_worker import SMALL_BYTES, RefreshWorker
from lethe.engine.errors import RefreshFailed, StoreUnavailable
from lethe.engine.refresh.size import RefreshSize
from lethe.engine.store.layout.keys import WORKERS, worker_lease
from lethe.engine.store.layout.meta import RowFiles
from lethe.engine.store.layout.state import ModelState
from tests.support.invariants import check_model
from tests.support.memory_log import MemoryConsumer, MemoryLog
from tests.support.platform import Platform
from tests.support.stores import neighbour_of
from tests.support.worker_process import WorkerProcess

SECONDS = 30.0


class Held:
    """Refreshes whose jobs are noted as they begin; those of some models wait to be let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *models: str) -> None:
        self.begun: list[str] = []
        self._models = models
        self._go = threading.Event()
        monkeypatch.setattr(refresh_worker, "run_job", self._run)

    def let_go(self) -> None:
        """Let those that wait end."""
        self._go.set()

    def _run(self, store: Any, event: RefreshRequested, **named: Any) -> object:
        self.begun.append(event.model_id)
        if event.model_id in self._models:
            assert self._go.wait(SECONDS)
        return run_job(store, event, **named)


@contextmanager
def large(monkeypatch: pytest.MonkeyPatch, *models: str) -> Iterator[None]:
    """Let jobs of some models need more than a small one may."""

    def memory(state: ModelState) -> float:
        return SMALL_BYTES * (3.0 if state.model_id in models else 0.5)

    with monkeypatch.context() as patched:
        patched.setattr(queue, "memory_of", memory)
        yield


def lanes(platform: Platform, **options: Any) -> RefreshWorker:
    """Return a worker as `lethe work` has it."""
    stores = [platform.new_store(), platform.new_store()]
    return platform.refresh_worker(computing=None, lanes=stores, **options)


def until(true: Callable[[], bool], *workers: Any) -> None:
    """Let workers take turns until something is true."""
    deadline = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < deadline
        for worker in workers:
            worker.run_once(0.01)


def waiting(platform: Platform) -> int:
    return sum(lag.waiting for lag in lags(platform.reader, platform.store, topics.REFRESH_JOBS))


def refreshed(platform: Platform, model: str) -> list[RefreshSize]:
    return [v.refresh.size for v in platform.versions(model) if v.refresh is not None]


def test_a_long_rebuild_delays_neither_a_polish_nor_a_deletion(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = neighbour_of("m")  # in the same partition
    for model in ("m", other):
        platform.register(model, "benign", "logistic", budget=10.0)
    held = Held(monkeypatch, "m")
    worker = platform.deletion_worker()
    with large(monkeypatch, "m"):
        refresher = lanes(platform)
        platform.order("m", RefreshSize.REBUILD)
        until(lambda: held.begun == ["m"], worker, refresher)
        platform.order(other, RefreshSize.POLISH)
        request = platform.send_index("m", 1)
        until(lambda: refreshed(platform, other) != [], worker, refresher)
        assert platform.final(request).status == "APPLIED"
        assert refreshed(platform, "m") == []
        assert waiting(platform) == 2, "the watermark stays below the one that runs"
        refresher.recover()  # reads both again: one runs, the other is done
        for _ in range(5):
            refresher.run_once(0.01)
        held.let_go()
        until(lambda: worker.idle() and refresher.idle(), worker, refresher)
    assert held.begun == ["m", other]
    assert waiting(platform) == 0
    assert refreshed(platform, "m") == [RefreshSize.REBUILD]
    for model in ("m", other):
        check_model(platform, model)


@pytest.mark.parametrize("away", ["store", "partition"])
def test_the_watermark_of_a_finished_job_is_stored_later_if_it_cannot_be_at_once(
    memory: Platform, monkeypatch: pytest.MonkeyPatch, away: str
) -> None:
    assert isinstance(memory.log, MemoryLog)
    memory.register("m", budget=10.0)
    held = Held(monkeypatch, "m")
    worker, refresher = memory.deletion_worker(), lanes(memory)
    memory.order("m", RefreshSize.POLISH)
    until(lambda: held.begun == ["m"], refresher)
    if away == "store":
        moves = refresher._store.cursors.set_watermarks
        fails = [StoreUnavailable("a primary is away")]

        def moves_once_it_is_back(watermarks: Any) -> None:
            if fails:
                raise fails.pop()
            moves(watermarks)

        monkeypatch.setattr(refresher._store.cursors, "set_watermarks", moves_once_it_is_back)
        held.let_go()
        with pytest.raises(StoreUnavailable):
            until(refresher.idle, worker, refresher)
        refresher.recover()
    else:
        assert isinstance(refresher._consumer, MemoryConsumer)
        memory.log.evict(refresher._consumer)
        refresher._drop_lost()
        held.let_go()
        until(lambda: refresher._process([]) > 0)  # it ends while nobody has the partition
    until(lambda: worker.idle() and refresher.idle(), worker, refresher)
    assert waiting(memory) == 0
    assert held.begun == ["m"]


def test_of_large_jobs_one_runs_at_a_time(
    memory: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    for model in ("m", "n", "small"):
        memory.register(model, budget=10.0)
    held, metrics, minutes = Held(monkeypatch, "m", "n", "small"), Metrics(), [0]
    health = Health(lambda: 60.0 * minutes[0])
    with large(monkeypatch, "m", "n"):
        refresher = lanes(memory, metrics=metrics, health=health, role="refresh")
        for model in ("m", "n", "small", "small"):
            memory.order(model, RefreshSize.REBUILD)
        until(lambda: len(held.begun) == 2, refresher)
        for _ in range(10):
            minutes[0] += 1
            refresher.run_once(0.01)
        assert health.live()[0], "a job that takes minutes is no stall, and nor are those behind it"
        assert sorted(held.begun) == ["m", "small"]
        measured = metrics.registry.get_sample_value
        assert measured("lethe_refresh_jobs", {"state": "running"}) == 2
        assert measured("lethe_refresh_jobs", {"state": "waiting"}) == 2
        assert measured("lethe_refresh_memory_bytes") == 3.5 * SMALL_BYTES
        [lease] = read_leases(memory.store)
        shown = [(one.model_id, one.running) for one in lease.refreshes]
        assert sorted(shown[:2]) == [("m", True), ("small", True)]
        assert sorted(shown[2:]) == [("n", False), ("small", False)]
        assert " MB (ordered)" in lease.refreshes[0].line
        held.let_go()
        until(refresher.idle, refresher)
    assert sorted(held.begun) == ["m", "n", "small", "small"]


def test_of_one_model_one_job_runs_at_a_time(
    memory: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.register("m", budget=10.0)
    held, refresher = Held(monkeypatch, "m"), lanes(memory)
    for _ in range(2):
        memory.order("m", RefreshSize.POLISH)
    until(lambda: held.begun == ["m"], refresher)
    for _ in range(10):
        refresher.run_once(0.01)
    assert held.begun == ["m"]
    held.let_go()
    until(refresher.idle, refresher)
    assert held.begun == ["m", "m"]


def test_rows_in_files_need_a_block_and_are_still_no_small_job(memory: Platform) -> None:
    memory.register("m", budget=10.0)
    state = memory.load()
    many = {"rows_live": 10**9, "row_files": RowFiles.model_construct()}
    needed = queue.memory_of(replace(state, meta=state.meta.model_copy(update=many)))
    assert SMALL_BYTES < needed < LEAST_MEMORY - SMALL_BYTES


def test_a_model_with_many_jobs_lets_others_pass(
    memory: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = neighbour_of("m")
    for model in ("m", other):
        memory.register(model, budget=10.0)
    held = Held(monkeypatch)
    for model in ("m", "m", "m", other):
        memory.order(model, RefreshSize.POLISH)
    memory.drain()
    assert held.begun == ["m", other, "m", "m"]


def test_a_job_beyond_the_memory_fails_with_a_line_and_others_are_done(memory: Platform) -> None:
    for model in ("m", "other"):
        memory.register(model, budget=10.0)
    needed = queue.memory_of(memory.load())
    tight = memory.refresh_worker(memory=needed - 1)
    order, worker = memory.order("m", RefreshSize.REBUILD), memory.deletion_worker()
    memory.drain(worker, tight)
    with pytest.raises(RefreshFailed, match=r"needs about 0 MB, and LETHE_REFRESH_MEMORY leaves"):
        _outdated(memory.store, order)
    tight.close()
    memory.order("m", RefreshSize.REBUILD)
    memory.drain(worker, memory.refresh_worker(memory=needed))
    assert refreshed(memory, "m") == [RefreshSize.REBUILD]


@pytest.mark.parametrize(
    "step", [one for one in Step if one.startswith("refresh_") and one is not Step.REFRESH_SWAP]
)
def test_a_job_that_a_server_breaks_off_at_any_step_is_done(memory: Platform, step: Step) -> None:
    """After the last step, it counted as running for ever, and its model was never refreshed."""
    memory.register("m", budget=10.0)
    broken = iter([StoreUnavailable("the connection broke")])

    def break_off(reached: str) -> None:
        if reached == step:
            for error in broken:
                raise error

    worker, refresher = memory.deletion_worker(), memory.refresh_worker(at_step=break_off)
    memory.order("m", RefreshSize.REBUILD)
    with pytest.raises(StoreUnavailable):
        until(lambda: False, refresher)
    refresher.recover()
    until(lambda: waiting(memory) == 0 and refreshed(memory, "m") != [], worker, refresher)
    assert refreshed(memory, "m") == [RefreshSize.REBUILD]


def test_a_model_whose_refresh_another_worker_does_is_put_off(
    memory: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Partitions move while a job runs: its new owner would do the same once more."""
    monkeypatch.setattr(refresh_worker, "_ELSEWHERE_SECONDS", 0.0)
    memory.register("m", budget=10.0)
    held, refresher = Held(monkeypatch), memory.refresh_worker(role="refresh")
    order, now = memory.order("m", RefreshSize.REBUILD), datetime.now(UTC)
    runs = RefreshShown(
        model_id="m", job_id=order.job_id, reason="ordered", running=True, bytes=1.0, since=now
    )
    lease = Lease(role="refresh", host="another", pid=1, version="1", since=now, refreshes=(runs,))
    memory.raw().sadd(WORKERS, "another")
    memory.raw().set(worker_lease("another"), lease.model_dump_json())
    for _ in range(5):
        refresher.run_once(0.0)
    assert held.begun == []
    memory.raw().delete(worker_lease("another"))
    memory.drain(memory.deletion_worker(), refresher)
    assert held.begun == ["m"]


def test_a_topic_of_one_partition_is_used_and_grows_and_loses_no_job(
    platform_on: Callable[..., Platform],
) -> None:
    platform = platform_on("streams", 1)
    models = [f"m{number}" for number in range(6)]
    for model in models:
        platform.register(model, budget=10.0)
        platform.order(model, RefreshSize.REBUILD)
    worker, refresher = platform.pair
    refresher.run_once(0.0)
    assert isinstance(platform.log, StreamsLog)
    platform.log.ensure_topics(topics.specs(4))
    assert len(platform.reader.partitions(topics.REFRESH_JOBS)) == 4
    assert len(platform.reader.partitions(topics.DELETIONS)) == 1, "others are left unchanged"
    for model in models:
        platform.order(model, RefreshSize.COMPACT)
    platform.drain(worker, refresher)
    until(lambda: waiting(platform) == 0, worker, refresher)
    for model in models:
        assert RefreshSize.REBUILD in refreshed(platform, model)
        check_model(platform, model)


def test_two_workers_share_the_jobs_and_one_takes_those_of_one_that_was_killed(
    platform_on: Callable[..., Platform], names: str
) -> None:
    platform = platform_on("streams", 4)
    models = [f"m{number}" for number in range(8)]
    for model in models:
        platform.register(model, "benign", "logistic", budget=10.0)
    first = WorkerProcess(platform, names, [(Step.REFRESH_STAGE, 1)], roles="refresh")
    second = WorkerProcess(platform, names, roles="refresh")
    try:
        group = f"lethe:log:{{{topics.REFRESH_JOBS}}}:members:{refresh_worker.GROUP}"
        second.wait_until(lambda: platform.raw().zcard(group) == 2)
        time.sleep(1.0)  # each has its half of the partitions
        for model in models:
            platform.order(model, RefreshSize.REBUILD)
        worker = platform.deletion_worker()

        def done() -> bool:
            with suppress(TimeoutError):
                platform.turn(worker)
            return all(refreshed(platform, model) for model in models)

        second.wait_until(done)
        first.check()
        platform.drain(worker)
    finally:
        second.stop()
    assert waiting(platform) == 0
    for model in models:
        assert refreshed(platform, model) == [RefreshSize.REBUILD]
        check_model(platform, model)


def test_a_partition_that_is_added_brings_its_jobs(memory: Platform) -> None:
    memory.register("m", budget=10.0)
    worker, refresher = memory.pair
    memory.refresh("m", RefreshSize.REBUILD)
    assert isinstance(memory.log, MemoryLog)
    memory.log.add_partitions(topics.REFRESH_JOBS, 5)
    memory.refresh("m", RefreshSize.REBUILD)
    assert refreshed(memory, "m") == [RefreshSize.REBUILD] * 2
    memory.drain(worker, refresher)
