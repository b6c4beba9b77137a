"""The live rows as a polish sees them: what is computed from them once, and the state of one point.

Leverages x_i^T A_t^-1 x_i need an n x K x d product, as much as seven passes at K = d / 10. A
bound from |x_i| alone suffices where the certificate's second term is small, as it is at a polished
point; leverages are computed only where that bound is not enough (`Live.sharpen`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from lethe.engine.deletion.correction import Correction
from lethe.engine.errors import IllConditioned
from lethe.engine.fit.objective import Array, Objective, Rows, lengths, norm
from lethe.engine.refresh.reweighted import Operator

_SUMMED = 1024  # rows summed at once: rounding grows with a block's size and not with n
_CACHED = 2**17  # numbers: a block of so many stays in the cache between its products
_LARGEST = 1e100  # of a gradient or a curvature: a step squares them


@dataclass(frozen=True, slots=True)
class Point:
    """A theta with its margins, and what the last pass measured there.

    ``travelled`` is the summed length of all steps on the way
    (`engine.refresh.subspace.Direction`): rounding in the margins, which are accumulated and not
    recomputed, is relative to it.
    """

    theta: Array
    margin: Array
    gradient: Array
    curvature: Array
    travelled: float


@dataclass(slots=True)
class Live:
    """What stays the same during one polish of a model that is not linear.

    Attributes
    ----------
    objective, rows, W, V
        The loss, the n live rows, their dual rows relative to A_b, and A_t^-1 = A_b^-1 + V^T J V.
    stale, smallest, off
        v -> A_t^-1 v, a lower bound of lam_min(A_t), and a bound of what the operator is off by.
    margin_b, curvature_b
        X theta_b, n x 1, and the curvatures there, (n,).
    lengths
        |x_i|, (n,).
    reach
        An upper bound of max_i sqrt(x_i^T A_t^-1 x_i).
    sharp
        Whether ``reach`` is that maximum itself.
    base
        What `base_leverage` returns, once it is known.
    """

    objective: Objective
    rows: Rows
    W: Array
    V: Correction
    stale: Operator
    smallest: float
    off: float
    margin_b: Array
    curvature_b: Array
    lengths: Array
    reach: float
    sharp: bool = False
    base: Array | None = None

    def sharpen(self) -> None:
        """Replace the bound ``reach`` by the maximum itself. Cost O(n K d), once."""
        if self.sharp:
            return
        X, largest = self.rows.X, 0.0
        for start in range(0, len(X), _SUMMED):
            b = slice(start, start + _SUMMED)
            leverage = np.einsum("ij,ij->i", X[b], self.W[b])
            leverage += self.V.leverages(X[b])
            largest = max(largest, float(leverage.max()))
        longest = float(self.lengths.max())
        largest += self.off * longest * longest
        self.reach, self.sharp = math.sqrt(largest), True

    def base_leverage(self) -> Array:
        """Return x_i^T A_b^-1 x_i, (n,): leverages without what V adds. Cost O(n d), once."""
        if self.base is None:
            self.base = np.einsum("ij,ij->i", self.rows.X, self.W)
        return self.base

    @property
    def least_reach(self) -> float:
        """Return a lower bound of the true reach; 0 while none is known.

        Without insertions, A_b^-1 <= A_t^-1.
        """
        if self.base is None or not self.V.only_deletions:
            return 0.0
        return math.sqrt(max(float(self.base.max()), 0.0))

    def dual(self, chosen: np.ndarray) -> Array:
        """Return the dual rows A_t^-1 x_i of r rows. Cost O(r K d)."""
        fresh: Array = self.W[chosen] + self.V.of_rows(self.rows.X[chosen])
        return fresh

    def measured(self, theta: Array, margin: Array, travelled: float) -> Point:
        """Measure the gradient: with the product that gave the margins, one pass."""
        objective, rows = self.objective, self.rows
        error = objective.error_at(rows, margin)
        gradient = objective.base_gradient(theta)
        for start in range(0, len(rows), _SUMMED):
            block = slice(start, start + _SUMMED)
            gradient = gradient + rows.X[block].T @ error[block]
        curvature = objective.curvature_at(rows, margin)
        return Point(theta, margin, gradient, curvature, travelled)

    def gradient_scale(self, point: Point) -> float:
        """Return `Objective.gradient_scale` from what is known. Cost O(n)."""
        error = self.objective.error_size_at(self.rows, point.margin)[:, 0]
        reach = self.lengths * (norm(point.theta) + point.travelled)
        parts = error + point.curvature * reach
        return float(self.lengths @ parts) + self.objective.base_scale(point.theta)


def blocks_of(X: Array) -> Iterator[slice]:
    """Yield blocks of rows that are read from memory once for several products."""
    size = min(max(_CACHED // X.shape[1], 32), _SUMMED)
    for start in range(0, len(X), size):
        yield slice(start, start + size)


def survey(
    objective: Objective,
    rows: Rows,
    W: Array,
    V: Correction,
    *,
    stale: Operator,
    smallest: float,
    off: float = 0.0,
    theta: Array,
    theta_b: Array,
) -> tuple[Live, Point]:
    """Take the first pass: X is read once for its lengths, both margins and the gradient.

    Cost O(n d).

    Raises
    ------
    IllConditioned
        The gradient or a curvature is above `_LARGEST`: a Poisson model's predictions overflow.
    """
    n = len(rows)
    thetas = np.hstack([theta, theta_b])
    margins, row_lengths = np.empty((n, 2)), np.empty(n)
    gradient = objective.base_gradient(theta)
    with np.errstate(over="ignore", invalid="ignore"):
        for b in blocks_of(rows.X):
            block = rows.take(b)
            margins[b] = block.X @ thetas
            row_lengths[b] = lengths(block.X)
            gradient = gradient + block.X.T @ objective.error_at(block, margins[b, :1])
    margin, margin_b = margins[:, :1].copy(), margins[:, 1:].copy()
    curvature = objective.curvature_at(rows, margin)
    if not (norm(gradient) <= _LARGEST and float(curvature.max()) <= _LARGEST):
        raise IllConditioned(
            "the predictions of the present parameters are too large to compute with; rebuild the "
            "model"
        )
    live = Live(
        objective,
        rows,
        W,
        V,
        stale,
        smallest,
        off,
        margin_b,
        objective.curvature_at(rows, margin_b),
        row_lengths,
        reach=float(row_lengths.max()) / math.sqrt(smallest),
    )
    return live, Point(theta, margin, gradient, curvature, 0.0)
