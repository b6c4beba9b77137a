"""Sending to Kafka."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kafka import KafkaProducer as Client, errors
from kafka.partitioner import Partitioner

from lethe.consumers.log.base import Appended, Message, Partition, Producer, missing_topic
from lethe.consumers.log.kafka import settings
from lethe.consumers.log.kafka.cluster import Cluster, by_topic
from lethe.consumers.log.kafka.repairs import abandon
from lethe.consumers.log.kafka.server import Server
from lethe.engine.errors import LogUnavailable
from lethe.engine.store.layout.keys import partition_index

_BATCH_BYTES = 1 << 20
"""Size of a batch of one partition; with idempotence, they are sent one after another."""


class KafkaProducer(Producer):
    """An idempotent producer with a connection of its own.

    After a failure the client is discarded with everything still in it, so that nothing of the
    failed send can arrive after the caller has sent it again.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._cluster = Cluster(server)
        self._client: Client | None = None
        self._topics: dict[str, list[Partition]] = {}

    def begin(self, messages: Iterable[Message]) -> KafkaFlush:
        """Queue in order; the client's own thread sends."""
        batch = list(messages)
        try:
            if self._client is None:
                self._open()
            with self._cluster.reaching():
                self._look_up(batch)
                with self._cluster.asleep():
                    sent = [self._send(message) for message in batch]
            return KafkaFlush(self, self._client, batch, sent)
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        """Create the client: for the first send, and after each failure."""
        self._cluster = Cluster(self._server)
        self._client = self._cluster.open(
            Client,
            **settings.SENDING,
            batch_size=_BATCH_BYTES,
            compression_type=None,
            max_request_size=settings.MAX_REQUEST_BYTES,
            max_block_ms=int(settings.DELIVERY_SECONDS * 1000),
            allow_auto_create_topics=False,
            metrics_enabled=False,
            partitioner=_Partitioner(),
            metadata_max_age_ms=int(settings.METADATA_SECONDS * 1000),
        )

    def close(self) -> None:
        """Release the connection, and drop what was not sent."""
        self._topics.clear()
        client, self._client = self._client, None
        if client is not None:
            abandon(client)

    def _look_up(self, batch: Sequence[Message]) -> None:
        """Reject a topic that does not exist at once, instead of waiting for its metadata."""
        unknown = sorted({message.topic for message in batch if not self._knows(message)})
        if not unknown:
            return
        existing = by_topic(self._cluster.leaders(unknown))
        for topic in unknown:
            if topic not in existing:
                raise missing_topic(topic, f"Kafka at {self._server}")
        self._topics |= existing

    def _knows(self, message: Message) -> bool:
        known = self._topics.get(message.topic, [])
        if (message.partition or 0) >= len(known):
            return False
        return self._cluster.known_topic_id(message.topic) in (None, known[0].topic_id)

    def _send(self, message: Message) -> Any:
        headers, index = list(message.headers), None
        if message.partition is not None:  # else the client derives it from the key
            index = message.index_among(len(self._topics[message.topic]))
        client: Any = self._client
        try:
            return client.send(message.topic, message.value, message.key, headers, index)
        except errors.MessageSizeTooLargeError as error:
            raise self._server.too_large(message) from error
        except ValueError as error:  # the client does not know this partition yet
            raise LogUnavailable(f"topic {message.topic} cannot be sent to: {error}") from error

    def acknowledge(self, flush: KafkaFlush, timeout: float) -> Sequence[Appended]:
        """Return where the messages of ``flush`` are: for the flush itself."""
        if flush.client is not self._client:
            raise LogUnavailable(
                f"an earlier send to Kafka at {self._server} failed: send this again as well"
            )
        try:
            with self._cluster.reaching():
                return self._acknowledged(flush, timeout)
        except BaseException:
            self.close()
            raise

    def _acknowledged(self, flush: KafkaFlush, timeout: float) -> list[Appended]:
        """Wait until the brokers have acknowledged every message."""
        deadline = time.monotonic() + timeout
        reports = []
        for message, future in zip(flush.batch, flush.sent, strict=True):
            try:
                reports.append(future.get(max(deadline - time.monotonic(), 0)))
            except errors.MessageSizeTooLargeError as error:
                raise self._server.too_large(message) from error
        # The leader epochs are read last, once every message is acknowledged.
        places = {place: self._place(*place) for place in {(r.topic, r.partition) for r in reports}}
        return [
            Appended(partition, None if report.offset < 0 else report.offset, epoch)
            for report in reports
            for partition, epoch in [places[report.topic, report.partition]]
        ]

    def _place(self, topic: str, index: int) -> tuple[Partition, int | None]:
        """Return a partition and the epoch of its leader."""
        # The client may know more partitions by now.
        partition = replace(self._topics[topic][0], index=index)
        return partition, self._cluster.leader_epoch(partition)


@dataclass(frozen=True, slots=True)
class KafkaFlush:
    """Messages that a client is sending."""

    producer: KafkaProducer
    client: Any
    batch: Sequence[Message]
    sent: Sequence[Any]

    def wait(self, timeout: float = 30.0) -> Sequence[Appended]:
        """Return where each message is, once the brokers have acknowledged all of them."""
        return self.producer.acknowledge(self, timeout)


class _Partitioner(Partitioner):  # type: ignore[misc]  # kafka-python has no types
    """Like the client's own partitioner, but hashes each distinct key only once."""

    def partition(
        self, topic: str, _key: object, key: bytes, _value: object, _bytes: object, cluster: Any
    ) -> int:
        indices = cluster.partitions_for_topic(topic)
        if not indices:
            raise ValueError(f"the client knows no partition of topic {topic}")
        return partition_index(key, len(indices))  # numbered from 0
