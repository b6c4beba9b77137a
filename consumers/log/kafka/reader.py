"""Reading Kafka without a group; and what a reader and a member of a group share."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kafka import KafkaConsumer as Client, TopicPartition, errors

from lethe.consumers.log.base import Bounds, Partition, PartitionReset, Reader, Record
from lethe.consumers.log.kafka import settings
from lethe.consumers.log.kafka.batches import bound_batches
from lethe.consumers.log.kafka.cluster import Cluster, by_topic
from lethe.consumers.log.kafka.repairs import read_odd_header_names
from lethe.consumers.log.kafka.server import Server

CLOSE_MS = int(settings.CLOSE_SECONDS * 1000)


def open_client(cluster: Cluster, **more: Any) -> Client:
    """Return kafka-python's consumer; its own defaults would lose requests."""
    read_odd_header_names()
    consumer = cluster.open(
        Client,
        **settings.READING,
        auto_offset_reset="none",  # we seek ourselves; an offset out of range is an alarm
        allow_auto_create_topics=False,
        metrics_enabled=False,
        fetch_max_wait_ms=settings.FETCH_WAIT_MS,
        metadata_max_age_ms=int(settings.METADATA_SECONDS * 1000),
        **more,
    )
    bound_batches(consumer)
    return consumer


def place_of(partition: Partition) -> TopicPartition:
    """Return kafka-python's name of a partition, which has no topic id."""
    return TopicPartition(partition.topic, partition.index)


def to_record(partition: Partition, fetched: Any) -> Record:
    """Convert the client's record to a `Record`; a header without a value gets an empty one."""
    return Record(
        partition,
        fetched.offset,
        fetched.key,
        fetched.value,
        tuple((name, value or b"") for name, value in fetched.headers or ()),
        fetched.timestamp,
        None if fetched.leader_epoch == -1 else fetched.leader_epoch,
    )


class KafkaReader(Reader):
    """Reads partitions without a group, one at a time, on a connection of its own."""

    def __init__(self, server: Server) -> None:
        self.place = f"Kafka at {server}"
        self._reading: tuple[Partition, int] | None = None
        self._cluster = Cluster(server)
        self._client = open_client(self._cluster, group_id=None)

    def partitions(self, topic: str) -> Sequence[Partition]:
        """Return the topic's partitions, in order; empty if the topic does not exist."""
        with self._cluster.reaching():
            return by_topic(self._cluster.leaders([topic])).get(topic, [])

    def bounds(self, partition: Partition) -> Bounds:
        """Return the partition's current bounds."""
        with self._cluster.reaching():
            return self._cluster.bounds(partition)

    def ends(self, partitions: Iterable[Partition]) -> Mapping[Partition, int]:
        """Return the end of each partition, with one request per leader."""
        with self._cluster.reaching():
            return self._cluster.ends(partitions)

    def read(
        self, partition: Partition, offset: int, timeout: float, limit: int
    ) -> tuple[Sequence[Record], int]:
        """Return records from ``offset`` on, and the offset to continue from."""
        deadline = time.monotonic() + timeout
        with self._cluster.reaching():
            if self._reading != (partition, offset):
                # A new position: query the bounds first, so that a short timeout still reads
                # what is there, and a wrong offset is detected at once.
                bounds = self._cluster.bounds(partition, offset)
                if not bounds.begin <= offset <= bounds.end:
                    raise PartitionReset(partition, offset, bounds)
                place = place_of(partition)
                if self._client.assignment() != {place}:
                    self._client.assign([place])
                self._client.seek(place, offset)
                if offset < bounds.end:
                    deadline = max(deadline, time.monotonic() + settings.REQUEST_SECONDS)
            self._reading = None
            while True:
                remaining = deadline - time.monotonic()
                wait = min(max(remaining, 0.0), settings.SLICE_SECONDS)
                records, after = self._fetch(partition, offset, wait, limit)
                if records or after != offset or remaining <= 0:
                    self._reading = (partition, after)
                    return records, after

    def _fetch(
        self, partition: Partition, offset: int, timeout: float, limit: int
    ) -> tuple[Sequence[Record], int]:
        """Return the next records, and the offset to continue from.

        Transaction markers and compacted records move the offset and yield nothing.
        """
        place = place_of(partition)
        try:
            batches = self._client.poll(timeout_ms=timeout * 1000, max_records=limit)
            if not batches:
                self._cluster.check()
            if self._cluster.known_topic_id(partition.topic) not in (None, partition.topic_id):
                raise PartitionReset(partition, offset, None)
            after: int = self._client.position(place, timeout_ms=settings.REQUEST_SECONDS * 1000)
        except (errors.OffsetOutOfRangeError, errors.LogTruncationError):
            bounds = self._cluster.bounds(partition, offset)
            raise PartitionReset(partition, offset, bounds) from None
        return [to_record(partition, fetched) for fetched in batches.get(place, ())], after

    def close(self) -> None:
        """Release the connection."""
        with contextlib.suppress(errors.KafkaError):
            self._client.close(autocommit=False, timeout_ms=CLOSE_MS)
