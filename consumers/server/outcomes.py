"""What became of a request: its receipt, or whether it can still be on its way.

The store has the receipts of every registered model, for ever. What else was published (a receipt
of a model that is not registered) comes from `Published`.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass

from lethe.consumers.commits.packed import Indexed, unpack
from lethe.consumers.contract import topics
from lethe.consumers.contract.events import Receipt
from lethe.consumers.log.base import Appended, Reader
from lethe.consumers.server.published import Published
from lethe.engine.store.store import ModelStore

RECENT = 50_000
"""Requests that the server remembers to have sent, about 15 MB: it can then tell one that is on its
way from one that it has never seen, and see at once that an id comes with another content."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A request that this server has sent: its content's digest, and where it is in the log."""

    body: bytes
    place: Appended | None = None


class RecentRequests:
    """The requests that this process has sent lately; used by the event loop alone."""

    def __init__(self, limit: int = RECENT) -> None:
        self._limit = limit
        self._sent: OrderedDict[tuple[str, str], Sent] = OrderedDict()

    def find(self, model_id: str, request_id: str) -> Sent | None:
        """Return a request, if it is remembered."""
        return self._sent.get((model_id, request_id))

    def add(self, model_id: str, request_id: str, sent: Sent) -> None:
        """Remember a request."""
        self._sent[model_id, request_id] = sent
        self._sent.move_to_end((model_id, request_id))
        if len(self._sent) > self._limit:
            self._sent.popitem(last=False)


class Outcomes:
    """Looks requests up; its methods block, and any thread may call them."""

    def __init__(self, store: ModelStore, reader: Reader, published: Published) -> None:
        self._store = store
        self._reader = reader
        self._reading = threading.Lock()  # a reader is used by one thread at a time
        self._published = published

    def stored(self, model_id: str, request_id: str) -> Indexed | None:
        """Return what the store keeps of a request: its receipt, and its content's digest."""
        stored = self._store.receipt(model_id, request_id)
        return None if stored is None else unpack(stored, model_id, request_id)

    def receipt(self, model_id: str, request_id: str) -> Receipt | None:
        """Return the newest receipt of a request, None if there is none yet.

        Raises
        ------
        StoreUnavailable
            The store cannot be reached.
        """
        indexed = self.stored(model_id, request_id)
        if indexed is not None:
            return indexed.receipt
        return self._published.receipt(model_id, request_id)

    def may_be_waiting(self, model_id: str, sent: Sent | None) -> bool:
        """Return whether a request without a receipt can be in the log, not processed yet.

        Look for its receipt once more if it cannot: it may have been processed meanwhile.
        """
        if sent is not None and sent.place is not None and sent.place.offset is not None:
            watermark = self._store.cursors.watermark(str(sent.place.partition))
            return watermark is None or watermark <= sent.place.offset
        with self._reading:
            partition = self._reader.partition_for(topics.DELETIONS, model_id.encode())
            bounds = self._reader.bounds(partition)
        watermark = self._store.cursors.watermark(str(partition))
        return bounds.end > (bounds.begin if watermark is None else watermark)
