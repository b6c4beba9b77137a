"""The log in Kafka, using confluent-kafka: topics and sending."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message as Delivered, Producer as Client

from lethe.consumers.log.base import Appended, Message, Partition
from lethe.consumers.log.kafka import settings
from lethe.consumers.log.kafka.confluent.cluster import ConfluentCluster
from lethe.consumers.log.kafka.confluent.connection import Connection
from lethe.consumers.log.kafka.confluent.reading import ConfluentConsumer, ConfluentReader
from lethe.consumers.log.kafka.log import KafkaFlush, KafkaLog, KafkaProducer, by_topic
from lethe.engine.errors import LogUnavailable

# librdkafka does not split a batch that is too large for a topic, so a batch of several messages
# stays below the limit of every topic; a larger message is sent alone.
BATCH_BYTES = 16_384


class ConfluentLog(KafkaLog):
    """The log in a Kafka cluster; its parts share the connections for queries."""

    @cached_property
    def _cluster(self) -> ConfluentCluster:
        return ConfluentCluster(self._server)

    def consumer(self, group: str, topics: Sequence[str]) -> ConfluentConsumer:
        """Join ``group`` and read ``topics``."""
        return ConfluentConsumer(self._cluster, group, topics, self._session_seconds)

    def producer(self) -> ConfluentProducer:
        """Return a new producer; it connects on its first send."""
        return ConfluentProducer(self._cluster)

    def reader(self) -> ConfluentReader:
        """Return a new reader; it connects on first use."""
        return ConfluentReader(self._cluster)

    def close(self) -> None:
        """Release the connections that its parts share."""
        self._cluster.close()

    def _admin(self) -> AbstractContextManager[ConfluentCluster]:
        return nullcontext(self._cluster)


class ConfluentProducer(KafkaProducer):
    """A producer; librdkafka's own threads send."""

    _connection: Connection
    _cluster: ConfluentCluster

    def __init__(self, cluster: ConfluentCluster) -> None:
        super().__init__(cluster.server)
        self._cluster = cluster
        self._connection = Connection(self._server)
        self._requested_at = 0.0
        self._descriptions: Mapping[str, Future[Any]] = {}

    def _open(self) -> Client:
        if self._client is None:
            self._connection = Connection(self._server)
            more = {
                "retry.backoff.ms": 50,
                "batch.size": BATCH_BYTES,
                "compression.type": "none",
                "message.max.bytes": settings.MAX_REQUEST_BYTES,
                "partitioner": "murmur2",  # as `engine.store.layout.keys`
            }
            self._client = self._connection.open(Client, {**settings.SENDING, **more})
        client: Client = self._client
        return client

    def _refresh(self) -> None:
        """Take the topic descriptions if they have arrived, and request new ones; never wait."""
        if self._descriptions:
            if not all(future.done() for future in self._descriptions.values()):
                return
            descriptions, self._descriptions = self._descriptions, {}
            with suppress(LogUnavailable):  # the send itself will report it
                self._topics = by_topic(self._cluster.described(descriptions))
        now = time.monotonic()
        if self._topics and now > self._requested_at + settings.METADATA_SECONDS:
            self._requested_at = now
            self._descriptions = self._cluster.describe(sorted(self._topics))

    def _send(self, client: Client, batch: Sequence[Message]) -> _Deliveries:
        deliveries = _Deliveries(batch, dict(self._topics))
        for place, message in enumerate(batch):
            self._produce(client, message, partial(deliveries.note, place))
        client.poll(0.0)
        return deliveries

    def _produce(self, client: Client, message: Message, delivered: Any) -> None:
        deadline = time.monotonic() + settings.DELIVERY_SECONDS
        index = self._index(message)
        while True:
            try:
                client.produce(
                    message.topic,
                    message.value,
                    message.key,
                    -1 if index is None else index,
                    on_delivery=delivered,
                    headers=list(message.headers),
                )
            except BufferError:  # the client's queue is full: the brokers are slower than we are
                if time.monotonic() > deadline:
                    raise self._connection.unreachable("its queue is full") from None
                client.poll(settings.SLICE_SECONDS)
            except KafkaException as error:
                raise self._failed(message, error.args[0]) from error
            else:
                return

    def _acknowledged(self, flush: KafkaFlush, timeout: float) -> list[Appended]:
        deadline = time.monotonic() + timeout
        deliveries: _Deliveries = flush.sent
        while len(deliveries.appended) < len(flush.batch):
            if deliveries.failure is not None:
                raise self._failed(*deliveries.failure)
            if self._connection.lasting is not None or time.monotonic() > deadline:
                raise self._connection.unreachable(f"no acknowledgement within {timeout:g} s")
            flush.client.poll(min(max(deadline - time.monotonic(), 0.0), settings.SLICE_SECONDS))
        return [deliveries.appended[place] for place in range(len(flush.batch))]

    def _failed(self, message: Message, error: KafkaError) -> Exception:
        if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            return self._server.too_large(message)
        return self._connection.failed(error)

    def _discard(self, client: Client) -> None:
        self._descriptions = {}
        client.purge()
        client.poll(0.0)  # otherwise librdkafka keeps its pending callbacks
        client.close()


class _Deliveries:
    """The outcomes of a batch's messages, as far as they are known."""

    def __init__(self, batch: Sequence[Message], topics: Mapping[str, Sequence[Partition]]) -> None:
        self._batch = batch
        self._topics = topics
        self.appended: dict[int, Appended] = {}
        self.failure: tuple[Message, KafkaError] | None = None

    def note(self, place: int, error: KafkaError | None, report: Delivered) -> None:
        """Record the outcome of a message: librdkafka's ``on_delivery``."""
        message = self._batch[place]
        if error is not None:
            self.failure = self.failure or (message, error)
            return
        offset, index = report.offset(), report.partition()
        assert index is not None  # noqa: S101 (mypy: it was delivered)
        known = offset is not None and offset >= 0
        partition = replace(self._topics[message.topic][0], index=index)
        self.appended[place] = Appended(partition, offset if known else None)
