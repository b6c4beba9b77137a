"""The log of single-node mode: Redis Streams.

A partition is a stream whose entries have dense offsets, given out by a script. Consumer groups
of Redis are not used: they would spread one model's requests over several readers. Instead each
partition is leased to one member of a group at a time. How it lies in Redis:
`consumers.log.streams_format`; reading and leases: `consumers.log.streams_read`.

Records leave in three ways. A topic that a group reads may keep them until the group releases
them (`TopicSpec.until_released`). From other topics a producer removes, at most once a minute,
what is older than ``retention_ms``. In a compacted topic an append removes the key's former entry
in the same script. Durability is the server's (``appendfsync always``).
"""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence

import redis

from consumers.log.base import Message, Partition, TopicSpec
from consumers.log.partitioner import partition_index
from consumers.log.reset import PartitionReset
from consumers.log.streams_format import (
    MAX_BYTES_PER_CALL,
    MAX_HEADER_BYTES,
    MAX_MESSAGES_PER_CALL,
    MAX_PARTITIONS,
    Topic,
    encode_headers,
    latest_key,
    own_client,
    reaching,
    read_topic,
    script,
    stream_key,
    topic_key,
)
from consumers.log.streams_read import LEASE_SECONDS, StreamsConsumer, StreamsReader
from engine.errors import InvalidData, LogUnavailable
from engine.store.connection import Barrier

EXPIRY_SECONDS = 60.0
"""A producer looks this often for records that are older than their topic keeps them."""


class StreamsLog:
    """The log in the Redis that ``client`` talks to; its parts make connections of their own.

    Parameters
    ----------
    client : redis.Redis
        Says where the server is and how to sign on; it is not used itself and not closed.
    lease_seconds : float, optional
        How long a partition stays with a member that is not heard of. A member is heard of
        about four times in that period, within its polls.
    barrier : callable, optional
        Makes what a producer waits at before it acknowledges; by default it waits for nothing.
    """

    name = "streams"

    def __init__(
        self,
        client: redis.Redis,
        *,
        lease_seconds: float = LEASE_SECONDS,
        barrier: Callable[[redis.Redis], Barrier] | None = None,
    ) -> None:
        self._origin = client
        self._client = own_client(client)
        self._lease_seconds = lease_seconds
        self._barrier = barrier

    def ensure_topics(self, specs: Sequence[TopicSpec]) -> Sequence[str]:
        """Create the missing topics; ``extra`` is Kafka's and ignored."""
        created: list[str] = []
        with reaching(self._client):
            create = self._client.register_script(script("create"))
            for spec in specs:
                if not 1 <= spec.partitions <= MAX_PARTITIONS:
                    raise InvalidData(
                        f"topic {spec.name}: {spec.partitions} partitions; 1 to {MAX_PARTITIONS} "
                        "are possible with Redis Streams"
                    )
                settings = (
                    str(uuid.uuid4()),
                    spec.partitions,
                    int(spec.compacted),
                    spec.max_message_bytes,
                    -1 if spec.compacted or spec.until_released else _retention(spec),
                )
                if create(keys=[topic_key(spec.name)], args=settings):
                    created.append(spec.name)
        return created

    def delete_topic(self, name: str) -> None:
        """Remove a topic and its records; made again, it has another topic id."""
        with reaching(self._client):
            topic = read_topic(self._client, name)
            if topic is None:
                return
            # The record first: from then on nobody can append to the streams.
            self._client.delete(topic_key(name))
            for index in range(topic.partitions):
                partition = topic.partition(index)
                self._client.unlink(stream_key(partition), latest_key(partition))

    def trim(self, partition: Partition, below_offset: int) -> int:
        """Remove the records below ``below_offset``; return the first offset that is left."""
        with reaching(self._client):
            begin: int = self._client.register_script(script("trim"))(
                keys=[topic_key(partition.topic), stream_key(partition)],
                args=[partition.topic_id, partition.index, below_offset],
            )
        if begin < 0:
            raise PartitionReset(partition, below_offset, None)
        return begin

    def consumer(self, group: str, topics: Sequence[str]) -> StreamsConsumer:
        """Join ``group`` and read ``topics``."""
        return StreamsConsumer(own_client(self._origin), group, topics, self._lease_seconds)

    def producer(self) -> StreamsProducer:
        """Return a new producer."""
        client = own_client(self._origin)
        barrier = None if self._barrier is None else self._barrier(client)
        if barrier is None or not barrier.waits:
            return StreamsProducer(client)
        # What waits must be the connection that wrote.
        return StreamsProducer(client.client(), barrier)  # type: ignore[no-untyped-call]  # its gap

    def reader(self) -> StreamsReader:
        """Return a new reader."""
        return StreamsReader(own_client(self._origin))

    def ping(self) -> str:
        """Return the server's name and version."""
        with reaching(self._client):
            server = self._client.info("server")
        name = server.get("server_name", "redis")
        return f"{name} {server.get('valkey_version', server.get('redis_version'))} streams"

    def close(self) -> None:
        """Release the connection."""
        self._client.close()


class StreamsProducer:
    """Appends to Redis Streams, one round trip for up to 256 messages or 8 MiB of a topic."""

    def __init__(self, client: redis.Redis, barrier: Barrier | None = None) -> None:
        self._client = client
        self._barrier = barrier
        self._append = client.register_script(script("append"))
        self._expire = client.register_script(script("expire"))
        self._topics: dict[str, Topic] = {}
        self._looked: dict[str, float] = {}

    def publish(self, messages: Iterable[Message], timeout: float = 30.0) -> None:
        """Append in order and return when the server has answered for all.

        ``timeout`` bounds the sum of the calls; each single call is bounded by the connection's
        own reply timeout as well.
        """
        deadline = time.monotonic() + timeout
        with reaching(self._client):
            for topic, batch in _calls(messages):
                if time.monotonic() > deadline:
                    raise LogUnavailable(
                        f"the log took more than {timeout:g} s to acknowledge; send all again"
                    )
                # Twice: the topic may have been made again since its record was read.
                if not self._call(topic, batch):
                    self._topics.pop(topic, None)
                    if not self._call(topic, batch):
                        raise LogUnavailable(f"topic {topic} is being deleted or made again")
                self._remove_old(topic)
            if self._barrier is not None:  # what is acknowledged is on disk
                self._barrier.wait(self._client)

    def close(self) -> None:
        """Close the connection.

        A client that keeps one connection only gives it back to its pool, which is ours alone.
        """
        self._client.close()
        self._client.connection_pool.disconnect()

    def _remove_old(self, name: str) -> None:
        """Remove what is older than the topic keeps it, if it is time to look."""
        now = time.monotonic()
        topic = self._topics[name]
        if topic.retention_ms < 0 or now < self._looked.get(name, -math.inf) + EXPIRY_SECONDS:
            return
        self._looked[name] = now
        for index in range(topic.partitions):
            stream = stream_key(topic.partition(index))
            self._expire(keys=[topic_key(name), stream], args=[topic.topic_id, index])

    def _call(self, name: str, batch: Sequence[Message]) -> bool:
        topic = self._topics.get(name) or read_topic(self._client, name)
        if topic is None:
            raise LogUnavailable(
                f"topic {name} does not exist in the log: `lethe work` and `lethe register` make it"
            )
        self._topics[name] = topic
        used: dict[int, int] = {}
        records: list[str | bytes | int] = []
        for message in batch:
            _check_size(message, topic)
            index = partition_index(message.key, topic.partitions)
            records += (
                used.setdefault(index, len(used) + 1),
                int(message.value is not None),
                message.key,
                message.value or b"",
                encode_headers(message.headers),
            )
        keys = [topic_key(name)]
        for index in used:
            partition = topic.partition(index)
            keys += (stream_key(partition), latest_key(partition))
        answer = self._append(
            keys=keys, args=[topic.topic_id, topic.partitions, len(used), *used, *records]
        )
        return bool(answer)


def _retention(spec: TopicSpec) -> int:
    return -1 if spec.retention_ms is None else spec.retention_ms


def _calls(messages: Iterable[Message]) -> Iterator[tuple[str, list[Message]]]:
    """Cut messages, in order, into runs of one topic that are small enough for one script."""
    batch: list[Message] = []
    size = 0
    for message in messages:
        more = len(message.value or b"")
        full = len(batch) == MAX_MESSAGES_PER_CALL or size + more > MAX_BYTES_PER_CALL
        if batch and (full or message.topic != batch[0].topic):
            yield batch[0].topic, batch
            batch, size = [], 0
        batch.append(message)
        size += more
    if batch:
        yield batch[0].topic, batch


def _check_size(message: Message, topic: Topic) -> None:
    size = len(message.key) + len(message.value or b"")
    if size > topic.max_message_bytes:
        raise InvalidData(
            f"a message of {size} bytes for topic {topic.name}, which takes at most "
            f"{topic.max_message_bytes}"
        )
    if sum(len(name) + len(value) for name, value in message.headers) > MAX_HEADER_BYTES:
        raise InvalidData(
            f"a message for topic {topic.name} has over {MAX_HEADER_BYTES} bytes of headers"
        )
