"""What became of an erasure in words, for the person who asked for it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lethe.consumers.contract import codes
from lethe.consumers.contract.erasure_events import ModelErasure, SubjectErasureCompleted


@dataclass(frozen=True, slots=True)
class Answer:
    """What one model answered.

    Attributes
    ----------
    status
        As in the receipt; ``AWAITED`` also for a model that cannot be searched yet.
    said
        The same as a sentence.
    settled
        Whether the model holds no row of the person now.
    """

    model_id: str
    status: str
    said: str
    settled: bool
    code: str | None = None
    rows_deleted: int = 0
    version: int | None = None
    request_ids: Sequence[str] = ()


def answers_of(receipt: SubjectErasureCompleted) -> list[Answer]:
    """Return what each model answered, in the order of their names.

    Models that cannot be searched yet are awaited and were asked nothing.
    """
    asked = {one.model_id: _answer(one) for one in receipt.models}
    others = [
        Answer(name, "AWAITED", "It cannot be searched yet, and is asked once it can.", False)
        for name in receipt.awaited
        if name not in asked
    ]
    return sorted([*asked.values(), *others], key=lambda one: one.model_id)


def _answer(one: ModelErasure) -> Answer:
    gone = one.status in ("APPLIED", "ALREADY_APPLIED") or one.code in codes.HOLDS_NOTHING
    return Answer(
        one.model_id,
        one.status,
        _said(one),
        gone,
        one.code,
        one.rows_deleted,
        one.version,
        one.request_ids,
    )


def _said(one: ModelErasure) -> str:
    rows = f"{one.rows_deleted:,} row{'' if one.rows_deleted == 1 else 's'}"
    if one.code in codes.HOLDS_NOTHING:
        return {
            codes.UNKNOWN_ROWS: "It held no row of the person.",
            codes.MODEL_UNREGISTERED: "The model is no longer in use.",
        }[one.code]
    if one.status == "REJECTED":
        return f"It refused the request and may still hold rows. {one.detail or ''}".strip()
    if one.status == "APPLIED":
        version = "" if one.version is None else f"; version {one.version} does not use them"
        return f"{rows} deleted{version}."
    return {
        "ALREADY_APPLIED": "The rows of the person had been deleted before.",
        "DEFERRED": "The rows will be deleted by a rebuild of the model that is still to come.",
        "AWAITED": "It has not answered yet.",
        "NOT_COVERED": "It was registered without subjects: nobody can tell which rows are whose, "
        "and it was not asked.",
    }[one.status]


def headline(receipt: SubjectErasureCompleted | None) -> str:
    """Return what an erasure came to, as a sentence."""
    if receipt is None:
        return "Received. No model has been asked yet."
    if receipt.op == "lift":
        return "The person is no longer kept out of the models."
    return {
        "PENDING": "Not finished: at least one model has not given its final answer.",
        "COMPLETE": "Complete: no model holds a row of the person, and models that are registered "
        "later leave their rows out.",
        "INCOMPLETE": "Finished, and not complete: at least one model may still hold rows of the "
        "person.",
        "REJECTED": f"Nothing was done. {receipt.detail or ''}".strip(),
    }[receipt.status]
