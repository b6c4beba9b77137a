"""Columns as preprocessing takes them: numbers and dates with gaps, and categories."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lethe.consumers.contract.events import RowValue
from lethe.consumers.registration.table.file import TableFile
from lethe.consumers.registration.table.values import (
    ColumnError,
    counted,
    is_text,
    missing_in,
    not_a_number_because,
    numbers_in,
    numeric_type,
    textual,
    whole_type,
)
from lethe.engine.errors import InvalidData
from lethe.engine.fit.objective import Array
from lethe.engine.preprocess.input.columns import Category, Column, Date, Numeric, Ordinal
from lethe.engine.preprocess.input.spelling import categories_of, matched
from lethe.engine.preprocess.input.values import is_missing, read_dates

MAX_CATEGORY_LENGTH = 128
"""Characters of a category, as of an id: they are in every version."""

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
    file: TableFile,
    columns: Mapping[str, Column],
    known: Mapping[str, Sequence[Category]] | None = None,
    *,
    complete: bool = True,
    as_written: bool = False,
) -> dict[str, Values]:
    """Return columns of a file as the engine's table takes them, by name.

    ``known``: categories of columns, which the file's values spell. ``complete``: the file has all
    rows of a model, so that each column needs a value. ``as_written``: categories of CSV files are
    their text, where it takes the whole column to say what that spells.

    Raises
    ------
    InvalidData
        A value is not of its column's kind; the message names the place.
    """
    like = dict(known or {})
    for name, column in columns.items():
        if isinstance(column, Ordinal) and column.categories is not None:
            like[name] = column.categories
    typed = {
        name: _typed(file, name, one, like.get(name, ()), as_written)
        for name, one in columns.items()
    }
    for name, column in columns.items():
        if complete and isinstance(column, Numeric) and all(map(is_missing, typed[name])):
            raise InvalidData(f"{file.path}, column {name!r}: no row has a value; leave it out")
    return typed


def _typed(
    file: TableFile, name: str, column: Column, known: Sequence[Category], as_written: bool
) -> Values:
    if pa.types.is_null(file.table.column(name).type):  # of Parquet: no row has a value
        if isinstance(column, Numeric):
            _check_complete(file, name, column, np.ones(file.table.num_rows, dtype=np.bool_))
        return np.full(file.table.num_rows, None)
    if isinstance(column, Date):
        return _dates(file, name, column)
    if isinstance(column, Numeric):
        return _numbers(file, name, column)
    return _categories(file, name, known, as_written)


def _numbers(file: TableFile, name: str, column: Numeric) -> Array:
    values = file.table.column(name)
    if is_text(file, name):
        text = pc.utf8_trim_whitespace(values)
        numbers, _, bad = numbers_in(text)
        if bad.any():
            why = not_a_number_because(text[int(np.flatnonzero(bad)[0])].as_py())
            raise _unusable(file, name, bad, why, "correct the row, or encode the column")
    elif numeric_type(values.type):
        numbers = _cast(file, name, values)
    else:
        raise InvalidData(
            f"{file.path}, column {name!r}: holds {values.type}, not numbers; choose another step, "
            "or leave it out"
        )
    numbers = np.array(numbers, dtype=np.float64)
    if np.isinf(numbers).any():
        raise _unusable(file, name, np.isinf(numbers), "infinite", "correct the row")
    _check_complete(file, name, column, np.isnan(numbers))
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
    elif textual(values.type):
        text = pc.utf8_trim_whitespace(values)
        moments = np.array(text.to_pylist(), dtype=object)
        moments[missing_in(text)] = None
    else:
        raise InvalidData(
            f"{file.path}, column {name!r}: holds {values.type}, not dates; choose another step, "
            "or leave it out"
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


def _categories(file: TableFile, name: str, known: Sequence[Category], as_written: bool) -> Values:
    """Return text, whole numbers, or true and false; None where missing.

    They are those that are known, if any are; else what a CSV file spells, or what has a type.
    """
    values = file.table.column(name)
    kind = values.type
    whole, fractions = whole_type(kind), pa.types.is_floating(kind)
    if not (textual(kind) or whole or fractions or pa.types.is_boolean(kind)):
        raise _no_categories(file, name)
    listed, places = _distinct(values)
    if fractions:
        listed = [None if is_missing(value) else value for value in listed]
    if fractions and not all(value is None or value == value // 1 for value in listed):
        raise _no_categories(file, name)
    if whole or fractions:  # decimals, and integers that had gaps once
        listed = [None if value is None else int(value) for value in listed]
    if textual(kind):
        long = np.array([len(value or "") > MAX_CATEGORY_LENGTH for value in listed])
        if long.any():
            why = f"longer than {MAX_CATEGORY_LENGTH} characters"
            raise _unusable(file, name, long[places], why, "categories are names; shorten it")
    if known or not textual(kind):
        listed = matched(known, listed)
    elif file.is_csv:
        listed = listed if as_written else categories_of(listed)
    else:
        listed = [None if value is None or not value.strip() else value for value in listed]
    categories = np.empty(len(listed), dtype=object)
    categories[:] = listed
    return categories[places]


def _distinct(column: pa.ChunkedArray) -> tuple[list[Any], NDArray[np.int32]]:
    """Return the different values of a column, and of each row the place of its own in them."""
    if pa.types.is_decimal(column.type):  # of narrow ones Arrow has no dictionaries
        column = pc.cast(column, pa.decimal256(76, column.type.scale))
    coded = pc.dictionary_encode(column, null_encoding="encode").combine_chunks()
    return coded.dictionary.to_pylist(), coded.indices.to_numpy()


def _no_categories(file: TableFile, name: str) -> InvalidData:
    return InvalidData(
        f"{file.path}, column {name!r}: holds {file.table.column(name).type}; categories are text, "
        "whole numbers, or true and false: make text of it, or leave it out"
    )


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
