"""A log whose producers sign versions, parameters and receipts; and which records count.

Events are signed when they are published, not when they are committed: the worker that sends a
stored version signs it with its current key. Values do not depend on keys. If another worker with
another key resends an event, the header differs but the value is the same, and readers drop it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from lethe.consumers.contract import topics
from lethe.consumers.contract.erasure_events import SUBJECT_ERASURE_COMPLETED
from lethe.consumers.contract.events import DELETION_RECEIPT, MODEL_PARAMETERS, MODEL_VERSION
from lethe.consumers.contract.signatures import Signer, TrustedKeys
from lethe.consumers.log.base import Flush, Log, Message, Producer, Record
from lethe.consumers.log.wrapped import WrappedLog
from lethe.engine.errors import Unauthenticated


def signed_type(topic: str) -> str | None:
    """Return the type of the signed events of a topic; None if its events are not signed.

    It follows from the topic, not from the headers: dead letters keep their sender's headers, which
    must not decide what they are signed as.
    """
    return {
        topics.VERSIONS: MODEL_VERSION,
        topics.MODELS: MODEL_PARAMETERS,
        topics.RECEIPTS: DELETION_RECEIPT,
        topics.ERASURE_RECEIPTS: SUBJECT_ERASURE_COMPLETED,
    }.get(topic)


def is_believed(record: Record, trusted: TrustedKeys | None) -> bool:
    """Return whether a record of a topic may be taken for what Lethe says.

    Every reader of receipts asks here. Where keys are trusted, one of them must have signed the
    record if its topic is one of signed events; without trusted keys, every record is believed.
    """
    event_type = signed_type(record.partition.topic)
    if trusted is None or event_type is None:
        return True
    try:
        return trusted.vouches(event_type, record.value or b"", record.headers)
    except Unauthenticated:
        return False


class SignedProducer(Producer):
    """A producer that signs; it calls ``signer`` when the first event needs a key."""

    def __init__(self, producer: Producer, signer: Callable[[], Signer | None]) -> None:
        self._producer = producer
        self._signer_factory = signer
        self._signer: Signer | None = None

    def begin(self, messages: Iterable[Message]) -> Flush:
        """Send in order, signed, without waiting."""
        return self._producer.begin(self._signed(list(messages)))

    def close(self) -> None:
        """Release the connection."""
        self._producer.close()

    def _signed(self, messages: Sequence[Message]) -> Sequence[Message]:
        types = {topic: signed_type(topic) for topic in {message.topic for message in messages}}
        if self._signer is None and any(types.values()):
            self._signer = self._signer_factory()
        signer = self._signer
        if signer is None:
            return messages
        return [_signed(message, types[message.topic], signer) for message in messages]


def _signed(message: Message, event_type: str | None, signer: Signer) -> Message:
    if event_type is None or message.value is None:
        return message
    return replace(message, headers=signer.signed(event_type, message.value, message.headers))


class SignedLog(WrappedLog):
    """A log with `SignedProducer`; everything else is delegated."""

    def __init__(self, log: Log, signer: Callable[[], Signer | None]) -> None:
        super().__init__(log)
        self._signer = signer

    def producer(self) -> Producer:
        """Return a new signing producer."""
        return SignedProducer(super().producer(), self._signer)
