"""What every log offers: ordered partitions of records, a group consumer, a producer, a reader.

The workers know this page only. `consumers.log.kafka.log` speaks to Kafka,
`consumers.log.streams.log` to Redis Streams (single-node mode) and `consumers.log.memory` serves
fast tests; all three pass the same battery of tests (`tests/integration/log/test_battery.py`).

Five rules that the workers lean on:

1. Records of one key, sent by one producer, lie in one partition in the order of sending.
2. A partition is named by the *id* of its topic as well: a topic that was deleted and made
   again is another topic, and its offsets mean nothing to the old one.
3. A newly assigned partition yields nothing until the worker has called `Consumer.seek`: the
   worker knows from the model state where to go on, the log does not.
4. `Producer.publish` returns once every message is acknowledged, or raises.
5. Once a send of a producer has failed, every other one that it has begun fails as well, even if
   its messages are in the log: whoever waits in the order of sending repeats in that order too.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

Headers = tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True, order=True)
class Partition:
    """One ordered partition of one incarnation of a topic."""

    topic: str
    topic_id: str
    index: int

    def __str__(self) -> str:
        """Return the form used in state and receipts: ``<topic id>/<index>``."""
        return f"{self.topic_id}/{self.index}"


@dataclass(frozen=True, slots=True)
class Bounds:
    """Offsets that a partition holds: ``begin`` is the first, ``end`` is one past the last."""

    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Record:
    """A record as it was read."""

    partition: Partition
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_ms: int = 0
    leader_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """A record to be sent. The partition follows from the key, unless its index is given."""

    topic: str
    key: bytes
    value: bytes | None
    headers: Headers = ()
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class Appended:
    """Where an acknowledged message lies.

    Attributes
    ----------
    partition
        With the topic's id as this client last heard it: of a topic that is made again at this
        moment it can be the former one's.
    offset
        None where the broker acknowledged without one: it had the message from an earlier try.
    leader_epoch
        Of the leader that the client last heard of; None where it cannot say.
    """

    partition: Partition
    offset: int | None
    leader_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class Position:
    """Where a group goes on in a partition: the next offset, and the epoch it was read in."""

    next_offset: int
    leader_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic to create when it is missing. An existing topic is left as it is.

    Attributes
    ----------
    name, partitions
        The topic, and how many partitions it is given.
    compacted
        Only the newest record of each key is kept.
    retention_ms
        Older records are removed some time later. None: the log's default (Redis Streams: for
        ever); -1: for ever.
    until_released
        A log that can keeps records of any age until their reader has released them, and removes
        them then (`Consumer.release`); Kafka goes by ``retention_ms`` alone.
    max_message_bytes
        Key and value of the largest record.
    extra
        Kafka's own settings.
    """

    name: str
    partitions: int = 1
    compacted: bool = False
    retention_ms: int | None = None
    until_released: bool = False
    max_message_bytes: int = 1_048_576
    extra: Mapping[str, str] = field(default_factory=dict)


class Consumer(Protocol):
    """A member of a group. One thread uses it; every call may also heartbeat."""

    def poll(self, timeout: float, limit: int) -> Sequence[Record]:
        """Return at most ``limit`` records, in order within each partition; wait ``timeout`` s.

        With a limit of 0 it only stays a member, as a worker does that has no room.

        Raises `LogUnavailable` when the log cannot be reached and `LogReset` when a position
        lies outside what the partition holds.
        """
        ...

    def take_assigned(self) -> frozenset[Partition]:
        """Return the partitions assigned since the last call; the worker must `seek` each."""
        ...

    def take_lost(self) -> frozenset[Partition]:
        """Return the partitions revoked or lost since the last call: drop what is in flight."""
        ...

    def assignment(self) -> frozenset[Partition]:
        """Return the partitions that this member holds now (sought or not)."""
        ...

    def seek(self, partition: Partition, offset: int) -> None:
        """Go on at ``offset``; from now on `poll` yields this partition's records."""
        ...

    def bounds(self, partition: Partition) -> Bounds:
        """Return what the partition holds now."""
        ...

    def commit_hint(self, positions: Mapping[Partition, Position]) -> None:
        """Store positions as a hint for people and tools; failure is logged, never raised."""
        ...

    def release(self, partition: Partition, below_offset: int) -> None:
        """Say that nobody needs the records below ``below_offset`` any more.

        The log may remove them some time later; Kafka has its retention and ignores this.
        """
        ...

    def close(self) -> None:
        """Leave the group at once, so that others need not wait for a timeout."""
        ...


class Flush(Protocol):
    """Messages on their way, from `Producer.begin`."""

    def wait(self, timeout: float = 30.0) -> Sequence[Appended]:
        """Return where each message lies, in the order given, once all are acknowledged.

        Raises what `Producer.append` raises. To be called once.
        """
        ...


class Producer(Protocol):
    """Sends messages, idempotently where the log can. Safe to use from one thread.

    Classes that serve as one inherit from it and write `begin` and `close`.
    """

    def begin(self, messages: Iterable[Message]) -> Flush:
        """Send in order without waiting; ``wait`` of what is returned does that.

        What is known at once is raised here and counts as a failed send: a message that is too
        large, a topic that does not exist, no broker.
        """
        ...

    def append(self, messages: Iterable[Message], timeout: float = 30.0) -> Sequence[Appended]:
        """Send all at once, in order, and return where each lies when all are acknowledged.

        Raises
        ------
        LogUnavailable
            Not all were acknowledged within ``timeout`` seconds. Some may be in the log: the
            caller sends all of them again, and readers drop byte-identical repeats.
        InvalidData
            A message is too large for its topic; the others may be in the log.
        """
        deadline = time.monotonic() + timeout
        flush = self.begin(messages)
        return flush.wait(max(deadline - time.monotonic(), 0.0))

    def publish(self, messages: Iterable[Message], timeout: float = 30.0) -> None:
        """Send in order and return when all are acknowledged; raises what `append` raises."""
        self.append(messages, timeout)

    def close(self) -> None:
        """Release the connection, and drop what was begun and not waited for."""
        ...


class Reader(Protocol):
    """Reads partitions without a group: subscribers, receipts, tails."""

    def partitions(self, topic: str) -> Sequence[Partition]:
        """Return the topic's partitions, in order; empty when the topic does not exist."""
        ...

    def partition_for(self, topic: str, key: bytes) -> Partition:
        """Return the partition that `Producer` would send ``key`` to."""
        ...

    def bounds(self, partition: Partition) -> Bounds:
        """Return what the partition holds now, in one round trip where the client can."""
        ...

    def ends(self, partitions: Iterable[Partition]) -> Mapping[Partition, int]:
        """Return the end of each partition, all asked for at once.

        These ends count every record that is there, also those of transactions that are still
        open, which `bounds` and `read` do not show.

        Raises
        ------
        PartitionReset
            A topic was deleted or made again (`consumers.log.reset`).
        """
        ...

    def read(
        self, partition: Partition, offset: int, timeout: float, limit: int
    ) -> tuple[Sequence[Record], int]:
        """Return records from ``offset`` on, and the offset to go on from.

        The second value may pass offsets that hold no visible record (compaction, transaction
        markers). Waits up to ``timeout`` seconds when there is nothing yet.
        """
        ...

    def close(self) -> None:
        """Release the connection."""
        ...


class Log(Protocol):
    """A log: makes the parts above, each with its own connection."""

    name: str  # "kafka", "streams" or "memory"

    def ensure_topics(self, specs: Sequence[TopicSpec]) -> Sequence[str]:
        """Create the missing topics; return the names of those created."""
        ...

    def consumer(self, group: str, topics: Sequence[str]) -> Consumer:
        """Join ``group`` and read ``topics``."""
        ...

    def producer(self) -> Producer:
        """Return a new producer."""
        ...

    def reader(self) -> Reader:
        """Return a new reader."""
        ...

    def ping(self) -> str:
        """Return a short line about the server; raise `LogUnavailable` when it is not there."""
        ...

    def topic_settings(self, topic: str) -> Mapping[str, str]:
        """Return a topic's settings by Kafka's names; of other logs none, they have no choice."""
        ...

    def close(self) -> None:
        """Release what the log itself holds."""
        ...
