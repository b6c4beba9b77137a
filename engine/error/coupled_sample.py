"""The estimate of a softmax model's error from its sentinels (`engine.error.estimate`).

The sums are those of separate classes. But a row's curvature is a matrix, and there are no dual
rows: A_b^-1 is applied by the factor, to a sum over the sample and not to each of its rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular

from lethe.engine.deletion.coupled import parts_of, stale_inverse
from lethe.engine.deletion.generation import Generation, Stream
from lethe.engine.error.stiffness import least_of
from lethe.engine.fit.factor import Factor
from lethe.engine.fit.multinomial import SoftmaxObjective, unvec
from lethe.engine.fit.objective import Array, Rows, norm

_PROBES = 4
"""Random steps, and random directions, by which rows are weighed (`possible_parts`)."""

_SYMMETRIC = 0.1  # as in `engine.error.sentinels`: a second order may vanish


@dataclass(frozen=True, slots=True)
class SampledStep:
    """T = A_t^-1 sum of x_i rem_i over the live rows, as a sample has it.

    Attributes
    ----------
    length, spread
        |T|, and one standard error along T.
    stale, change
        a.A_t a |T| along the unit vector a of T, and by how much the curvatures at theta_exact
        change a.A_t a.
    fallen
        Returns the least stiffness (`engine.error.stiffness`), or 1 where no curvature of a sampled
        row has fallen by half.
    """

    length: float
    spread: float = 0.0
    stale: float = 0.0
    change: float = 0.0
    fallen: Callable[[], float] = lambda: 1.0


def remainder(generation: Generation, stream: Stream, rows: Rows) -> Array:
    """Return rem_i = p(x.theta) - p(x.theta_r) - S_i x.(theta - theta_r), k x C. O(k d C)."""
    objective, _ = parts_of(generation)
    moved = rows.X @ (stream.theta_exact - stream.theta_r)
    changed = objective.error(rows, stream.theta_exact) - objective.error(rows, stream.theta_r)
    return changed - objective.curvature_times(rows, generation.theta_b, moved)


def sampled_step(
    generation: Generation, stream: Stream, rows: Rows, chances: Array, least: float
) -> SampledStep:
    """Return the step of sampled ``rows``, each drawn with its chance (k x 1).

    ``least``: the stiffness that matters. Cost O(k d C + (d C)^2 + K d C).
    """
    objective, factor = parts_of(generation)
    weighted = remainder(generation, stream, rows) / chances
    pulled = rows.X.T @ weighted
    step = stale_inverse(factor, stream.V, pulled)
    length = norm(step)
    if not 0.0 < length < math.inf:
        return SampledStep(length)
    along = step / length
    reach = rows.X @ stale_inverse(factor, stream.V, along)  # along.A_t^-1 x_i, by class
    parts = np.sum(reach * weighted, axis=1, keepdims=True)
    u = rows.X @ along
    bent = objective.curvature_times(rows, stream.theta_exact, u)
    bent = bent - objective.curvature_times(rows, generation.theta_b, u)
    return SampledStep(
        length,
        float(np.sqrt(np.sum((1.0 - chances) * parts**2))),
        float(np.sum(along * pulled)),
        float(np.sum(u * bent / chances)),
        lambda: _least_stiffness(objective, generation, stream, factor, rows, chances, least),
    )


def _least_stiffness(
    objective: SoftmaxObjective,
    generation: Generation,
    stream: Stream,
    factor: Factor,
    rows: Rows,
    chances: Array,
    least: float,
) -> float:
    """Return the least stiffness, by what the curvature of each sampled row has lost of itself.

    Curvatures obey S' >= e^-r S, r the range of the change of margins (`engine.error.coupled`): so
    rows whose r is below log 1 / ``least`` have kept enough, and if all have, so has their sum.
    """
    moved = np.ptp(rows.X @ (stream.theta_exact - generation.theta_b), axis=1)
    far = ~(moved <= -math.log(least))
    if not far.any():
        return 1.0
    rows, chances = rows.take(far), chances[far]
    before = _curvatures(objective, rows, generation.theta_b)
    lost = before - _curvatures(objective, rows, stream.theta_exact)
    if not np.isfinite(lost).all():
        return -math.inf
    values, vectors = np.linalg.eigh(lost / chances[:, :, None])
    roots = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]  # lost <= roots roots^T

    def applied(u: Array) -> Array:
        weighted = np.einsum("icj,ij->ic", roots, u.reshape(len(rows), -1))
        margins = rows.X @ stale_inverse(factor, stream.V, rows.X.T @ weighted)
        product: Array = np.einsum("icj,ic->ij", roots, margins).ravel()
        return product

    return least_of(applied, (values > 0).ravel(), least)


def _curvatures(objective: SoftmaxObjective, rows: Rows, theta: Array) -> Array:
    """Return weight S_i, k x C x C."""
    p = objective.mean(rows.X @ theta)
    S = -p[:, :, None] * p[:, None, :]
    S[:, np.arange(p.shape[1]), np.arange(p.shape[1])] += p
    weighted: Array = rows.weight[:, None, None] * S
    return weighted


def possible_parts(generation: Generation, rows: Rows) -> Array:
    """Return what each row can add to the estimate, up to a factor for all, shape (n,).

    After random deletions a step is like z ~ N(0, A_b^-1). To second order row i then has the
    remainder rem_i = weight / 2 p (v^2 - E v^2), v = u - E u and u = x_i.z; it adds A_b^-1 x_i
    rem_i, whose product with a random direction is x_i.(A_b^-1 w) rem_i. A few z and w are drawn:
    O(n d C) and no solve for a row.
    """
    objective, factor = parts_of(generation)
    d, C = generation.theta_b.shape
    rng = np.random.default_rng(0)
    drawn = rng.standard_normal((d * C, 2 * _PROBES))
    steps: Array = solve_triangular(factor.L, drawn[:, :_PROBES], lower=True, trans="T")
    directions = factor.solve(drawn[:, _PROBES:])
    p = objective.mean(rows.X @ generation.theta_b)
    squares = np.zeros(len(rows))
    for z, w in zip(steps.T, directions.T, strict=True):
        u, reach = rows.X @ unvec(z[:, None], d), rows.X @ unvec(w[:, None], d)
        v = u - np.sum(p * u, axis=1, keepdims=True)
        second = p * (v**2 - np.sum(p * v**2, axis=1, keepdims=True))
        first = p * np.abs(v) * np.ptp(u, axis=1)[:, None]
        squares += np.sum(reach * second, axis=1) ** 2
        squares += (_SYMMETRIC * np.sum(np.abs(reach) * first, axis=1)) ** 2
    return rows.weight * np.sqrt(squares)
