"""The log in Kafka, using kafka-python 3.0: topics and sending."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from kafka import KafkaAdminClient, KafkaProducer as Client, errors
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.partitioner import Partitioner

from lethe.consumers.log.base import Appended, Message, Partition, TopicSpec
from lethe.consumers.log.kafka import settings
from lethe.consumers.log.kafka.kafka_python.cluster import KafkaPythonCluster
from lethe.consumers.log.kafka.kafka_python.connection import client_names
from lethe.consumers.log.kafka.kafka_python.reading import KafkaPythonConsumer, KafkaPythonReader
from lethe.consumers.log.kafka.kafka_python.repairs import abandon
from lethe.consumers.log.kafka.log import KafkaFlush, KafkaLog, KafkaProducer
from lethe.consumers.log.kafka.server import Server
from lethe.engine.errors import LogUnavailable
from lethe.engine.store.layout.keys import partition_index

_BATCH_BYTES = 1 << 20
"""Per partition: with idempotence its batches are sent one after another."""


class KafkaPythonLog(KafkaLog):
    """The log in a Kafka cluster; its parts have connections of their own."""

    def consumer(self, group: str, topics: Sequence[str]) -> KafkaPythonConsumer:
        """Join ``group`` and read ``topics``."""
        return KafkaPythonConsumer(self._server, group, topics, self._session_seconds)

    def producer(self) -> KafkaPythonProducer:
        """Return a new producer; it connects on its first send."""
        return KafkaPythonProducer(self._server)

    def reader(self) -> KafkaPythonReader:
        """Return a new reader."""
        return KafkaPythonReader(self._server)

    @contextmanager
    def _admin(self) -> Iterator[_Admin]:
        admin = _Admin(self._server)
        try:
            yield admin
        finally:
            admin.close()


class _Admin(KafkaPythonCluster):
    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self._admin = self.open(KafkaAdminClient)

    def create(self, spec: TopicSpec) -> bool:
        """Create a topic; return False if it exists by now."""
        new_topic = {"num_partitions": spec.partitions, "configs": settings.topic_settings(spec)}
        answer = self._admin.create_topics({spec.name: new_topic}, raise_errors=False)
        [topic] = answer["topics"]
        kind = errors.for_code(topic["error_code"])
        if kind not in (errors.NoError, errors.TopicAlreadyExistsError):
            raise self._server.not_created(spec.name, topic["error_message"] or kind.__name__)
        return kind is errors.NoError

    def delete(self, topic: str) -> None:
        """Delete a topic."""
        self._admin.delete_topics([topic])

    def settings_of(self, topic: str) -> Mapping[str, str]:
        """Return a topic's settings."""
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        by_type = self._admin.describe_configs([resource], config_filter="all")
        [entries] = [topics.get(topic, {}) for topics in by_type.values()]
        return {name: str(entry["value"]) for name, entry in entries.items()}

    def ping(self) -> str:
        """Return the cluster's version and size."""
        brokers = self._admin.describe_cluster()["brokers"]
        where = f"Kafka {self.broker_version} at {self._server}"
        return f"{where}, {len(brokers)} brokers, {self._server.protocol}"

    def close(self) -> None:
        """Release the connection."""
        self._admin.close()


class KafkaPythonProducer(KafkaProducer):
    """A producer with a connection of its own."""

    _connection: KafkaPythonCluster

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self._connection = self._cluster = KafkaPythonCluster(server)

    def _open(self) -> Client:
        if self._client is None:
            self._connection = self._cluster = KafkaPythonCluster(self._server)
            self._client = self._connection.open(
                Client,
                **client_names(settings.SENDING),
                batch_size=_BATCH_BYTES,
                compression_type=None,
                max_request_size=settings.MAX_REQUEST_BYTES,
                max_block_ms=int(settings.DELIVERY_SECONDS * 1000),
                allow_auto_create_topics=False,
                metrics_enabled=False,
                partitioner=_Partitioner(),
                metadata_max_age_ms=int(settings.METADATA_SECONDS * 1000),
            )
        return self._client

    def _refresh(self) -> None:
        self._open()  # lookups use its connection

    def _knows(self, message: Message) -> bool:
        if not super()._knows(message):
            return False
        [first, *_] = self._topics[message.topic]
        return self._connection.known_topic_id(message.topic) in (None, first.topic_id)

    def _send(self, client: Client, batch: Sequence[Message]) -> Sequence[Any]:
        with self._connection.asleep():
            return [self._send_one(client, message) for message in batch]

    def _send_one(self, client: Client, message: Message) -> Any:
        headers, index = list(message.headers), self._index(message)
        try:
            return client.send(message.topic, message.value, message.key, headers, index)
        except errors.MessageSizeTooLargeError as error:
            raise self._server.too_large(message) from error
        except ValueError as error:  # the client does not know this partition yet
            raise LogUnavailable(f"topic {message.topic} cannot be sent to: {error}") from error

    def _acknowledged(self, flush: KafkaFlush, timeout: float) -> list[Appended]:
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
        return partition, self._connection.leader_epoch(partition)

    def _discard(self, client: Client) -> None:
        abandon(client)


class _Partitioner(Partitioner):  # type: ignore[misc]  # kafka-python has no types
    """Like the client's own partitioner, but hashes each distinct key only once."""

    def partition(
        self, topic: str, _key: object, key: bytes, _value: object, _bytes: object, cluster: Any
    ) -> int:
        indices = cluster.partitions_for_topic(topic)
        if not indices:
            raise ValueError(f"the client knows no partition of topic {topic}")
        return partition_index(key, len(indices))  # numbered from 0
