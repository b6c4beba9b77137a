"""How far back a takeover reads the topics of versions, parameters and receipts.

Where the worker of a partition has left a mark, everything that the store can have lost since was
published behind it (`consumers.marks`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from consumers.log.base import Bounds, Partition

TAIL = 1000
"""Newest records of a partition that a takeover reads at least."""

NET = 100
"""Newest receipts that it reads although a mark says that no store has lost them: a safety net."""

FARTHEST = 100_000
"""Newest records of a partition that it reads at most: about five seconds."""


@dataclass(frozen=True)
class Reach:
    """From where on each partition is read.

    Attributes
    ----------
    least
        The newest records that are read in any case.
    marks
        Where the topics ended once, by partition. What lies behind the earliest of them is read
        as well, up to `FARTHEST` records; so is a partition that a mark does not know, because
        it was added since.
    """

    least: int
    marks: tuple[Mapping[str, int], ...] = ()

    @classmethod
    def behind(cls, marks: Iterable[Mapping[str, int]]) -> Reach:
        """Return what may be lost by a store that has these marks; where one is empty, anything."""
        distinct = {frozenset(mark.items()) for mark in marks}
        least = NET if all(distinct) else FARTHEST
        return cls(least, tuple(dict(mark) for mark in distinct if mark))

    def first(self, partition: Partition, bounds: Bounds) -> int:
        """Return the first offset to read."""
        known = [mark.get(str(partition), bounds.begin) for mark in self.marks]
        first = min([bounds.end - self.least, *known])
        return max(bounds.begin, bounds.end - FARTHEST, first)
