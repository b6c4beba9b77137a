"""What a deletion adds to the bound of the gradient that rounding has left (docs/error.md)."""

from __future__ import annotations

import math

import numpy as np

from lethe.engine.deletion.downdate import SMALLEST_PIVOT, Downdate
from lethe.engine.deletion.generation import (
    Generation,
    Stream,
    inverse_error,
    largest_eigenvalue,
    linearised_error_at,
)
from lethe.engine.error.certificate import gradient_allowance
from lethe.engine.fit.factor import EPS
from lethe.engine.fit.objective import Array, Kind, Rows, lengths, norm


def residual_added(
    generation: Generation,
    stream: Stream,
    rows: Rows,
    downdate: Downdate,
    theta: Array,
    summed: Array,
) -> float:
    """Return what one block adds to the bound of the gradient that rounding has left.

    With H the Hessian before and r_i = x_i - H w_i the errors of the computed dual rows, the
    gradient over the remaining rows is, exactly,

        g' = g + U^T (q - e') - sum r_i q_i + H (theta' - theta - W^T q)

    for whatever q was computed, e' the rows' errors at theta' (docs/error.md). The first new term
    is measured, with an allowance for measuring it; the second is the error of the stored
    dual rows, which rows of high leverage amplify by up to the root of 1 / pivot; the third is what
    storing theta' loses (`storing_error`). ``summed`` are the summed lengths of each dual row's
    terms, (k,). Cost O(k d m).
    """
    error = linearised_error_at(generation, stream, rows, theta)
    return residual_sum(
        generation,
        stream,
        min(stream.least_pivot, downdate.smallest_pivot),
        measured=norm(rows.X.T @ (downdate.q - error)),
        scale=error_scale(generation, stream, rows, theta),
        summed=float(lengths(downdate.q) @ summed),
        length=norm(theta),
    )


def residual_sum(
    generation: Generation,
    stream: Stream,
    least_pivot: float,
    *,
    measured: float,
    scale: float,
    summed: float,
    length: float,
) -> float:
    """Return the sum of the terms of `residual_added`; ``length`` is |theta'|."""
    dual = dual_row_error(generation, stream, least_pivot) * summed
    stored = largest_eigenvalue(generation, stream) * storing_error(length)
    return measured + gradient_allowance(scale) + dual + stored


def dual_row_error(generation: Generation, stream: Stream, least_pivot: float) -> float:
    """Return an allowance for |x - A_t w| of a current dual row, over its terms' summed lengths.

    The error of the base dual rows, which rows of high leverage amplify; ``least_pivot`` is that
    of the stream and of the rows being left out. And, once rows were inserted, rounding in the sum:
    of a row that is not in A_b and stands out, the terms W and X V^T J V all but cancel, and
    eps lam_max(A_t) of their lengths is left. Leaving such a row out divides that by its pivot,
    and V keeps it (docs/error.md).
    """
    error = inverse_error(generation, stream) / math.sqrt(max(least_pivot, SMALLEST_PIVOT))
    if stream.added:
        kept = 1.0 + 1.0 / max(stream.least_pivot, SMALLEST_PIVOT)
        error += gradient_allowance(stream.added) * kept
    return error


def error_scale(generation: Generation, stream: Stream, rows: Rows, theta: Array) -> float:
    """Return what rounding in the rows' errors at ``theta`` is proportional to, as a gradient."""
    objective = generation.objective
    if objective.kind is Kind.LINEAR:
        return objective.error_scale(rows, theta)
    moved = norm(theta - stream.theta_r)
    squares = np.einsum("ij,ij->i", rows.X, rows.X)[:, None]
    curved = float(np.sum(squares * objective.curvatures(rows, generation.theta_b)))
    return objective.error_scale(rows, stream.theta_r) + moved * curved


def storing_error(length: float) -> float:
    """Return a bound of |theta + step - theta'|, theta' their stored sum, of that length.

    Each sum is rounded to the nearest number: by at most eps / 2 of itself.
    """
    return 0.5 * EPS * length
