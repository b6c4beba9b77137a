"""Deferred requests whose rebuild fails: everybody who looks is told, and another is ordered."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import cast

import pytest

from consumers import refresh_job
from consumers.checks import check_model as check_stored
from consumers.cli import work
from consumers.cli.refresh import _due
from consumers.cli.status import _document
from consumers.drained import Drained
from consumers.health import Health
from consumers.log.base import Message
from consumers.runtime import Runtime
from consumers.transition import job_entry
from engine.errors import NotConverged, RefreshFailed
from engine.policy import Size
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
