"""The refit of `lethe verify --digest`, against sums of fractions and the engine's own solution."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from lethe.consumers.audit.rational_refit import rational_refit
from lethe.engine.errors import InvalidData
from lethe.engine.exact.running import Solution
from lethe.engine.exact.sums import Sums
from lethe.engine.fit.objective import Array, Rows


def by_fractions(rows: Rows, penalty: Array) -> Array:
    """Return the minimiser of one target by Gaussian elimination in fractions."""
    X = [[Fraction(v) for v in row] for row in rows.X.tolist()]
    y, w = [Fraction(v) for v in rows.y[:, 0].tolist()], [Fraction(v) for v in rows.weight.tolist()]
    d, n = len(penalty), range(len(X))
    A = [
        [sum((w[i] * X[i][j] * X[i][k] for i in n), Fraction(0)) for k in range(d)]
        + [sum((w[i] * X[i][j] * y[i] for i in n), Fraction(0))]
        for j in range(d)
    ]
    for j in range(d):
        A[j][j] += Fraction(float(penalty[j]))
    for j in range(d):
        for i in range(d):
            if i != j:
                factor = A[i][j] / A[j][j]
                A[i] = [a - factor * b for a, b in zip(A[i], A[j], strict=True)]
    return np.array([[float(A[j][d] / A[j][j])] for j in range(d)])


@pytest.mark.parametrize("seed", range(12))
def test_it_is_the_quotient_of_whole_numbers_rounded_once(seed: int) -> None:
    draw = np.random.default_rng(seed)
    n, d = int(draw.integers(1, 20)), int(draw.integers(1, 5))
    X = draw.standard_normal((n, d)) * 10.0 ** draw.uniform(-9, 9, d)
    X[0] *= 10.0 ** draw.uniform(0, 6)
    rows = Rows(X, draw.standard_normal((n, 1)), 10.0 ** draw.uniform(-8, 8, n))
    penalty = np.full(d, 10.0 ** draw.uniform(-6, 2))

    theta = rational_refit(rows, penalty)

    assert theta.tobytes() == by_fractions(rows, penalty).tobytes()
    assert theta.tobytes() == Solution.of(Sums.of(rows), penalty).minimiser.theta.tobytes()


def test_more_rows_than_a_block_and_several_targets() -> None:
    draw = np.random.default_rng(1)
    rows = Rows(draw.random((5000, 3)), draw.random((5000, 2)), draw.random(5000))
    penalty = np.array([1.0, 1.0, 0.0])

    theta = rational_refit(rows, penalty)

    assert theta.tobytes() == Solution.of(Sums.of(rows), penalty).minimiser.theta.tobytes()


def test_rows_without_a_single_minimiser_are_refused() -> None:
    rows = Rows(np.ones((3, 2)), np.ones((3, 1)), np.ones(3))
    with pytest.raises(InvalidData, match="no single minimiser"):
        rational_refit(rows, np.zeros(2))
