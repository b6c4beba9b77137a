"""Rows that do not fit into memory, as what is learnt of them reads them: block by block."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol, TypeAlias, TypeVar

from lethe.engine.fit.objective import Array
from lethe.engine.preprocess.input.table import Table

T = TypeVar("T")

OfGiven: TypeAlias = Callable[[Table, Array, Array], T]
"""A kernel of rows as they were given, their targets (k x m) and weights (k,)."""


class GivenInBlocks(Protocol):
    """Rows as they were given, which are read block by block, as often as is asked."""

    @property
    def outputs(self) -> int:
        """How many targets each has."""

    def __len__(self) -> int:
        """How many there are."""

    def each(self, kernel: OfGiven[T]) -> Iterator[T]:
        """Yield what a kernel makes of each block (`engine.fit.objective.RowsInBlocks.each`)."""

    def here(self, kernel: OfGiven[T]) -> Iterator[T]:
        """Yield the same, computed by this process."""
