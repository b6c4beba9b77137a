"""Bytes of stored arrays and row records. Lengths are checked before anything is trusted.

Arrays are raw little-endian float64, row major. A row record is

    codec (1 byte) | incarnation (uint32) | weight (float64) | x (d) | y (m) | w (h d), float64

with h blocks (`engine.fit.blocks`): 1, or the number of classes if there are more than two. Of a
model with preprocessing, x is the row as it was given (`engine.store.layout.preprocessing`).
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from lethe.engine.errors import CorruptState

if TYPE_CHECKING:
    from lethe.engine.fit.objective import Array

DENSE = 1
"""The only row codec so far."""

_ROW_HEADER = struct.Struct("<BId")
_WEIGHT_AT = struct.calcsize("<BI")
_FLOAT = np.dtype("<f8")
_SIGN = struct.Struct("<b")


def pack(array: Array) -> bytes:
    """Return the raw bytes of an array."""
    return np.ascontiguousarray(array, dtype=_FLOAT).tobytes()


def unpack(data: bytes | None, shape: tuple[int, ...], what: str) -> Array:
    """Return the array of this shape.

    Raises
    ------
    CorruptState
        The bytes are missing, have another length, or hold a number that is not finite.
    """
    expected = math.prod(shape) * _FLOAT.itemsize  # np.prod would overflow silently
    if data is None or len(data) != expected:
        actual = "no bytes" if data is None else f"{len(data)} bytes"
        raise CorruptState(
            f"{what}: {actual} where {expected} belong (shape {shape}); restore the store from a "
            "backup, or register the model again with --replace"
        )
    array = np.frombuffer(data, dtype=_FLOAT).reshape(shape).astype(np.float64)
    if not np.isfinite(array).all():
        raise CorruptState(f"{what}: holds a number that is not finite")
    return array


def pack_signed_row(row: Array, sign: int = -1) -> bytes:
    """Return a row of V with its sign: -1 for a deletion (a downdate), +1 for an insertion."""
    return _SIGN.pack(sign) + pack(row)


def unpack_signed_rows(rows: list[bytes], d: int, what: str) -> tuple[Array, list[int]]:
    """Return stored rows of V as a matrix of d columns, and their signs.

    Raises
    ------
    CorruptState
        A row is not d finite numbers after a sign.
    """
    signs = [_SIGN.unpack_from(row)[0] if row else 0 for row in rows]
    if not {-1, 1}.issuperset(signs):
        raise CorruptState(f"{what}: a row is no deletion and no insertion; upgrade this worker")
    return unpack_matrix([row[1:] for row in rows], d, what), signs


def unpack_matrix(rows: list[bytes], d: int, what: str) -> Array:
    """Return stored rows as a matrix of d columns.

    Raises
    ------
    CorruptState
        A row is not d finite numbers. Their total alone would let one row borrow from another.
    """
    size = d * _FLOAT.itemsize
    wrong_size = next((len(row) for row in rows if len(row) != size), None)
    if wrong_size is not None:
        raise CorruptState(
            f"{what}: a row has {wrong_size} bytes where {size} belong; run `lethe check`"
        )
    return unpack(b"".join(rows), (len(rows), d), what)


@dataclass(frozen=True, slots=True)
class RowRecords:
    """k decoded row records: features k x d, targets k x m, weights (k,), dual rows k x (h d)."""

    X: Array
    y: Array
    weight: Array
    W: Array


def row_size(d: int, m: int, h: int = 1, *, given: int | None = None) -> int:
    """Return the length of a row record in bytes: 13 + 8 (d + m + h d).

    ``given``: how many numbers x has instead of d.
    """
    return _row(d if given is None else given, m, h * d).itemsize


def pack_row(x: Array, y: Array, weight: float, w: Array, incarnation: int = 0) -> bytes:
    """Return one row record."""
    return _ROW_HEADER.pack(DENSE, incarnation, weight) + pack(x) + pack(y) + pack(w)


def pack_rows(X: Array, y: Array, weight: Array, W: Array) -> list[bytes]:
    """Return the records of k rows that were never corrected, as `pack_row` writes each."""
    layout = _row(X.shape[1], y.shape[1], W.shape[1])
    rows = np.zeros(len(X), dtype=layout)
    rows["codec"], rows["weight"], rows["x"], rows["y"], rows["w"] = DENSE, weight, X, y, W
    records: list[bytes] = rows.view(f"V{layout.itemsize}").tolist()
    return records


def incarnation_of(record: bytes) -> int:
    """Return how often a row was corrected, from its record."""
    return int(_ROW_HEADER.unpack_from(record)[1])


def weight_of(record: bytes) -> float:
    """Return a row's weight, from its record."""
    return float(_ROW_HEADER.unpack_from(record)[2])


def target_of(record: bytes, x: int, m: int) -> Array:
    """Return a row's targets, (m,), from its record, which has x numbers before them."""
    return np.frombuffer(record, _FLOAT, m, _ROW_HEADER.size + 8 * x).astype(np.float64)


def values_of(record: bytes, x: int, m: int) -> bytes:
    """Return a row's weight, its x numbers and target as bytes, from its record."""
    return record[_WEIGHT_AT : _ROW_HEADER.size + 8 * (x + m)]


def unpack_rows(
    records: list[bytes], d: int, m: int, what: str, h: int = 1, *, given: int | None = None
) -> RowRecords:
    """Return row records, of h blocks, as matrices.

    ``given``: x has so many numbers, which may be NaN, and the caller checks them.

    Raises
    ------
    CorruptState
        A record has another length or codec, a weight that is not positive, or a number that is
        not finite.
    """
    layout = _row(d if given is None else given, m, h * d)
    size = layout.itemsize
    if any(len(record) != size or record[0] != DENSE for record in records):
        raise CorruptState(f"{what}: a row record is not {size} bytes of codec {DENSE}")
    rows = np.frombuffer(b"".join(records), dtype=layout)
    weight = rows["weight"].astype(np.float64)
    if not ((weight > 0) & (weight < np.inf)).all():
        raise CorruptState(f"{what}: a row's weight is not a positive number")
    X, y, W = (rows[name].astype(np.float64) for name in ("x", "y", "w"))
    finite = (X, y, W) if given is None else (y, W)
    if not all(np.isfinite(array).all() for array in finite):
        raise CorruptState(f"{what}: holds a number that is not finite")
    return RowRecords(X, y, weight, W)


@lru_cache(maxsize=256)
def _row(x: int, m: int, w: int) -> np.dtype[np.void]:
    """Return the layout of a row record, as `pack_row` writes it."""
    numbers = [
        ("weight", _FLOAT),
        ("x", _FLOAT, (x,)),
        ("y", _FLOAT, (m,)),
        ("w", _FLOAT, (w,)),
    ]
    return np.dtype([("codec", "u1"), ("incarnation", "<u4"), *numbers])
