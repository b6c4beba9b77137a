"""Numeric columns into one array, block by block: no other copy of them is made."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lethe.consumers.registration.table.file import Opened, TableFile
from lethe.consumers.registration.table.parquet import changed
from lethe.engine.fit.objective import Array

_TRANSPOSED = 256
"""Rows that are written at once: a block of the array then stays in the processor's cache."""


@dataclass(frozen=True, slots=True)
class Streamed:
    """A table that was read in blocks.

    Attributes
    ----------
    rest
        The columns that are not in the array.
    names
        The columns of the array.
    design
        n x (p + 1) float64: these columns, and a last one of ones.
    bad
        Those of them that hold something else than finite numbers; the array's are then undefined.
    """

    rest: TableFile
    names: tuple[str, ...]
    design: Array
    bad: tuple[str, ...]


def stream(
    opened: Opened,
    kinds: dict[str, pa.DataType],
    numeric: Sequence[str],
    others: Collection[str],
    rows: int,
    on_rows: Callable[[int], None],
) -> Streamed:
    """Read the columns ``numeric`` into an array, and ``others`` as they are.

    ``rows``: how many there are, at most. Cost 8 n (p + 1) bytes, and one block.

    Raises
    ------
    InvalidData, pyarrow.ArrowInvalid
        As `Opened.blocks`; or the table has more rows than before.
    """
    design = np.empty((rows, len(numeric) + 1))
    others = [name for name in opened.names if name in others]
    only = [*others, *numeric]
    good, kept, done = dict.fromkeys(numeric, True), [], 0
    counts = [0] * len(opened.source.files)
    for index, block in opened.blocks(kinds, only):
        end = done + block.num_rows
        if end > rows:
            raise changed(opened.source.files[index].shown)
        columns = [_numbers(block.column(name)) if good[name] else None for name in numeric]
        good = {name: column is not None for name, column in zip(numeric, columns, strict=True)}
        _fill(design[done:end], columns)
        kept.append(block.select(others))
        counts[index] += block.num_rows
        done = end
        on_rows(done)
    rest = TableFile(opened.source, opened.joined(kept, kinds, others), tuple(counts))
    bad = tuple(name for name in numeric if not good[name])
    return Streamed(rest, tuple(numeric), design[:done], bad)


def _numbers(column: pa.ChunkedArray) -> Array | None:
    """Return a column of numbers as float64; None if one of them is not finite, or is rounded."""
    if column.null_count:
        return None
    try:
        values: Array = pc.cast(column, pa.float64()).to_numpy()
    except pa.ArrowInvalid:  # a whole number beyond 2^53
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        finite = np.isfinite(values.sum()) or np.isfinite(values).all()
    return values if finite else None


def _fill(block: Array, columns: Sequence[Array | None]) -> None:
    block[:, -1] = 1.0
    for start in range(0, len(block), _TRANSPOSED):
        part = slice(start, start + _TRANSPOSED)
        for place, column in enumerate(columns):
            if column is not None:
                block[part, place] = column[part]
