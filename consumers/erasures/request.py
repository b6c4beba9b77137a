"""A record of ``lethe.erasures``: an erasure, or the lifting of one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from lethe.consumers.contract import topics
from lethe.consumers.contract.erasure_events import (
    SUBJECT_ERASURE_REQUESTED,
    SubjectErasureRequested,
)
from lethe.consumers.contract.events import Source
from lethe.consumers.contract.requests import source_of
from lethe.consumers.deletions.authenticate import RequestKeys
from lethe.consumers.deletions.validate import Invalid, parsed, unreadable
from lethe.consumers.log.base import Reader, Record
from lethe.consumers.log.scan import read_at
from lethe.consumers.suppression.marks import DEFAULT_NAMESPACE
from lethe.engine.errors import Unauthenticated
from lethe.engine.store.layout.reading import first_error


@dataclass(frozen=True, slots=True)
class ErasureRequest:
    """A well-formed request, and where it was read."""

    record: Record
    event: SubjectErasureRequested

    @property
    def erasure_id(self) -> str:
        """The identity of the request."""
        return self.event.erasure_id

    @property
    def namespace(self) -> str:
        """The namespace of the subject."""
        return self.event.namespace or DEFAULT_NAMESPACE

    @property
    def subject(self) -> tuple[str, str]:
        """The subject: namespace and id."""
        return self.namespace, self.event.subject_id

    @property
    def source(self) -> Source:
        """Where it was read."""
        return source_of(self.record)


def erasure_at(reader: Reader, erasure_id: str, index: int, offset: int) -> ErasureRequest | None:
    """Return an erasure that lies at a place of the log; None if the log no longer has it there."""
    record = read_at(reader, topics.ERASURES, index, offset)
    found = None if record is None else validate_erasure(record, None)
    if not isinstance(found, ErasureRequest) or found.erasure_id != erasure_id:
        return None
    return found


def validate_erasure(record: Record, keys: RequestKeys | None) -> ErasureRequest | Invalid:
    """Return the request in a record; one that cannot be read or believed is refused.

    With ``keys``, it must be signed by one that may delete from every model.
    """
    item = _validate(record)
    if keys is None or isinstance(item, Invalid):
        return item
    try:
        _authenticate(item, keys)
    except Unauthenticated as error:
        return Invalid(record, Unauthenticated.code, str(error))
    return item


def _validate(record: Record) -> ErasureRequest | Invalid:
    incoming = parsed(record)
    if isinstance(incoming, Invalid):
        return incoming
    if incoming.type not in (None, SUBJECT_ERASURE_REQUESTED):
        return unreadable(record, f"ce_type {incoming.type[:128]!r} is not known here")
    return read_erasure(record, incoming.data_with_id("erasure_id"))


def read_erasure(record: Record, data: dict[str, Any]) -> ErasureRequest | Invalid:
    """Validate the data of a request, which was read from ``record``. Pure."""
    try:
        event = SubjectErasureRequested.model_validate(data)
    except ValidationError as error:
        names = SubjectErasureRequested.model_fields
        return unreadable(record, first_error(error, names=names))
    return ErasureRequest(record, event)


def _authenticate(item: ErasureRequest, keys: RequestKeys) -> None:
    record = item.record
    key_id = keys.trusted.check(SUBJECT_ERASURE_REQUESTED, record.value or b"", record.headers)
    alone = _validate(replace(record, key=None, headers=()))
    if isinstance(alone, Invalid) or alone.event != item.event:
        raise Unauthenticated(
            "the signed value alone is a different request from the one with headers: erasure_id "
            "and subject_id must be in the value, and the headers must not contradict it"
        )
    if key_id in keys.models:
        raise Unauthenticated(
            f"key {key_id} is for some models only, and an erasure is of all of them"
        )
