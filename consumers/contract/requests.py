"""The messages of requests: for every program of ours that sends one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import TypeVar

from lethe.consumers.contract import cloudevents, topics
from lethe.consumers.contract.erasure_events import (
    SUBJECT_ERASURE_REQUESTED,
    SubjectErasureRequested,
)
from lethe.consumers.contract.events import (
    DELETION_REQUESTED,
    MAX_REQUEST_BYTES,
    ROWS_CHANGED,
    DeletionRequest,
    RowsChanged,
    Source,
)
from lethe.consumers.contract.signatures import Signer
from lethe.consumers.log.base import Message, Record
from lethe.engine.errors import InvalidRequest

Request = DeletionRequest | RowsChanged | SubjectErasureRequested
"""What people and programs ask for."""

Item = TypeVar("Item")

ERASURE = "erasure-"
"""Prefix of the ids of the requests that an erasure sends."""

BODY_BYTES = 16
"""Length of the digest of a request's content: a collision harms only whoever constructs it."""

_ERASURE_REQUEST = re.compile(ERASURE + "[0-9a-f]{48}")


def erasure_request_id(digest: str) -> str:
    """Return the id of a request that an erasure sends, from a digest in hexadecimal."""
    return f"{ERASURE}{digest[:48]}"


def is_of_erasure(request_id: str) -> bool:
    """Return whether a request was sent by an erasure (`consumers.erasures`)."""
    return _ERASURE_REQUEST.fullmatch(request_id) is not None


def source_of(record: Record) -> Source:
    """Return a request's place in the log, as receipts name it."""
    where = record.partition
    return Source(topic=where.topic, partition=where.index, offset=record.offset)


def check_own_id(request_id: str) -> None:
    """Refuse an id that only the erasure worker may give a request.

    The rows that such a request names count as an erased person's: no disclosures of them are kept
    (docs/disclosure.md).

    Raises
    ------
    InvalidRequest
        It has that form.
    """
    if is_of_erasure(request_id):
        raise InvalidRequest(
            f"request_id has the form reserved for the requests of erasures ({ERASURE} and 48 "
            "hexadecimal digits); choose another"
        )


def request_value(request: Request) -> bytes:
    """Return the JSON value of a request; a request to a model omits members that are absent."""
    if isinstance(request, SubjectErasureRequested):
        return request.value()
    return request.model_dump_json(exclude_none=True).encode()


def check_size(value: bytes) -> None:
    """Refuse a request that no worker reads.

    Raises
    ------
    InvalidRequest
        It is too long.
    """
    if len(value) > MAX_REQUEST_BYTES:
        raise InvalidRequest(f"{len(value)} bytes; a request has at most 1 MiB")


def in_parts(
    items: Iterable[Item], size_of: Callable[[Item], int], most: int, most_bytes: int
) -> Iterator[tuple[Item, ...]]:
    """Split what one request cannot hold, in order; an item that is too long is a part of its own.

    Parameters
    ----------
    items
        What requests are to hold.
    size_of
        Returns how many bytes an item takes.
    most, most_bytes
        How many items a request holds, and how many bytes of them.
    """
    part: list[Item] = []
    size = 0
    for item in items:
        length = size_of(item)
        if part and (len(part) == most or size + length > most_bytes):
            yield tuple(part)
            part, size = [], 0
        part.append(item)
        size += length
    if part:
        yield tuple(part)


def request_message(
    request: Request, signer: Signer | None, time: datetime | None = None
) -> Message:
    """Return the record to send for a request, signed where there is a signer.

    ``time`` is that of the event, now by default: with it, the same request has the same bytes.
    """
    if isinstance(request, SubjectErasureRequested):
        topic, event_type = topics.ERASURES, SUBJECT_ERASURE_REQUESTED
        event_id, about, key = request.erasure_id, request.erasure_id, request.subject_id
    else:
        changes = isinstance(request, RowsChanged)
        topic = topics.ROW_CHANGES if changes else topics.DELETIONS
        event_type = ROWS_CHANGED if changes else DELETION_REQUESTED
        event_id, about, key = request.request_id, request.model_id, request.model_id
    headers = cloudevents.headers(event_type, event_id, time or datetime.now(UTC), about)
    value = request_value(request)
    if signer is not None:
        headers = signer.signed(event_type, value, headers)
    return Message(topic, key.encode(), value, headers)
