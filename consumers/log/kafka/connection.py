"""Connecting to Kafka with kafka-python: its network client, and why a broker refused it.

Written against the sources of kafka-python 3.0. It works around these defects:

- The client's constructors start a thread before they connect and leave it running if they fail.
  Here we create the network client ourselves, so that we can close it.
- The client logs connection errors to stderr through logging's last resort. Here its records
  become debug records of our own, unless the program has configured the ``kafka`` logger.
- The client retries a connection that was refused until its timeout, and then reports "unable to
  bootstrap". Here every failure is recorded, and the first one that no retry can repair ends the
  wait.
- `consumers.log.kafka.repairs` repairs the others; `consumers.log.kafka.versions` lists all.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from threading import Event
from typing import Any, TypeVar

from kafka import TopicPartition, errors

from lethe.consumers.log.base import Partition
from lethe.consumers.log.kafka import settings
from lethe.consumers.log.kafka.repairs import (
    DIRECT,
    SleepingClient,
    close_unsent,
    fetch_by_topic_id,
    hear_last_words,
    refuse_new_topics,
)
from lethe.consumers.log.kafka.server import Server
from lethe.consumers.log.kafka.versions import check_version
from lethe.engine.errors import InvalidData
from lethe.engine.store.server.tls import advice

T = TypeVar("T")

log = logging.getLogger(__name__)

_NO_FRAME = "Invalid frame length"  # not Kafka: how a TLS port answers plain text
_SIGNING_ON = (
    errors.SaslAuthenticationFailedError,
    errors.UnsupportedSaslMechanismError,
    errors.IllegalSaslStateError,  # the listener does not authenticate clients
)


class Connection:
    """The network client beneath one consumer, producer or admin client of kafka-python."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._client: Any = None
        self._refusals = _Refusals()
        self._seen = time.monotonic()

    def open(self, make: Callable[..., T], **more: Any) -> T:
        """Create a client of kafka-python on this connection.

        Raises
        ------
        LogUnavailable
            No broker can be reached, or all refused us.
        InvalidData
            The client rejects its settings, or its version has not what the repairs need.
        """
        check_version()
        quieten()

        def client(**configs: Any) -> Any:
            self._client = SleepingClient(**configs)
            refuse_new_topics(self._client)
            fetch_by_topic_id(self._client)
            hear_last_words(self._client)
            close_unsent(self._client)
            self._refusals.watch(self._client)
            return self._client

        common = {
            "bootstrap_servers": list(self._server.bootstrap),
            "client_id": self._server.client_id,
            "bootstrap_timeout_ms": int(self._server.connect_seconds * 1000),
            "request_timeout_ms": int(settings.REQUEST_SECONDS * 1000),
            "reconnect_backoff_max_ms": 1000,  # reconnect quickly to a restarted broker
            "proxy_url": DIRECT,
        }
        try:
            return make(kafka_client=client, **common | dict(self._server.access) | more)
        except errors.KafkaConfigurationError as error:
            raise InvalidData(f"Kafka settings: {error.args[0]}") from error
        except (errors.KafkaError, OSError) as error:
            raise self._unavailable(self._refusals.last or "no answer") from error
        finally:
            if self._client is not None and not self._client._manager.bootstrapped:
                self._client.close()

    @contextmanager
    def reaching(self) -> Iterator[None]:
        """Convert kafka-python's errors to `LogUnavailable`; our own errors pass through."""
        try:
            yield
        except errors.KafkaTimeoutError as error:
            raise self._unavailable(error) from error
        except errors.KafkaError as error:
            name = type(error).__name__
            # The producer wraps the error about a missing right.
            if isinstance(error, errors.AuthorizationError) or "AuthorizationFailed" in str(error):
                raise self._server.forbidden(str(error) or name) from error
            raise self._server.failed(f"{name}: {error}") from error

    def _unavailable(self, reason: object) -> Exception:
        """Return the error for a broker that is unreachable or refused us."""
        if isinstance(reason, Exception) and (explanation := _explain(reason, self._server)):
            return self._server.unusable(explanation)
        return self._server.unreachable(str(reason).strip() or type(reason).__name__)

    @property
    def broker_version(self) -> str:
        """The broker version whose requests the client uses."""
        return ".".join(map(str, self._client._manager.broker_version or ()))

    def leader_epoch(self, partition: Partition) -> int | None:
        """Return the epoch of a partition's leader in the last metadata; None if unknown."""
        place = TopicPartition(partition.topic, partition.index)
        epoch = self._client.cluster.leader_epoch_for_partition(place)
        return None if epoch is None or epoch < 0 else int(epoch)

    def known_topic_id(self, topic: str) -> str | None:
        """Return the topic's id in the last metadata; None if it is not there."""
        topic_id = self._client.cluster.topic_id(topic)
        return None if topic_id is None else str(topic_id)

    def ask(self, question: Callable[..., Any], *args: Any) -> Any:
        """Run a coroutine on the thread that drives the connection, and wait for its result.

        Its first argument is the connection manager. The client's own ``run`` would drive the
        network itself if that thread is a producer's.
        """
        answered = Event()
        manager = self._client._manager
        future = manager.call_soon(question, manager, *args)
        future.add_both(lambda _: answered.set())
        if not answered.wait(settings.REQUEST_SECONDS):
            raise errors.KafkaTimeoutError(f"no answer within {settings.REQUEST_SECONDS:.0f} s")
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
        elif now - self._seen > settings.UNREACHABLE_SECONDS:
            silence = f"no connection for {now - self._seen:.0f} s"
            raise self._unavailable(self._refusals.lasting or silence)


class _Refusals:
    """Records the failures of one client's connections."""

    def __init__(self) -> None:
        self.last: Exception | None = None
        self.lasting: Exception | None = None
        """The newest failure, if no retry can repair it."""
        self._refused: dict[object, Exception] = {}

    def watch(self, client: Any) -> None:
        """From now on, record why connections of ``client`` fail."""
        manager = client._manager
        connect = manager._connect

        async def connect_and_note(node: Any, connection: Any, *args: Any, **kwargs: Any) -> None:
            self.lasting = None
            connection.close_future.add_errback(lambda error: self._note(manager, node, error))
            await connect(node, connection, *args, **kwargs)
            if connection.init_future.failed():
                self._note(manager, node, connection.init_future.exception)
            elif connection.init_future.is_done:
                self._refused.pop(node.node_id, None)
                self.last = None

        manager._connect = connect_and_note

    def _note(self, manager: Any, node: Any, error: Exception) -> None:
        if _lasting(error, connected_before=manager.bootstrapped):
            self.lasting = error
        if self.lasting is None or self.lasting is error:
            self.last = error
        if manager.bootstrapped or self.lasting is not error:
            return
        self._refused[node.node_id] = error
        bootstrap = {broker.node_id for broker in manager.cluster.bootstrap_brokers()}
        if bootstrap <= self._refused.keys():
            # The client's next attempt finds these and raises, which ends its wait.
            manager._auth_failures.update(self._refused)


def _lasting(error: Exception, *, connected_before: bool) -> bool:
    """Return whether no retry can repair the failure."""
    if isinstance(error, _SIGNING_ON):
        return True
    tls_advice = advice(str(error), "")
    if connected_before:  # then a dropped connection says nothing about the protocol
        return tls_advice is not None and "speak" not in tls_advice
    return tls_advice is not None or _NO_FRAME in str(error)


def _explain(error: Exception, server: Server) -> str | None:
    """Return what happened and what to do, for failures of TLS and of authentication."""
    reason = " ".join(str(error).split())
    if isinstance(error, errors.UnsupportedSaslMechanismError):
        return server.other_mechanism()
    if isinstance(error, errors.IllegalSaslStateError):
        return server.nobody()
    if isinstance(error, errors.SaslAuthenticationFailedError):
        return server.wrong_password()
    if (tls_advice := server.tls(reason)) is not None:
        return tls_advice
    return server.other_protocol() if _NO_FRAME in reason else server.closed(reason)


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
