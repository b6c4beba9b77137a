"""Opens a table of Parquet or CSV files, and names places in it so that a person finds them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

from lethe.consumers.registration.table.delimited import CsvFiles, check_utf8, line_of
from lethe.consumers.registration.table.parquet import ParquetFiles
from lethe.consumers.registration.table.source import Data, DataFile, Source, find, reading
from lethe.engine.errors import InvalidData

_Read = TypeVar("_Read")


HEAD_ROWS = 100_000
"""Rows that are looked at where all would take too long."""


@dataclass(frozen=True, slots=True)
class TableFile:
    """A table that was read: its columns, and how to name a place in it.

    ``path`` is what messages call it; ``counts`` are the rows of each of the files of ``source``,
    and ``first`` is the number of the first row that was read, from 0.
    """

    source: Source
    table: pa.Table
    counts: tuple[int, ...]
    first: int = 0

    @property
    def path(self) -> str:
        """Return what messages call it."""
        return self.source.shown

    @property
    def is_csv(self) -> bool:
        """Return whether it was read from CSV."""
        return self.source.is_csv

    def place(self, row: int) -> str:
        """Return where data row ``row`` (from 0) is, in words for a person."""
        row, at = self.first + row, 0
        for count in self.counts[:-1]:
            if row < count:
                break
            row, at = row - count, at + 1
        file = self.source.files[at]
        if not self.is_csv:
            return f"{file.within}row {row + 1}"
        return f"{file.within}line {line_of(file, row)}"


class Opened:
    """A table whose footers or headers were read; its rows come in blocks.

    Parameters
    ----------
    data
        What names it.

    Raises
    ------
    InvalidData
        It cannot be read as what its name says.
    """

    def __init__(self, data: Data) -> None:
        self.data = data
        self.source = source = find(data)
        self._csv: CsvFiles | None = None
        self._parquet: ParquetFiles | None = None
        if source.is_csv:
            empty = next((file for file in source.files if file.size == 0), None)
            if empty is not None:
                raise InvalidData(
                    f"{empty.shown}: the file is empty; it needs a header line and rows"
                )
            self._csv = CsvFiles.of(source, self._each(CsvFiles.read_header))
        else:
            self._parquet = ParquetFiles.of(source, self._each(ParquetFiles.read_footer))

    def _each(self, read: Callable[[DataFile], _Read]) -> list[_Read]:
        made = []
        for file in self.source.files:
            with _explained(file):
                made.append(read(file))
        return made

    @property
    def path(self) -> str:
        """Return what messages call the table."""
        return self.source.shown

    @property
    def names(self) -> list[str]:
        """Return the names of the columns."""
        return self._csv.names if self._csv is not None else self._parquet_files.names

    @property
    def _parquet_files(self) -> ParquetFiles:
        assert self._parquet is not None, "of the two kinds"  # noqa: S101
        return self._parquet

    def check_claims(self, only: Sequence[str] | None = None) -> None:
        """Refuse files that are too large to be read."""
        if self._csv is not None:
            self._csv.check_size()
        else:
            self._parquet_files.check_claims(only)

    def rows(self, most: int) -> int:
        """Return the number of rows; of CSV files how many there may be, counted up to ``most``."""
        if self._csv is None:
            return self._parquet_files.rows
        with reading(self.path):
            return self._csv.lines(most)

    def kinds(self, texts: Collection[str] = ()) -> dict[str, pa.DataType]:
        """Return the Arrow types of the columns; raises `pyarrow.ArrowInvalid` as `blocks`."""
        if self._csv is None:
            return {field.name: field.type for field in self._parquet_files.schema}
        with reading(self.path):
            return self._csv.kinds(texts)

    def blocks(
        self, kinds: dict[str, pa.DataType], only: Sequence[str] | None = None
    ) -> Iterator[tuple[int, pa.Table]]:
        """Yield the number of a file and some of its rows, in order; ``only``: of these columns.

        Raises
        ------
        InvalidData
            A file cannot be read.
        pyarrow.ArrowInvalid
            A CSV file cannot be read as these kinds; `as_text` says why, or does.
        """
        for index, file in enumerate(self.source.files):
            rows = 0
            if self._csv is not None:
                with reading(file.shown):
                    for block in self._csv.blocks(index, kinds, only):
                        rows += block.num_rows
                        yield index, block
            else:
                with _explained(file):
                    for block in self._parquet_files.blocks(index, only):
                        rows += block.num_rows
                        yield index, block
            if not rows and len(self.source.files) > 1:
                raise InvalidData(f"{file.shown}: the file has no rows; remove it")

    def as_text(self, only: Sequence[str] | None = None) -> TableFile:
        """Return CSV files with all columns as text."""
        assert self._csv is not None, "Parquet has types"  # noqa: S101
        parts = []
        for index, file in enumerate(self.source.files):
            with _explained(file):
                parts.append(self._csv.text(index, only))
        counts = tuple(part.num_rows for part in parts)
        return TableFile(self.source, pa.concat_tables(parts), counts)

    def whole(self, texts: Collection[str] = (), only: Sequence[str] | None = None) -> TableFile:
        """Return the table; see `open_file`."""
        self.check_claims(only)
        try:
            kinds = self.kinds(texts)
            parts = list(self.blocks(kinds, only))
        except pa.ArrowInvalid:
            return self.as_text(only)
        counts = [0] * len(self.source.files)
        for index, block in parts:
            counts[index] += block.num_rows
        tables = [block for _, block in parts]
        return TableFile(self.source, self.joined(tables, kinds, only), tuple(counts))

    def head(self, texts: Collection[str] = ()) -> TableFile:
        """Return the first rows of the table, some more than `HEAD_ROWS`; see `open_file`."""
        try:
            return self._head(self.kinds(texts))
        except pa.ArrowInvalid:
            return self._head(dict.fromkeys(self.names, pa.string()))

    def _head(self, kinds: dict[str, pa.DataType]) -> TableFile:
        tables, counts = list[pa.Table](), [0] * len(self.source.files)
        for index, block in self.blocks(kinds):
            tables.append(block)
            counts[index] += block.num_rows
            if sum(counts) >= HEAD_ROWS:
                break
        return TableFile(self.source, self.joined(tables, kinds, None), tuple(counts))

    def joined(
        self,
        tables: Sequence[pa.Table],
        kinds: dict[str, pa.DataType],
        only: Sequence[str] | None,
    ) -> pa.Table:
        """Return the blocks of a table as one."""
        if tables:
            return pa.concat_tables(tables)
        if self._csv is None:
            return self._parquet_files.empty(only)
        return pa.schema({name: kinds[name] for name in only or self.names}).empty_table()


def check_readable(path: Path) -> None:
    """Refuse a file that does not exist, or whose name is not a table's, before other work is done.

    Raises
    ------
    InvalidData
        The message says why.
    """
    if path.is_dir():
        raise InvalidData(f"{path}: is a directory; name a file that ends in .parquet or .csv")
    find(path)


def column_names(data: Data) -> list[str]:
    """Return the names of a table's columns; raises what `open_file` raises."""
    return Opened(data).names


def open_file(
    data: Data, texts: Collection[str] = (), only: Sequence[str] | None = None
) -> TableFile:
    """Read a table. A CSV column is all numbers or all text; columns in ``texts`` are read as text.

    ``only``: read these columns, which it has, and no others.

    Raises
    ------
    InvalidData
        It cannot be read as what its name says.
    """
    return Opened(data).whole(texts, only)


@contextmanager
def _explained(file: DataFile) -> Iterator[None]:
    """Turn errors of reading a file into messages for a person."""
    try:
        with reading(file.shown):
            yield
    except UnicodeDecodeError:
        raise InvalidData(
            f"{file.shown}: the name of a column is not UTF-8 text; rename it"
        ) from None
    except pa.ArrowException as error:
        form = "Parquet"
        if file.is_csv:
            check_utf8(file)
            form = "CSV (UTF-8, commas, a header line)"
        raise InvalidData(
            f"{file.shown}: is not readable as {form}; is it damaged or cut off?"
        ) from (error)
