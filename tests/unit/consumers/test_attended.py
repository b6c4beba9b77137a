"""Being heard of while something long is read."""

from __future__ import annotations

from typing import NoReturn

import pytest

from consumers import topics
from consumers.attended import Attendance, AttendedReader
from consumers.health import Health
from consumers.log.base import Message
from consumers.log.memory import MemoryLog
from consumers.log.reset import PartitionReset


def test_what_the_consumer_finds_out_is_no_fault_of_what_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Given requests whose position is lost while versions are read."""
    log = MemoryLog()
    log.ensure_topics(topics.specs(1))
    log.producer().publish([Message(topics.VERSIONS, b"m", b"a version")])
    consumer = log.consumer("deletions", [topics.DELETIONS])
    attendance = Attendance(consumer, Health())
    reader = AttendedReader(log.reader(), attendance)
    [requests], [versions] = map(reader.partitions, (topics.DELETIONS, topics.VERSIONS))
    attendance.check()

    def poll(_seconds: float, _limit: int) -> NoReturn:
        raise PartitionReset(requests, 7, None)

    monkeypatch.setattr(consumer, "poll", poll)
    records, _ = reader.read(versions, 0, 0.0, 10)
    assert [record.value for record in records] == [b"a version"]
    with pytest.raises(PartitionReset):
        attendance.check()
