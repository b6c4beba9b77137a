"""Standard errors, tests and intervals of a linear model, from its sums (docs/exact.md).

With A = X^T W X + R, R the penalty, S = X^T W X and s^2 the residual variance,

    sampling    Cov = s^2 A^-1 S A^-1, of the ridge estimator given its penalty (the sandwich form):
                without a penalty, ordinary least squares' s^2 (X^T W X)^-1
    bayesian    Cov = s^2 A^-1, the posterior where the penalty is a normal prior

n rows and p = trace(A^-1 S) effective parameters leave n - p degrees of freedom, as in
`engine.diagnostics`. The sums of squares are differences of large numbers: they are taken of whole
numbers, and A^-1 is refined by exact residuals (`engine.exact`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from scipy.special import stdtr, stdtrit

from lethe.engine.errors import InvalidData
from lethe.engine.exact.running import inverse_of
from lethe.engine.exact.sums import Sums
from lethe.engine.fit.objective import Array

_LEAST_FREEDOM = 1e-6
"""With as many coefficients as rows a small penalty leaves as small a part of one."""

COVARIANCES = ("sampling", "bayesian")


@dataclass(frozen=True, slots=True)
class Summary:
    """What the live rows say of each coefficient of one target.

    Attributes
    ----------
    names
        (d,) of the coefficients, "intercept" last if there is one.
    coefficients, standard_errors, t, p
        (d,): t = coefficient / standard error, p of the two-sided t test.
    intervals
        d x 2, at ``level``.
    level
        Of confidence, for example 0.95.
    covariance
        ``sampling`` or ``bayesian``: which form the standard errors have.
    r_squared
        1 - residual sum of squares / total sum of squares, about the weighted mean with an
        intercept and about 0 without.
    variance
        s^2, the residual variance.
    rows, freedom
        n, and the degrees of freedom that are left, n - p.
    """

    names: tuple[str, ...]
    coefficients: Array
    standard_errors: Array
    t: Array
    p: Array
    intervals: Array
    level: float
    covariance: str
    r_squared: float
    variance: float
    rows: int
    freedom: float


def summarise(
    sums: Sums,
    penalty: Array,
    theta: Array,
    names: Sequence[str],
    *,
    rows: int,
    intercept: bool,
    level: float = 0.95,
    covariance: str = "sampling",
) -> tuple[Summary, ...]:
    """Return a summary of each target.

    Parameters
    ----------
    sums, penalty
        Of the live rows, and of theta.
    theta
        d x m, their minimiser.
    names
        Of the d coefficients.
    rows
        n, the number of rows with a weight.
    intercept
        Whether the last coefficient is one.
    level, covariance
        Of the intervals, and which form (see the module).

    Raises
    ------
    InvalidData
        ``level`` or ``covariance`` cannot be used, or no degree of freedom is left.
    IllConditioned
        There is no inverse (`engine.exact.running.inverse_of`).

    Notes
    -----
    Cost O(P d^3) for P digits of a sum.
    """
    if not 0.0 < level < 1.0:
        raise InvalidData(f"level must be between 0 and 1, not {level!r}")
    if covariance not in COVARIANCES:
        raise InvalidData(
            f"there is no covariance {covariance!r}; choose one of {', '.join(COVARIANCES)}"
        )
    inverse = inverse_of(sums, penalty)
    diagonal = np.diagonal(inverse)
    freedom = rows - len(penalty) + float(penalty @ diagonal)
    if not freedom > _LEAST_FREEDOM:
        raise InvalidData(
            f"{rows} rows leave no degree of freedom for {len(penalty)} coefficients: there is no "
            "residual variance; standard errors need more rows"
        )
    spread = np.sqrt(diagonal if covariance == "bayesian" else _sandwich(sums, penalty, inverse))
    quantile = float(stdtrit(freedom, (1.0 + level) / 2.0))
    found = []
    for c, (residual, total) in enumerate(_squares(sums, theta, intercept=intercept)):
        variance = residual / freedom
        errors = np.sqrt(variance) * spread
        with np.errstate(divide="ignore", invalid="ignore"):  # a fit without residuals
            t = theta[:, c] / errors
        half = quantile * errors
        found.append(
            Summary(
                names=tuple(names),
                coefficients=theta[:, c].copy(),
                standard_errors=errors,
                t=t,
                p=2.0 * stdtr(freedom, -np.abs(t)),
                intervals=np.column_stack([theta[:, c] - half, theta[:, c] + half]),
                level=level,
                covariance=covariance,
                r_squared=1.0 - residual / total if total > 0 else np.nan,
                variance=variance,
                rows=rows,
                freedom=freedom,
            )
        )
    return tuple(found)


def _sandwich(sums: Sums, penalty: Array, inverse: Array) -> Array:
    """Return the diagonal of A^-1 S A^-1, v^T S v for each column v of A^-1.

    It is v_j - v^T R v, and only where the penalty takes most of that is S v needed.
    """
    diagonal = np.diagonal(inverse)
    taken = np.einsum("kj,k,kj->j", inverse, penalty, inverse)
    unit, d = sums.unit[: sums.d], sums.d
    S = sums.entries.of((slice(d), slice(d))).nearest(unit[:, np.newaxis] + unit)
    direct = np.einsum("kj,kl,lj->j", inverse, S, inverse)
    spread: Array = np.where(taken < diagonal / 2.0, diagonal - taken, direct)
    return spread


def _squares(sums: Sums, theta: Array, *, intercept: bool) -> list[tuple[float, float]]:
    """Return the residual and the total sum of squares of each target, each rounded once."""
    numbers, exponent = sums.entries.integers()
    d, unit = sums.d, [int(u) for u in sums.unit]

    def entry(j: int, k: int) -> Fraction:
        return Fraction(int(numbers[j, k])) * Fraction(2) ** (exponent + unit[j] + unit[k])

    S = [[entry(j, k) for k in range(len(unit))] for j in range(len(unit))]
    found = []
    for c in range(theta.shape[1]):
        # (-theta, 1) S (-theta, 1)^T
        point = [-Fraction(float(v)) for v in theta[:, c]]
        y = d + c
        residual = S[y][y] + sum(
            point[j] * (2 * S[j][y] + sum(S[j][k] * point[k] for k in range(d))) for j in range(d)
        )
        total = S[y][y]
        if intercept:
            total -= S[d - 1][y] ** 2 / S[d - 1][d - 1]
        found.append((float(residual), float(total)))
    return found
