"""New erasures: which are begun, which are answered at once, and who goes on the list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lethe.consumers.contract.codes import REQUEST_ID_CONFLICT
from lethe.consumers.contract.erasure_events import SubjectErasureCompleted
from lethe.consumers.contract.events import Source
from lethe.consumers.contract.sealing import SealKeys
from lethe.consumers.deletions.authenticate import UNAUTHENTICATED, RequestKeys
from lethe.consumers.deletions.dead_letters import dead_letter
from lethe.consumers.deletions.validate import Invalid
from lethe.consumers.erasures.pending import PendingErasure, lifted, rejected
from lethe.consumers.erasures.receipts import PublishedReceipts, receipt_message
from lethe.consumers.erasures.request import ErasureRequest, validate_erasure
from lethe.consumers.log.base import Message, Producer, Record
from lethe.consumers.service.telemetry.logs import Logger
from lethe.consumers.service.telemetry.metrics import Metrics
from lethe.consumers.suppression.marks import subject_commitments
from lethe.consumers.suppression.suppressions import Suppressions

_CONFLICT_DETAIL = "the erasure id was used for another request; the first receipt stands"
_PENDING = "ERASURE_PENDING"
_PENDING_DETAIL = (
    "an erasure of this subject is not finished; lift it under another id once its receipt is final"
)


@dataclass(slots=True)
class Admitted:
    """What the records of one poll become.

    Attributes
    ----------
    erasures
        Those that begin.
    lifts
        Those that end a suppression, each with what binds its receipt to the subject.
    answers
        Receipts of requests that need not wait, and dead letters.
    """

    erasures: list[PendingErasure] = field(default_factory=list)
    lifts: list[tuple[ErasureRequest, str]] = field(default_factory=list)
    answers: list[Message] = field(default_factory=list)


class Admission:
    """Takes records of ``lethe.erasures``; one thread uses it.

    ``keys``: whose erasures are accepted; None: everybody's.
    """

    def __init__(
        self,
        producer: Producer,
        suppressions: Suppressions,
        receipts: PublishedReceipts,
        seals: SealKeys,
        *,
        keys: RequestKeys | None,
        metrics: Metrics,
        logger: Logger,
    ) -> None:
        self._producer = producer
        self._suppressions = suppressions
        self._receipts = receipts
        self._seals = seals
        self._keys = keys
        self._metrics = metrics
        self._logger = logger

    def admit(self, records: Sequence[Record], pending: Mapping[str, PendingErasure]) -> Admitted:
        """Return what records become; ``pending`` are the erasures on their way, by id.

        A bad record never holds back its neighbours.
        """
        items = [validate_erasure(record, self._keys) for record in records]
        ids = {item.erasure_id for item in items if isinstance(item, ErasureRequest)}
        self._receipts.catch_up()
        published = self._receipts.find(ids)
        admitted, under_way = Admitted(), list(pending.values())
        begun = {name: (one.request.source, one.commitment) for name, one in pending.items()}
        for item in items:
            if isinstance(item, Invalid):
                self._refuse(item, admitted)
            elif not self._repeat(item, published.get(item.erasure_id), admitted):
                self._begin(item, begun, under_way, admitted)
        return admitted

    def suppress(self, admitted: Admitted) -> None:
        """Bring the list up to date: in the log, wait until that has it, then in the store."""
        self._suppressions.catch_up()
        changes = [
            message
            for item, _ in admitted.lifts
            for message in self._suppressions.lifting(*item.subject, item.erasure_id, item.record)
        ]
        changes += [
            message
            for item in (one.request for one in admitted.erasures)
            for message in self._suppressions.suppressing(
                *item.subject, item.erasure_id, item.record
            )
        ]
        if changes:
            self._producer.publish(changes)
            self._suppressions.catch_up()
        for item, commitment in admitted.lifts:
            admitted.answers.append(receipt_message(lifted(item, commitment), item))
            self._metrics.erasures.labels("COMPLETE").inc()

    def _refuse(self, item: Invalid, admitted: Admitted) -> None:
        unsigned = item.code == UNAUTHENTICATED
        (self._metrics.unauthenticated if unsigned else self._metrics.dead_letters).inc()
        self._logger.warning(
            "not an erasure", action="dead_letter", source=item.record.place, reason=item.detail
        )
        admitted.answers.append(dead_letter(item))

    def _repeat(
        self, item: ErasureRequest, first: SubjectErasureCompleted | None, admitted: Admitted
    ) -> bool:
        """Answer an erasure that has a final receipt: with the same one, or with a conflict.

        False: there is none.
        """
        if first is None:
            return False
        if first.subject_commitment in self._commitments(item):
            answer = first
        else:
            answer = rejected(
                item, REQUEST_ID_CONFLICT, _CONFLICT_DETAIL, conflicts_with=first.source
            )
        admitted.answers.append(receipt_message(answer, item))
        return True

    def _begin(
        self,
        item: ErasureRequest,
        begun: dict[str, tuple[Source, str]],
        under_way: list[PendingErasure],
        admitted: Admitted,
    ) -> None:
        """Begin an erasure or a lifting, unless its id is taken or it has to wait for another.

        ``begun``: by id, source and commitment of what has no final receipt on its topic yet.
        """
        commitments = self._commitments(item)
        if item.erasure_id in begun:
            source, commitment = begun[item.erasure_id]
            if commitment not in commitments:
                conflict = rejected(
                    item, REQUEST_ID_CONFLICT, _CONFLICT_DETAIL, conflicts_with=source
                )
                admitted.answers.append(receipt_message(conflict, item))
            return
        begun[item.erasure_id] = item.source, commitments[0]
        if not item.event.lift:
            admitted.erasures.append(PendingErasure(item, commitments[0]))
            under_way.append(admitted.erasures[-1])
        elif any(one.request.subject == item.subject for one in under_way):
            early = rejected(item, _PENDING, _PENDING_DETAIL, commitment=commitments[0])
            admitted.answers.append(receipt_message(early, item))
            self._metrics.erasures.labels("REJECTED").inc()
        else:
            admitted.lifts.append((item, commitments[0]))

    def _commitments(self, item: ErasureRequest) -> Sequence[str]:
        return subject_commitments(
            self._seals, item.erasure_id, item.namespace, item.event.subject_id, item.event.op
        )
