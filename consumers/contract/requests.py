"""The message of a deletion request: for every program of ours that sends one."""

from __future__ import annotations

from datetime import UTC, datetime

from lethe.consumers.contract import cloudevents, topics
from lethe.consumers.contract.events import DELETION_REQUESTED, DeletionRequest
from lethe.consumers.contract.signatures import Signer
from lethe.consumers.log.base import Message


def request_value(request: DeletionRequest) -> bytes:
    """Return the JSON value of a request, without the members that it does not give."""
    return request.model_dump_json(exclude_none=True).encode()


def deletion_message(request: DeletionRequest, signer: Signer | None) -> Message:
    """Return the record to send to ``lethe.deletions``, signed where there is a signer."""
    headers = cloudevents.headers(
        DELETION_REQUESTED, request.request_id, datetime.now(UTC), request.model_id
    )
    value = request_value(request)
    if signer is not None:
        headers = signer.signed(DELETION_REQUESTED, value, headers)
    return Message(topics.DELETIONS, request.model_id.encode(), value, headers)
