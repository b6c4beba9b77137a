"""Why a broker turned us away: a password, a certificate, the wrong protocol, a missing right.

kafka-python tries such a connection again until its time is up and then says "unable to
bootstrap". Here every failure is remembered, and the first one that no repetition mends ends the
wait.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafka import errors

from engine.store.tls import advice

_CLOSED = ("socket disconnected", "connection reset", "broken pipe")
_NO_FRAME = "Invalid frame length"  # the answer is no Kafka: that of a TLS port to plain words
_SIGNING_ON = (
    errors.SaslAuthenticationFailedError,
    errors.UnsupportedSaslMechanismError,
    errors.IllegalSaslStateError,  # the listener signs nobody on
)


class Refusals:
    """The failures of one client's connections, as they come."""

    def __init__(self) -> None:
        self.last: Exception | None = None
        self.lasting: Exception | None = None
        """The newest one, if trying again cannot mend it."""
        self._refused: dict[object, Exception] = {}

    def watch(self, client: Any) -> None:
        """Note why connections of ``client`` fail, from now on."""
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
            # The next try of the client finds these, raises, and so ends its wait.
            manager._auth_failures.update(self._refused)


def _lasting(error: Exception, *, connected_before: bool) -> bool:
    """Return whether trying again cannot help."""
    if isinstance(error, _SIGNING_ON):
        return True
    found = advice(str(error), "")
    if connected_before:  # then a connection that is cut says nothing of protocols
        return found is not None and "speak" not in found
    return found is not None or _NO_FRAME in str(error)


def explain(error: Exception, access: Mapping[str, Any]) -> str | None:
    """Return what happened and what to do, for failures of TLS and of signing on."""
    said = " ".join(str(error).split())
    protocol = access.get("security_protocol", "PLAINTEXT")
    user, mechanism = access.get("sasl_plain_username"), access.get("sasl_mechanism")
    listener = f"the listener on this port is {protocol}, as LETHE_KAFKA_SECURITY_PROTOCOL says"
    if isinstance(error, errors.UnsupportedSaslMechanismError):
        return f"it does not offer {mechanism}: set LETHE_KAFKA_SASL_MECHANISM to what it has"
    if isinstance(error, errors.IllegalSaslStateError):
        return f"nobody signs on there: check that {listener}"
    if isinstance(error, errors.SaslAuthenticationFailedError):
        return (
            f"it does not accept user {user} or the password: check LETHE_KAFKA_SASL_USERNAME, "
            "LETHE_KAFKA_SASL_PASSWORD (or its _FILE), and that the broker has this user for "
            f"{mechanism}"
        )
    if (found := advice(said, "LETHE_KAFKA")) is not None:
        return f"{found}: check that {listener}" if "speak" in found else found
    if _NO_FRAME in said:
        what = "it answers in another protocol (TLS?):"
    elif any(words in said.lower() for words in _CLOSED):
        what = "it closed the connection: it may be starting; else"
    else:
        return None
    return f"{what} check that {listener}"


def forbidden(error: Exception, access: Mapping[str, Any]) -> str:
    """Return what to do about a right that is missing."""
    user = access.get("sasl_plain_username")
    who = f"user {user}" if user else "this client"
    what = " ".join(str(error).split()) or type(error).__name__
    return (
        f"does not let {who} do this ({what}); grant the rights of its role: docs/security.md "
        "lists them, scripts/kafka_acls.py grants them"
    )
