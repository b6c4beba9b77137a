"""Reading Kafka without a group."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Mapping, Sequence

from kafka import KafkaConsumer, errors

from lethe.consumers.log.base import Bounds, Partition, Record
from lethe.consumers.log.kafka.batches import bound_batches
from lethe.consumers.log.kafka.connection import REQUEST_SECONDS, Connection, Server
from lethe.consumers.log.kafka.offsets import Offsets
from lethe.consumers.log.kafka.records import (
    CLOSE_SECONDS,
    SLICE_SECONDS,
    reading_settings,
    to_record,
    topic_partition,
)
from lethe.consumers.log.partitioner import partition_index
from lethe.consumers.log.reset import PartitionReset
from lethe.engine.errors import LogUnavailable


class KafkaReader:
    """Reads partitions without a group, one at a time."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._connection = Connection(server)
        self._offsets = Offsets(self._connection)
        self._consumer = self._connection.open(
            KafkaConsumer, group_id=None, **reading_settings(server)
        )
        bound_batches(self._consumer)
        self._reading: tuple[Partition, int] | None = None

    def partitions(self, topic: str) -> Sequence[Partition]:
        """Return the topic's partitions, in order; empty if the topic does not exist."""
        with self._server.reaching():
            return self._connection.partitions([topic]).get(topic, [])

    def partition_for(self, topic: str, key: bytes) -> Partition:
        """Return the partition that the producer would send ``key`` to."""
        partitions = self.partitions(topic)
        if not partitions:
            raise LogUnavailable(f"topic {topic} does not exist in Kafka at {self._server}")
        return partitions[partition_index(key, len(partitions))]

    def bounds(self, partition: Partition) -> Bounds:
        """Return the partition's current bounds."""
        with self._server.reaching():
            return self._offsets.bounds(partition)

    def ends(self, partitions: Iterable[Partition]) -> Mapping[Partition, int]:
        """Return the end of each partition, with one request per leader."""
        with self._server.reaching():
            return self._offsets.ends(partitions)

    def read(
        self, partition: Partition, offset: int, timeout: float, limit: int
    ) -> tuple[Sequence[Record], int]:
        """Return records from ``offset`` on, and the offset to continue from."""
        tp = topic_partition(partition)
        deadline = time.monotonic() + timeout
        with self._server.reaching():
            if self._reading != (partition, offset):
                # A new position: query the bounds first, so that a short timeout still reads
                # what is there, and a wrong offset is detected at once.
                bounds = self._offsets.bounds(partition, offset)
                if not bounds.begin <= offset <= bounds.end:
                    raise PartitionReset(partition, offset, bounds)
                if self._consumer.assignment() != {tp}:
                    self._consumer.assign([tp])
                self._consumer.seek(tp, offset)
                if offset < bounds.end:
                    deadline = max(deadline, time.monotonic() + REQUEST_SECONDS)
            self._reading = None
            try:
                records, after = self._poll(partition, offset, deadline, limit)
            except (errors.OffsetOutOfRangeError, errors.LogTruncationError):
                bounds = self._offsets.bounds(partition, offset)
                raise PartitionReset(partition, offset, bounds) from None
            self._reading = (partition, after)
            return records, after

    def close(self) -> None:
        """Release the connection."""
        with contextlib.suppress(errors.KafkaError):
            self._consumer.close(autocommit=False, timeout_ms=int(CLOSE_SECONDS * 1000))

    def _poll(
        self, partition: Partition, offset: int, deadline: float, limit: int
    ) -> tuple[Sequence[Record], int]:
        tp = topic_partition(partition)
        while True:
            remaining = max(deadline - time.monotonic(), 0.0)
            batches = self._consumer.poll(
                timeout_ms=min(remaining, SLICE_SECONDS) * 1000, max_records=limit
            )
            if not batches:
                self._connection.check()
            topic_id = self._connection.known_topic_id(partition.topic)
            if topic_id is not None and topic_id != partition.topic_id:
                raise PartitionReset(partition, offset, None)
            after: int = self._consumer.position(tp, timeout_ms=REQUEST_SECONDS * 1000)
            # Transaction markers and compacted records move the position and yield nothing.
            if batches or after != offset or time.monotonic() >= deadline:
                return [to_record(partition, fetched) for fetched in batches.get(tp, ())], after
