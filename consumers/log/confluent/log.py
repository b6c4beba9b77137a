"""Kafka as a log, using confluent-kafka.

Every setting that could lose or duplicate a request is explicit, as it is with kafka-python
(`consumers.log.kafka.log`). The two clients keep the same promises and can use each other's
topics. docs/kafka-clients.md describes how they differ.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.cimpl import NewTopic

from lethe.consumers.log.base import TopicSpec
from lethe.consumers.log.confluent.group import ConfluentGroupConsumer
from lethe.consumers.log.confluent.producer import ConfluentProducer
from lethe.consumers.log.confluent.questions import Questions
from lethe.consumers.log.confluent.reader import ConfluentReader
from lethe.consumers.log.confluent.server import Server
from lethe.consumers.log.kafka.limits import CONNECT_SECONDS, SESSION_SECONDS, kafka_settings
from lethe.engine.errors import LogUnavailable

_TOPIC_SECONDS = 15.0


class ConfluentLog:
    """The log in a Kafka cluster.

    Parameters
    ----------
    bootstrap_servers : str or sequence of str
        ``host:port``; several as a comma-separated list or a sequence.
    client_id : str
        The name that brokers use for this program in their logs and quotas.
    access : mapping, optional
        librdkafka's settings for TLS and SASL (`consumers.service.credentials.librdkafka_access`).
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
        access: Mapping[str, str] = MappingProxyType({}),
        session_seconds: float = SESSION_SECONDS,
        connect_seconds: float = CONNECT_SECONDS,
    ) -> None:
        if isinstance(bootstrap_servers, str):
            bootstrap_servers = bootstrap_servers.split(",")
        hosts = tuple(host.strip() for host in bootstrap_servers if host.strip())
        self._server = Server(hosts, client_id, access, connect_seconds)
        self._questions = Questions(self._server)
        self._session_seconds = session_seconds

    def ensure_topics(self, specs: Sequence[TopicSpec]) -> Sequence[str]:
        """Create the missing topics, and return once the brokers report leaders for them."""
        names = [spec.name for spec in specs]
        present = self._questions.partitions(names)
        created = [s.name for s in specs if s.name not in present and self._create(s)]
        deadline = time.monotonic() + _TOPIC_SECONDS
        while len(present) < len(set(names)):
            leaders = self._questions.leaders(names)
            present = {p.topic: [] for p in leaders if leaders[p] >= 0}
            if any(leader < 0 for leader in leaders.values()):
                present = {}
            if time.monotonic() > deadline:
                raise LogUnavailable(
                    f"Kafka at {self._server} does not list the topics that it created "
                    f"({', '.join(created)}): check its logs"
                )
            time.sleep(0.02)
        return created

    def delete_topic(self, name: str) -> None:
        """Delete a topic and its records; if recreated, it has a new topic id."""
        with self._server.reaching(self._questions.heard):
            self._questions.answer(self._questions.admin.delete_topics([name])[name])

    def consumer(self, group: str, topics: Sequence[str]) -> ConfluentGroupConsumer:
        """Join ``group`` and read ``topics``."""
        return ConfluentGroupConsumer(self._questions, group, topics, self._session_seconds)

    def producer(self) -> ConfluentProducer:
        """Return a new producer; it connects on its first send."""
        return ConfluentProducer(self._questions)

    def reader(self) -> ConfluentReader:
        """Return a new reader; it connects on first use."""
        return ConfluentReader(self._questions)

    def ping(self) -> str:
        """Return the client's version and the cluster's size."""
        with self._server.reaching(self._questions.heard):
            cluster = self._questions.answer(self._questions.admin.describe_cluster())
        protocol = self._server.signing_on.protocol
        client = f"confluent-kafka {confluent_kafka.__version__}"
        return f"Kafka at {self._server}, {len(cluster.nodes)} brokers, {protocol}, by {client}"

    def topic_settings(self, topic: str) -> Mapping[str, str]:
        """Return a topic's settings; empty without such a topic, or the right to describe it."""
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        with self._server.reaching(self._questions.heard):
            try:
                settings = self._questions.answer(
                    self._questions.admin.describe_configs([resource])[resource]
                )
            except KafkaException:
                return {}
        return {name: str(entry.value) for name, entry in settings.items()}

    def close(self) -> None:
        """Release the connections that its parts share."""
        self._questions.close()

    def _create(self, spec: TopicSpec) -> bool:
        new = NewTopic(spec.name, spec.partitions, config=kafka_settings(spec))
        try:
            self._questions.answer(self._questions.admin.create_topics([new])[spec.name])
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return False
            raise LogUnavailable(
                f"Kafka at {self._server} did not create topic {spec.name}: {error.args[0].str()}"
            ) from error
        return True
