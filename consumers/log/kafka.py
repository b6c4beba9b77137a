"""Kafka as a log, on kafka-python 3.0.

Every setting that could lose or double a request is explicit, because the client's defaults are
made for other uses. Reading: `consumers.log.kafka_group`
and `consumers.log.kafka_reader`.

Topics are created with ``compression.type=uncompressed``: the broker unpacks and checks what
producers send, and consumers fetch plain batches of bounded size. Set the same on topics that exist
already; what comes packed all the same is bounded by `consumers.log.kafka_batches`.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from kafka import KafkaAdminClient, KafkaProducer, errors

from consumers.log.base import Message, TopicSpec
from consumers.log.kafka_connection import METADATA_SECONDS, Connection, Server
from consumers.log.kafka_group import KafkaGroupConsumer
from consumers.log.kafka_reader import KafkaReader
from consumers.log.kafka_repairs import abandon
from engine.errors import InvalidData, LogUnavailable

CONNECT_SECONDS = 10.0
# A dead worker's partitions stand still for this long. The client's heartbeats run on a thread of
# its own, so a long computation does not end a session; MAX_POLL_SECONDS is for that.
SESSION_SECONDS = 10.0
DELIVERY_SECONDS = 30.0
# Above what the topics take (see `consumers.topics`): a dead letter is a request and some headers.
MAX_REQUEST_BYTES = 1_200_000
_TOPIC_SECONDS = 15.0


class KafkaLog:
    """The log in a Kafka cluster.

    Parameters
    ----------
    bootstrap_servers : str or sequence of str
        ``host:port``, several of them with commas or as a sequence.
    client_id : str
        The name under which brokers log and account for this program.
    extra : mapping, optional
        Settings passed to every client: ``security_protocol``, ``sasl_*``, ``ssl_*``.
    session_seconds : float, optional
        How long a member that is not heard of keeps its partitions. Brokers allow 6 s to 30 min
        unless they are told otherwise.
    connect_seconds : float, optional
        How long to try to reach a broker before `LogUnavailable`.
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
        """Create the missing topics, and return when the brokers show them with leaders."""
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
        """Delete a topic and its records; made again, it has another topic id."""
        with self._server.reaching(), self._admin() as (admin, _):
            admin.delete_topics([name])

    def consumer(self, group: str, topics: Sequence[str]) -> KafkaGroupConsumer:
        """Join ``group`` and read ``topics``."""
        return KafkaGroupConsumer(self._server, group, topics, self._session_seconds)

    def producer(self) -> KafkaLogProducer:
        """Return a new producer; it connects when it first publishes."""
        return KafkaLogProducer(self._server)

    def reader(self) -> KafkaReader:
        """Return a new reader."""
        return KafkaReader(self._server)

    def ping(self) -> str:
        """Return the cluster's version and size."""
        with self._server.reaching(), self._admin() as (admin, connection):
            brokers = admin.describe_cluster()["brokers"]
            version = connection.broker_version
        how = self._server.extra.get("security_protocol", "PLAINTEXT")
        return f"Kafka {version} at {self._server}, {len(brokers)} brokers, {how}"

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
        configs = {
            "cleanup.policy": "compact" if spec.compacted else "delete",
            "max.message.bytes": str(spec.max_message_bytes),
            "compression.type": "uncompressed",
        }
        if spec.retention_ms is not None:
            configs["retention.ms"] = str(spec.retention_ms)
        wanted = {"num_partitions": spec.partitions, "configs": configs | dict(spec.extra)}
        answer = admin.create_topics({spec.name: wanted}, raise_errors=False)
        [topic] = answer["topics"]
        kind = errors.for_code(topic["error_code"])
        if kind not in (errors.NoError, errors.TopicAlreadyExistsError):
            raise LogUnavailable(
                f"Kafka at {self._server} did not create topic {spec.name}: "
                f"{topic['error_message'] or kind.__name__}"
            )
        return kind is errors.NoError


class KafkaLogProducer:
    """An idempotent producer.

    After a failure the client is thrown away with everything that it still holds, so that
    nothing of the failed publish can be sent behind the caller's repetition of it.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._producer: KafkaProducer | None = None
        self._connection = Connection(server)
        self._topics: set[str] = set()

    def publish(self, messages: Iterable[Message], timeout: float = 30.0) -> None:
        """Send in order and return when the brokers have acknowledged all."""
        deadline = time.monotonic() + timeout
        batch = list(messages)
        try:
            with self._server.reaching():
                producer = self._open()
                self._check_topics({message.topic for message in batch})
                sent = [_send(producer, message) for message in batch]
                for future in sent:
                    future.get(max(deadline - time.monotonic(), 0.0))
        except BaseException:
            self._abandon()
            raise

    def close(self) -> None:
        """Release the connection; everything published was acknowledged before."""
        if self._producer is not None:
            self._abandon()

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
                "compression_type": None,
                "max_request_size": MAX_REQUEST_BYTES,
                "max_block_ms": int(DELIVERY_SECONDS * 1000),
                "allow_auto_create_topics": False,
                "metrics_enabled": False,
                "metadata_max_age_ms": int(METADATA_SECONDS * 1000),
            }
            self._producer = self._connection.open(
                KafkaProducer, **self._server.settings() | settings
            )
        return self._producer

    def _check_topics(self, topics: set[str]) -> None:
        """Refuse a topic that does not exist at once, instead of waiting for its metadata."""
        unknown = sorted(topics - self._topics)
        if not unknown:
            return
        found = self._connection.partitions(unknown)
        for topic in unknown:
            if topic not in found:
                raise LogUnavailable(
                    f"topic {topic} does not exist in Kafka at {self._server}: `lethe work` and "
                    "`lethe register` make it"
                )
        self._topics |= found.keys()

    def _abandon(self) -> None:
        if self._producer is not None:
            producer, self._producer = self._producer, None
            abandon(producer)


def _send(producer: KafkaProducer, message: Message) -> Any:
    try:
        return producer.send(message.topic, message.value, message.key, list(message.headers))
    except errors.MessageSizeTooLargeError as error:
        raise InvalidData(
            f"a message of {len(message.value or b'')} bytes for topic {message.topic}, which "
            f"takes at most {MAX_REQUEST_BYTES} with key and headers"
        ) from error
