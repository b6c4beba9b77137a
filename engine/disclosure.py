"""What two successive versions of a linear model disclose of a row (docs/disclosure.md).

A version that deletes, corrects or inserts a row, and the version before it, differ by that row.
With everything else as the later version has it, the row moves theta by delta, and

    D = |delta|_A^2 / (p s^2)

is its price: Cook's distance (1977), of the row among the rows that it is one of. A is the Hessian
with the row, p the trace of the hat matrix, s^2 the residual variance (`engine.diagnostics`).
Prices of several pairs of versions add up, as the squares of mu do that noise of covariance
tau^2 s^2 A^-1 on each version makes of them, mu^2 = p D / tau^2 (`engine.error.gaussian`).

All of it follows from the state after the change, whatever number of rows it changes. With the
signs S of rows that came (+1) and went (-1), their errors e and dual rows W there, and G = X W^T,

    theta without the change of a row - theta = W^T (S - G)^-1 e       over the row's own lines
    A_before^-1 = A^-1 + W^T (S - G)^-1 W                              over all lines

so no division by 1 - leverage amplifies the rounding of a row of high leverage that is deleted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from lethe.engine.deletion.stream import BLOCK
from lethe.engine.error.gaussian import epsilon_of, mu_of
from lethe.engine.fit.objective import Array, Rows


@dataclass(frozen=True, slots=True)
class ResidualScale:
    """What Cook's distance is measured in, carried from version to version in O(k d) a row.

    Attributes
    ----------
    freedom
        p, the trace of the hat matrix.
    squares
        The weighted sum of squared residuals.
    left
        Rows of positive weight, less p.
    """

    freedom: float
    squares: float
    left: float

    @property
    def unit(self) -> float | None:
        """The product p s^2; None if no residual is left to tell it from."""
        if not (self.left > 0.0 and self.squares > 0.0 and self.freedom > 0.0):
            return None
        return self.freedom * self.squares / self.left


@dataclass(frozen=True, slots=True)
class Changes:
    """The rows that a version changes, as k lines: a corrected row has two, its old and its new.

    Attributes
    ----------
    rows
        Of one output.
    signs
        (k,), +1 of a line that came, -1 of one that went.
    lines
        The lines of each row.
    dual
        k x d, A^-1 x after the change.
    """

    rows: Rows
    signs: Array
    lines: Sequence[Sequence[int]]
    dual: Array


@dataclass(frozen=True, slots=True)
class Price:
    """What a version and the one before it disclose of a row.

    ``distance`` is Cook's distance, None where no residual is left to measure it in; ``length``
    is |delta|, what noise of one size in every coordinate has to hide.
    """

    distance: float | None
    length: float


def begin_scale(rows: Rows, dual: Array, theta: Array) -> ResidualScale:
    """Return the scale of a fit, from all its rows (n) and their dual rows. Cost O(n d)."""
    freedom = float(rows.weight @ np.einsum("ij,ij->i", rows.X, dual))
    residual = rows.y[:, 0] - rows.X @ theta[:, 0]
    left = np.count_nonzero(rows.weight) - freedom
    return ResidualScale(freedom, float(rows.weight @ residual**2), left)


def disclose(
    scale: ResidualScale, penalty: Array, before: Array, after: Array, changes: Changes
) -> tuple[list[Price], ResidualScale]:
    """Return the price of each row that a version changes, and the scale after it.

    Parameters
    ----------
    scale
        Of the version before.
    penalty
        (d,), the diagonal of the ridge.
    before, after
        d x 1, the exact parameters of the two versions.

    Notes
    -----
    Cost O(k^2 d), that of the change itself.
    """
    root = np.sqrt(changes.rows.weight)
    X, dual = changes.rows.X * root[:, None], changes.dual * root[:, None]
    y = changes.rows.y[:, 0] * root
    error = X @ after[:, 0] - y
    moved = _moved(scale, penalty, before[:, 0], after[:, 0], changes, error, X, dual, y)
    return [
        _price(list(lines), changes.signs, error, X, dual, (scale, moved))
        for lines in changes.lines
    ], moved


def _price(
    lines: list[int],
    signs: Array,
    error: Array,
    X: Array,
    dual: Array,
    scales: tuple[ResidualScale, ResidualScale],
) -> Price:
    """Return the price of a row; one that is inserted is measured in the version that has it."""
    sign, e, W = signs[lines], error[lines], dual[lines]
    G = X[lines] @ W.T
    step = np.linalg.solve(np.diag(sign) - G, e)
    off = G @ step  # what undoing the change adds to the errors
    came = bool((sign > 0).all())
    squared = max(0.0, float(sign @ (off * (e + off if came else e))))
    unit = scales[came].unit
    return Price(None if unit is None else squared / unit, float(np.linalg.norm(step @ W)))


def _moved(
    scale: ResidualScale,
    penalty: Array,
    before: Array,
    after: Array,
    changes: Changes,
    error: Array,
    X: Array,
    dual: Array,
    y: Array,
) -> ResidualScale:
    """Return the scale after the change: the minimum of the objective moves by sum S e e_before."""
    signs, rest = changes.signs, dual.copy()
    more = 0.0
    for start in range(0, len(X), BLOCK):  # A^-1 as it was before one block after the other
        block, later = slice(start, start + BLOCK), slice(start + BLOCK, None)
        W = rest[block].copy()
        inner = np.linalg.solve(np.diag(signs[block]) - X[block] @ W.T, W)
        more += float(np.sum(inner * W * penalty))
        rest[later] += (X[later] @ W.T) @ inner
    minimum = float(signs @ (error * (X @ before - y)))
    squares = scale.squares + minimum + float(penalty @ (before**2 - after**2))
    rows = float(signs @ (changes.rows.weight > 0))
    return replace(
        scale,
        freedom=scale.freedom + more,
        squares=squares,
        left=scale.left + rows - more,
    )


def noise_to_hide(distance: float, freedom: float, epsilon: float, delta: float) -> float:
    """Return the noise that would have hidden a row, in standard errors of the coefficients.

    Normal noise of covariance tau^2 s^2 A^-1, fresh for each version, makes the versions
    (epsilon, delta)-indistinguishable from those without the changes of the row: this tau.
    """
    return math.sqrt(freedom * distance) / mu_of(epsilon, delta)


def epsilon_spent(length: float, sigma: float, delta: float) -> float:
    """Return the epsilon that noise N(0, sigma^2 I) leaves, for a root sum of squared lengths."""
    return epsilon_of(length / sigma, delta)
