"""The answers to erasures' requests: receipts in the store's index."""

from __future__ import annotations

from collections.abc import Sequence

from lethe.consumers.commits.packed_receipt import body_of, unpack
from lethe.consumers.contract.codes import REQUEST_ID_CONFLICT
from lethe.consumers.contract.receipt import Receipt
from lethe.consumers.erasures.pending import Awaited
from lethe.engine.errors import CorruptState
from lethe.engine.store.layout.keys import ModelKeys
from lethe.engine.store.server.pipeline import CHUNK, run_pipeline
from lethe.engine.store.store import ModelStore


def read_receipts(store: ModelStore, awaited: Sequence[Awaited]) -> None:
    """Note the newest receipt of each request. One round trip.

    The receipts are those of the store's index, which holds what commits have decided: a final one
    never changes again. A receipt that cannot be read is none yet; its model is halted.
    """
    asked = [(one.asked.model.model_id, one.asked.request_id) for one in awaited]
    for one, value in zip(awaited, _stored(store, asked), strict=True):
        if value is not None:
            one.receipt = _receipt(one, value) or one.receipt


def stored_receipts(store: ModelStore, requests: Sequence[tuple[str, str]]) -> list[Receipt | None]:
    """Return the receipts of requests, given by model and id; None where there is none yet."""
    values = _stored(store, requests)
    return [
        None if value is None else _unpacked(value, *request)
        for request, value in zip(requests, values, strict=True)
    ]


def _stored(store: ModelStore, requests: Sequence[tuple[str, str]]) -> list[bytes | None]:
    """Return what the store's index has of requests, in their order. One round trip."""
    by_model: dict[str, list[int]] = {}
    for place, (model_id, _) in enumerate(requests):
        by_model.setdefault(model_id, []).append(place)
    parts = [
        (model, places[first : first + CHUNK])
        for model, places in by_model.items()
        for first in range(0, len(places), CHUNK)
    ]
    answers = run_pipeline(
        store.client,
        (),
        lambda pipe: [
            pipe.hmget(ModelKeys(model_id).requests, [requests[place][1] for place in part])
            for model_id, part in parts
        ],
        each=True,
    )
    found: list[bytes | None] = [None] * len(requests)
    for (_, part), answer in zip(parts, answers, strict=True):
        if not isinstance(answer, CorruptState):
            for place, value in zip(part, answer, strict=True):
                found[place] = value
    return found


def _unpacked(stored: bytes, model_id: str, request_id: str) -> Receipt | None:
    try:
        return unpack(stored, model_id, request_id).receipt
    except CorruptState:
        return None


def _receipt(one: Awaited, stored: bytes) -> Receipt | None:
    """Return a request's receipt; a conflict if its id was used for something else."""
    receipt = _unpacked(stored, one.asked.model.model_id, one.asked.request_id)
    if receipt is None or body_of(stored) == one.asked.body:
        return receipt
    return receipt.model_copy(
        update={
            "status": "REJECTED",
            "code": REQUEST_ID_CONFLICT,
            "detail": "its request id was used for other rows; erase again under another id",
            "rows_deleted": 0,
        }
    )
