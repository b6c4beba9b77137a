"""Kafka as a log: what its two clients share, of topics and of sending.

`consumers.log.kafka.kafka_python` and `consumers.log.kafka.confluent` keep the same promises and
can use each other's topics. docs/kafka-clients.md describes how they differ.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

from lethe.consumers.log.base import (
    Appended,
    Bounds,
    Log,
    Message,
    Partition,
    Producer,
    TopicSpec,
    missing_topic,
)
from lethe.consumers.log.kafka import settings
from lethe.consumers.log.kafka.server import Server
from lethe.engine.errors import LogUnavailable


class Reachable(Protocol):
    """Something that talks to brokers."""

    def reaching(self) -> AbstractContextManager[None]:
        """Convert the client's errors to `LogUnavailable`; our own errors pass through."""
        ...


class Cluster(Protocol):
    """Queries to a cluster other than sending and reading: topics, their ids, offsets."""

    def leaders(self, topics: Sequence[str]) -> Mapping[Partition, int]:
        """Return the partitions of ``topics`` with their leaders (-1: currently none).

        Topics that do not exist are omitted.
        """
        ...

    def bounds(self, partition: Partition, position: int = 0) -> Bounds:
        """Return the partition's bounds for a reader of committed records.

        Raises
        ------
        PartitionReset
            Its topic is gone; the error names ``position``.
        """
        ...

    def ends(self, partitions: Iterable[Partition]) -> Mapping[Partition, int]:
        """Return the end of each partition, including uncommitted records."""
        ...


class Admin(Reachable, Cluster, Protocol):
    """Queries and changes to topics."""

    def create(self, spec: TopicSpec) -> bool:
        """Create a topic; return False if it exists by now."""
        ...

    def delete(self, topic: str) -> None:
        """Delete a topic."""
        ...

    def settings_of(self, topic: str) -> Mapping[str, str]:
        """Return a topic's settings; empty without such a topic, or the right to describe it."""
        ...

    def ping(self) -> str:
        """Return a short line about the cluster."""
        ...


def by_topic(partitions: Iterable[Partition]) -> dict[str, list[Partition]]:
    """Return the partitions of each topic by index."""
    topics: dict[str, list[Partition]] = {}
    for partition in sorted(partitions):
        topics.setdefault(partition.topic, []).append(partition)
    return topics


class KafkaLog(Log):
    """The log in a Kafka cluster; a subclass for each client.

    Parameters
    ----------
    bootstrap_servers : str or sequence of str
        ``host:port``; several as a comma-separated list or a sequence.
    client_id : str
        The name that brokers use for this program in their logs and quotas.
    access : mapping, optional
        The client's own settings for TLS and SASL (`consumers.service.configuration.credentials`).
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

    @abstractmethod
    def _admin(self) -> AbstractContextManager[Admin]:
        """Connect for administration."""

    def ensure_topics(self, specs: Sequence[TopicSpec]) -> Sequence[str]:
        """Create the missing topics, and return once the brokers report leaders for them."""
        names = [spec.name for spec in specs]
        with self._admin() as admin, admin.reaching():
            present = by_topic(admin.leaders(names))
            missing = [spec for spec in specs if spec.name not in present]
            created = [spec.name for spec in missing if admin.create(spec)]
            deadline = time.monotonic() + settings.TOPIC_SECONDS
            while len(present) < len(set(names)):
                leaders = admin.leaders(names)
                present = by_topic(leaders) if min(leaders.values(), default=-1) >= 0 else {}
                if time.monotonic() > deadline:
                    raise LogUnavailable(
                        f"Kafka at {self._server} does not list the topics that it created "
                        f"({', '.join(created)}): check its logs"
                    )
                time.sleep(0.02)
        return created

    def delete_topic(self, name: str) -> None:
        """Delete a topic and its records; if recreated, it has a new topic id."""
        with self._admin() as admin, admin.reaching():
            admin.delete(name)

    def topic_settings(self, topic: str) -> Mapping[str, str]:
        """Return a topic's settings, including the broker's defaults.

        Empty if there is no such topic, or no right to describe it.
        """
        with self._admin() as admin, admin.reaching():
            return admin.settings_of(topic)

    def ping(self) -> str:
        """Return the cluster's size and how it is reached."""
        with self._admin() as admin, admin.reaching():
            return admin.ping()

    def close(self) -> None:
        """Do nothing: the log itself holds no connection."""


class KafkaProducer(Producer):
    """An idempotent producer; a subclass for each client.

    After a failure the client is discarded with everything still in it, so that nothing of the
    failed send can arrive after the caller has sent it again.
    """

    _connection: Reachable
    _cluster: Cluster

    def __init__(self, server: Server) -> None:
        self._server = server
        self._client: Any = None
        self._topics: dict[str, list[Partition]] = {}

    @abstractmethod
    def _open(self) -> Any:
        """Return the client, which is created for the first send and after each failure."""

    @abstractmethod
    def _refresh(self) -> None:
        """Prepare to look up topics."""

    @abstractmethod
    def _send(self, client: Any, batch: Sequence[Message]) -> Any:
        """Queue a batch in order; return what `_acknowledged` needs."""

    @abstractmethod
    def _acknowledged(self, flush: KafkaFlush, timeout: float) -> Sequence[Appended]:
        """Wait until the brokers have acknowledged every message."""

    @abstractmethod
    def _discard(self, client: Any) -> None:
        """Stop a client and drop what it has not sent."""

    def begin(self, messages: Iterable[Message]) -> KafkaFlush:
        """Queue in order; the client's own threads send."""
        batch = list(messages)
        try:
            with self._connection.reaching():
                self._refresh()
                self._look_up(batch)
                client = self._open()
                return KafkaFlush(self, client, batch, self._send(client, batch))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Release the connection, and drop what was not sent."""
        self._topics.clear()
        client, self._client = self._client, None
        if client is not None:
            self._discard(client)

    def acknowledge(self, flush: KafkaFlush, timeout: float) -> Sequence[Appended]:
        """Return where the messages of ``flush`` are: for the flush itself."""
        if flush.client is not self._client:
            raise LogUnavailable(
                f"an earlier send to Kafka at {self._server} failed: send this again as well"
            )
        try:
            with self._connection.reaching():
                return self._acknowledged(flush, timeout)
        except BaseException:
            self.close()
            raise

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
        known = self._topics.get(message.topic)
        return known is not None and (message.partition or 0) < len(known)

    def _index(self, message: Message) -> int | None:
        """Return the requested partition; None: the client derives it from the key."""
        if message.partition is None:
            return None
        return message.index_among(len(self._topics[message.topic]))


@dataclass(frozen=True, slots=True)
class KafkaFlush:
    """Messages that a client is sending."""

    producer: KafkaProducer
    client: Any
    batch: Sequence[Message]
    sent: Any

    def wait(self, timeout: float = 30.0) -> Sequence[Appended]:
        """Return where each message is, once the brokers have acknowledged all of them."""
        return self.producer.acknowledge(self, timeout)
