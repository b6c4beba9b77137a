"""What a takeover reads of a topic, it reads whole or not at all."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from consumers import topics
from consumers.log.base import Message, Partition, Record
from consumers.log.memory import MemoryLog, MemoryReader
from consumers.newest import records_of
from engine.errors import LogReset, LogUnavailable


class Stalling(MemoryReader):
    """Gives two records a read, and after the fourth one none: as a broker that stands still."""

    def read(
        self, partition: Partition, offset: int, timeout: float, limit: int
    ) -> tuple[Sequence[Record], int]:
        if offset >= 4:
            return (), offset
        return super().read(partition, offset, timeout, min(limit, 2))


def log_of(count: int) -> tuple[MemoryLog, Partition]:
    log = MemoryLog()
    log.ensure_topics(topics.specs(1))
    log.producer().publish([Message(topics.RECEIPTS, b"m", b"%d" % i, ()) for i in range(count)])
    return log, log.reader().partitions(topics.RECEIPTS)[0]


def test_all_records_of_a_range_are_read() -> None:
    log, partition = log_of(6)
    read = [record.value for record in records_of(log.reader(), partition, range(1, 5))]
    assert read == [b"1", b"2", b"3", b"4"]
    assert list(records_of(log.reader(), partition, range(6, 6))) == []


def test_records_that_do_not_come_are_not_taken_for_absent() -> None:
    log, partition = log_of(6)
    assert len(list(records_of(Stalling(log), partition, range(4)))) == 4
    with pytest.raises(LogUnavailable, match="has records from offset 4 on, and none came"):
        list(records_of(Stalling(log), partition, range(6)))


def test_a_topic_that_has_lost_its_end_is_said() -> None:
    log, partition = log_of(6)
    with pytest.raises(LogReset):
        list(records_of(log.reader(), partition, range(8, 9)))
