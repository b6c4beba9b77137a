"""Influence of single rows and of groups, as the dual rows give it (docs/scikit-learn.md).

With the present dual rows w_i = A_t^-1 x_i, errors e_i and curvatures s_i of the stream's quadratic
model at theta_exact:

    leverage          h_i = s_i x_i . w_i, the diagonal of the hat matrix
    leave one out     q_i = e_i / (1 - h_i),  theta_(-i) = theta + w_i q_i^T
    Cook's distance   D_i = |theta_(-i) - theta|_A^2 / (p s^2) = q_i^2 (x_i . w_i) / (p s^2)
    a group           theta_(-U) by `engine.deletion`; D_U = (U delta) . q / (p s^2)

For a linear model all of them are exact. p is the trace of the hat matrix, the effective degrees
of freedom, and s^2 the residual variance, the weighted sum of squares over n - p: without a ridge
these are the number of parameters and the mean squared error, and D_i is Cook's (1977). For a
logistic model they are the one-step versions of Pregibon (1981): one Newton step from the optimum,
with the curvatures of the last fit or rebuild, and s^2 = 1, as statsmodels' GLMInfluence has them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lethe.engine.deletion.downdate import SMALLEST_PIVOT
from lethe.engine.deletion.generation import Generation, Stream, current_dual_rows, linearised_error
from lethe.engine.deletion.methods import method_named
from lethe.engine.deletion.stream import delete
from lethe.engine.fit.objective import Array, Kind, Rows


@dataclass(frozen=True, slots=True)
class EachLeftOut:
    """k rows of a model of m outputs, each left out alone.

    Attributes
    ----------
    reach
        (k, h), x_i . w_i in each block.
    leverage
        (k, h), s_i x_i . w_i.
    q
        (k, m), the errors that the rows have once they are out; NaN where 1 - leverage is below
        the gate of a deletion (`engine.deletion.downdate.SMALLEST_PIVOT`): only a refit can tell.
    """

    reach: Array
    leverage: Array
    q: Array


@dataclass(frozen=True, slots=True)
class Scale:
    """What Cook's distance is measured in.

    Attributes
    ----------
    freedom
        (h,) or (1,), the trace of the hat matrix of each block.
    variance
        (m,), the residual variance of each output; 1 for a logistic model.
    """

    freedom: Array
    variance: Array


def leave_each_out(generation: Generation, stream: Stream, rows: Rows, W: Array) -> EachLeftOut:
    """Leave each of k live rows out alone.

    Parameters
    ----------
    rows, W
        k live rows and their stored dual rows, k x (h d).

    Notes
    -----
    Cost O(k d) a block, and O(k K d) where K rows have changed in this generation: one product
    with V, because x_i . w_i needs no present dual row.
    """
    k, d, h = len(rows), rows.X.shape[1], generation.blocks
    reach = np.einsum("id,ihd->ih", rows.X, W.reshape(k, h, d))
    if len(stream.V):
        reach += np.column_stack([stream.V.part(c, d).leverages(rows.X) for c in range(h)])
    leverage = generation.objective.curvatures(rows, generation.theta_b) * reach
    error = linearised_error(generation, stream, rows)
    left = 1.0 - leverage
    q = np.full(error.shape, np.nan)
    np.divide(error, left, out=q, where=left >= SMALLEST_PIVOT)
    return EachLeftOut(reach, leverage, q)


def steps(stream: Stream, rows: Rows, W: Array, each: EachLeftOut) -> Array:
    """Return theta_(-i) - theta of each row, k x d x m. Cost O(k K d) a block, and O(k d m)."""
    k, d = rows.X.shape
    dual = current_dual_rows(stream, rows.X, W).reshape(k, -1, d).transpose(0, 2, 1)
    return np.asarray(dual * each.q[:, None, :])


def scale(generation: Generation, stream: Stream, rows: Rows, each: EachLeftOut) -> Scale:
    """Return what Cook's distance is measured in, from all live rows. Cost O(n d m)."""
    freedom = np.sum(each.leverage, axis=0)
    if generation.objective.kind is not Kind.LINEAR:
        return Scale(freedom, np.ones(1))
    residual = rows.y - rows.X @ stream.theta_exact
    left = np.count_nonzero(rows.weight) - freedom
    with np.errstate(divide="ignore", invalid="ignore"):  # as many parameters as rows: not finite
        return Scale(freedom, rows.weight @ residual**2 / left)


def cooks_distances(each: EachLeftOut, measured: Scale) -> Array:
    """Return Cook's distance of each row, (k, m). Cost O(k m)."""
    with np.errstate(divide="ignore", invalid="ignore"):  # a model that fits its rows exactly
        return np.asarray(each.q**2 * each.reach / (measured.freedom * measured.variance))


def leave_group_out(
    generation: Generation, stream: Stream, rows: Rows, W: Array
) -> tuple[Array, Array]:
    """Leave k live rows out together; return the step, d x m, and its square |step|_A^2, (m,).

    A step is q on the rows that are out, A step = U^T q, so that its square needs no A.

    Raises
    ------
    IllConditioned
        As `engine.deletion.stream.delete`.

    Notes
    -----
    Cost O(K k d + k^2 d) a block, that of a deletion.
    """
    after = delete(generation, stream, rows, W, method_named("exact")).stream
    step = after.theta_exact - stream.theta_exact
    q = linearised_error(generation, after, rows)
    return step, np.sum((rows.X @ step) * q, axis=0)
