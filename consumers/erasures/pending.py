"""An erasure on its way: whom it has asked, what was answered, and the receipt that follows. Pure.

It is kept in memory only. A worker that dies leaves nothing behind: the next one reads the request
again and asks the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from lethe.consumers.contract import codes
from lethe.consumers.contract.erasure_events import ModelErasure, SubjectErasureCompleted
from lethe.consumers.contract.events import Source
from lethe.consumers.contract.receipt import Receipt
from lethe.consumers.erasures.fan_out import SentRequest
from lethe.consumers.erasures.request import ErasureRequest


@dataclass(slots=True)
class Awaited:
    """A request that was sent, and its answer.

    Attributes
    ----------
    asked
        The request.
    partition, offset
        Where the log has it; None if it did not say.
    receipt
        The newest receipt, None before there is one.
    """

    asked: SentRequest
    partition: str
    offset: int | None
    receipt: Receipt | None = None

    @property
    def answered(self) -> bool:
        """Whether its final receipt is there."""
        return self.receipt is not None and self.receipt.final

    def lies_before(self, opening: Mapping[str, int] | None) -> bool:
        """Whether it lies before its model's opening, and so has no effect.

        It was sent before the model was opened, and is sent again.
        """
        if self.receipt is not None or opening is None or self.offset is None:
            return False
        return self.offset < opening.get(self.partition, 0)


@dataclass(slots=True)
class PendingErasure:
    """One erasure.

    Attributes
    ----------
    request, commitment
        The request, and the commitment that binds its receipts to the subject.
    changes
        By partition of ``lethe.row-changes``, its end once the subject was on the list: rows that
        are inserted from there on are rejected.
    undecided
        The models that had undecided changes before those ends at the last look; None before the
        first look.
    commits
        By partition of ``lethe.commits``, its end when ``undecided`` last changed.
    unsearched
        The models that might hold rows of the subject unknown to the store
        (`consumers.erasures.unsearched`) when the others were last asked; None until the store has
        everything that came before the fences.
    awaited
        The requests by their ids.
    not_covered
        Models that were registered without subjects.
    similar
        Of a subject that no model knows: the models that know another spelling of it.
    reported
        The models that a receipt has shown as held up; None before the first receipt.
    settled
        Whether a receipt has shown the answers of all that were not held up.
    """

    request: ErasureRequest
    commitment: str
    changes: Mapping[str, int] = field(default_factory=dict)
    undecided: frozenset[str] | None = None
    commits: Mapping[str, int] = field(default_factory=dict)
    unsearched: frozenset[str] | None = None
    awaited: dict[str, Awaited] = field(default_factory=dict)
    not_covered: frozenset[str] = frozenset()
    similar: tuple[str, ...] = ()
    reported: frozenset[str] | None = None
    settled: bool = False

    @property
    def asked_again(self) -> bool:
        """Whether the models were asked again once the store had everything before the fences."""
        return self.unsearched is not None and not self.unsearched

    @property
    def finished(self) -> bool:
        """Whether every model that may hold a row was asked, and has answered."""
        return self.asked_again and all(one.answered for one in self.awaited.values())

    @property
    def unknown(self) -> bool:
        """Whether it is finished, and no model knew the subject."""
        return self.finished and not self.awaited

    def news(self) -> SubjectErasureCompleted | None:
        """Return a receipt that is not final if it says more than those before, and note it.

        That is the first, one in which another model has deferred or cannot be searched, and one in
        which all others have answered.
        """
        held_up = self._held_up()
        settled = self.unsearched is not None and self._waits_for() <= held_up
        before = self.reported or frozenset()
        if self.reported is not None and held_up <= before and settled <= self.settled:
            return None
        self.reported, self.settled = held_up | before, settled or self.settled
        return self.receipt()

    def _held_up(self) -> frozenset[str]:
        """Return the models that have deferred a request, or cannot be searched."""
        deferred = {
            one.asked.model.model_id
            for one in self.awaited.values()
            if one.receipt is not None and not one.receipt.final
        }
        return (self.unsearched or frozenset()) | deferred

    def _waits_for(self) -> frozenset[str]:
        """Return the models that have not answered, or cannot be searched."""
        asked = {one.asked.model.model_id for one in self.awaited.values() if not one.answered}
        return (self.unsearched or frozenset()) | asked

    def receipt(self) -> SubjectErasureCompleted:
        """Return the combined receipt as things stand."""
        by_model: dict[str, list[Awaited]] = {}
        for one in self.awaited.values():
            by_model.setdefault(one.asked.model.model_id, []).append(one)
        names = sorted(by_model.keys() | self.not_covered)
        models = [
            _model(name, by_model.get(name, ()), covered=name not in self.not_covered)
            for name in names
        ]
        status = self._status(models)
        return SubjectErasureCompleted(
            erasure_id=self.request.erasure_id,
            namespace=self.request.event.namespace,
            status=status,
            complete=status == "COMPLETE",
            models=tuple(models),
            awaited=tuple(sorted(self._waits_for())),
            unknown=self.unknown,
            similar=self.similar,
            rows_deleted=sum(model.rows_deleted for model in models),
            subject_commitment=self.commitment,
            source=self.request.source,
            completed_at=self._completed_at() if self.finished else None,
        )

    def _status(
        self, models: Iterable[ModelErasure]
    ) -> Literal["PENDING", "COMPLETE", "INCOMPLETE"]:
        if not self.finished:
            return "PENDING"
        gone = all(
            model.status in ("APPLIED", "ALREADY_APPLIED")
            or (model.status == "REJECTED" and model.code in codes.HOLDS_NOTHING)
            for model in models
        )
        return "COMPLETE" if gone else "INCOMPLETE"

    def _completed_at(self) -> datetime:
        """Return when the last model answered: it follows from the receipts alone."""
        answers = [one.receipt.completed_at for one in self.awaited.values() if one.receipt]
        return max([self.request.record.logged_at, *answers])


def lifted(request: ErasureRequest, commitment: str) -> SubjectErasureCompleted:
    """Return the receipt of a lifting: the subject is on no list any more."""
    return SubjectErasureCompleted(
        erasure_id=request.erasure_id,
        namespace=request.event.namespace,
        op="lift",
        status="COMPLETE",
        complete=True,
        subject_commitment=commitment,
        source=request.source,
        completed_at=request.record.logged_at,
    )


def rejected(
    request: ErasureRequest,
    code: str,
    detail: str,
    *,
    commitment: str | None = None,
    conflicts_with: Source | None = None,
) -> SubjectErasureCompleted:
    """Return the receipt of a request that does nothing."""
    return SubjectErasureCompleted(
        erasure_id=request.erasure_id,
        namespace=request.event.namespace,
        op=request.event.op,
        status="REJECTED",
        complete=False,
        code=code,
        detail=detail,
        subject_commitment=commitment,
        source=request.source,
        completed_at=request.record.logged_at,
        conflicts_with=conflicts_with,
    )


def _model(model_id: str, requests: Sequence[Awaited], *, covered: bool) -> ModelErasure:
    """Return what the erasure did in one model: of several answers the one that matters most."""
    receipts = [one.receipt for one in requests]
    decisive = min(receipts, key=_rank, default=None)
    status = "AWAITED" if decisive is None else decisive.status
    versions = [one.version for one in receipts if one is not None and one.status == "APPLIED"]
    return ModelErasure(
        model_id=model_id,
        status=status if covered else "NOT_COVERED",
        code=None if decisive is None else decisive.code,
        detail=None if decisive is None else decisive.detail,
        request_ids=tuple(sorted(one.asked.request_id for one in requests)),
        rows_deleted=sum(one.rows_deleted for one in receipts if one is not None),
        version=max((version for version in versions if version is not None), default=None),
    )


def _rank(receipt: Receipt | None) -> int:
    """Order answers: a missing one first, one that says that there is nothing to delete last."""
    if receipt is None:
        return 0
    if receipt.status == "REJECTED":
        return 5 if receipt.code in codes.HOLDS_NOTHING else 2
    return {"DEFERRED": 1, "APPLIED": 3, "ALREADY_APPLIED": 4}[receipt.status]
