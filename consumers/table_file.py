"""Opening a Parquet or CSV file, and naming a place in it as a person finds it."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from engine.errors import InvalidData

MAX_CSV_BYTES = 8 << 30
"""Larger files belong into Parquet, which is read by column."""


@dataclass(frozen=True, slots=True)
class TableFile:
    """An opened file: its columns, and how to name a place in it."""

    path: Path
    table: pa.Table
    is_csv: bool

    def place(self, row: int) -> str:
        """Return where data row ``row`` (from 0) is, as a person finds it."""
        if not self.is_csv:
            return f"row {row + 1}"
        return f"line {_line_of(self.path, row)}"


def open_file(path: Path) -> TableFile:
    """Read a file; what a CSV column holds is decided later, so all of it is text.

    Raises
    ------
    InvalidData
        It cannot be read as what its name says.
    """
    suffix = path.suffix.lower()
    if suffix not in (".csv", ".parquet"):
        raise InvalidData(f"{path}: the name must end in .parquet or .csv")
    try:
        if suffix == ".parquet":
            return TableFile(path, pq.ParquetFile(path).read(), is_csv=False)
        return TableFile(path, _read_csv(path), is_csv=True)
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
