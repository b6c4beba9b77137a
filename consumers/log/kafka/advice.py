"""What to do when a broker turns us away; the words are the same whichever client heard them."""

from __future__ import annotations

from dataclasses import dataclass

from lethe.engine.store.tls import advice

_CLOSED = ("disconnected", "connection reset", "broken pipe")


@dataclass(frozen=True, slots=True)
class SigningOn:
    """How a client signs on: its listener's protocol, its user, and the mechanism."""

    protocol: str
    user: str | None
    mechanism: str | None

    @property
    def _listener(self) -> str:
        setting = "LETHE_KAFKA_SECURITY_PROTOCOL"
        return f"the listener on this port is {self.protocol}, as {setting} says"

    def other_mechanism(self) -> str:
        """Say that the broker does not offer the mechanism."""
        return f"it does not offer {self.mechanism}: set LETHE_KAFKA_SASL_MECHANISM to what it has"

    def nobody(self) -> str:
        """Say that the listener signs nobody on."""
        return f"nobody signs on there: check that {self._listener}"

    def wrong_password(self) -> str:
        """Say that user and password do not fit."""
        return (
            f"it does not accept user {self.user} or the password: check "
            "LETHE_KAFKA_SASL_USERNAME, LETHE_KAFKA_SASL_PASSWORD (or its _FILE), and that the "
            f"broker has this user for {self.mechanism}"
        )

    def other_protocol(self) -> str:
        """Say that what answers is no Kafka."""
        return f"it answers in another protocol (TLS?): check that {self._listener}"

    def silent(self) -> str:
        """Say that it takes connections and answers nothing."""
        return (
            "it takes connections and does not answer: it may be starting; else it expects "
            f"another protocol (TLS?): check that {self._listener}"
        )

    @staticmethod
    def not_verified() -> str:
        """Say that the broker's certificate is not accepted, where the client does not say why."""
        return (
            "its certificate was not signed by an authority that LETHE_KAFKA_CA_FILE holds, or "
            "has expired, or is for another name than the one that it is called by: name the "
            "right CA file, renew the certificate, or connect by its name (kafka-python says which)"
        )

    def tls(self, said: str) -> str | None:
        """Return what to do about a failure of TLS; None when it is none."""
        if (found := advice(said, "LETHE_KAFKA")) is None:
            return None
        return f"{found}: check that {self._listener}" if "speak" in found else found

    def closed(self, said: str) -> str | None:
        """Return what to do about a connection that the broker closed; None when it did not."""
        if any(words in said.lower() for words in _CLOSED):
            return f"it closed the connection: it may be starting; else check that {self._listener}"
        return None

    def forbidden(self, said: str) -> str:
        """Return what to do about a right that is missing."""
        who = f"user {self.user}" if self.user else "this client"
        what = " ".join(said.split())
        return (
            f"does not let {who} do this ({what}); grant the rights of its role: docs/security.md "
            "lists them, scripts/kafka_acls.py grants them"
        )
