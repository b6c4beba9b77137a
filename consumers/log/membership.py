"""What the consumers of all logs share: which partitions a member holds, and where it reads.

Changes may arrive on another thread (kafka-python calls its rebalance listener on its own thread),
so each method of `Membership` takes the lock.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock

from lethe.consumers.log.base import Bounds, Consumer, Partition, PartitionReset, Position, Record


class Membership:
    """Partitions held, partitions that the worker has sought, and changes not taken yet.

    A partition that is lost and regained between two calls is in both sets of changes. The worker
    takes the lost ones first, so nothing of the old tenure survives into the new one.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._held: set[Partition] = set()
        self._sought: set[Partition] = set()
        self._assigned: set[Partition] = set()
        self._lost: set[Partition] = set()
        self.changes = 0  # incremented by every gain or loss: a poll returns early on a change

    def gain(self, partitions: Iterable[Partition]) -> None:
        """Record newly assigned partitions: held, but yielding nothing until they are sought."""
        with self._lock:
            for partition in partitions:
                self._held.add(partition)
                self._sought.discard(partition)
                self._assigned.add(partition)
                self.changes += 1

    def lose(self, partitions: Iterable[Partition]) -> None:
        """Record revoked partitions; partitions that are not held are ignored."""
        with self._lock:
            for partition in partitions:
                if partition in self._held:
                    self._held.discard(partition)
                    self._sought.discard(partition)
                    self._assigned.discard(partition)
                    self._lost.add(partition)
                    self.changes += 1

    def seek(self, partition: Partition) -> bool:
        """Mark ``partition`` as sought; return False if it is no longer held."""
        with self._lock:
            if partition not in self._held:
                return False
            self._sought.add(partition)
            return True

    def silence(self, partition: Partition) -> None:
        """Yield nothing from ``partition`` until it is sought again."""
        with self._lock:
            self._sought.discard(partition)

    def held(self) -> frozenset[Partition]:
        """Return the partitions that are held now."""
        with self._lock:
            return frozenset(self._held)

    def sought(self) -> frozenset[Partition]:
        """Return the partitions that may yield records now."""
        with self._lock:
            return frozenset(self._sought)

    def take_assigned(self) -> frozenset[Partition]:
        """Return and forget the partitions gained since the last call."""
        with self._lock:
            taken, self._assigned = frozenset(self._assigned), set()
            return taken

    def take_lost(self) -> frozenset[Partition]:
        """Return and forget the partitions lost since the last call."""
        with self._lock:
            taken, self._lost = frozenset(self._lost), set()
            return taken


@dataclass(frozen=True, slots=True)
class _Reset:
    """A `PartitionReset` to raise; ``bounds`` None: not queried yet."""

    partition: Partition
    position: int
    bounds: Bounds | None
    truncated: bool


class GroupConsumer(Consumer):
    """A member of a group; a log's own consumer adds `_poll`, `bounds` and `close`."""

    def __init__(self, group: str, topics: Sequence[str]) -> None:
        self.group = group
        self.topics = tuple(topics)
        self.membership = Membership()
        self._positions: dict[Partition, int] = {}
        self._resets: list[_Reset] = []
        self._hints: dict[Partition, Position] = {}
        self._closed = False

    def poll(self, timeout: float, limit: int) -> Sequence[Record]:
        """Return at most ``limit`` records; early and empty if the assignment changes."""
        if self._closed:
            raise RuntimeError("poll of a closed consumer")
        return self._poll(time.monotonic() + timeout, limit)

    @abstractmethod
    def _poll(self, deadline: float, limit: int) -> Sequence[Record]: ...

    def take_assigned(self) -> frozenset[Partition]:
        """Return the partitions assigned since the last call."""
        return self.membership.take_assigned()

    def take_lost(self) -> frozenset[Partition]:
        """Return the partitions revoked or lost since the last call."""
        return self.membership.take_lost()

    def assignment(self) -> frozenset[Partition]:
        """Return the partitions held now."""
        return self.membership.held()

    def seek(self, partition: Partition, offset: int) -> None:
        """Continue at ``offset``; a partition that was lost meanwhile is ignored."""
        if self.membership.seek(partition):
            self._positions[partition] = offset
            self._move(partition)

    def _move(self, partition: Partition) -> None:
        """Make the log's client continue at the position; called by `seek`."""

    def commit_hint(self, positions: Mapping[Partition, Position]) -> None:
        """Keep the newest positions, for the log to store when it next has the occasion."""
        self._hints.update(positions)

    def release(self, partition: Partition, below_offset: int) -> None:
        """Do nothing: this log removes records by itself."""

    def _reset(
        self, partition: Partition, bounds: Bounds | None = None, *, truncated: bool = False
    ) -> None:
        """Yield nothing more from a partition, and queue the error that says why.

        Without ``bounds``, they are queried when the error is raised.
        """
        self.membership.silence(partition)
        position = self._positions.get(partition, 0)
        self._resets.append(_Reset(partition, position, bounds, truncated))

    def _raise_reset(self) -> None:
        """Raise a reset that still matters; the others stay queued.

        A position outside the log matters while the partition is held and not sought again: whoever
        seeks checks the new position. A truncation always matters, because clients report it once;
        a member that waited for a broker has gone back to a position below it meanwhile.
        """
        while self._resets:
            reset, held = self._resets[-1], self.membership.held()
            partition, bounds = reset.partition, reset.bounds
            if reset.truncated or partition in held - self.membership.sought():
                if bounds is None:
                    bounds = self._bounds_if_present(partition)  # if this fails, it is queued still
                if bounds is not None or partition in held:
                    self._resets.pop()
                    self.membership.silence(partition)
                    raise PartitionReset(
                        partition, reset.position, bounds, truncated=reset.truncated
                    )
            self._resets.pop()

    def _bounds_if_present(self, partition: Partition) -> Bounds | None:
        """Return a partition's bounds; None if its topic is gone."""
        try:
            return self.bounds(partition)
        except PartitionReset:
            return None
