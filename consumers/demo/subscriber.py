"""What a third party sees: it reads topics and nothing else."""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from lethe.consumers.contract import cloudevents, topics
from lethe.consumers.contract.events import Parameters, Receipt, RefreshRequested, Version
from lethe.consumers.log.base import Log, Partition, Record

_PAUSE = 0.005
_PATIENCE = 10.0
_LIMIT = 256


@dataclass(frozen=True, slots=True)
class SeenVersion:
    """A version, with the parameters that were published for it."""

    version: Version
    parameters: Parameters


@dataclass(frozen=True, slots=True)
class SeenReceipt:
    """A receipt, and its bytes."""

    receipt: Receipt
    raw: bytes


@dataclass(frozen=True, slots=True)
class SeenOrder:
    """A refresh was ordered."""

    order: RefreshRequested


@dataclass(frozen=True, slots=True)
class SeenDeadLetter:
    """A record that nobody could read."""

    code: str
    detail: str


Seen = SeenVersion | SeenReceipt | SeenOrder | SeenDeadLetter

_READING_ORDER = (
    topics.REFRESH_JOBS,
    topics.VERSIONS,
    topics.MODELS,
    topics.RECEIPTS,
    topics.DEAD_LETTERS,
)
"""The reverse of the order in which things are shown: what led to a record that was read is then
mostly read as well, in the same turn."""


class Subscriber:
    """Reads the topics that workers write; `run` belongs to a thread of its own."""

    def __init__(self, log: Log) -> None:
        self.seen: queue.SimpleQueue[Seen] = queue.SimpleQueue()
        self._reader = log.reader()
        self._positions: dict[Partition, int] = {
            partition: self._reader.bounds(partition).begin
            for topic in _READING_ORDER
            for partition in self._reader.partitions(topic)
        }
        self._parameters: dict[str, Parameters] = {}
        self._waiting: dict[str, Version] = {}
        self._versions: set[str] = set()
        self._asked = 0
        self._answered = 0
        self._turn = threading.Condition()

    def run(self, stop: threading.Event) -> None:
        """Read until told to stop, and close."""
        while not stop.is_set():
            with self._turn:
                asked = self._asked
            while self._read_once():
                pass
            with self._turn:
                self._answered = asked
                self._turn.notify_all()
                if self._asked == asked:
                    self._turn.wait(_PAUSE)
        self._reader.close()

    def keep_up(self) -> None:
        """Wait until everything that was published before this call has been read."""
        with self._turn:
            self._asked += 1
            wanted = self._asked
            self._turn.notify_all()
            self._turn.wait_for(lambda: self._answered >= wanted, _PATIENCE)

    def _read_once(self) -> bool:
        """Read each topic as far as it goes; return whether there was anything."""
        read: list[Record] = []
        for partition, offset in self._positions.items():
            records, after = self._reader.read(partition, offset, 0.0, _LIMIT)
            self._positions[partition] = after
            read.extend(records)
        for topic in reversed(_READING_ORDER):
            self._take(topic, [record for record in read if record.partition.topic == topic])
        return bool(read)

    def _take(self, topic: str, records: Sequence[Record]) -> None:
        for record in records:
            seen = self._seen(topic, record)
            if seen is not None:
                self.seen.put(seen)

    def _seen(self, topic: str, record: Record) -> Seen | None:
        if topic == topics.DEAD_LETTERS:
            headers = dict(record.headers)
            code, detail = headers["lethe-error-code"], headers["lethe-error"]
            return SeenDeadLetter(code.decode(), detail.decode())
        data = cloudevents.parse(record).data
        if topic == topics.MODELS:
            parameters = Parameters.model_validate(data)
            self._parameters[parameters.model_id] = parameters
            waiting = self._waiting.pop(parameters.digest, None)
            return None if waiting is None else SeenVersion(waiting, parameters)
        if topic == topics.RECEIPTS:
            return SeenReceipt(Receipt.model_validate(data), record.value or b"")
        if topic == topics.REFRESH_JOBS:
            return SeenOrder(RefreshRequested.model_validate(data))
        return self._version(Version.model_validate(data))

    def _version(self, version: Version) -> SeenVersion | None:
        if version.digest in self._versions:  # a repeat: no topic is promised without
            return None
        self._versions.add(version.digest)
        found = self._parameters.get(version.model_id)
        if found is None or found.digest != version.digest:  # no order is promised between the two
            self._waiting[version.digest] = version
            return None
        return SeenVersion(version, found)
