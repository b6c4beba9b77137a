"""Requests to models for an erasure: whose rows are known where, and what is sent to them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

from lethe.consumers.contract.requests import request_message
from lethe.consumers.contract.signatures import Signer
from lethe.consumers.erasures.fan_in import read_receipts
from lethe.consumers.erasures.fan_out import SentRequest, requests_to
from lethe.consumers.erasures.models import Models, rows_of_subjects
from lethe.consumers.erasures.pending import Awaited, PendingErasure
from lethe.consumers.erasures.sent_before import AlreadySent
from lethe.consumers.log.base import Message, Producer
from lethe.engine.store.store import ModelStore

_MESSAGES = 500
"""Messages in one flush: what is not acknowledged in time is sent again as a whole."""


class RequestSender:
    """Sends erasures' requests to models; one thread uses it.

    ``sent_before`` knows which of them an earlier worker has sent. ``signer`` returns what requests
    are signed with where deletion workers demand signatures, or None. ``keepalive`` is called
    between two flushes, so that the log does not take the worker for dead.
    """

    def __init__(
        self,
        store: ModelStore,
        producer: Producer,
        sent_before: AlreadySent,
        signer: Callable[[], Signer | None],
        keepalive: Callable[[], None],
    ) -> None:
        self._store = store
        self._producer = producer
        self._sent_before = sent_before
        self._signer = signer
        self._keepalive = keepalive

    def ask(self, erasures: Sequence[PendingErasure], models: Models) -> None:
        """Ask the models that know a subject, unless they were asked before.

        Notes which models are not covered.
        """
        fresh = []
        for erasure, asked in self._wanted(erasures, models):
            if asked.request_id not in erasure.awaited:
                fresh.append((erasure, asked))
        note_not_covered(erasures, models)
        self.send(self._unsent(fresh))

    def _unsent(
        self, requests: Sequence[tuple[PendingErasure, SentRequest]]
    ) -> list[tuple[PendingErasure, SentRequest]]:
        """Return the requests that nobody has sent; those that are answered or sent are awaited."""
        awaited = [Awaited(asked, "", None) for _, asked in requests]
        read_receipts(self._store, awaited)
        unsent = []
        for (erasure, asked), one in zip(requests, awaited, strict=True):
            if one.receipt is None:
                place = self._sent_before.take(self._message(erasure, asked))
                if place is None:
                    unsent.append((erasure, asked))
                    continue
                one.partition, one.offset = str(place.partition), place.offset
            erasure.awaited[asked.request_id] = one
        return unsent

    def send(self, requests: Sequence[tuple[PendingErasure, SentRequest]]) -> None:
        """Send requests, and note where they are in the log."""
        for start in range(0, len(requests), _MESSAGES):
            part = requests[start : start + _MESSAGES]
            messages = [self._message(erasure, asked) for erasure, asked in part]
            for (erasure, asked), place in zip(part, self._producer.append(messages), strict=True):
                erasure.awaited[asked.request_id] = Awaited(
                    asked, str(place.partition), place.offset
                )
            self._keepalive()

    def send_unawaited(self, requests: Sequence[SentRequest], time: datetime) -> None:
        """Send requests whose answers no erasure waits for."""
        for start in range(0, len(requests), _MESSAGES):
            part = requests[start : start + _MESSAGES]
            signer = self._signer()
            self._producer.publish([request_message(one.request, signer, time) for one in part])

    def _message(self, erasure: PendingErasure, asked: SentRequest) -> Message:
        time = erasure.request.record.logged_at
        return request_message(asked.request, self._signer(), time)

    def _wanted(
        self, erasures: Sequence[PendingErasure], models: Models
    ) -> list[tuple[PendingErasure, SentRequest]]:
        by_namespace: dict[str, dict[str, list[PendingErasure]]] = {}
        for erasure in erasures:
            subjects = by_namespace.setdefault(erasure.request.namespace, {})
            subjects.setdefault(erasure.request.event.subject_id, []).append(erasure)
        wanted: list[tuple[PendingErasure, SentRequest]] = []
        for namespace, subjects in by_namespace.items():
            known = [model for model in models.registered if model.knows(namespace)]
            rows = rows_of_subjects(self._store, known, [subjects] * len(known))
            for model, rows_of in zip(known, rows, strict=True):
                for subject, row_ids in rows_of.items():
                    for erasure in subjects[subject]:
                        name = erasure.request.erasure_id
                        asked = requests_to(model, name, subject, row_ids)
                        wanted += [(erasure, one) for one in asked]
        return wanted


def note_not_covered(erasures: Iterable[PendingErasure], models: Models) -> None:
    """Note which models are registered without subjects now: nobody can tell whose rows they have.

    Once more when all have answered: a model that was replaced without subjects after it was asked
    finds no row of the subject, and may hold some.
    """
    uncovered = frozenset(one.model_id for one in models.registered if one.namespace is None)
    for erasure in erasures:
        erasure.not_covered |= uncovered
