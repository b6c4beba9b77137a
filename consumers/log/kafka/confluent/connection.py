"""Connecting to Kafka with librdkafka: what every client is told, and what it has reported.

librdkafka connects by itself and retries for ever; it reports failures in a callback and raises
few of them. `Connection` keeps these reports, so that a timeout can say why, and a wait that no
retry can repair ends at once.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from lethe.consumers.log.kafka.server import Server
from lethe.consumers.log.kafka.settings import METADATA_SECONDS, REQUEST_SECONDS
from lethe.engine.errors import InvalidData, LogUnavailable

log = logging.getLogger(__name__)

_FORBIDDEN = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)
_SILENT = (
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError._MSG_TIMED_OUT,
    KafkaError._RESOLVE,
    KafkaError._WAIT_COORD,
    KafkaError.REQUEST_TIMED_OUT,
)


class _Quiet:
    """Passes librdkafka's log lines on as debug records of our own."""

    def log(self, level: int, line: str, *args: object) -> None:
        """Log one line."""
        del level
        log.debug(line, *args, extra={"action": "kafka_client"})


class Connection:
    """The failures that a client, or several, have reported since a broker last answered.

    With ``reached``, brokers have answered before, so a dropped connection says nothing about the
    protocol.
    """

    def __init__(self, server: Server, *, reached: bool = True) -> None:
        self.server = server
        self.reached = reached
        self.last: str | None = None
        """The newest failure."""
        self.lasting: str | None = None
        """Advice on a failure that no retry can repair."""

    def open(self, make: Any, more: Mapping[str, Any]) -> Any:
        """Create a client of librdkafka; raise `InvalidData` if it rejects its settings."""
        settings = {
            "bootstrap.servers": str(self.server),
            "client.id": self.server.client_id,
            "error_cb": self._note,
            "log_level": 0,  # what matters is reported through the callback
            "logger": _Quiet(),  # otherwise it writes to stderr
            "log.connection.close": False,
            "enable.metrics.push": False,
            "allow.auto.create.topics": False,
            "topic.metadata.refresh.interval.ms": int(METADATA_SECONDS * 1000),
            "socket.timeout.ms": int(REQUEST_SECONDS * 1000),
            "socket.connection.setup.timeout.ms": int(REQUEST_SECONDS * 1000),
            "socket.nagle.disable": True,
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 1000,  # reconnect quickly to a restarted broker
        }
        try:
            return make(settings | dict(self.server.access) | dict(more))
        except KafkaException as error:
            raise InvalidData(f"Kafka settings: {error.args[0].str()}") from error

    def _note(self, error: KafkaError) -> None:
        """Record a failure: librdkafka's ``error_cb``."""
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            return  # it follows the last broker's own failure and says less
        self.last = error.str()
        advice = _lasting(error, self.server)
        if advice is not None and not (self.reached and "speak" in advice):
            self.lasting = advice

    def clear(self) -> None:
        """Forget all failures: a broker has answered."""
        self.reached = True
        self.last = self.lasting = None

    def unreachable(self, otherwise: str) -> LogUnavailable:
        """Return the error for a broker that is unreachable or refused us."""
        if self.lasting is not None:
            return self.server.unusable(self.lasting)
        if self.last is None and not self.reached:  # a refusal would be on record
            return self.server.unusable(self.server.silent())
        return self.server.unreachable(self.last or otherwise)

    def failed(self, error: KafkaError) -> LogUnavailable:
        """Convert an error of librdkafka to `LogUnavailable`."""
        if error.code() in _FORBIDDEN:
            return self.server.forbidden(error.str())
        if error.code() in _SILENT or self.lasting is not None:
            return self.unreachable(error.str())
        return self.server.failed(f"{error.name()}: {error.str()}")

    @contextmanager
    def reaching(self) -> Iterator[None]:
        """Convert librdkafka's errors to `LogUnavailable`; our own errors pass through."""
        try:
            yield
        except KafkaException as error:
            raise self.failed(error.args[0]) from error


def _lasting(error: KafkaError, server: Server) -> str | None:
    """Return advice on a failure that no retry can repair; None for other failures.

    librdkafka has one code for all authentication failures; only its text tells them apart.
    """
    reason = error.str()
    if error.code() == KafkaError._AUTHENTICATION:
        lower = reason.lower()
        if "not supported by broker" in lower or "unsupported sasl mechanism" in lower:
            return server.other_mechanism()
        if "not valid given the current sasl state" in lower or "illegal_sasl_state" in lower:
            return server.nobody()
        return server.wrong_password()
    if error.code() in (KafkaError._SSL, KafkaError._TRANSPORT):
        if "certificate verify failed" in reason.lower():
            return server.not_verified()
        return server.tls(reason)
    return None
