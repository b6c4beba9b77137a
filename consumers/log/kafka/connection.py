"""Connecting to Kafka: settings, errors, topic ids, and a quiet kafka-python.

Written against the sources of kafka-python 3.0. It works around these defects:

- The client's constructors start a thread before they connect and leave it running if they fail.
  Here we create the network client ourselves, so that we can close it.
- The client logs connection errors to stderr through logging's last resort. Here its records
  become debug records of our own, unless the program has configured the ``kafka`` logger.
- `consumers.log.kafka.repairs` repairs the others.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from threading import Event
from typing import Any, TypeVar

from kafka import TopicPartition, errors
from kafka.protocol.metadata import MetadataRequest

from lethe.consumers.log.base import Partition
from lethe.consumers.log.kafka.refusals import Refusals, explain, forbidden
from lethe.consumers.log.kafka.repairs import (
    DIRECT,
    SleepingClient,
    fetch_by_topic_id,
    hear_last_words,
    refuse_new_topics,
)
from lethe.engine.errors import InvalidData, LogUnavailable

T = TypeVar("T")

log = logging.getLogger(__name__)

REQUEST_SECONDS = 10.0
# A recreated topic is noticed within this time, or at once if its offsets do not match.
METADATA_SECONDS = 2.0
# How long no broker may be connected before a poll raises; a change of leader takes less.
UNREACHABLE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Server:
    """Where Kafka is and how to authenticate; the same for every client."""

    bootstrap: tuple[str, ...]
    client_id: str
    extra: Mapping[str, Any] = field(repr=False)  # holds the password
    connect_seconds: float

    def __str__(self) -> str:
        return ",".join(self.bootstrap)

    def settings(self) -> dict[str, Any]:
        """Return the settings common to all kinds of client."""
        return {
            "bootstrap_servers": list(self.bootstrap),
            "client_id": self.client_id,
            "bootstrap_timeout_ms": int(self.connect_seconds * 1000),
            "request_timeout_ms": int(REQUEST_SECONDS * 1000),
            "reconnect_backoff_max_ms": 1000,  # reconnect quickly to a restarted broker
            "proxy_url": DIRECT,
            **self.extra,
        }

    def unreachable(self, reason: object) -> LogUnavailable:
        """Return the error for a broker that is unreachable or refused us."""
        if isinstance(reason, Exception) and (explanation := explain(reason, self.extra)):
            return LogUnavailable(f"Kafka at {self} cannot be used: {explanation}")
        text = " ".join(str(reason).split()) or type(reason).__name__
        return LogUnavailable(
            f"Kafka at {self} cannot be reached ({text}): start it, or name another one with "
            "--kafka or LETHE_KAFKA_BOOTSTRAP_SERVERS"
        )

    @contextmanager
    def reaching(self) -> Iterator[None]:
        """Convert kafka-python's errors to `LogUnavailable`; our own errors pass through."""
        try:
            yield
        except errors.KafkaTimeoutError as error:
            raise self.unreachable(error) from error
        except errors.AuthorizationError as error:
            raise LogUnavailable(f"Kafka at {self} {forbidden(error, self.extra)}") from error
        except errors.KafkaError as error:
            if "AuthorizationFailed" in str(error):  # the producer wraps it
                raise LogUnavailable(f"Kafka at {self} {forbidden(error, self.extra)}") from error
            name = type(error).__name__
            raise LogUnavailable(f"Kafka at {self} failed: {name}: {error}") from error


class Connection:
    """The network client beneath one consumer, producer or admin client of kafka-python."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._client: Any = None
        self._refusals = Refusals()
        self._seen = time.monotonic()

    def open(self, make: Callable[..., T], **settings: Any) -> T:
        """Create a client of kafka-python on this connection; raise `LogUnavailable` on failure."""
        quieten()

        def client(**configs: Any) -> Any:
            self._client = SleepingClient(**configs)
            refuse_new_topics(self._client)
            fetch_by_topic_id(self._client)
            hear_last_words(self._client)
            self._refusals.watch(self._client)
            return self._client

        try:
            return make(kafka_client=client, **settings)
        except errors.KafkaConfigurationError as error:
            raise InvalidData(f"Kafka settings: {error.args[0]}") from error
        except (errors.KafkaError, OSError) as error:
            raise self._server.unreachable(self._refusals.last or "no answer") from error
        finally:
            if self._client is not None and not self._client._manager.bootstrapped:
                self._client.close()

    @property
    def broker_version(self) -> str:
        """The broker version whose requests the client uses."""
        return ".".join(map(str, self._client._manager.broker_version or ()))

    def leader_epoch(self, topic: str, index: int) -> int | None:
        """Return the epoch of a partition's leader in the last metadata; None if unknown."""
        epoch = self._client.cluster.leader_epoch_for_partition(TopicPartition(topic, index))
        return None if epoch is None or epoch < 0 else int(epoch)

    def known_topic_id(self, topic: str) -> str | None:
        """Return the topic's id in the last metadata; None if it is not there."""
        topic_id = self._client.cluster.topic_id(topic)
        return None if topic_id is None else str(topic_id)

    def partitions(self, topics: Sequence[str]) -> dict[str, list[Partition]]:
        """Ask a broker for the partitions of ``topics``; omit topics that do not exist."""
        deadline = time.monotonic() + REQUEST_SECONDS
        while True:
            try:
                leaders = self.ask(_describe, topics)
            except errors.KafkaError as error:
                if not isinstance(error, errors.RetriableError) or time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
                continue
            by_topic: dict[str, list[Partition]] = {}
            for partition in sorted(leaders):
                by_topic.setdefault(partition.topic, []).append(partition)
            return by_topic

    def ask(self, question: Callable[..., Any], *args: Any) -> Any:
        """Run a coroutine on the thread that drives the connection, and wait for its result.

        Its first argument is the connection manager. The client's own ``run`` would drive the
        network itself if that thread is a producer's.
        """
        answered = Event()
        manager = self._client._manager
        future = manager.call_soon(question, manager, *args)
        future.add_both(lambda _: answered.set())
        if not answered.wait(REQUEST_SECONDS):
            raise errors.KafkaTimeoutError(f"no answer within {REQUEST_SECONDS:.0f} s")
        if future.exception is not None:
            raise future.exception
        return future.value

    def asleep(self) -> AbstractContextManager[None]:
        """Keep the sending thread asleep while messages are queued."""
        asleep: AbstractContextManager[None] = self._client.asleep()
        return asleep

    def check(self) -> None:
        """Raise `LogUnavailable` if no broker has been connected for some seconds."""
        now = time.monotonic()
        if any(connection.connected for connection in list(self._client._manager._conns.values())):
            self._seen = now
        elif now - self._seen > UNREACHABLE_SECONDS:
            silence = f"no connection for {now - self._seen:.0f} s"
            raise self._server.unreachable(self._refusals.lasting or silence)


async def _describe(manager: Any, topics: Sequence[str]) -> dict[Partition, int]:
    return described(await manager.send(describe_request(topics)))


def describe_request(topics: Sequence[str]) -> Any:
    """Return a request for the metadata of ``topics`` that creates none of them."""
    return MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name=topic) for topic in topics],
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )


def described(response: Any) -> dict[Partition, int]:
    """Return the partitions in a metadata response, with their leaders (-1: currently none)."""
    leaders: dict[Partition, int] = {}
    for topic in response.topics:
        kind = errors.for_code(topic.error_code)
        if kind is errors.NoError:
            for info in topic.partitions:
                partition = Partition(topic.name, str(topic.topic_id), info.partition_index)
                leaders[partition] = int(info.leader_id)
        elif kind is not errors.UnknownTopicOrPartitionError:
            raise kind(topic.name)
    return leaders


class _Demoted(logging.Handler):
    """Passes kafka-python's log records on as debug records of our own."""

    def emit(self, record: logging.LogRecord) -> None:
        log.debug("%s", record.getMessage(), extra={"action": "kafka_client"})


def quieten() -> None:
    """Keep kafka-python's own logging off stderr, unless the program has configured it."""
    client_log = logging.getLogger("kafka")
    has_handler = any(not isinstance(h, logging.NullHandler) for h in client_log.handlers)
    if client_log.level == logging.NOTSET and not has_handler:
        client_log.setLevel(logging.WARNING)
        client_log.propagate = False
        client_log.addHandler(_Demoted())
