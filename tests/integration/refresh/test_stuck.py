"""Deferred requests whose rebuild fails: everybody who looks is told, and another is ordered."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lethe.consumers.audit.health.models import check_model as check_stored
from lethe.consumers.cli.maintain.refresh import _due
from lethe.consumers.cli.show.status import _document
from lethe.consumers.commits.publish import job_message
from lethe.consumers.contract.events import RefreshRequested
from lethe.consumers.log.base import Message
from lethe.consumers.refresh import job as refresh_job, new_generation, result
from lethe.consumers.refresh.job import run_job
from lethe.consumers.service.loop import TRANSIENT
from lethe.consumers.service.telemetry.steps import Step
from lethe.consumers.workers import halts, refresh_worker, supervisor
from lethe.consumers.workers.deletion_worker import BatchLimits
from lethe.consumers.workers.drained import Drained
from lethe.consumers.workers.supervisor import Supervisor
from lethe.engine.errors import (
    IllConditioned,
    LogUnavailable,
    NotConverged,
    NotDurable,
    RefreshFailed,
    StoreUnavailable,
)
from lethe.engine.refresh.size import RefreshSize
from lethe.engine.store.layout.keys import ModelKeys
from lethe.engine.store.offline.jobs import write_result
from tests.support.invariants import check_model
from tests.support.memory_log import MemoryConsumer
from tests.support.platform import LogKind, Platform
from tests.support.stores import contents, neighbour_of
from tests.support.waiting import CROWDED


def failing(*_: object, **__: object) -> None:
    raise NotConverged("the fit ends nowhere")


def ill_conditioned(*_: object, **__: object) -> None:
    raise IllConditioned("its inverse is not known well enough")


@pytest.fixture
def stuck(memory: Platform, monkeypatch: pytest.MonkeyPatch) -> str:
    """Defer a request and let its rebuild fail; return its id."""
    memory.register("m", "benign", "linear", budget=10.0, limits=CROWDED)
    with monkeypatch.context() as broken:
        broken.setattr(refresh_job, "rebuild", failing)
        request = memory.delete("m", *range(20))
    state = memory.load()
    assert (list(state.deferred), state.meta.pending_job) == ([request], None)
    return request


def drained(platform: Platform) -> str:
    with closing(Drained(platform.log.reader(), platform.store)) as looking:
        return looking.refreshes()


@pytest.mark.usefixtures("stuck")
def test_who_looks_is_told(memory: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "1 requests are deferred and no rebuild is pending" in drained(memory)
    failed = [one for one in check_stored(memory.store, memory.log, "m") if not one.ok]
    assert [one.subject for one in failed] == ["model m, deferred requests"]
    assert "lethe refresh --due" in failed[0].detail
    assert "no rebuild is pending" in _document(memory.load())["stuck"]
    monkeypatch.setattr(supervisor, "_PATIENCE_SECONDS", 0.3)
    supervising = Supervisor(["deletions", "refresh"])
    with (
        closing(Drained(memory.log.reader(), memory.store)) as looking,
        pytest.raises(RefreshFailed, match="no rebuild is pending"),
    ):
        supervising.wait_until_idle(looking)


def test_what_is_due_is_ordered_and_resolves_it(memory: Platform, stuck: str) -> None:
    job = _due(memory.load(), RefreshSize.REBUILD, datetime.now(UTC))
    assert job is not None
    assert job.reason == "deferred"
    memory.producer.publish([job_message(job, datetime.now(UTC))])
    assert memory.answer(stuck).status == "APPLIED"
    assert drained(memory) == ""
    assert _due(memory.load(), RefreshSize.REBUILD, datetime.now(UTC)) is None
    check_model(memory)


def test_what_derives_from_deleted_rows_is_due_by_age_alone(memory: Platform) -> None:
    memory.register("m", "benign", "linear", budget=10.0)
    memory.delete("m", 7)
    state, now = memory.load(), datetime.now(UTC)
    assert _due(state, RefreshSize.REBUILD, now) is None
    job = _due(state, RefreshSize.REBUILD, now + timedelta(days=31))
    assert job is not None
    assert (job.reason, job.size) == ("generation", None)
    again = _due(state, RefreshSize.REBUILD, now + timedelta(days=32))
    assert again is not None
    assert again.job_id == job.job_id, "asked again before it is done"


@pytest.mark.parametrize(
    ("size", "fails"),
    [
        (RefreshSize.POLISH, ["polish_snapshot", "rebuild"]),
        (RefreshSize.COMPACT, ["compact", "rebuild"]),
        (RefreshSize.REBUILD, ["rebuild"]),
        (RefreshSize.REBUILD, ["_caught_up"]),
    ],
)
def test_a_refresh_that_is_refused_changes_nothing(
    memory: Platform, monkeypatch: pytest.MonkeyPatch, size: RefreshSize, fails: list[str]
) -> None:
    """Not even where a smaller one is refused first, or where a generation was written already."""
    memory.register("m", "benign", "linear", budget=10.0)
    memory.delete("m", 1, 2)
    event, before, published = memory.ordered("m", size), contents(memory, "m"), memory.versions()
    for name in fails:
        module = refresh_job if hasattr(refresh_job, name) else new_generation
        monkeypatch.setattr(module, name, ill_conditioned)
    with pytest.raises(IllConditioned):
        memory.compute_refresh(event)
    assert contents(memory, "m") == before
    memory.producer.publish([job_message(event, datetime.now(UTC))])
    memory.drain()
    assert memory.versions() == published
    request = memory.delete("m", 3)
    assert memory.final(request).status == "APPLIED"
    check_model(memory)


def take_turns(memory: Platform, times: int) -> None:
    """Run both workers in turn, whatever servers do."""
    worker, refresher = memory.pair
    for _ in range(times):
        try:
            refresher.run_once(0.0)
        except TRANSIENT:
            refresher.recover()
        memory.turn(worker)


def test_a_job_that_a_server_interrupted_has_not_ended_the_worker(
    memory: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three broken connections used its attempts up: it failed, for want of memory it was said."""
    memory.register("m", "benign", "linear", budget=10.0, limits=CROWDED)
    request = memory.send_index("m", *range(20))
    memory.turn(memory.pair[0])
    broken = iter([True] * 3)

    def flaky(*given: Any, **named: Any) -> object:
        if next(broken, False):
            raise StoreUnavailable("the connection broke")
        return run_job(*given, **named)

    monkeypatch.setattr(refresh_worker, "run_job", flaky)
    take_turns(memory, 12)
    assert memory.final(request).status == "APPLIED"


def test_a_job_that_always_meets_a_broken_store_lets_others_pass_and_fails(
    memory: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was begun again and again for ever, and no other model's job ever was."""
    requests, other = dict[str, str](), neighbour_of("m")
    for name in ("m", other):
        memory.register(name, "benign", "linear", budget=10.0, limits=CROWDED)
        requests[name] = memory.send_index(name, *range(20))
        while not memory.load(name).deferred:
            memory.turn(memory.pair[0])
    begun: list[str] = []

    def too_large(store: Any, event: RefreshRequested, **named: Any) -> object:
        begun.append(event.model_id)
        if event.model_id == "m":
            raise StoreUnavailable("OOM command not allowed when used memory > 'maxmemory'")
        return run_job(store, event, **named)

    monkeypatch.setattr(refresh_worker, "run_job", too_large)
    take_turns(memory, 4)
    assert begun[:2] == ["m", other]
    assert requests[other] in memory.finals(other)
    take_turns(memory, 30)
    assert begun.count("m") == 10
    state = memory.load("m")
    assert state.meta.pending_job is None
    assert state.meta.failures is not None
    assert memory.pair[1].idle()


def test_a_log_that_breaks_in_the_midst_of_a_job_has_not_ended_the_worker(
    memory: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its polls broke while it computed, and that counted as if the job had ended the process."""
    memory.register("m", "benign", "linear", budget=10.0, limits=CROWDED)
    request = memory.send_index("m", *range(20))
    worker, refresher = memory.deletion_worker(), memory.refresh_worker(computing=None)
    memory.turn(worker)
    poll, broken = refresher._consumer.poll, iter([LogUnavailable("the connection broke")] * 4)
    begun: list[object] = []

    def breaking(timeout: float, limit: int) -> object:
        if begun:
            for error in broken:
                raise error
        return poll(timeout, limit)

    def slow(*given: Any, **named: Any) -> object:
        begun.append(given)
        time.sleep(0.1)
        return run_job(*given, **named)

    monkeypatch.setattr(refresher._consumer, "poll", breaking)
    monkeypatch.setattr(refresh_worker, "run_job", slow)
    for _ in range(4):
        while not begun:
            refresher.run_once(0.0)
        with pytest.raises(LogUnavailable):
            refresher.run_once(0.0)
        refresher.recover()
    memory.drain(worker, refresher)
    assert len(begun) == 1
    assert memory.final(request).status == "APPLIED"


def generations(memory: Platform) -> set[bytes]:
    """Return the names of the generations that the store holds any key of."""
    names: Any = memory.raw().keys("lethe:{*}:m:gen:*")
    return {name.split(b":")[4] for name in names}


def test_a_generation_that_cannot_be_staged_leaves_nothing_in_the_store(memory: Platform) -> None:
    """A store that was full stayed so: each attempt left its part there for six hours."""
    memory.register("m", "benign", "linear", budget=10.0)
    event, before = memory.ordered("m", RefreshSize.REBUILD), generations(memory)
    staged = []

    def full(step: str) -> None:
        if step == Step.REFRESH_STAGE:
            staged.append(generations(memory) - before)
            raise StoreUnavailable("OOM command not allowed when used memory > 'maxmemory'")

    with pytest.raises(StoreUnavailable, match="OOM"):
        run_job(memory.store, event, now=datetime.now(UTC), at_step=full)
    assert [len(names) for names in staged] == [1]
    assert generations(memory) == before


def test_a_generation_whose_result_may_have_arrived_is_left_in_the_store(
    memory: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another worker may tell of the result, and the deletion worker make the generation live."""
    memory.register("m", "benign", "linear", budget=10.0)
    event, before = memory.ordered("m", RefreshSize.REBUILD), generations(memory)

    def answer_lost(*given: Any) -> None:
        write_result(*given)
        memory.tell_refreshed(event)
        memory.turn(memory.pair[0])
        raise StoreUnavailable("the connection broke")

    monkeypatch.setattr(result, "write_result", answer_lost)
    with pytest.raises(StoreUnavailable):
        memory.compute_refresh(event)
    memory.drain(memory.pair[0], None)
    assert [version.version for version in memory.versions()] == [0, 1]
    assert generations(memory).isdisjoint(before)
    check_model(memory)


@pytest.mark.parametrize("kind", ["memory", "streams"])
def test_a_halted_model_does_not_stop_its_neighbours(
    platform_on: Callable[..., Platform], monkeypatch: pytest.MonkeyPatch, kind: LogKind
) -> None:
    """Its first request holds the watermark down: what lies behind it is read again and again.

    A poll gives fewer records than it may, although many wait: of several partitions, and as
    Kafka's do at the end of what was fetched.
    """
    monkeypatch.setattr(halts, "HALT_SECONDS", 0.05)
    poll = MemoryConsumer.poll
    few = lambda self, wait, limit: poll(self, wait, min(limit, 1))  # noqa: E731
    monkeypatch.setattr(MemoryConsumer, "poll", few)
    platform = platform_on(kind, 2)
    other = neighbour_of("m")
    for name in ("m", other):
        platform.register(name, budget=10.0)
    platform.drain()
    platform.raw().hset(ModelKeys("m").head, "meta", "damaged")
    platform.pair[0].close()
    worker = platform.deletion_worker(limits=BatchLimits(records=8))
    platform.send_index("m", 1)
    requests = [platform.send(other, f"stranger {number}") for number in range(200)]
    for _ in range(1000):  # more than 50 ms pass before all of them are read
        worker.run_once(0.0)
        if set(requests) <= platform.finals(other).keys():
            break
    assert "m" in worker._halts
    assert set(requests) <= platform.finals(other).keys()


def test_a_log_that_is_slow_to_sync_halts_nobody(
    memory: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each model of the batch was sent by itself, and halted after it had waited as long."""
    worker, other = memory.pair[0], neighbour_of("m")
    for name in ("m", other):
        memory.register(name, budget=10.0)
    memory.drain()
    publish, calls = worker._producer.publish, iter([NotDurable("did not sync in 10 s")] * 2)

    def slow(messages: Iterable[Message], timeout: float = 30.0) -> None:
        for error in calls:
            raise error
        publish(messages, timeout)

    monkeypatch.setattr(worker._producer, "publish", slow)
    requests = {name: memory.send_index(name, 1) for name in ("m", other)}
    for _ in range(2):  # each waits for the disk once, however many models there are
        with pytest.raises(NotDurable):
            memory.turn_until_decided(99)
        assert not len(worker._halts)
        worker.recover()
    memory.drain()
    for name, request in requests.items():
        assert request in memory.finals(name)
        check_model(memory, name)
