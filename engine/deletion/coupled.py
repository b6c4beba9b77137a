"""Leaving rows out of a softmax model, and bringing rows in: C classes with one Hessian.

With S_i = R_i R_i^T (`engine.fit.multinomial.curvature_roots`) a row is C - 1 *pseudo-rows* of
curvature 1 over vec(theta), the columns of weight_i^1/2 R_i kron x_i. So k rows are a step of rank
k (C - 1) in dimension d C, by `engine.deletion.downdate`; it gives V, and then

    theta' = theta + A'^-1 vec(sum_i x_i e_i^T),      A'^-1 = A_b^-1 + V^T J V.

Errors e_i never have to be written in the pseudo-rows, so saturated rows divide by nothing. V is
K x (d C), one block of d C coordinates, and theta stays d x C.

No dual rows are stored: they would be C (d C) numbers a row. A step solves for those of its own
rows, and reads the factor (`Generation.factor`).
"""

from __future__ import annotations

import math

import numpy as np

from lethe.engine.deletion.correction import DELETED, Correction
from lethe.engine.deletion.crossover import step_seconds
from lethe.engine.deletion.downdate import bring_in, leave_out
from lethe.engine.deletion.generation import (
    Generation,
    Stream,
    has_lost_digits,
    inverse_error,
    largest_eigenvalue,
)
from lethe.engine.deletion.methods.method import DeletionMethod, Step
from lethe.engine.deletion.residual import (
    dual_row_error,
    inverse_grown,
    magnified,
    storing_error,
)
from lethe.engine.error.certificate import gradient_allowance
from lethe.engine.errors import UNSTATED, IllConditioned
from lethe.engine.fit.factor import Factor
from lethe.engine.fit.multinomial import SoftmaxObjective, curvature_roots, unvec, vec
from lethe.engine.fit.objective import Array, Rows, lengths, norm
from lethe.engine.fit.precompute import check_inverse

BLOCK = 256
"""Pseudo-rows of one step, as the rows of `engine.deletion.stream.BLOCK`."""


def parts_of(generation: Generation) -> tuple[SoftmaxObjective, Factor]:
    """Return the objective and the factor of a softmax model's generation.

    Raises
    ------
    TypeError
        It is another model's, or its factor was not read.
    """
    objective, factor = generation.objective, generation.factor
    if not isinstance(objective, SoftmaxObjective) or factor is None:
        raise TypeError(f"a generation of a {objective.kind} model has no coupled classes to step")
    return objective, factor


def stale_inverse(factor: Factor, V: Correction, g: Array) -> Array:
    """Return A_t^-1 g for g of shape d x C. Cost O((d C)^2 + K d C)."""
    stacked = vec(g)
    return unvec(factor.solve(stacked) + V.times(stacked), len(g))


def pseudo_rows(objective: SoftmaxObjective, rows: Rows, theta: Array) -> Array:
    """Return the pseudo-rows of k rows with curvatures at ``theta``, k (C - 1) x (d C)."""
    roots = np.sqrt(rows.weight)[:, None, None] * curvature_roots(objective.mean(rows.X @ theta))
    k, C, rank = roots.shape
    products: Array = np.einsum("icj,ia->ijca", roots, rows.X)
    return products.reshape(k * rank, C * rows.X.shape[1])


def base_dual_rows(generation: Generation, factor: Factor, U: Array) -> tuple[Array, float]:
    """Return W = U A_b^-1, and a bound of |u - A_b w| / |w| over its rows.

    Measured against L L^T; the factor's own error is `Generation.dual_error`. Cost O(k (d C)^2).
    """
    W = factor.solve(U.T).T
    off, sizes = lengths(U - factor.product(W.T).T), lengths(W)
    ratios = np.divide(off, sizes, out=np.zeros(len(U)), where=sizes > 0)
    measured = float(np.max(ratios, initial=0.0))
    return W, measured + gradient_allowance(generation.largest) + generation.by_factor.dual_error


def linearised_error(
    objective: SoftmaxObjective, generation: Generation, stream: Stream, rows: Rows
) -> Array:
    """Return errors at theta_exact by the quadratic model, k x C. Cost O(k d C)."""
    moved = rows.X @ (stream.theta_exact - stream.theta_r)
    curved = objective.curvature_times(rows, generation.theta_b, moved)
    return objective.error(rows, stream.theta_r) + curved


def step(
    generation: Generation,
    stream: Stream,
    rows: Rows,
    method: DeletionMethod,
    sign: float = DELETED,
) -> Stream:
    """Leave ``rows`` out, or bring them in (``sign`` `INSERTED`), and publish by ``method``.

    Raises
    ------
    IllConditioned
        The gate of `engine.deletion.downdate` refused a block, or a number is not finite; the
        state before stands.

    Notes
    -----
    Cost O(k C (d C)^2 + K k C d C): independent of n, but not linear in d.
    """
    size = max(BLOCK // (rows.y.shape[1] - 1), 1)
    for start in range(0, len(rows), size):
        block = rows.take(slice(start, start + size))
        stream = _block(generation, stream, block, method, sign)
    return stream


def _block(
    generation: Generation,
    stream: Stream,
    rows: Rows,
    method: DeletionMethod,
    sign: float,
) -> Stream:
    objective, factor = parts_of(generation)
    U = pseudo_rows(objective, rows, generation.theta_b)
    pulled = vec(rows.X.T @ linearised_error(objective, generation, stream, rows))
    at_reference = vec(rows.X.T @ objective.error(rows, stream.theta_r))
    # One pass over L for all of them.
    solved, off = base_dual_rows(generation, factor, np.vstack([U, pulled.T, at_reference.T]))
    W, z = solved[: len(U)], solved[len(U)][:, None]
    dual = W + stream.V.of_rows(U) if len(stream.V) else W
    change = leave_out if sign == DELETED else bring_in
    moved = change(U, dual, np.zeros((len(U), 1)), np.ones(len(U)))
    V = stream.V.append(moved.V, sign)
    corrected = V.times(pulled)
    theta = stream.theta_exact + sign * unvec(z + corrected, len(stream.theta_exact))
    if not np.isfinite(theta).all():
        raise IllConditioned("the step is not a finite number")
    published, basis_rows = method.publish(
        Step(  # the influence of the whole block, as if it were one dual row of C blocks
            rows.X,
            sign * solved[len(U) + 1 :],
            lambda: np.ones((1, theta.shape[1])),
            theta,
            stream,
        )
    )
    deleted = sign == DELETED
    trace = float(np.sum(moved.V**2)) if deleted else 0.0
    summed = lengths(W) + (lengths(dual - W) if len(stream.V) else 0.0)
    wrong = dual_row_error(generation, stream, min(stream.least_pivot, moved.smallest_pivot))
    wrong = max(wrong, off)
    residual = stream.residual + wrong * (norm(z) + norm(corrected))
    residual += _rounding(objective, generation, stream, rows, theta)
    if not has_lost_digits(stream):
        smallest = 1.0 / (1.0 / generation.smallest + stream.v_trace + trace)
        error = max(inverse_error(generation, stream), off)
        check_inverse(smallest, error)
        if not math.isfinite(residual / (smallest - error)):
            raise IllConditioned(UNSTATED)
    lost = 2.0 * wrong * magnified(moved.V, summed, moved.smallest_pivot)
    return stream._replace(
        theta_exact=theta,
        published=published,
        V=V,
        Q=stream.Q.append(basis_rows) if len(basis_rows) else stream.Q,
        residual=residual,
        v_seconds=stream.v_seconds + step_seconds(theta.size, len(stream.V), len(U)),
        v_trace=inverse_grown(generation, stream, trace, lost),
        least_pivot=min(stream.least_pivot, moved.smallest_pivot),
        added=stream.added + (0.0 if deleted else float(np.sum(U**2))),
        dual_error=max(stream.dual_error, off),
    )


def _rounding(
    objective: SoftmaxObjective, generation: Generation, stream: Stream, rows: Rows, theta: Array
) -> float:
    """Return what rounding in the rows' errors, and storing theta, add to the gradient.

    No eigenvalue of S is above 1/2.
    """
    curved = 0.5 * float(rows.weight @ np.einsum("ij,ij->i", rows.X, rows.X))
    scale = objective.error_scale(rows, stream.theta_r) + norm(theta - stream.theta_r) * curved
    stored = largest_eigenvalue(generation, stream) * storing_error(norm(theta))
    return gradient_allowance(scale) + stored
