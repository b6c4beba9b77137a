"""Whether a partition still has what was read of it, while others read and remove records."""

from __future__ import annotations

from typing import Any, cast

import pytest

from lethe.consumers.log.base import Bounds, Partition, PartitionReset, Reader
from lethe.consumers.log.kept import Kept, check_kept

PARTITION = Partition("lethe.deletions", "id", 0)


class Removed:
    """A log that has a record when its bounds are asked for, and no more when it is read."""

    def __init__(self, reset: PartitionReset) -> None:
        self._reset = reset

    def bounds(self, _: Partition) -> Bounds:
        return Bounds(0, 4)

    def read(self, *_: Any) -> Any:
        raise self._reset


def check(now: Bounds | None, *, truncated: bool = False) -> None:
    reset = PartitionReset(PARTITION, 2, now, truncated=truncated)
    reader = cast("Reader", Removed(reset))
    check_kept(reader, Kept(PARTITION, 3, "digest"), 4, "what to do")


def test_a_record_that_is_removed_between_two_looks_is_not_lost() -> None:
    check(Bounds(3, 4))
    check(Bounds(4, 9))


@pytest.mark.parametrize(
    ("now", "truncated"), [(None, False), (Bounds(3, 4), True), (Bounds(0, 2), False)]
)
def test_a_log_that_is_another_or_has_lost_its_end_is(now: Bounds | None, truncated: bool) -> None:
    with pytest.raises(PartitionReset):
        check(now, truncated=truncated)
