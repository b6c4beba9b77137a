"""The minimiser of a ridge regression in rational numbers: it settles every dispute.

Floats are rationals, and so is the solution of the normal equations. All numbers are brought to
whole ones by one power of 2; the elimination is Bareiss's, which needs no fractions (Bareiss 1968,
*Sylvester's identity and multistep integer-preserving Gaussian elimination*).
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from tests.proof.bounds.oracle import Answer, Problem, Real, Wide, length

MOST_COLUMNS = 9
"""Above it, the intercept counted, 80 bits are quicker and near enough."""

_ROUNDED = Real(2) ** -62  # of theta: from a fraction to a longdouble


def solve(problem: Problem) -> Answer:
    """Return the minimiser, exact but for its conversion to longdouble; linear problems only.

    Every number of the problem must be a float64.
    """
    X, x_bits = _whole(problem.X)
    y, y_bits = _whole(problem.y)
    [weight], w_bits = _whole(problem.weight[None, :])
    [penalty], p_bits = _whole(problem.penalty[None, :])
    p, m = len(penalty), len(y[0])
    A, b = [[0] * p for _ in range(p)], [[0] * m for _ in range(p)]
    for x, t, w in zip(X, y, weight, strict=True):
        for i in range(p):
            wx = w * x[i]
            if wx:
                for j in range(i, p):
                    A[i][j] += wx * x[j]
                for c in range(m):
                    b[i][c] += wx * t[c]
    # A stands for itself times 2^bits, and so does b once each has been brought to that.
    sums, right = w_bits + 2 * x_bits, w_bits + x_bits + y_bits
    bits = max(sums, p_bits, right)
    whole = [[A[min(i, j)][max(i, j)] << (bits - sums) for j in range(p)] for i in range(p)]
    for i in range(p):
        whole[i][i] += penalty[i] << (bits - p_bits)
        whole[i] += [one << (bits - right) for one in b[i]]
    theta = np.array([[_longdouble(one) for one in row] for row in _eliminated(whole, p, m)])
    return Answer(theta, _ROUNDED * length(theta))


def _whole(values: Wide) -> tuple[list[list[int]], int]:
    """Return the rows of a matrix in whole numbers, and the power of 2 they were multiplied by."""
    ratios = [[float(one).as_integer_ratio() for one in row] for row in values]
    bits = max((below.bit_length() - 1 for row in ratios for _, below in row), default=0)
    return [
        [above << (bits - (below.bit_length() - 1)) for above, below in row] for row in ratios
    ], bits


def _eliminated(rows: list[list[int]], p: int, m: int) -> list[list[Fraction]]:
    """Return the solution of [A | b] with A p x p, by fraction-free elimination."""
    before = 1
    for k in range(p):
        pivot = rows[k][k]  # A is positive definite: no pivot is 0
        for i in range(k + 1, p):
            head = rows[i][k]
            rows[i] = [
                0 if j < k + 1 else (rows[i][j] * pivot - head * rows[k][j]) // before
                for j in range(p + m)
            ]
        before = pivot
    theta = [[Fraction(0)] * m for _ in range(p)]
    for i in reversed(range(p)):
        for c in range(m):
            rest = rows[i][p + c] - sum(
                (rows[i][j] * theta[j][c] for j in range(i + 1, p)), Fraction(0)
            )
            theta[i][c] = rest / rows[i][i]
    return theta


def _longdouble(value: Fraction) -> Real:
    high = float(value)
    return Real(high) + Real(float(value - Fraction(high)))
