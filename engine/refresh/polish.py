"""Polish: bring theta back to the optimum of the live rows without a new factor.

Preconditioned conjugate directions on the live loss itself. Each pass over the rows measures the
true gradient g and one new direction, A'^-1 g with the stale factor A_t, whose rows with the
largest change of leverage are brought up to date now and then (`engine.refresh.reweighted`).
Margins of the point and of the last directions are kept, so the loss is minimised over their span
at no further pass: a search costs O(n), and nothing is spent on a system that the next point makes
obsolete. (Newton-CG takes 1.5 to 3 times the passes; a plain step with the frozen factor stalls on
nearly separable data: docs/algebra.md, Refreshes.)

At the end one system H x = g is solved in part, by conjugate gradients, for the certificate
(`engine.error.certificate.certify_with_residual`). A linear model needs refinement only.

The first pass, before anything moves, is an *audit* of theta_exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from lethe.engine.deletion.correction import Correction
from lethe.engine.error.certificate import Certificate, Measured, certify_by_residual
from lethe.engine.fit.factor import EPS, Factor
from lethe.engine.fit.objective import Array, Kind, Objective, Rows, norm
from lethe.engine.refresh.live import Live, Point, survey
from lethe.engine.refresh.proving import audit, certify
from lethe.engine.refresh.reweighted import WORTH, Operator, Reweighted, reweight
from lethe.engine.refresh.subspace import RESOLVED, Direction, search

PASS_LIMIT = 60
"""Passes over the live rows; a rebuild costs about d / 2 of them."""

_DIRECTIONS = 6  # kept, the newest included; more save no pass (measured: 12, 40)
_REWEIGHT_EVERY = 3  # passes; it also costs as much time
_LIKELY = 0.8  # of what is enough to reweight: beyond it the dual rows are read to make sure
_SLOW = 0.1  # of a step's length is left after a good pass: reweighting is then not worthwhile
_CANCELLED = 1e-6  # of the summed length of a step's terms: in a shorter one X v has lost digits
_FAR = 16.0  # times |theta|: margins accumulated over such a distance have lost a digit
_TRIGGER = 0.7  # of the target: a Newton step by A' must be this short before H is solved with


@dataclass(frozen=True, slots=True)
class PolishedBlocks:
    """The outcome of `polish`.

    Attributes
    ----------
    theta
        d x 1, the polished point.
    certificate
        Bound of its distance to the minimiser over the live rows.
    passes
        Passes over the live rows: each product X v with its X^T v is one.
    audited
        `Certificate.residual` of the first pass, where it began.
    """

    theta: Array
    certificate: Certificate
    passes: int
    audited: float


def stale_inverse(factor: Factor, V: Correction) -> Operator:
    """Return v -> A_t^-1 v for v of shape d x m. Each call costs O(d^2 + K d)."""
    return lambda v: factor.solve(v) + V.times(v)


def polish(
    objective: Objective,
    rows: Rows,
    W: Array,
    *,
    factor: Factor,
    V: Correction,
    theta: Array,
    theta_b: Array,
    target: float,
    smallest: float | None = None,
    off: float = 0.0,
    limit: int = PASS_LIMIT,
    on_pass: Callable[[int], None] = lambda _: None,
) -> PolishedBlocks:
    """Minimise the live loss from ``theta`` until the certificate is at most ``target``.

    If no bound is available, it stops at a Newton step no longer than ``target``, whose length is
    the certificate's estimate (the distance left is shorter still).

    Parameters
    ----------
    objective
        The loss.
    rows, W
        The n live rows and their dual rows relative to A_b.
    factor, V
        A_t^-1 = (L L^T)^-1 + V^T J V.
    theta, theta_b
        Where to start, and where the factor's curvatures were taken; d x m (logistic: m = 1).
    target
        Absolute bound to reach.
    smallest
        A lower bound of lam_min(A_t); None to compute it from V, taken to be exact.
    off
        A bound of what the stale inverse is off by (`engine.deletion.generation.inverse_off`).
    limit
        Passes at most (one more may be taken to certify). The best point is returned when the
        limit is reached.
    on_pass
        Called with the number of passes so far, for progress.

    Notes
    -----
    Cost O(n d) a pass, O(r^2 d + r K d) for each reweighting of r <= d / 4 rows, and O(n K d)
    once if a certificate needs the leverages (`engine.refresh.live`).
    """
    passes = _Passes(limit, on_pass)
    if smallest is None:
        smallest = 1.0 / (1.0 / factor.smallest + V.grown_norm())
    stale = stale_inverse(factor, V)
    if objective.kind is Kind.LINEAR:
        return _refine(objective, rows, stale, smallest, theta, target, passes)
    live, point = survey(
        objective, rows, W, V,
        stale=stale, smallest=smallest, off=off, theta=theta, theta_b=theta_b,
    )  # fmt: skip
    passes.take()
    return _polish_by_newton(live, point, target, passes)


@dataclass(slots=True)
class _Passes:
    """Counts passes over the rows, and reports them."""

    limit: int
    report: Callable[[int], None]
    count: int = 0

    def take(self) -> bool:
        self.count += 1
        self.report(self.count)
        return self.over

    @property
    def over(self) -> bool:
        return self.count >= self.limit


def _polish_by_newton(live: Live, point: Point, target: float, passes: _Passes) -> PolishedBlocks:
    z = live.stale(point.gradient)
    audited = audit(live, point, z, math.inf if passes.over else target)
    if passes.over or (audited.bound is not None and audited.bound <= target):
        return PolishedBlocks(point.theta, audited, passes.count, audited.residual)
    weights = Reweighted(live.stale, live.curvature_b, live.curvature_b)
    directions: list[Direction] = []
    since, trigger, length, last = _REWEIGHT_EVERY, _TRIGGER * target, math.inf, 0.0
    while True:
        # Reweighted before the last system, too: it costs no pass, and z then estimates its length.
        slow = norm(z) > _SLOW * last
        due = slow and (since >= _REWEIGHT_EVERY or (norm(z) <= trigger and since > 0))
        if due and _worth(live, weights, point):
            weights, since = _reweighted(live, point), 0
            z = weights.inverse(point.gradient)
        since, last = since + 1, norm(z)
        shorter = norm(z) < 0.5 * length
        length = min(length, norm(z))
        stalled = not shorter and _unresolved(live, point, z)
        if norm(z) <= trigger or stalled or passes.over:
            most = math.inf if stalled else target
            certificate, z, Xz = certify(
                live, weights, point, z, most, passes.take, over=passes.over
            )
            reached = certificate.bound is not None and certificate.bound <= target
            if (
                reached
                or stalled
                or passes.over
                or (certificate.bound is None and norm(z) <= target)
            ):
                return PolishedBlocks(point.theta, certificate, passes.count, audited.residual)
            trigger *= (
                0.5 if certificate.bound is None else max(0.1, 0.9 * target / certificate.bound)
            )
        else:
            Xz = live.rows.X @ z
        directions = [Direction.of(z, Xz), *directions[: _DIRECTIONS - 1]]
        moved = search(live.objective, live.rows, point.theta, point.margin, directions)
        if moved is None:  # rounding hides every descent
            certificate, _, _ = certify(
                live, weights, point, z, target, passes.take, over=passes.over
            )
            return PolishedBlocks(point.theta, certificate, passes.count, audited.residual)
        if norm(moved.v) > _CANCELLED * moved.summed:  # else z itself is the better direction
            directions[0] = moved
        point = _moved(live, point, moved, passes)
        z = weights.inverse(point.gradient)


def _moved(live: Live, point: Point, step: Direction, passes: _Passes) -> Point:
    """Take a step and measure there; margins that have lost digits on the way are recomputed."""
    theta, travelled = point.theta + step.v, point.travelled + step.summed
    passes.take()
    if travelled <= _FAR * norm(theta):
        return live.measured(theta, point.margin + step.Xv, travelled)
    passes.take()
    return live.measured(theta, live.rows.X @ theta, 0.0)


def _worth(live: Live, weights: Reweighted, point: Point) -> bool:
    """Return whether curvatures have changed enough since A' was made to make a new one.

    Until dual rows have been read, leverages are taken to be in proportion to |x_i|^2, their sum
    with the curvatures d: the dual rows are read only if that comes near to the threshold.
    """
    change, enough = np.abs(point.curvature - weights.seen), WORTH * live.objective.d
    if live.base is None:
        squares = live.lengths**2
        likely = live.objective.d * float(change @ squares)
        if likely <= _LIKELY * enough * float(live.curvature_b @ squares):
            return False
    return float(change @ live.base_leverage()) > enough


def _reweighted(live: Live, point: Point) -> Reweighted:
    return reweight(
        live.stale,
        live.rows.X,
        live.dual,
        leverage=live.base_leverage(),
        before=live.curvature_b,
        now=point.curvature,
    )


def _unresolved(live: Live, point: Point, z: Array) -> bool:
    """Return whether the gain of a step along z is below the rounding of the value."""
    value = live.objective.value_at(live.rows, point.margin, point.theta)
    return float(np.sum(point.gradient * z)) <= RESOLVED * EPS * abs(value)


def _refine(
    objective: Objective,
    rows: Rows,
    stale: Operator,
    smallest: float,
    theta: Array,
    target: float,
    passes: _Passes,
) -> PolishedBlocks:
    """Refine a linear model's theta: A_t is its live Hessian, but for rounding."""
    best: PolishedBlocks | None = None
    while True:
        measured = Measured.at(objective, rows, theta)
        passes.take()
        certificate = certify_by_residual(measured, smallest)
        if best is not None and not certificate.left < best.certificate.left:
            return PolishedBlocks(best.theta, best.certificate, passes.count, best.audited)
        audited = certificate.residual if best is None else best.audited
        best = PolishedBlocks(theta, certificate, passes.count, audited)
        if passes.over or certificate.left <= target:
            return best
        theta = theta - stale(measured.gradient)
