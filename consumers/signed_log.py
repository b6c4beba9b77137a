"""A log whose producers sign what is evidence: versions, parameters and receipts.

Events are signed as they are published, not as they are committed: a version that the store holds
is signed by whoever sends it, with the key of today. Values do not depend on keys. What another
worker with another key sends again has another header and the same value, and readers drop it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from consumers import topics
from consumers.events import DELETION_RECEIPT, MODEL_PARAMETERS, MODEL_VERSION
from consumers.log.base import Log, Message, Producer
from consumers.log.wrapped import WrappedLog
from consumers.signing import Signer


def signed_type(topic: str) -> str | None:
    """Return the type of the events of a topic that are signed; None: nothing there is.

    It follows from the topic. Dead letters keep the headers that they came with, and whoever sent
    one must not have it signed as what these say.
    """
    return {
        topics.VERSIONS: MODEL_VERSION,
        topics.MODELS: MODEL_PARAMETERS,
        topics.RECEIPTS: DELETION_RECEIPT,
    }.get(topic)


class SignedProducer:
    """A producer that signs; ``signer`` returns the key when the first event needs it."""

    def __init__(self, producer: Producer, signer: Callable[[], Signer | None]) -> None:
        self._producer = producer
        self._make = signer
        self._signer: Signer | None = None

    def publish(self, messages: Iterable[Message], timeout: float = 30.0) -> None:
        """Send in order, signed, and return when all are acknowledged."""
        self._producer.publish(self._signed(messages), timeout)

    def close(self) -> None:
        """Release the connection."""
        self._producer.close()

    def _signed(self, messages: Iterable[Message]) -> Iterator[Message]:
        for message in messages:
            event_type = signed_type(message.topic)
            if event_type is not None and self._signer is None:
                self._signer = self._make()
            if event_type is None or message.value is None or self._signer is None:
                yield message
            else:
                headers = self._signer.signed(event_type, message.value, message.headers)
                yield replace(message, headers=headers)


class SignedLog(WrappedLog):
    """A log with `SignedProducer`; all else is the log's own."""

    def __init__(self, log: Log, signer: Callable[[], Signer | None]) -> None:
        super().__init__(log)
        self._signer = signer

    def producer(self) -> Producer:
        """Return a new producer, which signs."""
        return SignedProducer(super().producer(), self._signer)
