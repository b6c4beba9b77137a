"""The parameters of a linear pipeline's last step, correctly rounded.

In the units of the table, with u a raw row, E the live statistics (u^T E are the features before
the scaler) and S the sums of w u u^T,

    (E^T S E + R) theta = E^T S_uy,    R_jj = ridge variance_j, or ridge where nothing is scaled,

is a system of fractions: dividing features by their deviations, and subtracting means, moves the
penalty and a free intercept alone (docs/algebra.md, Preprocessing). Then

    coef_j = deviation_j theta_j,    intercept = theta_0 + sum_j mean_j theta_j.

It is solved in ball arithmetic (Johansson 2017, *Arb*): every number comes with a proved bound of
its error, and a parameter is proved once its whole ball rounds to one float64. If one is not, the
bits are doubled: an exact 0 is proved, too, once the ball is below the smallest float64.
"""

from __future__ import annotations

import math
from typing import Any

import flint
import numpy as np

from lethe.engine.errors import IllConditioned, InvalidData
from lethe.engine.exact.rounding import SINGULAR, TOO_LARGE, Minimiser, rounded_quotient
from lethe.engine.fit.objective import Array, norm
from lethe.engine.preprocess.rounded.raw import RawColumns
from lethe.engine.preprocess.rounded.statistics import ExactStatistics, Whole

_BITS = 256
"""To begin with: 53, three times the digits of most condition numbers, and some to spare."""

_MOST_BITS = 8192
"""What is half way between two float64 is never proved."""


def minimiser(raw: RawColumns, live: ExactStatistics, S: Whole) -> Minimiser:
    """Return the parameters, d x m with the intercept last, for weighted sums.

    Raises
    ------
    InvalidData
        One of them is beyond float64.
    IllConditioned
        The matrix is singular to `_MOST_BITS`.

    Notes
    -----
    Cost O(d^3 + c D^2) products of `_BITS` bits, c features with entries.
    """
    bits, found = _BITS, None
    while bits <= _MOST_BITS and (found is None or not found.rounded):
        with flint.ctx.workprec(bits):
            found = _rounded(_Equations(raw, live, S).parameters()) or found
        bits *= 2
    if found is None:
        raise IllConditioned(SINGULAR)
    return found


def dual_rows(raw: RawColumns, live: ExactStatistics, S: Whole, U: Array) -> Array:
    """Return the last step's H^-1 x for raw rows, k x d, to float64's accuracy."""
    with flint.ctx.workprec(_BITS):
        balls = _Equations(raw, live, S).dual_rows(U)
        return np.array([[float(ball.mid()) for ball in row] for row in balls]).T


class _Equations:
    """The system in balls, in units of its columns: theta_j = 2^-s_j x_j."""

    def __init__(self, raw: RawColumns, live: ExactStatistics, S: Whole) -> None:
        self._raw, self._live, self._D = raw, live, S.d
        self._sums: list[list[Any]] = S.entries
        self._unit, self._exponent = S.unit, S.exponent
        self._features = [j for j in range(raw.layout.features) if not live.idle[j]]
        moving = frozenset(raw.layout.moving_features.tolist())
        self._own = [-1 if j in moving else int(raw.own[j]) for j in self._features]
        self._scale = [self._unit[raw.own[j]] if raw.own[j] >= 0 else 0 for j in self._features]
        moved = [self._column(j) for j in self._features if j in moving]
        self._moved = flint.arb_mat(moved).transpose() if moved else None
        if raw.settings.intercept:
            self._own.append(raw.one)
            self._scale.append(self._unit[raw.one])

    def parameters(self) -> list[list[Any]]:
        """Return the parameters, d x m."""
        targets = [row[: self._D] for row in self._sums[self._D :]]
        return self._of_last_step(self._solved(targets, self._unit[self._D :]))

    def dual_rows(self, U: Array) -> list[list[Any]]:
        """Return H^-1 x for raw rows, d x k."""
        rows = [
            [flint.arb(u) * _power(-unit) for u, unit in zip(row, self._unit, strict=False)]
            for row in U.tolist()
        ]
        return self._of_last_step(self._solved(rows, [-self._exponent] * len(rows)))

    def _column(self, feature: int) -> list[Any]:
        """Return the column of E of a feature that has entries."""
        raw, live, own = self._raw, self._live, int(self._raw.own[feature])
        column = [flint.arb(0)] * self._D
        if own >= 0:
            column[own] = flint.arb(1)
        scale = self._unit[own] if own >= 0 else 0
        for e in np.flatnonzero(raw.layout.entry_feature == feature).tolist():
            place = int(raw.entries[e])
            column[place] = flint.arb(live.value[e]) * _power(self._unit[place] - scale)
        return column

    def _times_statistics(self, rows: list[list[Any]]) -> list[list[Any]]:
        """Return rows times E, k x d."""
        if self._moved is None:
            return [[row[own] for own in self._own] for row in rows]
        products = (flint.arb_mat(rows) * self._moved).tolist()
        return [
            [row[own] if own >= 0 else next(moved) for own in self._own]
            for row, moved in zip(rows, map(iter, products), strict=True)
        ]

    def _solved(self, right: list[list[Any]], units: list[int]) -> list[list[Any]]:
        """Return theta of the features that are not idle and of the intercept, d x k."""
        half = self._times_statistics([row[: self._D] for row in self._sums[: self._D]])
        matrix = self._times_statistics(_transposed(half))
        for i, penalty in enumerate(self._penalties()):
            matrix[i][i] += flint.arb(penalty) * _power(-2 * self._scale[i] - self._exponent)
        b = flint.arb_mat(_transposed(self._times_statistics(right)))
        try:
            x = flint.arb_mat(matrix).solve(b, algorithm="lu").tolist()
        except ZeroDivisionError:  # singular, for all that so many bits can tell
            return [[flint.arb.nan()] * len(right) for _ in matrix]
        return [
            [value * _power(unit - scale) for value, unit in zip(row, units, strict=True)]
            for row, scale in zip(x, self._scale, strict=True)
        ]

    def _penalties(self) -> list[Any]:
        settings, live = self._raw.settings, self._live
        ridge = flint.fmpq(*settings.ridge.as_integer_ratio())
        found = [ridge * live.variance[j] if live.scaled[j] else ridge for j in self._features]
        if settings.intercept:
            found.append(ridge if settings.penalise_intercept else flint.fmpq(0))
        return found

    def _of_last_step(self, theta: list[list[Any]]) -> list[list[Any]]:
        """Return the last step's parameters: of features that are scaled, and less their means."""
        live, intercept = self._live, self._raw.settings.intercept
        out = [[flint.arb(0)] * len(theta[0]) for _ in range(len(live.mean) + int(intercept))]
        if intercept:
            out[-1] = theta[-1]
        for j, row in zip(self._features, theta, strict=False):
            deviation = flint.arb(live.variance[j]).sqrt() if live.scaled[j] else 1
            out[j] = [deviation * value for value in row]
            if live.standardised[j]:
                mean = flint.arb(live.mean[j])
                out[-1] = [b + mean * value for b, value in zip(out[-1], row, strict=True)]
        return out


def _power(exponent: int) -> Any:
    return flint.arb((1, exponent))


def _transposed(rows: list[list[Any]]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)]


def _rounded(balls: list[list[Any]]) -> Minimiser | None:
    """Return the parameters that are in these balls; None if one may or may not be finite.

    Raises
    ------
    InvalidData
        One is beyond float64.
    """
    if not all(ball.is_finite() for row in balls for ball in row):
        return None
    ends = np.array([[_both_ends(ball) for ball in row] for row in balls])
    theta, high = ends[..., 0] + 0.0, ends[..., 1]  # no negative 0
    if (np.isinf(theta) & (theta == high)).any():
        raise InvalidData(TOO_LARGE)
    if not np.isfinite(ends).all():
        return None
    off = high - theta
    return Minimiser(theta, rounded=not off.any(), beyond=2.0 * norm(off))


def _both_ends(ball: Any) -> tuple[float, float]:
    """Return what the two ends of a ball round to."""
    middle, exponent = (int(part) for part in ball.mid().man_exp())
    radius, below = (int(part) for part in ball.rad().man_exp())
    least = min(exponent, below)
    middle, radius = middle << (exponent - least), radius << (below - least)
    return _nearest(middle - radius, least), _nearest(middle + radius, least)


def _nearest(whole: int, exponent: int) -> float:
    """Return the float64 nearest to whole 2^exponent; infinite beyond float64."""
    try:
        return rounded_quotient(whole, 1, exponent)
    except InvalidData:
        return math.inf if whole > 0 else -math.inf
