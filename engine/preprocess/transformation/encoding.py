"""Numbers for categories: their place among those that are there, or smoothed target means."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lethe.engine.fit.objective import Array
from lethe.engine.preprocess.input.columns import Ordinal
from lethe.engine.preprocess.input.table import Vocabulary
from lethe.engine.preprocess.transformation.layout import CodedPart

Counts = NDArray[np.int64]


class TargetMoments(NamedTuple):
    """Sums of the target and of its square, by category and over all rows; the target is centred.

    Attributes
    ----------
    sums, squares
        (k,) of each category.
    total, total_squares, n
        Of all rows.
    """

    sums: Array
    squares: Array
    total: float
    total_squares: float
    n: int

    @classmethod
    def of(cls, y: Array, category: NDArray[np.intp], k: int) -> TargetMoments:
        """Return the moments of a column of k categories."""
        return cls(
            np.asarray(np.bincount(category, weights=y, minlength=k), dtype=np.float64),
            np.asarray(np.bincount(category, weights=y * y, minlength=k), dtype=np.float64),
            float(np.sum(y)),
            float(y @ y),
            len(y),
        )


def smoothed_means(
    smooth: float | Literal["auto"], counts: NDArray[np.intp], moments: TargetMoments
) -> Array:
    """Return the encoding of each of k categories, as scikit-learn's TargetEncoder.

    A number m gives (m mean + sum_c) / (m + n_c). "auto" gives l mean_c + (1 - l) mean with
    l = v n_c / (v n_c + v_c), v the variance of the target and v_c that within the category.
    A category without rows has the overall mean.
    """
    n = max(moments.n, 1)
    mean = moments.total / n
    present = np.maximum(counts, 1)
    own = moments.sums / present
    if smooth == "auto":
        variance = max(moments.total_squares / n - mean * mean, 0.0)
        within = np.maximum(moments.squares / present - own**2, 0.0)
        weight, of = variance * present, variance * present + within
        share = np.divide(weight, of, out=np.zeros(len(of)), where=of > 0)
    else:
        share = present / (present + smooth)
    return np.where(counts > 0, mean + share * (own - mean), mean)


def ordinal_codes(part: CodedPart, vocabulary: Vocabulary, counts: NDArray[np.intp]) -> Array:
    """Return the code of each category of an Ordinal column.

    Without named categories, the number of categories with rows that come before it.
    """
    column = part.column
    if isinstance(column, Ordinal) and column.categories is not None:
        place = {category: i for i, category in enumerate(column.categories)}
        return np.array([place[vocabulary.categories[c]] for c in part.codes], dtype=np.float64)
    there = (counts > 0).astype(np.float64)
    return np.cumsum(there) - there
