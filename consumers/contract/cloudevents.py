"""CloudEvents 1.0 in their Kafka binding: written in binary mode, read in three forms.

Binary mode puts the attributes into ``ce_*`` headers and the data into the value. On input,
structured mode (the whole event as JSON) and a plain JSON object without headers are also accepted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from lethe.consumers.contract.events import rfc3339
from lethe.consumers.log.base import Headers, Message, Record
from lethe.engine.store.layout.reading import parse_json

SOURCE = "/lethe"
_STRUCTURED = "application/cloudevents+json"

MOST_STATE_CHARACTERS = 512
"""Longest ``tracestate`` that is carried: as long as the specification asks everybody to carry."""

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


@dataclass(frozen=True, slots=True)
class Incoming:
    """An event as read: its type and id, if it names them, and its data (parsed JSON)."""

    type: str | None
    id: str | None
    data: Any

    def data_with_id(self, name: str) -> dict[str, Any]:
        """Return the data, an object, with the event's id as member ``name`` if it has none."""
        return dict(self.data) if self.id is None else {name: self.id, **self.data}


def headers(event_type: str, event_id: str, time: datetime, subject: str) -> Headers:
    """Return the headers of an event in binary mode."""
    return (
        ("ce_specversion", b"1.0"),
        ("ce_id", event_id.encode()),
        ("ce_source", SOURCE.encode()),
        ("ce_type", event_type.encode()),
        ("ce_subject", subject.encode()),
        ("ce_time", rfc3339(time).encode()),
        ("content-type", b"application/json"),
    )


def message(
    topic: str, event_type: str, event_id: str, time: datetime, model_id: str, value: bytes
) -> Message:
    """Return the message of an event about a model, whose id is its key."""
    return Message(topic, model_id.encode(), value, headers(event_type, event_id, time, model_id))


def trace_context(named: Mapping[str, str]) -> Headers:
    """Return the headers of a request's trace context (W3C) as a record carries them.

    ``named`` has headers of HTTP, by lower-case name. A context that is not well-formed is left
    out: it would be of no use, and its length is not ours.
    """
    parent, state = named.get("traceparent", ""), named.get("tracestate", "")
    if not _TRACEPARENT.fullmatch(parent):
        return ()
    if not state or len(state) > MOST_STATE_CHARACTERS or not state.isascii():
        return (("traceparent", parent.encode()),)
    return (("traceparent", parent.encode()), ("tracestate", state.encode()))


def parse(record: Record, read: Callable[[bytes], Any] = parse_json) -> Incoming:
    """Return the event in a record; ``read`` parses its value.

    Raises
    ------
    ValueError
        The value is not JSON, repeats a member of an object, or is not a JSON object where one is
        required.
    RecursionError
        The value is nested more deeply than Python can follow (about 1,000 levels).
    """
    named = {name.lower(): value for name, value in record.headers}
    if record.value is None:
        raise ValueError("the record has no value")
    data = read(record.value)
    content_type = _text(named.get("content-type")) or ""
    looks_structured = (
        "ce_type" not in named
        and isinstance(data, dict)
        and {"specversion", "type", "id", "source", "data"} <= data.keys()
    )
    if content_type.startswith(_STRUCTURED) or looks_structured:
        if not isinstance(data, dict) or "data" not in data:
            raise ValueError("a structured CloudEvent without data")
        return Incoming(_string(data.get("type")), _string(data.get("id")), data["data"])
    return Incoming(_text(named.get("ce_type")), _text(named.get("ce_id")), data)


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", errors="replace")


def _string(value: Any) -> str | None:
    return value if isinstance(value, str) else None
