"""Requests that wait for company, so that one version leaves out several rows.

Two successive versions of a linear model reveal the row between them; with k rows between them
they reveal a combination of k. A worker told to (`lethe work --min-batch`) therefore holds a
model's requests back until enough rows wait, or the oldest has waited long enough.

Held requests live in the worker's memory alone and are not decided: the partition's watermark
stays below them, and after a crash they are read again. A record waits from the time that the log
gave it, so reading it again does not prolong its wait.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from lethe.consumers.deletions.grouping import Group
from lethe.consumers.deletions.validate import Refreshed, Valid, Validated
from lethe.consumers.log.base import Partition, Record

HELD_RECORDS = 20_000
HELD_BYTES = 64 << 20
"""What a worker holds at most; beyond it reads no further until a request is due."""

Place = tuple[str, Partition]


@dataclass(frozen=True, slots=True)
class Batching:
    """When requests are decided.

    Attributes
    ----------
    rows
        Distinct live rows that a version leaves out at least; 1 holds nothing back.
    seconds
        How long a request waits for that at most.
    """

    rows: int = 1
    seconds: float = 60.0

    def must_wait(self, deleted: int, since: datetime, now: datetime) -> bool:
        """Return whether a batch waits; one that deletes nothing makes no version and does not."""
        return 0 < deleted < self.rows and not self.due(since, now)

    def due(self, since: datetime, now: datetime) -> bool:
        """Return whether what waits since then is decided whatever its size."""
        return now - since >= timedelta(seconds=self.seconds)


@dataclass(frozen=True, slots=True)
class Remainder:
    """What a decider left undecided of a group, and how many rows the first batch would delete."""

    items: list[Validated]
    rows: int


@dataclass(slots=True)
class _Held:
    """A group that waits; ``rows`` is at least the number that its first batch would delete."""

    group: Group
    rows: int
    closed: bool  # a refresh follows the first batch: nothing can join it


class BatchWindow:
    """The requests that a worker holds back; pure but for what it is told. One thread uses it.

    Parameters
    ----------
    batching
        What they wait for.
    """

    def __init__(self, batching: Batching) -> None:
        self._batching = batching
        self._held: dict[Place, _Held] = {}

    def __len__(self) -> int:
        """Return how many records are held."""
        return sum(len(held.group.items) for held in self._held.values())

    def join(self, groups: Sequence[Group], now: datetime) -> list[Group]:
        """Add what was read, and return what has to be looked at now, each model in order.

        That is what waits for nothing yet, and what may have enough rows or has waited long
        enough by now; the rest is kept.
        """
        for group in groups:
            for item in group.items:
                group.since[item.record.offset] = waits_since(item.record, now)
        ready = [group for group in groups if not self._keep_more(group)]
        return [*ready, *self._take_ripe(now)]

    def _keep_more(self, group: Group) -> bool:
        """Add a group to what is held of its model; False if that is nothing."""
        held = self._held.get((group.model_id, group.partition))
        if held is None:
            return False
        held.group.items += group.items
        held.group.since |= group.since
        if not held.closed:
            held.rows += self._most_rows(group.items)
            held.closed = _has_refresh(group.items)
        return True

    def _most_rows(self, items: Sequence[Validated]) -> int:
        """Return a number of rows that these items name at most; a subject may have any number."""
        named: set[str] = set()
        for item in items:
            if isinstance(item, Refreshed):
                break
            if isinstance(item, Valid):
                if item.request.row_ids is None:
                    return self._batching.rows
                named.update(item.request.row_ids)
        return len(named)

    def _take_ripe(self, now: datetime) -> Iterator[Group]:
        for place, held in list(self._held.items()):
            group = held.group
            since = group.since[group.items[0].record.offset]
            if held.rows >= self._batching.rows or self._batching.due(since, now):
                del self._held[place]
                yield group

    def keep(self, group: Group, rest: Remainder) -> None:
        """Hold what was left undecided of a group."""
        offsets = [item.record.offset for item in rest.items]
        since = {offset: group.since[offset] for offset in offsets}
        left = Group(group.model_id, group.partition, rest.items, since)
        self._held[group.model_id, group.partition] = _Held(
            left, rest.rows, _has_refresh(rest.items)
        )

    def drop(self, partitions: Collection[Partition]) -> None:
        """Forget what is held of these partitions: they are lost, or will be read again."""
        self._held = {
            place: held for place, held in self._held.items() if place[1] not in partitions
        }

    def clear(self) -> None:
        """Forget everything: it will be read again."""
        self._held.clear()

    def first(self, partition: Partition) -> int | None:
        """Return the offset of the first record that is held of a partition."""
        return min(
            (
                held.group.items[0].record.offset
                for place, held in self._held.items()
                if place[1] == partition
            ),
            default=None,
        )

    def room(self) -> int:
        """Return how many more records may be read."""
        held = [item.record for one in self._held.values() for item in one.group.items]
        size = sum(len(record.value or b"") for record in held)
        return 0 if size >= HELD_BYTES else max(0, HELD_RECORDS - len(held))


def waits_since(record: Record, now: datetime) -> datetime:
    """Return from when a record counts as waiting: the log's time of it, but no later than now."""
    if not 0 < record.timestamp_ms < now.timestamp() * 1000:
        return now
    return datetime.fromtimestamp(record.timestamp_ms / 1000, UTC)


def _has_refresh(items: Sequence[Validated]) -> bool:
    return any(isinstance(item, Refreshed) for item in items)
