"""Where a worker goes on in a partition of requests, and when it must not."""

from __future__ import annotations

from typing import Any

import pytest
import structlog

from lethe.consumers.contract import topics
from lethe.consumers.log.base import Bounds, Message, Partition, TopicSpec
from lethe.consumers.log.kept import digest_of
from lethe.consumers.service.topic_watch import start_offset
from lethe.consumers.workers.assignment import Assignment, ranges_of
from lethe.engine.errors import LogReset
from lethe.engine.store.cursors import Mark, Watermark
from tests.support.memory_log import MemoryLog

PARTITION = Partition("lethe.deletions", "topic-id", 3)
READER: Any = None
"""For positions that have no mark: nothing is read to judge them."""


def test_without_a_watermark_reading_begins_at_the_beginning() -> None:
    assert start_offset(PARTITION, None, Bounds(17, 20), READER) == 17


def test_reading_goes_on_at_the_watermark_also_when_everything_before_it_is_gone() -> None:
    assert start_offset(PARTITION, Watermark(20), Bounds(20, 20), READER) == 20
    assert start_offset(PARTITION, Watermark(20, Mark(20, "a")), Bounds(20, 20), _at(20)) == 20


def test_a_log_that_ends_before_the_watermark_halts() -> None:
    with pytest.raises(LogReset, match=r"lethe.deletions/3 ends at offset 5"):
        start_offset(PARTITION, Watermark(6), Bounds(0, 5), READER)


def test_a_log_that_ends_before_what_was_read_halts_although_nothing_was_decided_yet() -> None:
    with pytest.raises(LogReset, match="was read up to offset 8"):
        start_offset(PARTITION, Watermark(5, Mark(8, "a")), Bounds(0, 7), READER)


def test_records_removed_before_they_were_decided_halt_and_are_counted() -> None:
    with pytest.raises(LogReset, match="4 records were removed before they were processed"):
        start_offset(PARTITION, Watermark(6), Bounds(10, 15), READER)


def test_a_log_that_lost_its_end_and_has_grown_since_halts() -> None:
    log = MemoryLog()
    log.ensure_topics([TopicSpec(topics.DELETIONS)])
    producer, reader = log.producer(), log.reader()
    [partition] = reader.partitions(topics.DELETIONS)
    producer.publish(Message(topics.DELETIONS, b"m", b"%d" % i) for i in range(4))
    record = reader.record_at(partition, 3)
    assert record is not None
    watermark = Watermark(4, Mark(4, digest_of(record)))
    assert start_offset(partition, watermark, reader.bounds(partition), reader) == 4
    log.truncate(partition, 2)
    producer.publish(Message(topics.DELETIONS, b"m", b"new %d" % i) for i in range(4))
    with pytest.raises(LogReset, match="another record lies at offset 3"):
        start_offset(partition, watermark, reader.bounds(partition), reader)


def _at(begin: int) -> Any:
    """Return a reader of a partition that is empty from an offset on."""

    class Empty:
        def bounds(self, _: Partition) -> Bounds:
            return Bounds(begin, begin)

    return Empty()


@pytest.mark.parametrize(
    ("indexes", "shown"), [([3], "3"), ([1, 0, 2], "0-2"), ([0, 1, 4, 6, 7], "0-1,4,6-7")]
)
def test_partitions_are_shown_as_ranges(indexes: list[int], shown: str) -> None:
    deletions = [Partition("lethe.deletions", "topic-id", index) for index in indexes]
    changes = Partition("lethe.row-changes", "topic-id", 0)
    assert ranges_of([changes, *deletions]) == f"lethe.deletions/{shown} lethe.row-changes/0"


def test_a_watermark_that_moves_with_the_log_meanwhile_is_no_loss() -> None:
    """The worker that had the partition processes one more record after each question."""
    ends = iter(range(10, 20))

    class Busy:
        cursors: Any

        def bounds(self, _: Partition) -> Bounds:
            return Bounds(0, next(ends))

        def marked(self, _: str) -> Watermark:
            return Watermark(next(ends))

        def seek(self, _: Partition, offset: int) -> None:
            self.sought = offset

    busy: Any = Busy()
    busy.cursors = busy
    Assignment(busy, busy, busy, structlog.get_logger(), busy).start(PARTITION)
    assert busy.sought == 10
