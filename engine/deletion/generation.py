"""A generation, and the running state of its stream of deletions (docs/algebra.md, A stream).

The paper handles one batch and leaves streams open. During a *generation*, the precomputation
(theta_b, A_b = L L^T, dual rows, curvatures s_i at theta_b) stays as it is, and the stream keeps

- ``theta_exact``, the running answer of the quadratic model,
- ``V`` with A_t^-1 = A_b^-1 + V^T J V,
- ``theta_r``, the reference: the last point known to be optimal for the rows live then.

Errors of deleted rows are linearised at theta_r, never taken at the drifting theta: so the state
is a function of the *set* of deleted rows, whatever their order and batching, for logistic
models too. `engine.deletion.stream` deletes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from lethe.engine.deletion.correction import Correction
from lethe.engine.deletion.growing import GrowingRows
from lethe.engine.exact.running import Solution
from lethe.engine.fit import blocks
from lethe.engine.fit.factor import EPS, Factor
from lethe.engine.fit.objective import Array, Kind, Objective, Rows, lengths, norm
from lethe.engine.fit.precompute import Precomputation

UNBOUNDED = 1e300
"""``Stream.v_trace`` where V tells nothing of the inverse any more: a number, because stores and
records keep no infinity."""


@dataclass(frozen=True, slots=True)
class Generation:
    """What one precomputation fixes, as far as a deletion needs it.

    Attributes
    ----------
    number
        Counts the precomputations and compacts of a model, from 0.
    objective
        Loss and penalty.
    theta_b
        d x m, where the curvatures of A_b were taken.
    smallest, largest
        Bounds of the spectrum of A_b, over all blocks.
    dual_error
        Largest |x_i - A_b w_i| / |w_i| of a stored dual row, as it was measured
        (`engine.fit.precompute.dual_error`).
    factor_error
        The same of what is solved with the factor, once it was not made from the rows
        (`engine.fit.precompute.factor_error`); 0 while it is the one that the dual rows came from.
    rounded
        Whether theta_b is a linear model's minimiser, correctly rounded (`engine.exact`).
    factor
        L with A_b = L L^T, of a softmax model: it has no dual rows, and a step solves for those of
        its own (`engine.deletion.coupled`). None of the others, whose steps need no d x d matrix.
    """

    number: int
    objective: Objective
    theta_b: Array
    smallest: float
    largest: float
    dual_error: float
    factor_error: float = 0.0
    rounded: bool = False
    factor: Factor | None = None

    @property
    def by_factor(self) -> Generation:
        """The generation, with the error of solving by the factor in place of that of dual rows."""
        return replace(self, dual_error=max(self.dual_error, self.factor_error))

    @property
    def floor(self) -> float:
        """The least penalty of a coordinate: no Hessian of any rows has a smaller eigenvalue.

        0 with a free intercept.
        """
        return float(self.objective.penalty.min(initial=math.inf))

    @property
    def blocks(self) -> int:
        """Number of blocks h: outputs that share one Hessian (`engine.fit.blocks`)."""
        return self.objective.blocks(self.theta_b.shape[1])


class Stream(NamedTuple):
    """The running state; see the module. All thetas are d x m.

    Attributes
    ----------
    theta_exact, theta_r
        Running answer and reference.
    anchor, published
        theta_a, and what subscribers see.
    V, Q
        K x d and r x d; A_t^-1 = A_b^-1 + V^T J V (`engine.deletion.correction`); Q spans the rows
        deleted or inserted since the anchor. With h blocks V is K x (h d); Q depends on features
        only and is shared.
    v_trace
        A bound of what deletions added to the norm of the inverse: trace(V V^T) of their rows, the
        error of V itself included (`engine.deletion.residual.inverse_grown`); with several blocks
        of the largest. `UNBOUNDED` once V has lost its digits.
    residual
        A bound of the gradient that rounding has left at theta_exact
        (`engine.deletion.residual`); over lam_min(A_t) it is a distance (`rounding`).
    carried
        Error of theta_r itself (what a fit or a polish left), absolute.
    completions
        Completions in this generation.
    v_seconds
        What V has cost in this generation (`engine.deletion.crossover`).
    least_pivot
        Smallest squared pivot of a block since theta_r: the share of v^T A_t v that a deleted row
        left in its own direction, those before it in its batch being gone. Where it is low the
        estimate is not believed (`engine.error.estimate.leverage_limit`); 0 where theta_r itself
        has no certificate. For a linear model, since its dual rows were measured
        (`engine.deletion.residual`).
    added
        Sum of s_i |x_i|^2 of the rows inserted in this generation, the largest of a block: no more
        was added to the norm of A_t.
    dual_error
        That of inserted rows (`Generation.dual_error`); 0 without any.
    gradient
        The generation's own gradient at theta_exact, d x m, up to ``residual``, where theta_exact
        is not its optimum but that of live statistics (`engine.preprocess`); None elsewhere.
    solution
        Exact sums of the live rows, of which theta_exact is the correctly rounded minimiser
        (`engine.deletion.rounded_step`); None of a stream that keeps V.
    """

    theta_exact: Array
    theta_r: Array
    anchor: Array
    published: Array
    V: Correction
    Q: GrowingRows
    v_trace: float = 0.0
    residual: float = 0.0
    carried: float = 0.0
    completions: int = 0
    v_seconds: float = 0.0
    least_pivot: float = 1.0
    added: float = 0.0
    dual_error: float = 0.0
    gradient: Array | None = None
    solution: Solution | None = None


class Deletion(NamedTuple):
    """The outcome of a step: the new stream, and what it appended to the old one."""

    stream: Stream
    V_rows: Array
    Q_rows: Array
    smallest_pivot: float


class LeftOut(NamedTuple):
    """The exact answer without a block of rows, before it is published.

    Attributes
    ----------
    theta
        d x m, the new theta_exact.
    V
        k x (h d), what is appended to V.
    trace
        trace(V V^T) of these rows, the largest of a block.
    lost
        What their error adds to that of the inverse (`engine.deletion.residual.Rounded`).
    smallest_pivot
        See `engine.deletion.downdate.Downdate`.
    residual
        What is added to the stream's (`engine.deletion.residual`).
    """

    theta: Array
    V: Array
    trace: float
    lost: float
    smallest_pivot: float
    residual: float


def begin(
    number: int, objective: Objective, precomputation: Precomputation
) -> tuple[Generation, Stream]:
    """Begin a generation at a fresh precomputation."""
    smallest, largest = precomputation.factor.smallest, precomputation.factor.largest
    generation = Generation(
        number,
        objective,
        precomputation.theta,
        smallest,
        largest,
        precomputation.dual_error,
        rounded=precomputation.rounded,
    )
    stream = at_rest(precomputation.theta, precomputation.certificate.left, generation.blocks)
    if precomputation.certificate.bound is None:  # the reference has no bound: no estimate from it
        stream = stream._replace(least_pivot=0.0)
    if objective.kind is Kind.LINEAR:  # a linear fit leaves only rounding
        stream = stream._replace(residual=precomputation.certificate.residual, carried=0.0)
    return generation, stream


def at_rest(theta: Array, carried: float, h: int = 1) -> Stream:
    """Return the stream, of h blocks, in which nothing has been deleted since ``theta``."""
    d = theta.shape[0]
    return Stream(
        theta_exact=theta,
        theta_r=theta,
        anchor=theta,
        published=theta,
        V=Correction.empty(h * d),
        Q=GrowingRows.empty(d),
        carried=carried,
    )


def condition(generation: Generation, stream: Stream) -> float:
    """Return an upper bound of the condition number of A_t; infinite if none is known. O(d)."""
    smallest = smallest_eigenvalue(generation, stream)
    return largest_eigenvalue(generation, stream) / smallest if smallest > 0 else math.inf


def largest_eigenvalue(generation: Generation, stream: Stream) -> float:
    """Return an upper bound of lam_max(A_t): deletions only lower it. O(1)."""
    return generation.largest + stream.added


def inverse_error(generation: Generation, stream: Stream) -> float:
    """Return the largest |x_i - A_b w_i| / |w_i| of a base dual row, stored or inserted. O(1)."""
    return max(generation.dual_error, stream.dual_error)


def smallest_eigenvalue(
    generation: Generation, stream: Stream, grown: float | None = None
) -> float:
    """Return a lower bound of lam_min(A_t), 0 if none is known.

    The larger of two: `Generation.floor`, and what follows from V: A_t^-1 = A_b^-1 + V^T J V, and
    norms add. The error of the dual rows is subtracted, which is enough as measured
    (docs/error.md).

    Parameters
    ----------
    generation, stream
        The state.
    grown
        A bound of what deletions added to the norm of the inverse; by default ``v_trace``.

    Notes
    -----
    Cost O(d).
    """
    added = stream.v_trace if grown is None else grown
    by_inverse = 1.0 / (1.0 / generation.smallest + added) - inverse_error(generation, stream)
    return max(by_inverse, generation.floor)


def has_lost_digits(stream: Stream) -> bool:
    """Return whether V is too inexact to tell anything of the inverse: only a rebuild helps."""
    return stream.v_trace >= UNBOUNDED


def error_of_trace(stream: Stream, d: int) -> float:
    """Return the part of ``v_trace`` that is the error of V, and not its trace. Cost O(K d)."""
    h = blocks.count(stream.V.array, d)
    traces = [float(np.sum(stream.V.part(c, d).grown ** 2)) for c in range(h)]
    return max(stream.v_trace - max(traces), 0.0)


def inverse_off(generation: Generation, stream: Stream) -> float:
    """Return a bound of |P - A_t^-1|, P = A_b^-1 + V^T J V as it is computed. Cost O(K d).

    The error of V, and that of the factor: |A_b^-1 v| is wrong by `inverse_error` |A_b^-1 v| over
    the smallest eigenvalue.
    """
    d = generation.objective.d if generation.blocks > 1 else stream.V.array.shape[1]
    smallest = smallest_eigenvalue(generation, stream)
    return error_of_trace(stream, d) + inverse_error(generation, stream) / smallest / smallest


def rounding(generation: Generation, stream: Stream) -> float:
    """Return the allowance for rounding in theta_exact, a distance; infinite if none is known."""
    smallest = smallest_eigenvalue(generation, stream)
    return stream.residual / smallest if smallest > 0 else math.inf


def current_dual_rows(stream: Stream, X: Array, W: Array) -> Array:
    """Return A_t^-1 x_i for rows with base dual rows W: W + X V^T J V. Cost O(k K d) a block."""
    return summed_dual_rows(stream, X, W)[0]


def summed_dual_rows(stream: Stream, X: Array, W: Array) -> tuple[Array, Array]:
    """Return the current dual rows, and the sum of the lengths of each one's terms, (k,)."""
    if not len(stream.V):
        return W, lengths(W)
    V, d = stream.V, X.shape[1]
    moved = [V.part(c, d).of_rows(X) for c in range(blocks.count(V.array, d))]
    correction = moved[0] if len(moved) == 1 else np.hstack(moved)
    return W + correction, lengths(W) + lengths(correction)


def linearised_error(generation: Generation, stream: Stream, rows: Rows) -> Array:
    """Return errors at theta_exact by the quadratic model, k x m. Cost O(k d m)."""
    return linearised_error_at(generation, stream, rows, stream.theta_exact)


def linearised_error_at(generation: Generation, stream: Stream, rows: Rows, theta: Array) -> Array:
    """Return errors at ``theta``, linearised at the stream's reference."""
    objective = generation.objective
    if objective.kind is Kind.LINEAR:  # the loss is its own quadratic model
        return objective.error(rows, theta)
    s = objective.curvatures(rows, generation.theta_b)
    return objective.error(rows, stream.theta_r) + s * (rows.X @ (theta - stream.theta_r))


def distance_to_exact(stream: Stream) -> float:
    """Return |published - theta_exact|, rounded up: the part of the error that is known."""
    if stream.published is stream.theta_exact:
        return 0.0
    return length_above(stream.published - stream.theta_exact)


def length_above(difference: Array) -> float:
    """Return a length that is not below that of the difference before it was rounded."""
    return norm(difference) * (1.0 + EPS * (2 + difference.size))
