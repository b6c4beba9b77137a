"""The view of a third party, which reads topics and nothing else."""

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
    """A version and its published parameters."""

    version: Version
    parameters: Parameters


@dataclass(frozen=True, slots=True)
class SeenReceipt:
    """A receipt and its bytes."""

    receipt: Receipt
    raw: bytes


@dataclass(frozen=True, slots=True)
class SeenOrder:
    """A refresh was scheduled."""

    order: RefreshRequested


@dataclass(frozen=True, slots=True)
class SeenDeadLetter:
    """A record that could not be read."""

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
"""The reverse of the order of display: whatever caused a record is then usually read in the same
turn."""


class Subscriber:
    """Reads the topics that workers write; call `run` in a thread of its own."""

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
        self._requested = 0
        self._completed = 0
        self._turn = threading.Condition()

    def run(self, stop: threading.Event) -> None:
        """Read until told to stop, and close."""
        while not stop.is_set():
            with self._turn:
                requested = self._requested
            while self._read_once():
                pass
            with self._turn:
                self._completed = requested
                self._turn.notify_all()
                if self._requested == requested:
                    self._turn.wait(_PAUSE)
        self._reader.close()

    def keep_up(self) -> None:
        """Wait until everything that was published before this call has been read."""
        with self._turn:
            self._requested += 1
            turn = self._requested
            self._turn.notify_all()
            self._turn.wait_for(lambda: self._completed >= turn, _PATIENCE)

    def _read_once(self) -> bool:
        """Read each topic to its end; return whether there was anything."""
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
        if version.digest in self._versions:  # a duplicate: topics may contain them
            return None
        self._versions.add(version.digest)
        parameters = self._parameters.get(version.model_id)
        # The two topics have no order between them.
        if parameters is None or parameters.digest != version.digest:
            self._waiting[version.digest] = version
            return None
        return SeenVersion(version, parameters)
