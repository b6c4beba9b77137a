"""How a log is stored in Redis: key names, entry ids, the layout of an entry, the connection.

==================================  ===========================================================
``lethe:log:{T}:topic``             hash: id, partitions, compacted, max_message_bytes,
                                    retention_ms (-1: records are not removed by age), and per
                                    partition ``next:P`` and ``begin:P`` (0 when absent)
``lethe:log:{T}:ID:P``              stream: partition P of the incarnation ID of topic T
``lethe:log:{T}:ID:P:latest``       hash, compacted topics only: key -> id of its newest entry
``lethe:log:{T}:members:G``         sorted set: the live members of group G
``lethe:log:{T}:leases:G``          hash: owner, expiry and tenure per partition
``lethe:log:{T}:hints:G``           hash: where group G resumes, for people to look at
==================================  ===========================================================

The braces are Redis's hash tag: all keys of a topic are in one slot, so the scripts run on a
cluster. The id of a topic is part of its streams' names, so that a recreated topic can never be
read with the offsets of the old one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from redis.sentinel import SentinelConnectionPool

from lethe.consumers.log.base import Headers, Partition, Record
from lethe.engine.errors import CorruptState, InvalidData, LogUnavailable
from lethe.engine.store.layout.reading import integer, parse_text
from lethe.engine.store.server.connection import address, is_wrong_type, refusal

# A server that takes longer than this to reply counts as unreachable. Blocking reads wait less.
REPLY_TIMEOUT = 10.0
MAX_BLOCK = 2.0

# Limits, each with its reason. A running script blocks every other client, so one call appends at
# most this much; a larger publish takes several calls, in order.
MAX_MESSAGES_PER_CALL = 256
MAX_BYTES_PER_CALL = 8 * 1_048_576
# Redis has no limit on the bytes of one answer: this times 1 MiB must fit in memory.
MAX_RECORDS_PER_READ = 256
# The heartbeat looks at every partition of a topic.
MAX_PARTITIONS = 256
MAX_HEADER_BYTES = 65_536

_LENGTHS = struct.Struct("<II")


@dataclass(frozen=True, slots=True)
class Topic:
    """The topic's record."""

    name: str
    topic_id: str
    partitions: int
    compacted: bool
    max_message_bytes: int
    retention_ms: int = -1

    def partition(self, index: int) -> Partition:
        """Return one partition."""
        return Partition(self.name, self.topic_id, index)


def topic_key(topic: str) -> str:
    """Return the key of the topic's record."""
    return f"lethe:log:{{{topic}}}:topic"


def stream_key(partition: Partition) -> str:
    """Return the key of the partition's stream."""
    return f"lethe:log:{{{partition.topic}}}:{partition.topic_id}:{partition.index}"


def latest_key(partition: Partition) -> str:
    """Return the key of the partition's latest-value index."""
    return f"{stream_key(partition)}:latest"


def group_key(topic: str, kind: str, group: str) -> str:
    """Return a key of a group: ``kind`` is members, leases or hints."""
    return f"lethe:log:{{{topic}}}:{kind}:{group}"


def read_topic(client: redis.Redis, name: str) -> Topic | None:
    """Return the topic's record; None if there is no such topic."""
    fields = ("id", "partitions", "compacted", "max_message_bytes", "retention_ms")
    values: Any = client.hmget(topic_key(name), fields)
    *required, retention = values
    if None in required:
        return None
    topic_id, partitions, compacted, largest = required
    what = f"the log's topic {name}"
    topic = Topic(
        name,
        parse_text(topic_id, f"{what}, its id"),
        integer(partitions, f"{what}, its partitions"),
        compacted == b"1",
        integer(largest, f"{what}, its largest message"),
        -1 if retention is None else integer(retention, f"{what}, its retention"),
    )
    # Every reader of the topic builds a list of its partitions.
    if not 1 <= topic.partitions <= MAX_PARTITIONS:
        raise CorruptState(
            f"{what} has {topic.partitions} partitions, but 1 to {MAX_PARTITIONS} are possible: "
            "restore its record"
        )
    return topic


def after(offset: int) -> str:
    """Return the id to pass to XREAD to read from ``offset`` on (XREAD excludes the id itself)."""
    return f"{offset}-0"


def offset_of(entry_id: bytes) -> int:
    """Return the offset of an entry: its id minus one, because Redis has no entry 0-0."""
    number, _, sequence = entry_id.partition(b"-")
    if sequence != b"0" or not number.isdigit():
        raise CorruptState(f"stream entry {entry_id[:40]!r} was not written by Lethe")
    return integer(number, "the id of a stream entry") - 1


def decode_entry(partition: Partition, entry_id: bytes, fields: Mapping[bytes, bytes]) -> Record:
    """Return the record of one stream entry.

    Raises
    ------
    CorruptState
        Lethe's script did not write the entry: only `consumers.log` may append, because it also
        counts the records.
    """
    offset = offset_of(entry_id)
    if b"h" not in fields or b"t" not in fields:
        raise CorruptState(f"{partition}, offset {offset}: the entry was not written by Lethe")
    return Record(
        partition,
        offset,
        fields.get(b"k"),
        fields.get(b"v"),
        decode_headers(fields[b"h"]),
        integer(fields[b"t"], f"{partition}, offset {offset}, its time"),
    )


def encode_headers(headers: Headers) -> bytes:
    """Return headers as bytes: for each, the lengths of name and value, then both."""
    parts: list[bytes] = []
    for name, value in headers:
        encoded = name.encode()
        parts += (_LENGTHS.pack(len(encoded), len(value)), encoded, value)
    return b"".join(parts)


def decode_headers(data: bytes) -> Headers:
    """Return the headers that `encode_headers` wrote.

    Raises
    ------
    CorruptState
        The lengths do not add up, or a name is not text.
    """
    headers: list[tuple[str, bytes]] = []
    at = 0
    while at < len(data):
        if at + _LENGTHS.size > len(data):
            raise CorruptState("a stream entry's headers are cut short")
        name_length, value_length = _LENGTHS.unpack_from(data, at)
        at += _LENGTHS.size
        end = at + name_length + value_length
        if end > len(data):
            raise CorruptState("a stream entry's headers are cut short")
        name = parse_text(data[at : at + name_length], "the name of a stream entry's header")
        headers.append((name, data[at + name_length : end]))
        at = end
    return tuple(headers)


def script(name: str) -> str:
    """Return the text of one of the Lua scripts next to this module."""
    return Path(__file__).with_name(f"{name}.lua").read_text(encoding="utf-8")


def own_client(client: redis.Redis) -> redis.Redis:
    """Return a client to the same server, with connection settings of our own.

    It does not retry: if the answer to a write is lost, the caller decides whether to repeat it,
    and a server that is gone must be noticed. It returns bytes, in RESP2's types.
    """
    pool = client.connection_pool
    if isinstance(pool, SentinelConnectionPool):
        raise InvalidData(
            "Redis Streams need a plain connection to one server; name the primary itself"
        )
    settings: dict[str, Any] = {
        name: value
        for name, value in pool.connection_kwargs.items()
        if not name.startswith(("maint_notifications", "orig_", "himport_", "event_"))
    }
    settings |= {
        "retry": Retry(NoBackoff(), 0),
        "retry_on_error": [],
        "socket_timeout": REPLY_TIMEOUT,
        "decode_responses": False,
        "protocol": 2,
        "legacy_responses": True,
    }
    return redis.Redis.from_pool(
        redis.ConnectionPool(connection_class=pool.connection_class, **settings)
    )


@contextmanager
def reaching(client: redis.Redis) -> Iterator[None]:
    """Convert redis-py's errors about the server to `LogUnavailable`.

    A key of an unexpected type becomes `CorruptState`.
    """
    try:
        yield
    except (redis.AuthenticationError, redis.exceptions.NoPermissionError) as error:
        raise LogUnavailable(
            f"the log's Redis at {address(client)} {refusal(error, client)}"
        ) from error
    except (redis.ConnectionError, redis.TimeoutError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        advice = (
            refusal(error, client)
            or "start it, or name another one with --redis or LETHE_REDIS_URL"
        )
        raise LogUnavailable(
            f"the log's Redis at {address(client)} cannot be reached ({reason}): {advice}"
        ) from error
    except (redis.ReadOnlyError, redis.OutOfMemoryError) as error:
        raise LogUnavailable(
            f"the log's Redis at {address(client)} takes no writes: {error}"
        ) from error
    except redis.ResponseError as error:
        if is_wrong_type(error):
            raise CorruptState(
                f"a key of the log in the Redis at {address(client)} holds a value of a type that "
                "Lethe does not write there; restore it from a backup"
            ) from error
        raise
