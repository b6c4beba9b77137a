"""What is asked of the rows of a Poisson model: targets of 0 or more, and means that stay finite.

Rows that are fitted need no second check: a fit fails where its own predictions overflow.
"""

from __future__ import annotations

import numpy as np

from lethe.engine.errors import InvalidData
from lethe.engine.fit.objective import Array, Rows

LARGEST_MARGIN = 230.0
"""Largest margin of a new row: e^230 is 1e100, and steps square it (`engine.refresh.live`)."""


def check_counts(rows: Rows) -> None:
    """Refuse targets that are not one number a row, 0 or more.

    Raises
    ------
    InvalidData
        The first such row.
    """
    if rows.y.shape[1] != 1:
        raise InvalidData(f"a Poisson model has one target, not {rows.y.shape[1]}")
    below = np.flatnonzero(rows.y[:, 0] < 0.0)
    if len(below):
        count = rows.y[below[0], 0]
        raise InvalidData(f"the count of row {below[0]} is below 0: {count:g}; correct the row")


def out_of_reach(rows: Rows, *thetas: Array) -> tuple[int, str] | None:
    """Return the first new row that a model cannot have, and why; None if there is none.

    ``thetas`` (d x 1 each) are where its error is computed: at the generation's point and at the
    reference. Cost O(k d).
    """
    with np.errstate(over="ignore", invalid="ignore"):
        margins = np.max(rows.X @ np.hstack(thetas), axis=1, initial=0.0)
    far = np.flatnonzero(~(margins <= LARGEST_MARGIN))
    if not len(far):
        return None
    what = f"a mean of e^{margins[far[0]]:.0f}, at most e^{LARGEST_MARGIN:.0f}"
    return int(far[0]), what
