"""Exact sums as a store keeps them: written whole now and then, and the rows that moved since.

To write d^2 numbers with every change would cost more than the change. So a change writes its rows
beside the sums, 8 (d + m + 1) bytes each, until there are `MOST`; the next one writes the sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from lethe.engine.exact.rows import MOST, ChangedRows
from lethe.engine.exact.sums import Sums
from lethe.engine.fit.objective import Rows


class Moved(NamedTuple):
    """Rows that left (``sign`` -1) or arrived (1) together."""

    sign: int
    rows: Rows


@dataclass(frozen=True, slots=True)
class Kept:
    """What a store has of the sums of the live rows.

    Attributes
    ----------
    written
        Sums as they were last written whole.
    since
        Rows that have left or arrived since, in order.
    plain
        Of a pipeline with weights, the sums without them, as they were last written whole.
    most
        Rows that may lie beside the sums: none where a store keeps its rows encrypted.
    """

    written: Sums
    since: tuple[Moved, ...] = ()
    plain: Sums | None = None
    most: int = MOST

    def sums(self) -> Sums:
        """Return the sums of the live rows. Cost O(D^2) a row."""
        sums = self.written
        for moved in self.since:
            sums = sums.changed(ChangedRows.of(moved.rows, moved.sign, sums.unit))
        return sums

    def joined(self, moved: Sequence[Moved]) -> Kept | None:
        """Return what is kept with more rows beside it; None if they are too many."""
        since = (*self.since, *moved)
        few = sum(len(part.rows) for part in since) <= self.most
        return replace(self, since=since) if few else None
