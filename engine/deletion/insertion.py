"""Inserting rows into a stream: the step of a deletion with the other sign (docs/algebra.md).

An inserted row adds its quadratic model (its error at theta_r, its curvature at theta_b), as if it
had been among the rows of the precomputation. So the state is a function of the set of rows that
are live, whatever the order of deletions and insertions, and a row that is inserted and deleted
again leaves nothing behind but rounding.

A new row needs its base dual row, two triangular solves: the one place where a step reads L.
"""

from __future__ import annotations

import numpy as np

from lethe.engine.deletion.correction import INSERTED
from lethe.engine.deletion.downdate import bring_in, side_by_side
from lethe.engine.deletion.generation import (
    Deletion,
    Generation,
    LeftOut,
    Stream,
    linearised_error,
    summed_dual_rows,
)
from lethe.engine.deletion.methods.method import DeletionMethod
from lethe.engine.deletion.residual import rounded
from lethe.engine.deletion.rounded_step import rounded_step
from lethe.engine.deletion.stream import BLOCK, publish_step
from lethe.engine.error.certificate import gradient_allowance
from lethe.engine.errors import IllConditioned
from lethe.engine.fit import blocks
from lethe.engine.fit.factor import Factor
from lethe.engine.fit.objective import Array, Rows, lengths


def base_dual_rows(generation: Generation, factor: Factor, X: Array) -> tuple[Array, float]:
    """Return the base dual rows of new rows, k x (h d), and a bound of their `dual_error`.

    The error is measured against L L^T; what is known of the factor's own error is that of the
    stored dual rows, which were made by it. Cost O(k d^2) a block.
    """
    d, h = X.shape[1], generation.blocks
    parts, worst = [], 0.0
    for c in range(h):
        own = factor.block(c)
        w = own.solve(X.T).T
        w_lengths = lengths(w)
        off = lengths(X - own.product(w.T).T)
        ratios = np.divide(off, w_lengths, out=np.zeros(len(X)), where=w_lengths > 0)
        worst = float(np.max(ratios, initial=worst))
        parts.append(w)
    error = worst + gradient_allowance(generation.largest) + generation.by_factor.dual_error
    return (parts[0] if h == 1 else np.hstack(parts)), error if len(X) and d else 0.0


def insert(
    generation: Generation,
    stream: Stream,
    rows: Rows,
    W: Array,
    method: DeletionMethod,
    dual_error: float,
) -> Deletion:
    """Bring ``rows`` in and publish by ``method``.

    Parameters
    ----------
    generation, stream
        The state before.
    rows
        k new rows, any k >= 0.
    W, dual_error
        k x (h d), their base dual rows, and the error of those (`base_dual_rows`).
    method
        What to publish; a projection is onto the span of the rows deleted or inserted.

    Raises
    ------
    IllConditioned
        The step or its error is not a finite number; the state before stands.

    Notes
    -----
    Cost O(K k d + k^2 d) a block, as a deletion, once the base dual rows are there.
    """
    if stream.solution is not None:
        return rounded_step(generation, stream, stream.solution, rows, W, method, INSERTED)
    first_v, first_q = len(stream.V), len(stream.Q)
    if len(rows):
        stream = stream._replace(dual_error=max(stream.dual_error, dual_error))
    for start in range(0, len(rows), BLOCK):
        block = slice(start, start + BLOCK)
        block_rows, dual = rows.take(block), W[block]
        brought_in, added = bring_block_in(generation, stream, block_rows, dual)
        stream = stream._replace(added=stream.added + added)
        step = publish_step(generation, stream, block_rows, dual, method, brought_in, sign=INSERTED)
        stream = step.stream
    return Deletion(stream, stream.V.array[first_v:], stream.Q.array[first_q:], 1.0)


def bring_block_in(
    generation: Generation, stream: Stream, rows: Rows, W: Array
) -> tuple[LeftOut, float]:
    """Bring k rows in; return the answer with them, and the largest s_i |x_i|^2 sum of a block.

    Cost O(K k d + k^2 d).
    """
    error = linearised_error(generation, stream, rows)
    curvatures = generation.objective.curvatures(rows, generation.theta_b)
    d, h = rows.X.shape[1], curvatures.shape[1]
    dual, summed = summed_dual_rows(stream, rows.X, W)
    parts = [
        bring_in(rows.X, blocks.part(dual, c, d), blocks.outputs(error, c, h), curvatures[:, c])
        for c in range(h)
    ]
    update = parts[0] if h == 1 else side_by_side(parts)
    theta = stream.theta_exact + update.delta
    if not np.isfinite(theta).all():
        raise IllConditioned("the step is not a finite number")
    added = float(np.max(lengths(rows.X) ** 2 @ curvatures))
    off = rounded(generation, stream, rows, update, theta, summed, came=added)
    return LeftOut(theta, update.V, 0.0, off.lost, 1.0, off.residual), added
