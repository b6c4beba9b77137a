"""Batching: requests wait so that one version leaves out several rows.

Two successive versions of a linear model reveal the row that was deleted between them; with k rows
between them, they reveal a combination of k rows. A worker started with `lethe work --min-batch`
therefore holds back a model's requests until enough rows are waiting, or the oldest request has
waited long enough.

Requests that wait exist in the worker's memory only and are not processed yet: the partition's
watermark stays below them, and after a crash they are read again. A record's wait starts at its
timestamp in the log, so reading it again does not prolong the wait.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from lethe.consumers.deletions.validate import Group, Refreshed, Valid, Validated
from lethe.consumers.log.base import Partition, Record

HELD_RECORDS = 20_000
HELD_BYTES = 64 << 20
"""The most a worker holds back; beyond it, the worker stops reading until a request is due."""

Place = tuple[str, Partition]


@dataclass(frozen=True, slots=True)
class Batching:
    """When requests are processed.

    Attributes
    ----------
    rows
        The fewest distinct live rows that one version leaves out; with 1, nothing waits.
    seconds
        The longest that a request waits for such a batch.
    """

    rows: int = 1
    seconds: float = 60.0

    def must_wait(self, deleted: int, since: datetime, now: datetime) -> bool:
        """Return whether a batch waits; one that deletes nothing (no version) does not."""
        return 0 < deleted < self.rows and not self.due(since, now)

    def due(self, since: datetime, now: datetime) -> bool:
        """Return whether a batch that waits since then is processed whatever its size."""
        return now - since >= timedelta(seconds=self.seconds)


@dataclass(slots=True)
class _WaitingGroup:
    """A group that waits; ``rows`` is at least the number that its first batch would delete."""

    group: Group
    rows: int
    closed: bool  # a refresh follows the first batch: nothing can join it


class BatchWindow:
    """The requests that a worker holds back. It does no I/O; one thread uses it.

    Parameters
    ----------
    batching
        When they are processed.
    """

    def __init__(self, batching: Batching) -> None:
        self._batching = batching
        self._groups: dict[Place, _WaitingGroup] = {}

    def __len__(self) -> int:
        """Return how many records wait."""
        return sum(len(waiting.group.items) for waiting in self._groups.values())

    def join(self, groups: Sequence[Group], now: datetime) -> list[Group]:
        """Add what was read, and return the groups to process now, each model's records in order.

        These are the groups of models without requests that wait, and waiting groups that may have
        enough rows or have waited long enough; the others stay.
        """
        ready = []
        for group in groups:
            for item in group.items:
                group.since[item.record.offset] = waits_since(item.record, now)
            waiting = self._groups.get((group.model_id, group.partition))
            if waiting is None:
                ready.append(group)
                continue
            waiting.group.items += group.items
            waiting.group.since |= group.since
            if not waiting.closed:
                waiting.rows += self._most_rows(group.items)
                waiting.closed = _has_refresh(group.items)
        for place, waiting in list(self._groups.items()):
            since = waiting.group.since[waiting.group.items[0].record.offset]
            if waiting.rows >= self._batching.rows or self._batching.due(since, now):
                del self._groups[place]
                ready.append(waiting.group)
        return ready

    def _most_rows(self, items: Sequence[Validated]) -> int:
        """Return how many rows these items name at most; a subject may have any number."""
        named: set[str] = set()
        for item in items:
            if isinstance(item, Refreshed):
                break
            if isinstance(item, Valid):
                if item.request.row_ids is None:
                    return self._batching.rows
                named.update(item.request.row_ids)
        return len(named)

    def keep(self, group: Group, rows: int) -> None:
        """Hold back what is left of a group, whose first batch would delete so many rows."""
        place = group.model_id, group.partition
        since = {item.record.offset: group.since[item.record.offset] for item in group.items}
        left = Group(*place, group.items, since)
        self._groups[place] = _WaitingGroup(left, rows, _has_refresh(group.items))
        group.items = []

    def drop(self, partitions: Collection[Partition]) -> None:
        """Forget the records of these partitions: they are lost, or will be read again."""
        self._groups = {
            place: waiting for place, waiting in self._groups.items() if place[1] not in partitions
        }

    def clear(self) -> None:
        """Forget everything: it will be read again."""
        self._groups.clear()

    def first(self, partition: Partition) -> int | None:
        """Return the offset of the first record of a partition that waits."""
        return min(
            (
                waiting.group.items[0].record.offset
                for place, waiting in self._groups.items()
                if place[1] == partition
            ),
            default=None,
        )

    def room(self) -> int:
        """Return how many more records may be read."""
        records = [item.record for waiting in self._groups.values() for item in waiting.group.items]
        size = sum(len(record.value or b"") for record in records)
        return 0 if size >= HELD_BYTES else max(0, HELD_RECORDS - len(records))


def waits_since(record: Record, now: datetime) -> datetime:
    """Return when a record's wait started: at its timestamp in the log, but not later than now."""
    if not 0 < record.timestamp_ms < now.timestamp() * 1000:
        return now
    return datetime.fromtimestamp(record.timestamp_ms / 1000, UTC)


def _has_refresh(items: Sequence[Validated]) -> bool:
    return any(isinstance(item, Refreshed) for item in items)
