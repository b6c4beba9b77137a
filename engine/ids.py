"""Ids of rows and subjects: one rule for the library, tables, and requests.

An id is text of 1 to 128 characters. A whole number, a decimal of scale 0 and a UUID are ids, too,
in one text form each: ``7`` is "7", and a UUID has 36 characters in lower case. Nothing else is:
the text of a number with a fraction, a date or a tuple depends on the program that writes it, and a
request that wrote it otherwise would delete nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from numbers import Integral
from typing import Any
from uuid import UUID

from lethe.engine.errors import InvalidData

MAX_ID_LENGTH = 128
"""Characters of an id; of names of classes and subjects' namespaces, too (docs/events.md)."""

UUID_BYTES = 16

TO_TEXT = "make text of it, written as requests will write it"
"""What to do about values that are no ids."""

_LENGTH = f"names have at most {MAX_ID_LENGTH}"


def text_of(value: Any) -> Any:
    """Return a whole number, a decimal of scale 0 or a UUID as text; other values as they are.

    (NumPy counts durations as whole numbers, but they are no index.)
    """
    truth = isinstance(value, bool)
    if not truth and isinstance(value, Integral) and hasattr(value, "__index__"):
        if int(value).bit_length() > 4 * MAX_ID_LENGTH:  # Python may not even write it
            raise InvalidData(f"a number of too many digits; {_LENGTH}")
        return str(value)
    if isinstance(value, Decimal) and value.as_tuple().exponent == 0:
        return f"{value or abs(value):f}"  # there is a Decimal("-0")
    return str(value) if isinstance(value, UUID) else value


def id_of(value: Any) -> str:
    """Return the id that a value stands for.

    Raises
    ------
    InvalidData
        None of these kinds (`TO_TEXT` says what to do), empty, or longer than `MAX_ID_LENGTH`.
    """
    text = text_of(value)
    if not isinstance(text, str):
        raise InvalidData(
            "an id is text, a whole number (as an integer, or a decimal of scale 0) or a UUID, not "
            f"{type(value).__name__}; {TO_TEXT}"
        )
    if not text:
        raise InvalidData("an id is empty")
    if len(text) > MAX_ID_LENGTH:
        raise InvalidData(f"{len(text)} characters; {_LENGTH}")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidData("an id holds half of a surrogate pair, which is no character") from None
    return str(text)


def ids_of(values: Iterable[Any]) -> tuple[str, ...]:
    """Return the ids that a list, an array, or a column of pandas, Polars or Arrow stands for.

    Raises
    ------
    InvalidData
        One of them is no id; or a single text in place of a list.
    """
    if isinstance(values, (str, bytes)):
        raise InvalidData(f"give a list of row ids, not the string {values!r}")
    try:
        listed = values_in(values) if hasattr(values, "to_pylist") else values
    except (ValueError, OverflowError):  # times that Python has not
        raise InvalidData(f"{type(values).__name__} holds values that are no ids; {TO_TEXT}") from (
            None
        )
    return tuple(id_of(value) for value in listed)


def values_in(column: Any) -> list[Any]:
    """Return the values of a column of Arrow, where 16 bytes in a fixed size are a UUID."""
    values: list[Any] = column.to_pylist()
    if f"fixed_size_binary[{UUID_BYTES}]" not in (str(column.type), _coded(column.type)):
        return values
    return [None if value is None else UUID(bytes=value) for value in values]


def _coded(kind: Any) -> str:
    """Return the type of the values of Arrow's dictionaries; nothing of another type."""
    return str(kind.value_type) if str(kind).startswith("dictionary<") else ""
