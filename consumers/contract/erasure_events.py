"""The events of subject erasures: a person who is erased from every model (docs/erasures.md)."""

from __future__ import annotations

import operator
from typing import Any, Literal

from pydantic import ConfigDict, Field, StrictBool

from lethe.consumers.contract.events import Event, Id, RowId, Source, Time, absent
from lethe.consumers.contract.receipt import ReceiptStatus
from lethe.engine.store.layout.reading import Texts
from lethe.engine.store.layout.records import Hash

SUBJECT_ERASURE_REQUESTED = "lethe.subject.erasure.requested.v1"
SUBJECT_ERASURE_COMPLETED = "lethe.subject.erasure.completed.v1"


class SubjectErasureRequested(Event):
    """A request to erase a subject from every model that has subjects of its namespace.

    The subject is suppressed from then on: no row of theirs is registered or inserted again, until
    a request with ``lift`` ends that. ``namespace`` tells subjects apart that systems number
    independently; without one, models are meant that were registered without one.
    """

    model_config = ConfigDict(json_schema_extra={"required": ["subject_id"]})

    erasure_id: Id
    subject_id: RowId
    namespace: Id | None = Field(default=None, exclude_if=absent)
    lift: StrictBool = Field(default=False, exclude_if=operator.not_)
    requested_at: Any = Field(default=None, exclude_if=absent)
    reason: Any = Field(default=None, exclude_if=absent)

    @property
    def op(self) -> Literal["erase", "lift"]:
        """What is asked for, as receipts name it."""
        return "lift" if self.lift else "erase"


ModelErasureStatus = ReceiptStatus | Literal["AWAITED", "NOT_COVERED"]


class ModelErasure(Event):
    """What an erasure did in one model.

    ``status`` is that of the model's receipts: ``APPLIED`` if one of them is; ``AWAITED`` if one of
    them is missing, ``DEFERRED`` if one of them is not final. ``NOT_COVERED``: the model was
    registered without subjects, so that it cannot be told which rows are the subject's; it was not
    asked. ``request_ids`` are those of the deletion requests that it was sent: one, or several of
    at most 10,000 rows. ``version`` is the newest version that one of them made.
    """

    model_id: str
    status: ModelErasureStatus
    code: str | None = Field(default=None, exclude_if=absent)
    detail: str | None = Field(default=None, exclude_if=absent)
    request_ids: Texts = ()
    rows_deleted: int = 0
    version: int | None = Field(default=None, exclude_if=absent)


class SubjectErasureCompleted(Event):
    """The combined receipt of an erasure.

    ``PENDING`` is not final: another receipt follows. ``COMPLETE``: no model holds a row of the
    subject. ``INCOMPLETE``: every model that was asked has answered, but one is not covered or has
    rejected its request, so that it cannot be said that the person is gone. ``REJECTED``: nothing
    was done, see ``code``. ``complete`` is true for ``COMPLETE`` alone, and ``awaited`` names the
    models whose answers are missing or not final. ``unknown`` is true in the final receipt of an
    erasure that no model was asked for, because none knows the subject; ``similar`` then names the
    models that know a subject whose id is written in another usual way (`erasures.spelling`).

    Many can read a receipt, so it does not name the subject: ``subject_commitment`` is an
    HMAC-SHA256 of namespace and subject, under a salt of the erasure that only Lethe has.
    """

    erasure_id: str
    namespace: str | None = Field(default=None, exclude_if=absent)
    op: Literal["erase", "lift"] = Field(default="erase", exclude_if=lambda op: op == "erase")
    status: Literal["PENDING", "COMPLETE", "INCOMPLETE", "REJECTED"]
    complete: bool
    code: str | None = Field(default=None, exclude_if=absent)
    detail: str | None = Field(default=None, exclude_if=absent)
    models: tuple[ModelErasure, ...] = ()
    awaited: Texts = ()
    unknown: StrictBool = Field(default=False, exclude_if=operator.not_)
    similar: Texts = Field(default=(), exclude_if=operator.not_)
    rows_deleted: int = 0
    subject_commitment: Hash | None = Field(default=None, exclude_if=absent)
    source: Source
    completed_at: Time | None = None
    conflicts_with: Source | None = Field(default=None, exclude_if=absent)

    @property
    def final(self) -> bool:
        """Whether no further receipt follows."""
        return self.status != "PENDING"
