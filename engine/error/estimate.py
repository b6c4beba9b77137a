"""The error that the budget counts: |theta_published - theta*_live| (docs/error.md).

Five things are kept apart by name:

- *rounded*: what is published is a linear model's minimiser, correctly rounded (docs/exact.md):
  half a unit in the last place of each coefficient is a bound, and no number of more digits exists;
- *exact*: a linear model's error is |published - theta_exact| plus a stated rounding allowance,
  and that sum is a bound;
- *estimate*: a logistic model's error between audits, from a random sample of live rows, the
  sentinels, which favours rows that can add much to the error;
- *certificate*: a true bound, from a pass over the live rows (`engine.error.certificate`);
- *unknown*: no number. A logistic model's error between audits, if the estimate is not believed
  (`believed_estimate`); any model's once V has lost its digits. It counts as over every budget.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from lethe.engine.deletion.generation import (
    Generation,
    Stream,
    distance_to_exact,
    has_lost_digits,
    rounding,
)
from lethe.engine.error import coupled_sample
from lethe.engine.error.budget import over_budget
from lethe.engine.error.coupled_sample import SampledStep
from lethe.engine.error.sentinels import Sentinels
from lethe.engine.error.stiffness import least_stiffness
from lethe.engine.errors import UNSTATED, IllConditioned
from lethe.engine.exact.rounding import half_a_unit
from lethe.engine.fit import blocks
from lethe.engine.fit.objective import Array, Kind, Rows, norm

_STANDARD_ERRORS = 1.0  # of the sampled sum, added so as to err on the safe side
STIFFNESS = (0.5, 2.0)
"""Limits within which a sampled change of the Hessian is believed."""

_LEVERAGES = (0.1, 0.5)
"""Leverage of a deleted row, with a part of the live rows in the sample and with all. Measured on
models of 1,500 to 4,000 rows that lost nearly all rows with a feature, 1,250 a limit: at 1/2 alone
8 estimated 1 % where the truth was beyond 5 %, at 0.2 one did (its leverage was 0.18), at 0.1
none."""

_FLOOR = 1e-3  # of |theta_b|: a model deleted down to nothing has no relative error of its own


class ErrorKind(StrEnum):
    """How a published error is known."""

    ROUNDED = "rounded"
    EXACT = "exact"
    ESTIMATE = "estimate"
    CERTIFICATE = "certificate"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class PublishedError:
    """Error of a published theta, absolute, in the Euclidean norm over all of theta.

    Attributes
    ----------
    value
        The error that the budget counts; None if it is not known.
    kind
        How it is known.
    bound
        A true bound, or None if there is only an estimate, or nothing.
    relative
        ``value`` over `scale`; None if it is not known.
    """

    value: float | None
    kind: ErrorKind
    bound: float | None
    relative: float | None

    def over(self, budget: float) -> bool:
        """Return whether it counts as over a relative ``budget``; an unknown error does."""
        return over_budget(self.relative, budget)


UNKNOWN = PublishedError(None, ErrorKind.UNKNOWN, None, None)


def remainder(generation: Generation, stream: Stream, rows: Rows) -> Array:
    """Return rem_i = mean(x.theta) - mean(x.theta_r) - s_i x.(theta - theta_r), shape k x m.

    The live gradient at theta_exact is exactly the sum of x_i rem_i over the live rows (plus
    what polishing left at theta_r). Cost O(k d m).
    """
    if generation.objective.kind is Kind.SOFTMAX:
        return coupled_sample.remainder(generation, stream, rows)
    return _remainder(generation, stream, rows)[0]


def _remainder(generation: Generation, stream: Stream, rows: Rows) -> tuple[Array, Array, Array]:
    """Return `remainder`, the curvatures at theta_b, and how they have changed since, k x h."""
    objective, exact, reference = generation.objective, stream.theta_exact, stream.theta_r
    points, m = [exact, reference, generation.theta_b, exact - reference], exact.shape[1]
    # Four columns in one product take OpenBLAS longer than two and two; more, one product does.
    pairs = [points[:2], points[2:]] if m == 1 else [points]
    margins = np.hstack([rows.X @ np.hstack(pair) for pair in pairs])
    at_exact, at_reference, at_base, moved = (margins[:, j * m : (j + 1) * m] for j in range(4))
    s = _curvatures_at(generation, rows, at_base)
    change = objective.error_at(rows, at_exact) - objective.error_at(rows, at_reference)
    return change - s * moved, s, _curvatures_at(generation, rows, at_exact) - s


def _curvatures_at(generation: Generation, rows: Rows, margin: Array) -> Array:
    h = generation.blocks
    if h == 1:
        return generation.objective.curvature_at(rows, margin)[:, None]
    parts = [generation.objective.curvature_at(rows, margin[:, c : c + 1]) for c in range(h)]
    return np.column_stack(parts)


def remainder_estimate(
    generation: Generation, stream: Stream, sentinels: Sentinels, rows_live: int
) -> float:
    """Estimate |theta_exact - theta*_live| from the sentinels.

    The sum T = A_t^-1 sum over live rows of x_i rem_i is estimated by the sum over the sample of
    z_i, row i's part over its chance. Its length is returned

    - plus one standard error along itself, the root of sum (1 - pi_i) (z_i.T / |T|)^2: what the
      sample can miss, by its own measure;
    - over the ratio of the Hessian at theta_exact to A_t along T, as sampled and within 1/2 and 2:
      T is a step with the curvatures at theta_b.

    An estimate, not a bound: docs/certificates.md has its distribution over the truth, which
    ``scripts/study.py certificates`` measures. `believed_estimate` tells where it is no guide.
    Cost O(m' d + K d) for m' sentinels: no d x d matrix and no pass over the rows.

    With no sentinel left there is nothing to estimate from, and the whole distance that theta_exact
    has moved since the reference is counted: choose new sentinels.
    """
    return _estimated(generation, stream, sentinels, rows_live, judged=False).length


def believed_estimate(
    generation: Generation, stream: Stream, sentinels: Sentinels, rows_live: int
) -> float | None:
    """Return `remainder_estimate`, or None if it is not to be believed.

    The estimate is a Newton step with A_t, made from a sample. It is not believed where less than
    half of the stiffness is left in some direction, because there a small gradient is a long way:

    - v^T H v <= v^T A_t v / 2 for some v, by the sample: curvatures have fallen since theta_b
      (`engine.error.stiffness`; along the step itself is one such v);
    - a row deleted since the reference had so high a leverage (`leverage_limit`) that few live
      rows are left in its direction: the sample may have none of them, and what a fit or a polish
      had left at the reference has grown by 1 / (1 - leverage);
    - no sentinel is left, or the estimate is not a finite number.

    Cost O(m' d + K d), `engine.error.stiffness.LANCZOS_STEPS` times at most, and only where the
    curvature of a sentinel has fallen by half.
    """
    estimate = _estimated(generation, stream, sentinels, rows_live, judged=True)
    return estimate.length if estimate.believed else None


@dataclass(frozen=True, slots=True)
class _Estimate:
    length: float
    believed: bool = True


@np.errstate(over="ignore", invalid="ignore")  # of counts; detected in the result
def _estimated(
    generation: Generation, stream: Stream, sentinels: Sentinels, rows_live: int, *, judged: bool
) -> _Estimate:
    """Return the estimate; with ``judged``, also whether it is believed."""
    if generation.objective.kind is Kind.LINEAR or rows_live == 0:
        return _Estimate(0.0)
    unread = generation.objective.kind is Kind.SOFTMAX and generation.factor is None
    if len(sentinels.ids) == 0 or unread:
        return _Estimate(norm(stream.theta_exact - stream.theta_r), believed=False)
    limit = leverage_limit(
        generation.objective.d, rows_live, complete=len(sentinels.ids) == rows_live
    )
    covered = 1.0 - stream.least_pivot < limit
    rows, pi = sentinels.rows, sentinels.chances(rows_live)[:, None]
    least, most = STIFFNESS
    if generation.objective.kind is Kind.SOFTMAX:
        sampled = coupled_sample.sampled_step(generation, stream, rows, pi, least)
    else:
        sampled = _sampled_step(generation, stream, rows, sentinels.W, pi)
    if sampled.length == 0.0:
        return _Estimate(0.0, believed=covered)
    stiffness = 1.0
    if sampled.stale > 0.0:
        stiffness += sampled.length * sampled.change / sampled.stale
    longest = sampled.length + _STANDARD_ERRORS * sampled.spread
    estimate = longest / min(max(stiffness, least), most)
    believed = judged and covered and stiffness > least and math.isfinite(estimate)
    return _Estimate(estimate, believed and sampled.fallen() > least)


def _sampled_step(
    generation: Generation, stream: Stream, rows: Rows, W: Array, pi: Array
) -> SampledStep:
    """Return the step of sampled rows with base dual rows W, each drawn with its chance (k x 1)."""
    rem, base, changed = _remainder(generation, stream, rows)
    weighted = rem / pi
    pulled = rows.X.T @ weighted
    step = blocks.weighted_sum(W, weighted, len(pulled)) + stream.V.times(pulled)
    length = norm(step)
    if length == 0.0:
        return SampledStep(0.0)
    along = step / length
    # along . A_t^-1 x_i for every sentinel, without its A_t^-1 x_i.
    products = rows.X @ np.hstack([along, stream.V.times(along)])
    m = along.shape[1]
    margins, rest = products[:, :m], products[:, m:]
    reach = blocks.row_products(W, along) + rest
    parts = np.sum(reach * weighted, axis=1, keepdims=True)
    least, _ = STIFFNESS

    def fallen() -> float:
        if not np.any(base + changed < least * base):  # H >= A_t / 2 at once
            return 1.0
        return least_stiffness(rows.X, W, stream.V, changed / pi, least)

    return SampledStep(
        length,
        spread=float(np.sqrt(np.sum((1.0 - pi) * parts**2))),
        stale=float(np.sum(along * pulled)),
        change=float(np.sum(changed / pi * margins**2)),
        fallen=fallen,
    )


def leverage_limit(d: int, rows_live: int, *, complete: bool = False) -> float:
    """Return the leverage of a deleted row from which the estimate is not believed.

    With every live row in the sample it is 1/2: half of the stiffness in that direction is gone.
    With a part of them it is three times the average d / n (Velleman and Welsch 1981), at least
    0.1.
    """
    risky, never = _LEVERAGES
    return never if complete else min(max(risky, 3.0 * d / rows_live), never)


def published_error(
    generation: Generation,
    stream: Stream,
    sentinels: Sentinels,
    rows_live: int,
    certified: float | None = None,
) -> PublishedError:
    """Return the error of what is published now.

    Parameters
    ----------
    generation, stream
        The state.
    sentinels
        The live sentinels.
    rows_live
        Number of live rows.
    certified
        A bound of |theta_exact - theta*_live|, if an audit has just given one for this state.

    Notes
    -----
    An estimate that is not finite is published as unknown.
    """
    if has_lost_digits(stream):  # neither theta_exact nor what was measured by V is believed
        return UNKNOWN
    distance = distance_to_exact(stream)
    if generation.objective.kind is Kind.LINEAR:
        bound, rounded = distance + left_by_rounding(generation, stream), distance == 0.0
        rounded = rounded and is_rounded(generation, stream)
        kind = ErrorKind.ROUNDED if rounded else ErrorKind.EXACT
        return _error(generation, stream, bound, kind, bound)
    if certified is not None:
        bound = distance + certified
        return _error(generation, stream, bound, ErrorKind.CERTIFICATE, bound)
    remains = believed_estimate(generation, stream, sentinels, rows_live)
    if remains is None:
        return UNKNOWN
    value = distance + rounding(generation, stream) + stream.carried + remains
    return _error(generation, stream, value, ErrorKind.ESTIMATE, None)


def left_by_rounding(generation: Generation, stream: Stream) -> float:
    """Return what rounding, and the fit, have left of the error of theta_exact; O(d m)."""
    if stream.solution is not None:
        return stream.solution.minimiser.error
    if is_rounded(generation, stream):
        return half_a_unit(stream.theta_exact)
    return rounding(generation, stream) + stream.carried


def is_rounded(generation: Generation, stream: Stream) -> bool:
    """Return whether theta_exact is the correctly rounded minimiser.

    It is that of exact sums, or still the one that the generation began with. O(d), and O(1) once a
    row has come or gone.
    """
    if stream.solution is not None:
        return stream.solution.minimiser.rounded
    if not generation.rounded or len(stream.V):
        return False
    return stream.theta_exact is generation.theta_b or np.array_equal(
        stream.theta_exact, generation.theta_b
    )


def _error(
    generation: Generation, stream: Stream, value: float, kind: ErrorKind, bound: float | None
) -> PublishedError:
    relative = value / scale(generation, stream)
    if not math.isfinite(relative):  # then neither is the value: scale is above 0
        raise IllConditioned(UNSTATED)
    return PublishedError(value, kind, bound, relative)


def scale(generation: Generation, stream: Stream) -> float:
    """Return what errors are relative to: max(|published|, floor); 1 if both are 0.

    Where retraining gives theta = 0 there is nothing to be relative to: the error is absolute.
    """
    return relative_to(stream.published, generation.theta_b)


def relative_to(published: Array, fitted: Array) -> float:
    """Return `scale` for what is published, and what the last fit gave."""
    return max(norm(published), _FLOOR * norm(fitted)) or 1.0
