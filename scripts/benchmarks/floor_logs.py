"""The floor's two logs: Kafka by kafka-python, and streams of its own by redis-py.

Settings that cost time are the product's: what a fetch waits for and brings, in which order,
acknowledgement by all, idempotence, no linger. None of our code.
"""

from __future__ import annotations

import json
import struct
import time
from dataclasses import dataclass, field
from typing import Any

import redis
from kafka import KafkaConsumer, KafkaProducer
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.structs import OffsetAndMetadata, TopicPartition

_HINT_SECONDS = 0.5
_JOIN_SECONDS = 60.0
_LENGTHS = struct.Struct("<II")
_READ = """
local left, answer = tonumber(ARGV[1]), {}
for i, stream in ipairs(KEYS) do
  local entries = redis.call('XRANGE', stream, '(' .. ARGV[1 + i], '+', 'COUNT', left)
  answer[i], left = {stream, entries}, left - #entries
  if left == 0 then break end
end
return answer
"""


@dataclass(frozen=True, slots=True)
class Request:
    """A request that was polled."""

    partition: int
    offset: int
    model: str
    id: str
    rows: list[str]
    value: bytes


@dataclass(frozen=True, slots=True)
class Send:
    """A message to send: topic by its short name, key, value, headers."""

    topic: str
    key: str
    value: bytes
    headers: tuple[tuple[str, bytes], ...]


def _request(partition: int, offset: int, value: bytes) -> Request:
    body = json.loads(value)
    return Request(partition, offset, body["model_id"], body["request_id"], body["row_ids"], value)


class KafkaEnd:
    """A group member and an idempotent producer."""

    def __init__(self, bootstrap: str, names: dict[str, str], group: str, records: int) -> None:
        self._names = names
        self._records = records
        self._next_hint = 0.0
        self._consumer = KafkaConsumer(
            names["deletions"],
            bootstrap_servers=bootstrap,
            group_id=group,
            partition_assignment_strategy=[CooperativeStickyAssignor],
            session_timeout_ms=10_000,
            heartbeat_interval_ms=1_000,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            metrics_enabled=False,
            fetch_min_bytes=1,
            fetch_max_wait_ms=20,
            fetch_max_bytes=16 << 20,
            max_partition_fetch_bytes=2 << 20,
        )
        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            acks="all",
            enable_idempotence=True,
            max_in_flight_requests_per_connection=5,
            linger_ms=0,
            compression_type=None,
            max_request_size=9 << 20,
            metrics_enabled=False,
        )
        end = time.monotonic() + _JOIN_SECONDS
        while not self._consumer.assignment():
            # Long: kafka-python throws a join away whose answer comes between two polls.
            self._consumer.poll(timeout_ms=5_000, max_records=1)
            if time.monotonic() > end:
                raise TimeoutError(f"no partitions in {_JOIN_SECONDS:g} s")
        self._consumer.seek_to_beginning()

    def poll(self, seconds: float) -> list[Request]:
        """Return the next requests."""
        found = self._consumer.poll(timeout_ms=seconds * 1000, max_records=self._records)
        return [
            _request(tp.partition, record.offset, record.value)
            for tp, records in found.items()
            for record in records
        ]

    def begin(self, sends: list[Send]) -> list[Any]:
        """Send without waiting."""
        send, names = self._producer.send, self._names
        return [
            send(names[one.topic], one.value, one.key.encode(), list(one.headers)) for one in sends
        ]

    def wait(self, flush: list[Any]) -> list[int]:
        """Return the offsets, once all are acknowledged."""
        return [future.get(30).offset for future in flush]

    def hint(self, ends: dict[int, int]) -> None:
        """Commit offsets twice a second, without waiting."""
        if (now := time.monotonic()) < self._next_hint:
            return
        self._next_hint = now + _HINT_SECONDS
        topic = self._names["deletions"]
        self._consumer.commit_async(
            {TopicPartition(topic, p): OffsetAndMetadata(end, "", -1) for p, end in ends.items()}
        )

    def close(self) -> None:
        """Leave the group."""
        self._consumer.close(autocommit=False)
        self._producer.close(timeout=5)


@dataclass(slots=True)
class StreamsFlush:
    """A send, and the places of its messages once they are answered."""

    sends: list[Send]
    places: list[int] = field(default_factory=list)


class StreamsEnd:
    """Streams by the name of the topic: requests in several, all else in one each.

    An entry has the fields of the product's. Of the newest parameters' topic the older ones go.
    """

    def __init__(self, url: str, names: dict[str, str], partitions: int, records: int) -> None:
        self._names = names
        self._records = records
        self._reading = redis.Redis.from_url(url)
        self._script = self._reading.script_load(_READ)
        self._writing = redis.Redis.from_url(url).connection_pool.get_connection()
        self._positions = {f"{names['deletions']}:{p}": b"0" for p in range(partitions)}
        self._newest: dict[str, bytes] = {}
        self._flush: StreamsFlush | None = None

    def poll(self, seconds: float) -> list[Request]:
        """Return the next requests: one stream after the other, the last one last next time."""
        names, ids = [*self._positions], [*self._positions.values()]
        found: Any = self._reading.evalsha(self._script, len(names), *names, self._records, *ids)
        answer = [
            (name, [(entry, dict(zip(flat[::2], flat[1::2], strict=True))) for entry, flat in some])
            for name, some in found
        ]
        if not any(entries for _, entries in answer) and seconds > 0:
            block = int(seconds * 1000)
            answer = self._reading.xread(self._positions, self._records, block) or []
        requests: list[Request] = []
        for name, entries in answer:
            key = name.decode()
            for entry, fields in entries[: self._records - len(requests)]:
                number = int(entry.partition(b"-")[0])
                requests.append(_request(int(key.rpartition(":")[2]), number, fields[b"v"]))
                del self._positions[key]
                self._positions[key] = entry
        return requests

    def begin(self, sends: list[Send]) -> StreamsFlush:
        """Send without reading the answers; those of the send before are read first."""
        if self._flush is not None:
            self.wait(self._flush)
        commands: list[tuple[Any, ...]] = []
        for one in sends:
            stream, now = self._names[one.topic], f"{time.time() * 1000:.0f}"
            headers = b"".join(
                part
                for name, value in one.headers
                for part in (_LENGTHS.pack(len(name), len(value)), name.encode(), value)
            )
            fields = ("t", now, "h", headers, "k", one.key, "v", one.value)
            commands.append(("XADD", stream, "*", *fields))
            if one.topic == "models":
                commands.append(("XDEL", stream, self._newest.get(one.key, b"0-1")))
        self._writing.send_packed_command(self._writing.pack_commands(commands))
        self._flush = StreamsFlush(sends)
        return self._flush

    def wait(self, flush: StreamsFlush) -> list[int]:
        """Return places, once all are answered."""
        if flush is self._flush:
            self._flush = None
            for one in flush.sends:
                entry: Any = self._writing.read_response()
                flush.places.append(int(entry.partition(b"-")[0]))
                if one.topic == "models":
                    self._newest[one.key] = entry
                    self._writing.read_response()
        return flush.places

    def hint(self, ends: dict[int, int]) -> None:
        """Do nothing: the product's hint costs nothing here either."""

    def close(self) -> None:
        """Hang up."""
        self._writing.disconnect()
