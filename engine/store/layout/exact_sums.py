"""Exact sums as the store keeps them: fields of the hash ``sums`` of a generation.

``all`` has the sums as they were last written whole,

    format (1 byte) | D, m, P (uint16) | place of the first digit (int16) | units (D, int16)
    | digits (P x D (D + 1) / 2, int32, the lower triangle)

and ``since:0``, ``since:1``, ... the rows that have left or arrived since: float64, sign, and then
of each row its weight, features and targets. Lengths are checked before anything is trusted.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

import numpy as np

from lethe.engine.errors import CorruptState, IllConditioned, InvalidData
from lethe.engine.exact.digits import BITS, LONGEST, Digits
from lethe.engine.exact.kept import Kept, Moved
from lethe.engine.exact.running import Solution
from lethe.engine.exact.sums import Sums
from lethe.engine.fit.objective import Array, Rows
from lethe.engine.store.layout import codec
from lethe.engine.store.layout.preprocessing import SINCE

_FORMAT = 1
_HEADER = struct.Struct("<BHHHh")
_UNIT = np.dtype("<i2")
_DIGIT = np.dtype("<i4")
_HALF = 1 << (BITS - 1)
_ALL = "all"


def packed_whole(sums: Sums) -> dict[str, bytes]:
    """Return sums as the fields of a hash, whole: nothing has come or gone since."""
    D, entries = len(sums.unit), sums.entries
    header = _HEADER.pack(_FORMAT, D, sums.m, len(entries.places), entries.first)
    digits = entries.places[:, *np.tril_indices(D)]
    return {_ALL: header + sums.unit.astype(_UNIT).tobytes() + digits.astype(_DIGIT).tobytes()}


def new_fields(before: Solution | None, after: Solution | None) -> tuple[dict[str, bytes], bool]:
    """Return the fields that a step adds, and whether all others go: the sums are written whole.

    Nothing of a model without exact sums.
    """
    if before is None or after is None or before.kept is None or after.kept is None:
        return {}, False
    whole = after.kept.written is not before.kept.written
    first = 0 if whole else len(before.kept.since)
    fields = packed_whole(after.kept.written) if whole else {}
    for number, moved in enumerate(after.kept.since[first:], first):
        fields[f"{SINCE}{number}"] = codec.pack(_as_numbers(moved))
    return fields, whole


def _as_numbers(moved: Moved) -> Array:
    rows = moved.rows
    return np.append(
        np.float64(moved.sign), np.hstack([rows.weight[:, np.newaxis], rows.X, rows.y])
    )


def read_solution(
    stored: Mapping[bytes, bytes], penalty: Array, m: int, what: str, theta: Array | None = None
) -> Solution:
    """Return the solution for stored sums; ``theta``, d x m, is what is stored of it, if anything.

    Raises
    ------
    CorruptState
        They are not the sums of this model, or not those that the head was computed from.
    """
    what = f"{what}, its sums"
    d = len(penalty)
    parts = [stored.get(f"{SINCE}{number}".encode()) for number in range(len(stored) - 1)]
    since = tuple(_read_moved(part, d, m, what) for part in parts)
    kept = Kept(_read_whole(stored.get(_ALL.encode()), d, m, what), since)
    try:
        solution = Solution.resumed(kept, penalty)
    except (InvalidData, IllConditioned) as error:
        raise CorruptState(f"{what}: are not those of a model ({error})") from None
    if theta is not None and not np.array_equal(solution.minimiser.theta, theta):
        raise CorruptState(
            f"{what}: do not give the parameters that its head has; restore the store from a "
            "backup, or register the model again with --replace"
        )
    return solution


def _read_whole(stored: bytes | None, d: int, m: int, what: str) -> Sums:
    damaged = CorruptState(
        f"{what}: are damaged, or of another format; restore the store from a backup, or register "
        "the model again with --replace"
    )
    if stored is None or len(stored) < _HEADER.size:
        raise damaged
    number, D, targets, P, first = _HEADER.unpack_from(stored)
    entries = D * (D + 1) // 2
    size = _HEADER.size + D * _UNIT.itemsize + P * entries * _DIGIT.itemsize
    if (number, D, targets, len(stored)) != (_FORMAT, d + m, m, size) or P > 3 * LONGEST:
        raise damaged
    unit = np.frombuffer(stored, _UNIT, D, _HEADER.size).astype(np.int_)
    flat = np.frombuffer(stored, _DIGIT, P * entries, _HEADER.size + unit.size * _UNIT.itemsize)
    if not ((flat >= -_HALF) & (flat < _HALF)).all():
        raise damaged
    places = np.zeros((P, D, D), np.int64)
    rows, columns = np.tril_indices(D)
    places[:, rows, columns] = flat.reshape(P, entries)
    places[:, columns, rows] = places[:, rows, columns]
    return Sums(unit, Digits(first, places), m)


def _read_moved(stored: bytes | None, d: int, m: int, what: str) -> Moved:
    width = 1 + d + m
    count = (0 if stored is None else len(stored) // 8 - 1) // width
    numbers = codec.unpack(stored, (1 + count * width,), what)
    weight, X, y = np.split(numbers[1:].reshape(count, width), [1, 1 + d], axis=1)
    if abs(numbers[0]) != 1 or count < 1 or not (weight > 0).all():
        raise CorruptState(f"{what}: a row is none of the model's; run `lethe check`")
    return Moved(int(numbers[0]), Rows(X.copy(), y.copy(), weight[:, 0].copy()))
