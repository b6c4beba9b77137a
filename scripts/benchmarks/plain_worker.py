"""The plain pipeline: the same worker without evidence.

`install` takes the log of receipts and the commitments out of this process's worker; without a key
it signs nothing either. Everything else is the worker itself.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import consumers.decide
import consumers.deletion_transition
import consumers.refresh_transition
from consumers.events import Receipt
from engine.store.state import ModelState


def no_leaves(_receipts: Sequence[Receipt]) -> list[bytes]:
    """Return no entries of the log of receipts."""
    return []


def without_log(state: ModelState, _leaves: Sequence[bytes]) -> ModelState:
    """Return a state that has no log of receipts; its versions name none."""
    if state.meta.receipt_log is None:
        return state
    return replace(state, meta=state.meta.model_copy(update={"receipt_log": None}))


def no_commitment(_secret: bytes | None, _request_id: str, _row_ids: Collection[str]) -> str | None:
    """Return no commitment."""
    return None


_REPLACED = (
    (consumers.deletion_transition, "leaves_of", no_leaves),
    (consumers.deletion_transition, "with_leaves", without_log),
    (consumers.refresh_transition, "leaves_of", no_leaves),
    (consumers.refresh_transition, "with_leaves", without_log),
    (consumers.decide, "rows_commitment", no_commitment),
)


def install() -> None:
    """Take the evidence out of this process's worker."""
    for module, name, plain in _REPLACED:
        getattr(module, name)  # a name that has moved is an error, and no plain worker
        setattr(module, name, plain)
