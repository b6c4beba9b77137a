"""Training rows from a Parquet or CSV file.

Every number is checked before anything is fitted, and an error names the file's own line or row:
one bad line among a hundred thousand can be found. A column of a CSV file that holds both numbers
and text is an error, not a guess: left out in silence, one bad line would cost a feature.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from consumers.registration import TrainingData
from engine.errors import InvalidData
from engine.objective import Array, Kind

MAX_FEATURES = 8_000
"""The factor is one Redis string, which holds 512 MB: 8 d^2 bytes allow d = 8,191."""

MAX_NUMBERS = 250_000_000
"""Features times rows: 2 GB of float64, and as much again for the dual rows."""

MAX_CSV_BYTES = 8 << 30
"""Larger files belong into Parquet, which is read by column."""

MAX_ID_LENGTH = 128
"""Of row and subject ids (contract 2.2)."""

_NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
_NOT_FINITE = r"(?i)^[+-]?(nan|inf|infinity)$"
_BOOLEAN = r"(?i)^(true|false)$"
_NAMES_SHOWN = 12


@dataclass(frozen=True, slots=True)
class Columns:
    """Which column is what.

    Attributes
    ----------
    id
        Row ids: text or whole numbers, distinct.
    targets
        One column, or several for a linear model with several outputs.
    features
        None: every numeric column that is nothing else.
    subject
        Whose row it is; rows without a subject are legal.
    """

    id: str
    targets: tuple[str, ...]
    features: tuple[str, ...] | None = None
    subject: str | None = None


@dataclass(frozen=True, slots=True)
class TableRead:
    """The rows, and the columns that were left out because they hold text."""

    data: TrainingData
    left_out: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _File:
    """An opened file: its columns, and how to name a place in it."""

    path: Path
    table: pa.Table
    is_csv: bool

    def place(self, row: int) -> str:
        """Return where data row ``row`` (from 0) is, as a person finds it."""
        if not self.is_csv:
            return f"row {row + 1}"
        return f"line {_line_of(self.path, row)}"


def read_table(path: Path, columns: Columns, kind: Kind) -> TableRead:
    """Read and check training rows.

    Raises
    ------
    InvalidData
        The file, a column or a value cannot be used; the message says which and where.

    Notes
    -----
    CSV: UTF-8, comma-separated, a header line, no line breaks within values.
    """
    file = _open(path)
    _check_columns(file, columns, kind)
    rows = file.table.num_rows
    if rows == 0:
        raise InvalidData(f"{path}: the file has no rows; there is nothing to fit")
    ids = _ids(file, columns.id)
    special = {columns.id, columns.subject, *columns.targets}
    candidates = [name for name in file.table.column_names if name not in special]
    if columns.features is None:
        names = tuple(name for name in candidates if _is_numeric(file, name))
        if not names:
            raise InvalidData(f"{path}: no numeric column is left to be a feature; see --features")
    else:
        names = columns.features
    _check_size(path, rows, len(names))
    X = np.empty((rows, len(names)))
    for place, name in enumerate(names):
        X[:, place] = _numbers(file, name)
    y = np.column_stack([_numbers(file, name) for name in columns.targets])
    if kind is Kind.LOGISTIC:
        _check_binary(file, columns.targets[0], y[:, 0])
    subjects = {} if columns.subject is None else _subjects(file, columns.subject, ids)
    left_out = tuple(name for name in candidates if columns.features is None and name not in names)
    return TableRead(TrainingData(ids, X, y, names, columns.targets, subjects), left_out)


# -- opening ------------------------------------------------------------------------------------


def _open(path: Path) -> _File:
    suffix = path.suffix.lower()
    if suffix not in (".csv", ".parquet"):
        raise InvalidData(f"{path}: the name must end in .parquet or .csv")
    try:
        if suffix == ".parquet":
            return _File(path, pq.ParquetFile(path).read(), is_csv=False)
        return _File(path, _read_csv(path), is_csv=True)
    except OSError as error:
        reason = error.strerror or str(error).partition("\n")[0]
        raise InvalidData(f"{path}: cannot be read ({reason}); check the path") from error
    except pa.ArrowException as error:
        form = "Parquet" if suffix == ".parquet" else "CSV (UTF-8, commas, a header line)"
        raise InvalidData(f"{path}: is not readable as {form}; is it damaged or cut off?") from (
            error
        )


def _read_csv(path: Path) -> pa.Table:
    size = path.stat().st_size
    if size > MAX_CSV_BYTES:
        raise InvalidData(f"{path}: {size} bytes of CSV; more than {MAX_CSV_BYTES} need Parquet")
    if size == 0:
        raise InvalidData(f"{path}: the file is empty; it needs a header line and rows")
    bad: list[pacsv.InvalidRow] = []

    def remember(row: pacsv.InvalidRow) -> str:
        bad.append(row)
        return "error"

    # Lines are counted only on one thread. Everything is read as text first: what a column is
    # gets decided over all of its values, not over the first block.
    header = _header(path)
    try:
        return pacsv.read_csv(
            path,
            read_options=pacsv.ReadOptions(use_threads=False),
            parse_options=pacsv.ParseOptions(invalid_row_handler=remember),
            convert_options=pacsv.ConvertOptions(
                column_types=dict.fromkeys(header, pa.string()), strings_can_be_null=False
            ),
        )
    except pa.ArrowInvalid:
        if not bad:
            raise
        line = _line_of(path, bad[0].number - 2)
        raise InvalidData(
            f"{path}, line {line}: has {bad[0].actual_columns} values where the header has "
            f"{bad[0].expected_columns}; correct the line"
        ) from None


def _header(path: Path) -> list[str]:
    """Return the names in the first line that is not blank."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            return next((names for names in csv.reader(lines) if names), [])
    except (UnicodeDecodeError, csv.Error) as error:
        raise pa.ArrowInvalid(str(error)) from error


def _line_of(path: Path, row: int) -> int:
    """Return the line number of data row ``row`` (from 0); blank lines hold no row."""
    filled = -1
    with path.open("rb") as lines:
        for count, text in enumerate(lines, start=1):
            filled += bool(text.strip(b"\r\n"))
            if filled == row + 1:
                return count
    return row + 2


# -- which columns ------------------------------------------------------------------------------


def _check_columns(file: _File, columns: Columns, kind: Kind) -> None:
    present = file.table.column_names
    doubled = next((name for name in present if present.count(name) > 1), None)
    if doubled is not None:
        raise InvalidData(f"{file.path}: has more than one column {doubled!r}; rename one")
    wanted = [columns.id, *columns.targets, *(columns.features or ())]
    wanted += [columns.subject] if columns.subject is not None else []
    missing = next((name for name in wanted if name not in present), None)
    if missing is not None:
        more = ", ..." if len(present) > _NAMES_SHOWN else ""
        shown = ", ".join(repr(name) for name in present[:_NAMES_SHOWN])
        raise InvalidData(f"{file.path}: has no column {missing!r}; it has {shown}{more}")
    twice = next((name for name in wanted if wanted.count(name) > 1), None)
    if twice is not None:
        raise InvalidData(f"column {twice!r} is named twice; each column has one role")
    if columns.features is not None and not columns.features:
        raise InvalidData("--features names no column")
    if kind is Kind.LOGISTIC and len(columns.targets) != 1:
        raise InvalidData("a logistic model has one target")


def _check_size(path: Path, rows: int, features: int) -> None:
    if features > MAX_FEATURES:
        raise InvalidData(f"{path}: {features} features; a model has at most {MAX_FEATURES}")
    if rows * features > MAX_NUMBERS:
        raise InvalidData(
            f"{path}: {rows} rows of {features} features are more than {MAX_NUMBERS} numbers; "
            "name fewer --features"
        )


def _is_numeric(file: _File, name: str) -> bool:
    """Return whether a column may be a feature by default; mixed columns are an error."""
    column = file.table.column(name)
    if not file.is_csv:
        return _numeric_type(column.type)
    text = pc.utf8_trim_whitespace(column)
    numeric = pc.or_(_matches(text, _NUMBER), _matches(text, _NOT_FINITE))
    filled = _mask(pc.not_equal(text, ""))
    good = _mask(numeric) if _any(numeric) else _mask(_matches(text, _BOOLEAN))
    if not good.any():
        return False
    other = filled & ~good
    if other.any():
        row = int(np.flatnonzero(other)[0])
        raise InvalidData(
            f"{file.path}, {file.place(row)}, column {name!r}: holds text, other lines hold "
            "numbers; correct the line, or name the columns to use with --features"
        )
    return True


def _numeric_type(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_integer(kind)
        or types.is_floating(kind)
        or types.is_boolean(kind)
        or types.is_decimal(kind)
    )


# -- values -------------------------------------------------------------------------------------


def _numbers(file: _File, name: str) -> Array:
    """Return a column as float64; true and false count as 1 and 0."""
    column = file.table.column(name)
    if file.is_csv:
        values = _numbers_of_text(file, name, column)
    else:
        if not _numeric_type(column.type):
            raise InvalidData(
                f"{file.path}, column {name!r}: holds {column.type}, not numbers; encode it as "
                "numbers first"
            )
        if column.null_count:
            row = int(np.flatnonzero(_mask(column.is_null()))[0])
            raise _not_a_number(file, name, row, "is missing")
        try:
            values = pc.cast(column, pa.float64()).to_numpy()
        except pa.ArrowInvalid:
            raise InvalidData(
                f"{file.path}, column {name!r}: a whole number is beyond 2^53 and would be "
                "rounded; store the column as floating point"
            ) from None
    finite = np.isfinite(values)
    if not finite.all():
        row = int(np.flatnonzero(~finite)[0])
        raise _not_a_number(file, name, row, "is not finite (NaN or infinity)")
    return np.ascontiguousarray(values, dtype=np.float64)


def _numbers_of_text(file: _File, name: str, column: pa.ChunkedArray) -> Array:
    text = pc.utf8_trim_whitespace(column)
    boolean = _mask(_matches(text, _BOOLEAN))
    if boolean.all():
        truth: Array = _mask(pc.equal(pc.utf8_lower(text), "true")).astype(np.float64)
        return truth
    odd = ~_mask(_matches(text, _NUMBER))
    if odd.any():
        row = int(np.flatnonzero(odd)[0])
        value = text[row].as_py()
        why = "is missing" if value == "" else "is not a number"
        if _any(_matches(pa.chunked_array([[value]]), _NOT_FINITE)):
            why = "is not finite (NaN or infinity)"
        raise _not_a_number(file, name, row, why)
    plain = pc.replace_substring_regex(text, r"^\+", "")
    values: Array = pc.cast(plain, pa.float64()).to_numpy()
    return values


def _not_a_number(file: _File, name: str, row: int, why: str) -> InvalidData:
    return InvalidData(
        f"{file.path}, {file.place(row)}, column {name!r}: the value {why}; correct or remove "
        "the row"
    )


def _check_binary(file: _File, name: str, y: Array) -> None:
    odd = ~np.isin(y, (0.0, 1.0))
    if odd.any():
        row = int(np.flatnonzero(odd)[0])
        raise InvalidData(
            f"{file.path}, {file.place(row)}, column {name!r}: the target of a logistic model "
            f"must be 0 or 1, not {y[row]:g}; encode the two classes as 0 and 1"
        )


# -- ids ----------------------------------------------------------------------------------------


def _ids(file: _File, name: str) -> tuple[str, ...]:
    """Return the row ids. Messages name places, never ids: those are personal data."""
    found = _names(file, name, "ids")
    first: dict[str, int] = {}
    ids: list[str] = []
    for row, value in enumerate(found):
        if value is None:
            raise InvalidData(
                f"{file.path}, {file.place(row)}: the id is empty; every row needs one"
            )
        if value in first:
            places = f"{file.place(first[value])} and {file.place(row)}"
            raise InvalidData(
                f"{file.path}: {places} have the same id in column {name!r}; each row needs its own"
            )
        first[value] = row
        ids.append(value)
    return tuple(ids)


def _subjects(file: _File, name: str, ids: Sequence[str]) -> Mapping[str, Sequence[str]]:
    subjects: dict[str, list[str]] = {}
    for row_id, subject in zip(ids, _names(file, name, "subjects"), strict=True):
        if subject is not None:
            subjects.setdefault(subject, []).append(row_id)
    return subjects


def _names(file: _File, name: str, what: str) -> list[str | None]:
    """Return a column of names, None where there is none."""
    column = file.table.column(name)
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    textual = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    if not (textual or pa.types.is_integer(kind)):
        raise InvalidData(
            f"{file.path}, column {name!r}: {what} must be text or whole numbers, not {kind}"
        )
    found: list[str | None] = []
    for row, value in enumerate(pc.cast(column, pa.string()).to_pylist()):
        blank = value is None or not value.strip()
        if not blank and len(value) > MAX_ID_LENGTH:
            raise InvalidData(
                f"{file.path}, {file.place(row)}, column {name!r}: {len(value)} characters; "
                f"{what} have at most {MAX_ID_LENGTH}"
            )
        found.append(None if blank else value)
    return found


# -- masks --------------------------------------------------------------------------------------


def _matches(text: pa.ChunkedArray, pattern: str) -> pa.ChunkedArray:
    return pc.match_substring_regex(text, pattern)


def _mask(values: pa.ChunkedArray) -> NDArray[np.bool_]:
    mask: NDArray[np.bool_] = values.to_numpy().astype(np.bool_)
    return mask


def _any(values: pa.ChunkedArray) -> bool:
    return bool(pc.any(values).as_py())
