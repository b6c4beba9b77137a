"""Columns as preprocessing takes them: numbers and dates with gaps, and categories."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import date
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lethe.consumers.contract.events import RowValue
from lethe.consumers.registration.table.file import TableFile
from lethe.consumers.registration.table.values import (
    NUMBER,
    ColumnError,
    are_whole,
    as_truth,
    counted,
    is_text,
    mask,
    not_a_number_because,
    numeric_type,
)
from lethe.engine.errors import InvalidData
from lethe.engine.fit.objective import Array
from lethe.engine.preprocess.input.columns import Column, Date, Numeric
from lethe.engine.preprocess.input.values import is_missing, read_dates

MAX_CATEGORY_LENGTH = 128
"""Characters of a category, as of an id: they are in every version."""

_MISSING = r"(?i)^(nan)?$"
"""What a CSV file has in place of a missing number or date."""

Values = NDArray[Any]


def json_values(values: Values) -> list[RowValue]:
    """Return a typed column as a request has it: dates as text, null where missing."""
    return [_json(value) for value in values.tolist()]


def _json(value: Any) -> RowValue:
    if isinstance(value, date):
        return value.isoformat()
    missing = isinstance(value, float) and math.isnan(value)
    return None if missing or value is None else cast("RowValue", value)


def typed_columns(
    file: TableFile, columns: Mapping[str, Column], *, complete: bool = True
) -> dict[str, Values]:
    """Return columns of a file as the engine's table takes them, by name.

    ``complete``: the file has all rows of a model, so that each column needs a value.

    Raises
    ------
    InvalidData
        A value is not of its column's kind; the message names the place.
    """
    typed = {
        name: _typed(file, name, column, complete=complete) for name, column in columns.items()
    }
    for name, column in columns.items():
        if complete and isinstance(column, Numeric) and all(map(is_missing, typed[name])):
            raise InvalidData(f"{file.path}, column {name!r}: no row has a value; leave it out")
    return typed


def _typed(file: TableFile, name: str, column: Column, *, complete: bool) -> Values:
    if pa.types.is_null(file.table.column(name).type):  # of Parquet: no row has a value
        if isinstance(column, Numeric):
            _check_complete(file, name, column, np.ones(file.table.num_rows, dtype=np.bool_))
        return np.full(file.table.num_rows, None)
    if isinstance(column, Date):
        return _dates(file, name, column)
    if isinstance(column, Numeric):
        return _numbers(file, name, column)
    return _categories(file, name, complete=complete)


def _numbers(file: TableFile, name: str, column: Numeric) -> Array:
    values = file.table.column(name)
    if is_text(file, name):
        numbers = _numbers_of_text(file, name, pc.utf8_trim_whitespace(values))
    elif numeric_type(values.type):
        numbers = _cast(file, name, values)
    else:
        raise InvalidData(
            f"{file.path}, column {name!r}: holds {values.type}, not numbers; choose another step"
        )
    numbers = np.array(numbers, dtype=np.float64)
    if np.isinf(numbers).any():
        raise _unusable(file, name, np.isinf(numbers), "infinite", "correct the row")
    _check_complete(file, name, column, np.isnan(numbers))
    return numbers


def _numbers_of_text(file: TableFile, name: str, text: pa.ChunkedArray) -> Array:
    """Return what text spells, NaN where missing; true and false count as 1 and 0."""
    truth = as_truth(text)
    if truth is not None:
        return truth
    missing = _matches(text, _MISSING)
    bad = ~(missing | _matches(text, NUMBER))
    if bad.any():
        why = not_a_number_because(text[int(np.flatnonzero(bad)[0])].as_py())
        raise _unusable(file, name, bad, why, "correct the row, or encode the column")
    plain = pc.if_else(pa.array(missing), None, pc.replace_substring_regex(text, r"^\+", ""))
    numbers: Array = pc.cast(plain, pa.float64()).to_numpy()
    return numbers


def _cast(file: TableFile, name: str, values: pa.ChunkedArray) -> Array:
    try:
        numbers: Array = pc.cast(values, pa.float64()).to_numpy()
    except pa.ArrowInvalid:
        raise InvalidData(
            f"{file.path}, column {name!r}: a whole number is beyond 2^53 and would be rounded; "
            "store the column as floating point"
        ) from None
    return numbers


def _dates(file: TableFile, name: str, column: Date) -> Values:
    """Return dates as text or as datetime.date and datetime, None where missing."""
    values = file.table.column(name)
    types = pa.types
    if types.is_date(values.type) or types.is_timestamp(values.type):
        moments: Values = values.to_numpy()  # in UTC; Python's own dates would not take every year
    elif types.is_string(values.type) or types.is_large_string(values.type):
        text = pc.utf8_trim_whitespace(values)
        missing = _matches(text, _MISSING) | mask(text.is_null())
        moments = np.array(text.to_pylist(), dtype=object)
        moments[missing] = None
    else:
        raise InvalidData(
            f"{file.path}, column {name!r}: holds {values.type}, not dates; choose another step"
        )
    _check_complete(file, name, column, np.array([is_missing(moment) for moment in moments]))
    try:
        read_dates(name, moments)
    except InvalidData:
        bad = _not_dates(name, moments)
        why = "not a date of the years 1 to 9999"
        raise _unusable(file, name, bad, why, "write 2021-03-01") from None
    if moments.dtype.kind == "M":
        unit = "D" if moments.dtype == "datetime64[D]" else "us"
        moments = moments.astype(f"datetime64[{unit}]").astype(object)
    return moments


def _not_dates(name: str, moments: Values) -> NDArray[np.bool_]:
    bad = np.zeros(len(moments), dtype=np.bool_)
    for row in range(len(moments)):
        try:
            read_dates(name, moments[row : row + 1])
        except InvalidData:
            bad[row] = True
    return bad


def _categories(file: TableFile, name: str, *, complete: bool) -> Values:
    """Return text, whole numbers, or true and false; None where missing.

    A CSV file has no types: what spells true and false throughout, or whole numbers, is that, if
    the file has all rows. Rows of another file are matched with the categories of the model
    (`engine.preprocess.input.values.as_known`).
    """
    values = file.table.column(name)
    kind = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
    textual = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    if not (textual or pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
        raise InvalidData(
            f"{file.path}, column {name!r}: holds {kind}; categories are text, whole numbers, or "
            "true and false"
        )
    categories = np.array(values.to_pylist(), dtype=object)
    if textual:
        blank = np.array([value is None or not value.strip() for value in categories])
        categories[blank] = None
        long = np.array([len(value or "") > MAX_CATEGORY_LENGTH for value in categories])
        if long.any():
            why = f"longer than {MAX_CATEGORY_LENGTH} characters"
            raise _unusable(file, name, long, why, "categories are names; shorten it")
    return _spelt(values, categories) if complete and is_text(file, name) else categories


def _spelt(values: pa.ChunkedArray, categories: Values) -> Values:
    """Return the categories of a CSV file in the type that all of them spell."""
    text = pc.utf8_trim_whitespace(values)
    truth = as_truth(text)
    if truth is not None:
        known: Any = [None if math.isnan(one) else bool(one) for one in truth]
    elif are_whole(text):
        known = [None if one is None else int(one) for one in categories]
    else:
        return categories
    return np.array(known, dtype=object)


def _check_complete(
    file: TableFile, name: str, column: Numeric, missing: NDArray[np.bool_]
) -> None:
    if column.impute is None and missing.any():
        raise _unusable(file, name, missing, "missing", 'correct the row, or write impute = "mean"')


def _unusable(
    file: TableFile, name: str, bad: NDArray[np.bool_], why: str, advice: str
) -> ColumnError:
    row = int(np.flatnonzero(bad)[0])
    return ColumnError(
        f"{file.path}, {file.place(row)}, column {name!r}: the value is {why}; {advice}",
        f"{name!r}: {counted(bad)} {why} (first: {file.place(row)})",
    )


def _matches(text: pa.ChunkedArray, pattern: str) -> NDArray[np.bool_]:
    return mask(pc.fill_null(pc.match_substring_regex(text, pattern), False))
