"""Polish: bring theta back to the optimum of the live rows without a new factor.

Preconditioned conjugate directions on the live loss itself. Each pass over the rows measures the
true gradient g and one new direction, A'^-1 g with the stale factor A_t, whose rows with the
largest change of leverage are brought up to date now and then (`engine.reweighted`). Margins of
the point and of the last directions are kept, so the loss is minimised over their span at no
further pass: a search costs O(n), and nothing is spent on a system that the next point makes
void. (Newton-CG takes 1.5 to 3 times the passes; a plain step with the frozen factor stalls on
nearly separable data, design page 1.5.)

At the end one system H x = g is solved in part, by conjugate gradients, for the certificate
(`engine.certificate.certify_with_residual`). A linear model needs refinement only.

The first pass, before anything moves, is an *audit* of theta_exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from engine.certificate import (
    Certificate,
    HessianFloor,
    certify_with_residual,
    certify_with_stale_factor,
    hessian_floor,
)
from engine.factor import EPS, Factor
from engine.objective import Array, Kind, Objective, Rows, norm
from engine.reweighted import WORTH, Operator, Reweighted, reweight
from engine.subspace import RESOLVED, search

PASS_LIMIT = 60
"""Passes over the live rows; a rebuild costs about d / 2 of them."""

_DIRECTIONS = 6  # kept, the newest included; more save no pass (measured: 12, 40)
_REWEIGHT_EVERY = 3  # passes
_TIGHT = 0.1  # of the bound: what the last system may leave unsolved
_SOLVE_LIMIT = 24  # passes for it
_TRIGGER = 0.7  # of the target: a Newton step by A' must be this short before one by H is taken up
_BLOCK = 1024


@dataclass(frozen=True, slots=True)
class Polish:
    """The outcome of `polish`.

    Attributes
    ----------
    theta
        d x 1, the polished point.
    certificate
        Bound of its distance to the minimiser over the live rows.
    passes
        Passes over the live rows: each product X v with its X^T v is one.
    """

    theta: Array
    certificate: Certificate
    passes: int


def stale_inverse(factor: Factor, V: Array) -> Operator:
    """Return v -> A_t^-1 v for v of shape d x m. Each call costs O(d^2 + K d)."""
    return lambda v: factor.solve(v) + V.T @ (V @ v)


def polish(
    objective: Objective,
    rows: Rows,
    W: Array,
    *,
    factor: Factor,
    V: Array,
    theta: Array,
    theta_b: Array,
    target: float,
    limit: int = PASS_LIMIT,
    on_pass: Callable[[int], None] = lambda _: None,
) -> Polish:
    """Minimise the live loss from ``theta`` until the certificate is at most ``target``.

    Where no bound can be had, it stops at a Newton step no longer than ``target``, whose length
    is the certificate's estimate (what is left is shorter still).

    Parameters
    ----------
    objective
        The loss.
    rows, W
        The n live rows and their dual rows relative to A_b.
    factor, V
        A_t^-1 = (L L^T)^-1 + V^T V.
    theta, theta_b
        Where to start, and where the factor's curvatures were taken; d x m (logistic: m = 1).
    target
        Absolute bound to reach.
    limit
        Passes at most (one more may be taken to certify). The best point is returned when it is
        used up.
    on_pass
        Called with the number of passes so far, for progress.

    Notes
    -----
    Cost O(n d) a pass, O(n K d) once for the rows' leverages.
    """
    told = _Passes(limit, on_pass)
    smallest = 1.0 / (1.0 / factor.smallest + _spectral_norm(V))
    setting = _Setting(objective, rows, stale_inverse(factor, V), smallest)
    if objective.kind is Kind.LINEAR:
        return _refine(setting, theta, target, told)
    setting.measure(W, V, theta_b)
    return _polish_logistic(setting, W, V, theta, target, told)


@dataclass(slots=True)
class _Passes:
    """Counts passes over the rows, and tells."""

    limit: int
    tell: Callable[[int], None]
    count: int = 0

    def take(self) -> None:
        self.count += 1
        self.tell(self.count)

    @property
    def over(self) -> bool:
        return self.count >= self.limit


@dataclass(slots=True)
class _Setting:
    """What stays the same during one polish.

    ``leverage`` is x_i^T A_t^-1 x_i, ``margin_b`` and ``curvature_b`` belong to theta_b,
    ``lengths`` are |x_i|.
    """

    objective: Objective
    rows: Rows
    stale: Operator
    smallest: float
    leverage: Array = field(default_factory=lambda: np.zeros(0))
    margin_b: Array = field(default_factory=lambda: np.zeros((0, 1)))
    curvature_b: Array = field(default_factory=lambda: np.zeros(0))
    lengths: Array = field(default_factory=lambda: np.zeros(0))

    def measure(self, W: Array, V: Array, theta_b: Array) -> None:
        """Fill in what is read off the rows once. Cost O(n K d)."""
        X = self.rows.X
        n = len(X)
        self.leverage, self.lengths = np.empty(n), np.empty(n)
        for start in range(0, n, _BLOCK):
            b = slice(start, start + _BLOCK)
            self.leverage[b] = np.einsum("ij,ij->i", X[b], W[b]) + np.sum((X[b] @ V.T) ** 2, axis=1)
            self.lengths[b] = np.sqrt(np.einsum("ij,ij->i", X[b], X[b]))
        self.margin_b = X @ theta_b
        self.curvature_b = self.objective.curvature_at(self.rows, self.margin_b)

    @property
    def reach(self) -> float:
        return math.sqrt(max(float(self.leverage.max()), 0.0))


@dataclass(slots=True)
class _Point:
    """A theta with its margins, and what the last pass measured there."""

    theta: Array
    margin: Array
    gradient: Array
    curvature: Array
    travelled: float


def _measure(
    setting: _Setting, theta: Array, margin: Array, told: _Passes, travelled: float = 0.0
) -> _Point:
    """Measure the gradient: with the product that gave the margins, one pass.

    ``travelled`` is the length of all steps so far: what rounding in the margins, which are
    added up and not made anew, is relative to.
    """
    objective, rows = setting.objective, setting.rows
    error = objective.error_at(rows, margin)
    gradient = objective.base_gradient(theta)
    for start in range(0, len(rows), _BLOCK):  # rounding grows with a block's size, not with n
        block = slice(start, start + _BLOCK)
        gradient = gradient + rows.X[block].T @ error[block]
    told.take()
    return _Point(theta, margin, gradient, objective.curvature_at(rows, margin), travelled)


def _polish_logistic(
    setting: _Setting, W: Array, V: Array, theta: Array, target: float, told: _Passes
) -> Polish:
    X = setting.rows.X

    def dual(chosen: np.ndarray) -> Array:
        fresh: Array = W[chosen] + (X[chosen] @ V.T) @ V
        return fresh

    point = _measure(setting, theta, X @ theta, told)
    first = setting.stale(point.gradient)
    audited = _audit(setting, point, first)
    if told.over or (audited.bound is not None and audited.bound <= target):
        return Polish(theta, audited, told.count)
    weights = Reweighted(setting.stale, setting.curvature_b, setting.curvature_b)
    directions: list[tuple[Array, Array]] = []
    since, trigger, length = _REWEIGHT_EVERY, _TRIGGER * target, math.inf
    while True:
        z = weights.inverse(point.gradient)
        # Made anew before the last system, too: it costs no pass, and z then tells its length.
        due = since >= _REWEIGHT_EVERY or (norm(z) <= trigger and since > 0)
        change = float(np.abs(point.curvature - weights.seen) @ setting.leverage)
        if due and change > WORTH * len(theta):
            weights, since = _reweighted(setting, dual, point), 0
            z = weights.inverse(point.gradient)
        since += 1
        shorter = norm(z) < 0.5 * length
        length = min(length, norm(z))
        stalled = not shorter and _unresolved(setting, point, z)
        if norm(z) <= trigger or stalled or told.over:
            most = math.inf if stalled else target
            certificate, z, Xz = _certify(setting, weights, point, most, told)
            reached = certificate.bound is not None and certificate.bound <= target
            if reached or stalled or told.over or (certificate.bound is None and norm(z) <= target):
                return Polish(point.theta, certificate, told.count)
            trigger *= (
                0.5 if certificate.bound is None else max(0.1, 0.9 * target / certificate.bound)
            )
        else:
            Xz = X @ z
        directions = [(z, Xz), *directions[: _DIRECTIONS - 1]]
        moved = search(setting.objective, setting.rows, point.theta, point.margin, directions)
        if moved is None:  # rounding hides every descent
            certificate, _, _ = _certify(setting, weights, point, target, told)
            return Polish(point.theta, certificate, told.count)
        step, Xstep = moved
        directions[0] = moved
        travelled = point.travelled + norm(step)
        point = _measure(setting, point.theta + step, point.margin + Xstep, told, travelled)


def _reweighted(
    setting: _Setting, dual: Callable[[np.ndarray], Array], point: _Point
) -> Reweighted:
    return reweight(
        setting.stale,
        setting.rows.X,
        dual,
        leverage=setting.leverage,
        before=setting.curvature_b,
        now=point.curvature,
    )


def _unresolved(setting: _Setting, point: _Point, z: Array) -> bool:
    """Return whether what a step along z gains is below the rounding of the value."""
    value = setting.objective.value_at(setting.rows, point.margin, point.theta)
    return float(np.sum(point.gradient * z)) <= RESOLVED * EPS * abs(value)


def _audit(setting: _Setting, point: _Point, newton: Array) -> Certificate:
    """Certify with the stale factor alone: nothing beyond the pass that measured the gradient."""
    return certify_with_stale_factor(
        setting.objective,
        gradient=point.gradient,
        gradient_scale=_gradient_scale(setting, point),
        newton=newton,
        theta=point.theta,
        reach=setting.reach,
        margin_change=float(np.max(np.abs(point.margin - setting.margin_b))),
        smallest=setting.smallest,
    )


def _gradient_scale(setting: _Setting, point: _Point) -> float:
    """Return `Objective.gradient_scale` from what is known. Cost O(n)."""
    objective, rows = setting.objective, setting.rows
    error = np.abs(objective.error_at(rows, point.margin)[:, 0])
    reach = setting.lengths * (norm(point.theta) + point.travelled)
    parts = error + point.curvature * reach
    return float(setting.lengths @ parts) + objective.base_scale(point.theta)


def _certify(
    setting: _Setting, weights: Reweighted, point: _Point, target: float, told: _Passes
) -> tuple[Certificate, Array, Array]:
    """Solve H x = g in part by conjugate gradients, and certify the point with what is left.

    Returns the certificate, x and X x. It stops once the bound is tight, or cannot be reached.
    """
    objective, rows = setting.objective, setting.rows
    scale = _gradient_scale(setting, point)
    of_stale = _least_ratio(point.curvature, setting.curvature_b)
    of_weights = _least_ratio(point.curvature, weights.curvature)
    floor: HessianFloor | None = None
    best = _audit(setting, point, setting.stale(point.gradient))
    s = point.curvature[:, None]
    residual = point.gradient.copy()
    x, Xx = np.zeros_like(residual), np.zeros_like(point.margin)
    z = weights.inverse(residual)
    direction, rz = z, float(np.sum(residual * z))
    for _ in range(_SOLVE_LIMIT):
        if rz <= 0 or told.over:
            break
        Xd = rows.X @ direction
        curved = rows.X.T @ (s * Xd) + objective.penalty[:, None] * direction
        told.take()
        alpha = rz / float(np.sum(direction * curved))
        x, Xx, residual = x + alpha * direction, Xx + alpha * Xd, residual - alpha * curved
        z = weights.inverse(residual)
        rz, previous = float(np.sum(residual * z)), rz
        direction = z + (rz / previous) * direction
        if norm(x) > target:
            break
        if floor is None:
            floor = hessian_floor(objective, rows, point.curvature, float(setting.lengths.max()))
            told.take()
        smallest = max(of_stale * setting.smallest, floor.smallest)
        reach = min(setting.reach / math.sqrt(of_stale) if of_stale > 0 else math.inf, floor.reach)
        energy = min(rz / of_weights if of_weights > 0 else math.inf, _energy(floor, residual))
        if smallest <= 0 or not math.isfinite(energy):
            continue
        solved = certify_with_residual(
            objective,
            gradient=point.gradient,
            gradient_scale=scale,
            step=x,
            residual=residual,
            energy=max(energy, 0.0),
            theta=point.theta,
            reach=reach,
            smallest=smallest,
        )
        if best.bound is None or (solved.bound is not None and solved.bound < best.bound):
            best = solved
        unsolved = math.sqrt(max(energy, 0.0) / smallest)
        if unsolved <= _TIGHT * norm(x):
            break
    return best, (x if np.any(x) else z), (Xx if np.any(x) else rows.X @ z)


def _energy(floor: HessianFloor, residual: Array) -> float:
    return floor.energy(residual) if floor.smallest > 0 else math.inf


def _least_ratio(now: Array, held: Array) -> float:
    """Return c <= 1 with X^T diag(now) X >= c X^T diag(held) X; rounding of s is allowed for."""
    ratio = np.divide(now, held, out=np.ones_like(now), where=held > 0)
    return min(1.0, (1 - 1e-9) * float(ratio.min()))


def _refine(setting: _Setting, theta: Array, target: float, told: _Passes) -> Polish:
    """Refine a linear model's theta: A_t is its live Hessian, but for rounding."""
    objective, rows = setting.objective, setting.rows
    best: Polish | None = None
    while True:
        gradient = objective.gradient(rows, theta)
        told.take()
        newton = setting.stale(gradient)
        certificate = certify_with_stale_factor(
            objective,
            gradient=gradient,
            gradient_scale=objective.gradient_scale(rows, theta),
            newton=newton,
            theta=theta,
            reach=0.0,
            margin_change=0.0,
            smallest=setting.smallest,
        )
        if best is not None and not certificate.left < best.certificate.left:
            return Polish(best.theta, best.certificate, told.count)
        best = Polish(theta, certificate, told.count)
        if told.over or certificate.left <= target:
            return best
        theta = theta - newton


def _spectral_norm(V: Array) -> float:
    """Return |V V^T|, exactly (K x K eigenvalues), or 0 for K = 0."""
    if V.shape[0] == 0:
        return 0.0
    gram = V @ V.T if V.shape[0] <= V.shape[1] else V.T @ V
    return float(np.linalg.eigvalsh(gram)[-1])
