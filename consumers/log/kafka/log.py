"""The log in Kafka, and its topics."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

from kafka import KafkaAdminClient, errors
from kafka.admin import ConfigResource, ConfigResourceType

from lethe.consumers.log.base import Log, TopicSpec
from lethe.consumers.log.kafka import settings
from lethe.consumers.log.kafka.cluster import Cluster, by_topic
from lethe.consumers.log.kafka.consumer import KafkaConsumer
from lethe.consumers.log.kafka.producer import KafkaProducer
from lethe.consumers.log.kafka.reader import KafkaReader
from lethe.consumers.log.kafka.server import Server
from lethe.engine.errors import LogUnavailable


class KafkaLog(Log):
    """The log in a Kafka cluster; its parts have connections of their own.

    Parameters
    ----------
    bootstrap_servers : str or sequence of str
        ``host:port``; several as a comma-separated list or a sequence.
    client_id : str
        The name that brokers use for this program in their logs and quotas.
    access : mapping, optional
        kafka-python's settings for TLS and SASL (`consumers.service.configuration.credentials`).
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
        access: Mapping[str, Any] = MappingProxyType({}),
        session_seconds: float = settings.SESSION_SECONDS,
        connect_seconds: float = settings.CONNECT_SECONDS,
    ) -> None:
        if isinstance(bootstrap_servers, str):
            bootstrap_servers = bootstrap_servers.split(",")
        hosts = tuple(host.strip() for host in bootstrap_servers if host.strip())
        self._server = Server(hosts, client_id, access, connect_seconds)
        self._session_seconds = session_seconds

    def consumer(self, group: str, topics: Sequence[str]) -> KafkaConsumer:
        """Join ``group`` and read ``topics``."""
        return KafkaConsumer(self._server, group, topics, self._session_seconds)

    def producer(self) -> KafkaProducer:
        """Return a new producer; it connects on its first send."""
        return KafkaProducer(self._server)

    def reader(self) -> KafkaReader:
        """Return a new reader."""
        return KafkaReader(self._server)

    @contextmanager
    def _admin(self) -> Iterator[tuple[Cluster, Any]]:
        """Connect for queries and for administration, within a ``with`` block."""
        cluster = Cluster(self._server)
        admin = cluster.open(KafkaAdminClient)
        try:
            with cluster.reaching():
                yield cluster, admin
        finally:
            admin.close()

    def ensure_topics(self, specs: Sequence[TopicSpec]) -> Sequence[str]:
        """Create the missing topics, and return once the brokers report leaders for them."""
        names = [spec.name for spec in specs]
        with self._admin() as (cluster, admin):
            present = by_topic(cluster.leaders(names))
            missing = [spec for spec in specs if spec.name not in present]
            created = [spec.name for spec in missing if self._create(admin, spec)]
            deadline = time.monotonic() + settings.TOPIC_SECONDS
            while len(present) < len(set(names)):
                leaders = cluster.leaders(names)
                present = by_topic(leaders) if min(leaders.values(), default=-1) >= 0 else {}
                if time.monotonic() > deadline:
                    raise LogUnavailable(
                        f"Kafka at {self._server} does not list the topics that it created "
                        f"({', '.join(created)}): check its logs"
                    )
                time.sleep(0.02)
        return created

    def _create(self, admin: Any, spec: TopicSpec) -> bool:
        """Create a topic; return False if it exists by now."""
        new_topic = {"num_partitions": spec.partitions, "configs": settings.topic_settings(spec)}
        answer = admin.create_topics({spec.name: new_topic}, raise_errors=False)
        [topic] = answer["topics"]
        kind = errors.for_code(topic["error_code"])
        if kind not in (errors.NoError, errors.TopicAlreadyExistsError):
            raise self._server.not_created(spec.name, topic["error_message"] or kind.__name__)
        return kind is errors.NoError

    def delete_topic(self, name: str) -> None:
        """Delete a topic and its records; if recreated, it has a new topic id."""
        with self._admin() as (_, admin):
            admin.delete_topics([name])

    def topic_settings(self, topic: str) -> Mapping[str, str]:
        """Return a topic's settings, including the broker's defaults.

        Empty if there is no such topic, or no right to describe it.
        """
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        with self._admin() as (_, admin):
            by_type = admin.describe_configs([resource], config_filter="all")
        [entries] = [topics.get(topic, {}) for topics in by_type.values()]
        return {name: str(entry["value"]) for name, entry in entries.items()}

    def ping(self) -> str:
        """Return the cluster's version and size, and how it is reached."""
        with self._admin() as (cluster, admin):
            brokers = admin.describe_cluster()["brokers"]
        where = f"Kafka {cluster.broker_version} at {self._server}"
        return f"{where}, {len(brokers)} brokers, {self._server.protocol}"

    def close(self) -> None:
        """Do nothing: the log itself holds no connection."""
