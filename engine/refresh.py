"""The four sizes of refresh, and the policy that chooses one (design page 1.5).

1. ``complete``, O(d): publish theta_exact in place of its projection.
2. ``polish``, O(n d) a pass: bring theta to the optimum of the live rows. Its first pass is an
   audit: where that certifies theta_exact, nothing more is done.
3. ``compact``, O(n K d): fold V into factor and dual rows; a new generation, no refit.
4. ``rebuild``, O(n d^2): refit, refactor, new dual rows.

No rebuild for an error that is only estimated: an audit measures it first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from engine import blocks
from engine.blockwise import (
    compacted_dual_rows,
    downdated_factors,
    polish_blocks,
    precompute_blocks,
)
from engine.crossover import (
    CLEARLY_CHEAPER,
    NEWTON_HESSIANS,
    folding_seconds,
    rebuilding_seconds,
)
from engine.error import scale
from engine.factor import Factor
from engine.growing import GrowingRows
from engine.objective import Array, Kind, Rows, norm
from engine.stream import (
    Generation,
    Stream,
    at_rest,
    begin,
    condition,
    current_dual_rows,
    linearised_error,
)

_WORSE = 2.0  # times the condition number of the fresh precomputation


class Size(StrEnum):
    """How much a refresh does, smallest first."""

    COMPLETE = "complete"
    POLISH = "polish"
    COMPACT = "compact"
    REBUILD = "rebuild"


@dataclass(frozen=True, slots=True)
class Limits:
    """What the policy may spend before it takes a larger size.

    Attributes
    ----------
    far_under
        A refresh must bring the error to this fraction of the budget, or less.
    fraction_of_d, floor_rows
        Compact or rebuild once K exceeds max(d x fraction, floor), whatever it costs: V is read
        twice, so that at d / 2 a deletion reads as much as the influence method as published.
        Below that, when V has cost as much as folding it away would (`engine.crossover`).
    completions
        Rebuild after this many completions in one generation.
    condition
        Rebuild above this condition number of A_t, where that would lower it: not before A_t is
        twice as ill conditioned as the precomputation left it.
    age_seconds
        Rebuild when the oldest row of V is older: V and Q derive from deleted rows.
    """

    far_under: float = 0.25
    fraction_of_d: float = 0.5
    floor_rows: int = 2048
    completions: int = 64
    condition: float = 1e12
    age_seconds: float = 30 * 86400.0

    def rows(self, d: int) -> int:
        """Return K above which V is folded away whatever it costs."""
        return max(int(self.fraction_of_d * d), self.floor_rows)

    def hard_rows(self, d: int) -> int:
        """Return K above which a request is deferred to a rebuild without its rows."""
        return max(int(4 * self.fraction_of_d * d), 8 * self.floor_rows)


@dataclass(frozen=True, slots=True)
class Facts:
    """What the policy looks at. Errors are absolute.

    ``fresh_condition`` is the condition number that the generation began with; ``fresh`` says
    that nothing has happened since its fit, so that refitting would give the same again;
    ``audited``, that ``remaining`` was measured by a pass over the live rows and not estimated.
    """

    kind: Kind
    d: int
    rows_live: int
    deleted_in_generation: int
    completions: int
    condition: float
    v_age_seconds: float
    v_seconds: float  # what V has cost in this generation, by `engine.crossover`
    remaining: float  # error of theta_exact: what a completion would leave
    budget: float
    deferred: int = 0
    fresh_condition: float = 1.0
    fresh: bool = False
    audited: bool = False


@dataclass(frozen=True, slots=True)
class Choice:
    """A size and why."""

    size: Size
    reason: str


def choose(facts: Facts, limits: Limits, ordered: Size | None = None) -> Choice:
    """Return the smallest size that does what is needed; ``ordered`` is done at the least."""
    if facts.deferred:
        return Choice(Size.REBUILD, f"{facts.deferred} deferred requests wait for it")
    forced = used_up(facts, limits)
    sizes = list(Size)
    if forced and (ordered is None or sizes.index(ordered) < sizes.index(forced.size)):
        return forced
    if ordered is not None:
        return Choice(ordered, "ordered")
    return _for_the_error(facts, limits.far_under * facts.budget)


def _for_the_error(facts: Facts, far_under: float) -> Choice:
    if facts.remaining <= far_under:
        return Choice(Size.COMPLETE, "the exact answer is far under the budget")
    if facts.kind is Kind.LOGISTIC:
        return Choice(Size.POLISH, "the quadratic model's own error nears the budget")
    reason = "accumulated rounding nears the budget"
    return Choice(Size.REBUILD if facts.audited else Size.POLISH, reason)


def used_up(facts: Facts, limits: Limits) -> Choice | None:
    """Return what a generation that is used up needs, or None.

    Whatever this returns sets back the count that it names, so that it is not needed again at
    once.
    """
    # Data that are ill conditioned themselves stay so: no rebuild betters them.
    if facts.condition > max(limits.condition, _WORSE * facts.fresh_condition):
        return Choice(Size.REBUILD, f"condition {facts.condition:.0e} is past its limit")
    if facts.completions >= limits.completions:
        return Choice(Size.REBUILD, f"{facts.completions} completions in this generation")
    if facts.v_age_seconds > limits.age_seconds:
        return Choice(Size.REBUILD, "what derives from deleted rows has reached its age limit")
    return _folded(facts, limits)


def _folded(facts: Facts, limits: Limits) -> Choice | None:
    """Return how V is folded away, if it has too many rows or has cost too much; else None."""
    n, d, K = facts.rows_live, facts.d, facts.deleted_in_generation
    hessians = 1 if facts.kind is Kind.LINEAR else NEWTON_HESSIANS
    compacting, rebuilding = folding_seconds(n, d, K), rebuilding_seconds(n, d, hessians)
    too_many = limits.rows(d) < K
    if not too_many and facts.v_seconds < min(compacting, rebuilding):
        return None
    reason = f"{K} rows deleted in this generation"
    reason += "" if too_many else " have cost as much as folding them away"
    if facts.remaining > limits.far_under * facts.budget:
        # An estimated error is measured first; after the polish a compact does.
        return Choice(Size.REBUILD if facts.audited else Size.POLISH, reason)
    if rebuilding < CLEARLY_CHEAPER * compacting:
        return Choice(Size.REBUILD, f"{reason}, and a rebuild costs less than a compact")
    return Choice(Size.COMPACT, reason)


@dataclass(frozen=True, slots=True)
class NewGeneration:
    """What a compact or a rebuild makes: the state, the factor, and the live rows' dual rows."""

    generation: Generation
    stream: Stream
    factor: Factor
    dual_rows: Array
    certified: float | None


@dataclass(frozen=True, slots=True)
class Polished:
    """What a polish makes.

    Attributes
    ----------
    theta, theta_snapshot
        Where it ended and where it began, d x m.
    certified
        Bound of what is left, or None where no argument applies.
    passes
        Passes over the live rows.
    left
        What is left: the bound, or the length of the Newton step where there is none.
    allowance
        Linear models: the allowance for rounding that the snapshot carried. None for logistic ones.
    residual
        The measured residual: length of the live loss's gradient at ``theta``.
    """

    theta: Array
    theta_snapshot: Array
    certified: float | None
    passes: int
    left: float
    allowance: float | None = None
    residual: float = 0.0


def complete(stream: Stream) -> Stream:
    """Publish theta_exact; new anchor, Q emptied. Cost O(d)."""
    return replace(
        stream,
        anchor=stream.theta_exact,
        published=stream.theta_exact,
        Q=GrowingRows.empty(stream.theta_exact.shape[0]),
        completions=stream.completions + 1,
    )


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
    polished = polish_blocks(
        generation.objective,
        rows,
        W,
        factor=factor,
        V=stream.V.array,
        theta=stream.theta_exact,
        theta_b=generation.theta_b,
        target=target,
        on_pass=on_pass,
    )
    certificate = polished.certificate
    linear = generation.objective.kind is Kind.LINEAR
    return Polished(
        polished.theta,
        stream.theta_exact,
        certificate.bound,
        polished.passes,
        certificate.left,
        stream.rounding + stream.carried if linear else None,
        certificate.residual,
    )


def adopt_polish(stream: Stream, polished: Polished, concurrent_error: float = 0.0) -> Stream:
    """Return the stream with the polished point as reference and anchor.

    Deletions committed since the snapshot are kept: theta <- theta_polished + (theta_now -
    theta_snapshot). What that leaves is ``concurrent_error``, of `concurrent_remainder`; it is
    carried from now on, because the sentinels cannot see it.
    """
    if polished.allowance is not None:
        return _adopt_refined(stream, polished, polished.allowance)
    now = polished.theta + (stream.theta_exact - polished.theta_snapshot)
    if np.array_equal(stream.theta_exact, polished.theta_snapshot):
        now = polished.theta
    fresh = at_rest(polished.theta, polished.left + concurrent_error)
    return replace(
        fresh,
        theta_exact=now,
        anchor=now,
        published=now,
        V=stream.V,
        v_trace=stream.v_trace,
        v_seconds=stream.v_seconds,
        completions=stream.completions,
    )


def _adopt_refined(stream: Stream, polished: Polished, allowance: float) -> Stream:
    """Adopt what a pass measured of a linear model; what it leaves counts as rounding.

    With deletions since the snapshot theta_exact stays: they are exact whatever they start from,
    and only the part of the allowance goes that the audit has shown to be too large (it has grown
    since, so that no more goes than was there).
    """
    now, rounding = polished.theta, polished.left
    if not np.array_equal(stream.theta_exact, polished.theta_snapshot):
        shown = polished.left + norm(polished.theta - polished.theta_snapshot)
        now = stream.theta_exact
        rounding = stream.rounding + stream.carried - max(allowance - shown, 0.0)
    return replace(
        stream,
        theta_exact=now,
        theta_r=now,
        anchor=now,
        published=now,
        Q=GrowingRows.empty(now.shape[0]),
        rounding=rounding,
        carried=0.0,
    )


def concurrent_remainder(
    generation: Generation,
    stream: Stream,
    polished: Polished,
    rows: Rows,
    W: Array,
    concurrent: int,
) -> float:
    """Estimate the error that ``concurrent`` deletions during a polish leave.

    Each was left out with its error by the quadratic model at the snapshot, not with its true
    error at the polished point; the step is wrong by A^-1 x_i times the difference. A typical
    row's part is the root mean square over sample ``rows`` (with base dual rows W); the parts are
    added up as if they all pointed the same way. An estimate of rows that are gone already:
    measured on random rows, 2 to 3 times the truth in the median, 0.5 to 14 times in nine cases
    of ten; rows that are unlike the sample can exceed it.
    """
    if concurrent == 0 or len(rows) == 0 or generation.objective.kind is Kind.LINEAR:
        return 0.0
    at_snapshot = replace(stream, theta_exact=polished.theta_snapshot)
    used, _ = linearised_error(generation, at_snapshot, rows)
    missed = np.abs(generation.objective.error(rows, polished.theta) - used)
    dual = current_dual_rows(stream, rows.X, W)
    d = rows.X.shape[1]
    lengths = np.column_stack(
        [np.linalg.norm(blocks.part(dual, c, d), axis=1) for c in range(generation.blocks)]
    )
    return concurrent * float(np.sqrt(np.mean(np.sum((lengths * missed) ** 2, axis=1))))


def compact(
    generation: Generation, stream: Stream, factor: Factor, rows: Rows, W: Array
) -> NewGeneration:
    """Fold V into the factor and the live rows' dual rows; nothing is refitted."""
    folded = downdated_factors(factor, stream)
    after = Generation(
        generation.number + 1,
        generation.objective,
        generation.theta_b,
        folded.smallest,
        folded.largest,
    )
    d = generation.objective.d
    kept = replace(
        stream,
        V=GrowingRows.empty(generation.blocks * d),
        v_trace=0.0,
        v_seconds=0.0,
        anchor=stream.theta_exact,
        published=stream.theta_exact,
        Q=GrowingRows.empty(d),
        completions=0,
    )
    return NewGeneration(after, kept, folded, compacted_dual_rows(stream, rows.X, W), None)


def rebuild(generation: Generation, rows: Rows, start: Array | None = None) -> NewGeneration:
    """Refit, refactor and make new dual rows from the live rows alone."""
    warm = start if generation.objective.kind is Kind.LOGISTIC else None
    made = precompute_blocks(generation.objective, rows, warm)
    after, stream = begin(
        generation.number + 1, generation.objective, made.theta, made.factor, made.certificate
    )
    return NewGeneration(after, stream, made.factor, made.dual_rows, made.certificate.bound)


def facts_of(
    generation: Generation,
    stream: Stream,
    *,
    rows_live: int,
    estimate: float,
    budget_relative: float,
    v_age_seconds: float = 0.0,
    deferred: int = 0,
    audited: bool = False,
) -> Facts:
    """Gather what the policy looks at; ``estimate`` is the sentinels' (0 for linear models)."""
    return Facts(
        kind=generation.objective.kind,
        d=generation.objective.d,
        rows_live=rows_live,
        deleted_in_generation=len(stream.V),
        completions=stream.completions,
        condition=condition(generation, stream),
        v_age_seconds=v_age_seconds,
        v_seconds=stream.v_seconds,
        remaining=estimate + stream.rounding + stream.carried,
        budget=budget_relative * scale(generation, stream),
        deferred=deferred,
        fresh_condition=generation.largest / generation.smallest,
        fresh=_nothing_has_happened(generation, stream),
        audited=audited,
    )


def _nothing_has_happened(generation: Generation, stream: Stream) -> bool:
    """Return whether the stream is as the generation's own fit left it."""
    fit = generation.theta_b
    return (
        len(stream.V) == 0
        and stream.completions == 0
        and np.array_equal(stream.theta_exact, fit)
        and np.array_equal(stream.published, fit)
    )
