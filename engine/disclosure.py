"""What two successive versions of a linear model disclose of a row (docs/disclosure.md).

A version that deletes, corrects or inserts a row, and the version before it, differ by that row.
With everything else as the later version has it, the row moves theta by delta, and

    D = |delta|_A^2 / (p s^2)

is its price: Cook's distance (1977) of the row among the rows that include it. A is the Hessian
with the row, p the trace of the hat matrix, s^2 the residual variance (`engine.diagnostics`).
Prices of several pairs of versions add up: with noise of covariance tau^2 s^2 A^-1 on each version
a price amounts to mu^2 = p D / tau^2, and squares of mu add up (`engine.error.gaussian`).

With the signs S of lines that came (+1) and went (-1), their errors e and dual rows W after the
change, and G = X W^T,

    theta without the change of a row - theta = W^T (S - G)^-1 e       over the row's own lines

which divides by no 1 - leverage for a line that went. For one that came it would, so such lines
are taken from the version before: with its G_b, e_b and W_b, T = S (S + G_b)^-1 gives
S - G = T S, e = T e_b and W = T W_b. p and s^2 are carried along, both ways by 1 + leverage:
adding lines to rows that lack them, with e, W and G = X W^T there, raises p by
trace(penalty W^T (I + G)^-1 W) and twice the minimum of the objective by e^T (I + G)^-1 e.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lethe.engine.deletion.generation import Generation, Stream, rounding
from lethe.engine.deletion.residual import dual_row_error
from lethe.engine.deletion.stream import BLOCK
from lethe.engine.error.gaussian import epsilon_of, mu_of
from lethe.engine.fit.factor import EPS, Factor
from lethe.engine.fit.objective import Array, Rows, RowsInBlocks, lengths, norm, over
from lethe.engine.fit.precompute import dual_rows

PRICED_WITHIN = 1e-3
"""The largest relative error that rounding may leave in a step, or in what it is measured in."""

_TOGETHER = 4 * BLOCK
"""The most lines whose (S + G_b)^-1 is computed: 8 MB, 0.1 s."""

_ROUNDING = 4 * EPS


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
    freedom_error, squares_error
        Allowances for rounding in them. That of ``squares`` is in proportion to the largest sum
        that there was: residuals are lost beside a row that is 1e8 times further out, until a
        compact or a rebuild measures them again.
    """

    freedom: float
    squares: float
    left: float
    freedom_error: float = 0.0
    squares_error: float = 0.0

    @property
    def unit(self) -> float | None:
        """The product p s^2; None if no residual is left to tell it from, but rounding."""
        if not (self.left > 0.0 and self.squares > 0.0 and self.freedom > 0.0):
            return None
        wrong = self.squares_error / self.squares
        wrong += self.freedom_error * (1.0 / self.left + 1.0 / self.freedom)
        return self.freedom * self.squares / self.left if wrong <= PRICED_WITHIN else None

    @property
    def known(self) -> bool:
        """Whether it is a scale: not `NOT_KNOWN`."""
        return self.freedom > 0.0

    def since(self, then: ResidualScale, measured: ResidualScale) -> ResidualScale:
        """Return this scale with what it was ``then`` replaced by what was ``measured``."""
        if self == then:
            return measured
        fields = zip(astuple(measured), astuple(self), astuple(then), strict=True)
        return _if_finite(ResidualScale(*(new + (now - old) for new, now, old in fields)))


NOT_KNOWN = ResidualScale(0.0, 0.0, 0.0)
"""After a change that could not be followed."""


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
    dual_before
        The same before it; None if no line came.
    dual_error, dual_error_before
        Allowances for |x - A w| / |w| in both (`dual_error_in`).
    """

    rows: Rows
    signs: Array
    lines: Sequence[Sequence[int]]
    dual: Array
    dual_before: Array | None = None
    dual_error: float = 0.0
    dual_error_before: float = 0.0


class _Lines(NamedTuple):
    """Lines in a version, each times the root of its weight; and S - G, where it is known."""

    signs: Array
    X: Array
    y: Array
    error: Array
    dual: Array
    inner: Array | None = None

    def only(self, mask: NDArray[np.bool_]) -> _Lines:
        """Return some of them."""
        return _Lines(*(part[mask] for part in self[:5]))


@dataclass(frozen=True, slots=True)
class Price:
    """What a version and the one before it disclose of a row.

    ``distance`` is Cook's distance, None where no residual is left to measure it in; ``length``
    is |delta|, what noise of one size in every coordinate has to hide. Both are None where
    rounding leaves nothing of them.
    """

    distance: float | None
    length: float | None


def begin_scale(rows: Rows, dual: Array, theta: Array, dual_error: float) -> ResidualScale:
    """Return the scale of rows (n) at their minimiser. Cost O(n d).

    ``dual`` are their dual rows, and ``dual_error`` is max |x - A w| / |w| of those.
    """
    return _if_finite(_part_of_scale(rows, dual, theta, dual_error))


def begin_scale_in_passes(
    rows: RowsInBlocks, factor: Factor, theta: Array, dual_error: float
) -> ResidualScale:
    """Return what `begin_scale` does for rows that are read in blocks: a pass, O(n d^2)."""
    parts = over(rows, partial(_block_of_scale, factor, theta, dual_error))
    sums = [sum(numbers) for numbers in zip(*map(astuple, parts), strict=True)]
    return _if_finite(ResidualScale(*sums))


def _block_of_scale(factor: Factor, theta: Array, dual_error: float, rows: Rows) -> ResidualScale:
    return _part_of_scale(rows, dual_rows(factor, rows.X), theta, dual_error)


def _part_of_scale(rows: Rows, dual: Array, theta: Array, dual_error: float) -> ResidualScale:
    """Return what some of the rows add to each number of their scale."""
    weight, length = rows.weight, lengths(dual)
    with np.errstate(over="ignore", invalid="ignore"):
        freedom = float(weight @ np.einsum("ij,ij->i", rows.X, dual))
        residual = rows.y[:, 0] - rows.X @ theta[:, 0]
        wrong = _ROUNDING * (np.abs(rows.y[:, 0]) + lengths(rows.X) * norm(theta))
        return ResidualScale(
            freedom,
            float(weight @ residual**2),
            np.count_nonzero(weight) - freedom,
            float(weight @ (length * (_ROUNDING * lengths(rows.X) + dual_error * length))),
            float(weight @ (wrong * (2.0 * np.abs(residual) + wrong))),
        )


def _if_finite(scale: ResidualScale) -> ResidualScale:
    return scale if all(map(math.isfinite, astuple(scale))) else NOT_KNOWN


def dual_error_in(generation: Generation, stream: Stream) -> float:
    """Return the allowance for the dual rows of a version; inf if its bound leaves no digit."""
    if rounding(generation, stream) > norm(stream.theta_exact):
        return math.inf
    return dual_row_error(generation, stream, stream.least_pivot)


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
    root, wrong = np.sqrt(changes.rows.weight)[:, None], changes.dual_error
    X, y, signs = changes.rows.X * root, changes.rows.y * root, changes.signs
    lines = _Lines(signs, X, y[:, 0], (X @ after - y)[:, 0], changes.dual * root)
    came, moved, theta = signs > 0, scale, after[:, 0]
    if changes.dual_before is not None:
        there = _Lines(signs, X, y[:, 0], (X @ before - y)[:, 0], changes.dual_before * root)
        moved = _with_lines(moved, penalty, there.only(came), 1.0, changes.dual_error_before)
        lines = _from_before(lines, there, changes.dual_error_before)
        if lines.inner is not None:
            wrong = changes.dual_error_before if math.isfinite(wrong) else math.inf
            theta = before[:, 0] - there.dual.T @ (signs * lines.error)
    moved = _with_lines(moved, penalty, lines.only(~came), -1.0, changes.dual_error)
    old, new = float(penalty @ before[:, 0] ** 2), float(penalty @ theta**2)
    moved = replace(
        moved,
        squares=moved.squares + (old - new),
        squares_error=moved.squares_error + _ROUNDING * (old + new),
        left=moved.left + float(signs @ (changes.rows.weight > 0)),
    )
    moved = _if_finite(moved) if scale.known else NOT_KNOWN
    return [_price(list(own), lines, (scale, moved), wrong) for own in changes.lines], moved


def _from_before(lines: _Lines, there: _Lines, dual_error: float) -> _Lines:
    """Return lines as they follow from those in the version before, if less is lost so."""
    signs, X = lines.signs, lines.X
    came = signs > 0
    least = 1.0 - np.einsum("ij,ij->i", X[came], lines.dual[came]).max()
    old = there.dual[~came]
    least_there = 1.0 - np.einsum("ij,ij->i", X[~came], old).max(initial=0.0)
    wrong = dual_error * float(np.sum(old * old)) if len(old) else 0.0
    if not (wrong <= PRICED_WITHIN * least_there and least_there > least and len(X) <= _TOGETHER):
        return lines
    try:
        T = signs[:, None] * np.linalg.inv(np.diag(signs) + X @ there.dual.T)
    except np.linalg.LinAlgError:
        return lines
    return lines._replace(error=T @ there.error, dual=T @ there.dual, inner=T * signs)


def _price(
    own: list[int], lines: _Lines, scales: tuple[ResidualScale, ResidualScale], dual_error: float
) -> Price:
    """Return the price of a row; one that is inserted is measured in the version that has it."""
    sign, e, X, W = lines.signs[own], lines.error[own], lines.X[own], lines.dual[own]
    if math.isinf(dual_error):
        return Price(None, None)
    if lines.inner is None:
        inner = np.diag(sign) - X @ W.T
        wrong = dual_error * float(np.sum(W * W))  # of x.w, as x is near A w
        if not wrong <= PRICED_WITHIN * np.min(sign * inner.diagonal()):
            return Price(None, None)
    else:
        inner = lines.inner[np.ix_(own, own)]
    try:
        delta = np.linalg.solve(inner, e) @ W
    except np.linalg.LinAlgError:
        return Price(None, None)
    off = X @ delta  # what undoing the change adds to the errors
    inserted = bool((sign > 0).all())
    squared = max(0.0, float(sign @ (off * (e + off if inserted else e))))
    unit = scales[inserted].unit
    return Price(None if unit is None else squared / unit, float(np.linalg.norm(delta)))


def _with_lines(
    scale: ResidualScale, penalty: Array, lines: _Lines, sign: float, dual_error: float
) -> ResidualScale:
    """Return a scale moved by lines (k) of a version whose rows do not have them.

    With ``sign`` 1 they are added to p and the minimum of the objective, with -1 taken off.
    """
    if not len(lines.X):
        return scale
    X, e, W = lines.X, lines.error.copy(), lines.dual.copy()
    freedom, minimum, reach = 0.0, 0.0, 0.0
    for start in range(0, len(X), BLOCK):  # one block is added after the other
        block, later = slice(start, start + BLOCK), slice(start + BLOCK, None)
        M = np.eye(len(X[block])) + X[block] @ W[block].T
        inner = np.linalg.solve(M, np.column_stack([W[block], e[block]]))
        freedom += float(np.sum(inner[:, :-1] * W[block] * penalty))
        minimum += float(e[block] @ inner[:, -1])
        reach += float(np.abs(inner[:, -1]) @ lengths(W[block]))
        crossed = X[later] @ W[block].T
        W[later] -= crossed @ inner[:, :-1]
        e[later] -= crossed @ inner[:, -1]
    wrong = _ROUNDING * norm(np.abs(lines.y) + np.abs(lines.error))  # of terms of that size
    lost = _ROUNDING * (abs(scale.squares) + minimum) + wrong * (2.0 * math.sqrt(minimum) + wrong)
    return ResidualScale(
        scale.freedom + sign * freedom,
        scale.squares + sign * minimum,
        scale.left - sign * freedom,
        scale.freedom_error + _ROUNDING * (abs(scale.freedom) + freedom),
        scale.squares_error + lost + dual_error * reach * reach,
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
