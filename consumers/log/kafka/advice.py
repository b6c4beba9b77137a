"""Advice when a broker refuses us; the wording is the same for both clients."""

from __future__ import annotations

from dataclasses import dataclass

from lethe.engine.store.tls import advice

_CLOSED = ("disconnected", "connection reset", "broken pipe")


@dataclass(frozen=True, slots=True)
class SigningOn:
    """How a client authenticates: its listener's protocol, its user, and the mechanism."""

    protocol: str
    user: str | None
    mechanism: str | None

    @property
    def _listener(self) -> str:
        setting = "LETHE_KAFKA_SECURITY_PROTOCOL"
        return f"the listener on this port is {self.protocol}, as set in {setting}"

    def other_mechanism(self) -> str:
        """Advise on a mechanism that the broker does not offer."""
        return f"it does not offer {self.mechanism}: set LETHE_KAFKA_SASL_MECHANISM to one it has"

    def nobody(self) -> str:
        """Advise on a listener that does not authenticate clients."""
        return f"it does not authenticate clients: check that {self._listener}"

    def wrong_password(self) -> str:
        """Advise on a user name and password that do not match."""
        return (
            f"it does not accept user {self.user} or the password: check "
            "LETHE_KAFKA_SASL_USERNAME, LETHE_KAFKA_SASL_PASSWORD (or its _FILE), and that the "
            f"broker has this user for {self.mechanism}"
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

    @staticmethod
    def not_verified() -> str:
        """Advise on a certificate that is rejected, where the client does not say why."""
        return (
            "its certificate was not signed by an authority that LETHE_KAFKA_CA_FILE holds, or "
            "has expired, or is for another name than the one in the address: name the right CA "
            "file, renew the certificate, or connect by its name (kafka-python says which it is)"
        )

    def tls(self, reason: str) -> str | None:
        """Return advice on a TLS failure; None if ``reason`` is not one."""
        if (tls_advice := advice(reason, "LETHE_KAFKA")) is None:
            return None
        if "speak" in tls_advice:
            return f"{tls_advice}: check that {self._listener}"
        return tls_advice

    def closed(self, reason: str) -> str | None:
        """Return advice on a connection that the broker closed; None if it did not close it."""
        if any(phrase in reason.lower() for phrase in _CLOSED):
            return f"it closed the connection: it may be starting; else check that {self._listener}"
        return None

    def forbidden(self, reason: str) -> str:
        """Return advice on a missing right."""
        who = f"user {self.user}" if self.user else "this client"
        operation = " ".join(reason.split())
        return (
            f"does not let {who} do this ({operation}); grant the rights of its role: "
            "docs/security.md lists them, scripts/kafka_acls.py grants them"
        )
