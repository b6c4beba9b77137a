"""The combined receipts that were published: the topic is the truth, and the store has an index.

The first final receipt of an erasure counts as long as the topic keeps it: until then a repeat of
the request gets it again, byte for byte.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import redis

from lethe.consumers.contract import cloudevents, topics
from lethe.consumers.contract.codes import REQUEST_ID_CONFLICT
from lethe.consumers.contract.erasure_events import (
    SUBJECT_ERASURE_COMPLETED,
    SubjectErasureCompleted,
)
from lethe.consumers.contract.signatures import TrustedKeys
from lethe.consumers.contract.signed_log import is_believed
from lethe.consumers.erasures.request import ErasureRequest
from lethe.consumers.log.base import Message, Reader, Record
from lethe.consumers.suppression.topic_view import TopicView
from lethe.engine.store.layout.keys import ERASURE_RECEIPTS, SIGNED_ERASURE_RECEIPTS
from lethe.engine.store.layout.reading import integer
from lethe.engine.store.log_view import Added, LogView


class PublishedReceipts:
    """Final combined receipts by erasure id; one thread uses it.

    With ``trusted`` keys, a receipt that none of them signed is none.
    """

    def __init__(self, client: redis.Redis, reader: Reader, trusted: TrustedKeys | None) -> None:
        self._reader = reader
        self._trusted = trusted
        key, name = (
            (ERASURE_RECEIPTS, "receipts")
            if trusted is None
            else (SIGNED_ERASURE_RECEIPTS, "signed-receipts")
        )
        self._view = LogView(client, key, name, first_counts=True)
        self._topic = TopicView(
            self._view, reader, lambda: topics.ERASURE_RECEIPTS, self._added, expires=True
        )

    def catch_up(self) -> None:
        """Read the topic to its present end.

        Raises
        ------
        LogReset
            The topic has lost records.
        """
        self._topic.catch_up()

    def find(self, erasure_ids: Iterable[str]) -> dict[str, SubjectErasureCompleted]:
        """Return the final receipts of those erasures that have one, as of the last `catch_up`.

        A receipt that the topic no longer keeps is none: its erasure is done again. Cost: one read
        of the topic for each receipt.
        """
        records = self._records(erasure_ids).items()
        found = {name: self._receipt(record) for name, record in records}
        return {name: one for name, one in found.items() if one is not None}

    def record_of(self, erasure_id: str) -> Record | None:
        """Return the record of the final receipt of an erasure, as `find` finds it."""
        record = self._records([erasure_id]).get(erasure_id)
        return record if record is not None and self._receipt(record) else None

    def _records(self, erasure_ids: Iterable[str]) -> dict[str, Record]:
        """Return the records at the noted offsets, which another process may have noted."""
        offsets = {
            name: integer(stored.partition(" ")[0], f"erasure {name!r}: its receipt")
            for name, stored in self._view.get(list(erasure_ids)).items()
        }
        found = {
            name: self._reader.record_at(self._topic.partition(), offset)
            for name, offset in offsets.items()
        }
        return {name: record for name, record in found.items() if record is not None}

    def _receipt(self, record: Record) -> SubjectErasureCompleted | None:
        """Return the final receipt in a record; None if it holds none that counts."""
        if not is_believed(record, self._trusted):
            return None
        try:
            receipt = SubjectErasureCompleted.read(record.value or b"")
        except ValueError:
            return None
        # A conflict is not the receipt of its id: the first request with that has another one.
        counts = (
            receipt.final and receipt.code != REQUEST_ID_CONFLICT and receipt.subject_commitment
        )
        return receipt if counts else None

    def _added(self, records: Sequence[Record]) -> Added:
        """Return what records add to the index; one that is no final receipt adds nothing."""
        receipts = ((record.offset, self._receipt(record)) for record in records)
        return Added(
            [
                (receipt.erasure_id, f"{offset} {receipt.subject_commitment}")
                for offset, receipt in receipts
                if receipt is not None
            ]
        )


def receipt_message(receipt: SubjectErasureCompleted, request: ErasureRequest) -> Message:
    """Return the message of a combined receipt, the same bytes for the same receipt."""
    time = receipt.completed_at or request.record.logged_at
    headers = cloudevents.headers(
        SUBJECT_ERASURE_COMPLETED, receipt.erasure_id, time, receipt.erasure_id
    )
    return Message(topics.ERASURE_RECEIPTS, receipt.erasure_id.encode(), receipt.value(), headers)
