"""Deleting rows from a stream (docs/algebra.md): the step, and what is published after it.

`engine.deletion.generation` has what a generation fixes and the running state. Everything here is a
pure function of its arguments; arrays are never written to.
"""

from __future__ import annotations

import math

import numpy as np

from lethe.engine.deletion.correction import DELETED
from lethe.engine.deletion.crossover import step_seconds
from lethe.engine.deletion.downdate import Downdate, leave_out, side_by_side
from lethe.engine.deletion.generation import (
    Deletion,
    Generation,
    LeftOut,
    Stream,
    has_lost_digits,
    inverse_error,
    linearised_error,
    summed_dual_rows,
)
from lethe.engine.deletion.methods.method import DeletionMethod, Step
from lethe.engine.deletion.one_row import leave_row_out
from lethe.engine.deletion.residual import inverse_grown, rounded
from lethe.engine.deletion.rounded_step import rounded_step
from lethe.engine.errors import UNSTATED, IllConditioned
from lethe.engine.fit import blocks
from lethe.engine.fit.objective import Array, Kind, Rows
from lethe.engine.fit.precompute import check_inverse

BLOCK = 256
"""Rows left out at once: k^3 stays small beside k^2 d, and M fits the cache (512 KiB)."""


def delete(
    generation: Generation, stream: Stream, rows: Rows, W: Array, method: DeletionMethod
) -> Deletion:
    """Leave ``rows`` out and publish by ``method``.

    Parameters
    ----------
    generation, stream
        The state before.
    rows
        k live rows, any k >= 0.
    W
        k x d, or k x (h d), their dual rows relative to A_b, as stored.
    method
        What to publish.

    Raises
    ------
    IllConditioned
        The gate of `engine.deletion.downdate` refused a block; the state before stands.

    Notes
    -----
    Cost O(K k d + k^2 d) a block, K rows deleted in this generation: linear in d, independent
    of n. One row of a model of one output has a step of its own (`engine.deletion.one_row`).
    """
    if stream.solution is not None:
        return rounded_step(generation, stream, stream.solution, rows, W, method, DELETED)
    k = len(rows)
    if k == 1 and stream.theta_exact.shape[1] == 1:
        left_out = leave_row_out(generation, stream, rows, W)
        return publish_step(generation, stream, rows, W, method, left_out)
    first_v, first_q = len(stream.V), len(stream.Q)
    smallest_pivot = 1.0
    for start in range(0, k, BLOCK):
        block = slice(start, start + BLOCK)
        block_rows, dual = rows.take(block), W[block]
        left_out = leave_block_out(generation, stream, block_rows, dual)
        stream = publish_step(generation, stream, block_rows, dual, method, left_out).stream
        smallest_pivot = min(smallest_pivot, left_out.smallest_pivot)
    return Deletion(stream, stream.V.array[first_v:], stream.Q.array[first_q:], smallest_pivot)


def leave_block_out(generation: Generation, stream: Stream, rows: Rows, W: Array) -> LeftOut:
    """Leave k rows out, of a model of any number of outputs. Cost O(K k d + k^2 d).

    Raises
    ------
    IllConditioned
        As `delete`.
    """
    error = linearised_error(generation, stream, rows)
    curvatures = generation.objective.curvatures(rows, generation.theta_b)
    dual, summed = summed_dual_rows(stream, rows.X, W)
    downdate = _leave_out(rows.X, dual, error, curvatures)
    theta = stream.theta_exact + downdate.delta
    if not np.isfinite(theta).all():  # errors can overflow where leverages do not
        raise IllConditioned("the step is not a finite number")
    off = rounded(generation, stream, rows, downdate, theta, summed)
    trace = _trace(downdate.V, rows.X.shape[1])
    return LeftOut(theta, downdate.V, trace, off.lost, downdate.smallest_pivot, off.residual)


def _leave_out(U: Array, W: Array, error: Array, curvatures: Array) -> Downdate:
    """Leave rows out of every block; if one block refuses, so does the whole step."""
    d, h = U.shape[1], curvatures.shape[1]
    parts = [
        leave_out(U, blocks.part(W, c, d), blocks.outputs(error, c, h), curvatures[:, c])
        for c in range(h)
    ]
    return parts[0] if h == 1 else side_by_side(parts)


def _trace(V: Array, d: int) -> float:
    """Return the largest trace(V V^T) of a block."""
    h = blocks.count(V, d)
    return max(float(np.sum(blocks.part(V, c, d) ** 2)) for c in range(h))


def publish_step(
    generation: Generation,
    stream: Stream,
    rows: Rows,
    W: Array,
    method: DeletionMethod,
    left_out: LeftOut,
    sign: float = DELETED,
) -> Deletion:
    """Publish by ``method`` after a block was left out, or brought in (``sign`` `INSERTED`).

    Refuses if its error cannot be stated.
    """
    objective, residual = generation.objective, stream.residual + left_out.residual
    if not has_lost_digits(stream):
        smallest = 1.0 / (1.0 / generation.smallest + stream.v_trace + left_out.trace)
        off = inverse_error(generation, stream)
        check_inverse(smallest, off)
        if not math.isfinite(residual / (smallest - off)):
            raise IllConditioned(UNSTATED)
    if not math.isfinite(residual):
        raise IllConditioned(UNSTATED)
    v_trace = inverse_grown(generation, stream, left_out.trace, left_out.lost)
    published, basis_rows = method.publish(
        Step(
            rows.X,
            W,
            lambda: sign * objective.error(rows, stream.theta_r),
            left_out.theta,
            stream,
        )
    )
    v_seconds, K = stream.v_seconds, len(stream.V)
    if K:  # for one block: a compact is priced for one, too
        estimated = objective.kind is not Kind.LINEAR
        v_seconds += step_seconds(objective.d, K, len(rows), estimated=estimated)
    after = Stream(  # by position: half the time of keywords
        left_out.theta,
        stream.theta_r,
        stream.anchor,
        published,
        stream.V.append(left_out.V, sign),
        stream.Q.append(basis_rows) if len(basis_rows) else stream.Q,
        v_trace,
        residual,
        stream.carried,
        stream.completions,
        v_seconds,
        min(stream.least_pivot, left_out.smallest_pivot),
        stream.added,
        stream.dual_error,
        stream.gradient,
    )
    return Deletion(after, left_out.V, basis_rows, left_out.smallest_pivot)
