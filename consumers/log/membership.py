"""Which partitions one member of a group holds, and what changed since the worker last asked.

Every log keeps one of these per consumer. Changes may arrive on another thread (kafka-python
calls its rebalance listener on its own thread), so each method takes the lock.
"""

from __future__ import annotations

from collections.abc import Iterable
from threading import Lock

from lethe.consumers.log.base import Partition


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
