"""What became of a request: its receipt, or whether it can still be on its way.

The store has the receipts of every registered model, for ever. What else was published (a receipt
of a model that is not registered) comes from the index.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pydantic_core import to_json

from lethe.consumers.commits.packed_receipt import Indexed, body_of, unpack
from lethe.consumers.contract.codes import REQUEST_ID_CONFLICT
from lethe.consumers.contract.erasure_events import SubjectErasureCompleted, SubjectErasureRequested
from lethe.consumers.contract.sealing import SealKeys
from lethe.consumers.erasures.receipts import PublishedReceipts
from lethe.consumers.erasures.request import erasure_at
from lethe.consumers.log.base import Appended, Reader
from lethe.consumers.server.appender import Identity
from lethe.consumers.server.index.published import IndexPublished
from lethe.consumers.suppression.marks import DEFAULT_NAMESPACE, subject_commitments
from lethe.engine.store.layout.keys import ModelKeys
from lethe.engine.store.server.pipeline import run_pipeline
from lethe.engine.store.store import ModelStore

RECENT = 50_000
"""Requests that the server remembers to have sent, about 15 MB: it can then tell one that is on its
way from one that it has never seen, and see at once that an id comes with another content."""


class ErasureAsked(NamedTuple):
    """What an erasure asks for: by it a repeat is told from a conflict."""

    namespace: str
    subject_id: str
    op: str

    @classmethod
    def by(cls, event: SubjectErasureRequested) -> ErasureAsked:
        """Return what an event asks for."""
        namespace = event.namespace or DEFAULT_NAMESPACE
        return cls(namespace, event.subject_id, event.op)

    @property
    def digest(self) -> bytes:
        """Its digest."""
        return hashlib.sha256(to_json(self)).digest()


@dataclass(frozen=True, slots=True)
class Sent:
    """A request that this server has sent: its content's digest, and where it is in the log.

    ``asked``: what it asks for, of an erasure.
    """

    body: bytes
    place: Appended | None = None
    asked: ErasureAsked | None = None


class RecentRequests:
    """The requests that this process has sent lately; used by the event loop alone.

    An erasure has the empty model id.
    """

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

    def forget(self, model_id: str, request_id: str) -> None:
        """Forget a request that was not sent."""
        self._sent.pop((model_id, request_id), None)


class Outcomes:
    """Looks requests up; its methods block, and any thread may call them.

    ``seals`` returns the secrets under which receipts are bound to their subjects, None if this
    process has none.
    """

    def __init__(
        self,
        store: ModelStore,
        reader: Reader,
        published: IndexPublished,
        seals: Callable[[], SealKeys | None],
    ) -> None:
        self._store = store
        self.seals = seals
        self._reader = reader
        self._reading = threading.Lock()  # a reader is used by one thread at a time
        self._published = published
        self._erasures = PublishedReceipts(store.client, reader, published.trusted)

    def stored(self, model_id: str, request_id: str) -> Indexed | None:
        """Return what the store keeps of a request: its newest receipt, and its content's digest.

        Raises
        ------
        StoreUnavailable
            The store cannot be reached.
        """
        stored = self._store.receipt(model_id, request_id)
        return None if stored is None else unpack(stored, model_id, request_id)

    def conflicts(self, identities: Sequence[Identity]) -> Sequence[bool]:
        """Return for each request whether one with its id and another content was processed.

        Cost: one round trip.
        """

        def queue(pipeline: Any) -> None:
            for one in identities:
                pipeline.hget(ModelKeys(one.model_id).requests, one.request_id)

        stored = run_pipeline(self._store.client, (), queue) if identities else []
        return [
            value is not None and body_of(value) != one.body
            for one, value in zip(identities, stored, strict=True)
        ]

    def erasure(self, erasure_id: str) -> SubjectErasureCompleted | None:
        """Return the final receipt of an erasure, None if there is none yet."""
        with self._reading:
            self._erasures.catch_up()
            return self._erasures.find([erasure_id]).get(erasure_id)

    def newest_of_erasure(self, erasure_id: str) -> SubjectErasureCompleted | None:
        """Return the final receipt of an erasure, or the newest that is not final.

        What was said of another erasure with its id is not the receipt of that id.
        """
        final = self.erasure(erasure_id)
        newest = self._published.erasure(erasure_id) if final is None else final
        return None if newest is None or newest.code == REQUEST_ID_CONFLICT else newest

    def is_taken(self, erasure_id: str, asked: ErasureAsked) -> bool:
        """Return whether an erasure that asks for something else has an id, answered or not yet."""
        receipt = self.newest_of_erasure(erasure_id)
        if receipt is None and (place := self._published.erasure_place(erasure_id)) is not None:
            first = self._asks_for(erasure_id, *place)
            if first is not None:
                return first != asked
            receipt = self.newest_of_erasure(erasure_id)  # it was decided meanwhile
        return receipt is not None and self.answers_other(receipt, asked)

    def answers_other(
        self, receipt: SubjectErasureCompleted, asked: ErasureAsked, place: Appended | None = None
    ) -> bool:
        """Return whether a receipt belongs to an erasure that asks for something else.

        True as well if nobody can tell: the log no longer has that erasure, and this process has no
        secret to compare the receipt's commitment under. ``place``: where the erasure is in the
        log, if this process has sent it. Cost: a read of the secrets, or one of the log.
        """
        source = receipt.source
        if place is not None and (place.partition.index, place.offset) == (
            source.partition,
            source.offset,
        ):
            return False
        seals = self.seals()
        if seals is not None and receipt.subject_commitment is not None:
            commitments = subject_commitments(
                seals, receipt.erasure_id, asked.namespace, asked.subject_id, asked.op
            )
            return receipt.subject_commitment not in commitments
        return self._asks_for(receipt.erasure_id, source.partition, source.offset) != asked

    def _asks_for(self, erasure_id: str, index: int, offset: int) -> ErasureAsked | None:
        """Return what an erasure at a place of the log asks for; None if it is no longer there."""
        with self._reading:
            first = erasure_at(self._reader, erasure_id, index, offset)
        return None if first is None else ErasureAsked.by(first.event)

    def losses(self, topic: str) -> str:
        """Return what a topic has lost, as an ending of a sentence that says what is unknown."""
        losses = self._store.topics.losses((topic,))
        return "".join(f"; or it is lost: {loss.statement}" for loss in losses)

    def may_be_waiting(self, topic: str, key: str, sent: Sent | None) -> bool:
        """Return whether a request without a receipt can be in the log, not processed yet.

        Look for its receipt once more if it cannot: it may have been processed meanwhile.
        """
        if sent is not None and sent.place is not None and sent.place.offset is not None:
            known = self._store.topics.read().get(topic)
            if known is not None and known.topic_id != sent.place.partition.topic_id:
                return False  # its topic was lost, and work goes on without it
            watermark = self._store.cursors.watermark(str(sent.place.partition))
            return watermark is None or watermark <= sent.place.offset
        with self._reading:
            partition = self._reader.partition_for(topic, key.encode())
            bounds = self._reader.bounds(partition)
        watermark = self._store.cursors.watermark(str(partition))
        return bounds.end > (bounds.begin if watermark is None else watermark)
