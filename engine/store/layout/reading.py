"""Reading the small values of the store: each is valid, or the state is corrupt.

What lies in the store was written by Lethe, and may have been damaged, restored in part or
changed by hand since. None of that may end a worker: it halts only the model that it belongs to.
"""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, Field, ValidationError

from lethe.engine.errors import CorruptState

MAX_DIGITS = 16
"""Most digits of a stored whole number: no count or offset that two languages can agree on has more
(2^53 has 16), and nobody converts a number of a million digits by accident."""

Count = Annotated[int, Field(ge=0, lt=1 << 53)]
"""A stored number of things. Above 2^53 Lua, JSON and float64 disagree."""

Counts = Annotated[tuple[Count, ...], Field(fail_fast=True)]
Texts = Annotated[tuple[str, ...], Field(fail_fast=True)]
"""A list of texts. The first bad one is enough to refuse it: an error each of a million elements
would take a hundred times the memory of the list."""

Record = TypeVar("Record", bound=BaseModel)
_SHOWN = 40
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")


def integer(stored: bytes | str | int | None, what: str) -> int:
    """Return a stored whole number.

    Raises
    ------
    CorruptState
        It is not a whole number, or is missing.
    """
    digits = b"" if stored is None else str(stored).encode() if isinstance(stored, int) else stored
    if isinstance(digits, str):
        digits = digits.encode("utf-8", errors="replace")
    unsigned = digits[1:] if digits.startswith(b"-") else digits
    if not (0 < len(unsigned) <= MAX_DIGITS and unsigned.isdigit()):
        raise CorruptState(f"{what}: {digits[:_SHOWN]!r} is not a whole number; run `lethe check`")
    return int(digits)


def parse_text(stored: bytes | str | None, what: str) -> str:
    """Return stored text.

    Raises
    ------
    CorruptState
        It is not UTF-8, or is missing.
    """
    if isinstance(stored, str):
        return stored
    if stored is None:
        raise CorruptState(f"{what}: is missing; run `lethe check`")
    try:
        return stored.decode()
    except UnicodeDecodeError:
        raise CorruptState(
            f"{what}: {stored[:_SHOWN]!r} is not UTF-8 text; run `lethe check`"
        ) from None


def parse_json_value(stored: bytes | str | None, what: str) -> Any:
    """Return stored JSON; its numbers are finite, and Python bounds its depth.

    Raises
    ------
    CorruptState
        It is not JSON, or is missing.
    """
    if stored is None:
        raise CorruptState(f"{what}: is missing; run `lethe check`")
    try:
        return parse_json(stored, ours=True)
    except (ValueError, RecursionError) as error:
        raise CorruptState(f"{what}: does not parse ({_line(error)}); run `lethe check`") from None


def parse_json(text: bytes | str, *, ours: bool = False) -> Any:
    """Return parsed JSON, if it is unambiguous.

    RFC 8259 leaves open which of two members of one name counts, so that two programs could read
    two requests in one document. In JSON that Lethe wrote (``ours``) every number is finite and
    every text is valid UTF-8; other programs may put anything into members that nobody reads.

    Raises
    ------
    ValueError
        It is not JSON in UTF-8, or an object names a member twice.
    RecursionError
        It is nested deeper than Python allows (about 1,000).
    """
    document = text.decode() if isinstance(text, bytes) else text  # json would take UTF-16 as well
    data = json.loads(
        document,
        parse_constant=_refuse,
        parse_float=_finite if ours else None,
        object_pairs_hook=_members,
    )
    if ours and _SURROGATE.search(document):
        # A lone surrogate raises UnicodeError, which is a ValueError.
        json.dumps(data, ensure_ascii=False).encode()
    return data


def parse_model(kind: type[Record], stored: bytes | str | None, what: str) -> Record:
    """Return stored JSON as a record of one kind.

    Raises
    ------
    CorruptState
        It is not such a record.
    """
    return checked(kind, parse_json_value(stored, what), what)


def checked(kind: type[Record], data: Any, what: str) -> Record:
    """Return parsed JSON as a record of one kind.

    Raises
    ------
    CorruptState
        It is not such a record.
    """
    try:
        return kind.model_validate(data)
    except (ValidationError, RecursionError, OverflowError) as error:
        raise CorruptState(f"{what}: does not parse ({_first(error)}); run `lethe check`") from None


def parse_ids(stored: bytes | str | None, what: str) -> tuple[str, ...]:
    """Return a stored JSON list of ids.

    Raises
    ------
    CorruptState
        It is not a list of ids.
    """
    ids = parse_json_value(stored, what)
    if not isinstance(ids, list) or not all(isinstance(name, str) for name in ids):
        raise CorruptState(f"{what}: is not a list of ids; run `lethe check`")
    return tuple(ids)


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError("a number is too large")
    return value


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("an object names a member twice")
    return members


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


_ERRORS_SEARCHED, _KEYS_SEARCHED, _KEY_LENGTH = 20, 100, 64
_HINTS = 3
_NEAR = 0.85  # of difflib: one letter of eight may be wrong
"""Limits of looking for what a sender may have meant: it is done for whatever anybody sends."""


def _line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:200]


def _first(error: Exception) -> str:
    """Return the first error, without the value: it may be personal data."""
    if not isinstance(error, ValidationError):
        return type(error).__name__
    return first_error(error)[:300]


def first_error(error: ValidationError, whole: str = "", names: Iterable[str] = ()) -> str:
    """Return where the first error is and what, without the value: it may be personal data.

    ``whole`` names the place of an error that is of no member. A member that is missing, or one of
    the ``names`` that the whole may have, is looked for under similar names: who writes
    ``requestId`` is told of ``request_id``.
    """
    errors = error.errors(include_url=False, include_context=False)
    first = errors[0]
    place = ".".join(str(part) for part in first["loc"])[:200] or whole
    message = "is missing" if first["type"] == "missing" else first["msg"]
    hints: dict[str, None] = {}
    for one in errors[:_ERRORS_SEARCHED]:
        missing = one["type"] == "missing"
        wanted = {str(part) for part in one["loc"][-1:] if missing}
        if len(one["loc"]) == missing:  # the error's input is the whole
            wanted.update(names)
        if wanted and isinstance(one["input"], Mapping):
            hints.update(dict.fromkeys(_near_misses(one["input"], wanted)))
    return "; ".join([f"{place}: {message}" if place else message, *list(hints)[:_HINTS]])


def _near_misses(given: Mapping[Any, Any], wanted: Iterable[str]) -> Iterator[str]:
    """Yield for each member that seems to be meant by another name which it should have."""
    absent = {_bare(name): name for name in wanted if name not in given}
    for key in list(given)[:_KEYS_SEARCHED]:
        if isinstance(key, str) and len(key) <= _KEY_LENGTH:
            near = difflib.get_close_matches(_bare(key), absent, n=1, cutoff=_NEAR)
            if near and key not in wanted:
                yield f"{key}: do you mean {absent[near[0]]}?"


def _bare(name: str) -> str:
    """Return a name as camelCase, kebab-case and snake_case have it in common."""
    return name.replace("_", "").replace("-", "").lower()
