"""The combined receipts that were published: the topic is the truth, and the store has an index.

The first final receipt of an erasure counts as long as the topic keeps it: until then a repeat of
the request gets it again, byte for byte.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lethe.consumers.contract import cloudevents, topics
from lethe.consumers.contract.erasure_events import (
    SUBJECT_ERASURE_COMPLETED,
    SubjectErasureCompleted,
)
from lethe.consumers.deletions.transition import log_time
from lethe.consumers.erasures.pending import CONFLICT
from lethe.consumers.erasures.request import ErasureRequest
from lethe.consumers.log.base import Message, Reader, Record
from lethe.consumers.suppression.topic_view import TopicView
from lethe.engine.store.layout.keys import ERASURE_RECEIPTS
from lethe.engine.store.layout.reading import integer
from lethe.engine.store.log_view import Added, LogView
from lethe.engine.store.store import ModelStore


@dataclass(frozen=True, slots=True)
class Published:
    """A final receipt that was published: where, and what binds it to its subject."""

    offset: int
    commitment: str


class PublishedReceipts:
    """Final combined receipts by erasure id; one thread uses it."""

    def __init__(self, store: ModelStore, reader: Reader) -> None:
        self._reader = reader
        self._view = LogView(store.client, ERASURE_RECEIPTS, "receipts", first_counts=True)
        self._topic = TopicView(
            self._view, reader, lambda: topics.ERASURE_RECEIPTS, _added, expires=True
        )

    def catch_up(self) -> None:
        """Read the topic to its present end.

        Raises
        ------
        LogReset
            The topic has lost records.
        """
        self._topic.catch_up()

    def find(self, erasure_ids: Iterable[str]) -> dict[str, Published]:
        """Return the final receipts of those erasures that have one, as of the last `catch_up`.

        A receipt that the topic no longer keeps is none: its erasure is done again.
        """
        stored = self._view.get(list(erasure_ids))
        found = {name: _parsed(name, one) for name, one in stored.items()}
        return {name: one for name, one in found.items() if one.offset >= self._topic.begin}

    def read(self, published: Published) -> SubjectErasureCompleted | None:
        """Return a published receipt; None if the topic no longer keeps it."""
        record = self._reader.record_at(self._topic.partition(), published.offset)
        return None if record is None else SubjectErasureCompleted.read(record.value or b"")


def receipt_message(receipt: SubjectErasureCompleted, request: ErasureRequest) -> Message:
    """Return the message of a combined receipt, the same bytes for the same receipt."""
    time = receipt.completed_at or log_time(request.record)
    headers = cloudevents.headers(
        SUBJECT_ERASURE_COMPLETED, receipt.erasure_id, time, receipt.erasure_id
    )
    return Message(topics.ERASURE_RECEIPTS, receipt.erasure_id.encode(), receipt.value(), headers)


def _added(records: Sequence[Record]) -> Added:
    """Return what records add to the index; one that is no final receipt adds nothing."""
    fields: list[tuple[str, str]] = []
    for record in records:
        try:
            receipt = SubjectErasureCompleted.read(record.value or b"")
        except ValueError:
            continue
        # A conflict is not the receipt of its id: the first request with that has another one.
        if receipt.final and receipt.code != CONFLICT and receipt.subject_commitment:
            fields.append((receipt.erasure_id, f"{record.offset} {receipt.subject_commitment}"))
    return Added(fields)


def _parsed(erasure_id: str, stored: str) -> Published:
    offset, _, commitment = stored.partition(" ")
    return Published(integer(offset, f"erasure {erasure_id!r}: its receipt"), commitment)
