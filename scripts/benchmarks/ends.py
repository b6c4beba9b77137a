"""The two ends of a side: requests go in, receipts and versions come out.

They are the same for worker and floor, but for the floor in single-node mode, whose streams are its
own.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import redis

from lethe.consumers.contract import topics
from lethe.consumers.contract.events import MODEL_VERSION, Version
from lethe.consumers.contract.signatures import TrustedKeys
from lethe.consumers.contract.version_chain import check_version
from lethe.consumers.log.base import Log, Message, Partition, Record
from lethe.engine.store.layout.keys import partition_index

ANSWER_SECONDS = 60.0
SENT = (topics.COMMITS, topics.RECEIPTS, topics.VERSIONS, topics.MODELS)
_READ = 1000


class Stuck(Exception):
    """A process ended, or no answer came."""


@dataclass(frozen=True, slots=True)
class Answers:
    """Receipts that came: when (s, by the log), and how many of them say APPLIED."""

    times: Sequence[float]
    applied: int


class LogEnds:
    """The ends on one of our logs."""

    def __init__(self, log: Log, prefix: str) -> None:
        self._prefix = prefix
        self._producer, self._reader = log.producer(), log.reader()
        self._receipts = dict.fromkeys(self._reader.partitions(prefix + topics.RECEIPTS), 0)
        self._versions = dict.fromkeys(self._reader.partitions(prefix + topics.VERSIONS), 0)

    def send(self, requests: Sequence[tuple[bytes, bytes]]) -> None:
        """Send requests (key and value), and return once they are in the log."""
        self.publish(topics.DELETIONS, requests)

    def publish(self, topic: str, messages: Sequence[tuple[bytes, bytes]]) -> None:
        """Send messages (key and value) to a topic, and return once they are in the log."""
        topic = self._prefix + topic
        self._producer.publish(
            [Message(topic, key, value) for key, value in messages], timeout=ANSWER_SECONDS
        )

    def answered(self) -> int:
        """Return how many receipts there are."""
        return sum(self._reader.ends(self._receipts).values())

    def answers(self) -> Answers:
        """Return the receipts since the last call."""
        times: list[float] = []
        applied = 0
        ends = self._reader.ends(self._receipts)
        for partition, begin in self._receipts.items():
            offset = begin
            while offset < ends[partition]:
                records, offset = self._reader.read(partition, offset, 1.0, _READ)
                times += [record.timestamp_ms / 1e3 for record in records]
                applied += sum(b'"APPLIED"' in (record.value or b"") for record in records)
            self._receipts[partition] = offset
        return Answers(times, applied)

    def skip_versions(self) -> None:
        """Pass over the versions so far."""
        self._versions |= self._reader.ends(self._versions)

    def wait_version(self) -> None:
        """Return once there is another version; of one partition only."""
        self._next_versions()

    def _next_versions(self) -> Sequence[Record]:
        [partition] = self._versions
        deadline = time.monotonic() + ANSWER_SECONDS
        while time.monotonic() < deadline:
            records, after = self._reader.read(partition, self._versions[partition], 1.0, _READ)
            self._versions[partition] = after
            if records:
                return records
        raise Stuck(f"no version in {ANSWER_SECONDS:g} s")

    def sent_bytes(self) -> int:
        """Return the bytes of all values in the topics that the side writes to."""
        found = 0
        for topic in SENT:
            for partition in self._reader.partitions(self._prefix + topic):
                found += sum(map(len, self.values(partition)))
        return found

    def values(self, partition: Partition) -> Iterator[bytes]:
        """Yield the values of a partition."""
        bounds = self._reader.bounds(partition)
        offset = bounds.begin
        while offset < bounds.end:
            records, offset = self._reader.read(partition, offset, 1.0, _READ)
            yield from (record.value or b"" for record in records)

    def versions(self) -> list[bytes]:
        """Return the values of all versions."""
        return [value for partition in self._versions for value in self.values(partition)]

    def close(self) -> None:
        """Release the connections."""
        self._producer.close()
        self._reader.close()


class SubscriberEnds(LogEnds):
    """The ends of a subscriber, which checks each version's link, and its signature if it can.

    Attributes
    ----------
    newest
        Of each model, its newest version.
    """

    def __init__(self, log: Log, prefix: str, trusted: TrustedKeys | None) -> None:
        super().__init__(log, prefix)
        self._trusted = trusted
        self.newest: dict[str, Version] = {}
        self.skip_versions()

    def skip_versions(self) -> None:
        """Read and check the versions so far."""
        [partition] = self._versions
        end = self._reader.bounds(partition).end
        while self._versions[partition] < end:
            self.next_versions()

    def next_versions(self) -> list[Version]:
        """Wait for the next versions; return them, checked."""
        records = self._next_versions()
        if self._trusted is not None:
            for record in records:
                self._trusted.check(MODEL_VERSION, record.value or b"", record.headers)
        versions = [Version.model_validate_json(record.value or b"") for record in records]
        for version in versions:
            check_version(version, self.newest.get(version.model_id))
            self.newest[version.model_id] = version
        return versions

    def wait_version(self) -> None:
        """Return once a version of a request was seen and checked."""
        while not any(version.request_ids for version in self.next_versions()):
            pass


class StreamEnds:
    """The ends on the floor's own streams."""

    def __init__(self, client: redis.Redis, partitions: int) -> None:
        self._client = client
        self._partitions = partitions
        self._seen: bytes = b"0"
        self._version: bytes = b"0"

    def send(self, requests: Sequence[tuple[bytes, bytes]]) -> None:
        """Send requests (key and value), and return once they are in the log."""
        pipeline = self._client.pipeline(transaction=False)
        for key, value in requests:
            stream = f"{topics.DELETIONS}:{partition_index(key, self._partitions)}"
            pipeline.xadd(stream, {"t": 0, "h": b"", "k": key, "v": value})
        pipeline.execute()

    def answered(self) -> int:
        """Return how many receipts there are."""
        return int(self._client.xlen(topics.RECEIPTS))

    def answers(self) -> Answers:
        """Return the receipts since the last call."""
        found: Any = self._client.xrange(topics.RECEIPTS, b"(" + self._seen)
        if found:
            self._seen = found[-1][0]
        times = [int(entry.partition(b"-")[0]) / 1e3 for entry, _ in found]
        return Answers(times, len(times))

    def skip_versions(self) -> None:
        """Pass over the versions so far."""
        last: Any = self._client.xrevrange(topics.VERSIONS, count=1)
        self._version = last[0][0] if last else b"0"

    def wait_version(self) -> None:
        """Return once there is another version."""
        answer: Any = self._client.xread(
            {topics.VERSIONS: self._version}, block=int(ANSWER_SECONDS * 1000)
        )
        if not answer:
            raise Stuck(f"no version in {ANSWER_SECONDS:g} s")
        self._version = answer[0][1][-1][0]

    def sent_bytes(self) -> int:
        """Return the bytes of all values in the topics that the side writes to."""
        found: Any = [self._client.xrange(topic) for topic in SENT]
        return sum(len(fields[b"v"]) for entries in found for _, fields in entries)


Ends: TypeAlias = LogEnds | StreamEnds
