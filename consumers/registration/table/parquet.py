"""Parquet files as blocks of rows: what their footers claim is limited first, then what they hold.

A page that repeats one value a billion times is a few bytes long: what a file says of its pages and
values is summed up before it is read, and what they hold is counted in short batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from lethe.consumers.registration.table.source import IN_FILES, DataFile, Source, TableTooLarge
from lethe.engine.errors import InvalidData

MAX_VALUES = 1_000_000_000
"""Rows times columns that Parquet files may claim: four times the numbers of the largest model
(`consumers.registration.table.foreseen`), to allow for columns that are not features."""

MAX_TABLE_BYTES = 16 << 30
"""What Parquet files may unpack to: that many values, of 8 bytes and twice that for text. A small
file may unpack to less (`_limit_of`)."""

MAX_RATIO = 1000
"""How many times its own size a Parquet file may unpack to: of one-hot columns with 1% of ones, as
float64, it is about 200; deflate reaches 1,032."""

SMALL_TABLE_BYTES = 256 << 20
"""What any Parquet file may unpack to, however small it is."""

MAX_FOOTER_BYTES = 64 << 20
"""Size of one text or list in a Parquet footer: 8,000 columns in 10,000 row groups take less."""

_BATCH_ROWS = 65_536
_BATCH_VALUES = 2_000_000
_READ_BYTES = 64 << 10
"""Of a column at once. Without it Arrow reads all column chunks of a row group, which may be the
whole file: 1.2 GB in place of 0.4 for 1e6 rows of 100 columns."""

_WIDTHS = {"BOOLEAN": 1 / 8}  # of a value in bytes; others have 4 or more


@dataclass(frozen=True, slots=True)
class ParquetFiles:
    """Parquet files of one schema; ``footers`` are theirs, ``schema`` is without dictionaries."""

    source: Source
    footers: tuple[pq.FileMetaData, ...]
    schema: pa.Schema

    @classmethod
    def read_footer(cls, file: DataFile) -> tuple[pq.FileMetaData, pa.Schema]:
        """Return what the footer of one file says."""
        with _opened(file) as opened:
            schema = opened.schema_arrow
            _ = schema.names  # raises an error for names that are not text
            return opened.metadata, _plain_schema(schema)

    @classmethod
    def of(
        cls, source: Source, footers: Sequence[tuple[pq.FileMetaData, pa.Schema]]
    ) -> ParquetFiles:
        """Return files whose footers these are.

        Raises
        ------
        InvalidData
            They differ in schema, or one of several has no rows.
        """
        schema = footers[0][1]
        for file, (_, other) in zip(source.files, footers, strict=True):
            _check_alike(source.files[0], schema, file, other)
        alone = len(source.files) == 1
        metadata = tuple(footer for footer, _ in footers)
        for file, footer in zip(source.files, metadata, strict=True):
            if footer.num_rows == 0 and not alone:
                raise InvalidData(f"{file.shown}: the file has no rows; remove it")
        return cls(source, metadata, schema)

    @property
    def names(self) -> list[str]:
        """Return the names of the columns."""
        return list(self.schema.names)

    @property
    def rows(self) -> int:
        """Return the number of rows."""
        return int(sum(footer.num_rows for footer in self.footers))

    def check_claims(self, only: Sequence[str] | None = None) -> None:
        """Refuse what is too large to be read, by what the footers say.

        Raises
        ------
        InvalidData
            The message says what is too much.
        """
        shown, total = self.source.shown, 0.0
        for file, footer in zip(self.source.files, self.footers, strict=True):
            if footer.num_rows < 0 or footer.num_columns < 1:
                raise InvalidData(f"{file.shown}: has no columns; is it damaged?")
            least, limit = _claimed(footer, only)[0], _limit_of(file)
            total += least
            if least > limit:
                raise _too_large(file.shown, limit)
        columns = self.footers[0].num_columns
        if self.rows * columns > MAX_VALUES:
            raise TableTooLarge(
                f"{shown}: claims {self.rows} rows of {columns} columns, more than {MAX_VALUES} "
                f"values; {IN_FILES}, or register fewer rows"
            )
        if total > MAX_TABLE_BYTES:
            raise TableTooLarge(
                f"{shown}: unpacks to more than {MAX_TABLE_BYTES} bytes; {IN_FILES}, leave out "
                "columns that are no features, or register fewer rows"
            )

    def blocks(self, index: int, only: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Yield the rows of one file, a few thousand at a time; ``only``: of these columns.

        Raises
        ------
        InvalidData
            It unpacks to too much, or is not the file any more whose footer was read.
        """
        file, footer = self.source.files[index], self.footers[index]
        limit, longest = _limit_of(file), _claimed(footer, only)[1]
        rows = min(_BATCH_ROWS, _BATCH_VALUES // footer.num_columns, limit // max(1, longest))
        size = 0
        with _opened(file) as opened:
            if not opened.metadata.equals(footer):
                raise changed(file.shown)
            for batch in opened.iter_batches(batch_size=max(1, rows), columns=only):
                table = _plain(pa.Table.from_batches([batch]))
                table.validate(full=True)  # among others, that text is UTF-8
                size += table.nbytes
                if size > limit:
                    raise _too_large(file.shown, limit)
                yield table

    def empty(self, only: Sequence[str] | None = None) -> pa.Table:
        """Return a table of the same columns without rows."""
        names = self.names if only is None else only
        return pa.schema([self.schema.field(name) for name in names]).empty_table()


def changed(shown: str) -> InvalidData:
    """Return the error for a file that is not what it was when registration began."""
    return InvalidData(
        f"{shown}: was changed while it was read; register it again when nothing writes to it"
    )


def _opened(file: DataFile) -> pq.ParquetFile:
    return pq.ParquetFile(
        file.for_arrow(),
        buffer_size=_READ_BYTES,
        pre_buffer=False,
        thrift_string_size_limit=MAX_FOOTER_BYTES,
        thrift_container_size_limit=MAX_FOOTER_BYTES,
    )


def _check_alike(first: DataFile, schema: pa.Schema, file: DataFile, other: pa.Schema) -> None:
    for name in dict.fromkeys([*schema.names, *other.names]):
        here, there = _type_of(schema, name), _type_of(other, name)
        if here != there:
            raise InvalidData(
                f"{first.shown} and {file.shown} differ: column {name!r} is {here} in the first "
                f"and {there} in the second; write all files with the same columns and types"
            )


def _type_of(schema: pa.Schema, name: str) -> str:
    kinds = [str(schema.field(place).type) for place in schema.get_all_field_indices(name)]
    return " and ".join(kinds) or "missing"


def _limit_of(file: DataFile) -> int:
    """Return the bytes that a Parquet file may unpack to."""
    return min(MAX_TABLE_BYTES, max(SMALL_TABLE_BYTES, MAX_RATIO * file.size))


def _claimed(metadata: pq.FileMetaData, only: Sequence[str] | None) -> tuple[float, int]:
    """Return what a Parquet file says of its columns, in bytes.

    That is, the least that they unpack to, and the longest text that any row may have, summed over
    columns: a value of a dictionary is as long as its pages allow, and is there once.
    """
    least, longest = 0.0, dict.fromkeys(range(metadata.num_columns), 0)
    wanted = None if only is None else set(only)
    for i in range(metadata.num_row_groups):
        group = metadata.row_group(i)
        for j in range(group.num_columns):
            chunk = group.column(j)
            name = chunk.path_in_schema
            if wanted is not None and name not in wanted and name.partition(".")[0] not in wanted:
                continue
            each = _WIDTHS.get(chunk.physical_type, 4)
            least += max(chunk.total_uncompressed_size, chunk.num_values * each)
            if chunk.physical_type == "BYTE_ARRAY":
                longest[j] = max(longest[j], chunk.total_uncompressed_size)
    return least, sum(longest.values())


def _too_large(shown: str, limit: int) -> InvalidData:
    return InvalidData(
        f"{shown}: unpacks to more than {limit} bytes, more than a file of its size may; leave out "
        "columns that are constant or no features, or register fewer rows"
    )


def _plain(table: pa.Table) -> pa.Table:
    """Return a table without dictionaries, views of text, and extension types, such as UUID.

    Few functions take them, and a column holds the same without. (pandas writes its categories as
    dictionaries, and Polars writes views.)
    """
    schema = _plain_schema(table.schema)
    return table if schema.equals(table.schema) else table.cast(schema)


def _plain_schema(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.with_type(_plain_type(field.type)) for field in schema])


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return _plain_type(kind.value_type)
    if isinstance(kind, pa.BaseExtensionType):
        truth = kind.extension_name == "arrow.bool8"
        return pa.bool_() if truth else _plain_type(kind.storage_type)
    return pa.string() if pa.types.is_string_view(kind) else kind
