"""The receipt: the outcome of one request (docs/events.md)."""

from __future__ import annotations

import operator
from functools import partial
from typing import Literal

from pydantic import Field

from lethe.consumers.contract.events import Source, SparseEvent, Time, absent
from lethe.engine.store.layout.records import ErrorRecord, Hash

ReceiptStatus = Literal["APPLIED", "ALREADY_APPLIED", "REJECTED", "DEFERRED"]
Op = Literal["delete", "insert", "correct"]


class Receipt(SparseEvent):
    """The outcome of one request; final unless ``DEFERRED``.

    ``op`` and the counts of what a change request did are omitted from receipts of deletions.
    ``rows_commitment`` binds it to the ids of the rows that the request names
    (`consumers.contract.commitment`); a receipt does not contain the ids.
    """

    request_id: str
    model_id: str
    op: Op = Field(default="delete", exclude_if=partial(operator.eq, "delete"))
    status: ReceiptStatus
    code: str | None = None
    detail: str | None = None
    rows_deleted: int = 0
    rows_inserted: int = Field(default=0, exclude_if=operator.not_)
    rows_corrected: int = Field(default=0, exclude_if=operator.not_)
    rows_unknown: int = 0
    version: int | None = None
    generation: int | None = None
    error: ErrorRecord | None = None
    source: Source
    completed_at: Time
    conflicts_with: Source | None = None
    rows_commitment: Hash | None = Field(default=None, exclude_if=absent)

    @property
    def final(self) -> bool:
        """Whether no further receipt follows."""
        return self.status != "DEFERRED"
