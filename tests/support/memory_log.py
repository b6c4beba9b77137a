"""A log in memory: for fast tests, and for the seeded simulator.

It keeps every promise of `consumers.log.base` within one process, and tests can make it fail: a
*hook* is called around each publish and poll, and may raise.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Condition
from typing import Literal

from lethe.consumers.log.base import (
    Appended,
    Bounds,
    Log,
    Message,
    Partition,
    PartitionReset,
    Producer,
    Reader,
    Record,
    TopicSpec,
    missing_topic,
)
from lethe.consumers.log.membership import GroupConsumer
from lethe.engine.errors import LogUnavailable


@dataclass(frozen=True, slots=True)
class HookCall:
    """The point at which a hook is called.

    If a hook raises *before* a publish, the log has none of the messages; *between*, it has those
    up to this point; *after*, it has all of them and only the acknowledgement is lost. A poll
    whose hook raises moves no position: it delivers the records again.
    """

    call: Literal["publish", "poll"]
    stage: Literal["before", "between", "after"]
    client: object
    messages: Sequence[Message] = ()
    records: Sequence[Record] = ()


Hook = Callable[[HookCall], None]


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


class MemoryLog(Log):
    """Topics in memory, shared by the consumers, producers and readers created from it.

    Parameters
    ----------
    hook : callable, optional
        Called with a `HookCall` around each publish and poll, outside the lock; it may raise.
    clock : callable, optional
        Returns the records' timestamps, in seconds since 1970.
    """

    name = "memory"

    def __init__(self, hook: Hook | None = None, clock: Callable[[], float] = time.time) -> None:
        self.hook: Hook = hook or (lambda _call: None)
        self.clock = clock
        self.changed = Condition()
        self._topics: dict[str, list[_Partition]] = {}
        self._groups: dict[str, list[MemoryConsumer]] = {}

    def ensure_topics(self, specs: Sequence[TopicSpec]) -> Sequence[str]:
        """Create the missing topics; compaction and retention are not simulated."""
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
        """Delete a topic; if recreated, it has a new topic id and starts at offset 0."""
        with self.changed:
            self._topics.pop(name, None)
            self._rebalance_all()

    def add_partitions(self, name: str, partitions: int) -> None:
        """Increase the number of partitions, as an administrator can in Kafka."""
        with self.changed:
            present = self._topics[name]
            topic_id = present[0].identity.topic_id
            for index in range(len(present), partitions):
                present.append(_Partition(Partition(name, topic_id, index)))
            self._rebalance_all()

    def trim(self, partition: Partition, below_offset: int) -> None:
        """Remove the records below ``below_offset``."""
        with self.changed:
            trimmed = self.find(partition, below_offset)
            begin = min(max(below_offset, trimmed.begin), trimmed.bounds().end)
            del trimmed.records[: begin - trimmed.begin]
            trimmed.begin = begin

    def truncate(self, partition: Partition, end: int) -> None:
        """Remove the records from ``end`` on, as a failover that loses writes does."""
        with self.changed:
            truncated = self.find(partition, end)
            del truncated.records[max(end - truncated.begin, 0) :]

    def evict(self, consumer: MemoryConsumer) -> None:
        """Take all partitions from a member, as a session timeout does; its next poll rejoins."""
        with self.changed:
            self.leave(consumer)

    def consumer(self, group: str, topics: Sequence[str]) -> MemoryConsumer:
        """Join ``group``; its partitions are redistributed at once."""
        return MemoryConsumer(self, group, topics)

    def producer(self) -> MemoryProducer:
        """Return a new producer."""
        return MemoryProducer(self)

    def reader(self) -> MemoryReader:
        """Return a new reader."""
        return MemoryReader(self)

    def ping(self) -> str:
        """Return a short line about this log."""
        return f"in memory, {len(self._topics)} topics"

    def close(self) -> None:
        """Do nothing: the log lives as long as something refers to it."""

    def bounds(self, partition: Partition) -> Bounds:
        """Return the partition's bounds."""
        with self.changed:
            return self.find(partition, 0).bounds()

    # The methods below are for the classes that follow; callers hold `changed`.

    def partitions(self, topic: str) -> list[_Partition]:
        """Return the partitions of a topic; empty if it does not exist."""
        return self._topics.get(topic, [])

    def find(self, partition: Partition, position: int) -> _Partition:
        """Return the records of ``partition``, or raise if its topic is gone."""
        for candidate in self.partitions(partition.topic):
            if candidate.identity == partition:
                return candidate
        raise PartitionReset(partition, position, None)

    def append(self, message: Message) -> Record:
        """Add one message to its partition."""
        topic = self.partitions(message.topic)
        if not topic:
            raise missing_topic(message.topic, "memory")
        target = topic[message.index_among(len(topic))]
        record = Record(
            target.identity,
            target.bounds().end,
            message.key,
            message.value,
            message.headers,
            int(self.clock() * 1000),
        )
        target.records.append(record)
        self.changed.notify_all()
        return record

    def join(self, consumer: MemoryConsumer) -> None:
        """Add a member to its group and redistribute the partitions."""
        members = self._groups.setdefault(consumer.group, [])
        if consumer not in members:
            members.append(consumer)
            self._rebalance(consumer.group)

    def leave(self, consumer: MemoryConsumer) -> None:
        """Remove a member and distribute its partitions among the others."""
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
            for partition in self._topics[topic]:
                if readers:
                    owner = readers[partition.identity.index % len(readers)]
                    shares[owner].add(partition.identity)
        # All losses come before any gain: no partition ever has two owners.
        for member, share in shares.items():
            member.membership.lose(member.membership.held() - share)
        for member, share in shares.items():
            member.membership.gain(share - member.membership.held())
        self.changed.notify_all()


class MemoryConsumer(GroupConsumer):
    """A member of a group of a `MemoryLog`."""

    def __init__(self, log: MemoryLog, group: str, topics: Sequence[str]) -> None:
        super().__init__(group, topics)
        self._log = log
        self._turn = 0
        with log.changed:
            log.join(self)

    def _poll(self, deadline: float, limit: int) -> Sequence[Record]:
        self._log.hook(HookCall("poll", "before", self))
        changes = self.membership.changes
        with self._log.changed:
            self._log.join(self)
            while not (records := self._collect(limit)):
                remaining = deadline - time.monotonic()
                if remaining <= 0 or changes != self.membership.changes:
                    break
                self._log.changed.wait(remaining)
        self._log.hook(HookCall("poll", "after", self, records=tuple(records)))
        with self._log.changed:
            # Another member may have taken a partition while the hook ran.
            sought = self.membership.sought()
            records = [record for record in records if record.partition in sought]
            for record in records:
                self._positions[record.partition] = record.offset + 1
        return records

    def bounds(self, partition: Partition) -> Bounds:
        """Return the partition's bounds."""
        return self._log.bounds(partition)

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
                position = self._positions[partition]
                stored = self._log.find(partition, position)
                records += stored.slice(position, limit - len(records))
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
        """Append all messages, in order. Only the acknowledgement remains to wait for."""
        batch = tuple(messages)
        appended: list[Appended] = []
        with self._failing():
            self._log.hook(HookCall("publish", "before", self, batch))
            for sent, message in enumerate(batch):
                if sent:
                    self._log.hook(HookCall("publish", "between", self, batch[:sent]))
                with self._log.changed:
                    record = self._log.append(message)
                appended.append(Appended(record.partition, record.offset))
        return MemoryFlush(self, self._failures, batch, appended)

    def close(self) -> None:
        """Do nothing."""

    def acknowledge(self, batch: Sequence[Message], failures: int) -> None:
        """Acknowledge a send begun after ``failures`` failures, unless another followed."""
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
    """Messages that are in a `MemoryLog` but not acknowledged yet."""

    _producer: MemoryProducer
    _failures: int
    _batch: Sequence[Message]
    _appended: Sequence[Appended]

    def wait(self, timeout: float = 30.0) -> Sequence[Appended]:
        """Return where they are; there is nothing to wait for."""
        del timeout
        self._producer.acknowledge(self._batch, self._failures)
        return self._appended


class MemoryReader(Reader):
    """Reads a `MemoryLog` without a group."""

    place = "memory"

    def __init__(self, log: MemoryLog) -> None:
        self._log = log

    def partitions(self, topic: str) -> Sequence[Partition]:
        """Return the topic's partitions; empty if it does not exist."""
        with self._log.changed:
            return [partition.identity for partition in self._log.partitions(topic)]

    def bounds(self, partition: Partition) -> Bounds:
        """Return the partition's bounds."""
        return self._log.bounds(partition)

    def ends(self, partitions: Iterable[Partition]) -> Mapping[Partition, int]:
        """Return the end of each partition."""
        with self._log.changed:
            return {partition: self._log.bounds(partition).end for partition in partitions}

    def read(
        self, partition: Partition, offset: int, timeout: float, limit: int
    ) -> tuple[Sequence[Record], int]:
        """Return records from ``offset`` on, and the offset to continue from."""
        deadline = time.monotonic() + timeout
        with self._log.changed:
            while True:
                records = self._log.find(partition, offset).slice(offset, limit)
                remaining = deadline - time.monotonic()
                if records or remaining <= 0:
                    return records, offset + len(records)
                self._log.changed.wait(remaining)

    def close(self) -> None:
        """Do nothing."""
