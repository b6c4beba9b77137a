"""The values of one column of a table: to numbers, days, or categories; and which are missing."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from numbers import Real
from types import NoneType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lethe.engine.errors import InvalidData
from lethe.engine.fit.objective import Array
from lethe.engine.preprocess.input.columns import Category, Name
from lethe.engine.preprocess.input.spelling import matched

_SHOWN = 60  # characters of a value in a message
_MICROSECONDS = 86_400e6  # of a day

_PLAIN: frozenset[type] = frozenset({str, int, bool, NoneType})
"""Types whose values are categories as they are."""

Values = NDArray[Any]


def is_missing(value: Any) -> bool:
    """Return whether a single value is missing: None, NaN, NaT, or pandas' NA."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    if isinstance(value, (float, np.floating)):
        return math.isnan(value)
    return isinstance(value, (np.datetime64, np.timedelta64)) and bool(np.isnat(value))


def read_numbers(name: Name, values: Values) -> Array:
    """Return a column of numbers, NaN where missing, (n,).

    Raises
    ------
    InvalidData
        A value is text, or another thing than a number, or infinite.
    """
    if values.dtype.kind in "biuf":
        numbers = values.astype(np.float64)
    elif values.dtype.kind == "O":
        numbers = np.array([_number(name, value) for value in values], dtype=np.float64)
    else:
        raise InvalidData(f"column {name!r} holds {_kind_of(values)}, not numbers")
    if np.isinf(numbers).any():
        raise InvalidData(f"column {name!r} holds an infinite number; correct the row")
    return numbers


def read_dates(name: Name, values: Values) -> Array:
    """Return a column of dates as days since 1970-01-01, NaN where missing, (n,).

    Dates are datetime64, `datetime.date`, `datetime.datetime` (in UTC unless they name a zone), or
    text of ISO 8601; blank text is missing.

    Raises
    ------
    InvalidData
        A value is no date, or not of the years 1 to 9999.
    """
    if values.dtype.kind == "M":
        moments = [np.datetime64("NaT") if np.isnat(value) else value for value in values]
    elif values.dtype.kind in "OU" or not len(values):
        moments = [_moment(name, value) for value in values]
    else:
        raise InvalidData(f"column {name!r} holds {_kind_of(values)}, not dates")
    days = np.full(len(moments), np.nan)
    for i, moment in enumerate(moments):
        if np.isnat(moment):
            continue
        # A coarse unit is compared as it is: in microseconds a far year would wrap around.
        if not -1970 < int(moment.astype("datetime64[Y]").astype(np.int64)) < 8030:
            raise InvalidData(f"column {name!r} holds a date that is not of the years 1 to 9999")
        days[i] = int(moment.astype("datetime64[us]").astype(np.int64)) / _MICROSECONDS
    return days


def read_categories(
    name: Name, values: Values, known: Sequence[Category] | None = None
) -> list[Category]:
    """Return a column of categories, None where missing.

    ``known``: a value that spells one of these is that one, whatever its type (`spelling.matched`).

    Raises
    ------
    InvalidData
        Text and numbers are mixed, or a value is neither.
    """
    categories = _categories(name, values)
    if known is not None:
        categories = matched(known, categories)
    kinds = set(map(type, categories)) - {NoneType}
    if str in kinds and len(kinds) > 1:
        raise InvalidData(f"column {name!r} mixes text and numbers; make them all text")
    return categories


def sorted_categories(name: Name, categories: Iterable[Category]) -> list[Category]:
    """Return distinct categories sorted as scikit-learn does, the missing one last.

    Raises
    ------
    InvalidData
        Text and numbers are mixed.
    """
    distinct = set(categories)
    known: list[Any] = [value for value in distinct if value is not None]
    try:
        ordered: list[Category] = sorted(known)
    except TypeError:
        raise InvalidData(f"column {name!r} mixes text and numbers; make them all text") from None
    return [*ordered, None] if None in distinct else ordered


def _number(name: Name, value: Any) -> float:
    if is_missing(value):
        return math.nan
    if isinstance(value, (Real, Decimal, np.bool_)):
        try:
            return float(value)
        except OverflowError:  # a whole number of more than 308 digits
            return math.inf
    raise InvalidData(f"column {name!r} holds {_shown(value)}, which is not a number")


def _moment(name: Name, value: Any) -> np.datetime64:
    if is_missing(value) or (isinstance(value, str) and not value.strip()):
        return np.datetime64("NaT")
    if isinstance(value, np.datetime64):
        return value
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
        if isinstance(moment, datetime):
            if moment.tzinfo is not None:
                moment = moment.astimezone(UTC).replace(tzinfo=None)
            return np.datetime64(moment, "us")
        if isinstance(moment, date):
            return np.datetime64(moment, "us")
    except (ValueError, OverflowError):
        pass
    raise InvalidData(f"column {name!r} holds {_shown(value)}, which is not a date")


def _categories(name: Name, values: Values) -> list[Category]:
    """Return what `_category` makes of each value; a call each would be most of a fit's cost."""
    if values.dtype.kind in "OUbiuf":
        listed: list[Category] = values.tolist()
        kinds = set(map(type, listed))
        if kinds <= _PLAIN:
            return listed
        if kinds <= _PLAIN | {float}:
            return [None if is_missing(value) else value for value in listed]
    return [_category(name, value) for value in values]


def _category(name: Name, value: Any) -> Category:
    if is_missing(value):
        return None
    duration = isinstance(value, np.timedelta64)  # an np.integer, too
    if isinstance(value, (str, np.str_)):
        return str(value)
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, (int, np.integer)) and not duration:
        return int(value)
    if isinstance(value, (float, np.floating)):
        return float(value)
    raise InvalidData(
        f"column {name!r} holds {_shown(value)}, which is no category: text or a number"
    )


def _kind_of(values: Values) -> str:
    kinds = {"U": "text", "M": "dates", "b": "true and false", "c": "complex numbers"}
    return kinds.get(values.dtype.kind, f"values of type {values.dtype}")


def _shown(value: Any) -> str:
    return repr(value)[:_SHOWN]
