"""JSON that can be read in one way only: by this program, by the audit page, and by anybody else.

Parsers differ in what they make of a repeated member, of 2^53 + 1, of 1e400, of half a surrogate
pair, of "3" where a number belongs. A forger could use any of these to show one history to one
verifier and another history to the next, so evidence that has one of them is refused.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Mapping
from typing import Any, TypeVar

from lethe.consumers.contract.events import Event
from lethe.engine.store.layout.reading import parse_json

MAX_DEPTH = 64
"""Objects and lists within each other. Events need 5; parsers give up between 500 and 1,000."""

MAX_SAFE = (1 << 53) - 1
"""The largest whole number that every parser of JSON reads exactly."""

_TIMES = ("created_at", "completed_at")
_TIME = re.compile(r"(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z")
"""The one form in which Lethe writes times."""

EventT = TypeVar("EventT", bound=Event)


def parse_evidence(text: bytes) -> Any:
    """Return parsed JSON, in which a number without a fraction is an int, however it was written.

    Raises
    ------
    ValueError
        It is not JSON in UTF-8, or another program could read it differently.
    """
    try:
        return _plain(parse_json(text), MAX_DEPTH)
    except RecursionError:
        raise ValueError("nested too deep") from None


def _plain(value: Any, room: int) -> Any:
    if isinstance(value, str):
        value.encode()  # half a surrogate pair: UnicodeEncodeError is a ValueError
        return value
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        if abs(value) > MAX_SAFE:
            raise ValueError("a whole number is too large")
        return value
    if isinstance(value, float):
        return _plain_float(value)
    if room == 0:
        raise ValueError("nested too deep")
    if isinstance(value, list):
        return [_plain(one, room - 1) for one in value]
    return {_plain(name, 0): _plain(one, room - 1) for name, one in value.items()}


def _plain_float(value: float) -> int | float:
    if not math.isfinite(value):
        raise ValueError("a number is too large")
    # -0.0 stays: as float64, which digests of parameters are made of, it is another number than 0.
    negative_zero = value == 0 and math.copysign(1.0, value) < 0
    whole = value.is_integer() and abs(value) <= MAX_SAFE and not negative_zero
    return int(value) if whole else value


def event_of(kind: type[EventT], data: Mapping[str, Any]) -> EventT:
    """Return an event from what `parse_evidence` returned; no member is converted to its type.

    Raises
    ------
    ValueError
        A member is missing, or of another type or form.
    """
    for name in _TIMES:
        moment = data.get(name)
        if moment is not None and not (isinstance(moment, str) and _TIME.fullmatch(moment)):
            raise ValueError(f"{name} is not a time like 2026-01-31T23:59:59.000Z")
    return kind.model_validate_json(json.dumps(data), strict=True)


def from_base64(text: Any) -> bytes:
    """Return the bytes in base64, if that is the base64 of these bytes.

    Raises
    ------
    ValueError
        It is not.
    """
    data = binascii.a2b_base64(str(text).encode("ascii"), strict_mode=True)
    if base64.b64encode(data).decode() != text:
        raise ValueError("is not the base64 of what it holds")
    return data
