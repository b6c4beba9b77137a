"""Long reading beside a consumer that must not be taken for dead meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from consumers.health import Health
from consumers.log.base import Bounds, Consumer, Partition, Reader, Record
from engine.errors import LogReset


class Attendance:
    """Keeps a consumer in its group, and its worker alive, without taking a record."""

    def __init__(self, consumer: Consumer, health: Health) -> None:
        self._consumer = consumer
        self._health = health
        self._reset: LogReset | None = None

    def __call__(self) -> None:
        """Be heard of. What the consumer finds out is kept: it is no fault of what is read."""
        try:
            self._consumer.poll(0.0, 0)
        except LogReset as reset:
            self._reset = reset
        self._health.beat()

    def check(self) -> None:
        """Raise what the consumer found out meanwhile.

        Raises
        ------
        LogReset
            A position is not in the log any more.
        """
        if self._reset is not None:
            raise self._reset


class AttendedReader:
    """Hands everything on to a reader, and calls ``attend`` before each read.

    A takeover can read for longer than a lease lasts: a worker that does not renew it loses its
    partitions, gets them back, and takes them over again, for ever.
    """

    def __init__(self, reader: Reader, attend: Callable[[], object]) -> None:
        self._reader = reader
        self._attend = attend

    def partitions(self, topic: str) -> Sequence[Partition]:
        """Return the topic's partitions, in order."""
        return self._reader.partitions(topic)

    def partition_for(self, topic: str, key: bytes) -> Partition:
        """Return the partition that the producer would send ``key`` to."""
        return self._reader.partition_for(topic, key)

    def bounds(self, partition: Partition) -> Bounds:
        """Return what the partition holds now."""
        return self._reader.bounds(partition)

    def read(
        self, partition: Partition, offset: int, timeout: float, limit: int
    ) -> tuple[Sequence[Record], int]:
        """Return records from ``offset`` on, and the offset to go on from."""
        self._attend()
        return self._reader.read(partition, offset, timeout, limit)

    def close(self) -> None:
        """Release the connection."""
        self._reader.close()
