"""Where Kafka is: settings and errors that every client of confluent-kafka shares.

librdkafka connects by itself and for ever; it tells what goes wrong in a callback and raises
little. `Heard` keeps what it told, so that a wait that is over can say why, and one that no
repetition mends ends at once.
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
# A topic made again is noticed within this time, or at once when records come from it.
METADATA_SECONDS = 2.0
# How long no broker may have answered before a poll says so; a leader's change takes less.
UNREACHABLE_SECONDS = 5.0
# Between two looks at what else there is to do while a call into librdkafka waits. It holds up
# signals as well.
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
    """Passes librdkafka's log lines on as our debug records."""

    def log(self, level: int, line: str, *args: object) -> None:
        """Take one line."""
        del level
        log.debug(line, *args, extra={"action": "kafka_client"})


class Heard:
    """What a client told of its connections.

    With ``reached``, brokers were there before: a connection that is cut then says nothing of
    protocols.
    """

    def __init__(self, signing_on: SigningOn, *, reached: bool) -> None:
        self._signing_on = signing_on
        self.reached = reached
        self.last: str | None = None
        """The newest failure."""
        self.lasting: str | None = None
        """What to do about one that trying again cannot mend."""

    def __call__(self, error: KafkaError) -> None:
        """Keep a failure: librdkafka's ``error_cb``."""
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            return  # it follows the failure of the last one and says less
        self.last = error.str()
        found = lasting(error, self._signing_on)
        if found is not None and not (self.reached and "speak" in found):
            self.lasting = found

    def clear(self) -> None:
        """Forget all: a broker answered."""
        self.reached = True
        self.last = self.lasting = None


@dataclass(frozen=True, slots=True)
class Server:
    """Where Kafka is and how to sign on; the same for every client that is made."""

    bootstrap: tuple[str, ...]
    client_id: str
    access: Mapping[str, str] = field(repr=False)  # holds the password
    connect_seconds: float

    def __str__(self) -> str:
        return ",".join(self.bootstrap)

    @property
    def signing_on(self) -> SigningOn:
        """How this client signs on."""
        access = self.access
        return SigningOn(
            access.get("security.protocol", "PLAINTEXT"),
            access.get("sasl.username"),
            access.get("sasl.mechanism"),
        )

    def settings(self, heard: Heard) -> dict[str, Any]:
        """Return the settings that every kind of client takes."""
        return {
            "bootstrap.servers": str(self),
            "client.id": self.client_id,
            "error_cb": heard,
            "log_level": 0,  # what matters comes through the callback
            "logger": _Quiet(),  # it writes to stderr else
            "log.connection.close": False,
            "enable.metrics.push": False,
            "allow.auto.create.topics": False,
            "topic.metadata.refresh.interval.ms": int(METADATA_SECONDS * 1000),
            "socket.timeout.ms": int(REQUEST_SECONDS * 1000),
            "socket.connection.setup.timeout.ms": int(REQUEST_SECONDS * 1000),
            "socket.nagle.disable": True,
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 1000,  # a restarted broker is found again at once
            **self.access,
        }

    def unreachable(self, heard: Heard, otherwise: str) -> LogUnavailable:
        """Return the error for a broker that is not there, or that sent us away."""
        if heard.lasting is not None:
            return LogUnavailable(f"Kafka at {self} cannot be used: {heard.lasting}")
        if heard.last is None and not heard.reached:  # who refuses to connect is heard
            return LogUnavailable(f"Kafka at {self} cannot be used: {self.signing_on.silent()}")
        said = " ".join((heard.last or otherwise).split())
        return LogUnavailable(
            f"Kafka at {self} cannot be reached ({said}): start it, or name another one with "
            "--kafka or LETHE_KAFKA_BOOTSTRAP_SERVERS"
        )

    def failed(self, error: KafkaError, heard: Heard) -> LogUnavailable:
        """Return an error of librdkafka's as ours."""
        if error.code() in _FORBIDDEN:
            return LogUnavailable(f"Kafka at {self} {self.signing_on.forbidden(error.str())}")
        if error.code() in _SILENT or heard.lasting is not None:
            return self.unreachable(heard, error.str())
        return LogUnavailable(f"Kafka at {self} failed: {error.name()}: {error.str()}")

    @contextmanager
    def reaching(self, heard: Heard) -> Iterator[None]:
        """Turn librdkafka's errors into `LogUnavailable`; ours pass."""
        try:
            yield
        except KafkaException as error:
            raise self.failed(error.args[0], heard) from error


def opened(make: Any, settings: Mapping[str, Any]) -> Any:
    """Return a client; `InvalidData` when librdkafka does not take its settings."""
    try:
        return make(dict(settings))
    except KafkaException as error:
        raise InvalidData(f"Kafka settings: {error.args[0].str()}") from error


def lasting(error: KafkaError, how: SigningOn) -> str | None:
    """Return what to do about a failure that trying again cannot mend; None for others.

    librdkafka has one code for all that goes wrong while signing on: its words tell them apart.
    """
    said = error.str()
    if error.code() == KafkaError._AUTHENTICATION:
        lower = said.lower()
        if "not supported by broker" in lower or "unsupported sasl mechanism" in lower:
            return how.other_mechanism()
        if "not valid given the current sasl state" in lower or "illegal_sasl_state" in lower:
            return how.nobody()
        return how.wrong_password()
    if error.code() in (KafkaError._SSL, KafkaError._TRANSPORT):
        if "certificate verify failed" in said.lower():
            return how.not_verified()
        return how.tls(said)
    return None
