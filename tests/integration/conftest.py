"""Platforms on every log, with a real store."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import redis

from lethe.consumers.log.base import Log
from lethe.consumers.log.streams.log import StreamsLog
from lethe.consumers.workers import refresh_worker
from tests.support.kafka_log import kafka_log
from tests.support.memory_log import MemoryLog
from tests.support.names import use_prefix
from tests.support.platform import Platform
from tests.support.waiting import Clock

KAFKA = pytest.param("kafka", marks=[pytest.mark.kafka, pytest.mark.xdist_group("kafka")])
SESSION_SECONDS = 1.5


@pytest.fixture
def quick_refresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refresh worker that looks often whether its job is done: tests make many small ones."""
    monkeypatch.setattr(refresh_worker, "_BUSY_POLL_SECONDS", 0.01)


@pytest.fixture
def clock() -> Clock:
    """The workers' clock, for a test to move."""
    return Clock()


def log_of(kind: str, url: str, bootstrap: str = "") -> Log:
    """Return a log of this kind."""
    if kind == "memory":
        return MemoryLog()
    if kind == "streams":
        with redis.Redis.from_url(url) as client:
            return StreamsLog(client, lease_seconds=SESSION_SECONDS)
    return kafka_log(bootstrap, session_seconds=SESSION_SECONDS)


@pytest.fixture
def names(topic_prefix: str) -> Iterator[str]:
    """Topic names of this test's own; returns the prefix."""
    use_prefix(topic_prefix)
    yield topic_prefix
    use_prefix("")


@pytest.fixture
def platform_on(
    request: pytest.FixtureRequest,
    redis_url: str,
    redis_client: redis.Redis,
    names: str,
    quick_refresh: None,
) -> Iterator[Callable[..., Platform]]:
    """Make platforms of a kind; they end with the test."""
    del redis_client, names, quick_refresh
    made: list[Platform] = []

    def make(kind: str, partitions: int = 2) -> Platform:
        bootstrap = request.getfixturevalue("kafka_bootstrap") if kind == "kafka" else ""
        log = log_of(kind, redis_url, bootstrap)
        platform = Platform(log, redis_url, partitions, bootstrap)
        made.append(platform)
        return platform

    yield make
    for platform in made:
        platform.close()


@pytest.fixture(params=["memory", "streams", KAFKA])
def platform(request: pytest.FixtureRequest, platform_on: Callable[..., Platform]) -> Platform:
    """A platform on each log in turn."""
    return platform_on(request.param)


@pytest.fixture
def memory(platform_on: Callable[..., Platform]) -> Platform:
    """A platform on the log in memory, for what does not depend on the log."""
    return platform_on("memory")
