"""Kafka as a log, using kafka-python 3.0.

Every setting that could lose or duplicate a request is explicit, because the client's defaults are
meant for other uses. For reading see `consumers.log.kafka.group` and `consumers.log.kafka.reader`.

Topics are created with ``compression.type=uncompressed``: the broker decompresses and checks what
producers send, and consumers fetch plain batches of bounded size. Set the same on existing topics;
`consumers.log.kafka.batches` bounds batches that arrive compressed all the same.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from kafka import KafkaAdminClient, KafkaProducer, errors
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.partitioner import Partitioner

from lethe.consumers.log.base import Appended, Message, Partition, Producer, TopicSpec
from lethe.consumers.log.kafka.connection import METADATA_SECONDS, Connection, Server
from lethe.consumers.log.kafka.group import KafkaGroupConsumer
from lethe.consumers.log.kafka.limits import (
    CONNECT_SECONDS,
    MAX_REQUEST_BYTES,
    SESSION_SECONDS,
    kafka_settings,
    too_large,
)
from lethe.consumers.log.kafka.reader import KafkaReader
from lethe.consumers.log.kafka.repairs import abandon
from lethe.consumers.log.partitioner import index_for, partition_index
from lethe.engine.errors import LogUnavailable

DELIVERY_SECONDS = 30.0
_TOPIC_SECONDS = 15.0
_BATCH_BYTES = 1 << 20
"""Per partition: with idempotence its batches are sent one after another."""


class KafkaLog:
    """The log in a Kafka cluster.

    Parameters
    ----------
    bootstrap_servers : str or sequence of str
        ``host:port``; several as a comma-separated list or a sequence.
    client_id : str
        The name that brokers use for this program in their logs and quotas.
    extra : mapping, optional
        Settings for every client: ``security_protocol``, ``sasl_*``, ``ssl_*``.
    session_seconds : float, optional
        How long a silent member keeps its partitions. Brokers accept 6 s to 30 min unless
        configured otherwise.
    connect_seconds : float, optional
        How long to try to reach a broker before raising `LogUnavailable`.
    """

    name = "kafka"

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        *,
        client_id: str,
        extra: Mapping[str, Any] = MappingProxyType({}),
        session_seconds: float = SESSION_SECONDS,
        connect_seconds: float = CONNECT_SECONDS,
    ) -> None:
        if isinstance(bootstrap_servers, str):
            bootstrap_servers = bootstrap_servers.split(",")
        hosts = tuple(host.strip() for host in bootstrap_servers if host.strip())
        self._server = Server(hosts, client_id, extra, connect_seconds)
        self._session_seconds = session_seconds

    def ensure_topics(self, specs: Sequence[TopicSpec]) -> Sequence[str]:
        """Create the missing topics, and return once the brokers report leaders for them."""
        names = [spec.name for spec in specs]
        created: list[str] = []
        with self._server.reaching(), self._admin() as (admin, connection):
            present = connection.partitions(names)
            for spec in specs:
                if spec.name not in present and self._create(admin, spec):
                    created.append(spec.name)
            if len(present) < len(names):
                admin.wait_for_topics(names, timeout_ms=int(_TOPIC_SECONDS * 1000))
        return created

    def delete_topic(self, name: str) -> None:
        """Delete a topic and its records; if recreated, it has a new topic id."""
        with self._server.reaching(), self._admin() as (admin, _):
            admin.delete_topics([name])

    def consumer(self, group: str, topics: Sequence[str]) -> KafkaGroupConsumer:
        """Join ``group`` and read ``topics``."""
        return KafkaGroupConsumer(self._server, group, topics, self._session_seconds)

    def producer(self) -> KafkaLogProducer:
        """Return a new producer; it connects on its first send."""
        return KafkaLogProducer(self._server)

    def reader(self) -> KafkaReader:
        """Return a new reader."""
        return KafkaReader(self._server)

    def ping(self) -> str:
        """Return the cluster's version and size."""
        with self._server.reaching(), self._admin() as (admin, connection):
            brokers = admin.describe_cluster()["brokers"]
            version = connection.broker_version
        protocol = self._server.extra.get("security_protocol", "PLAINTEXT")
        return f"Kafka {version} at {self._server}, {len(brokers)} brokers, {protocol}"

    def topic_settings(self, topic: str) -> Mapping[str, str]:
        """Return a topic's settings, including the broker's defaults.

        Empty if there is no such topic, or no right to describe it.
        """
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        with self._server.reaching(), self._admin() as (admin, _):
            by_type = admin.describe_configs([resource], config_filter="all")
        [settings] = [topics.get(topic, {}) for topics in by_type.values()]
        return {name: str(entry["value"]) for name, entry in settings.items()}

    def close(self) -> None:
        """Do nothing: the log itself holds no connection."""

    @contextlib.contextmanager
    def _admin(self) -> Any:
        connection = Connection(self._server)
        admin = connection.open(KafkaAdminClient, **self._server.settings())
        try:
            yield admin, connection
        finally:
            admin.close()

    def _create(self, admin: KafkaAdminClient, spec: TopicSpec) -> bool:
        new_topic = {"num_partitions": spec.partitions, "configs": kafka_settings(spec)}
        answer = admin.create_topics({spec.name: new_topic}, raise_errors=False)
        [topic] = answer["topics"]
        kind = errors.for_code(topic["error_code"])
        if kind not in (errors.NoError, errors.TopicAlreadyExistsError):
            raise LogUnavailable(
                f"Kafka at {self._server} did not create topic {spec.name}: "
                f"{topic['error_message'] or kind.__name__}"
            )
        return kind is errors.NoError


class KafkaLogProducer(Producer):
    """An idempotent producer.

    After a failure the client is discarded with everything still in it, so that nothing of the
    failed send can arrive after the caller has sent it again.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._producer: KafkaProducer | None = None
        self._connection = Connection(server)
        self._topics: dict[str, list[Partition]] = {}

    def begin(self, messages: Iterable[Message]) -> KafkaFlush:
        """Queue in order; the client's own thread sends."""
        batch = list(messages)
        try:
            with self._server.reaching():
                producer = self._open()
                self._look_up(batch)
                with self._connection.asleep():
                    sent = [_send(producer, message, self._index(message)) for message in batch]
        except BaseException:
            self._abandon()
            raise
        return KafkaFlush(self, producer, batch, sent)

    def close(self) -> None:
        """Release the connection."""
        self._abandon()

    # The method below is for the flush.

    def acknowledge(
        self, producer: KafkaProducer, batch: Sequence[Message], sent: Sequence[Any], timeout: float
    ) -> list[Appended]:
        """Wait until the brokers have acknowledged every message."""
        if producer is not self._producer:
            raise LogUnavailable(
                f"an earlier send to Kafka at {self._server} failed: send this again as well"
            )
        deadline = time.monotonic() + timeout
        try:
            with self._server.reaching():
                reports = [
                    _acknowledged(message, future, deadline)
                    for message, future in zip(batch, sent, strict=True)
                ]
        except BaseException:
            self._abandon()
            raise
        # The leader epochs are read last, once every message is acknowledged.
        places = {place: self._place(*place) for place in {(r.topic, r.partition) for r in reports}}
        return [
            Appended(partition, None if report.offset < 0 else report.offset, epoch)
            for report in reports
            for partition, epoch in [places[report.topic, report.partition]]
        ]

    def _open(self) -> KafkaProducer:
        if self._producer is None:
            self._topics.clear()
            self._connection = Connection(self._server)
            settings = {
                "acks": "all",
                "enable_idempotence": True,
                "max_in_flight_requests_per_connection": 5,  # ordered, with idempotence
                "retries": 1_000_000,  # the delivery timeout is the bound
                "delivery_timeout_ms": int(DELIVERY_SECONDS * 1000),
                "linger_ms": 0,
                "batch_size": _BATCH_BYTES,
                "compression_type": None,
                "max_request_size": MAX_REQUEST_BYTES,
                "max_block_ms": int(DELIVERY_SECONDS * 1000),
                "allow_auto_create_topics": False,
                "metrics_enabled": False,
                "partitioner": _Partitioner(),
                "metadata_max_age_ms": int(METADATA_SECONDS * 1000),
            }
            self._producer = self._connection.open(
                KafkaProducer, **self._server.settings() | settings
            )
        return self._producer

    def _look_up(self, batch: Sequence[Message]) -> None:
        """Reject a topic that does not exist at once, instead of waiting for its metadata."""
        unknown = {message.topic for message in batch if not self._knows(message)}
        if not unknown:
            return
        existing = self._connection.partitions(sorted(unknown))
        for topic in sorted(unknown):
            if topic not in existing:
                raise LogUnavailable(
                    f"topic {topic} does not exist in Kafka at {self._server}: `lethe work` and "
                    "`lethe register` create it"
                )
        self._topics |= existing

    def _knows(self, message: Message) -> bool:
        known = self._topics.get(message.topic)
        if known is None or (message.partition or 0) >= len(known):
            return False
        return self._connection.known_topic_id(message.topic) in (None, known[0].topic_id)

    def _index(self, message: Message) -> int | None:
        """Return the requested partition; None: the client derives it from the key."""
        if message.partition is None:
            return None
        return index_for(message, len(self._topics[message.topic]))

    def _place(self, topic: str, index: int) -> tuple[Partition, int | None]:
        """Return a partition and the epoch of its leader."""
        # The client may know more partitions by now.
        partition = replace(self._topics[topic][0], index=index)
        return partition, self._connection.leader_epoch(topic, index)

    def _abandon(self) -> None:
        if self._producer is not None:
            producer, self._producer = self._producer, None
            abandon(producer)


@dataclass(frozen=True, slots=True)
class KafkaFlush:
    """Messages that a client of kafka-python is sending."""

    _owner: KafkaLogProducer
    _client: KafkaProducer
    _batch: Sequence[Message]
    _sent: Sequence[Any]

    def wait(self, timeout: float = 30.0) -> Sequence[Appended]:
        """Return where each message is, once the brokers have acknowledged all of them."""
        return self._owner.acknowledge(self._client, self._batch, self._sent, timeout)


def _send(producer: KafkaProducer, message: Message, index: int | None) -> Any:
    headers = list(message.headers)
    try:
        return producer.send(message.topic, message.value, message.key, headers, index)
    except errors.MessageSizeTooLargeError as error:
        raise too_large(message) from error
    except ValueError as error:  # the client does not know this partition yet
        raise LogUnavailable(f"topic {message.topic} cannot be sent to: {error}") from error


def _acknowledged(message: Message, future: Any, deadline: float) -> Any:
    """Return the brokers' report on a message; `InvalidData` if it is too large for its topic."""
    try:
        return future.get(max(deadline - time.monotonic(), 0))
    except errors.MessageSizeTooLargeError as error:
        raise too_large(message) from error


class _Partitioner(Partitioner):  # type: ignore[misc]  # kafka-python has no types
    """Like the client's own partitioner, but hashes each distinct key only once."""

    def partition(
        self, topic: str, _key: object, key: bytes, _value: object, _bytes: object, cluster: Any
    ) -> int:
        indices = cluster.partitions_for_topic(topic)
        if not indices:
            raise ValueError(f"the client knows no partition of topic {topic}")
        return partition_index(key, len(indices))  # numbered from 0
