"""Sorting the rows of a registration into buckets, in bounded memory.

Rows come in any order, in blocks. They are dealt out to piles by the first bytes of their place,
in files that have no name any more, so that nothing of them is left behind even by `kill -9`. Then
each pile is sorted in memory, and cut into buckets.
"""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lethe.engine.errors import InvalidData, StoreUnavailable
from lethe.engine.fit.objective import Array, Rows
from lethe.engine.rowstore.bucket import (
    Bucket,
    PackedBucket,
    fixed,
    places_of,
    row_bytes,
    table_of,
)
from lethe.engine.rowstore.files import Files
from lethe.engine.rowstore.keys import (
    KEY_BYTES,
    ORDER_BYTES,
    SALT_BYTES,
    Order,
    comparable,
    orders_of,
    repeated,
    sorting,
)
from lethe.engine.rowstore.manifest import Manifest, Part
from lethe.engine.rowstore.parts import put_bucket, put_index, put_root

BUCKET_BYTES = 512 << 10
"""About the size of a bucket: what is read to find one row."""

INDEX_ROWS = 8192
"""Rows in a part of the index: 192 KiB."""

PILE_BYTES = 32 << 20
"""About the size of a pile, which is sorted in memory."""

_MOST_PILES = 400
_UNKNOWN_ROWS = 1 << 21
_WRITERS = 4
_HELD_BYTES = 32 << 20
"""Rows that wait in memory to be dealt out."""


class BucketWriter:
    """Writes rows that come in blocks as buckets. One thread uses it, as a context manager.

    Parameters
    ----------
    files
        Where the buckets will lie. Nothing names them before a root is published: whoever gives up
        removes them.
    p, m
        Numbers of features (without an intercept) and targets.
    subjects
        Whether rows may have subjects.
    rows
        How many rows will come, as far as that is known; it decides only how many piles there are.
    scratch
        Directory for the piles, which take as much room as the rows; None for the system's.

    Attributes
    ----------
    count
        Rows so far.
    largest
        (p + m,): the largest magnitude of each feature and target so far, NaN left out.
    """

    def __init__(
        self,
        files: Files,
        p: int,
        m: int,
        *,
        subjects: bool,
        rows: int | None = None,
        scratch: Path | None = None,
    ) -> None:
        self.count = 0
        self.largest: Array = np.zeros(p + m)
        self._files = files
        self._p, self._m = p, m
        self._salt = secrets.token_bytes(SALT_BYTES)
        self._held: list[pa.Table] = []
        self._held_bytes = 0
        expected = rows or _UNKNOWN_ROWS
        self._piles = _piles("order", expected * row_bytes(p, m), scratch)
        self._index = _piles("entry", expected * ORDER_BYTES, scratch) if subjects else None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for pile in (*self._piles, *(self._index or ())):
            pile.close()

    def add(
        self,
        ids: Sequence[str],
        rows: Rows,
        subjects: Sequence[str | None] | None = None,
        *,
        gaps: bool = False,
    ) -> None:
        """Add rows, whose arrays stay as they are until `finish`; ``gaps``: features may be NaN.

        Cost O(k (p + m)), and about 2 us a row for their hashes.

        Raises
        ------
        InvalidData
            One of their numbers is not finite.
        StoreUnavailable
            The directory for the piles cannot be written.
        """
        if not len(ids):
            return
        known = rows if not gaps else replace(rows, X=np.where(np.isnan(rows.X), 0.0, rows.X))
        known.check_finite()
        names = None if self._index is None else tuple(subjects or [None] * len(ids))
        block = Bucket(orders_of(self._salt, ids, names), tuple(ids), names, rows)
        self.count += len(ids)
        z = (rows.X, rows.y)
        ends = [(np.fmax.reduce(a), -np.fmin.reduce(a)) for a in z if a.shape[1]]
        self.largest = np.fmax(self.largest, np.concatenate([np.fmax(*each) for each in ends]))
        self._held.append(table_of(block))
        self._held_bytes += self._held[-1].nbytes
        if self._held_bytes > _HELD_BYTES:
            self._deal_out()

    def finish(
        self,
        on_bucket: Callable[[Bucket], None] = lambda _: None,
        recoded: Callable[[Rows], Rows] = lambda rows: rows,
    ) -> str:
        """Sort everything into buckets, and return their root; ``on_bucket`` gets each of them.

        What is written are the rows as ``recoded`` returns them, by what is known by now.
        Cost O(n (p + m) + n log n).

        Raises
        ------
        InvalidData
            There is no row, or a row's id occurs twice.
        StoreUnavailable
            A file, or a pile, cannot be written.
        """
        if not self.count:
            raise InvalidData("there are no rows")
        self._deal_out()
        with ThreadPoolExecutor(_WRITERS) as writers:
            writing: list[Future[Part]] = []
            for sorted_rows in self._sorted_buckets():
                bucket = replace(sorted_rows, rows=recoded(sorted_rows.rows))
                if len(writing) >= _WRITERS:
                    writing[-_WRITERS].result()  # no more of them wait in memory
                writing.append(writers.submit(put_bucket, self._files, bucket))
                on_bucket(bucket)
            buckets = tuple(each.result() for each in writing)
        manifest = Manifest(self._salt, self._p, self._m, buckets)
        if self._index is not None:
            manifest = replace(manifest, index=tuple(self._index_parts(manifest)))
        return put_root(self._files, manifest)

    def _deal_out(self) -> None:
        """Move the rows in memory to their piles."""
        if not self._held:
            return
        table = pa.concat_tables(self._held).combine_chunks()
        self._held, self._held_bytes = [], 0
        places = places_of(table, "order")
        _deal(table, _numbered(places, len(self._piles)), self._piles)
        if self._index is not None:
            groups, keys = np.hsplit(places, [ORDER_BYTES - KEY_BYTES])
            entries = np.hstack([keys, groups])
            table = pa.table({"entry": fixed(entries)})
            _deal(table, _numbered(entries, len(self._index)), self._index)

    def _sorted_buckets(self) -> Iterator[Bucket]:
        for table in _tables(self._piles):
            each = max(1, BUCKET_BYTES * len(table) // table.nbytes)
            rows = PackedBucket(table, self._p, self._m, "rows")
            order = sorting(rows.orders)
            twice = repeated(rows.orders[order])
            if len(twice):
                raise _twice(rows.take(order[twice[:1]]).ids[0])
            for start in range(0, len(rows), each):
                yield rows.take(order[start : start + each])
            del rows, table  # before the next ones are read

    def _index_parts(self, manifest: Manifest) -> Iterator[Part]:
        for table in _tables(self._index or []):
            entries = places_of(table.combine_chunks(), "entry")
            entries = entries[sorting(entries)]
            twice = repeated(entries[:, :KEY_BYTES])
            if len(twice):
                raise _twice(self._id_at(manifest, entries[twice[0]].tobytes()))
            for start in range(0, len(entries), INDEX_ROWS):
                yield put_index(self._files, entries[start : start + INDEX_ROWS].tobytes())

    def _id_at(self, manifest: Manifest, entry: bytes) -> str:
        """Return the id of the row that an entry of the index is of."""
        place = entry[KEY_BYTES:] + entry[:KEY_BYTES]
        part = manifest.bucket_of(place)
        data = None if part is None else self._files.get(part.digest)
        bucket = PackedBucket.of_file(data or b"", self._p, self._m, "a bucket")
        return bucket.take(bucket.between(place, place)).ids[0]


def _numbered(places: Order, count: int) -> NDArray[np.int64]:
    """Return into which of as many piles places belong, by their first two bytes."""
    high = places[:, 0].astype(np.int64) << 8 | places[:, 1]
    return high * count >> 16


def _deal(table: pa.Table, numbered: NDArray[np.int64], piles: Sequence[_Pile]) -> None:
    """Add each row to the pile of its number."""
    order = np.argsort(numbered, kind="stable")
    bounds = np.searchsorted(numbered[order], np.arange(len(piles) + 1))
    table = table.take(pa.array(order))
    for pile, start, end in zip(piles, bounds[:-1], bounds[1:], strict=True):
        if start < end:
            pile.add(table.slice(start, end - start))


def _tables(piles: list[_Pile]) -> Iterator[pa.Table]:
    """Yield the rows pile by pile, and give these up. What a large one is split into is added."""
    for pile in tuple(piles):
        parts = pile.split()
        piles += parts
        for part in parts:
            if (table := part.table()) is not None:
                yield table
                del table


def _twice(row: str) -> InvalidData:
    return InvalidData(f"row id {row!r} occurs twice; give each row an id of its own")


class _Pile:
    """Rows of a part of the order, in a file without a name; ``column`` has their places."""

    def __init__(self, column: str, scratch: Path | None) -> None:
        self._column = column
        self._scratch = scratch
        self._nbytes = 0
        self._file: IO[bytes] | None = None
        self._writer: Any = None

    def add(self, table: pa.Table) -> None:
        with self._reachable():
            if self._file is None:
                self._file = tempfile.TemporaryFile(dir=self._scratch)  # noqa: SIM115 - `close`
                self._writer = pa.ipc.new_stream(self._file, table.schema)
            self._writer.write_table(table)
        self._nbytes += table.nbytes

    def split(self) -> list[_Pile]:
        """Return piles of about `PILE_BYTES` in place of this one, or itself if it is no larger.

        It is larger where a subject has very many rows, or more rows came than were announced.
        Cost in memory: `ORDER_BYTES` a row.
        """
        count = min(_MOST_PILES, self._nbytes // PILE_BYTES)
        if count < 2:
            return [self]
        copies = [places_of(table, self._column).copy() for table in self._batches()]
        every = np.concatenate(copies)
        every = every[sorting(every)]
        cuts = comparable(every[np.arange(1, count) * len(every) // count])
        parts = [_Pile(self._column, self._scratch) for _ in range(count)]
        for table in self._batches():
            places = comparable(places_of(table, self._column))
            _deal(table, np.searchsorted(cuts, places, "right"), parts)
        self.close()
        return parts

    def table(self) -> pa.Table | None:
        """Return all rows, and give up the file; None if there are none."""
        tables = list(self._batches())
        self.close()
        return pa.concat_tables(tables) if tables else None

    def _batches(self) -> Iterator[pa.Table]:
        if self._file is None:
            return
        with self._reachable():
            self._writer.close()
            self._file.seek(0)
            for batch in pa.ipc.open_stream(self._file):
                yield pa.Table.from_batches([batch])

    @contextmanager
    def _reachable(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            place = self._scratch or tempfile.gettempdir()
            raise StoreUnavailable(
                f"rows that are being sorted, at {place}: {error.strerror or error}; check that "
                "the place exists, has room for all rows, and may be written by this process"
            ) from error

    def close(self) -> None:
        if self._file is not None:
            with suppress(OSError):  # no room for what is given up
                self._file.close()
            self._file = None


def _piles(column: str, size: int, scratch: Path | None) -> list[_Pile]:
    return [_Pile(column, scratch) for _ in range(min(_MOST_PILES, -(-size // PILE_BYTES)))]
