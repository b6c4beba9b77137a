"""Ridge regression in fractions, by plain loops: it shares no arithmetic with `engine.exact`.

A float64 is a fraction, and so are the sums of products of float64 numbers, the solution of the
normal equations, and everything that is asked of them here.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from lethe.engine.exact.sums import Sums
from lethe.engine.fit.objective import Array, Rows

Matrix = list[list[Fraction]]


def sums(rows: Rows) -> Matrix:
    """Return sum_i weight_i z_i z_i^T for z_i = (x_i, y_i)."""
    D = rows.X.shape[1] + rows.y.shape[1]
    total = [[Fraction(0)] * D for _ in range(D)]
    for i in range(len(rows.X)):
        w = Fraction(float(rows.weight[i]))
        z = [Fraction(float(v)) for v in (*rows.X[i], *rows.y[i])]
        for j in range(D):
            for k in range(D):
                total[j][k] += w * z[j] * z[k]
    return total


def in_fractions(of: Sums) -> Matrix:
    """Return sums of the engine, digit by digit."""
    D, two = len(of.unit), Fraction(2)
    return [
        [
            sum(
                (
                    int(place[j, k]) * two ** (int(of.unit[j] + of.unit[k]) - 22 * p)
                    for p, place in enumerate(of.entries.places, of.entries.first)
                ),
                Fraction(0),
            )
            for k in range(D)
        ]
        for j in range(D)
    ]


def hessian(rows: Rows, penalty: Array) -> Matrix:
    """Return X^T W X + diag(penalty)."""
    d = rows.X.shape[1]
    A = [row[:d] for row in sums(rows)[:d]]
    for j in range(d):
        A[j][j] += Fraction(float(penalty[j]))
    return A


def minimiser(rows: Rows, penalty: Array) -> Matrix:
    """Return theta, d x m."""
    d = rows.X.shape[1]
    return solve(hessian(rows, penalty), [row[d:] for row in sums(rows)[:d]])


def solve(matrix: Matrix, right: Matrix) -> Matrix:
    """Return the solution of a positive definite system by Gaussian elimination."""
    left, right = [list(row) for row in matrix], [list(row) for row in right]
    d = len(left)
    for k in range(d):
        for i in range(d):
            if i == k or not left[i][k]:
                continue
            times = left[i][k] / left[k][k]
            left[i] = [a - times * b for a, b in zip(left[i], left[k], strict=True)]
            right[i] = [a - times * b for a, b in zip(right[i], right[k], strict=True)]
    return [[value / left[j][j] for value in right[j]] for j in range(d)]


def nearest(value: Fraction) -> float:
    """Return the float64 nearest to a fraction, the even one of two."""
    if not value:
        return 0.0
    exponent = abs(value.numerator).bit_length() - value.denominator.bit_length()
    if abs(value) < Fraction(2) ** exponent:
        exponent -= 1
    last = max(exponent, -1022) - 52  # exponent of the last bit
    size = math.ldexp(round(abs(value) / Fraction(2) ** last), last)
    return size if value > 0 else -size


def rounded_minimiser(rows: Rows, penalty: Array) -> Array:
    """Return the minimiser, each coefficient rounded once."""
    return np.array([[nearest(value) for value in row] for row in minimiser(rows, penalty)])


def is_definite(matrix: Matrix, less: float = 0.0) -> bool:
    """Return whether a symmetric matrix less a multiple of the identity is positive definite.

    By the signs of the pivots of its L D L^T.
    """
    d = len(matrix)
    left = [list(row) for row in matrix]
    for j in range(d):
        left[j][j] -= Fraction(less)
    for k in range(d):
        if left[k][k] <= 0:
            return False
        for i in range(k + 1, d):
            times = left[i][k] / left[k][k]
            left[i] = [a - times * b for a, b in zip(left[i], left[k], strict=True)]
    return True
