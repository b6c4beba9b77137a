"""A log and a consumer in front of others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lethe.consumers.log.base import (
    Bounds,
    Consumer,
    Log,
    Partition,
    Position,
    Producer,
    Reader,
    Record,
    TopicSpec,
)


class WrappedLog(Log):
    """Delegates every call to another log; subclasses override what differs."""

    def __init__(self, log: Log) -> None:
        self.name = log.name
        self._log = log

    def ensure_topics(self, specs: Sequence[TopicSpec]) -> Sequence[str]:
        """Create the missing topics; return the names of those created."""
        return self._log.ensure_topics(specs)

    def delete_topic(self, name: str) -> None:
        """Delete a topic and its records."""
        self._log.delete_topic(name)

    def consumer(self, group: str, topics: Sequence[str]) -> Consumer:
        """Join ``group`` and read ``topics``."""
        return self._log.consumer(group, topics)

    def producer(self) -> Producer:
        """Return a new producer."""
        return self._log.producer()

    def reader(self) -> Reader:
        """Return a new reader."""
        return self._log.reader()

    def ping(self) -> str:
        """Return a short line about the server."""
        return self._log.ping()

    def topic_settings(self, topic: str) -> Mapping[str, str]:
        """Return a topic's settings."""
        return self._log.topic_settings(topic)

    def close(self) -> None:
        """Release the log's own resources."""
        self._log.close()


class WrappedConsumer(Consumer):
    """Delegates every call to another consumer; subclasses override what differs."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    def poll(self, timeout: float, limit: int) -> Sequence[Record]:
        """Return at most ``limit`` records."""
        return self._consumer.poll(timeout, limit)

    def take_assigned(self) -> frozenset[Partition]:
        """Return the partitions assigned since the last call."""
        return self._consumer.take_assigned()

    def take_lost(self) -> frozenset[Partition]:
        """Return the partitions revoked or lost since the last call."""
        return self._consumer.take_lost()

    def assignment(self) -> frozenset[Partition]:
        """Return the partitions assigned to this member now."""
        return self._consumer.assignment()

    def seek(self, partition: Partition, offset: int) -> None:
        """Continue at ``offset``."""
        self._consumer.seek(partition, offset)

    def bounds(self, partition: Partition) -> Bounds:
        """Return the partition's current bounds."""
        return self._consumer.bounds(partition)

    def commit_hint(self, positions: Mapping[Partition, Position]) -> None:
        """Store positions as a hint."""
        self._consumer.commit_hint(positions)

    def release(self, partition: Partition, below_offset: int) -> None:
        """Declare that nobody needs the records below an offset any more."""
        self._consumer.release(partition, below_offset)

    def close(self) -> None:
        """Leave the group."""
        self._consumer.close()
