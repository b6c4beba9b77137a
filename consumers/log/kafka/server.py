"""Where Kafka is, how the client authenticates, and what is said when that fails."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lethe.consumers.log.base import Message
from lethe.consumers.log.kafka.settings import MAX_REQUEST_BYTES
from lethe.engine.errors import InvalidData, LogUnavailable
from lethe.engine.store.server.tls import advice

_CLOSED = ("disconnected", "connection reset", "broken pipe")


@dataclass(frozen=True, slots=True)
class Server:
    """The brokers' addresses, and kafka-python's settings for TLS and SASL.

    The methods of the first group return errors to raise; those of the second return advice, for
    `unusable`.
    """

    bootstrap: tuple[str, ...]
    client_id: str
    access: Mapping[str, Any] = field(repr=False)  # holds the password
    connect_seconds: float

    def __str__(self) -> str:
        return ",".join(self.bootstrap)

    @property
    def protocol(self) -> str:
        """The security protocol of the listener."""
        return str(self.access.get("security_protocol", "PLAINTEXT"))

    @property
    def _user(self) -> Any:
        return self.access.get("sasl_plain_username")

    @property
    def _mechanism(self) -> Any:
        return self.access.get("sasl_mechanism")

    # Errors.

    def unusable(self, reason: str) -> LogUnavailable:
        """Report a broker that refused us; ``reason`` says why and what to do."""
        return LogUnavailable(f"Kafka at {self} cannot be used: {reason}")

    def unreachable(self, reason: str) -> LogUnavailable:
        """Report that no broker answers."""
        return LogUnavailable(
            f"Kafka at {self} cannot be reached ({' '.join(reason.split())}): start it, or name "
            "another one with --kafka or LETHE_KAFKA_BOOTSTRAP_SERVERS"
        )

    def failed(self, reason: str) -> LogUnavailable:
        """Report that a broker answered with an error."""
        return LogUnavailable(f"Kafka at {self} failed: {reason}")

    def forbidden(self, reason: str) -> LogUnavailable:
        """Report a missing right."""
        who = f"user {self._user}" if self._user else "this client"
        return LogUnavailable(
            f"Kafka at {self} does not let {who} do this ({' '.join(reason.split())}); grant the "
            "rights of its role: docs/security.md lists them, scripts/kafka_acls.py grants them"
        )

    def not_created(self, topic: str, reason: str) -> LogUnavailable:
        """Report that the broker refused to create a topic."""
        return LogUnavailable(f"Kafka at {self} did not create topic {topic}: {reason}")

    @staticmethod
    def too_large(message: Message) -> InvalidData:
        """Report a message that the producer or the topic's broker rejects."""
        return InvalidData(
            f"a message of {len(message.value or b'')} bytes for topic {message.topic} is too "
            f"large (see its max.message.bytes; no topic takes more than {MAX_REQUEST_BYTES} with "
            "key and headers)"
        )

    # Advice.

    @property
    def _listener(self) -> str:
        setting = "LETHE_KAFKA_SECURITY_PROTOCOL"
        return f"the listener on this port is {self.protocol}, as set in {setting}"

    def other_mechanism(self) -> str:
        """Advise on a mechanism that the broker does not offer."""
        return f"it does not offer {self._mechanism}: set LETHE_KAFKA_SASL_MECHANISM to one it has"

    def nobody(self) -> str:
        """Advise on a listener that does not authenticate clients."""
        return f"it does not authenticate clients: check that {self._listener}"

    def wrong_password(self) -> str:
        """Advise on a user name and password that do not match."""
        return (
            f"it does not accept user {self._user} or the password: check "
            "LETHE_KAFKA_SASL_USERNAME, LETHE_KAFKA_SASL_PASSWORD (or its _FILE), and that the "
            f"broker has this user for {self._mechanism}"
        )

    def other_protocol(self) -> str:
        """Advise on an answer that is not in Kafka's protocol."""
        return f"it answers in another protocol (TLS?): check that {self._listener}"

    def silent(self) -> str:
        """Advise on a broker that accepts connections but does not answer."""
        return (
            "it accepts connections but does not answer: it may be starting, or it expects "
            f"another protocol (TLS?): check that {self._listener}"
        )

    def tls(self, reason: str) -> str | None:
        """Return advice on a TLS failure; None if ``reason`` is not one."""
        if (tls_advice := advice(reason, "LETHE_KAFKA")) is None:
            return None
        return f"{tls_advice}: check that {self._listener}" if "speak" in tls_advice else tls_advice

    def closed(self, reason: str) -> str | None:
        """Return advice on a connection that the broker closed; None if it did not close it."""
        if any(phrase in reason.lower() for phrase in _CLOSED):
            return f"it closed the connection: it may be starting; else check that {self._listener}"
        return None
