"""The plain pipeline: the same worker without evidence.

`install` takes the receipt log and the commitments out of this process's worker; without a key
it signs nothing either. Everything else is the worker itself.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import lethe.consumers.deletions.decide
import lethe.consumers.deletions.transition
import lethe.consumers.refresh.transition
from lethe.consumers.commits.commit import Answer
from lethe.consumers.contract.events import Receipt
from lethe.engine.store.state import ModelState


def without_log(
    state: ModelState, receipts: Sequence[tuple[Receipt, bytes]]
) -> tuple[ModelState, tuple[Answer, ...]]:
    """Return the receipts as they are kept, of a state that has no log of them."""
    answers = tuple(Answer(receipt, receipt.value(), body) for receipt, body in receipts)
    if state.meta.receipt_log is None:
        return state, answers
    return replace(state, meta=state.meta.model_copy(update={"receipt_log": None})), answers


def no_commitment(_secret: bytes | None, _request_id: str, _row_ids: Collection[str]) -> str | None:
    """Return no commitment."""
    return None


_REPLACED = (
    (lethe.consumers.deletions.transition, "with_receipts", without_log),
    (lethe.consumers.refresh.transition, "with_receipts", without_log),
    (lethe.consumers.deletions.decide, "rows_commitment", no_commitment),
)


def install() -> None:
    """Take the evidence out of this process's worker."""
    for module, name, plain in _REPLACED:
        getattr(module, name)  # a name that has moved is an error, and no plain worker
        setattr(module, name, plain)
