"""CSV files as blocks of rows: their columns are numbers, or else text."""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.csv as pacsv

from lethe.consumers.registration.table.source import IN_FILES, DataFile, Source, TableTooLarge
from lethe.engine.errors import InvalidData

MAX_CSV_BYTES = 8 << 30
"""Larger tables must be Parquet, which is read by column."""

_OTHER_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "vertical bars"}
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_COUNTED_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class CsvFiles:
    """CSV files with the same columns, named in ``header`` in the order of the first file."""

    source: Source
    header: tuple[str, ...]

    @classmethod
    def read_header(cls, file: DataFile) -> list[str]:
        """Return the names in the first line of one file that is not blank."""
        try:
            with io.TextIOWrapper(file.open(), encoding="utf-8-sig", newline="") as lines:
                header = next((names for names in csv.reader(lines) if names), [])
        except (UnicodeDecodeError, csv.Error) as error:
            raise pa.ArrowInvalid(str(error)) from error
        for separator, name in _OTHER_SEPARATORS.items():
            if len(header) == 1 and separator in header[0]:
                raise InvalidData(
                    f"{file.shown}: its values are separated by {name}; save it with commas "
                    "between values and points in numbers, or as Parquet"
                )
        return header

    @classmethod
    def of(cls, source: Source, headers: Sequence[list[str]]) -> CsvFiles:
        """Return files whose headers these are.

        Raises
        ------
        InvalidData
            They have other columns.
        """
        first = headers[0]
        for file, header in zip(source.files, headers, strict=True):
            if sorted(header) != sorted(first):
                odd = next(
                    name for name in [*first, *header] if header.count(name) != first.count(name)
                )
                raise InvalidData(
                    f"{source.files[0].shown} and {file.shown} differ: only one of them has "
                    f"column {odd!r}; write all files with the same columns"
                )
        return cls(source, tuple(first))

    @property
    def names(self) -> list[str]:
        """Return the names of the columns."""
        return list(self.header)

    def check_size(self) -> None:
        """Refuse files that are too large or empty.

        Raises
        ------
        InvalidData
            The message says which.
        """
        if self.source.size > MAX_CSV_BYTES:
            raise TableTooLarge(
                f"{self.source.shown}: has {self.source.size} bytes; a CSV file may have "
                f"{MAX_CSV_BYTES}: {IN_FILES}, or give it as Parquet"
            )

    def lines(self, most: int) -> int:
        """Return the number of lines but for headers: blank ones hold no row.

        Counting ends once there are more than ``most``.
        """
        total = 0
        for file in self.source.files:
            total -= 1
            with file.open() as opened:
                last = b""
                while total <= most and (chunk := opened.read(_COUNTED_BYTES)):
                    total += chunk.count(b"\n")
                    if b"\r" in chunk:  # alone it ends a line, too
                        total += chunk.count(b"\r") - chunk.count(b"\r\n")
                    if last == b"\r" and chunk[:1] == b"\n":
                        total -= 1
                    last = chunk[-1:]
                total += last not in (b"\n", b"\r")  # the last line may have no end
        return total

    def kinds(self, texts: Collection[str] = ()) -> dict[str, pa.DataType]:
        """Return float64 for columns whose first block is numbers, text for others and ``texts``.

        Raises
        ------
        pyarrow.ArrowInvalid
            It cannot be read so; `text` may.
        """
        with pacsv.open_csv(self.source.files[0].for_arrow(), convert_options=_plain()) as first:
            kinds = {field.name: field.type for field in first.schema}
        if list(kinds) != list(self.header):
            raise pa.ArrowInvalid("the names in the header are not distinct")
        return {
            name: pa.float64()
            if name not in texts and (pa.types.is_integer(kind) or pa.types.is_floating(kind))
            else pa.string()
            for name, kind in kinds.items()
        }

    def blocks(
        self, index: int, kinds: dict[str, pa.DataType], only: Sequence[str] | None = None
    ) -> Iterator[pa.Table]:
        """Yield the rows of one file, a block at a time.

        Raises
        ------
        pyarrow.ArrowInvalid
            A value is not of the kind of its column; `text` says which.
        """
        options = _plain()
        options.column_types = kinds
        options.include_columns = list(self.header if only is None else only)
        with pacsv.open_csv(
            self.source.files[index].for_arrow(), convert_options=options
        ) as opened:
            for batch in opened:
                if batch.num_rows:
                    yield pa.Table.from_batches([batch])

    def text(self, index: int, only: Sequence[str] | None = None) -> pa.Table:
        """Return one file with every column as text.

        Raises
        ------
        InvalidData
            A line has another number of values than the header.
        """
        bad: list[pacsv.InvalidRow] = []
        file = self.source.files[index]

        def remember(row: pacsv.InvalidRow) -> str:
            bad.append(row)
            return "error"

        # Lines are counted only on one thread. Everything is read as text: the type of a column is
        # decided from all of its values, not from the first block.
        repeated = len(set(self.header)) < len(self.header)
        names = [] if repeated else list(self.header if only is None else only)
        try:
            return pacsv.read_csv(
                file.for_arrow(),
                read_options=pacsv.ReadOptions(use_threads=False),
                parse_options=pacsv.ParseOptions(invalid_row_handler=remember),
                convert_options=pacsv.ConvertOptions(
                    column_types=dict.fromkeys(self.header, pa.string()),
                    strings_can_be_null=False,
                    include_columns=names,
                ),
            )
        except pa.ArrowInvalid:
            if not bad:
                raise
            line = line_of(file, bad[0].number - 2)
            raise InvalidData(
                f"{file.shown}, line {line}: has {bad[0].actual_columns} values where the header "
                f"has {bad[0].expected_columns}; correct the line"
            ) from None


def _plain() -> pacsv.ConvertOptions:
    return pacsv.ConvertOptions(null_values=[], strings_can_be_null=False)


def line_of(file: DataFile, row: int) -> int:
    """Return the line number of data row ``row`` (from 0); blank lines hold no row."""
    filled = -1
    with file.open() as lines:
        for count, text in enumerate(lines, start=1):
            filled += bool(text.strip(b"\r\n"))
            if filled == row + 1:
                return count
    return row + 2


def check_utf8(file: DataFile) -> None:
    """Refuse text in another encoding, which spreadsheets write, with the command that mends it."""
    with file.open() as lines:
        for number, line in enumerate(lines, start=1):
            if number == 1 and line.startswith(_UTF16):
                place, source = file.shown, "UTF-16"
            elif _is_utf8(line):
                continue
            else:
                place, source = f"{file.shown}, line {number}", "WINDOWS-1252"
            raise InvalidData(
                f"{place}: is not UTF-8 text; convert the file, for example with "
                f"`iconv -f {source} -t UTF-8`"
            )


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True
