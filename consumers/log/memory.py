"""A log in memory: for fast tests, and for the seeded simulator.

It keeps every promise of `consumers.log.base` within one process, and it can be made to fail:
a *hook* is called around each publish and poll and may raise.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Condition

from lethe.consumers.log.base import (
    Appended,
    Bounds,
    Message,
    Partition,
    Position,
    Producer,
    Record,
    TopicSpec,
)
from lethe.consumers.log.hooks import Hook, HookCall
from lethe.consumers.log.membership import Membership
from lethe.consumers.log.partitioner import index_for, partition_index
from lethe.consumers.log.reset import PartitionReset
from lethe.engine.errors import LogUnavailable


@dataclass(slots=True)
class _Partition:
    """The records of one partition; ``records[i]`` has offset ``begin + i``."""

    identity: Partition
    begin: int = 0
    records: list[Record] = field(default_factory=list)

    def bounds(self) -> Bounds:
        return Bounds(self.begin, self.begin + len(self.records))

    def slice(self, offset: int, limit: int) -> list[Record]:
        bounds = self.bounds()
        if not bounds.begin <= offset <= bounds.end:
            raise PartitionReset(self.identity, offset, bounds)
        return self.records[offset - self.begin : offset - self.begin + limit]


class MemoryLog:
    """Topics in memory, shared by the consumers, producers and readers made from it.

    Parameters
    ----------
    hook : callable, optional
        Called with a `HookCall` around each publish and poll, outside the lock; it may raise.
    clock : callable, optional
        Gives the records' timestamps, in seconds since 1970.
    """

    name = "memory"

    def __init__(self, hook: Hook | None = None, clock: Callable[[], float] = time.time) -> None:
        self.hook: Hook = hook or (lambda _moment: None)
        self.clock = clock
        self.changed = Condition()
        self._topics: dict[str, list[_Partition]] = {}
        self._groups: dict[str, list[MemoryConsumer]] = {}

    def ensure_topics(self, specs: Sequence[TopicSpec]) -> Sequence[str]:
        """Create the missing topics; compaction and retention are not imitated."""
        with self.changed:
            created = [spec for spec in specs if spec.name not in self._topics]
            for spec in created:
                topic_id = str(uuid.uuid4())
                self._topics[spec.name] = [
                    _Partition(Partition(spec.name, topic_id, index))
                    for index in range(spec.partitions)
                ]
            self._rebalance_all()
            return [spec.name for spec in created]

    def delete_topic(self, name: str) -> None:
        """Forget a topic; made again, it has another topic id and starts at offset 0."""
        with self.changed:
            self._topics.pop(name, None)
            self._rebalance_all()

    def add_partitions(self, name: str, partitions: int) -> None:
        """Raise the number of partitions, as an administrator can in Kafka."""
        with self.changed:
            present = self._topics[name]
            topic_id = present[0].identity.topic_id
            for index in range(len(present), partitions):
                present.append(_Partition(Partition(name, topic_id, index)))
            self._rebalance_all()

    def trim(self, partition: Partition, below_offset: int) -> None:
        """Remove the records below ``below_offset``."""
        with self.changed:
            held = self.find(partition, below_offset)
            keep = min(max(below_offset, held.begin), held.bounds().end)
            del held.records[: keep - held.begin]
            held.begin = keep

    def truncate(self, partition: Partition, end: int) -> None:
        """Remove the records from ``end`` on: what a failover that loses writes does."""
        with self.changed:
            held = self.find(partition, end)
            del held.records[max(end - held.begin, 0) :]

    def evict(self, consumer: MemoryConsumer) -> None:
        """Take all partitions from a member, as a session timeout does; its next poll rejoins."""
        with self.changed:
            self.leave(consumer)

    def consumer(self, group: str, topics: Sequence[str]) -> MemoryConsumer:
        """Join ``group``; its partitions are shared out at once."""
        return MemoryConsumer(self, group, topics)

    def producer(self) -> MemoryProducer:
        """Return a new producer."""
        return MemoryProducer(self)

    def reader(self) -> MemoryReader:
        """Return a new reader."""
        return MemoryReader(self)

    def topic_settings(self, topic: str) -> Mapping[str, str]:
        """Return nothing: there is nothing to choose."""
        del topic
        return {}

    def ping(self) -> str:
        """Return a short line about this log."""
        return f"in memory, {len(self._topics)} topics"

    def close(self) -> None:
        """Do nothing: the log lives as long as somebody refers to it."""

    # What follows is for the classes below; callers hold `changed`.

    def partitions(self, topic: str) -> list[_Partition]:
        """Return the partitions of a topic; empty when it does not exist."""
        return self._topics.get(topic, [])

    def find(self, partition: Partition, position: int) -> _Partition:
        """Return the records of ``partition``, or raise when its topic is gone."""
        for held in self.partitions(partition.topic):
            if held.identity == partition:
                return held
        raise PartitionReset(partition, position, None)

    def append(self, message: Message) -> Record:
        """Add one message to its partition."""
        topic = self.partitions(message.topic)
        if not topic:
            raise LogUnavailable(f"topic {message.topic} does not exist: create it first")
        held = topic[index_for(message, len(topic))]
        record = Record(
            held.identity,
            held.bounds().end,
            message.key,
            message.value,
            message.headers,
            int(self.clock() * 1000),
        )
        held.records.append(record)
        self.changed.notify_all()
        return record

    def join(self, consumer: MemoryConsumer) -> None:
        """Add a member to its group and share the partitions out again."""
        members = self._groups.setdefault(consumer.group, [])
        if consumer not in members:
            members.append(consumer)
            self._rebalance(consumer.group)

    def leave(self, consumer: MemoryConsumer) -> None:
        """Remove a member and share its partitions out among the others."""
        members = self._groups.get(consumer.group, [])
        if consumer in members:
            members.remove(consumer)
            consumer.membership.lose(consumer.membership.held())
            self._rebalance(consumer.group)

    def _rebalance_all(self) -> None:
        for group in self._groups:
            self._rebalance(group)

    def _rebalance(self, group: str) -> None:
        members = self._groups[group]
        shares: dict[MemoryConsumer, set[Partition]] = {member: set() for member in members}
        for topic in sorted(self._topics):
            readers = [member for member in members if topic in member.topics]
            for held in self._topics[topic]:
                if readers:
                    shares[readers[held.identity.index % len(readers)]].add(held.identity)
        # First everybody loses, then everybody gains: no partition ever has two owners.
        for member, share in shares.items():
            member.membership.lose(member.membership.held() - share)
        for member, share in shares.items():
            member.membership.gain(share - member.membership.held())
        self.changed.notify_all()


class MemoryConsumer:
    """A member of a group of a `MemoryLog`."""

    def __init__(self, log: MemoryLog, group: str, topics: Sequence[str]) -> None:
        self.group = group
        self.topics = frozenset(topics)
        self.membership = Membership()
        self._log = log
        self._positions: dict[Partition, int] = {}
        self._turn = 0
        self._closed = False
        self.hints: dict[Partition, Position] = {}
        with log.changed:
            log.join(self)

    def poll(self, timeout: float, limit: int) -> Sequence[Record]:
        """Return at most ``limit`` records; sooner and empty when the assignment changes."""
        if self._closed:
            raise RuntimeError("poll of a closed consumer")
        self._log.hook(HookCall("poll", "before", self))
        deadline = time.monotonic() + timeout
        news = self.membership.changes
        with self._log.changed:
            self._log.join(self)
            while not (records := self._collect(limit)):
                left = deadline - time.monotonic()
                if left <= 0 or news != self.membership.changes:
                    break
                self._log.changed.wait(left)
        self._log.hook(HookCall("poll", "after", self, records=tuple(records)))
        with self._log.changed:
            # Another member may have taken a partition while the hook ran.
            sought = self.membership.sought()
            records = [record for record in records if record.partition in sought]
            for record in records:
                self._positions[record.partition] = record.offset + 1
        return records

    def take_assigned(self) -> frozenset[Partition]:
        """Return the partitions assigned since the last call."""
        return self.membership.take_assigned()

    def take_lost(self) -> frozenset[Partition]:
        """Return the partitions revoked since the last call."""
        return self.membership.take_lost()

    def assignment(self) -> frozenset[Partition]:
        """Return the partitions held now."""
        return self.membership.held()

    def seek(self, partition: Partition, offset: int) -> None:
        """Go on at ``offset``; a partition that was lost meanwhile is ignored."""
        self._positions[partition] = offset
        self.membership.seek(partition)

    def bounds(self, partition: Partition) -> Bounds:
        """Return what the partition holds."""
        with self._log.changed:
            return self._log.find(partition, 0).bounds()

    def commit_hint(self, positions: Mapping[Partition, Position]) -> None:
        """Keep the positions in `hints`, where tests can see them."""
        self.hints.update(positions)

    def release(self, partition: Partition, below_offset: int) -> None:
        """Do nothing: retention is not imitated."""

    def close(self) -> None:
        """Leave the group."""
        self._closed = True
        with self._log.changed:
            self._log.leave(self)

    def _collect(self, limit: int) -> list[Record]:
        records: list[Record] = []
        sought = sorted(self.membership.sought())
        self._turn += 1
        for step in range(len(sought)):
            partition = sought[(self._turn + step) % len(sought)]
            try:
                held = self._log.find(partition, self._positions[partition])
                records += held.slice(self._positions[partition], limit - len(records))
            except PartitionReset:
                self.membership.silence(partition)
                raise
            if len(records) >= limit:
                break
        return records


class MemoryProducer(Producer):
    """Appends to a `MemoryLog`."""

    def __init__(self, log: MemoryLog) -> None:
        self._log = log
        self._failures = 0

    def begin(self, messages: Iterable[Message]) -> MemoryFlush:
        """Append all messages, in order. Only the acknowledgement is left to wait for."""
        batch = tuple(messages)
        placed: list[Appended] = []
        with self._failing():
            self._log.hook(HookCall("publish", "before", self, batch))
            for sent, message in enumerate(batch):
                if sent:
                    self._log.hook(HookCall("publish", "between", self, batch[:sent]))
                with self._log.changed:
                    record = self._log.append(message)
                placed.append(Appended(record.partition, record.offset))
        return MemoryFlush(self, self._failures, batch, placed)

    def close(self) -> None:
        """Do nothing."""

    def acknowledge(self, batch: Sequence[Message], failures: int) -> None:
        """Acknowledge what was begun after so many failures; `LogUnavailable` after another."""
        if failures != self._failures:
            raise LogUnavailable("an earlier send failed: send this again as well")
        with self._failing():
            self._log.hook(HookCall("publish", "after", self, batch))

    @contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self._failures += 1
            raise


@dataclass(frozen=True, slots=True)
class MemoryFlush:
    """Messages that are in a `MemoryLog` and not yet acknowledged."""

    _producer: MemoryProducer
    _failures: int
    _batch: Sequence[Message]
    _placed: Sequence[Appended]

    def wait(self, timeout: float = 30.0) -> Sequence[Appended]:
        """Return where they are: there is nothing to wait for."""
        del timeout
        self._producer.acknowledge(self._batch, self._failures)
        return self._placed


class MemoryReader:
    """Reads a `MemoryLog` without a group."""

    def __init__(self, log: MemoryLog) -> None:
        self._log = log

    def partitions(self, topic: str) -> Sequence[Partition]:
        """Return the topic's partitions; empty when it does not exist."""
        with self._log.changed:
            return [held.identity for held in self._log.partitions(topic)]

    def partition_for(self, topic: str, key: bytes) -> Partition:
        """Return the partition of ``key``."""
        partitions = self.partitions(topic)
        if not partitions:
            raise LogUnavailable(f"topic {topic} does not exist: create it first")
        return partitions[partition_index(key, len(partitions))]

    def bounds(self, partition: Partition) -> Bounds:
        """Return what the partition holds."""
        with self._log.changed:
            return self._log.find(partition, 0).bounds()

    def ends(self, partitions: Iterable[Partition]) -> Mapping[Partition, int]:
        """Return the end of each partition."""
        with self._log.changed:
            return {
                partition: self._log.find(partition, 0).bounds().end for partition in partitions
            }

    def read(
        self, partition: Partition, offset: int, timeout: float, limit: int
    ) -> tuple[Sequence[Record], int]:
        """Return records from ``offset`` on, and the offset to go on from."""
        deadline = time.monotonic() + timeout
        with self._log.changed:
            while True:
                records = self._log.find(partition, offset).slice(offset, limit)
                left = deadline - time.monotonic()
                if records or left <= 0:
                    return records, offset + len(records)
                self._log.changed.wait(left)

    def close(self) -> None:
        """Do nothing."""
