"""The deletion requests that an erasure becomes. Pure: made again, they have the same bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lethe.consumers.contract.events import MAX_ROWS, DeletionRequest
from lethe.consumers.contract.requests import erasure_request_id, in_parts
from lethe.consumers.deletions.validate import content_digest
from lethe.consumers.suppression.marks import DEFAULT_NAMESPACE

if TYPE_CHECKING:  # it needs NumPy, which readers of receipts do not
    from lethe.consumers.erasures.models import Registered

PART_BYTES = 900_000
"""Of the row ids in one request, as JSON: a request has at most 1 MiB."""


@dataclass(frozen=True, slots=True)
class SentRequest:
    """A deletion request to one model; ``body`` is what its receipt must belong to."""

    model: Registered
    request: DeletionRequest
    body: bytes

    @property
    def request_id(self) -> str:
        """Its identity."""
        return self.request.request_id


def requests_to(
    model: Registered, erasure_id: str, subject_id: str, row_ids: Sequence[str]
) -> list[SentRequest]:
    """Return what a model is asked: one request by subject, or parts of its many rows.

    A request by subject is about the rows that the subject has when it is decided. More rows than
    one request takes are named instead, in the order in which the model has them: rows that come
    later change no part but the last.
    """
    if len(row_ids) <= MAX_ROWS:
        return [_asked(model, erasure_id, subject_id=subject_id)]
    parts = in_parts(row_ids, _most_bytes, MAX_ROWS, PART_BYTES)
    return [_asked(model, erasure_id, row_ids=part) for part in parts]


def _most_bytes(row_id: str) -> int:
    return 6 * len(row_id) + 3  # a character takes at most six bytes as JSON


def request_id_of(erasure_id: str, model: Registered, row_ids: Sequence[str] | None = None) -> str:
    """Return the id of a request: a hash of the erasure, the model and its registration.

    A model that is replaced is asked again: rows may have come with the new file.
    """
    parts = [erasure_id, model.model_id, model.registration, *(row_ids or ())]
    digest = hashlib.sha256(b"lethe.erasure.request.v2")
    for part in parts:
        encoded = part.encode()
        digest.update(len(encoded).to_bytes(4, "big") + encoded)
    return erasure_request_id(digest.hexdigest())


def _asked(
    model: Registered,
    erasure_id: str,
    *,
    subject_id: str | None = None,
    row_ids: tuple[str, ...] | None = None,
) -> SentRequest:
    request = DeletionRequest(
        request_id=request_id_of(erasure_id, model, row_ids),
        model_id=model.model_id,
        subject_id=subject_id,
        row_ids=row_ids,
        namespace=model.namespace or DEFAULT_NAMESPACE,
    )
    return SentRequest(model, request, content_digest(request))
