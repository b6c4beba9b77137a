"""Where Kafka is: settings and errors that every client of confluent-kafka shares.

librdkafka connects by itself and retries for ever; it reports failures in a callback and raises
few of them. `Heard` keeps these reports, so that a timeout can say why, and a wait that no retry
can repair ends at once.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from lethe.consumers.log.kafka.advice import SigningOn
from lethe.engine.errors import InvalidData, LogUnavailable

log = logging.getLogger(__name__)

REQUEST_SECONDS = 10.0
# A recreated topic is noticed within this time, or at once if records arrive from it.
METADATA_SECONDS = 2.0
# How long brokers may be silent before a poll raises; a change of leader takes less.
UNREACHABLE_SECONDS = 5.0
# Longest time spent in one call into librdkafka before other work is checked. The call also delays
# signals.
SLICE_SECONDS = 0.1
CLOSE_SECONDS = 2.0

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


class Heard:
    """What a client has reported about its connections.

    With ``reached``, brokers have answered before, so a dropped connection says nothing about the
    protocol.
    """

    def __init__(self, signing_on: SigningOn, *, reached: bool) -> None:
        self._signing_on = signing_on
        self.reached = reached
        self.last: str | None = None
        """The newest failure."""
        self.lasting: str | None = None
        """Advice on a failure that no retry can repair."""

    def __call__(self, error: KafkaError) -> None:
        """Record a failure: librdkafka's ``error_cb``."""
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            return  # it follows the last broker's own failure and says less
        self.last = error.str()
        advice = lasting(error, self._signing_on)
        if advice is not None and not (self.reached and "speak" in advice):
            self.lasting = advice

    def clear(self) -> None:
        """Forget all failures: a broker has answered."""
        self.reached = True
        self.last = self.lasting = None


@dataclass(frozen=True, slots=True)
class Server:
    """Where Kafka is and how to authenticate; the same for every client."""

    bootstrap: tuple[str, ...]
    client_id: str
    access: Mapping[str, str] = field(repr=False)  # holds the password
    connect_seconds: float

    def __str__(self) -> str:
        return ",".join(self.bootstrap)

    @property
    def signing_on(self) -> SigningOn:
        """How this client authenticates."""
        access = self.access
        return SigningOn(
            access.get("security.protocol", "PLAINTEXT"),
            access.get("sasl.username"),
            access.get("sasl.mechanism"),
        )

    def settings(self, heard: Heard) -> dict[str, Any]:
        """Return the settings common to all kinds of client."""
        return {
            "bootstrap.servers": str(self),
            "client.id": self.client_id,
            "error_cb": heard,
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
            **self.access,
        }

    def unreachable(self, heard: Heard, otherwise: str) -> LogUnavailable:
        """Return the error for a broker that is unreachable or refused us."""
        if heard.lasting is not None:
            return LogUnavailable(f"Kafka at {self} cannot be used: {heard.lasting}")
        if heard.last is None and not heard.reached:  # a refusal would be on record
            return LogUnavailable(f"Kafka at {self} cannot be used: {self.signing_on.silent()}")
        reason = " ".join((heard.last or otherwise).split())
        return LogUnavailable(
            f"Kafka at {self} cannot be reached ({reason}): start it, or name another one with "
            "--kafka or LETHE_KAFKA_BOOTSTRAP_SERVERS"
        )

    def failed(self, error: KafkaError, heard: Heard) -> LogUnavailable:
        """Convert an error of librdkafka to `LogUnavailable`."""
        if error.code() in _FORBIDDEN:
            return LogUnavailable(f"Kafka at {self} {self.signing_on.forbidden(error.str())}")
        if error.code() in _SILENT or heard.lasting is not None:
            return self.unreachable(heard, error.str())
        return LogUnavailable(f"Kafka at {self} failed: {error.name()}: {error.str()}")

    @contextmanager
    def reaching(self, heard: Heard) -> Iterator[None]:
        """Convert librdkafka's errors to `LogUnavailable`; our own errors pass through."""
        try:
            yield
        except KafkaException as error:
            raise self.failed(error.args[0], heard) from error


def opened(make: Any, settings: Mapping[str, Any]) -> Any:
    """Return a client; raise `InvalidData` if librdkafka rejects its settings."""
    try:
        return make(dict(settings))
    except KafkaException as error:
        raise InvalidData(f"Kafka settings: {error.args[0].str()}") from error


def lasting(error: KafkaError, how: SigningOn) -> str | None:
    """Return advice on a failure that no retry can repair; None for other failures.

    librdkafka has one code for all authentication failures; only its text tells them apart.
    """
    reason = error.str()
    if error.code() == KafkaError._AUTHENTICATION:
        lower = reason.lower()
        if "not supported by broker" in lower or "unsupported sasl mechanism" in lower:
            return how.other_mechanism()
        if "not valid given the current sasl state" in lower or "illegal_sasl_state" in lower:
            return how.nobody()
        return how.wrong_password()
    if error.code() in (KafkaError._SSL, KafkaError._TRANSPORT):
        if "certificate verify failed" in reason.lower():
            return how.not_verified()
        return how.tls(reason)
    return None
