"""Where a worker goes on in a partition of requests, and when it must not."""

from __future__ import annotations

from typing import Any

import pytest
import structlog

from lethe.consumers.log.base import Bounds, Partition
from lethe.consumers.workers.assignment import Assignment, ranges_of, start_offset
from lethe.engine.errors import LogReset

PARTITION = Partition("lethe.deletions", "topic-id", 3)


def test_without_a_watermark_reading_begins_at_the_beginning() -> None:
    assert start_offset(PARTITION, None, Bounds(17, 20)) == 17


def test_reading_goes_on_at_the_watermark_also_when_everything_before_it_is_gone() -> None:
    assert start_offset(PARTITION, 20, Bounds(20, 20)) == 20


def test_a_log_that_ends_before_the_watermark_halts() -> None:
    with pytest.raises(LogReset, match=r"lethe.deletions/3 ends at offset 5"):
        start_offset(PARTITION, 6, Bounds(0, 5))


def test_records_removed_before_they_were_decided_halt_and_are_counted() -> None:
    with pytest.raises(LogReset, match="4 records were removed before they were processed"):
        start_offset(PARTITION, 6, Bounds(10, 15))


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

        def watermark(self, _: str) -> int:
            return next(ends)

        def seek(self, _: Partition, offset: int) -> None:
            self.sought = offset

    busy: Any = Busy()
    busy.cursors = busy
    Assignment(busy, busy, structlog.get_logger()).start(PARTITION)
    assert busy.sought == 10
