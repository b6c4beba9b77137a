"""What rounding in a step adds to the bounds of a stream: gradient and inverse (docs/error.md)."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from lethe.engine.deletion.downdate import SMALLEST_PIVOT, Downdate
from lethe.engine.deletion.generation import (
    UNBOUNDED,
    Generation,
    Stream,
    inverse_error,
    largest_eigenvalue,
    linearised_error_at,
)
from lethe.engine.error.certificate import gradient_allowance
from lethe.engine.fit.factor import EPS
from lethe.engine.fit.objective import Array, Kind, Rows, lengths, norm

_KEPT = 16.0
"""Times what rounding leaves of a row that was inserted, in the directions that V keeps. Of 100,000
states after typing errors (docs/error.md) one was below the truth without it, by 4."""

MOST_LOST = 1e-3
"""Largest error of one step's rows of V, over the norm of the inverse."""


class Rounded(NamedTuple):
    """What rounding in one step adds.

    Attributes
    ----------
    residual
        To the bound of the gradient at theta_exact.
    lost
        To the error of the inverse, over its norm. A row w with r = x - H w stands for
        w* = w + H^-1 r, and its pivot p for p* = p - s w*.r, H being the true Hessian before.
        Both together change what it adds, (s / p) w w^T, by at most 2 (s / p) |w| |r| |H^-1| to
        first order; for a block, 2 |V| |C^-1 S^1/2 R| |H^-1|.
    """

    residual: float
    lost: float


def rounded(
    generation: Generation,
    stream: Stream,
    rows: Rows,
    downdate: Downdate,
    theta: Array,
    summed: Array,
    came: float = 0.0,
) -> Rounded:
    """Return what rounding in one block's step adds.

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
    pivot = downdate.smallest_pivot
    roots = np.sqrt(generation.objective.curvatures(rows, generation.theta_b).max(axis=1))
    return rounded_sum(
        generation,
        stream,
        min(stream.least_pivot, pivot),
        measured=norm(rows.X.T @ (downdate.q - error)),
        scale=error_scale(generation, stream, rows, theta),
        summed=float(lengths(downdate.q) @ summed),
        length=norm(theta),
        magnified_by=magnified(downdate.V, roots * summed, pivot),
        came=came,
    )


def rounded_sum(
    generation: Generation,
    stream: Stream,
    least_pivot: float,
    *,
    measured: float,
    scale: float,
    summed: float,
    length: float,
    magnified_by: float,
    came: float = 0.0,
) -> Rounded:
    """Return the sums of the terms of `rounded`.

    ``length`` is |theta'|, ``magnified_by`` as `magnified` gives it, and ``came`` the sum of
    s_i |x_i|^2 of the rows if they are inserted.
    """
    off = dual_row_error(generation, stream, least_pivot)
    after = stream._replace(added=stream.added + came) if came else stream
    dual = dual_row_error(generation, after, least_pivot) if came else off
    stored = largest_eigenvalue(generation, after) * storing_error(length)
    residual = measured + gradient_allowance(scale) + dual * summed + stored
    return Rounded(residual, 2.0 * off * magnified_by)


def magnified(V: Array, sizes: Array, pivot: float) -> float:
    """Return what the relative error of dual rows is multiplied by in that of the inverse.

    |V| |C^-1 S^1/2 R| over that error, with ``sizes`` (k,) of S^1/2 times the summed lengths of
    each dual row's terms. Cost O(k d).
    """
    return norm(V) * norm(sizes) / math.sqrt(pivot)


def inverse_grown(generation: Generation, stream: Stream, trace: float, lost: float) -> float:
    """Return ``v_trace`` after a step: with t = |A_t^-1|, t <= 1 / smallest + V^T V + lost t.

    A step that may be off by `MOST_LOST` of the inverse leaves V without meaning: `UNBOUNDED`.
    """
    if not lost <= MOST_LOST:
        return UNBOUNDED
    added = stream.v_trace + trace
    return min(added + (1.0 / generation.smallest + added) * lost / (1.0 - lost), UNBOUNDED)


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
        error += _KEPT * gradient_allowance(stream.added) * kept
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
