"""The least error that any version with new rows can have: with some rows, no fit keeps a budget.

A fit over rows one of which is far longer than the others has a Hessian H with an eigenvalue of
s |x|^2, and rounding leaves about eps s |x|^2 |theta| of the gradient, which is a distance of that
over lam_min(H). So the relative error that a fit states is at least 4 eps sum s_i |x_i|^2 over
lam_min(H), whatever the other rows are. Fits with one such row were measured to state 1 to 1.4
times that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from lethe.engine.deletion.generation import (
    Generation,
    Stream,
    current_dual_rows,
    has_lost_digits,
    smallest_eigenvalue,
)
from lethe.engine.error.certificate import gradient_allowance
from lethe.engine.fit import blocks
from lethe.engine.fit.factor import Factor, largest_of_inverse, power_of_two, smallest_usable
from lethe.engine.fit.magnitude import LARGEST, LARGEST_PULL, errors_at_zero
from lethe.engine.fit.objective import Array, Kind, Rows, lengths, norm
from lethe.engine.fit.precompute import SAFE

BLAMED = 1.0 / 64.0
"""Part of the error budget that a row's least error must exceed to be blamed for a version over it.
A step states 10 to 20 times what a fit with the row would; an ordinary row has 1e-12 of the
budget."""


@dataclass(frozen=True, slots=True)
class LeastError:
    """What `least_error` returns.

    Attributes
    ----------
    relative
        No version with the rows can have a smaller relative error; infinite if no fit takes them.
    worst
        Index of the row that adds most to it.
    """

    relative: float
    worst: int = 0


def least_error(
    generation: Generation,
    stream: Stream,
    factor: Factor,
    rows: Rows,
    W: Array,
    enough: float,
) -> LeastError:
    """Return the least relative error of a version with new rows.

    Parameters
    ----------
    generation, stream, factor
        The state before, and L.
    rows, W
        k >= 1 new rows and their base dual rows.
    enough
        An error that matters: one that is surely smaller is returned as 0. So is that of counts.

    Notes
    -----
    Cost O(K k d). Only where a row is so long that ``enough`` may be reached, 12 Lanczos steps of
    O(d^2 + K d) follow, and O(k' d^2) for k' such rows.
    """
    x = lengths(rows.X)
    kind = generation.objective.kind
    pulls = x * rows.weight * errors_at_zero(kind, rows)
    sizes = x * np.maximum(np.sqrt(rows.weight), 1.0)
    if not (norm(sizes) <= LARGEST and float(pulls.sum()) <= LARGEST_PULL):
        worst = sizes if not norm(sizes) <= LARGEST else pulls
        return LeastError(math.inf, int(np.argmax(worst)))
    least = LeastError(0.0)
    if kind is Kind.POISSON:  # no bound of curvatures is known: they are the predicted means
        return least
    if kind is Kind.SOFTMAX:
        return _least_of_softmax(generation, stream, rows)
    smallest = smallest_eigenvalue(generation, stream)
    if not may_matter(rows, smallest, enough):
        return least
    for c, shares in enumerate(_shares(generation, stream, rows, W)):
        if gradient_allowance(float(shares.sum())) <= enough * smallest:
            continue
        mattering = gradient_allowance(1.0) * len(rows) * shares > enough * smallest
        own = _least_of_block(generation, stream, factor, c, rows.X[mattering], shares[mattering])
        own *= _part_of_theta(stream.theta_exact, c, generation.blocks)
        if own > least.relative:
            least = LeastError(own, int(np.argmax(shares)))
    return least


def _least_of_softmax(generation: Generation, stream: Stream, rows: Rows) -> LeastError:
    """Return the least error by curvatures that fitting meets on its way, for there are no duals.

    The largest eigenvalue of S_i is 1/2 at most, and 1 less the probability of the row's class.
    """
    error = np.abs(generation.objective.error(rows, stream.theta_exact)).max(axis=1)
    shares = np.minimum(error, 0.5 * rows.weight) * lengths(rows.X) ** 2
    least = gradient_allowance(float(shares.sum())) / generation.smallest
    return LeastError(least, int(np.argmax(shares)))


def may_matter(rows: Rows, smallest: float, enough: float) -> bool:
    """Return whether a fit with rows may have an error of ``enough``, given a smallest eigenvalue.

    By their lengths alone, which takes O(k d): the curvature of a row is its weight at most.
    """
    squares = float(rows.weight @ lengths(rows.X) ** 2)
    return not gradient_allowance(squares) <= enough * smallest


def _shares(generation: Generation, stream: Stream, rows: Rows, W: Array) -> list[Array]:
    """Return s_i |x_i|^2 for each block, (k,), s_i the curvature where a fit would leave the row.

    That of a linear model is the weight. A logistic model is fitted until the pull of a row that it
    predicts wrongly is that of all others on it, x.theta / (x.A_t^-1 x) to first order: the longer
    the row, the smaller are its error and its curvature, which is below the error.
    """
    x = lengths(rows.X)
    objective, theta = generation.objective, stream.theta_exact
    if objective.kind is Kind.LINEAR:
        return [rows.weight * x**2]
    d, h = rows.X.shape[1], generation.blocks
    units = np.divide(rows.X, x[:, None], out=np.zeros(rows.X.shape), where=x[:, None] > 0)
    margins, errors = units @ theta, np.abs(objective.error(rows, theta))
    scaled = np.divide(W, x[:, None], out=np.zeros(W.shape), where=x[:, None] > 0)
    dual = current_dual_rows(stream, units, scaled)
    found = []
    for c in range(h):
        reach = np.einsum("ij,ij->i", units, blocks.part(dual, c, d))
        pull = np.abs(blocks.outputs(margins, c, h)[:, 0]) / np.maximum(reach, np.finfo(float).tiny)
        # s |x|^2 <= e |x|^2, and e |x| <= pull
        error = blocks.outputs(errors, c, h)[:, 0]
        found.append(x * np.minimum(np.minimum(error, 0.25 * rows.weight) * x, pull))
    return found


def _part_of_theta(theta: Array, c: int, h: int) -> float:
    """Return how much of theta's length is that of block c: errors are relative to all of it."""
    whole = norm(theta)
    return norm(blocks.outputs(theta, c, h)) / whole if whole > 0 else 1.0


def _least_of_block(
    generation: Generation, stream: Stream, factor: Factor, c: int, X: Array, shares: Array
) -> float:
    """Return the least relative error because of long rows, from an upper bound of lam_min(H).

    With B the long rows as unit vectors and P = A_t^-1, H^-1 is at least what P is across them,
    P - P B^T (B P B^T)^-1 B P, however long they are. Its largest Ritz value is a lower bound of
    |H^-1|. Where they span everything there is nothing beside them to lose.
    """
    d = X.shape[1]
    if not 0 < len(X) < d:
        return 0.0
    own = factor.block(c)
    V = None if has_lost_digits(stream) else stream.V.part(c, d)

    def inverse(v: Array) -> Array:
        solved = own.solve(v)
        return solved if V is None or not len(V) else solved + V.times(v)

    B = X / lengths(X)[:, None]
    across = inverse(B.T)
    inner = np.linalg.pinv(B @ across, hermitian=True)

    def beside(v: Array) -> Array:
        solved = inverse(v[:, None])
        return np.asarray(solved - across @ (inner @ (B @ solved)))[:, 0]

    unit = power_of_two(generation.largest)
    largest = float(shares.max())
    smallest = smallest_usable(unit / largest_of_inverse(beside, d, unit), largest)
    if not smallest >= SAFE * gradient_allowance(largest):
        return math.inf
    return gradient_allowance(float(shares.sum())) / smallest
