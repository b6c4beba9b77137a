"""What every log offers: ordered partitions of records, a group consumer, a producer, a reader.

The workers depend on this module only. `consumers.log.kafka` connects to Kafka, and
`consumers.log.streams` to Redis Streams (single-node mode). Both, and the log in memory of fast
tests, pass the same battery (`tests/integration/log/test_battery.py`).

The workers rely on five rules:

1. Records with the same key from one producer are in one partition, in the order of sending.
2. A partition is identified by the *id* of its topic as well: a topic that was deleted and
   recreated is a different topic, and the old topic's offsets mean nothing in it.
3. A newly assigned partition yields nothing until the worker has called `Consumer.seek`: the
   model state tells the worker where to resume; the log does not.
4. `Producer.publish` returns once every message is acknowledged, or raises.
5. Once one send of a producer has failed, every other send that it has begun fails as well, even
   if its messages are in the log: a caller that waits in sending order also resends in that order.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol

from lethe.engine.errors import LogReset, LogUnavailable
from lethe.engine.store.layout.keys import partition_index

_LATEST_MS = 253_402_300_800_000  # the year 10000, which no datetime holds

Headers = tuple[tuple[str, bytes], ...]

RECORD_SECONDS = 5.0
"""How long `Reader.record_at` waits for a record that the log has."""

PACKED_BATCH = "lethe-packed-batch"
"""Header of the one record that stands for a batch which a client did not decompress."""


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
    """The offsets in a partition: ``begin`` is the first, ``end`` is one past the last."""

    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Record:
    """A record as read from the log."""

    partition: Partition
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_ms: int = 0
    leader_epoch: int | None = None

    @property
    def place(self) -> str:
        """Where it lies, in words."""
        return f"{self.partition.topic}/{self.partition.index} at offset {self.offset}"

    @property
    def logged_at(self) -> datetime:
        """Its timestamp in the log; the beginning of 1970 if it makes no sense."""
        sound = 0 < self.timestamp_ms < _LATEST_MS
        return datetime.fromtimestamp(self.timestamp_ms / 1000 if sound else 0, UTC)


@dataclass(frozen=True, slots=True)
class Message:
    """A record to send. The key determines the partition unless ``partition`` gives its index."""

    topic: str
    key: bytes
    value: bytes | None
    headers: Headers = ()
    partition: int | None = None

    def index_among(self, partitions: int) -> int:
        """Return the index of the partition that it goes to in a topic of ``partitions``.

        Raises
        ------
        LogUnavailable
            It names a partition that the topic does not have.
        """
        if self.partition is None:
            return partition_index(self.key, partitions)
        if not 0 <= self.partition < partitions:
            raise LogUnavailable(
                f"partition {self.partition} of topic {self.topic} does not exist: it has "
                f"{partitions}"
            )
        return self.partition


@dataclass(frozen=True, slots=True)
class Appended:
    """Where an acknowledged message is in the log.

    Attributes
    ----------
    partition
        With the topic id that this client last saw. If the topic is being recreated at this
        moment, it can be the old topic's id.
    offset
        None if the broker acknowledged without one because it had the message from an earlier try.
    leader_epoch
        Epoch of the leader that the client last saw; None if unknown.
    """

    partition: Partition
    offset: int | None
    leader_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class Position:
    """Where a group resumes in a partition: the next offset, and the epoch of the last read."""

    next_offset: int
    leader_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic to create if it is missing. An existing topic is left unchanged, unless it grows.

    Attributes
    ----------
    name, partitions
        The topic's name and its number of partitions.
    compacted
        Only the newest record of each key is kept.
    retention_ms
        Older records are removed eventually. None: the log's default (Redis Streams: for ever);
        -1: for ever.
    until_released
        If the log supports it, keep records of any age until their reader has released them
        (`Consumer.release`), and then remove them. Kafka uses ``retention_ms`` alone.
    max_message_bytes
        Largest key and value of a record, together.
    grows
        Redis Streams add partitions that an existing topic lacks; in Kafka, a person does. Keys
        then change their partitions: only where their order does not matter.
    extra
        Settings for Kafka only.
    """

    name: str
    partitions: int = 1
    compacted: bool = False
    retention_ms: int | None = None
    until_released: bool = False
    max_message_bytes: int = 1_048_576
    grows: bool = False
    extra: Mapping[str, str] = field(default_factory=dict)


class PartitionReset(LogReset):
    """A ``position`` is outside its ``partition``, or the topic was deleted and recreated.

    Or the log was ``truncated`` below a position that was reached: records that were read are gone,
    and others may have taken their offsets, so that the position may be in the log again.

    The partition yields nothing until it is sought again; other partitions are not affected.
    ``bounds`` is None if that incarnation of the topic is gone.
    """

    def __init__(
        self,
        partition: Partition,
        position: int,
        bounds: Bounds | None,
        *,
        truncated: bool = False,
    ) -> None:
        self.partition = partition
        self.position = position
        self.bounds = bounds
        self.truncated = truncated
        where = f"{partition.topic} partition {partition.index}"
        fault = f"position {position} is not in the log"
        if bounds is None:
            reason = "the topic was deleted or recreated"
        else:
            reason = f"the log holds {bounds.begin} to {bounds.end}"
            if truncated:
                fault = f"at position {position}, records that were read are no longer in the log"
                reason = f"it was truncated, and {reason}"
        super().__init__(
            f"{where}: {fault}: {reason} (topic id {partition.topic_id}). Records may be "
            "lost: `lethe check` names what is missing, and what to do"
        )


def missing_topic(topic: str, place: str) -> LogUnavailable:
    """Return the error for a topic that nobody has created yet."""
    return LogUnavailable(
        f"topic {topic} does not exist in {place}: `lethe work` and `lethe register` create it, "
        "unless the store knows it (`lethe check` says so)"
    )


class Consumer(Protocol):
    """A member of a consumer group. Used by one thread; every call may also send a heartbeat."""

    def poll(self, timeout: float, limit: int) -> Sequence[Record]:
        """Return at most ``limit`` records, in order within each partition; wait ``timeout`` s.

        With a limit of 0 it only keeps the membership alive: for a worker whose buffers are full.

        Raises `LogUnavailable` if the log cannot be reached and `PartitionReset` if a position
        is outside the partition's bounds.
        """
        ...

    def take_assigned(self) -> frozenset[Partition]:
        """Return the partitions assigned since the last call; the worker must `seek` each."""
        ...

    def take_lost(self) -> frozenset[Partition]:
        """Return the partitions revoked or lost since the last call: drop their work in flight."""
        ...

    def assignment(self) -> frozenset[Partition]:
        """Return the partitions assigned to this member now (sought or not)."""
        ...

    def seek(self, partition: Partition, offset: int) -> None:
        """Continue at ``offset``; from now on `poll` yields this partition's records."""
        ...

    def bounds(self, partition: Partition) -> Bounds:
        """Return the partition's current bounds."""
        ...

    def commit_hint(self, positions: Mapping[Partition, Position]) -> None:
        """Store positions as a hint for people and tools; a failure is logged, never raised."""
        ...

    def release(self, partition: Partition, below_offset: int) -> None:
        """Declare that nobody needs the records below ``below_offset`` any more.

        The log may remove them later; Kafka relies on its retention and ignores this.
        """
        ...

    def close(self) -> None:
        """Leave the group now, so that other members need not wait for a timeout."""
        ...


class Flush(Protocol):
    """Messages in flight, as returned by `Producer.begin`."""

    def wait(self, timeout: float = 30.0) -> Sequence[Appended]:
        """Return where each message is, in the order given, once all are acknowledged.

        Raises what `Producer.append` raises. Call it once.
        """
        ...


class Producer(Protocol):
    """Sends messages, idempotently where the log supports it. Use it from one thread only.

    Implementations inherit from it and define `begin` and `close`.
    """

    def begin(self, messages: Iterable[Message]) -> Flush:
        """Send in order without waiting; call ``wait`` on the result to wait.

        Errors that are known at once are raised here and count as a failed send: a message that
        is too large, a topic that does not exist, no broker.
        """
        ...

    def append(self, messages: Iterable[Message], timeout: float = 30.0) -> Sequence[Appended]:
        """Send all messages, in order, and return where each is once all are acknowledged.

        Raises
        ------
        LogUnavailable
            Not all were acknowledged within ``timeout`` seconds. Some may be in the log: the
            caller resends all of them, and readers drop byte-identical duplicates.
        InvalidData
            A message is too large for its topic; the others may be in the log.
        """
        deadline = time.monotonic() + timeout
        flush = self.begin(messages)
        return flush.wait(max(deadline - time.monotonic(), 0.0))

    def publish(self, messages: Iterable[Message], timeout: float = 30.0) -> None:
        """Send in order and return once all are acknowledged; raises what `append` raises."""
        self.append(messages, timeout)

    def close(self) -> None:
        """Release the connection, and drop the sends that were begun and not waited for."""
        ...


class Reader(Protocol):
    """Reads partitions without a group: for subscribers, receipts and tails.

    Implementations inherit from it and define all but `partition_for` and `record_at`.
    """

    place: str  # what error messages call the log

    def partitions(self, topic: str) -> Sequence[Partition]:
        """Return the topic's partitions, in order; empty if the topic does not exist."""
        ...

    def partition_for(self, topic: str, key: bytes) -> Partition:
        """Return the partition that `Producer` would send ``key`` to."""
        partitions = self.partitions(topic)
        if not partitions:
            raise missing_topic(topic, self.place)
        return partitions[partition_index(key, len(partitions))]

    def bounds(self, partition: Partition) -> Bounds:
        """Return the partition's current bounds, in one round trip where the client can."""
        ...

    def ends(self, partitions: Iterable[Partition]) -> Mapping[Partition, int]:
        """Return the end of each partition; all are queried at once.

        These ends include the records of open transactions, which `bounds` and `read` do not
        show.

        Raises
        ------
        PartitionReset
            A topic was deleted or recreated.
        """
        ...

    def read(
        self, partition: Partition, offset: int, timeout: float, limit: int
    ) -> tuple[Sequence[Record], int]:
        """Return records from ``offset`` on, and the offset to continue from.

        The second value may skip offsets without a visible record (compaction, transaction
        markers). Waits up to ``timeout`` seconds if there is nothing yet.
        """
        ...

    def record_at(self, partition: Partition, offset: int) -> Record | None:
        """Return the record at an offset; None if the log does not have it, or not any more."""
        bounds = self.bounds(partition)
        if not bounds.begin <= offset < bounds.end:
            return None
        records, _ = self.read(partition, offset, RECORD_SECONDS, 1)
        return records[0] if records and records[0].offset == offset else None

    def close(self) -> None:
        """Release the connection."""
        ...


class Log(Protocol):
    """A log: creates the parts above, each with its own connection. Implementations inherit."""

    name: str  # "kafka" or "streams"

    def ensure_topics(self, specs: Sequence[TopicSpec]) -> Sequence[str]:
        """Create the missing topics; return the names of those created."""
        ...

    def delete_topic(self, name: str) -> None:
        """Delete a topic and its records; if recreated, it has a new topic id."""
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
        """Return a short line about the server; raise `LogUnavailable` if it cannot be reached."""
        ...

    def topic_settings(self, topic: str) -> Mapping[str, str]:
        """Return a topic's settings by Kafka's names; empty for other logs, which have none."""
        del topic
        return {}

    def close(self) -> None:
        """Release the log's own resources."""
        ...
