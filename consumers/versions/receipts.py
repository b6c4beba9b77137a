"""Receipts: what was asked, and what became of it. No other module of ours makes one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from lethe.consumers.contract.events import Source
from lethe.consumers.contract.receipt import Op, Receipt, ReceiptStatus
from lethe.engine.store.layout.state import DeferredRequest


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, as its receipts name it.

    Attributes
    ----------
    source, request_id, op
        Where it lies in the log, its id, and what it asks for.
    body
        The digest of its content: another request with the same id has another.
    rows_unknown
        How many of the rows that it names are not the model's.
    commitment
        To all rows that it names (`consumers.contract.commitment`).
    """

    source: Source
    request_id: str
    body: bytes
    op: Op = "delete"
    rows_unknown: int = 0
    commitment: str | None = None

    @classmethod
    def of(cls, waiting: DeferredRequest) -> Asked:
        """Return a request that has waited for a rebuild."""
        return cls(
            Source.model_validate(waiting.source),
            waiting.request_id,
            bytes.fromhex(waiting.body),
            rows_unknown=waiting.rows_unknown,
            commitment=waiting.rows_commitment,
        )

    def receipt(self, model_id: str, status: ReceiptStatus, now: datetime, **more: Any) -> Receipt:
        """Return its receipt; ``more`` are fields that depend on the outcome."""
        return Receipt(
            request_id=self.request_id,
            model_id=model_id,
            op=self.op,
            status=status,
            rows_unknown=self.rows_unknown,
            source=self.source,
            completed_at=now,
            rows_commitment=self.commitment,
            **more,
        )
