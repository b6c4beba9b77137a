"""Deferred requests whose rebuild fails: everybody who looks is told, and another is ordered."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from consumers import deletion_worker, refresh_job, refresh_worker, topics
from consumers.checks import check_model as check_stored
from consumers.cli import work
from consumers.cli.refresh import _due
from consumers.cli.status import _document
from consumers.deletion_worker import BatchLimits
from consumers.drained import Drained
from consumers.health import Health
from consumers.log.base import Message
from consumers.log.streams import StreamsLog
from consumers.loop import TRANSIENT
from consumers.refresh_job import run_job
from consumers.runtime import Runtime
from consumers.transition import job_entry
from engine.errors import NotConverged, RefreshFailed, StoreUnavailable
from engine.policy import Size
from tests.integration.test_worker_lost_corners import neighbour_of
from tests.integration.test_worker_takeover import fork_off
from tests.support.invariants import check_model
from tests.support.platform import Platform
from tests.support.waiting import CROWDED, OnPlatform


def failing(*_: object, **__: object) -> None:
    raise NotConverged("the fit ends nowhere")


@pytest.fixture
def stuck(memory: Platform, monkeypatch: pytest.MonkeyPatch) -> str:
    """Defer a request and let its rebuild fail; return its id."""
    memory.register("m", "benign", "linear", budget=10.0, limits=CROWDED)
    with monkeypatch.context() as broken:
        broken.setattr(refresh_job, "rebuild", failing)
        request = memory.send_index("m", *range(20))
        memory.drain()
    state = memory.load()
    assert (list(state.deferred), state.meta.pending_job) == ([request], None)
    return request


def drained(platform: Platform) -> str:
    looking = Drained(platform.log.reader(), platform.store)
    try:
        return looking.refreshes()
    finally:
        looking.close()


@pytest.mark.usefixtures("stuck")
def test_who_looks_is_told(memory: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "1 requests are deferred and no rebuild is pending" in drained(memory)
    failed = [one for one in check_stored(memory.store, memory.log, "m") if not one.ok]
    assert [one.subject for one in failed] == ["model m, deferred requests"]
    assert "lethe refresh --due" in failed[0].detail
    assert "no rebuild is pending" in _document(memory.store, memory.load())["stuck"]
    monkeypatch.setattr(work, "_PATIENCE_SECONDS", 0.3)
    crew = work._Crew({"deletions": Health(), "refresh": Health()}, impatient=True)
    with pytest.raises(RefreshFailed, match="no rebuild is pending"):
        work._wait_until_idle(cast(Runtime, OnPlatform(memory)), crew)


def test_what_is_due_is_ordered_and_resolves_it(memory: Platform, stuck: str) -> None:
    job = _due(memory.load(), Size.REBUILD, datetime.now(UTC))
    assert job is not None
    assert job.reason == "deferred"
    entry = job_entry(job, datetime.now(UTC))
    memory.producer.publish([Message(entry.topic, entry.key, entry.value, entry.headers)])
    memory.drain()
    assert memory.final(stuck).status == "APPLIED"
    assert drained(memory) == ""
    assert _due(memory.load(), Size.REBUILD, datetime.now(UTC)) is None
    check_model(memory)


def test_what_derives_from_deleted_rows_is_due_by_age_alone(memory: Platform) -> None:
    memory.register("m", "benign", "linear", budget=10.0)
    memory.send_index("m", 7)
    memory.drain()
    state, now = memory.load(), datetime.now(UTC)
    assert _due(state, Size.REBUILD, now) is None
    job = _due(state, Size.REBUILD, now + timedelta(days=31))
    assert job is not None
    assert (job.reason, job.size) == ("generation", None)
    again = _due(state, Size.REBUILD, now + timedelta(days=32))
    assert again is not None
    assert again.job_id == job.job_id, "asked again before it is done"


def test_a_job_that_a_server_interrupted_has_not_ended_the_worker(
    memory: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three broken connections used its attempts up: it failed, for want of memory it was said."""
    memory.register("m", "benign", "linear", budget=10.0, limits=CROWDED)
    request = memory.send_index("m", *range(20))
    worker, refresher = memory.pair
    memory.turn(worker)
    broken = iter([True] * 3)

    def flaky(*given: Any, **named: Any) -> object:
        if next(broken, False):
            raise StoreUnavailable("the connection broke")
        return run_job(*given, **named)

    monkeypatch.setattr(refresh_worker, "run_job", flaky)
    for _ in range(12):
        try:
            refresher.run_once(0.0)
        except TRANSIENT:
            refresher.recover()
        memory.turn(worker)
    assert memory.final(request).status == "APPLIED"


def test_a_halted_model_does_not_stop_its_neighbours(
    memory: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first request holds the watermark down: what lies behind it is read again and again."""
    monkeypatch.setattr(deletion_worker, "_HALT_SECONDS", 0.05)
    other = neighbour_of("m")
    for name in ("m", other):
        memory.register(name, budget=10.0)
    memory.drain()
    fork_off(memory.store, "m")
    memory.pair[0].close()
    worker = memory.deletion_worker(limits=BatchLimits(records=1))
    memory.send_index("m", 1)
    requests = [memory.send(other, f"stranger {number}") for number in range(200)]
    for _ in range(1000):  # more than 50 ms pass before all of them are read
        worker.run_once(0.0)
        if set(requests) <= memory.finals(other).keys():
            break
    assert worker._halted
    assert set(requests) <= memory.finals(other).keys()


def test_a_takeover_that_takes_longer_than_a_lease_ends(
    platform_on: Callable[..., Platform],
) -> None:
    """Given one idle model, and more versions of another than can be read within a lease."""
    platform = platform_on("streams", 1)
    for name in ("m", "other"):
        platform.register(name, budget=10.0)
    [version] = [r for r in platform.records(topics.VERSIONS) if r.key == b"other"]
    message = Message(topics.VERSIONS, b"other", version.value, version.headers)
    for _ in range(6):
        platform.producer.publish([message] * 5000, 60)
    assert isinstance(platform.log, StreamsLog)
    platform.log._lease_seconds = 0.6
    worker = platform.deletion_worker()
    request = platform.send_index("m", 1)
    for _ in range(8):
        worker.run_once(0.0)
    assert request in platform.finals("m")
