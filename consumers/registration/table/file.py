"""Opens a Parquet or CSV file, and names places in it so that a person finds them."""

from __future__ import annotations

import codecs
import csv
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from lethe.engine.errors import InvalidData

MAX_CSV_BYTES = 8 << 30
"""Larger files must be Parquet, which is read by column."""

MAX_VALUES = 1_000_000_000
"""Rows times columns that a Parquet file may claim: four times the numbers of the largest model
(`consumers.registration.table.reader.MAX_NUMBERS`), to allow for columns that are not features."""

MAX_TABLE_BYTES = 16 << 30
"""What a Parquet file may unpack to: that many values, of 8 bytes and twice that for text. A small
file may unpack to less (`_limit_of`)."""

MAX_RATIO = 1000
"""How many times its own size a Parquet file may unpack to: of one-hot columns with 1% of ones, as
float64, it is about 200; deflate reaches 1,032."""

SMALL_TABLE_BYTES = 256 << 20
"""What any Parquet file may unpack to, however small it is."""

MAX_FOOTER_BYTES = 64 << 20
"""Size of one text or list in a Parquet footer: 8,000 columns in 10,000 row groups take less."""

_OTHER_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "vertical bars"}
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)

_BATCH_ROWS = 65_536
_BATCH_VALUES = 4_000_000
_WIDTHS = {"BOOLEAN": 1 / 8}  # of a value in bytes; others have 4 or more


@dataclass(frozen=True, slots=True)
class TableFile:
    """An opened file: its columns, and how to name a place in it."""

    path: Path
    table: pa.Table
    is_csv: bool
    first: int = 0
    """Number of the table's first row in the file, from 0."""

    def place(self, row: int) -> str:
        """Return where data row ``row`` (from 0) is, in words for a person."""
        if not self.is_csv:
            return f"row {self.first + row + 1}"
        return f"line {_line_of(self.path, row)}"


def check_readable(path: Path) -> None:
    """Refuse a file that does not exist, or whose name is not a table's, before other work is done.

    Raises
    ------
    InvalidData
        The message says why.
    """
    if path.is_dir():
        raise InvalidData(f"{path}: is a directory; name a file that ends in .parquet or .csv")
    if path.suffix.lower() not in (".csv", ".parquet"):
        raise InvalidData(f"{path}: the name must end in .parquet or .csv")
    try:
        path.open("rb").close()
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> InvalidData:
    reason = error.strerror or str(error).partition("\n")[0]
    return InvalidData(f"{path}: cannot be read ({reason}); check the path")


def column_names(path: Path) -> list[str]:
    """Return the names of a file's columns; raises what `open_file` raises."""
    with _explained(path):
        if path.suffix.lower() == ".parquet":
            with _opened_parquet(path) as file:
                return list(file.schema_arrow.names)
        return _header(path)


def open_file(
    path: Path, texts: Collection[str] = (), only: Sequence[str] | None = None
) -> TableFile:
    """Read a file. A CSV column is all numbers or all text; columns in ``texts`` are read as text.

    ``only``: read these columns, which it has, and no others.

    Raises
    ------
    InvalidData
        It cannot be read as what its name says.
    """
    with _explained(path):
        if path.suffix.lower() == ".parquet":
            return TableFile(path, _read_parquet(path, only), is_csv=False)
        return TableFile(path, _read_csv(path, texts, only), is_csv=True)


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn errors of reading a file into messages for a person."""
    check_readable(path)
    try:
        yield
    except UnicodeDecodeError:
        raise InvalidData(f"{path}: the name of a column is not UTF-8 text; rename it") from None
    except OSError as error:
        raise _unreadable(path, error) from error
    except pa.ArrowException as error:
        form = "Parquet"
        if path.suffix.lower() == ".csv":
            _check_utf8(path)
            form = "CSV (UTF-8, commas, a header line)"
        raise InvalidData(f"{path}: is not readable as {form}; is it damaged or cut off?") from (
            error
        )


def _check_utf8(path: Path) -> None:
    """Refuse text in another encoding, which spreadsheets write, with the command that mends it."""
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if number == 1 and line.startswith(_UTF16):
                place, source = f"{path}", "UTF-16"
            elif _is_utf8(line):
                continue
            else:
                place, source = f"{path}, line {number}", "WINDOWS-1252"
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


def _opened_parquet(path: Path, *, streamed: bool = False) -> pq.ParquetFile:
    # What is read ahead of a stream would be as large as a row group, which is often the file.
    ahead = {"buffer_size": 64 << 10, "pre_buffer": False} if streamed else {}
    return pq.ParquetFile(
        path,
        **ahead,
        thrift_string_size_limit=MAX_FOOTER_BYTES,
        thrift_container_size_limit=MAX_FOOTER_BYTES,
    )


@dataclass(frozen=True, slots=True)
class ParquetFile:
    """A Parquet file that is read in blocks: what its footer says."""

    path: Path
    names: tuple[str, ...]
    rows: int

    @classmethod
    def opened(cls, path: Path) -> ParquetFile:
        """Return what a file's footer says; raises what `open_file` raises."""
        with _explained(path), _opened_parquet(path) as file:
            return cls(path, tuple(file.schema_arrow.names), file.metadata.num_rows)

    def blocks(self, only: Sequence[str]) -> Iterator[TableFile]:
        """Yield its rows, some thousand at a time; raises what `open_file` raises."""
        first, each = 0, max(1, min(_BATCH_ROWS, _BATCH_VALUES // max(1, len(only))))
        with _explained(self.path), _opened_parquet(self.path, streamed=True) as file:
            for batch in file.iter_batches(batch_size=each, columns=list(only)):
                table = _plain(pa.Table.from_batches([batch]))
                table.validate(full=True)
                yield TableFile(self.path, table, is_csv=False, first=first)
                first += len(table)


def _limit_of(path: Path) -> int:
    """Return the bytes that a Parquet file may unpack to."""
    return min(MAX_TABLE_BYTES, max(SMALL_TABLE_BYTES, MAX_RATIO * path.stat().st_size))


def _claimed(metadata: pq.FileMetaData, only: Sequence[str] | None) -> tuple[float, int]:
    """Return what a Parquet file says of its columns, in bytes.

    That is, the least that they unpack to, and the longest text that any row may have, summed over
    columns: a value of a dictionary is as long as its pages allow, and is there once.
    """
    least, longest = 0.0, dict.fromkeys(range(metadata.num_columns), 0)
    for i in range(metadata.num_row_groups):
        group = metadata.row_group(i)
        for j in range(group.num_columns):
            chunk = group.column(j)
            name = chunk.path_in_schema
            if only is not None and name not in only and name.partition(".")[0] not in only:
                continue
            each = _WIDTHS.get(chunk.physical_type, 4)
            least += max(chunk.total_uncompressed_size, chunk.num_values * each)
            if chunk.physical_type == "BYTE_ARRAY":
                longest[j] = max(longest[j], chunk.total_uncompressed_size)
    return least, sum(longest.values())


def _read_parquet(path: Path, only: Sequence[str] | None = None) -> pa.Table:
    """Read a Parquet file if both its metadata and its content stay within the limits.

    A page that repeats one value a billion times is a few bytes long: what a file says of its pages
    and values is summed up first, and what they hold is counted in short batches.
    """
    limit = _limit_of(path)
    with _opened_parquet(path) as file:
        metadata = file.metadata
        _ = (
            file.schema_arrow.names
        )  # raises an error for names that are not text, before anything is read
        if metadata.num_rows < 0 or metadata.num_columns < 1:
            raise InvalidData(f"{path}: has no columns; is it damaged?")
        if metadata.num_rows * metadata.num_columns > MAX_VALUES:
            raise InvalidData(
                f"{path}: claims {metadata.num_rows} rows of {metadata.num_columns} columns, "
                f"more than {MAX_VALUES} values; register fewer rows"
            )
        least, longest = _claimed(metadata, only)
        if least > limit:
            raise _too_large(path, limit)
        tables: list[pa.Table] = []
        size = 0
        rows = min(_BATCH_ROWS, _BATCH_VALUES // metadata.num_columns, limit // max(1, longest))
        for batch in file.iter_batches(batch_size=max(1, rows), columns=only):
            tables.append(_plain(pa.Table.from_batches([batch])))
            size += tables[-1].nbytes
            if size > limit:
                raise _too_large(path, limit)
        if not tables:
            schema = file.schema_arrow
            fields = [schema.field(name) for name in schema.names if only is None or name in only]
            tables.append(_plain(pa.schema(fields).empty_table()))
        table = pa.concat_tables(tables)
    table.validate(full=True)  # among others, that text is UTF-8
    return table


def _too_large(path: Path, limit: int) -> InvalidData:
    return InvalidData(
        f"{path}: unpacks to more than {limit} bytes, more than a file of its size may; leave out "
        "columns that are constant or no features, or register fewer rows"
    )


def _plain(table: pa.Table) -> pa.Table:
    """Return a table without dictionaries, views of text, and extension types, such as UUID.

    Few functions take them, and a column holds the same without. (pandas writes its categories as
    dictionaries, and Polars writes views.)
    """
    fields = [field.with_type(_plain_type(field.type)) for field in table.schema]
    schema = pa.schema(fields)
    return table if schema.equals(table.schema) else table.cast(schema)


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return _plain_type(kind.value_type)
    if isinstance(kind, pa.BaseExtensionType):
        truth = kind.extension_name == "arrow.bool8"
        return pa.bool_() if truth else _plain_type(kind.storage_type)
    return pa.string() if pa.types.is_string_view(kind) else kind


def _read_csv(path: Path, texts: Collection[str], only: Sequence[str] | None = None) -> pa.Table:
    """Read numeric columns as numbers; if a value is not one, read all as text, to say which."""
    size = path.stat().st_size
    if size > MAX_CSV_BYTES:
        raise InvalidData(
            f"{path}: has {size} bytes; a CSV file may have {MAX_CSV_BYTES}, larger ones must be "
            "Parquet"
        )
    if size == 0:
        raise InvalidData(f"{path}: the file is empty; it needs a header line and rows")
    header = _header(path)
    try:
        return _read_numbers(path, header, texts, only)
    except pa.ArrowInvalid:
        return _read_text(path, header, only)


def _read_numbers(
    path: Path, header: list[str], texts: Collection[str], only: Sequence[str] | None
) -> pa.Table:
    """Read columns whose first block is numbers as float64; raise if a later block is not."""
    plain = pacsv.ConvertOptions(null_values=[], strings_can_be_null=False)
    with pacsv.open_csv(path, convert_options=plain) as first:
        kinds = {field.name: field.type for field in first.schema}
    types = {
        name: pa.float64()
        if name not in texts and (pa.types.is_integer(kind) or pa.types.is_floating(kind))
        else pa.string()
        for name, kind in kinds.items()
    }
    if list(kinds) != header:
        raise pa.ArrowInvalid("the names in the header are not distinct")
    plain.column_types = types
    plain.include_columns = only or []  # none: all
    return pacsv.read_csv(path, convert_options=plain)


def _read_text(path: Path, header: list[str], only: Sequence[str] | None) -> pa.Table:
    bad: list[pacsv.InvalidRow] = []

    def remember(row: pacsv.InvalidRow) -> str:
        bad.append(row)
        return "error"

    # Lines are counted only on one thread. Everything is read as text: the type of a column is
    # decided from all of its values, not from the first block.
    try:
        return pacsv.read_csv(
            path,
            read_options=pacsv.ReadOptions(use_threads=False),
            parse_options=pacsv.ParseOptions(invalid_row_handler=remember),
            convert_options=pacsv.ConvertOptions(
                column_types=dict.fromkeys(header, pa.string()),
                strings_can_be_null=False,
                include_columns=only or [],
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
            header = next((names for names in csv.reader(lines) if names), [])
    except (UnicodeDecodeError, csv.Error) as error:
        raise pa.ArrowInvalid(str(error)) from error
    for separator, name in _OTHER_SEPARATORS.items():
        if len(header) == 1 and separator in header[0]:
            raise InvalidData(
                f"{path}: its values are separated by {name}; save it with commas between values "
                "and points in numbers, or as Parquet"
            )
    return header


def _line_of(path: Path, row: int) -> int:
    """Return the line number of data row ``row`` (from 0); blank lines hold no row."""
    filled = -1
    with path.open("rb") as lines:
        for count, text in enumerate(lines, start=1):
            filled += bool(text.strip(b"\r\n"))
            if filled == row + 1:
                return count
    return row + 2
