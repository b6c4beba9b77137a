"""A stream of deletions within one generation (design page 1.4).

The paper handles one batch and leaves streams open. During a *generation*, the precomputation
(theta_b, A_b = L L^T, dual rows, curvatures s_i at theta_b) stays as it is, and the stream keeps

- ``theta_exact``, the running answer of the quadratic model,
- ``V`` with A_t^-1 = A_b^-1 + V^T V,
- ``theta_r``, the reference: the last point known to be optimal for the rows live then.

Errors of deleted rows are linearised at theta_r, never taken at the drifting theta: so the state
is a function of the *set* of deleted rows, whatever their order and batching, for logistic
models too. Everything here is a pure function of its arguments; arrays are never written to.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from engine import blocks
from engine.certificate import gradient_allowance
from engine.crossover import step_seconds
from engine.downdate import SMALLEST_PIVOT, Downdate, leave_out
from engine.errors import UNSTATED, IllConditioned
from engine.growing import GrowingRows
from engine.methods.method import DeletionMethod, Step
from engine.objective import Array, Kind, Objective, Rows, lengths, norm
from engine.precompute import Precomputation, check_inverse

BLOCK = 256
"""Rows left out at once: k^3 stays small beside k^2 d, and M fits the cache (512 KiB)."""


@dataclass(frozen=True, slots=True)
class Generation:
    """What one precomputation fixes, as far as a deletion needs it (no d x d matrix).

    Attributes
    ----------
    number
        Counts the precomputations of a model, from 0.
    objective
        Loss and penalty.
    theta_b
        d x m, where the curvatures of A_b were taken.
    smallest, largest
        Bounds of the spectrum of A_b, over all blocks.
    dual_error
        Largest |x_i - A_b w_i| / |w_i| of a stored dual row, as it was measured
        (`engine.precompute.dual_error`).
    """

    number: int
    objective: Objective
    theta_b: Array
    smallest: float
    largest: float
    dual_error: float

    @property
    def blocks(self) -> int:
        """Number of blocks h: outputs that share one Hessian (`engine.blocks`)."""
        return self.objective.blocks(self.theta_b.shape[1])


@dataclass(frozen=True, slots=True)
class Stream:
    """The running state; see the module. All thetas are d x m.

    Attributes
    ----------
    theta_exact, theta_r
        Running answer and reference.
    anchor, published
        theta_a, and what subscribers see.
    V, Q
        K x d and r x d; A_t^-1 = A_b^-1 + V^T V; Q spans the rows deleted since the anchor.
        With h blocks V is K x (h d), and Q, which knows features only, is shared.
    v_trace
        trace(V V^T), an upper bound of its norm; with several blocks a bound of the largest.
    residual
        A bound of the gradient that rounding has left at theta_exact (`residual_after`); over
        lam_min(A_t) it is a distance (`rounding`).
    carried
        Error of theta_r itself (what a fit or a polish left), absolute.
    completions
        Completions in this generation.
    v_seconds
        What V has cost in this generation (`engine.crossover`).
    least_pivot
        Smallest squared pivot of a block since theta_r: the share of v^T A_t v that a deleted row
        left in its own direction, those before it in its batch being gone. Where it is low the
        estimate is not believed (`engine.error.leverage_limit`); 0 where theta_r itself has no
        certificate. Of a linear model since its dual rows were measured (`residual_after`).
    """

    theta_exact: Array
    theta_r: Array
    anchor: Array
    published: Array
    V: GrowingRows
    Q: GrowingRows
    v_trace: float = 0.0
    residual: float = 0.0
    carried: float = 0.0
    completions: int = 0
    v_seconds: float = 0.0
    least_pivot: float = 1.0


@dataclass(frozen=True, slots=True)
class Deletion:
    """The outcome of `delete`: the new stream, and what it appended to the old one."""

    stream: Stream
    V_rows: Array
    Q_rows: Array
    smallest_pivot: float


def begin(number: int, objective: Objective, made: Precomputation) -> tuple[Generation, Stream]:
    """Begin a generation at a fresh precomputation."""
    smallest, largest = made.factor.smallest, made.factor.largest
    generation = Generation(number, objective, made.theta, smallest, largest, made.dual_error)
    stream = at_rest(made.theta, made.certificate.left, generation.blocks)
    if made.certificate.bound is None:  # nothing is known of the reference: no estimate from it
        stream = replace(stream, least_pivot=0.0)
    if objective.kind is Kind.LINEAR:  # all that a linear fit leaves is rounding
        stream = replace(stream, residual=made.certificate.residual, carried=0.0)
    return generation, stream


def at_rest(theta: Array, carried: float, h: int = 1) -> Stream:
    """Return the stream, of h blocks, in which nothing has been deleted since ``theta``."""
    d = theta.shape[0]
    return Stream(
        theta_exact=theta,
        theta_r=theta,
        anchor=theta,
        published=theta,
        V=GrowingRows.empty(h * d),
        Q=GrowingRows.empty(d),
        carried=carried,
    )


def condition(generation: Generation, stream: Stream) -> float:
    """Return an upper bound of the condition number of A_t. O(1)."""
    return generation.largest / smallest_eigenvalue(generation, stream)


def smallest_eigenvalue(generation: Generation, stream: Stream) -> float:
    """Return a lower bound of lam_min(A_t): A_t^-1 = A_b^-1 + V^T V, norms add. O(1).

    What dual rows are off by is taken off, which is enough as measured (docs/error.md). `delete`
    refuses a step that would leave less than half of the first term.
    """
    return 1.0 / (1.0 / generation.smallest + stream.v_trace) - generation.dual_error


def rounding(generation: Generation, stream: Stream) -> float:
    """Return the allowance for rounding in theta_exact, a distance. O(1)."""
    return stream.residual / smallest_eigenvalue(generation, stream)


def current_dual_rows(stream: Stream, X: Array, W: Array) -> Array:
    """Return A_t^-1 x_i for rows with base dual rows W: W + (X V^T) V. Cost O(k K d) a block."""
    return _added_up(stream, X, W)[0]


def _added_up(stream: Stream, X: Array, W: Array) -> tuple[Array, Array]:
    """Return the current dual rows, and of each the lengths that it is added up from, (k,)."""
    V, d = stream.V.array, X.shape[1]
    parts = [blocks.part(V, c, d) for c in range(blocks.count(V, d))]
    moved = [(X @ one.T) @ one for one in parts]
    together = moved[0] if len(moved) == 1 else np.hstack(moved)
    return W + together, lengths(W) + lengths(together)


def linearised_error(generation: Generation, stream: Stream, rows: Rows) -> tuple[Array, Array]:
    """Return errors at theta_exact by the quadratic model, and at theta_r. Cost O(k d m)."""
    at_reference = generation.objective.error(rows, stream.theta_r)
    if generation.objective.kind is Kind.LINEAR:  # the loss is its own quadratic model
        return generation.objective.error(rows, stream.theta_exact), at_reference
    s = generation.objective.curvatures(rows, generation.theta_b)
    return at_reference + s * (rows.X @ (stream.theta_exact - stream.theta_r)), at_reference


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
        The gate of `engine.downdate` refused a block; the state before stands.

    Notes
    -----
    Cost O(K k d + k^2 d) a block, K rows deleted in this generation: linear in d, independent
    of n.
    """
    first_v, first_q = len(stream.V), len(stream.Q)
    smallest_pivot = 1.0
    for start in range(0, len(rows), BLOCK):
        block = slice(start, start + BLOCK)
        stream, pivot = _delete_block(generation, stream, rows.take(block), W[block], method)
        smallest_pivot = min(smallest_pivot, pivot)
    return Deletion(stream, stream.V.array[first_v:], stream.Q.array[first_q:], smallest_pivot)


def _delete_block(
    generation: Generation, stream: Stream, rows: Rows, W: Array, method: DeletionMethod
) -> tuple[Stream, float]:
    error, at_reference = linearised_error(generation, stream, rows)
    curvatures = generation.objective.curvatures(rows, generation.theta_b)
    dual, summed = _added_up(stream, rows.X, W)
    left = _leave_out(rows.X, dual, error, curvatures)
    theta_exact = stream.theta_exact + left.delta
    if not np.isfinite(theta_exact).all():  # errors can overflow where leverages do not
        raise IllConditioned("the step is not a finite number")
    v_trace = stream.v_trace + _trace(left.V, rows.X.shape[1])
    check_inverse(1.0 / (1.0 / generation.smallest + v_trace), generation.dual_error)
    published = method.publish(
        Step(rows.X, W, at_reference, theta_exact),
        anchor=stream.anchor,
        published=stream.published,
        Q=stream.Q.array,
    )
    after = replace(
        stream,
        theta_exact=theta_exact,
        published=published.theta,
        V=stream.V.append(left.V),
        Q=stream.Q.append(published.basis_rows),
        v_trace=v_trace,
        v_seconds=stream.v_seconds + _seconds(generation.objective, stream, len(rows)),
        least_pivot=min(stream.least_pivot, left.smallest_pivot),
    )
    residual = residual_after(generation, stream, after, rows, left, summed)
    after = replace(after, residual=residual)
    if not np.isfinite(rounding(generation, after)):
        raise IllConditioned(UNSTATED)
    return after, left.smallest_pivot


def _leave_out(U: Array, W: Array, error: Array, curvatures: Array) -> Downdate:
    """Leave rows out of every block; one that refuses, refuses for all."""
    d, h = U.shape[1], curvatures.shape[1]
    parts = [
        leave_out(U, blocks.part(W, c, d), blocks.outputs(error, c, h), curvatures[:, c])
        for c in range(h)
    ]
    if h == 1:
        return parts[0]
    return Downdate(
        np.hstack([one.delta for one in parts]),
        np.hstack([one.q for one in parts]),
        np.hstack([one.V for one in parts]),
        min(one.smallest_pivot for one in parts),
    )


def _trace(V: Array, d: int) -> float:
    """Return the largest trace(V V^T) of a block."""
    h = blocks.count(V, d)
    return max(float(np.sum(blocks.part(V, c, d) ** 2)) for c in range(h))


def _seconds(objective: Objective, stream: Stream, k: int) -> float:
    """Return what V adds to a block of rows; of one block, as a compact is priced for one."""
    return step_seconds(objective.d, len(stream.V), k, estimated=objective.kind is Kind.LOGISTIC)


def residual_after(
    generation: Generation,
    before: Stream,
    after: Stream,
    rows: Rows,
    left: Downdate,
    summed: Array,
) -> float:
    """Return the bound of the gradient that rounding has left at theta_exact after one block.

    With H the Hessian before and r_i = x_i - H w_i what the computed dual rows are off by, the
    gradient over the rows that remain is, exactly,

        g' = g + U^T (q - e') - sum r_i q_i + H (theta' - theta - W^T q)

    for whatever q was computed, e' the rows' errors at theta' (docs/error.md). The first new term
    is measured, with an allowance for measuring it; the second is what the stored dual rows are off
    by, which rows of high leverage amplify by up to the root of 1 / pivot; the third is what was
    lost when theta' was stored. ``summed`` are the lengths that the dual
    rows were added up from, (k,). Cost O(k d m).
    """
    error, _ = linearised_error(generation, after, rows)
    measured = norm(rows.X.T @ (left.q - error))
    scale = _error_scale(generation, after, rows)
    amplified = 1.0 / math.sqrt(max(after.least_pivot, SMALLEST_PIVOT))
    dual = generation.dual_error * amplified * float(lengths(left.q) @ summed)
    lost = norm(_lost(before.theta_exact, left.delta, after.theta_exact))
    added = measured + gradient_allowance(scale) + dual + generation.largest * lost
    return before.residual + added


def _error_scale(generation: Generation, stream: Stream, rows: Rows) -> float:
    """Return what rounding in the rows' errors at theta_exact is proportional to, as a gradient."""
    objective = generation.objective
    if objective.kind is Kind.LINEAR:
        return objective.error_scale(rows, stream.theta_exact)
    moved = norm(stream.theta_exact - stream.theta_r)
    squares = np.einsum("ij,ij->i", rows.X, rows.X)[:, None]
    curved = float(np.sum(squares * objective.curvatures(rows, generation.theta_b)))
    return objective.error_scale(rows, stream.theta_r) + moved * curved


def _lost(theta: Array, step: Array, total: Array) -> Array:
    """Return theta + step - total, exactly, for the floating-point sum of the two (Knuth 1969)."""
    moved = total - theta
    return (theta - (total - moved)) + (step - moved)


def distance_to_exact(stream: Stream) -> float:
    """Return |published - theta_exact|: the part of the error that is known exactly."""
    return norm(stream.published - stream.theta_exact)
