"""Reading between two offsets: all of the records, or the error that the log does not give them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from lethe.consumers.audit.published.history import History
from lethe.consumers.audit.reading import records_of_model
from lethe.consumers.contract import topics
from lethe.consumers.log import scan as scanning
from lethe.consumers.log.base import Message, Partition, Record
from lethe.consumers.log.scan import extent_of, scan, scan_topic
from lethe.engine.errors import LogUnavailable
from tests.support.memory_log import MemoryLog, MemoryReader


class Stalling(MemoryReader):
    """Returns nothing from some offset on, although the log goes on."""

    def __init__(self, log: MemoryLog, stalls_at: int) -> None:
        super().__init__(log)
        self.stalls_at = stalls_at

    def read(
        self, partition: Partition, offset: int, timeout: float, limit: int
    ) -> tuple[Sequence[Record], int]:
        if offset >= self.stalls_at:
            return [], offset
        return super().read(partition, offset, timeout, min(limit, self.stalls_at - offset))


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> MemoryLog:
    monkeypatch.setattr(scanning, "_SECONDS", 0.02)
    log = MemoryLog()
    log.ensure_topics(topics.specs(1))
    log.producer().publish([Message(topics.RECEIPTS, b"m", b"%d" % n) for n in range(5)])
    return log


def test_a_log_that_stalls_is_unavailable_and_not_at_its_end(log: MemoryLog) -> None:
    reader = Stalling(log, 3)
    [partition] = reader.partitions(topics.RECEIPTS)
    with pytest.raises(LogUnavailable, match="ends at 5, but reading from 3 on") as caught:
        list(scan(reader, partition, 0, 5))
    assert caught.value.code == "LOG_UNAVAILABLE"
    with pytest.raises(LogUnavailable):
        list(scan_topic(reader, topics.RECEIPTS))
    assert [one.value for one in scan(reader, partition, 0, 3)] == [b"0", b"1", b"2"]


def test_an_audit_of_a_log_that_stalls_ends_with_that(log: MemoryLog) -> None:
    """It is no fault of the history, which was not read."""
    reader = Stalling(log, 3)
    extent = extent_of(reader, topics.RECEIPTS)
    with pytest.raises(LogUnavailable, match="returned nothing within"):
        History("m", None).read(records_of_model(reader, "m", extent))
