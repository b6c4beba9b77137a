"""The four kinds of refresh, and what each of them does (docs/algebra.md, Refreshes).

1. ``complete``, O(d): publish theta_exact in place of its projection.
2. ``polish``, O(n d) a pass: bring theta to the optimum of the live rows. Its first pass is an
   audit: where that certifies theta_exact, nothing more is done.
3. ``compact``, O(n K d): fold V into factor and dual rows; a new generation, no refit.
4. ``rebuild``, O(n d^2): refit, refactor, new dual rows.

`engine.refresh.policy` chooses one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from lethe.engine.deletion.correction import Correction
from lethe.engine.deletion.generation import (
    UNBOUNDED,
    Generation,
    Stream,
    at_rest,
    begin,
    current_dual_rows,
    linearised_error,
)
from lethe.engine.deletion.growing import GrowingRows
from lethe.engine.deletion.rounded_step import begin_rounded
from lethe.engine.error.certificate import Measured
from lethe.engine.exact.running import Solution
from lethe.engine.fit import blocks
from lethe.engine.fit.factor import Factor
from lethe.engine.fit.objective import Array, Kind, Objective, Rows
from lethe.engine.fit.precompute import check_inverse
from lethe.engine.refresh.blockwise import (
    compacted_dual_rows,
    downdated_factors,
    dual_error_of_blocks,
    factor_error_of_blocks,
    polish_blocks,
    precompute_blocks,
)


@dataclass(frozen=True, slots=True)
class NewGeneration:
    """The result of a compact or a rebuild: state, factor, and the live rows' dual rows."""

    generation: Generation
    stream: Stream
    factor: Factor
    dual_rows: Array
    certified: float | None


@dataclass(frozen=True, slots=True)
class Polished:
    """The result of a polish.

    Attributes
    ----------
    theta, theta_snapshot
        Where it ended and where it began, d x m.
    certified
        Bound of the error left, or None if no argument applies.
    passes
        Passes over the live rows.
    left
        The error left: the bound, or the length of the Newton step if there is none.
    refuted
        Linear models: the stream's residual at the snapshot less that of the first pass; below 0
        if the pass, with its allowance, measured more. None for logistic models.
    residual
        `Certificate.residual` at ``theta``: a bound of the live loss's gradient there.
    """

    theta: Array
    theta_snapshot: Array
    certified: float | None
    passes: int
    left: float
    refuted: float | None = None
    residual: float = 0.0


def complete(stream: Stream) -> Stream:
    """Publish theta_exact; new anchor, Q emptied. Cost O(d)."""
    return stream._replace(
        anchor=stream.theta_exact,
        published=stream.theta_exact,
        Q=GrowingRows.empty(stream.theta_exact.shape[0]),
        completions=stream.completions + 1,
    )


def disbelieve(stream: Stream) -> Stream:
    """Return the stream without a claim about its error: it is unknown until a rebuild."""
    return stream._replace(v_trace=UNBOUNDED)


def polish_snapshot(
    generation: Generation,
    stream: Stream,
    factor: Factor,
    rows: Rows,
    W: Array,
    *,
    target: float,
    on_pass: Callable[[int], None] = lambda _: None,
) -> Polished:
    """Polish theta_exact over the snapshot's live rows until certified within ``target``."""
    polished = polish_blocks(generation, stream, factor, rows, W, target=target, on_pass=on_pass)
    certificate, linear = polished.certificate, generation.objective.kind is Kind.LINEAR
    return Polished(
        polished.theta,
        stream.theta_exact,
        certificate.bound,
        polished.passes,
        certificate.left,
        stream.residual - polished.audited if linear else None,
        certificate.residual,
    )


def adopt_polish(
    stream: Stream, polished: Polished, *, concurrent: int = 0, concurrent_error: float = 0.0
) -> Stream:
    """Return the stream with the polished point as reference and anchor.

    The ``concurrent`` deletions committed since the snapshot are kept: theta <- theta_polished +
    (theta_now - theta_snapshot). The error that this leaves is ``concurrent_error``
    (`concurrent_remainder`); it is carried from now on, because the sentinels cannot see it.
    """
    if polished.refuted is not None:
        return _adopt_refined(stream, polished, polished.refuted, concurrent)
    now = polished.theta
    if concurrent:
        now = polished.theta + (stream.theta_exact - polished.theta_snapshot)
    fresh = at_rest(polished.theta, polished.left + concurrent_error)
    if polished.certified is None:
        fresh = fresh._replace(least_pivot=0.0)
    elif concurrent:  # earlier and later deletions cannot be told apart
        fresh = fresh._replace(least_pivot=stream.least_pivot)
    return fresh._replace(
        theta_exact=now,
        anchor=now,
        published=now,
        V=stream.V,
        v_trace=stream.v_trace,
        added=stream.added,
        dual_error=stream.dual_error,
        v_seconds=stream.v_seconds,
        completions=stream.completions,
    )


def _adopt_refined(stream: Stream, polished: Polished, refuted: float, concurrent: int) -> Stream:
    """Adopt what a pass measured for a linear model.

    With deletions since the snapshot theta_exact stays: they are exact whatever they start from,
    and what they have added to the residual stays in it.
    """
    now, residual = polished.theta, polished.residual
    if concurrent:
        now, residual = stream.theta_exact, stream.residual - refuted
    return stream._replace(
        theta_exact=now,
        theta_r=now,
        anchor=now,
        published=now,
        Q=GrowingRows.empty(now.shape[0]),
        residual=residual,
        carried=0.0,
    )


def concurrent_remainder(
    generation: Generation,
    stream: Stream,
    polished: Polished,
    rows: Rows,
    W: Array,
    concurrent: int,
    pi: Array | None = None,
) -> float:
    """Estimate the error that ``concurrent`` deletions during a polish leave.

    Each was left out with its error by the quadratic model at the snapshot, not with its true
    error at the polished point; the step is wrong by A^-1 x_i times the difference. A typical
    row's part is the root mean square over sample ``rows`` (with base dual rows W, each drawn with
    its chance ``pi``, or all with the same); the parts are added up as if they all pointed the same
    way. The rows themselves are gone, so this is an estimate: measured on random rows, 2 to 3 times
    the truth in the median, 0.5 to 14 times in nine cases of ten; rows unlike the sample can exceed
    it.
    """
    if concurrent == 0 or len(rows) == 0 or generation.objective.kind is Kind.LINEAR:
        return 0.0
    at_snapshot = stream._replace(theta_exact=polished.theta_snapshot)
    used = linearised_error(generation, at_snapshot, rows)
    missed = np.abs(generation.objective.error(rows, polished.theta) - used)
    dual = current_dual_rows(stream, rows.X, W)
    d = rows.X.shape[1]
    lengths = np.column_stack(
        [np.linalg.norm(blocks.part(dual, c, d), axis=1) for c in range(generation.blocks)]
    )
    squares = np.sum((lengths * missed) ** 2, axis=1)
    typical = np.average(squares, weights=None if pi is None else 1.0 / pi)
    return concurrent * float(np.sqrt(typical))


def compact(
    generation: Generation, stream: Stream, factor: Factor, rows: Rows, W: Array
) -> NewGeneration:
    """Fold V into the factor and the live rows' dual rows; nothing is refitted.

    The effect on the dual rows and on the factor is measured against the live rows, and so is a
    linear model's residual: otherwise they would be carried on into the next generation, and grow.
    The least eigenvalue is that of the new factor, less its error: nothing of V is believed.

    Raises
    ------
    IllConditioned
        The inverse would not be known accurately enough; rebuild instead.
    """
    objective, theta_b = generation.objective, generation.theta_b
    folded = downdated_factors(factor, stream)
    compacted = compacted_dual_rows(stream, rows.X, W)
    largest = min(folded.largest, _trace(generation, rows))
    off = dual_error_of_blocks(objective, rows, theta_b, compacted, largest)
    off_by_factor = factor_error_of_blocks(objective, rows, theta_b, folded)
    smallest = max(folded.smallest - off_by_factor, generation.floor)
    check_inverse(smallest, max(off, off_by_factor))
    number = generation.number + 1
    after = Generation(number, objective, theta_b, smallest, largest, off, off_by_factor)
    emptied = stream._replace(
        V=Correction.empty(generation.blocks * objective.d),
        v_trace=0.0,
        added=0.0,
        dual_error=0.0,
        v_seconds=0.0,
        anchor=stream.theta_exact,
        published=stream.theta_exact,
        Q=GrowingRows.empty(objective.d),
        completions=0,
    )
    if objective.kind is Kind.LINEAR:
        # What deleted rows did to the dual rows and to theta has been measured.
        measured = Measured.at(objective, rows, stream.theta_exact)
        emptied = emptied._replace(least_pivot=1.0, residual=measured.residual, carried=0.0)
    return NewGeneration(after, emptied, folded, compacted, None)


def _trace(generation: Generation, rows: Rows) -> float:
    """Return the largest trace of a block's Hessian: no eigenvalue is larger. Cost O(n d h)."""
    squares = np.einsum("ij,ij->i", rows.X, rows.X)
    drawn = squares @ generation.objective.curvatures(rows, generation.theta_b)
    return float(np.max(drawn) + np.sum(generation.objective.penalty))


def begin_with_sums(number: int, objective: Objective, solution: Solution, n: int) -> NewGeneration:
    """Begin a generation of n rows with their exact sums: there are no dual rows."""
    generation, stream = begin_rounded(number, objective, solution.stored())
    nothing = Factor(np.empty((0, 0)), generation.smallest, generation.largest)
    return NewGeneration(generation, stream, nothing, np.empty((n, 0)), solution.minimiser.error)


def rebuild(
    generation: Generation, rows: Rows, start: Array | None = None, *, rounded: bool = False
) -> NewGeneration:
    """Refit, refactor and make new dual rows from the live rows alone.

    ``rounded`` is as of `engine.fit.fit.fit`.
    """
    warm = None if generation.objective.kind is Kind.LINEAR else start
    precomputation = precompute_blocks(generation.objective, rows, warm, rounded=rounded)
    after, stream = begin(generation.number + 1, generation.objective, precomputation)
    return NewGeneration(
        after,
        stream,
        precomputation.factor,
        precomputation.dual_rows,
        precomputation.certificate.bound,
    )
