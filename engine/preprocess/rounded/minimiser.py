"""The parameters of a linear pipeline's last step, correctly rounded.

In the units of the table, with u a raw row, E the live statistics (u^T E are the features before
the scaler) and S the sums of w u u^T,

    (E^T S E + R) theta = E^T S_uy,    R_jj = ridge variance_j, or ridge where nothing is scaled,

is a system of fractions: dividing features by their deviations, and subtracting means, moves the
penalty and the intercept alone (docs/algebra.md, Preprocessing). Then

    coef_j = deviation_j theta_j,    intercept = theta_0 + sum_j mean_j theta_j,

and where the latter is penalised, R has ridge u u^T as well, u = (mean, 1).

It is solved in ball arithmetic (Johansson 2017, *Arb*): every number comes with a proved bound of
its error, and a parameter is proved once its whole ball rounds to one float64. If one is not, the
bits are doubled: an exact 0 is proved, too, once the ball is below the smallest float64. What is
half way between two float64, such as the mean of four targets, no ball decides: fractions do.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import flint
import numpy as np

from lethe.engine.errors import IllConditioned, InvalidData
from lethe.engine.exact.rounding import SINGULAR, TOO_LARGE, Minimiser, rounded_quotient
from lethe.engine.fit.objective import Array
from lethe.engine.preprocess.rounded.raw import RawColumns
from lethe.engine.preprocess.rounded.statistics import ExactStatistics, Whole

_BITS = 256
"""To begin with: 53, three times the digits of most condition numbers, and some to spare."""

_MOST_BITS = 2048
"""Enough for a parameter of 0; a parameter half way between two float64 is never proved."""


def minimiser(raw: RawColumns, live: ExactStatistics, S: Whole) -> Minimiser:
    """Return the parameters, d x m with the intercept last, for weighted sums.

    Raises
    ------
    InvalidData
        One of them is beyond float64.
    IllConditioned
        The matrix is singular.

    Notes
    -----
    Cost O(d^3 + c D^2) products of `_BITS` bits, c features with entries.
    """
    bits = _BITS
    while bits <= _MOST_BITS:
        with flint.ctx.workprec(bits):
            found = _rounded(_Equations(raw, live, S).parameters())
        if found is not None:
            return found
        bits *= 2
    return Minimiser(_Equations(raw, live, S, exact=True).rounded(), rounded=True, rational=True)


def dual_rows(raw: RawColumns, live: ExactStatistics, S: Whole, U: Array) -> Array:
    """Return the last step's H^-1 x for raw rows, k x d, to float64's accuracy."""
    with flint.ctx.workprec(_BITS):
        balls = _Equations(raw, live, S).dual_rows(U)
        return np.array([[float(ball.mid()) for ball in row] for row in balls]).T


class _Equations:
    """The system in units of its columns, theta_j = 2^-s_j x_j: in balls, or in fractions."""

    def __init__(
        self, raw: RawColumns, live: ExactStatistics, S: Whole, *, exact: bool = False
    ) -> None:
        self._raw, self._live, self._D = raw, live, S.d
        self._exact = exact
        self._number: Any = flint.fmpq if exact else flint.arb
        self._matrix: Any = flint.fmpq_mat if exact else flint.arb_mat
        self._sums: list[list[Any]] = S.entries
        self._unit, self._exponent = S.unit, S.exponent
        self._features = [j for j in range(raw.layout.features) if not live.idle[j]]
        shared = [hot.shared for hot in raw.layout.one_hot if hot.shared is not None]
        moving = frozenset([*raw.layout.moving_features.tolist(), *shared])
        self._own = [-1 if j in moving else int(raw.own[j]) for j in self._features]
        self._scale = [self._unit[raw.own[j]] if raw.own[j] >= 0 else 0 for j in self._features]
        moved = [self._column(j) for j in self._features if j in moving]
        self._moved = self._matrix(moved).transpose() if moved else None
        if raw.settings.intercept:
            self._own.append(raw.one)
            self._scale.append(self._unit[raw.one])

    def parameters(self) -> list[list[Any]]:
        """Return the parameters, d x m."""
        return self._of_last_step(self._theta())

    def rounded(self) -> Array:
        """Return the parameters of fractions, each the float64 nearest to it, d x m.

        Raises
        ------
        InvalidData
            One of them is beyond float64.
        IllConditioned
            The matrix is singular.
        """
        live, theta = self._live, self._theta()
        out = np.zeros((len(live.mean) + int(self._raw.settings.intercept), len(theta[0])))
        for j, row in zip(self._features, theta, strict=False):
            variance = live.variance[j] if live.scaled[j] else flint.fmpq(1)
            out[j] = [_nearest_product(value, variance) for value in row]
        if self._raw.settings.intercept:
            means = [live.mean[j] if live.centred[j] else 0 for j in self._features]
            for c, intercept in enumerate(theta[-1]):
                moved = (mean * row[c] for mean, row in zip(means, theta, strict=False))
                out[-1, c] = _nearest_product(sum(moved, intercept), flint.fmpq(1))
        return out + 0.0  # no negative 0

    def dual_rows(self, U: Array) -> list[list[Any]]:
        """Return H^-1 x for raw rows, d x k."""
        rows = [
            [flint.arb(u) * self._power(-unit) for u, unit in zip(row, self._unit, strict=False)]
            for row in U.tolist()
        ]
        return self._of_last_step(self._solved(rows, [-self._exponent] * len(rows)))

    def _column(self, feature: int) -> list[Any]:
        """Return the column of E of a feature that has entries, or that rare categories share."""
        raw, live, own = self._raw, self._live, int(self._raw.own[feature])
        column = [self._number(0)] * self._D
        if own >= 0:
            column[own] = self._number(1)
        scale = self._unit[own] if own >= 0 else 0
        for e in np.flatnonzero(raw.layout.entry_feature == feature).tolist():
            place = int(raw.entries[e])
            power = self._power(self._unit[place] - scale)
            column[place] = self._number(live.value[e]) * power
        for place in raw.own[live.sharing(raw.layout, feature)].tolist():
            column[place] = self._number(1) * self._power(self._unit[place])
        return column

    def _power(self, exponent: int) -> Any:
        return flint.fmpq(2) ** exponent if self._exact else flint.arb((1, exponent))

    def _times_statistics(self, rows: list[list[Any]]) -> list[list[Any]]:
        """Return rows times E, k x d."""
        if self._moved is None:
            return [[row[own] for own in self._own] for row in rows]
        products = (self._matrix(rows) * self._moved).tolist()
        return [
            [row[own] if own >= 0 else next(moved) for own in self._own]
            for row, moved in zip(rows, map(iter, products), strict=True)
        ]

    def _theta(self) -> list[list[Any]]:
        """Return theta of the features that are not idle and of the intercept, d x m."""
        targets = [row[: self._D] for row in self._sums[self._D :]]
        return self._solved(targets, self._unit[self._D :])

    def _solved(self, right: list[list[Any]], units: list[int]) -> list[list[Any]]:
        """Return the solution for other right-hand sides, d x k."""
        half = self._times_statistics([row[: self._D] for row in self._sums[: self._D]])
        matrix = self._times_statistics(_transposed(half))
        for i, k, penalty in self._penalties():
            unit = self._power(-self._scale[i] - self._scale[k] - self._exponent)
            matrix[i][k] += self._number(penalty) * unit
        b = self._matrix(_transposed(self._times_statistics(right)))
        A = self._matrix(matrix)
        try:
            x = (A.solve(b) if self._exact else A.solve(b, algorithm="lu")).tolist()
        except ZeroDivisionError as error:
            if self._exact:
                raise IllConditioned(SINGULAR) from error
            return [[flint.arb.nan()] * len(right) for _ in matrix]  # more bits may tell
        return [
            [value * self._power(unit - scale) for value, unit in zip(row, units, strict=True)]
            for row, scale in zip(x, self._scale, strict=True)
        ]

    def _penalties(self) -> Iterator[tuple[int, int, Any]]:
        """Yield what R has, by row and column."""
        settings, live = self._raw.settings, self._live
        ridge = flint.fmpq(*settings.ridge.as_integer_ratio())
        for i, j in enumerate(self._features):
            yield i, i, ridge * live.variance[j] if live.scaled[j] else ridge
        if not (settings.intercept and settings.penalise_intercept):
            return
        means = [(i, live.mean[j]) for i, j in enumerate(self._features) if live.centred[j]]
        means.append((len(self._features), flint.fmpq(1)))
        for i, mean in means:
            yield from ((i, k, ridge * mean * other) for k, other in means)

    def _of_last_step(self, theta: list[list[Any]]) -> list[list[Any]]:
        """Return the last step's parameters: of features that are scaled, and less their means."""
        live, intercept = self._live, self._raw.settings.intercept
        out = [[flint.arb(0)] * len(theta[0]) for _ in range(len(live.mean) + int(intercept))]
        if intercept:
            out[-1] = theta[-1]
        for j, row in zip(self._features, theta, strict=False):
            deviation = flint.arb(live.variance[j]).sqrt() if live.scaled[j] else 1
            out[j] = [deviation * value for value in row]
            if live.centred[j]:
                mean = flint.arb(live.mean[j])
                out[-1] = [b + mean * value for b, value in zip(out[-1], row, strict=True)]
        return out


def _transposed(rows: list[list[Any]]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)]


def _rounded(balls: list[list[Any]]) -> Minimiser | None:
    """Return the parameters that are in these balls; None if one may round to two numbers.

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
    return Minimiser(theta, rounded=True) if (theta == high).all() else None


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


def _nearest_product(factor: Any, square: Any) -> float:
    """Return the float64 nearest to factor times the root of ``square``, for fractions.

    To 64 bits, and one more that says whether any follow: then it is rounded once.
    """
    if square == 1:
        return rounded_quotient(int(factor.p), int(factor.q), 0)
    product = factor * factor * square
    p, q = int(product.p), int(product.q)
    places = max(0, 64 - (p.bit_length() - q.bit_length()) // 2)
    whole, rest = divmod(p << (2 * places), q)
    root = math.isqrt(whole)
    more = rest != 0 or root * root != whole
    return rounded_quotient((2 * root + more) * (1 if factor > 0 else -1), 1, -places - 1)
