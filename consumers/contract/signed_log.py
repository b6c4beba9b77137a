"""A log whose producers sign what is evidence: versions, parameters and receipts.

Events are signed as they are published, not as they are committed: a version that the store holds
is signed by whoever sends it, with the key of today. Values do not depend on keys. What another
worker with another key sends again has another header and the same value, and readers drop it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from lethe.consumers.contract import topics
from lethe.consumers.contract.events import DELETION_RECEIPT, MODEL_PARAMETERS, MODEL_VERSION
from lethe.consumers.contract.signatures import Signer
from lethe.consumers.log.base import Flush, Log, Message, Producer
from lethe.consumers.log.wrapped import WrappedLog


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


class SignedProducer(Producer):
    """A producer that signs; ``signer`` returns the key when the first event needs it."""

    def __init__(self, producer: Producer, signer: Callable[[], Signer | None]) -> None:
        self._producer = producer
        self._make = signer
        self._signer: Signer | None = None

    def begin(self, messages: Iterable[Message]) -> Flush:
        """Send in order, signed, without waiting."""
        return self._producer.begin(self._signed(list(messages)))

    def close(self) -> None:
        """Release the connection."""
        self._producer.close()

    def _signed(self, messages: Sequence[Message]) -> Sequence[Message]:
        types = {topic: signed_type(topic) for topic in {one.topic for one in messages}}
        if self._signer is None and any(types.values()):
            self._signer = self._make()
        signer = self._signer
        if signer is None:
            return messages
        return [_signed(one, types[one.topic], signer) for one in messages]


def _signed(message: Message, event_type: str | None, signer: Signer) -> Message:
    if event_type is None or message.value is None:
        return message
    return replace(message, headers=signer.signed(event_type, message.value, message.headers))


class SignedLog(WrappedLog):
    """A log with `SignedProducer`; all else is the log's own."""

    def __init__(self, log: Log, signer: Callable[[], Signer | None]) -> None:
        super().__init__(log)
        self._signer = signer

    def producer(self) -> Producer:
        """Return a new producer, which signs."""
        return SignedProducer(super().producer(), self._signer)
