"""Why a broker refused us: a password, a certificate, the wrong protocol, a missing right.

kafka-python retries such a connection until its timeout and then reports "unable to bootstrap".
Here every failure is recorded, and the first one that no retry can repair ends the wait.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafka import errors

from lethe.consumers.log.kafka.advice import SigningOn
from lethe.engine.store.tls import advice

_NO_FRAME = "Invalid frame length"  # not Kafka: how a TLS port answers plain text
_SIGNING_ON = (
    errors.SaslAuthenticationFailedError,
    errors.UnsupportedSaslMechanismError,
    errors.IllegalSaslStateError,  # the listener does not authenticate clients
)


class Refusals:
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


def explain(error: Exception, access: Mapping[str, Any]) -> str | None:
    """Return what happened and what to do, for failures of TLS and of authentication."""
    reason = " ".join(str(error).split())
    how = signing_on(access)
    if isinstance(error, errors.UnsupportedSaslMechanismError):
        return how.other_mechanism()
    if isinstance(error, errors.IllegalSaslStateError):
        return how.nobody()
    if isinstance(error, errors.SaslAuthenticationFailedError):
        return how.wrong_password()
    if (tls_advice := how.tls(reason)) is not None:
        return tls_advice
    return how.other_protocol() if _NO_FRAME in reason else how.closed(reason)


def forbidden(error: Exception, access: Mapping[str, Any]) -> str:
    """Return advice on a missing right."""
    return signing_on(access).forbidden(str(error) or type(error).__name__)


def signing_on(access: Mapping[str, Any]) -> SigningOn:
    """Return how a client with these settings of kafka-python authenticates."""
    return SigningOn(
        access.get("security_protocol", "PLAINTEXT"),
        access.get("sasl_plain_username"),
        access.get("sasl_mechanism"),
    )
