"""What is known of erasures: the request, if the log still has it, and the newest receipt.

An erasure that is not finished lies after the watermark of its topic; of all others the final
receipt is on its own topic, and the store has an index of these.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

import redis

from lethe.consumers.contract import topics
from lethe.consumers.contract.codes import REQUEST_ID_CONFLICT
from lethe.consumers.contract.erasure_events import SubjectErasureCompleted
from lethe.consumers.contract.signatures import TrustedKeys
from lethe.consumers.contract.signed_log import is_believed
from lethe.consumers.erasures.receipts import PublishedReceipts
from lethe.consumers.erasures.request import ErasureRequest, erasure_at, validate_erasure
from lethe.consumers.log.base import Reader, Record
from lethe.consumers.log.scan import scan, scan_topic, tail
from lethe.engine.errors import LetheError
from lethe.engine.store.cursors import Cursors

_RECEIPTS_EACH = 3
"""Most receipts that one erasure usually has: that models were asked, a deferral, the final one. If
some have more, a list is shorter than asked for."""


@dataclass(frozen=True, slots=True)
class KnownErasure:
    """An erasure or a lift; ``request`` or ``receipt`` is None, not both.

    ``at`` is when it was finished, or else sent.
    """

    erasure_id: str
    at: datetime
    request: ErasureRequest | None = None
    receipt: SubjectErasureCompleted | None = None

    @property
    def status(self) -> str:
        """The status of the newest receipt; WAITING if there is none."""
        return "WAITING" if self.receipt is None else self.receipt.status

    @property
    def op(self) -> str:
        """What is asked for."""
        known = self.receipt or (None if self.request is None else self.request.event)
        return "erase" if known is None else known.op

    @property
    def namespace(self) -> str | None:
        """The namespace of the subject, if one was given."""
        if self.request is not None:
            return self.request.event.namespace
        return None if self.receipt is None else self.receipt.namespace


class UnknownErasure(LetheError):
    """Neither the request nor a receipt of the erasure is in the log."""

    code = "UNKNOWN_ERASURE"
    exit_code = 1


class KnownErasures:
    """Looks erasures up; one thread uses it.

    With ``trusted`` keys, a receipt that none of them signed is none.
    """

    def __init__(self, client: redis.Redis, reader: Reader, trusted: TrustedKeys | None) -> None:
        self._cursors = Cursors(client)
        self._reader = reader
        self._trusted = trusted
        self._published = PublishedReceipts(client, reader, trusted)

    def find(self, erasure_id: str) -> KnownErasure | None:
        """Return one erasure; None if neither its request nor a receipt is there.

        Cost: a few round trips if it is finished; else its topics are read.

        Raises
        ------
        LogReset
            The topic of receipts has lost records.
        """
        self._published.catch_up()
        receipt = self._published.find([erasure_id]).get(erasure_id)
        if receipt is not None and receipt.completed_at is not None:
            source = receipt.source
            request = erasure_at(self._reader, erasure_id, source.partition, source.offset)
            return KnownErasure(erasure_id, receipt.completed_at, request, receipt)
        waiting = {one.erasure_id: one for one in self._unfinished()}.get(erasure_id)
        said = self._newest(scan_topic(self._reader, topics.ERASURE_RECEIPTS)).get(erasure_id)
        if waiting is None:
            return said
        receipt = None if said is None else said.receipt
        return KnownErasure(erasure_id, waiting.record.logged_at, waiting, receipt)

    def record_of(self, erasure_id: str) -> Record | None:
        """Return the record of the newest receipt of an erasure; of a final one, the first.

        None: it has no receipt. Cost: as `find`.

        Raises
        ------
        LogReset
            As `find`.
        """
        self._published.catch_up()
        final = self._published.record_of(erasure_id)
        if final is not None:
            return final
        key, newest = erasure_id.encode(), None
        for record in scan_topic(self._reader, topics.ERASURE_RECEIPTS):
            if record.key == key and self._newest(iter([record])):
                newest = record
        return newest

    def list_recent(self, limit: int) -> list[KnownErasure]:
        """Return what is not finished, the oldest first; then what is, the newest first.

        Cost: the requests that wait are read, and the last receipts.

        Raises
        ------
        LogReset
            As `find`.
        """
        self._published.catch_up()
        receipts = tail(self._reader, topics.ERASURE_RECEIPTS, _RECEIPTS_EACH * limit)
        said = self._newest(receipts)
        requests: dict[str, ErasureRequest] = {}
        for request in self._unfinished():
            requests.setdefault(request.erasure_id, request)
        finished = self._published.find(requests)  # but lie behind one that is not
        waiting = [
            KnownErasure(
                name,
                request.record.logged_at,
                request,
                said[name].receipt if name in said else None,
            )
            for name, request in requests.items()
            if name not in finished
        ]
        done = sorted(
            (one for name, one in said.items() if one.receipt and one.receipt.final),
            key=lambda one: one.at,
            reverse=True,
        )
        return [*waiting, *done][:limit]

    def _unfinished(self) -> Iterator[ErasureRequest]:
        """Yield the requests from the watermark on; records that are none are passed over."""
        for partition in self._reader.partitions(topics.ERASURES):
            bounds = self._reader.bounds(partition)
            watermark = self._cursors.watermark(str(partition)) or 0
            start = max(watermark, bounds.begin)
            for record in scan(self._reader, partition, start, bounds.end):
                item = validate_erasure(record, None)
                if isinstance(item, ErasureRequest):
                    yield item

    def _newest(self, records: Iterator[Record]) -> dict[str, KnownErasure]:
        """Return what receipts say of each erasure: the first final one, or else the last one."""
        found: dict[str, KnownErasure] = {}
        for record in records:
            if not is_believed(record, self._trusted):
                continue
            try:
                receipt = SubjectErasureCompleted.read(record.value or b"")
            except ValueError:
                continue
            name = receipt.erasure_id
            before = found.get(name)
            if receipt.code == REQUEST_ID_CONFLICT or (
                before and before.receipt and before.receipt.final
            ):
                continue
            at = receipt.completed_at or record.logged_at
            found[name] = KnownErasure(name, at, receipt=receipt)
        return found
