"""Step 2: each record alone becomes a request, a refused request, or an unreadable record.

The records of one model are processed together, in order: they are a group. A bad record never
holds back its neighbours. What is read here is bounded: the log limits the bytes of a record, and
this module limits the number and length of ids.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any

from pydantic import ValidationError
from pydantic_core import to_json

from lethe.consumers.contract import cloudevents, codes, topics
from lethe.consumers.contract.events import (
    DELETION_REQUESTED,
    MAX_REQUEST_BYTES,
    MAX_ROWS,
    REFRESH_COMPLETED,
    ROWS_CHANGED,
    DeletionRequest,
    RefreshCompleted,
    RowsChanged,
)
from lethe.consumers.contract.requests import BODY_BYTES
from lethe.consumers.log.base import Partition, Reader, Record
from lethe.consumers.log.scan import read_at
from lethe.engine.store.layout.reading import first_error

_DETAIL_LIMIT = 300


@dataclass(frozen=True)
class Valid:
    """A well-formed request. ``body`` identifies its content: same id and body, same request."""

    record: Record
    request: DeletionRequest | RowsChanged
    body: bytes

    @cached_property
    def model_id(self) -> str:
        """The model that it is for."""
        return self.request.model_id

    @cached_property
    def request_id(self) -> str:
        """Its id."""
        return self.request.request_id


@dataclass(frozen=True, slots=True)
class Invalid:
    """A record that is refused without looking at the model.

    A record with ``model_id`` and ``request_id`` gets a REJECTED receipt; where either cannot be
    read, both are None. ``dead_letter``: the raw bytes also go to dead letters.
    """

    record: Record
    code: str
    detail: str
    model_id: str | None = None
    request_id: str | None = None
    body: bytes = b""
    dead_letter: bool = True


@dataclass(frozen=True, slots=True)
class Refreshed:
    """An event of the refresh worker: the result of a job is in the store."""

    record: Record
    event: RefreshCompleted


Validated = Valid | Invalid | Refreshed


@dataclass(slots=True)
class Group:
    """Records of one partition that name one model, in order.

    Attributes
    ----------
    model_id, partition
        Which model, and which partition the records are in.
    items
        The validated records.
    since
        By offset: when the log received the record, for those that wait to be batched.
    """

    model_id: str
    partition: Partition
    items: list[Validated]
    since: dict[int, datetime] = field(default_factory=dict)


def group_records(
    records: Sequence[Record], check: Callable[[Validated], Validated] | None
) -> tuple[list[Group], list[Invalid]]:
    """Validate (step 2) each record alone, and group the records by model.

    ``check`` refuses requests that are not signed by whoever may send them; None: nobody signs.

    Also returned are the refused records whose bytes go to dead letters, including those that name
    no request and therefore have no group.
    """
    groups: dict[tuple[str, Partition], Group] = {}
    dead_letters: list[Invalid] = []
    for record in records:
        item = validate(record) if check is None else check(validate(record))
        if isinstance(item, Invalid) and item.dead_letter:
            dead_letters.append(item)
        model_id = item.event.model_id if isinstance(item, Refreshed) else item.model_id
        if model_id is not None:
            place = model_id, record.partition
            groups.setdefault(place, Group(*place, [])).items.append(item)
    return list(groups.values()), dead_letters


def request_at(
    reader: Reader, model_id: str, request_id: str, topic: str, index: int, offset: int
) -> Valid | Invalid | None:
    """Return a request that lies at a place of the log; None if it no longer has it there."""
    record = read_at(reader, topic, index, offset)
    found = None if record is None else validate(record)
    if found is None or isinstance(found, Refreshed):
        return None
    return found if (found.model_id, found.request_id) == (model_id, request_id) else None


def validate(record: Record) -> Validated:
    """Validate one record of ``lethe.deletions`` or ``lethe.row-changes``. Pure."""
    incoming = parsed(record)
    if isinstance(incoming, Invalid):
        return incoming
    changes = record.partition.topic == topics.ROW_CHANGES
    if incoming.type == REFRESH_COMPLETED and not changes:
        return _refresh(record, incoming.data)
    data = incoming.data_with_id("request_id")
    if incoming.type not in (None, ROWS_CHANGED if changes else DELETION_REQUESTED):
        return _refused(record, data, f"ce_type {incoming.type[:128]!r} is not known here")
    return _change(record, data) if changes else validate_deletion(record, data)


def validate_deletion(record: Record, data: dict[str, Any]) -> Valid | Invalid:
    """Validate the data of a request to delete, which was read from ``record``. Pure."""
    rows = data.get("row_ids")
    if isinstance(rows, list) and len(rows) > MAX_ROWS:
        detail = f"{len(rows)} rows; a request names at most {MAX_ROWS}: send several"
        return _refused(record, data, detail, code=codes.TOO_MANY_ROWS, dead_letter=False)
    try:
        request = DeletionRequest.model_validate(data)
    except ValidationError as error:
        return _refused(record, data, first_error(error, names=DeletionRequest.model_fields))
    contradiction = _key_contradicts(record, request.model_id)
    if contradiction is not None:
        return _refused(record, data, contradiction)
    distinct = request.row_ids and tuple(dict.fromkeys(request.row_ids))
    if distinct != request.row_ids:
        request = request.model_copy(update={"row_ids": distinct})
    return Valid(record, request, content_digest(request))


def _change(record: Record, data: dict[str, Any]) -> Valid | Invalid:
    rows = data.get("rows")
    if isinstance(rows, list) and len(rows) > MAX_ROWS:
        detail = f"{len(rows)} rows; a request changes at most {MAX_ROWS}: send several"
        return _refused(record, data, detail, code=codes.TOO_MANY_ROWS)
    try:
        request = RowsChanged.model_validate(data)
    except ValidationError as error:
        return _refused(record, data, first_error(error, names=RowsChanged.model_fields))
    contradiction = _key_contradicts(record, request.model_id)
    if contradiction is not None:
        return _refused(record, data, contradiction)
    parts = request.model_dump(exclude={"request_id"})
    parts["rows"] = sorted(parts["rows"], key=lambda row: str(row["id"]))
    return Valid(record, request, hashlib.sha256(to_json(parts)).digest()[:BODY_BYTES])


def _key_contradicts(record: Record, model_id: str) -> str | None:
    """Return what is wrong with a record's key, or None."""
    key = record.key.decode("utf-8", errors="replace") if record.key else None
    if key is None or key == model_id:
        return None
    return f"the record's key {key[:128]!r} contradicts model_id {model_id!r}"


def content_digest(request: DeletionRequest) -> bytes:
    """Return the digest of a request's content: which rows of which model, in any order.

    Members that later releases added count only if they are given, so older requests keep their
    digests.
    """
    rows = None if request.row_ids is None else sorted(request.row_ids)
    strict = ["strict"] if request.strict else []
    namespace = [] if request.namespace is None else [{"namespace": request.namespace}]
    parts = [request.model_id, rows, request.subject_id, *strict, *namespace]
    content = to_json(parts)
    return hashlib.sha256(content).digest()[:BODY_BYTES]


def _refresh(record: Record, data: dict[str, Any]) -> Validated:
    try:
        return Refreshed(record, RefreshCompleted.model_validate(data))
    except ValidationError as error:
        return unreadable(record, first_error(error))


def parsed(record: Record) -> cloudevents.Incoming | Invalid:
    """Return the event in a record, whose data are a JSON object."""
    if record.value is not None and len(record.value) > MAX_REQUEST_BYTES:
        return unreadable(record, f"{len(record.value)} bytes; a request has at most 1 MiB")
    try:
        incoming = cloudevents.parse(record)
    except (ValueError, RecursionError) as error:
        return unreadable(record, f"the value is not JSON: {error}")
    if not isinstance(incoming.data, dict):
        return unreadable(record, "the value is not a JSON object")
    return incoming


def unreadable(record: Record, detail: str) -> Invalid:
    """Refuse a record whose content cannot be read.

    Its key may name a model, but is not trusted: each new key would leave a record in the store.
    """
    return Invalid(record, codes.INVALID_REQUEST, detail[:_DETAIL_LIMIT])


def _refused(
    record: Record,
    data: dict[str, Any],
    detail: str,
    *,
    code: str = codes.INVALID_REQUEST,
    dead_letter: bool = True,
) -> Invalid:
    model_id = _readable_id(data.get("model_id")) or _readable_id(record.key)
    request_id = _readable_id(data.get("request_id"))
    if model_id is None or request_id is None:
        return Invalid(record, code, detail[:_DETAIL_LIMIT], dead_letter=dead_letter)
    return Invalid(
        record,
        code,
        detail[:_DETAIL_LIMIT],
        model_id,
        request_id,
        hashlib.sha256(record.value or b"").digest()[:BODY_BYTES],
        dead_letter,
    )


def _readable_id(value: Any) -> str | None:
    """Return a value if it is an id: a string of 1 to 128 characters that UTF-8 can encode."""
    try:
        text = value.decode("utf-8") if isinstance(value, bytes) else value
        if isinstance(text, str) and 1 <= len(text) <= 128 and text.encode("utf-8"):
            return text
    except UnicodeError:
        pass
    return None
