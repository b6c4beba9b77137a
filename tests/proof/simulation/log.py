"""The log of a simulation: it knows who reads, forgets nothing, and may let an append land late."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from lethe.consumers.contract import topics
from lethe.consumers.log.base import Message, Partition, Record, TopicSpec
from tests.support.memory_log import HookCall, MemoryConsumer, MemoryLog, MemoryReader


class Watcher(Protocol):
    """Who is told what happens on the log."""

    def point(self, name: str) -> None:
        """Pass a point of whoever runs now."""
        ...

    def joined(self, consumer: MemoryConsumer) -> None:
        """Remember whose consumer this is."""
        ...

    def seconds(self) -> float:
        """Return the virtual time."""
        ...

    def appending(self, message: Message) -> None:
        """Look at a message at the moment at which it becomes visible."""
        ...

    def appended(self, record: Record) -> None:
        """Look at a record that is in the log by now."""
        ...

    def broken(self, messages: Sequence[Message]) -> None:
        """Take messages whose sender was cut off, or ended, before they arrived."""
        ...


class SimulatedLog(MemoryLog):
    """A log in memory whose every use is a point, and that forgets nothing for the checks."""

    def __init__(self, watcher: Watcher) -> None:
        def hook(moment: HookCall) -> None:
            try:
                watcher.point(f"log: {moment.call} {moment.stage}")
            except BaseException:
                if (moment.call, moment.stage) == ("publish", "before"):
                    watcher.broken(moment.messages)
                raise

        self._lives: dict[str, list[str]] = {}  # by name, ids of topics as they were made
        super().__init__(hook=hook, clock=watcher.seconds)
        self._watcher = watcher
        self._gone: list[Record] = []
        self._changes: dict[tuple[str, int], Record] = {}

    def ensure_topics(self, specs: Sequence[TopicSpec]) -> Sequence[str]:
        """Create the missing topics."""
        made = super().ensure_topics(specs)
        for name in made:
            topic_id = self.partitions(name)[0].identity.topic_id
            self._lives.setdefault(name, []).append(topic_id)
        return made

    def lives(self, topic: str) -> list[str]:
        """Return the ids of all topics of a name, in the order in which they were made."""
        return self._lives[topic]

    def consumer(self, group: str, topics: Sequence[str]) -> MemoryConsumer:
        """Join a group."""
        consumer = super().consumer(group, topics)
        self._watcher.joined(consumer)
        return consumer

    def reader(self) -> MemoryReader:
        """Return a reader whose reads are points as well."""
        return _Reader(self, self._watcher)

    def append(self, message: Message) -> Record:
        """Add one message to its partition."""
        self._watcher.appending(message)
        record = super().append(message)
        self._note(record)
        return record

    def append_to(self, index: int, message: Message) -> None:
        """Add a message to a partition that its key does not name: another partitioner."""
        with self.changed:
            held = self.partitions(message.topic)[index]
            record = Record(
                held.identity, held.bounds().end, message.key, message.value, message.headers,
                int(self.clock() * 1000),
            )  # fmt: skip
            held.records.append(record)
            self._note(record)
            self.changed.notify_all()

    def _note(self, record: Record) -> None:
        if record.partition.topic == topics.ROW_CHANGES:
            self._changes[str(record.partition), record.offset] = record
        self._watcher.appended(record)

    def trim(self, partition: Partition, below_offset: int) -> None:
        """Remove records, but keep them for the checks."""
        held = self.find(partition, below_offset)
        self._gone += [record for record in held.records if record.offset < below_offset]
        super().trim(partition, below_offset)

    def delete_topic(self, name: str) -> None:
        """Forget a topic, but keep its records for the checks."""
        for held in self.partitions(name):
            self._gone += held.records
        super().delete_topic(name)

    def everything(self, topic: str) -> list[Record]:
        """Return all records that a topic ever had, by partition and offset."""
        records = [record for record in self._gone if record.partition.topic == topic]
        for held in self.partitions(topic):
            records += held.records
        return records

    def value_at(self, partition: str, offset: int) -> bytes:
        """Return the value of a change of rows, also of one that was removed since."""
        found = self._changes[partition, offset].value
        assert found is not None
        return found


class _Reader(MemoryReader):
    def __init__(self, log: MemoryLog, watcher: Watcher) -> None:
        super().__init__(log)
        self._watcher = watcher

    def read(
        self, partition: Partition, offset: int, timeout: float, limit: int
    ) -> tuple[Sequence[Record], int]:
        """Return records from ``offset`` on, and the offset to go on from."""
        self._watcher.point("log: read")
        return super().read(partition, offset, timeout, limit)
