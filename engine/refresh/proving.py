"""The certificates of a polish: of a point as it is, and with one system solved in part.

Both need the reach of the rows, of which `engine.refresh.live.Live` has a bound at no cost and the
true value at some cost; it is computed only if it makes the certificate possible, or tighter by
more than `_SHARP` (`_with_reach`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from lethe.engine.error.certificate import (
    Certificate,
    HessianFloor,
    Measured,
    certify_with_residual,
    certify_with_stale_factor,
    hessian_floor,
)
from lethe.engine.fit.objective import Array, norm
from lethe.engine.refresh.live import Live, Point, blocks_of
from lethe.engine.refresh.reweighted import Reweighted

_TIGHT = 0.1  # of the bound: the part that the last system may leave unsolved
_SOLVE_LIMIT = 24  # passes for the last system
_SOLVED = 1.001  # times r^T A'^-1 r: A'^-1 is good to `engine.refresh.reweighted._SINGULAR`
_SHARP = 1.02  # a bound this near to the best possible one needs no better reach

Take = Callable[[], bool]
"""Counts a pass; returns whether none is left."""


def audit(live: Live, point: Point, newton: Array, target: float = math.inf) -> Certificate:
    """Certify with the stale factor alone: nothing beyond the pass that measured the gradient.

    Parameters
    ----------
    live, point
        The rows, and where the gradient was measured.
    newton
        A_t^-1 g, d x 1.
    target
        A bound above it is useless and need not be tight.
    """
    measured = Measured(point.theta, point.gradient, live.gradient_scale(point))
    change = float(np.max(np.abs(point.margin - live.margin_b)))

    def certify_within(reach: float) -> Certificate:
        return certify_with_stale_factor(
            live.objective,
            measured,
            newton=newton,
            reach=reach,
            margin_change=change,
            smallest=live.smallest,
            off=live.off,
        )

    return _with_reach(live, certify_within, target)


def _with_reach(
    live: Live, certify_within: Callable[[float], Certificate], target: float
) -> Certificate:
    """Return the certificate, with a reach no better than it needs."""
    certificate = certify_within(live.reach)
    if live.sharp:
        return certificate
    least = certify_within(live.least_reach).left  # no better reach gives less
    if least > target or (certificate.bound is not None and certificate.bound <= _SHARP * least):
        return certificate
    live.sharpen()
    return certify_within(live.reach)


def certify(
    live: Live,
    weights: Reweighted,
    point: Point,
    z: Array,
    target: float,
    take: Take,
    *,
    over: bool,
) -> tuple[Certificate, Array, Array]:
    """Solve H x = g in part by conjugate gradients, and certify the point with the residual.

    Takes z = A'^-1 g; returns the certificate, x and X x. It stops once the bound is tight, or
    cannot be reached, or no pass is left (``over``).
    """
    objective = live.objective
    measured = Measured(point.theta, point.gradient, live.gradient_scale(point))
    stale_ratio = _least_ratio(point.curvature, live.curvature_b)
    weights_ratio = _least_ratio(point.curvature, weights.curvature)
    floor: HessianFloor | None = None
    newton = z if weights.inverse is live.stale else live.stale(point.gradient)
    best = audit(live, point, newton, math.inf if over else target)
    s = point.curvature[:, None]
    residual = point.gradient.copy()
    x, Xx = np.zeros_like(residual), np.zeros_like(point.margin)
    direction, rz = z, float(np.sum(residual * z))
    for _ in range(_SOLVE_LIMIT):
        if rz <= 0 or over:
            break
        Xd, curved, drawn = _swept(live, s, direction)
        over = take()
        curvature = float(np.sum(direction * curved))
        if not curvature > 0:  # it has underflowed: nothing more can be solved
            break
        alpha = rz / curvature
        x, Xx, residual = x + alpha * direction, Xx + alpha * Xd, residual - alpha * curved
        z = weights.inverse(residual)
        rz, previous = float(np.sum(residual * z)), rz
        direction = z + (rz / previous) * direction
        if norm(x) > target:
            break
        if floor is None:
            longest = float(live.lengths.max())
            floor = hessian_floor(objective, drawn, float(s.sum()), longest)
        smallest = max(stale_ratio * live.smallest, floor.smallest)
        energy = _energy(floor, residual)
        if rz > 0 and weights_ratio > 0:
            left = norm(residual)
            by_inverse = _SOLVED * rz + live.off * left * left
            energy = min(energy, by_inverse / weights_ratio)
        if smallest <= 0 or not math.isfinite(energy / smallest):
            continue
        solve = partial(
            certify_with_residual,
            objective,
            measured,
            step=x,
            unsolved=residual,
            energy=max(energy, 0.0),
            smallest=smallest,
        )
        certify_within = partial(_within, solve, stale_ratio, floor.reach)
        solved = _with_reach(live, certify_within, target)
        if best.bound is None or (solved.bound is not None and solved.bound < best.bound):
            best = solved
        unsolved = math.sqrt(max(energy, 0.0) / smallest)
        if unsolved <= _TIGHT * norm(x):
            break
    return best, (x if np.any(x) else z), (Xx if np.any(x) else live.rows.X @ z)


def _within(
    solve: Callable[..., Certificate], stale_ratio: float, floor_reach: float, reach: float
) -> Certificate:
    """Make a certificate with the smaller of two reaches: of A_t, and of the floor."""
    stale = reach / math.sqrt(stale_ratio) if stale_ratio > 0 else math.inf
    return solve(reach=min(stale, floor_reach))


def _swept(live: Live, s: Array, v: Array) -> tuple[Array, Array, Array]:
    """Return X v, H v and X^T s; each block of X is read from memory once for all of them."""
    X, sums = live.rows.X, np.zeros((live.objective.d, 2))
    Xv = np.empty((len(X), 1))
    for b in blocks_of(X):
        Xv[b] = X[b] @ v
        sums += X[b].T @ np.hstack([s[b] * Xv[b], s[b]])
    return Xv, sums[:, :1] + live.objective.penalty[:, None] * v, sums[:, 1]


def _energy(floor: HessianFloor, residual: Array) -> float:
    return floor.energy(residual) if floor.smallest > 0 else math.inf


def _least_ratio(now: Array, before: Array) -> float:
    """Return c <= 1 with X^T diag(now) X >= c X^T diag(before) X; allows for rounding of s."""
    ratio = np.divide(now, before, out=np.ones_like(now), where=before > 0)
    return min(1.0, (1 - 1e-9) * float(ratio.min()))
