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
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import numpy as np
import pyarrow as pa

from lethe.engine.errors import InvalidData
from lethe.engine.fit.objective import Array, Rows
from lethe.engine.rowstore.bucket import (
    Bucket,
    PackedBucket,
    fixed,
    numbers,
    row_bytes,
    table_of,
)
from lethe.engine.rowstore.files import Files
from lethe.engine.rowstore.keys import (
    KEY_BYTES,
    ORDER_BYTES,
    SALT_BYTES,
    Order,
    orders_of,
    repeated,
    sorting,
)
from lethe.engine.rowstore.manifest import Manifest, Part
from lethe.engine.rowstore.parts import put, put_bucket, put_index

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
        (p + m,): the largest magnitude of each feature and target so far.
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
        self._row_bytes = row_bytes(p, m)
        self._held: list[pa.Table] = []
        self._held_rows = 0
        expected = rows or _UNKNOWN_ROWS
        self._piles = _piles(expected * self._row_bytes, scratch)
        self._index = _piles(expected * ORDER_BYTES, scratch) if subjects else None

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
        self, ids: Sequence[str], rows: Rows, subjects: Sequence[str | None] | None = None
    ) -> None:
        """Add rows. Cost O(k (p + m)), and about 2 us a row for their hashes."""
        if not len(ids):
            return
        names = None if self._index is None else tuple(subjects or [None] * len(ids))
        block = Bucket(orders_of(self._salt, ids, names), tuple(ids), names, rows)
        self.count += len(ids)
        z = (rows.X, rows.y)
        magnitudes = [np.maximum(a.max(axis=0), -a.min(axis=0)) for a in z if a.shape[1]]
        self.largest = np.maximum(self.largest, np.concatenate(magnitudes))
        self._held.append(table_of(block))
        self._held_rows += len(ids)
        if self._held_rows * self._row_bytes > _HELD_BYTES:
            self._deal_out()

    def finish(self, on_bucket: Callable[[Bucket], None] = lambda _: None) -> str:
        """Sort everything into buckets, and return their root; ``on_bucket`` gets each of them.

        Cost O(n (p + m) + n log n).

        Raises
        ------
        InvalidData
            There is no row, or a row's id occurs twice.
        StoreUnavailable
            A file cannot be written.
        """
        if not self.count:
            raise InvalidData("there are no rows")
        self._deal_out()
        with ThreadPoolExecutor(_WRITERS) as writers:
            writing: list[Future[Part]] = []
            for bucket in self._sorted_buckets():
                if len(writing) >= _WRITERS:
                    writing[-_WRITERS].result()  # no more of them wait in memory
                writing.append(writers.submit(put_bucket, self._files, bucket))
                on_bucket(bucket)
            buckets = tuple(each.result() for each in writing)
        manifest = Manifest(self._salt, self._p, self._m, buckets)
        if self._index is not None:
            manifest = replace(manifest, index=tuple(self._index_parts(manifest)))
        return put(self._files, manifest.pack())

    def _deal_out(self) -> None:
        """Move the rows in memory to their piles."""
        if not self._held:
            return
        table = pa.concat_tables(self._held).combine_chunks()
        self._held, self._held_rows = [], 0
        places = PackedBucket(table, self._p, self._m, "rows").orders
        for pile, part in _dealt(places, table, self._piles):
            pile.add(part)
        if self._index is not None:
            groups, keys = np.hsplit(places, [ORDER_BYTES - KEY_BYTES])
            entries = np.ascontiguousarray(np.hstack([keys, groups]))
            for pile, part in _dealt(entries, pa.table({"entry": fixed(entries)}), self._index):
                pile.add(part)

    def _sorted_buckets(self) -> Iterator[Bucket]:
        each = max(1, BUCKET_BYTES // self._row_bytes)
        for pile in self._piles:
            table = pile.table()
            if table is None:
                continue
            rows = PackedBucket(table, self._p, self._m, "rows")
            del table
            order = sorting(rows.orders)
            twice = repeated(rows.orders[order])
            if len(twice):
                raise _twice(rows.take(order[twice[:1]]).ids[0])
            for start in range(0, len(rows), each):
                yield rows.take(order[start : start + each])

    def _index_parts(self, manifest: Manifest) -> Iterator[Part]:
        for pile in self._index or ():
            table = pile.table()
            if table is None:
                continue
            entries = numbers(table.combine_chunks(), "entry", np.dtype(np.uint8), ORDER_BYTES)
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


def _dealt(
    places: Order, table: pa.Table, piles: Sequence[_Pile]
) -> Iterator[tuple[_Pile, pa.Table]]:
    """Yield each pile that some of the rows belong to, with these."""
    high = places[:, 0].astype(np.int64) << 8 | places[:, 1]
    numbered = high * len(piles) >> 16
    order = np.argsort(numbered, kind="stable")
    bounds = np.searchsorted(numbered[order], np.arange(len(piles) + 1))
    table = table.take(pa.array(order))
    for pile, start, end in zip(piles, bounds[:-1], bounds[1:], strict=True):
        if start < end:
            yield pile, table.slice(start, end - start)


def _twice(row: str) -> InvalidData:
    return InvalidData(f"row id {row!r} occurs twice; give each row an id of its own")


class _Pile:
    """Rows of a part of the order, in a file without a name."""

    def __init__(self, scratch: Path | None) -> None:
        self._scratch = scratch
        self._file: IO[bytes] | None = None
        self._writer: Any = None

    def add(self, table: pa.Table) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(dir=self._scratch)  # noqa: SIM115 - `close`
            self._writer = pa.ipc.new_stream(self._file, table.schema)
        self._writer.write_table(table)

    def table(self) -> pa.Table | None:
        """Return all rows, and give up the file; None if there are none."""
        if self._file is None:
            return None
        self._writer.close()
        self._file.seek(0)
        table = pa.ipc.open_stream(self._file).read_all()
        self.close()
        return table

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _piles(size: int, scratch: Path | None) -> list[_Pile]:
    return [_Pile(scratch) for _ in range(min(_MOST_PILES, -(-size // PILE_BYTES)))]
