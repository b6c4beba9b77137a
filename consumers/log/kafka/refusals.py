"""Why a broker turned us away: a password, a certificate, the wrong protocol, a missing right.

kafka-python tries such a connection again until its time is up and then says "unable to
bootstrap". Here every failure is remembered, and the first one that no repetition mends ends the
wait.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafka import errors

from lethe.consumers.log.kafka.advice import SigningOn
from lethe.engine.store.tls import advice

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
    how = signing_on(access)
    if isinstance(error, errors.UnsupportedSaslMechanismError):
        return how.other_mechanism()
    if isinstance(error, errors.IllegalSaslStateError):
        return how.nobody()
    if isinstance(error, errors.SaslAuthenticationFailedError):
        return how.wrong_password()
    if (found := how.tls(said)) is not None:
        return found
    return how.other_protocol() if _NO_FRAME in said else how.closed(said)


def forbidden(error: Exception, access: Mapping[str, Any]) -> str:
    """Return what to do about a right that is missing."""
    return signing_on(access).forbidden(str(error) or type(error).__name__)


def signing_on(access: Mapping[str, Any]) -> SigningOn:
    """Return how kafka-python's settings sign on."""
    return SigningOn(
        access.get("security_protocol", "PLAINTEXT"),
        access.get("sasl_plain_username"),
        access.get("sasl_mechanism"),
    )
