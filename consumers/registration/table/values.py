"""The values of one column, numbers or names: each is checked, and errors name the place."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lethe.consumers.registration.table.file import TableFile
from lethe.engine.errors import InvalidData
from lethe.engine.fit.objective import Array
from lethe.engine.ids import MAX_ID_LENGTH, TO_TEXT, UUID_BYTES, id_of, values_in

NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
_COMMAS = r"^[+-]?[0-9][0-9. ]*(,[0-9]+)+(\.[0-9]+)?$"
_NOT_FINITE = r"(?i)^[+-]?(nan|inf|infinity)$"
_BOOLEAN = r"(?i)^(true|false)$"
_MISSING = r"(?i)^(nan)?$"
_TO_WHOLE = "make integers again of whole numbers that gaps made floating point; otherwise "
_DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9:.,Z+-]+)?$"

HELD = ("nothing", "true and false", "numbers", "numbers with commas", "dates", "text")
"""What a column can hold that a model learns from; of others, the name of the type is said."""


class ColumnError(InvalidData):
    """A column that cannot be used; ``short`` is for a message about several columns."""

    def __init__(self, message: str, short: str) -> None:
        super().__init__(message)
        self.short = short


def counted(bad: NDArray[np.bool_]) -> str:
    """Return how many values a mask selects, with the verb: "1 value is", "2 values are"."""
    count = int(bad.sum())
    return "1 value is" if count == 1 else f"{count} values are"


def what_it_holds(file: TableFile, name: str) -> str:
    """Return in a word what a column holds. Of one that is not text, its type says it."""
    column = file.table.column(name)
    if not textual(column.type):
        kind = column.type
        named = {
            "nothing": pa.types.is_null(kind),
            "true and false": pa.types.is_boolean(kind),
            "numbers": numeric_type(kind),
            "dates": pa.types.is_date(kind) or pa.types.is_timestamp(kind),
        }
        return next((what for what, holds in named.items() if holds), str(kind))
    text = pc.utf8_trim_whitespace(pc.fill_null(column, ""))
    filled = mask(pc.not_equal(text, ""))
    if not filled.any():
        return "nothing"
    spelled = {"dates": _DATE}
    if file.is_csv:  # elsewhere, text is meant to be text
        spelled |= {
            "true and false": _BOOLEAN, "numbers": NUMBER, "numbers with commas": _COMMAS
        }  # fmt: skip
    holds = (what for what, like in spelled.items() if mask(_matches(text, like))[filled].all())
    return next(holds, "text")


def is_numeric(file: TableFile, name: str) -> bool:
    """Return whether a column is a feature by default: one with some numbers is."""
    column = file.table.column(name)
    return bool(is_number(column).any()) if is_text(file, name) else numeric_type(column.type)


def mixed(file: TableFile, name: str) -> ColumnError | None:
    """Return the error for a feature with both numbers and text; None if it is not one."""
    if not is_text(file, name):
        return None
    column = file.table.column(name)
    good = is_number(column)
    other = mask(pc.not_equal(pc.utf8_trim_whitespace(column), "")) & ~good
    if not (good.any() and other.any()):
        return None
    row = int(np.flatnonzero(other)[0])
    return ColumnError(
        f"{file.path}, {file.place(row)}, column {name!r}: holds text, other lines hold "
        "numbers; correct the line, or name the columns to use with --features",
        f"{name!r}: {counted(other)} text, the others numbers (first: {file.place(row)})",
    )


def is_text(file: TableFile, name: str) -> bool:
    """Return whether a column was read as text from a CSV file; it may hold numbers even so."""
    return file.is_csv and pa.types.is_string(file.table.column(name).type)


def textual(kind: pa.DataType) -> bool:
    """Return whether an Arrow type is text."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def is_number(column: pa.ChunkedArray) -> NDArray[np.bool_]:
    """Return which values of a CSV column are numbers; if none is, which are true or false."""
    text = pc.utf8_trim_whitespace(column)
    number = _spells_number(text)
    return number if number.any() else mask(_matches(text, _BOOLEAN))


def is_boolean(file: TableFile, name: str) -> bool:
    """Return whether a column holds true and false, and no number."""
    column = file.table.column(name)
    if not is_text(file, name):
        return bool(pa.types.is_boolean(column.type))
    text = pc.utf8_trim_whitespace(column)
    return bool(mask(_matches(text, _BOOLEAN)).any() and not _spells_number(text).any())


def spells_number(text: str) -> bool:
    """Return whether a text is a number."""
    return _is(text, NUMBER)


def _spells_number(text: pa.ChunkedArray) -> NDArray[np.bool_]:
    return mask(pc.or_(_matches(text, NUMBER), _matches(text, _NOT_FINITE)))


def numeric_type(kind: pa.DataType) -> bool:
    """Return whether an Arrow type is numeric or boolean."""
    types = pa.types
    return bool(
        types.is_integer(kind)
        or types.is_floating(kind)
        or types.is_boolean(kind)
        or types.is_decimal(kind)
    )


def whole_type(kind: pa.DataType) -> bool:
    """Return whether an Arrow type holds whole numbers only."""
    return bool(pa.types.is_integer(kind) or (pa.types.is_decimal(kind) and kind.scale == 0))


def numbers(file: TableFile, name: str) -> Array:
    """Return a column as float64; true and false count as 1 and 0.

    Raises
    ------
    ColumnError
        It has values that are not finite numbers.
    """
    column = file.table.column(name)
    if is_text(file, name):
        values = _numbers_of_text(file, name, column)
    else:
        if not (numeric_type(column.type) or pa.types.is_null(column.type)):
            raise ColumnError(
                f"{file.path}, column {name!r}: holds {column.type}, not numbers; encode it as "
                "numbers first",
                f"{name!r}: {what_it_holds(file, name)}",
            )
        if column.null_count:
            raise not_numbers(file, name, mask(column.is_null()), "missing")
        try:
            values = pc.cast(column, pa.float64()).to_numpy()
        except pa.ArrowInvalid:
            raise ColumnError(
                f"{file.path}, column {name!r}: a whole number is beyond 2^53 and would be "
                "rounded; store the column as floating point",
                f"{name!r}: whole numbers beyond 2^53",
            ) from None
    finite = np.isfinite(values)
    if not finite.all():
        raise not_numbers(file, name, ~finite, "not finite (NaN or infinity)")
    return np.ascontiguousarray(values, dtype=np.float64)


def numbers_in(text: pa.ChunkedArray) -> tuple[Array, NDArray[np.bool_], NDArray[np.bool_]]:
    """Return the numbers of trimmed text (NaN if none), which are missing, and which are wrong.

    True and false count as 1 and 0 in a column that has nothing else.
    """
    missing = missing_in(text)
    boolean = mask(_matches(text, _BOOLEAN))
    if boolean.any() and (boolean | missing).all():
        truth = mask(pc.equal(pc.utf8_lower(text), "true"))
        return np.where(missing, np.nan, truth), missing, np.zeros(len(missing), dtype=np.bool_)
    number = mask(_matches(text, NUMBER))
    plain = pc.if_else(pa.array(number), pc.replace_substring_regex(text, r"^\+", ""), None)
    values = np.array(pc.cast(plain, pa.float64()).to_numpy(), dtype=np.float64)
    return values, missing, ~(number | missing)


def missing_in(text: pa.ChunkedArray) -> NDArray[np.bool_]:
    """Return where trimmed text has no number or date: nothing, or NaN."""
    return mask(pc.fill_null(_matches(text, _MISSING), True))


def _numbers_of_text(file: TableFile, name: str, column: pa.ChunkedArray) -> Array:
    text = pc.utf8_trim_whitespace(column)
    values, missing, bad = numbers_in(text)
    bad |= missing
    if bad.any():
        first = text[int(np.flatnonzero(bad)[0])].as_py()
        if first == "":
            raise not_numbers(file, name, mask(pc.equal(text, "")), "missing")
        infinite = _is(first, _NOT_FINITE)
        why = "not finite (NaN or infinity)" if infinite else not_a_number_because(first)
        error = not_numbers(file, name, bad, why)
        if bad.all() and not infinite:
            raise ColumnError(str(error), f"{name!r}: {what_it_holds(file, name)}")
        raise error
    return values


def not_numbers(file: TableFile, name: str, bad: NDArray[np.bool_], why: str) -> ColumnError:
    """Return the error for values that are not numbers."""
    row = int(np.flatnonzero(bad)[0])
    return ColumnError(
        f"{file.path}, {file.place(row)}, column {name!r}: the value is {why}; correct or remove "
        "the row",
        f"{name!r}: {counted(bad)} {why} (first: {file.place(row)})",
    )


def not_a_number_because(text: str) -> str:
    """Return what is wrong with a text that should be a number."""
    commas = " (write it with a decimal point, and without commas)" if _is(text, _COMMAS) else ""
    return f"not a number{commas}"


def not_a_number(file: TableFile, name: str, row: int) -> ColumnError:
    """Return the error for one value that is missing."""
    bad = np.zeros(row + 1, dtype=np.bool_)
    bad[row] = True
    return not_numbers(file, name, bad, "missing")


def names_in(file: TableFile, name: str, what: str) -> list[str | None]:
    """Return a column of names in the text form of `engine.ids`; None for a blank."""
    column = file.table.column(name)
    kind = column.type
    uuids = kind == pa.binary(UUID_BYTES)
    if not (textual(kind) or whole_type(kind) or uuids or pa.types.is_null(kind)):
        raise InvalidData(
            f"{file.path}, column {name!r}: holds {kind}; {what} are text or whole numbers, or "
            f"UUIDs of 16 bytes: {_TO_WHOLE if pa.types.is_floating(kind) else ''}{TO_TEXT}"
        )
    plain = _plain_names(column)
    if plain is not None:
        return plain
    names: list[str | None] = []
    for row, value in enumerate(values_in(column)):
        try:
            blank = value is None or (isinstance(value, str) and not value.strip())
            names.append(None if blank else id_of(value))
        except InvalidData as error:
            place = f"{file.path}, {file.place(row)}, column {name!r}"
            raise InvalidData(f"{place}: {error}") from None
    return names


def _plain_names(column: pa.ChunkedArray) -> list[str | None] | None:
    """Return a column of names whose values `id_of` would take as they are; None of another."""
    if column.null_count or not (textual(column.type) or pa.types.is_integer(column.type)):
        return None
    if textual(column.type):
        longest = pc.max(pc.utf8_length(column)).as_py() or 0
        if longest > MAX_ID_LENGTH or not mask(_matches(column, "[!-~]")).all():
            return None
    listed: list[str | None] = pc.cast(column, pa.string()).to_pylist()
    return listed


def _matches(text: pa.ChunkedArray, pattern: str) -> pa.ChunkedArray:
    return pc.match_substring_regex(text, pattern)


def mask(values: pa.ChunkedArray) -> NDArray[np.bool_]:
    """Return an Arrow column of booleans as an array."""
    truth: NDArray[np.bool_] = values.to_numpy().astype(np.bool_)
    return truth


def _is(text: str, pattern: str) -> bool:
    return bool(mask(_matches(pa.chunked_array([[text]]), pattern)).all())
