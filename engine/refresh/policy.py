"""Which of the four kinds of refresh is due: the smallest that suffices.

No rebuild for an error that is only estimated, or unknown: an audit measures it first, unless a
rebuild takes no longer than a polish, of which an audit is the first pass.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lethe.engine.deletion.crossover import (
    CLEARLY_CHEAPER,
    NEWTON_HESSIANS,
    folding_seconds,
    polishing_seconds,
    rebuilding_seconds,
    refitting_seconds,
)
from lethe.engine.deletion.generation import Generation, Stream, condition, has_lost_digits
from lethe.engine.error.estimate import left_by_rounding, leverage_limit, scale
from lethe.engine.fit.objective import Array, Kind
from lethe.engine.refresh.size import RefreshSize

_WORSE = 2.0  # times the condition number of the fresh precomputation


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
        Below that, when V has cost as much as folding it away would (`engine.deletion.crossover`).
    completions
        Rebuild after this many completions in one generation.
    condition
        Rebuild above this condition number of A_t, if that would lower it: not before A_t is
        twice as ill conditioned as the precomputation left it.
    age_seconds
        Rebuild when the first deletion since the last rebuild is older: V, Q and theta_b derive
        from deleted rows, and a compact keeps theta_b.
    """

    far_under: float = 0.25
    fraction_of_d: float = 0.5
    floor_rows: int = 2048
    completions: int = 64
    condition: float = 1e12
    age_seconds: float = 30 * 86400.0

    def rows(self, d: int) -> int:
        """Return the K above which V is folded away whatever it costs."""
        return max(int(self.fraction_of_d * d), self.floor_rows)

    def hard_rows(self, d: int) -> int:
        """Return the K above which a request is deferred to a rebuild without its rows."""
        return max(int(4 * self.fraction_of_d * d), 8 * self.floor_rows)


@dataclass(frozen=True, slots=True)
class RefreshFacts:
    """What the policy looks at. Errors are absolute.

    ``remaining`` is None if it is unknown: use `left_within`.
    ``fresh_condition`` is the condition number that the generation began with; ``fresh`` means
    that nothing has happened since its fit, so that refitting would give the same again;
    ``audited``, that ``remaining`` was measured by a pass over the live rows and not estimated;
    ``stale`` (`_stale`), that an unknown error will be unknown again after another polish;
    ``stored``, that rows are read from a store, and written there by a rebuild; ``lost``, that V
    has lost its digits (`engine.deletion.generation.has_lost_digits`).
    """

    kind: Kind
    d: int
    rows_live: int
    deleted_in_generation: int
    completions: int
    condition: float
    v_age_seconds: float
    v_seconds: float  # what V has cost in this generation, by `engine.deletion.crossover`
    remaining: float | None  # error of theta_exact: what a completion would leave
    budget: float
    deferred: int = 0
    fresh_condition: float = 1.0
    fresh: bool = False
    audited: bool = False
    stale: bool = False
    stored: bool = False
    lost: bool = False

    def left_within(self, amount: float) -> bool:
        """Return whether a completion leaves no more than ``amount``; None and NaN do not."""
        return self.remaining is not None and self.remaining <= amount


@dataclass(frozen=True, slots=True)
class Choice:
    """A size and why."""

    size: RefreshSize
    reason: str


def choose(facts: RefreshFacts, limits: Limits, ordered: RefreshSize | None = None) -> Choice:
    """Return the smallest size that suffices; at least ``ordered``, if given."""
    if facts.deferred:
        return Choice(RefreshSize.REBUILD, f"{facts.deferred} deferred requests wait for it")
    forced = used_up(facts, limits)
    sizes = list(RefreshSize)
    if forced and (ordered is None or sizes.index(ordered) < sizes.index(forced.size)):
        return forced
    if ordered is not None:
        return Choice(ordered, "ordered")
    return _for_the_error(facts, limits.far_under * facts.budget)


def _for_the_error(facts: RefreshFacts, far_under: float) -> Choice:
    if facts.left_within(far_under):
        return Choice(RefreshSize.COMPLETE, "the exact answer is far under the budget")
    if facts.kind is not Kind.LINEAR:
        reason = "the quadratic model's own error nears the budget"
        if facts.remaining is None:
            reason = "the error is unknown"
        return _polish_or_rebuild(facts, reason)
    reason = "accumulated rounding nears the budget"
    return Choice(RefreshSize.REBUILD if facts.audited else RefreshSize.POLISH, reason)


def _polish_or_rebuild(facts: RefreshFacts, reason: str) -> Choice:
    """Return the cheaper of the two, both of which end at the optimum, or the one that helps."""
    if facts.remaining is None and facts.stale:
        return Choice(RefreshSize.REBUILD, "the error is unknown again after a polish")
    n, d, K = facts.rows_live, facts.d, facts.deleted_in_generation
    hard, stored = facts.remaining is None, facts.stored
    polishing = polishing_seconds(n, d, K, hard=hard, stored=stored)
    if refitting_seconds(n, d, hard=hard, stored=stored) <= polishing:
        return Choice(RefreshSize.REBUILD, f"{reason}, and a rebuild costs less than a polish")
    return Choice(RefreshSize.POLISH, reason)


def used_up(facts: RefreshFacts, limits: Limits) -> Choice | None:
    """Return what a generation that is used up needs, or None.

    The refresh that this returns resets the count that it names, so that it is not due again at
    once.
    """
    if facts.lost:
        return Choice(RefreshSize.REBUILD, "V has lost its digits, or failed the drift audit")
    # Data that are ill conditioned themselves stay so: a rebuild does not help.
    if facts.condition > max(limits.condition, _WORSE * facts.fresh_condition):
        return Choice(RefreshSize.REBUILD, f"condition {facts.condition:.0e} is past its limit")
    if facts.completions >= limits.completions:
        return Choice(RefreshSize.REBUILD, f"{facts.completions} completions in this generation")
    if facts.v_age_seconds > limits.age_seconds:
        return Choice(
            RefreshSize.REBUILD, "what derives from deleted rows has reached its age limit"
        )
    return _folded(facts, limits)


def _folded(facts: RefreshFacts, limits: Limits) -> Choice | None:
    """Return how V is folded away, if it has too many rows or has cost too much; else None."""
    n, d, K = facts.rows_live, facts.d, facts.deleted_in_generation
    hessians = 1 if facts.kind is Kind.LINEAR else NEWTON_HESSIANS
    compacting, rebuilding = folding_seconds(n, d, K), rebuilding_seconds(n, d, hessians)
    too_many = limits.rows(d) < K
    if not too_many and facts.v_seconds < min(compacting, rebuilding):
        return None
    reason = f"{K} rows deleted in this generation"
    reason += "" if too_many else " have cost as much as folding them away"
    if not facts.left_within(limits.far_under * facts.budget):
        # An estimated error is measured first; after the polish a compact suffices.
        if facts.kind is not Kind.LINEAR and not facts.audited:
            return _polish_or_rebuild(facts, reason)
        return Choice(RefreshSize.REBUILD if facts.audited else RefreshSize.POLISH, reason)
    if rebuilding < CLEARLY_CHEAPER * compacting:
        return Choice(RefreshSize.REBUILD, f"{reason}, and a rebuild costs less than a compact")
    return Choice(RefreshSize.COMPACT, reason)


def facts_of(
    generation: Generation,
    stream: Stream,
    *,
    rows_live: int,
    estimate: float | None,
    budget_relative: float,
    v_age_seconds: float = 0.0,
    deferred: int = 0,
    audited: bool = False,
    stored: bool = False,
) -> RefreshFacts:
    """Gather what the policy looks at.

    ``estimate`` is the sentinels' (0 for linear models), None where it is not believed.
    """
    left, d = left_by_rounding(generation, stream), len(stream.published)
    conditions, completions = (1.0, 1.0), 0
    if stream.solution is None:  # with exact sums, nothing depends on these
        conditions = condition(generation, stream), generation.largest / generation.smallest
        completions = stream.completions
        d = stream.V.array.shape[1] // generation.blocks  # coordinates that share a Hessian
    return RefreshFacts(
        kind=generation.objective.kind,
        d=d,
        rows_live=rows_live,
        deleted_in_generation=len(stream.V),
        completions=completions,
        condition=conditions[0],
        v_age_seconds=v_age_seconds,
        v_seconds=stream.v_seconds,
        remaining=None if estimate is None else estimate + left,
        budget=budget_relative * scale(generation, stream),
        deferred=deferred,
        fresh_condition=conditions[1],
        fresh=_nothing_has_happened(generation, stream, stored=stored),
        audited=audited,
        stale=_stale(generation, stream, rows_live),
        stored=stored,
        lost=has_lost_digits(stream),
    )


def _stale(generation: Generation, stream: Stream, rows_live: int) -> bool:
    """Return whether a polish has moved the reference, and no row of high leverage has gone since.

    An error that is unknown then is so because curvatures are no longer those at theta_b.
    """
    if rows_live == 0 or _same(stream.theta_r, generation.theta_b):
        return False
    return 1.0 - stream.least_pivot < leverage_limit(generation.objective.d, rows_live)


def _nothing_has_happened(generation: Generation, stream: Stream, *, stored: bool) -> bool:
    """Return whether the stream is as the generation's own fit left it.

    With preprocessing, the fit ends with theta_exact at the statistics' own answer, which may be
    another theta than theta_b by its last digits. In a store nothing but changes of rows and
    completions moves it later.
    """
    if len(stream.V) or stream.completions:
        return False
    fit = generation.theta_b
    if stored and stream.gradient is not None:
        fit = stream.theta_exact
    return _same(stream.theta_exact, fit) and _same(stream.published, fit)


def _same(theta: Array, other: Array) -> bool:
    """Return whether two thetas are equal; mostly they are the same array."""
    return theta is other or np.array_equal(theta, other)
