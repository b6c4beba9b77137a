"""An immutable matrix that grows by rows at the cost of the new rows only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from lethe.engine.fit.objective import Array

_FIRST_CAPACITY = 16


@dataclass(slots=True)
class _Buffer:
    data: Array
    used: int
    readable: Array = field(init=False)  # all of ``data``; its views are read-only

    def __post_init__(self) -> None:
        self.readable = self.data.view()
        self.readable.flags.writeable = False


@dataclass(frozen=True, slots=True)
class GrowingRows:
    """A K x d matrix; `append` returns a longer one and leaves this one as it is.

    The longest matrix of a family shares its buffer with the shorter ones, which see only their
    own first rows; appending to a shorter one copies. Appending r rows costs O(r d) amortised.
    """

    _buffer: _Buffer = field(repr=False)
    length: int

    @classmethod
    def empty(cls, d: int) -> GrowingRows:
        """Return a 0 x d matrix."""
        return cls(_Buffer(np.empty((_FIRST_CAPACITY, d)), 0), 0)

    @classmethod
    def of(cls, rows: Array) -> GrowingRows:
        """Return a matrix that holds a copy of ``rows``."""
        return cls.empty(rows.shape[1]).append(rows)

    def __len__(self) -> int:
        return self.length

    def __reduce__(self) -> tuple[Callable[[Array], GrowingRows], tuple[Array]]:
        """Copy and pickle the rows alone, into a buffer of the copy's own."""
        return GrowingRows.of, (self.array,)

    @property
    def array(self) -> Array:
        """The matrix, as a view that must not be written to."""
        return self._buffer.readable[: self.length]

    def append(self, rows: Array) -> GrowingRows:
        """Return this matrix with ``rows`` (r x d) below it."""
        start, buffer = self.length, self._buffer
        end = start + len(rows)
        if buffer.used != start or end > len(buffer.data):
            capacity = max(_FIRST_CAPACITY, 2 * end)
            data = np.empty((capacity, buffer.data.shape[1]))
            data[:start] = buffer.data[:start]
            buffer = _Buffer(data, start)
        buffer.data[start:end] = rows
        buffer.used = end
        return GrowingRows(buffer, end)
