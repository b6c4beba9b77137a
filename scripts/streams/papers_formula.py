"""The paper's one-batch update, repeated as it stands: the counter-example of the study.

Nothing of the precomputation is updated: the hat matrix (here: the dual rows it comes from) stays
that of all rows, errors are taken at the drifting theta, and each batch is projected by itself.
The first batch is the published method exactly (with T_ij = h_ij / (1 - h_ii), see
`engine/deletion/downdate.py`).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lethe.engine.deletion.downdate import leave_out
from lethe.engine.deletion.span import extend_basis, project
from lethe.engine.fit.objective import Array, Kind, Objective, Rows
from lethe.engine.fit.precompute import Precomputation
from streams.data import StreamData


def rows_of(data: StreamData) -> Rows:
    """Return all rows as the engine has them."""
    return Rows(data.X, data.y[:, None], np.ones(data.n))


def objective_of(data: StreamData) -> Objective:
    """Return the engine's objective for these data."""
    return Objective(Kind(data.kind), np.full(data.d, data.ridge))


def repeated(data: StreamData, made: Precomputation, k: int) -> Iterator[tuple[int, Array]]:
    """Yield the number of rows deleted and theta, (d,), after each batch of k."""
    objective, rows = objective_of(data), rows_of(data)
    theta, none = made.theta, np.empty((0, data.d))
    for start in range(0, len(data.order), k):
        batch = data.order[start : start + k]
        U = rows.take(batch)
        stale = objective.curvature(U, made.theta)
        left = leave_out(U.X, made.dual_rows[batch], objective.error(U, theta), stale)
        theta = theta + project(extend_basis(none, U.X), left.delta)
        yield start + len(batch), theta[:, 0]
