"""Whether a Pipeline makes the features of its rows that a model makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lethe.engine.conversion.parameters import WAYS_OUT
from lethe.engine.errors import InvalidData
from lethe.engine.fit.objective import Array

_LARGEST_GAP = {np.float64: 1.5e-8, np.float32: 3.5e-4}
"""Between a feature here and there, of its size: the root of the precision, which is far above what
rounding leaves and far below what other rows or weights change."""


def check_same(theirs: Any, ours: Any, names: Sequence[str], offsets: Array) -> None:
    """Refuse features that differ, n x p, by more than rounding; ``offsets`` are of their columns.

    Raises
    ------
    InvalidData
        They do; the first feature is named.
    """
    if theirs.shape != ours.shape:
        raise InvalidData(
            f"X has {ours.shape[1]} features once transformed, and the Pipeline makes "
            f"{theirs.shape[1]}; give the rows that it was fitted on"
        )
    size = np.abs(theirs).max(axis=0) + offsets
    gaps = np.abs(theirs - ours)
    precision = _LARGEST_GAP[np.float32 if theirs.dtype == np.float32 else np.float64]
    bad = np.argwhere(~(gaps <= precision * size))
    if len(bad):
        row, feature = bad[0]
        raise InvalidData(
            f"feature {names[feature]!r}: the Pipeline makes "
            f"{theirs[row, feature]:.6g} of row {row}, and the model of these rows "
            f"{ours[row, feature]:.6g}; fit the Pipeline on the rows given, without weights "
            f"for its transformers, or {WAYS_OUT}"
        )
