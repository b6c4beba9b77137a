"""One-hot columns: which features their categories have, by how many live rows have each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lethe.engine.preprocess.input.columns import Name, OneHot
from lethe.engine.preprocess.input.table import Vocabulary
from lethe.engine.preprocess.input.values import sorted_categories


class CategoryFeatures(NamedTuple):
    """What becomes of one-hot features where categories have so many rows; one number a feature.

    Attributes
    ----------
    rows
        Those of the category; of the feature that rare categories share those of all of these.
    left_out
        Whether the feature is 0 throughout: that of a category that is dropped, or rare, or the
        shared one if no row has a rare category.
    rare
        Whether it is a category's that is rare, or would be with one row.
    mode
        Whether it is that of the category that stands in for missing ones.
    """

    rows: NDArray[np.int64]
    left_out: NDArray[np.bool_]
    rare: NDArray[np.bool_]
    mode: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class OneHotPart:
    """A column of one feature a category; ``feature_of`` leads from a code to it, or to -1.

    If rare categories share a feature, that is one more, the last.
    """

    name: Name
    column: OneHot
    source: int
    first: int
    codes: NDArray[np.intp]
    feature_of: NDArray[np.intp]

    @property
    def features(self) -> slice:
        """The column's features."""
        return slice(self.first, self.first + self.width)

    @property
    def categories(self) -> slice:
        """The features of single categories."""
        return slice(self.first, self.first + len(self.codes))

    @property
    def shared(self) -> int | None:
        """The feature that rare categories share."""
        return self.first + len(self.codes) if self.column.shares else None

    @property
    def width(self) -> int:
        """Number of its features."""
        return len(self.codes) + int(self.column.shares)

    def gap(self, vocabulary: Vocabulary) -> int | None:
        """Return the feature of missing values that a category stands in for, if one does."""
        if self.column.impute is None:
            return None
        return int(self.feature_of[vocabulary.code_of([None])[0]])

    def found(self, rows: NDArray[np.int64], n: int, vocabulary: Vocabulary) -> CategoryFeatures:
        """Return what becomes of the features where ``rows`` (k,) of n have each category."""
        mode, gap = np.zeros(self.width, dtype=np.bool_), self.gap(vocabulary)
        if gap is not None:
            rows, most = self._filled(rows, gap - self.first, vocabulary)
            mode[most] = True
        rare = self._rare(rows, n)
        rows = np.append(rows, rows[rare].sum())[: self.width]
        rare = np.append(rare, False)[: self.width]
        if gap is not None:
            rare[gap - self.first] = False
        left_out = rare.copy()
        if gap is not None:
            left_out[gap - self.first] = True
        left_out[len(self.codes) :] = rows[len(self.codes) :] == 0
        drop, there = self.column.drop, np.flatnonzero(self.is_known(rows) & ~left_out)
        if isinstance(drop, tuple):
            there = np.flatnonzero(self.codes == vocabulary.code_of(drop)[0])
        elif drop is None or (drop == "if_binary" and len(there) != 2):
            there = there[:0]
        left_out[there[:1]] = True
        return CategoryFeatures(rows, left_out, rare, mode)

    def _filled(
        self, rows: NDArray[np.int64], gap: int, vocabulary: Vocabulary
    ) -> tuple[NDArray[np.int64], int]:
        """Return the rows once missing values are filled in, and which category has most."""
        known = rows.copy()
        known[gap] = -1
        most = np.flatnonzero(known == known.max()).tolist()
        of_each = [vocabulary.categories[code] for code in self.codes[most]]
        mode = most[of_each.index(sorted_categories(self.name, of_each)[0])]
        known[gap] = 0
        known[mode] += rows[gap]
        return known, mode

    def is_known(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which features are there: those of categories with ``rows``, or named."""
        return np.asarray((rows > 0) | (self.column.categories is not None))

    def _rare(self, rows: NDArray[np.int64], n: int) -> NDArray[np.bool_]:
        """Return which categories are rare, (k,), by scikit-learn's rule."""
        least, most, there = self.column.min_frequency, self.column.max_categories, rows > 0
        if least is None:
            rare = np.zeros(len(rows), dtype=np.bool_)
        else:
            rare = np.maximum(rows, 1) < (least if isinstance(least, int) else n * least)
        if most is not None and most < np.count_nonzero(there & ~rare) + 1:
            places = np.flatnonzero(there)
            ascending = places[np.argsort(rows[places], kind="stable")]
            rare[ascending[: len(ascending) - (most - 1)]] = True
        return rare
