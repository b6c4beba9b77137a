"""Fit, polish, compact and rebuild of a softmax model (see `engine.deletion.coupled`)."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from lethe.engine.deletion.correction import Correction
from lethe.engine.deletion.coupled import linearised_error, parts_of, stale_inverse
from lethe.engine.deletion.generation import Generation, Stream, at_rest
from lethe.engine.deletion.growing import GrowingRows
from lethe.engine.error.certificate import Certificate, gradient_allowance
from lethe.engine.error.coupled import certify, certify_fit, certify_solved
from lethe.engine.fit.factor import Factor, factorise
from lethe.engine.fit.fit import fit
from lethe.engine.fit.multinomial import SoftmaxObjective, unvec, vec
from lethe.engine.fit.objective import Array, Rows
from lethe.engine.fit.precompute import PROBED, PROBES, check_inverse
from lethe.engine.refresh.folding import downdated_factor
from lethe.engine.refresh.refreshes import NewGeneration, Polished

PASS_LIMIT = 60
"""Passes over the live rows in a polish, as in `engine.refresh.polish`."""

_SOLVED = 1e-2  # of the gradient is left by the system of one Newton step
_SOLVE_LIMIT = 12  # passes for it
_HALVINGS = 30
_ARMIJO = 1e-4


def begin(
    number: int, objective: SoftmaxObjective, rows: Rows, start: Array | None = None
) -> NewGeneration:
    """Fit and begin a generation; there are no dual rows to make. Cost O(n d^2 C^2 + (d C)^3).

    Raises
    ------
    InvalidData, IllConditioned, NotConverged
        As `engine.fit.fit.fit`.
    """
    fitted = fit(objective, rows, start)
    theta, factor = fitted.theta, fitted.factor
    off = _factor_error(objective, rows, theta, factor)
    check_inverse(factor.smallest, off)
    generation = Generation(
        number, objective, theta, factor.smallest, factor.largest, off, factor=factor
    )
    certificate = certify_fit(objective, rows, theta, factor, factor.smallest - off)
    stream = at_rest(theta, certificate.left, theta.shape[1])
    if certificate.bound is None:  # the reference has no bound: no estimate from it
        stream = stream._replace(least_pivot=0.0)
    return NewGeneration(generation, stream, factor, np.empty((len(rows), 0)), certificate.bound)


def _factor_error(
    objective: SoftmaxObjective,
    rows: Rows,
    theta: Array,
    factor: Factor,
    *,
    made_of_rows: bool = True,
) -> float:
    """Return the error of the factor's solutions, |z - A A^-1 z| / |A^-1 z|, along random z.

    As `engine.fit.precompute.dual_error`, which measures stored dual rows. Of a factor that was not
    ``made_of_rows``, also that of the factor itself, as `engine.fit.precompute.factor_error`. Cost
    O(n d C `PROBES`).
    """
    rng = np.random.default_rng(0)
    worst = 0.0
    for _ in range(PROBES):
        z = rng.standard_normal(theta.shape)
        w = stale_inverse(factor, Correction.empty(theta.size), z)
        off = np.linalg.norm(z - objective.hessian_times(rows, theta, w))
        worst = max(worst, float(off / np.linalg.norm(w)))
        if not made_of_rows:
            product = unvec(factor.product(vec(z)), len(z))
            off = np.linalg.norm(objective.hessian_times(rows, theta, z) - product)
            worst = max(worst, float(off))
    return PROBED * worst + gradient_allowance(factor.largest)


def certify_afresh(objective: SoftmaxObjective, rows: Rows, theta: Array) -> Certificate:
    """Return the certificate of any theta by the Hessian at theta itself.

    As `engine.fit.precompute.certify_afresh`. Cost O(n d^2 C^2 + (d C)^3).

    Raises
    ------
    IllConditioned
        That Hessian cannot be factored.
    """
    factor = factorise(objective.hessian(rows, theta))
    off = _factor_error(objective, rows, theta, factor)
    check_inverse(factor.smallest, off)
    return certify_fit(objective, rows, theta, factor, factor.smallest - off)


def compact(generation: Generation, stream: Stream, rows: Rows) -> NewGeneration:
    """Fold V into the factor; nothing is refitted. Cost O(n d C + K (d C)^2 + (d C)^3).

    The error of the new factor is measured against the live ``rows``.

    Raises
    ------
    IllConditioned
        The inverse would not be known accurately enough; rebuild instead.
    """
    objective, factor = parts_of(generation)
    theta = stream.theta_exact
    folded = downdated_factor(factor, stream)
    off = _factor_error(objective, rows, generation.theta_b, folded, made_of_rows=False)
    smallest = max(folded.smallest - off, generation.floor)
    check_inverse(smallest, off)
    after = Generation(
        generation.number + 1,
        objective,
        generation.theta_b,
        smallest,
        folded.largest,
        off,
        factor=folded,
    )
    emptied = stream._replace(
        anchor=theta,
        published=theta,
        V=Correction.empty(theta.size),
        Q=GrowingRows.empty(len(theta)),
        v_trace=0.0,
        added=0.0,
        dual_error=0.0,
        v_seconds=0.0,
        completions=0,
    )
    return NewGeneration(after, emptied, folded, np.empty((len(rows), 0)), None)


def polish(
    generation: Generation,
    stream: Stream,
    rows: Rows,
    target: float,
    on_pass: Callable[[int], None] = lambda _: None,
) -> Polished:
    """Minimise the live loss from theta_exact until the certificate is at most ``target``.

    Newton's method; each system is solved in part by conjugate gradients with A_t as
    preconditioner, and its solution certifies the point it was made at. Cost O(n d C + (d C)^2) a
    pass; the best point is returned at `PASS_LIMIT`.
    """
    objective, factor = parts_of(generation)
    theta, passes = stream.theta_exact, 1
    best = (certify(objective, generation, stream, factor, rows, theta), theta)
    while not _reached(best[0], target) and passes < PASS_LIMIT:
        gradient = objective.gradient(rows, theta)
        x, left, used = _solve(objective, stream, factor, rows, theta, gradient)
        passes += used
        solved = certify_solved(objective, generation, stream, factor, rows, theta, (x, left))
        if solved is not None and _better(solved, best[0]):
            best = (solved, theta)
            if _reached(solved, target):
                break
        moved = _searched(objective, rows, theta, x, float(np.sum(gradient * x)))
        passes += 1
        on_pass(passes)
        if moved is None:
            break
        theta = moved
        there = certify(objective, generation, stream, factor, rows, theta)
        if _better(there, best[0]):
            best = (there, theta)
    certificate, theta = best
    return Polished(theta, stream.theta_exact, certificate.bound, passes, certificate.left)


def concurrent_remainder(
    generation: Generation,
    stream: Stream,
    polished: Polished,
    rows: Rows,
    concurrent: int,
    pi: Array | None = None,
) -> float:
    """Estimate the error that ``concurrent`` deletions during a polish leave.

    As `engine.refresh.refreshes.concurrent_remainder`. Cost O(k (d C)^2) for k sampled rows.
    """
    if concurrent == 0 or len(rows) == 0:
        return 0.0
    objective, factor = parts_of(generation)
    at_snapshot = stream._replace(theta_exact=polished.theta_snapshot)
    used = linearised_error(objective, generation, at_snapshot, rows)
    missed = objective.error(rows, polished.theta) - used
    pulls = np.einsum("ic,ia->ica", missed, rows.X).reshape(len(rows), -1).T
    squares = np.sum((factor.solve(pulls) + stream.V.times(pulls)) ** 2, axis=0)
    typical = np.average(squares, weights=None if pi is None else 1.0 / pi)
    return concurrent * float(np.sqrt(typical))


def _reached(certificate: Certificate, target: float) -> bool:
    return certificate.bound is not None and certificate.bound <= target


def _better(one: Certificate, other: Certificate) -> bool:
    """Return whether a certificate is the better one to end with: any bound before none."""
    if one.bound is None or other.bound is None:
        return other.bound is None and (one.bound is not None or one.estimate < other.estimate)
    return one.bound < other.bound


def _solve(
    objective: SoftmaxObjective,
    stream: Stream,
    factor: Factor,
    rows: Rows,
    theta: Array,
    gradient: Array,
) -> tuple[Array, Array, int]:
    """Return x with H x near g, g - H x, and the passes: preconditioned conjugate gradients."""
    x, left = np.zeros_like(gradient), gradient
    z = stale_inverse(factor, stream.V, left)
    direction, rz = z, float(np.sum(left * z))
    enough, passes = _SOLVED**2 * rz, 0
    while passes < _SOLVE_LIMIT and rz > enough and math.isfinite(rz):
        curved = objective.hessian_times(rows, theta, direction)
        passes += 1
        curvature = float(np.sum(direction * curved))
        if not curvature > 0:
            break
        x = x + rz / curvature * direction
        left = gradient - objective.hessian_times(rows, theta, x)
        z = stale_inverse(factor, stream.V, left)
        before, rz = rz, float(np.sum(left * z))
        direction = z + rz / before * direction
    return x, left, passes


def _searched(
    objective: SoftmaxObjective, rows: Rows, theta: Array, x: Array, slope: float
) -> Array | None:
    """Return theta - size x with a lower loss, by backtracking; None if there is none."""
    if not slope > 0:
        return None
    value, size = objective.value(rows, theta), 1.0
    for _ in range(_HALVINGS):
        moved = theta - size * x
        if objective.value(rows, moved) <= value - _ARMIJO * size * slope:
            return moved
        size /= 2
    return theta - x if slope < 1e-10 * abs(value) else None
