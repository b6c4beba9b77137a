"""A bucket: some rows as the bytes of one Parquet file.

Columns: ``order`` (the row's place, 24 bytes), ``id``, ``subject`` if rows have some, ``weight``,
``y`` and ``x`` (the numbers of a row in one value, float32 where that loses nothing). Other tools
read it as it is; nothing of it is believed unless its digest is the one of the manifest.
"""

from __future__ import annotations

import io
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from lethe.engine.errors import CorruptState
from lethe.engine.fit.objective import Rows
from lethe.engine.rowstore.keys import ORDER_BYTES, SALT_BYTES, Order, comparable, sorting

_WIDE, _NARROW = np.dtype("<f8"), np.dtype("<f4")
_X_TYPE, _SALT = b"lethe.x", b"lethe.salt"
_X_TYPES = {kind.str.encode(): kind for kind in (_WIDE, _NARROW)}
_COMPRESSED = {"id": "ZSTD", "subject": "ZSTD", "weight": "ZSTD", "y": "ZSTD"}


@dataclass(frozen=True, slots=True)
class Bucket:
    """Rows of a model in order, k of them.

    Attributes
    ----------
    orders
        (k, 24): their places.
    ids, subjects
        Of each row; ``subjects`` None if the rows of the model have none.
    rows
        Features (k x p, without an intercept), targets and weights. Of a model with preprocessing
        X is what was given of each row, with NaN where a number is missing.
    """

    orders: Order
    ids: tuple[str, ...]
    subjects: tuple[str | None, ...] | None
    rows: Rows

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, index: NDArray[np.intp]) -> Bucket:
        """Return the rows at ``index``."""
        subjects = self.subjects
        return Bucket(
            self.orders[index],
            tuple(self.ids[i] for i in index),
            None if subjects is None else tuple(subjects[i] for i in index),
            self.rows.take(index),
        )


def joined(buckets: Sequence[Bucket]) -> Bucket:
    """Return all rows of buckets in order. Cost O(k log k)."""
    order = sorting(np.concatenate([bucket.orders for bucket in buckets]))
    subjects = [name for bucket in buckets for name in bucket.subjects or ()]
    parts = [bucket.rows for bucket in buckets]
    return Bucket(
        np.concatenate([bucket.orders for bucket in buckets]),
        tuple(row for bucket in buckets for row in bucket.ids),
        tuple(subjects) if buckets[0].subjects is not None else None,
        Rows(
            np.concatenate([rows.X for rows in parts]),
            np.concatenate([rows.y for rows in parts]),
            np.concatenate([rows.weight for rows in parts]),
        ),
    ).take(order)


def row_bytes(p: int, m: int) -> int:
    """Return about how many bytes a row with a short id takes in a bucket, at most."""
    return ORDER_BYTES + 8 * (1 + p + m) + 32


def table_of(bucket: Bucket, kind: np.dtype[Any] = _WIDE) -> pa.Table:
    """Return the rows as a table of Arrow, which shares their numbers if it can."""
    rows = bucket.rows
    columns: dict[str, Any] = {
        "order": fixed(bucket.orders),
        "id": pa.array(bucket.ids, pa.string()),
        "weight": pa.array(rows.weight, pa.float64()),
        "y": fixed(rows.y.astype(_WIDE, copy=False)),
        "x": fixed(rows.X.astype(kind, copy=False)),
    }
    if bucket.subjects is not None:
        columns["subject"] = pa.array(bucket.subjects, pa.string())
    return pa.table(columns, metadata={_X_TYPE: kind.str.encode()})


def pack_bucket(bucket: Bucket) -> bytes:
    """Return the rows as a Parquet file, which no other one equals. Cost O(k (p + m)).

    A random number is in it, so that nobody who has its digest and all rows but one, which was
    deleted since, can tell whether a guess of that one is right.
    """
    with np.errstate(over="ignore"):
        narrow = np.array_equal(bucket.rows.X.astype(_NARROW), bucket.rows.X, equal_nan=True)
    table, sink = table_of(bucket, _NARROW if narrow else _WIDE), io.BytesIO()
    metadata = {**table.schema.metadata, _SALT: secrets.token_hex(SALT_BYTES)}
    table = table.replace_schema_metadata(metadata)
    pq.write_table(
        table,
        sink,
        row_group_size=max(1, len(bucket)),
        compression={name: _COMPRESSED.get(name, "NONE") for name in table.column_names},
        use_dictionary=False,
        write_statistics=False,
    )
    return sink.getvalue()


def fixed(values: NDArray[Any]) -> pa.Array:
    """Return the rows of an array as values of one length, without a copy of them."""
    if not values.shape[1]:  # Parquet has no values of no bytes
        values = np.zeros((len(values), 1), values.dtype)
    values = np.ascontiguousarray(values)
    kind = pa.binary(values.itemsize * values.shape[1])
    return pa.FixedSizeBinaryArray.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


class PackedBucket:
    """A bucket as its file has it: rows are unpacked when they are asked for.

    Parameters
    ----------
    table
        As `table_of` makes it.
    p, m
        Numbers of features and targets of a row.
    what
        Which bucket it is, for messages.

    Attributes
    ----------
    nbytes
        About the bytes of memory that it takes.

    Raises
    ------
    CorruptState
        It is no bucket of this model.
    """

    def __init__(self, table: pa.Table, p: int, m: int, what: str) -> None:
        self._what = what
        try:
            table = table.combine_chunks()
            self.nbytes: int = table.nbytes
            self._x = numbers(table, "x", _X_TYPES[(table.schema.metadata or {})[_X_TYPE]], p)
            self._y = numbers(table, "y", _WIDE, m)
            self._weight = table["weight"].to_numpy()
            self._ids = table["id"]
            self._subjects = table["subject"] if "subject" in table.column_names else None
            self.orders = places_of(table, "order")
        except (pa.ArrowException, KeyError, ValueError, TypeError) as error:
            raise _no_bucket(what, error) from None

    @classmethod
    def of_file(cls, data: bytes, p: int, m: int, what: str) -> PackedBucket:
        """Return the bucket that a file has, whose digest is right; raises `CorruptState`."""
        try:
            table = pq.ParquetFile(pa.BufferReader(data)).read(use_threads=False)
        except (pa.ArrowException, OSError) as error:
            raise _no_bucket(what, error) from None
        return cls(table, p, m, what)

    def __len__(self) -> int:
        return len(self.orders)

    def all(self) -> Bucket:
        """Return all rows. Cost O(k (p + m))."""
        return self.take(slice(None))

    def take(self, index: NDArray[np.intp] | slice) -> Bucket:
        """Return the rows at ``index``.

        Raises
        ------
        CorruptState
            One of their numbers is not finite; features may be missing.
        """
        x, y, weight = (a[index].astype(np.float64) for a in (self._x, self._y, self._weight))
        if np.isinf(x).any() or not all(np.isfinite(a).all() for a in (y, weight)):
            raise CorruptState(f"{self._what}: holds a number that is not finite")
        subjects = self._subjects
        return Bucket(
            self.orders[index],
            _texts(self._ids, index),
            None if subjects is None else _texts(subjects, index),
            Rows(x, y, weight),
        )

    def between(self, least: bytes, most: bytes) -> slice:
        """Return where the rows with places from ``least`` to ``most`` are. Cost O(log k)."""
        text = comparable(self.orders)
        bounds = np.array([least, most], text.dtype)
        first = np.searchsorted(text, bounds[0], "left")
        return slice(int(first), int(np.searchsorted(text, bounds[1], "right")))


def _no_bucket(what: str, error: Exception) -> CorruptState:
    reason = str(error).partition("\n")[0]
    return CorruptState(f"{what}: is no bucket of rows of this model ({reason})")


def _texts(column: Any, index: NDArray[np.intp] | slice) -> tuple[Any, ...]:
    if isinstance(index, slice):
        start, stop, _ = index.indices(len(column))
        return tuple(column.slice(start, max(0, stop - start)).to_pylist())
    return tuple(column.take(pa.array(index)).to_pylist())


def numbers(table: pa.Table, name: str, kind: np.dtype[Any], width: int) -> NDArray[Any]:
    """Return a column of values of ``width`` numbers as k x width, without a copy."""
    k, column = len(table), table[name]
    if column.type != pa.binary(kind.itemsize * max(1, width)) or column.null_count:
        raise ValueError(f"column {name} has type {column.type}")
    if not k or not width:
        return np.empty((k, width), kind)
    [chunk] = column.chunks
    start = chunk.offset * kind.itemsize * width
    values = np.frombuffer(chunk.buffers()[1], kind, k * width, start)
    return values.reshape(k, width)


def places_of(table: pa.Table, column: str) -> Order:
    """Return a column of places, without a copy; raises ValueError as `numbers`."""
    return numbers(table, column, np.dtype(np.uint8), ORDER_BYTES)


def former_of(bucket: Bucket, row_ids: frozenset[str]) -> Bucket:
    """Return those of some rows that are a subject's, without their numbers."""
    owners = bucket.subjects or (None,) * len(bucket)
    pairs = enumerate(zip(bucket.ids, owners, strict=True))
    keep = [i for i, (row, owner) in pairs if owner is not None and row in row_ids]
    taken = bucket.take(np.array(keep, dtype=np.intp))
    k = len(taken)
    return replace(taken, rows=Rows(np.empty((k, 0)), np.empty((k, 0)), np.ones(k)))


def without(bucket: Bucket, row_ids: frozenset[str]) -> Bucket:
    """Return a bucket without some rows; itself if it has none of them."""
    keep = [i for i, row in enumerate(bucket.ids) if row not in row_ids]
    return bucket if len(keep) == len(bucket) else bucket.take(np.array(keep, dtype=np.intp))
