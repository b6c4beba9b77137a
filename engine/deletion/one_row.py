"""Leaving one row out of a model of one output: the step in scalars.

The general step works on arrays: k x m errors, k x k factors. For one row and one output these are
scalars, and it would spend most of its time on arrays of one number. Here theta and the row of V
are the only new arrays; the closed form is `engine.deletion.downdate.leave_one_out`. BLAS
is called directly: it takes 1 x d and d x 1 arrays for vectors, and writes to new arrays only.
"""

from __future__ import annotations

import math

from scipy.linalg.blas import daxpy, ddot

from lethe.engine.deletion.downdate import leave_one_out
from lethe.engine.deletion.generation import Generation, LeftOut, Stream
from lethe.engine.deletion.residual import rounded_sum
from lethe.engine.errors import IllConditioned
from lethe.engine.fit.objective import Array, Kind, Rows, norm


def leave_row_out(generation: Generation, stream: Stream, row: Rows, W: Array) -> LeftOut:
    """Leave one row (k = 1, with its base dual row) out of a model of one output. Cost O(K d).

    theta' = theta + q w, with q and w as in `engine.deletion.downdate`; the residual grows
    by the identity of `engine.deletion.residual.rounded`.

    Raises
    ------
    IllConditioned
        As `engine.deletion.stream.delete`.
    """
    x, theta = row.X, stream.theta_exact
    x_length = norm(x)
    w, w_length, summed = _summed_dual_row(stream, x, W)
    base, s, origin, scale = _linearised(generation, stream, row, x_length)
    pivot, root = leave_one_out(x, w, s)
    q = (base + s * ddot(x, theta if origin is None else theta - origin)) / pivot
    after = theta.copy()
    daxpy(w, after, a=q)
    moved = after if origin is None else after - origin
    length, v_length = norm(after), root * w_length
    reach = length if origin is None else norm(moved)
    if not math.isfinite(reach):
        raise IllConditioned("the step is not a finite number")
    rounded = rounded_sum(
        generation,
        stream,
        min(stream.least_pivot, pivot),
        measured=x_length * abs(q - base - s * ddot(x, moved)),
        scale=x_length * (scale + s * x_length * reach),
        summed=abs(q) * summed,
        length=length,
        magnified_by=v_length * root * summed,
    )
    return LeftOut(after, w * root, v_length * v_length, rounded.lost, pivot, rounded.residual)


def _summed_dual_row(stream: Stream, x: Array, W: Array) -> tuple[Array, float, float]:
    """Return the current dual row, its length, and the sum of the lengths of its terms."""
    length = norm(W)
    if not len(stream.V):
        return W, length, length
    V, signs = stream.V.array, stream.V.signs
    products = V.dot(x[0])
    correction = V.T.dot(products if signs is None else signs * products)
    w = W + correction
    return w, norm(w), length + norm(correction)


def _linearised(
    generation: Generation, stream: Stream, row: Rows, length: float
) -> tuple[float, float, Array | None, float]:
    """Return the parts of a row's error, e(theta) = base + s x.(theta - origin), |x| = ``length``.

    Returns
    -------
    base
        e(origin).
    s
        The row's curvature in A_b.
    origin
        The reference; for a linear model, which is its own quadratic model, None (0).
    scale
        Over |x|, what rounding in x base is proportional to (`Objective.error_scale`).

    Notes
    -----
    Cost O(1) for a linear model, else O(d).
    """
    weight, y = row.weight.item(), row.y.item()
    if generation.objective.kind is Kind.LINEAR:
        return -weight * y, weight, None, weight * abs(y)
    theta_b, theta_r = generation.theta_b, stream.theta_r
    loss = generation.objective.loss
    error, size, curvature = loss.at(ddot(row.X, theta_r), y)
    scale = weight * (size + curvature * length * norm(theta_r))
    if theta_b is not theta_r:
        _, _, curvature = loss.at(ddot(row.X, theta_b), y)
    return weight * error, weight * curvature, theta_r, scale
