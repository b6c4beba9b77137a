"""The log of single-node mode: Redis Streams.

A partition is a stream whose entries have dense offsets, assigned by a script. Redis's own consumer
groups are not used: they would spread one model's requests over several readers. Instead each
partition is leased to one member of a group at a time. `consumers.log.streams.format` describes the
keys, `consumers.log.streams.producer` appends, and `consumers.log.streams.read` reads and leases.

Records are removed in three ways. A topic that a group reads may keep them until the group releases
them (`TopicSpec.until_released`). From other topics a producer removes, at most once a minute,
records older than ``retention_ms``. In a compacted topic an append removes the key's former entry
in the same script. The server is responsible for durability (``appendfsync always``).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence

import redis

from lethe.consumers.log.base import Log, Partition, PartitionReset, TopicSpec
from lethe.consumers.log.streams.format import (
    MAX_PARTITIONS,
    latest_key,
    own_client,
    reaching,
    read_topic,
    script,
    stream_key,
    topic_key,
)
from lethe.consumers.log.streams.producer import StreamsProducer
from lethe.consumers.log.streams.read import LEASE_SECONDS, StreamsConsumer, StreamsReader
from lethe.engine.errors import InvalidData
from lethe.engine.store.server.barrier import Barrier
from lethe.engine.store.server.cluster import Cluster


class StreamsLog(Log):
    """The log in the Redis that ``client`` names; its parts open connections of their own.

    Parameters
    ----------
    client : redis.Redis
        Provides the server's address and credentials; it is neither used itself nor closed.
    lease_seconds : float, optional
        How long a silent member keeps its partitions. A member sends about four heartbeats in
        that period, within its polls.
    barrier : callable, optional
        Creates the barrier that a producer passes before it acknowledges; by default there is none.

    Raises
    ------
    InvalidData
        The client is that of a cluster: a topic's streams are written together.
    """

    name = "streams"

    def __init__(
        self,
        client: redis.Redis,
        *,
        lease_seconds: float = LEASE_SECONDS,
        barrier: Callable[[redis.Redis], Barrier] | None = None,
    ) -> None:
        if isinstance(client, Cluster):
            raise InvalidData(
                "LETHE_REDIS_URL names a cluster, which cannot hold the log: give --kafka "
                "(LETHE_KAFKA_BOOTSTRAP_SERVERS), or name a single server"
            )
        self._origin = client
        self._client = own_client(client)
        self._lease_seconds = lease_seconds
        self._barrier = barrier

    def ensure_topics(self, specs: Sequence[TopicSpec]) -> Sequence[str]:
        """Create the missing topics; ``extra`` is for Kafka, and ignored."""
        created: list[str] = []
        with reaching(self._client):
            create = self._client.register_script(script("create"))
            for spec in specs:
                if not 1 <= spec.partitions <= MAX_PARTITIONS:
                    raise InvalidData(
                        f"topic {spec.name}: {spec.partitions} partitions, but 1 to "
                        f"{MAX_PARTITIONS} are possible with Redis Streams"
                    )
                keeps = spec.compacted or spec.until_released
                settings = (
                    str(uuid.uuid4()),
                    spec.partitions,
                    int(spec.compacted),
                    spec.max_message_bytes,
                    -1 if keeps or spec.retention_ms is None else spec.retention_ms,
                    int(spec.grows),
                )
                if create(keys=[topic_key(spec.name)], args=settings):
                    created.append(spec.name)
        return created

    def delete_topic(self, name: str) -> None:
        """Remove a topic and its records; if recreated, it has a new topic id."""
        with reaching(self._client):
            topic = read_topic(self._client, name)
            if topic is None:
                return
            # The topic's record goes first: from then on nobody can append to the streams.
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
        # The connection that wrote must also wait.
        return StreamsProducer(client.client(), barrier)  # type: ignore[no-untyped-call]  # untyped

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
