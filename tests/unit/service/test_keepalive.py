"""Being heard of while something long is read."""

from __future__ import annotations

from typing import NoReturn

import pytest

from lethe.consumers.contract import topics
from lethe.consumers.log.base import PartitionReset
from lethe.consumers.service import keepalive
from lethe.consumers.service.keepalive import Keepalive
from lethe.consumers.service.telemetry.health import Health
from tests.support.memory_log import MemoryLog


def test_what_the_consumer_finds_out_is_no_fault_of_what_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Given requests whose position is lost while commits are read: it is said afterwards."""
    log = MemoryLog()
    log.ensure_topics(topics.specs(1))
    consumer = log.consumer("deletions", [topics.DELETIONS])
    attendance = Keepalive(consumer, Health())
    [requests] = log.reader().partitions(topics.DELETIONS)
    attendance.check()

    def poll(_seconds: float, _limit: int) -> NoReturn:
        raise PartitionReset(requests, 7, None)

    monkeypatch.setattr(consumer, "poll", poll)
    attendance()
    with pytest.raises(PartitionReset):
        attendance.check()


def test_what_is_called_often_is_heard_of_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    log, polls = MemoryLog(), list[int]()
    log.ensure_topics(topics.specs(1))
    consumer = log.consumer("deletions", [topics.DELETIONS])
    attendance = Keepalive(consumer, Health())
    monkeypatch.setattr(consumer, "poll", lambda _seconds, limit: polls.append(limit))
    for _ in range(100):
        attendance.now_and_then()
    assert polls == []
    monkeypatch.setattr(keepalive, "_PERIOD_SECONDS", 0.0)
    attendance.now_and_then()
    assert polls == [0]
