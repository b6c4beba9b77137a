"""Rows before anything has been learnt from them: what a pipeline's exact sums are of.

A *raw row* has the numbers of a table as they are, 0 where one is missing, and 0 or 1 for
everything else: whether a number is missing, which category it has, and a 1 at the end. No
statistic is in it. So the sums over raw rows are exact, and everything that a pipeline learns is a
function of them: with u a raw row, the pipeline's features are E^T u for a matrix E of live
statistics (`engine.preprocess.rounded.minimiser`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from lethe.engine.fit.objective import Array, Rows
from lethe.engine.preprocess.input.columns import TargetEncode
from lethe.engine.preprocess.input.settings import Settings
from lethe.engine.preprocess.input.table import Table, Vocabulary
from lethe.engine.preprocess.transformation.base import BaseTransformation
from lethe.engine.preprocess.transformation.layout import CodedPart, Layout, Places

RAW_COLUMN = 2
"""Coefficients of a bare model that a column of raw rows counts as, where it is decided whether a
model is rounded: 100 columns take 35 ms a change, 200 coefficients of a bare model 2 ms."""


def untransformed(layout: Layout) -> BaseTransformation:
    """Return the transformation that leaves numbers as they are, and an entry's value 0."""
    p, nothing = layout.features, np.zeros(layout.features, np.bool_)
    return BaseTransformation(
        layout,
        np.zeros(p),
        np.ones(p),
        nothing,
        nothing,
        nothing,
        nothing,
        np.zeros(layout.entries),
        0.0,
    )


@dataclass(frozen=True)
class RawColumns:
    """Where everything is in a raw row, D columns in all.

    First the features that are columns themselves, then the entries, then, for each entry whose
    encoding needs the target's variance within it, the target there; and a 1.
    """

    settings: Settings
    layout: Layout
    vocabularies: tuple[Vocabulary, ...]

    @cached_property
    def own(self) -> Places:
        """(p,) the column of each feature; -1 of one that is made of other columns alone."""
        own = np.ones(self.layout.features, dtype=np.bool_)
        own[[coded.feature for coded in self.layout.coded]] = False
        own[[hot.shared for hot in self.layout.one_hot if hot.shared is not None]] = False
        places: Places = np.where(own, np.cumsum(own) - 1, -1)
        return places

    @cached_property
    def entries(self) -> Places:
        """(q,) the column of each entry."""
        first = int(np.count_nonzero(self.own >= 0))
        return np.arange(first, first + self.layout.entries)

    @cached_property
    def smoothed(self) -> dict[int, int]:
        """The first column of the targets of each coded feature that is smoothed by variances."""
        first = self.own.max(initial=-1) + 1 + self.layout.entries
        found = {}
        for coded in self.layout.coded:
            if is_smoothed(coded):
                found[coded.feature] = int(first)
                first += len(coded.codes)
        return found

    @cached_property
    def one(self) -> int:
        """The last column."""
        smoothed = sum(len(c.codes) for c in self.layout.coded if is_smoothed(c))
        return int(np.count_nonzero(self.own >= 0)) + self.layout.entries + smoothed

    @property
    def width(self) -> int:
        """D."""
        return self.one + 1

    def rows(self, table: Table, y: Array, weight: Array) -> Rows:
        """Return raw rows of a table, each of whose rows has a place in the layout. O(n D)."""
        features, entries = untransformed(self.layout).rows(table)
        U = np.zeros((len(table), self.width))
        U[:, : self.entries[0] if len(self.entries) else self.one] = features[:, self.own >= 0]
        row_of, place = np.nonzero(entries[:, : self.layout.moving] >= 0)
        entry = entries[row_of, place]
        U[row_of, self.entries[entry]] = 1.0
        for coded in self.layout.coded:
            if is_smoothed(coded):
                first = self.smoothed[coded.feature]
                of = U[:, self.entries[coded.entries]]
                U[:, first : first + len(coded.codes)] = of * y[:, :1]
        U[:, self.one] = 1.0
        return Rows(U, y, weight)


def is_smoothed(coded: CodedPart) -> bool:
    """Return whether an encoding needs the variance of the target within each category."""
    return isinstance(coded.column, TargetEncode) and coded.column.smooth == "auto"
