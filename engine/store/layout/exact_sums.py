"""Exact sums as the store keeps them: fields of the hash ``sums`` of a generation.

``all`` has the sums as they were last written whole,

    format (1 byte) | D, m, P (uint16) | place of the first digit (int16) | units (D, int16)
    | digits (P x D (D + 1) / 2, int32, the lower triangle)

and ``since:0``, ``since:1``, ... the rows that have left or arrived since: float64, sign, and then
of each row its weight, features and targets. With preprocessing, rows are raw rows
(`engine.preprocess.rounded.raw`), and if their weights differ from 1, ``plain`` has the sums
without weights. Lengths are checked before anything is trusted.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lethe.engine.errors import CorruptState, IllConditioned, InvalidData
from lethe.engine.exact.digits import BITS, LONGEST, Digits
from lethe.engine.exact.kept import Kept, Moved
from lethe.engine.exact.rows import MOST
from lethe.engine.exact.running import Solution
from lethe.engine.exact.sums import RunningSums, Sums
from lethe.engine.fit.objective import Array, Rows
from lethe.engine.preprocess.rounded.raw import RawColumns
from lethe.engine.store.layout import codec
from lethe.engine.store.layout.pipeline_sums import SINCE

if TYPE_CHECKING:
    from lethe.engine.preprocess.rounded.solution import RunningRaw

_FORMAT = 1
_HEADER = struct.Struct("<BHHHh")
_UNIT = np.dtype("<i2")
_DIGIT = np.dtype("<i4")
_HALF = 1 << (BITS - 1)
_ALL = "all"


_PLAIN = "plain"


def packed_whole(kept: Kept) -> dict[str, bytes]:
    """Return the fields of a hash for sums that were written whole, without what moved since."""
    fields = {_ALL: _packed(kept.written)}
    return fields if kept.plain is None else {**fields, _PLAIN: _packed(kept.plain)}


def _packed(sums: Sums) -> bytes:
    D, entries = len(sums.unit), sums.entries
    header = _HEADER.pack(_FORMAT, D, sums.m, len(entries.places), entries.first)
    digits = entries.places[:, *np.tril_indices(D)]
    return header + sums.unit.astype(_UNIT).tobytes() + digits.astype(_DIGIT).tobytes()


def new_fields(before: Solution | None, after: Solution | None) -> tuple[dict[str, bytes], bool]:
    """Return the fields that a step adds, and whether all others go: the sums are written whole.

    Nothing of a model without exact sums.
    """
    if before is None or after is None or before.kept is None or after.kept is None:
        return {}, False
    whole = after.kept.written is not before.kept.written
    first = 0 if whole else len(before.kept.since)
    fields = packed_whole(after.kept) if whole else {}
    for number, moved in enumerate(after.kept.since[first:], first):
        fields[f"{SINCE}{number}"] = codec.pack(_as_numbers(moved))
    return fields, whole


def _as_numbers(moved: Moved) -> Array:
    rows = moved.rows
    return np.append(
        np.float64(moved.sign), np.hstack([rows.weight[:, np.newaxis], rows.X, rows.y])
    )


def solution_of(rows: Rows, penalty: Array, raw: RawColumns | None) -> Solution:
    """Return the solution for rows: with preprocessing raw rows, whose columns are in ``raw``.

    Cost and errors as of `engine.exact.running.Solution.of` and `engine.exact.sums.Sums.of`.
    """
    if raw is None:
        return Solution.of(Sums.of(rows), penalty)
    from lethe.engine.preprocess.rounded.solution import (  # noqa: PLC0415 (flint: few need it)
        PipelineSolution,
    )

    return PipelineSolution.of_rows(raw, rows)


class SolutionInBlocks:
    """The solution for rows that come in blocks, in units that are known before.

    Parameters
    ----------
    unit, m
        As of `engine.exact.sums.Sums`.
    penalty, raw
        As of `solution_of`.
    """

    def __init__(
        self, unit: NDArray[np.int_], m: int, penalty: Array, raw: RawColumns | None
    ) -> None:
        self._penalty, self._raw = penalty, raw
        self._running: RunningSums | RunningRaw = RunningSums(unit, m)
        if raw is not None:
            from lethe.engine.preprocess.rounded.solution import (  # noqa: PLC0415 (as above)
                RunningRaw,
            )

            self._running = RunningRaw(unit, m)

    def add(self, rows: Rows) -> None:
        """Add rows: with preprocessing raw rows. Cost O(k d^2)."""
        self._running.add(rows)

    def solution(self) -> Solution:
        """Return the solution for the rows so far. Cost and errors as of `solution_of`."""
        if isinstance(self._running, RunningSums):
            return Solution.of(self._running.sums(), self._penalty)
        assert self._raw is not None, "of raw rows"  # noqa: S101
        return self._running.solution(self._raw)


def read_solution(
    stored: Mapping[bytes, bytes],
    penalty: Array,
    m: int,
    what: str,
    theta: Array | None = None,
    raw: RawColumns | None = None,
    *,
    most: int = MOST,
) -> Solution:
    """Return the solution for stored sums; ``theta``, d x m, is what is stored of it, if anything.

    ``raw``: of a model with preprocessing. ``most`` rows may come to lie beside the sums.

    Raises
    ------
    CorruptState
        They are not the sums of this model, or not those that the head was computed from.
    """
    what = f"{what}, its sums"
    d = len(penalty) if raw is None else raw.width
    unweighted = None if raw is None else stored.get(_PLAIN.encode())
    count = len(stored) - (1 if unweighted is None else 2)
    parts = [stored.get(f"{SINCE}{number}".encode()) for number in range(count)]
    since = tuple(_read_moved(part, d, m, what) for part in parts)
    plain = None if unweighted is None else _read_whole(unweighted, d, m, what)
    kept = Kept(_read_whole(stored.get(_ALL.encode()), d, m, what), since, plain, most)
    try:
        solution = _resumed(kept, penalty, raw)
    except (InvalidData, IllConditioned) as error:
        raise CorruptState(f"{what}: are not those of a model ({error})") from None
    if theta is not None and not np.array_equal(solution.minimiser.theta, theta):
        raise CorruptState(
            f"{what}: do not give the parameters that its head has; restore the store from a "
            "backup, or register the model again with --replace"
        )
    return solution


def _resumed(kept: Kept, penalty: Array, raw: RawColumns | None) -> Solution:
    if raw is None:
        return Solution.resumed(kept, penalty)
    from lethe.engine.preprocess.rounded.solution import (  # noqa: PLC0415 (as above)
        PipelineSolution,
    )

    return PipelineSolution.read(raw, kept)


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
    if abs(numbers[0]) != 1 or count < 1 or not (weight >= 0).all():
        raise CorruptState(f"{what}: a row does not fit the model; run `lethe check`")
    return Moved(int(numbers[0]), Rows(X.copy(), y.copy(), weight[:, 0].copy()))
