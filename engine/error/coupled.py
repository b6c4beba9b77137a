"""Certificates of softmax models, from a pass over the live rows (docs/error.md, Softmax).

Along u + t v the third derivative of log sum_c e^(u_c) is the third central moment of v under p:

    |D^3 [v, z, z]| = |E (v - E v) (z - E z)^2| <= range(v) z^T S z,    range(v) = max v - min v.

So curvatures obey e^-r S(u) <= S(u + v) <= e^r S(u), r = range(v): what |s'| <= s is for one
margin. Every proof of `engine.error.certificate` holds with range(x_i . d) in place of |x_i . d|:
its reach is max_i max_(b, c) of the length of (e_b - e_c) kron x_i in H^-1, at most
sqrt(2) |x_i| / sqrt(mu), and margins have moved by max_i range(x_i . (theta - theta_b)).
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from lethe.engine.deletion.coupled import stale_inverse
from lethe.engine.deletion.generation import (
    Generation,
    Stream,
    error_of_trace,
    inverse_error,
    smallest_eigenvalue,
)
from lethe.engine.error.certificate import (
    Certificate,
    Measured,
    certify_at_hessian,
    certify_with_residual,
    certify_with_stale_factor,
)
from lethe.engine.fit.factor import EPS, Factor
from lethe.engine.fit.multinomial import SoftmaxObjective, vec
from lethe.engine.fit.objective import Array, Rows, lengths

_ROUNDED = 16.0  # times eps |A_t^-1| |x|^2: the differences of a reach cancel
_MARGIN_LIMIT = 30.0  # e^30: beyond it a stale factor says nothing


def reach(rows: Rows, smallest: float) -> float:
    """Return a bound of max_i max_(b, c) |(e_b - e_c) kron x_i| in H^-1, lam_min(H) given."""
    longest = float(np.max(lengths(rows.X), initial=0.0))
    return math.sqrt(2.0) * longest / math.sqrt(smallest)


def sharp_reach(stream: Stream, factor: Factor, rows: Rows) -> float:
    """Return that maximum itself in A_t^-1, and an allowance for its rounding.

    Cost O((d C)^3 + K (d C)^2 + n d^2 C^2), as much as forming and factoring a Hessian.
    """
    d, (size, V) = rows.X.shape[1], (len(factor.L), stream.V)
    inverse = factor.solve(np.eye(size)) + V.array.T @ V.signed(V.array)
    largest = 0.0
    for c in range(size // d):
        for b in range(c):
            own, other = slice(b * d, (b + 1) * d), slice(c * d, (c + 1) * d)
            M = inverse[own, own] + inverse[other, other]
            M = M - inverse[own, other] - inverse[other, own]
            largest = max(largest, float(np.max(np.sum((rows.X @ M) * rows.X, axis=1))))
    longest = float(np.max(lengths(rows.X), initial=0.0))
    return math.sqrt(
        largest + _ROUNDED * EPS * longest**2 * float(np.abs(inverse).sum(axis=0).max())
    )


def margin_change(rows: Rows, theta: Array, theta_b: Array) -> float:
    """Return max_i range(x_i . (theta - theta_b)). Cost O(n d C)."""
    return float(np.max(np.ptp(rows.X @ (theta - theta_b), axis=1), initial=0.0))


def measure(objective: SoftmaxObjective, rows: Rows, theta: Array) -> Measured:
    """Return the point and its gradient over the live rows, stacked. Cost O(n d C)."""
    measured = Measured.at(objective, rows, theta)
    return Measured(vec(theta), vec(measured.gradient), measured.scale)


def certify_fit(
    objective: SoftmaxObjective, rows: Rows, theta: Array, factor: Factor, smallest: float
) -> Certificate:
    """Certify theta by the factor of its own Hessian, ``smallest`` <= lam_min. Cost O(n d C)."""
    known = Factor(factor.L, smallest, factor.largest)
    return certify_at_hessian(
        objective, known, measure(objective, rows, theta), reach=reach(rows, smallest)
    )


def certify(
    objective: SoftmaxObjective,
    generation: Generation,
    stream: Stream,
    factor: Factor,
    rows: Rows,
    theta: Array,
) -> Certificate:
    """Certify ``theta`` over the live rows by A_t.

    Cost O(n d C + (d C)^2), and that of `sharp_reach` where the bound of the reach is not enough
    for the argument of self-concordance.
    """
    measured = measure(objective, rows, theta)
    smallest = smallest_eigenvalue(generation, stream)
    gradient = measured.gradient.reshape(theta.shape, order="F")
    newton = vec(stale_inverse(factor, stream.V, gradient))
    # |A z - g| <= off |z| for the computed z, so |A^-1 g| <= (1 + off / mu) |z|.
    newton = newton * (1.0 + inverse_error(generation, stream) / smallest)
    within = partial(
        certify_with_stale_factor,
        objective,
        measured,
        newton=newton,
        margin_change=margin_change(rows, theta, generation.theta_b),
        smallest=smallest,
        off=error_of_trace(stream, theta.size),
    )
    certificate = within(reach=reach(rows, smallest))
    if certificate.argument == "stale-factor" or within(reach=0.0).argument != "stale-factor":
        return certificate
    return within(reach=sharp_reach(stream, factor, rows))


def certify_solved(
    objective: SoftmaxObjective,
    generation: Generation,
    stream: Stream,
    factor: Factor,
    rows: Rows,
    theta: Array,
    solved: tuple[Array, Array],
) -> Certificate | None:
    """Certify ``theta`` by a system H x = g that was solved in part: x and g - H x, d x C each.

    H >= e^-m A_t, and H >= min penalty; None where neither says anything. Cost O(n d C).
    """
    step, unsolved = solved
    moved = margin_change(rows, theta, generation.theta_b)
    weakest = float(objective.penalty.min())
    smallest, energy = weakest, math.inf
    if weakest > 0:
        energy = float(np.sum(unsolved**2)) / weakest
    if moved <= _MARGIN_LIMIT:
        stretch = math.exp(moved)
        smallest = max(smallest, smallest_eigenvalue(generation, stream) / stretch)
        stale = float(np.sum(unsolved * stale_inverse(factor, stream.V, unsolved)))
        energy = min(energy, stretch * max(stale, 0.0))
    if not (smallest > 0 and math.isfinite(energy)):
        return None
    return certify_with_residual(
        objective,
        measure(objective, rows, theta),
        step=vec(step),
        unsolved=vec(unsolved),
        energy=energy,
        reach=reach(rows, smallest),
        smallest=smallest,
    )
