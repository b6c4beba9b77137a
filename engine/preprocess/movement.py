"""What the live statistics change in the objective, and the live answer (docs/algebra.md).

In base units the live objective is that of the generation with rows x_i + Delta^T n_i, n_i the
row's entries and Delta the shifts (each in its entry's feature), and with the penalty
lam deviation_j^2 in place of lam. Its gradient is the generation's plus

    F(theta) = Y^T theta_c + (Y theta + D theta_c - t)_c + lam (deviation^2 - 1) theta,
    Y = Delta C,  D = Delta B Delta^T,  t = Delta N^T p,

where _c takes, or puts in place, the features that have entries; C = N^T S X, B = N^T S N and
N^T p are sums over the live rows. The pipeline's intercept is b + mean . theta: where it is
penalised, that has a share in F, too, of rank one,

    lam_b (u (u . theta) - e_b b),   u = (mean, 1).

F is affine, and small beside A_t: conjugate gradients with A_t^-1 as the preconditioner need a few
corrections. A_t + F' is the Hessian of the live objective, and so positive definite.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from lethe.engine.deletion.generation import Generation, Stream, largest_eigenvalue
from lethe.engine.deletion.residual import dual_row_error, storing_error
from lethe.engine.error.certificate import gradient_allowance
from lethe.engine.errors import StatisticsMoved
from lethe.engine.fit.factor import EPS, Factor
from lethe.engine.fit.objective import Array, lengths, norm
from lethe.engine.preprocess.transformation.base import BaseTransformation
from lethe.engine.preprocess.transformation.layout import Layout, Places
from lethe.engine.preprocess.transformation.statistics import Statistics
from lethe.engine.preprocess.transformation.sums import Sums

CORRECTIONS = 60
"""Corrections of one change at most. A few are usual; where the live statistics are so far from
the base that this does not suffice, a rebuild makes them the base."""

_ENOUGH = 1.0  # of the allowance for rounding: a residual below that is not worth a correction
_TINY = float(np.finfo(np.float64).tiny)  # in place of the 0 of a system that is solved exactly
_ROUNDS = 3  # of conjugate gradients, each from a residual taken afresh
_MEANS = 2.0  # times `ROUNDOFF`: roundings in a mean


class HeldIntercept(NamedTuple):
    """What penalising the pipeline's intercept, and not that of base units, changes.

    Attributes
    ----------
    penalty
        lam_b; 0 where the intercept is free, or there is none.
    mean
        (p,) of the live statistics.
    mean_size
        (p,) what its rounding is proportional to.
    """

    penalty: float
    mean: Array
    mean_size: Array

    @property
    def apart(self) -> float:
        """|lam_b^1/2 (u - e_b)|: what the change adds to a root of the Hessian, at most."""
        return math.sqrt(self.penalty) * norm(self.mean) if self.penalty else 0.0

    def add_product(self, theta: Array, out: Array) -> None:
        """Add the change at ``theta`` (d x m) to ``out``. Cost O(d m)."""
        along = self.mean @ theta[:-1]
        out[:-1] += self.penalty * np.outer(self.mean, along + theta[-1])
        out[-1] += self.penalty * along

    def size(self, theta: Array) -> float:
        """Return what rounding in the change is proportional to."""
        size, along = norm(np.abs(self.mean) + self.mean_size), norm(self.mean @ theta[:-1])
        by_mean = size * (along + norm(theta[-1]))
        by_product = (1.0 + norm(self.mean)) * size * norm(theta[:-1])
        return _MEANS * self.penalty * (by_mean + by_product)


@dataclass(frozen=True, slots=True)
class Movement:
    """F of the module, with what its rounding is proportional to.

    Attributes
    ----------
    features
        (c,) the features that have entries.
    crossed, paired, responses
        Y + D / 2 (c x d), its half of D in the columns of the features; D (c x c) and t (c x m).
    penalty
        (d,) lam (deviation^2 - 1).
    penalty_size
        (d,) what its rounding is proportional to.
    entry_size
        (2,) times |theta| and times 1: what rounding of the shifts does to F.
    held
        The share of an intercept that is penalised.
    """

    features: Places
    crossed: Array
    paired: Array
    responses: Array
    penalty: Array
    penalty_size: Array
    entry_size: tuple[float, float]
    held: HeldIntercept

    def product(self, theta: Array) -> Array:
        """Return F(theta) - F(0), d x m. Cost O(c d m)."""
        out = self.penalty[:, None] * theta
        if len(self.features):
            out += self.crossed.T @ theta[self.features]
            out[self.features] += self.crossed @ theta
        if self.held.penalty:
            self.held.add_product(theta, out)
        return out

    def gradient(self, theta: Array) -> Array:
        """Return F(theta), d x m. Cost O(c d m)."""
        out = self.product(theta)
        out[self.features] -= self.responses
        return out

    def allowance(self, theta: Array) -> float:
        """Return what rounding may have done to F(theta): `gradient_allowance` of its terms."""
        by_theta, by_target = self.entry_size
        scale = by_theta * norm(theta) + by_target + norm(self.penalty_size[:, None] * theta)
        if self.held.penalty:
            scale += self.held.size(theta)
        return gradient_allowance(scale)


def movement(base: BaseTransformation, sums: Sums, live: Statistics, penalty: Array) -> Movement:
    """Return what the live statistics change; ``penalty`` (d,) is the generation's.

    Cost O(q (d + q)).
    """
    p = base.layout.features
    C, B, responses = sums.crossed.at(), sums.paired.at(), sums.responses.high
    squares = live.deviation**2
    change, size = np.zeros(len(penalty)), np.zeros(len(penalty))
    change[:p] = penalty[:p] * (live.deviation - 1.0) * (live.deviation + 1.0)
    size[:p] = np.where(base.layout.scaled, penalty[:p] * squares * live.amplified, 0.0)
    crossed_size = float(live.unit @ (lengths(C) + B @ np.abs(live.shift)))
    features = base.layout.moving_features
    crossed = _by_feature(base.layout, live.shift, C)
    paired = _by_feature(base.layout, live.shift, _by_feature(base.layout, live.shift, B).T)
    crossed[:, _slice_of(features)] += 0.5 * paired
    return Movement(
        features,
        crossed,
        paired,
        _by_feature(base.layout, live.shift, responses),
        change,
        size,
        (2.0 * crossed_size, float(live.unit @ lengths(responses))),
        HeldIntercept(float(np.sum(penalty[p:])), live.mean, live.mean_size),
    )


def _by_feature(layout: Layout, shift: Array, sums: Array) -> Array:
    """Return Delta times ``sums`` (q x r), c x r: a row for each of `Layout.moving_features`."""
    gaps = len(layout.gap_entries)
    out = np.empty((layout.moving, sums.shape[1]))
    of_gaps = _slice_of(layout.gap_entries)
    np.multiply(sums[of_gaps], shift[of_gaps, None], out=out[:gaps])
    for i, coded in enumerate(layout.coded, gaps):
        np.dot(shift[coded.entries], sums[coded.entries], out=out[i])
    return out


def _slice_of(places: Places) -> slice | Places:
    """Return places that follow one another as a slice: what is there is then not copied."""
    if len(places) and places[-1] - places[0] + 1 == len(places) and (np.diff(places) == 1).all():
        return slice(int(places[0]), int(places[-1]) + 1)
    return places


class Settled(NamedTuple):
    """The live answer.

    Attributes
    ----------
    stream
        With theta_exact at it, and the residual that solving has added.
    gradient
        d x m, the generation's own gradient at theta_exact.
    left
        |gradient + F(theta_exact)|, as it was measured.
    corrections
        Products with A_t^-1.
    """

    stream: Stream
    gradient: Array
    left: float
    corrections: int


def settle(
    generation: Generation,
    stream: Stream,
    factor: Factor,
    gradient: Array,
    moved: Movement,
    enough: float,
) -> Settled:
    """Move theta_exact to the live answer.

    Parameters
    ----------
    generation, stream, factor
        The state, whose theta_exact is near to the answer; one block.
    gradient
        d x m, the generation's own gradient at theta_exact, up to ``stream.residual``.
    moved
        F.
    enough
        An allowance for rounding; a residual as large as it may be left.

    Raises
    ------
    StatisticsMoved
        The corrections do not end.

    Notes
    -----
    Cost O(d^2 + K d + c d) a correction: two triangular solves, V twice, and F.
    """
    theta, corrections = stream.theta_exact, 0
    residual = gradient + moved.gradient(theta)
    for _ in range(_ROUNDS):
        left = norm(residual)
        if left <= _ENOUGH * enough:
            break
        solved = conjugate_gradients(generation, stream, factor, moved, -residual, _ENOUGH * enough)
        corrections += solved.corrections
        after = theta + solved.step
        gradient = gradient + solved.image
        rounded = solved.error + EPS * norm(gradient)
        rounded += largest_eigenvalue(generation, stream) * storing_error(norm(after))
        theta = after
        stream = stream._replace(theta_exact=theta, residual=stream.residual + rounded)
        residual = gradient + moved.gradient(theta)
        if norm(residual) > 0.5 * left:  # rounding: another round does not help
            break
    left = norm(residual)
    if not left <= max(enough, moved.allowance(theta)) * CORRECTIONS:
        raise StatisticsMoved("the corrections for the live statistics do not converge")
    return Settled(stream, gradient, left, corrections)


class Solved(NamedTuple):
    """A step, its product with A_t, a bound of that product's error, and A_t^-1's applications."""

    step: Array
    image: Array
    error: float
    corrections: int


def conjugate_gradients(
    generation: Generation,
    stream: Stream,
    factor: Factor,
    moved: Movement,
    r: Array,
    enough: float,
) -> Solved:
    """Solve (A_t + F') step = r up to a residual of length ``enough``.

    A_t is never multiplied by: its product with a direction is carried along, because directions
    are made of A_t^-1 r. What the error of the dual rows does to that is carried, too. Several
    outputs are one system, whose matrix has the same block for each.

    Raises
    ------
    StatisticsMoved
        More than `CORRECTIONS` would be needed.
    """
    off = dual_row_error(generation.by_factor, stream, stream.least_pivot)
    # Each a vector and its product with A_t, one above the other: they are updated at once.
    total, search = np.zeros((2, *r.shape)), np.zeros((2, *r.shape))
    error = direction_error = 0.0
    last = math.inf
    for count in range(CORRECTIONS):
        if norm(r) <= enough:
            return Solved(total[0], total[1], error, count)
        z, terms = _solved(stream, factor, r)
        now = float(np.vdot(r, z))
        beta = now / max(last, _TINY)
        search *= beta
        search[0] += z
        search[1] += r
        direction_error = off * terms + beta * direction_error
        product = moved.product(search[0])
        product += search[1]
        curvature = float(np.vdot(search[0], product))
        if not curvature >= 0.0:
            break
        alpha = now / max(curvature, _TINY)
        total += alpha * search
        error += abs(alpha) * direction_error
        r, last = r - alpha * product, now
    raise StatisticsMoved("the live statistics are too far from those of the fit")


def _solved(stream: Stream, factor: Factor, v: Array) -> tuple[Array, float]:
    """Return A_t^-1 v, and the summed lengths of its two terms."""
    base = factor.solve(v)
    if not len(stream.V):
        return base, norm(base)
    added = stream.V.times(v)
    return base + added, norm(base) + norm(added)
