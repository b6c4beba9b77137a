"""What worker processes write down of themselves, for the checker: one JSON object a line.

Wrapped around the real log and store; what they do is not changed. The lines of one process are
in order, each written by one system call, so that SIGKILL loses at most the last.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from lethe.consumers.contract import topics
from lethe.consumers.log.base import Appended, Consumer, Flush, Log, Message, Partition, Producer
from lethe.consumers.log.wrapped import WrappedLog
from lethe.engine.store.apply import ApplyAnswer, StoreChange
from lethe.engine.store.server.barrier import Barrier
from lethe.engine.store.store import ModelStore


class Diary:
    """One process's file."""

    def __init__(self, path: Path, name: str) -> None:
        self._handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._name = name

    def write(self, what: str, **facts: Any) -> None:
        """Write one line."""
        line = {"t": time.time(), "who": self._name, "what": what, **facts}
        os.write(self._handle, json.dumps(line).encode() + b"\n")


def read_diaries(directory: Path) -> list[dict[str, Any]]:
    """Return all lines of all processes by time; a line that was cut off by a kill is dropped."""
    lines: list[dict[str, Any]] = []
    for path in sorted(directory.glob("*.jsonl")):
        for line in path.read_bytes().split(b"\n"):
            if line.endswith(b"}"):
                lines.append(json.loads(line))
    return sorted(lines, key=lambda line: float(line["t"]))


class RecordedStore(ModelStore):
    """A store that writes down what came of each commit that it was told to apply."""

    def __init__(self, client: Any, barrier: Barrier, diary: Diary) -> None:
        super().__init__(client, barrier)
        self._diary = diary

    def apply(
        self, changes: Sequence[StoreChange], queue: Callable[[Any], None] | None = None
    ) -> tuple[list[ApplyAnswer], list[Any]]:
        """Apply, and write down each answer."""
        answers, noted = super().apply(changes, queue)
        for change, answer in zip(changes, answers, strict=True):
            self._diary.write(
                "commit",
                model=change.keys.model_id,
                commit=change.commit,
                digest=change.digest,
                offset=change.place.offset,
                applied=str(answer.applied),
                partitions=list(change.offsets),
                deleted=len(change.deleted),
            )
        return answers, noted


class RecordedProducer(Producer):
    """A producer that writes down which versions it sends, before and after."""

    def __init__(self, producer: Producer, diary: Diary) -> None:
        self._producer = producer
        self._diary = diary

    def begin(self, messages: Iterable[Message]) -> Flush:
        """Send."""
        batch = list(messages)
        named = [
            (said["model_id"], said["version"], said["digest"])
            for message in batch
            if message.topic == topics.VERSIONS
            for said in [json.loads(message.value or b"{}")]
        ]
        if not named:
            return self._producer.begin(batch)
        self._diary.write("sending", versions=named)
        try:
            return RecordedFlush(self._producer.begin(batch), self._diary, named)
        except BaseException:
            self._diary.write("unsent", versions=named)
            raise

    def close(self) -> None:
        """Release the connection."""
        self._producer.close()


class RecordedFlush:
    """Writes down whether the versions were acknowledged."""

    def __init__(self, flush: Flush, diary: Diary, named: Sequence[object]) -> None:
        self._flush = flush
        self._diary = diary
        self._named = named

    def wait(self, timeout: float = 30.0) -> Sequence[Appended]:
        """Wait."""
        came = "unsent"
        try:
            placed = self._flush.wait(timeout)
            came = "sent"
        finally:
            self._diary.write(came, versions=self._named)
        return placed


class RecordedConsumer:
    """A consumer that writes down what it is given and what it loses."""

    def __init__(self, consumer: Consumer, diary: Diary) -> None:
        self._consumer = consumer
        self._diary = diary

    def __getattr__(self, name: str) -> Any:
        return getattr(self._consumer, name)

    def take_assigned(self) -> frozenset[Partition]:
        """Return what was assigned."""
        return self._note("assigned", self._consumer.take_assigned())

    def take_lost(self) -> frozenset[Partition]:
        """Return what was lost."""
        return self._note("lost", self._consumer.take_lost())

    def seek(self, partition: Partition, offset: int) -> None:
        """Go on at an offset."""
        self._diary.write("seek", partition=str(partition), offset=offset)
        self._consumer.seek(partition, offset)

    def _note(self, what: str, partitions: frozenset[Partition]) -> frozenset[Partition]:
        if partitions:
            named = sorted(f"{p}" for p in partitions)
            self._diary.write(what, partitions=named, topic=next(iter(partitions)).topic)
        return partitions


class RecordedLog(WrappedLog):
    """A log whose consumers and producers are recorded."""

    def __init__(self, log: Log, diary: Diary) -> None:
        super().__init__(log)
        self._diary = diary

    def consumer(self, group: str, topics: Sequence[str]) -> Consumer:
        """Join a group."""
        return RecordedConsumer(super().consumer(group, topics), self._diary)

    def producer(self) -> Producer:
        """Return a new producer."""
        return RecordedProducer(super().producer(), self._diary)
