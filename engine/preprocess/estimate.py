"""The estimate of a logistic model with preprocessing: that of `engine.error.estimate`, moved.

The live quadratic model continues each row's error from its margin at the fit, m_i = x_i . theta_b
by the base rows, to x'_i . theta by the live ones. So the live loss's gradient at theta_exact is
the sum over live rows of x'_i rem_i with

    rem_i = e_i(x'_i . theta) - e_i(m_i) - s_i (x'_i . theta - m_i),

which the sentinels sample.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from lethe.engine.deletion.generation import Generation, Stream
from lethe.engine.error.estimate import STIFFNESS, leverage_limit
from lethe.engine.error.sentinels import Sentinels
from lethe.engine.error.stiffness import least_stiffness
from lethe.engine.fit.objective import Array, norm
from lethe.engine.preprocess.published import PipelineUnits
from lethe.engine.preprocess.transformation.layout import Layout, Places
from lethe.engine.preprocess.transformation.statistics import Statistics


def moved_rows(layout: Layout, live: Statistics, X: Array, entries: Places) -> Array:
    """Return x' for rows in base units. Cost O(k (d + g))."""
    row_of, place = np.nonzero(entries[:, : layout.moving] >= 0)
    entry = entries[row_of, place]
    moved = X.copy()
    moved[row_of, layout.entry_feature[entry]] += live.shift[entry]
    return moved


def pipeline_estimate(
    generation: Generation,
    stream: Stream,
    sentinels: Sentinels,
    moved: Array,
    units: PipelineUnits,
    inverse: Callable[[Array], Array],
    rows_live: int,
) -> float | None:
    """Estimate |T (theta_exact - theta*)|; None where the estimate is not to be believed.

    Parameters
    ----------
    generation, stream, sentinels, rows_live
        As of `engine.error.estimate.believed_estimate`, by whose rules this is made and believed.
    moved
        m' x d, the sentinels' live rows x'.
    units
        T.
    inverse
        Solves with the live quadratic model's Hessian.

    Notes
    -----
    Cost O(m' d) and two solves.
    """
    objective, rows = generation.objective, sentinels.rows
    if len(rows) == 0:
        return None
    pi = sentinels.chances(rows_live)[:, None]
    margin, base_margin = moved @ stream.theta_exact, rows.X @ generation.theta_b
    s = objective.curvature_at(rows, base_margin)[:, None]
    changed = objective.curvature_at(rows, margin)[:, None] - s
    error, base_error = objective.error_at(rows, margin), objective.error_at(rows, base_margin)
    weighted = (error - base_error - s * (margin - base_margin)) / pi
    pulled = moved.T @ weighted
    step = inverse(pulled)
    published = units.parameters(step)
    length = norm(published)
    complete = len(rows) == rows_live
    limit = leverage_limit(objective.d, rows_live, complete=complete)
    believed = 1.0 - stream.least_pivot < limit and math.isfinite(length)
    if length == 0.0 or not believed:
        return 0.0 if believed else None
    # The part of each row in the length: its published step along the whole one.
    reach = moved @ inverse(units.transposed(published / length))
    spread = math.sqrt(float(np.sum((1.0 - pi) * (reach * weighted) ** 2)))
    least, most = STIFFNESS
    stale = float(np.sum(step * pulled))
    stiffness = 1.0 + float(np.sum(changed / pi * (moved @ step) ** 2)) / stale
    if not stiffness > least:
        return None
    if np.any(s + changed < least * s):
        left = least_stiffness(rows.X, sentinels.W, stream.V, changed / pi, least)
        if not left > least:
            return None
    return (length + spread) / min(stiffness, most)
