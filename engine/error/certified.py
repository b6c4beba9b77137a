"""Certified removal: the bound of the gradient residual that the noise has to hide.

Guo, Goldstein, Hannun, van der Maaten, "Certified Data Removal from Machine Learning Models",
ICML 2020. The objective carries a term b . theta with b ~ N(0, sigma^2 I). A published theta whose
gradient of that objective over the live rows has norm eps' or less is the exact minimiser for the
noise b - u, |u| <= eps', and is (epsilon, delta)-indistinguishable from retraining while

    eps' <= sigma epsilon / c,    c = sqrt(2 ln(1.5 / delta)).

docs/certified.md has the theorem, its proof, its assumptions and its limits. This module keeps the
left side: a `Ledger` whose `spent` is never below |gradient|, kept without a pass over the rows.
Noise on the output limits the same gradient (`engine.error.terms`).

Linear models: a deletion keeps the gradient as it is, so that only rounding is spent. Logistic
models: the gradient at theta_exact is the one measured at theta_r plus the sum over the live rows
of x_i rem_i (`engine.error.estimate.remainder`). With D = theta_exact - theta_r and z_i = x_i . D,
every |rem_i| is at most s_i z_i^2 times a factor near 1/2, and the sum of s_i z_i^2 over the live
rows is known exactly, D^T (A_t - penalty) D: the stream's own algebra keeps it current in O(k d).
With several blocks (`engine.fit.blocks`) every quantity is that of vec(theta): energies add up, and
what is a maximum is taken over all blocks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cholesky

from lethe.engine.deletion.generation import Generation, Stream, has_lost_digits, linearised_error
from lethe.engine.error import gaussian
from lethe.engine.error.certificate import Measured
from lethe.engine.fit import blocks
from lethe.engine.fit.factor import EPS, Factor
from lethe.engine.fit.objective import Array, Kind, Objective, Rows, RowsInBlocks, norm, over
from lethe.engine.fit.precompute import dual_rows

REFRESH_AT = 0.5
"""Part of the budget at which a refresh is scheduled: the rest is for deletions meanwhile."""

FAR_UNDER = 0.01
"""Part of the budget that a polish may leave: what it resets the ledger to."""

_SIGMA_SECOND = 1.0 / (6.0 * math.sqrt(3.0))  # max |sigma''|
_SERIES = 1e-3  # below it the closed forms of the integrals cancel
_EXPONENT = 50.0  # margins that move further have no bound: e^50 is past every budget
_SUMS = 1024.0  # times eps: sums of some thousand terms that partly cancel
_POWER_STEPS = 40
_MARGIN = 1.02  # on the estimated eigenvalue before it is verified, and at each further try


@dataclass(frozen=True, slots=True)
class Ledger:
    """What bounds the gradient residual, at a reference and since (all are true upper bounds).

    Attributes
    ----------
    measured
        |gradient| at theta_r, as measured by a pass over the rows live then, with its allowance for
        rounding, plus what deletions that a polish could not see have added.
    rounding
        What the steps since have added to `Stream.residual`.
    energy
        D^T A_t D for D = theta_exact - theta_r.
    reach
        max over live rows of x_i^T A_t^-1 x_i.
    longest
        max |x_i|.
    stretch
        max |s_i(theta_r) / s_i(theta_b) - 1|.
    curved
        lam_max(X^T S X), curvatures at theta_b.
    spread
        lam_max(X^T weight X).
    """

    measured: float
    rounding: float
    energy: float = 0.0
    reach: float = 0.0
    longest: float = 0.0
    stretch: float = 0.0
    curved: float = 0.0
    spread: float = 0.0


def with_fresh_noise(objective: Objective, outputs: int, sigma: float) -> Objective:
    """Return the objective with another b, independent of every earlier one."""
    return replace(objective, linear=gaussian.draw_noise((objective.d, outputs), sigma))


def noise_share(objective: Objective, factor: Factor, theta: Array) -> float:
    """Return how far the noise has moved ``theta``, over the length of theta without it.

    ``factor`` is that of the Hessian at ``theta``. Exact for a linear model; for a logistic one it
    is of the first Newton step towards the fit without noise. Cost O(d^2 m).
    """
    b = objective.linear
    if b is None:
        return 0.0
    h = objective.blocks(theta.shape[1])
    moved = np.hstack([factor.block(c).solve(blocks.outputs(b, c, h)) for c in range(h)])
    return norm(moved) / (norm(theta + moved) or 1.0)


# -- measuring ----------------------------------------------------------------------------------


def begin_ledger(
    objective: Objective, rows: Rows, theta: Array, W: Array, factor: Factor
) -> Ledger:
    """Return the ledger of a fresh fit, whose factor is that of the Hessian at ``theta``.

    ``W`` are the rows' dual rows. Cost O(n d m), and for logistic models O(n d^2).
    """
    residual = Measured.at(objective, rows, theta).residual
    if objective.kind is Kind.LINEAR:
        return Ledger(residual, 0.0)
    return _begun(objective, factor, [_Sizes.of(rows, W)], residual)


def begin_ledger_in_passes(
    objective: Objective, rows: RowsInBlocks, factor: Factor, residual: float
) -> Ledger:
    """Return what `begin_ledger` does for rows that are read in blocks.

    ``residual`` bounds the gradient, as the fit has measured it. Cost: of a linear model none, else
    a pass, O(n d^2).
    """
    if objective.kind is Kind.LINEAR:
        return Ledger(residual, 0.0)
    return _begun(objective, factor, over(rows, partial(_sizes, factor)), residual)


class _Sizes(NamedTuple):
    """Of some rows: `Ledger.reach` and `Ledger.longest`, and the matrix X^T weight X."""

    reach: float
    longest: float
    gram: Array

    @classmethod
    def of(cls, rows: Rows, W: Array) -> _Sizes:
        """Return those of rows with these dual rows."""
        d = rows.X.shape[1]
        parts = [blocks.part(W, c, d) for c in range(blocks.count(W, d))]
        reach = [np.einsum("ij,ij->i", rows.X, part) for part in parts]
        scaled = rows.X * np.sqrt(rows.weight)[:, None]
        longest = float(np.max(np.linalg.norm(rows.X, axis=1)))
        return cls(float(np.max(reach)), longest, scaled.T @ scaled)


def _sizes(factor: Factor, rows: Rows) -> _Sizes:
    h = len(factor.L) // rows.X.shape[1]
    return _Sizes.of(rows, np.hstack([dual_rows(factor.block(c), rows.X) for c in range(h)]))


def _begun(
    objective: Objective, factor: Factor, sizes: Iterable[_Sizes], residual: float
) -> Ledger:
    d = objective.d
    triangles = [factor.block(c).L for c in range(len(factor.L) // d)]
    largest = max(largest_eigenvalue(L @ L.T) for L in triangles)
    reach, longest, gram = 0.0, 0.0, np.zeros((d, d))
    for part in sizes:
        reach, longest = max(reach, part.reach), max(longest, part.longest)
        gram = gram + part.gram
    return Ledger(
        measured=residual,
        rounding=0.0,
        reach=reach,
        longest=longest,
        curved=largest - float(objective.penalty.min()),
        spread=largest_eigenvalue(gram),
    )


def measure(
    objective: Objective, rows: Rows, theta: Array, theta_b: Array, known: Ledger
) -> Ledger:
    """Return the ledger of a reference point, by a pass over its live rows.

    Parameters
    ----------
    objective
        The loss, with the noise.
    rows
        All rows that are live at the reference.
    theta, theta_b
        The reference, and where the curvatures of the factor were taken; d x m.
    known
        The ledger so far: its ``reach``, ``curved`` and ``spread`` still hold.

    Notes
    -----
    Cost O(n d m).
    """
    measured = Measured.at(objective, rows, theta).residual
    if objective.kind is Kind.LINEAR:
        return Ledger(measured, 0.0)
    return replace(
        known,
        measured=measured,
        rounding=0.0,
        energy=0.0,
        longest=float(np.max(np.linalg.norm(rows.X, axis=1))),
        stretch=_stretch(objective, rows, theta, theta_b),
    )


def largest_eigenvalue(A: Array) -> float:
    """Return an upper bound of lam_max of a symmetric A >= 0, verified by a factorisation.

    Power iteration alone errs on the unsafe side. Cost O(d^3 / 3) and `_POWER_STEPS` of O(d^2).
    """
    certain = float(np.abs(A).sum(axis=0).max())
    v: Array = np.random.default_rng(0).standard_normal((A.shape[0],))
    estimate = 0.0
    for _ in range(_POWER_STEPS):
        v = A @ v
        estimate = float(np.linalg.norm(v))
        if estimate == 0.0:
            return certain
        v = v / estimate
    bound = _MARGIN * estimate
    while bound < certain:
        shifted = -A
        shifted[np.diag_indices_from(A)] += bound
        try:
            cholesky(shifted, lower=True, check_finite=False)
        except LinAlgError:
            bound *= _MARGIN
        else:
            return bound
    return certain


def _stretch(objective: Objective, rows: Rows, theta: Array, theta_b: Array) -> float:
    """Return max |s_i(theta) / s_i(theta_b) - 1|.

    Curvatures of saturated rows underflow; there, and everywhere, it is at most e^m - 1 with m =
    |x_i . (theta - theta_b)|.
    """
    if theta is theta_b or np.array_equal(theta, theta_b):
        return 0.0
    now, then = objective.curvatures(rows, theta), objective.curvatures(rows, theta_b)
    moved = np.abs(rows.X @ (theta - theta_b))
    bound = np.expm1(np.minimum(moved, _EXPONENT))
    normal = then > np.finfo(np.float64).tiny
    ratio = np.abs(np.divide(now, then, out=np.ones_like(now), where=normal) - 1.0)
    return float(np.max(np.where(normal, np.minimum(ratio, bound), bound)))


# -- keeping ------------------------------------------------------------------------------------


def after_deletion(
    ledger: Ledger, generation: Generation, before: Stream, after: Stream, rows: Rows
) -> Ledger:
    """Return the ledger once ``rows`` (k live ones) have left the stream. Cost O(k d m).

    With e the errors by the quadratic model at the old theta_exact and delta the step, A' delta =
    U^T e for the new A' = A_t - U^T S U. So the energy after it is, for any D,

        (D + delta)^T A' (D + delta) = D^T A_t D - z^T S z + 2 z^T e + (U delta)^T e,   z = U D.
    """
    objective = generation.objective
    step = after.theta_exact - before.theta_exact
    rounding = ledger.rounding + after.residual - before.residual
    if objective.kind is Kind.LINEAR:
        return replace(ledger, rounding=rounding)
    error = linearised_error(generation, before, rows)
    s = objective.curvatures(rows, generation.theta_b)
    z, moved = rows.X @ (before.theta_exact - before.theta_r), rows.X @ step
    energy = ledger.energy + float(np.sum((2 * z + moved) * error - s * z * z))
    new = after.V.array[len(before.V) :]
    return replace(
        ledger,
        rounding=rounding,
        energy=max(energy, 0.0),
        reach=ledger.reach + ledger.longest**2 * float(np.sum(new**2)),
    )


def spent(ledger: Ledger, generation: Generation, stream: Stream) -> float:
    """Return a true upper bound of |gradient| at theta_exact over the live rows. Cost O(d m).

    Infinite once V has lost its digits.
    """
    if has_lost_digits(stream):
        return math.inf
    if generation.objective.kind is Kind.LINEAR:
        return ledger.measured + ledger.rounding
    moved = stream.theta_exact - stream.theta_r
    length = norm(moved)
    zeta = min(ledger.longest * length, math.sqrt(ledger.reach * ledger.energy))
    penalised = float(np.sum(generation.objective.penalty[:, None] * moved**2))
    # Exact but for rounding: of the sums, and of D, whose part A_t D has been allowed for.
    curved = max(ledger.energy - penalised, 0.0) + 2 * length * ledger.rounding
    curved += _SUMS * EPS * (ledger.energy + penalised)
    if zeta > _EXPONENT:
        return math.inf
    own = (1.0 + ledger.stretch) * ledger.longest * _taylor(zeta) * curved
    capped = ledger.longest * ledger.spread * length**2 * _SIGMA_SECOND / 2
    drift = ledger.stretch * math.sqrt(ledger.curved * curved)
    grown = (1.0 + ledger.stretch) * math.exp(zeta)
    return ledger.measured + grown * ledger.rounding + min(own, capped) + drift


def _taylor(zeta: float) -> float:
    """Return the integral over a in (0, 1) of (1 - a) e^(a zeta): (e^zeta - 1 - zeta) / zeta^2.

    It bounds |rem_i| / (s_i z_i^2) for |z_i| <= zeta, because |sigma''(u + t)| <= sigma'(u) e^|t|.
    """
    if zeta < _SERIES:  # there the closed form cancels; rounded up
        return 0.5 + zeta / 6 + zeta**2 / 23
    return (math.expm1(zeta) - zeta) / zeta**2


# -- polishing ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reference:
    """What a polish measured in its last pass, over the rows of its snapshot.

    Attributes
    ----------
    ledger
        At the polished point.
    missed
        max |x_i| |e_i used - e_i(theta_polished)|: the most that a row deleted meanwhile, with
        its error by the quadratic model at the snapshot, leaves in the gradient.
    pulled
        max |x_i| |e_i used|: the most that one such row pulls.
    """

    ledger: Ledger
    missed: float
    pulled: float


def measure_polished(
    ledger: Ledger, generation: Generation, stream: Stream, theta: Array, rows: Rows
) -> Reference:
    """Measure a polished ``theta`` over a snapshot's rows; ``stream`` and ``ledger`` are its own.

    Cost O(n d).
    """
    objective = generation.objective
    lengths = np.linalg.norm(rows.X, axis=1)
    used = linearised_error(generation, stream, rows)
    missed = np.linalg.norm(objective.error(rows, theta) - used, axis=1)
    return Reference(
        measure(objective, rows, theta, generation.theta_b, ledger),
        float(np.max(lengths * missed)),
        float(np.max(lengths * np.linalg.norm(used, axis=1))),
    )


def after_polish(
    ledger: Ledger, reference: Reference, moved: Array, concurrent: int, kind: Kind
) -> Ledger:
    """Return the ledger once a polish is adopted (`engine.refresh.refreshes.adopt_polish`).

    Parameters
    ----------
    ledger
        Of the stream before, ``concurrent`` deletions later than the polish's snapshot.
    reference
        What the polish measured.
    moved
        theta_now - theta_snapshot, d x m: the step that those deletions made.
    concurrent
        An upper bound of the number of those deletions.
    kind
        The loss.

    Notes
    -----
    With C the rows deleted meanwhile and e their errors as used, A_now moved = sum over C of x_i
    e_i. So the gradient at theta_polished + moved over the rows live now is the measured one, plus
    sum over C of x_i (e_i - e_i(theta_polished)), plus the remainder of ``moved`` around
    theta_polished; and moved^T A_now moved <= |moved| |sum over C of x_i e_i|.
    """
    polished = reference.ledger
    if kind is Kind.LINEAR and concurrent:  # theta_exact stays as it is, and so does its gradient
        return ledger
    return replace(
        polished,
        measured=polished.measured + concurrent * reference.missed,
        rounding=ledger.rounding if concurrent else 0.0,
        energy=norm(moved) * concurrent * reference.pulled,
        reach=ledger.reach,
    )
