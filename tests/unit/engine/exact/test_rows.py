"""What rows that came or went do to the right-hand side, with every digit."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from lethe.engine.exact.digits import SUMMED, Digits, cut
from lethe.engine.exact.rows import ChangedRows, cut_weights
from lethe.engine.fit.objective import Array, Rows


def _value(digits: Digits, index: tuple[int, ...]) -> Fraction:
    two = Fraction(2)
    return sum(
        (
            int(place[index]) * two ** (-22 * p)
            for p, place in enumerate(digits.places, digits.first)
        ),
        Fraction(0),
    )


def _pull(rows: Rows, sign: int, y: Array, targets: bool) -> list[list[Fraction]]:
    """Return sum_i s w_i x_i (t_i - x_i.y_c) in units of 1."""
    (n, d), m = rows.X.shape, rows.y.shape[1]
    total = [[Fraction(0)] * d for _ in range(m)]
    for i in range(n):
        x = [Fraction(float(v)) for v in rows.X[i]]
        for c in range(m):
            error = Fraction(float(rows.y[i, c])) if targets else Fraction(0)
            for j in range(d):
                error -= x[j] * Fraction(float(y[c, j]))
            for j in range(d):
                total[c][j] += sign * Fraction(float(rows.weight[i])) * x[j] * error
    return total


@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize("targets", [True, False])
@pytest.mark.parametrize("scale", [0.0, 8.0, 40.0])
def test_the_pull_is_exact(sign: int, targets: bool, scale: float) -> None:
    rng = np.random.default_rng(1)
    spread = 10.0 ** rng.uniform(-scale, scale, (5, 3))
    weight = 10.0 ** rng.uniform(-scale / 2, scale / 2, 5)
    weight[2] = 0.0
    rows = Rows(rng.normal(size=(5, 3)) * spread, rng.normal(size=(5, 2)), weight)
    unit = np.array([-20, 3, 7, -21, 0])
    y = rng.normal(size=(2, 3)) * 2.0**-60 + rng.normal(size=(2, 3))
    point = cut(y, -unit[:3]).balanced()  # so that x.y is in units of 1
    change = ChangedRows.of(rows, sign, np.append(unit[:3], [0, 0]))
    assert len(change) == 4
    found = change.pull(point, targets=targets)
    expected = _pull(rows, sign, y, targets)
    for c in range(2):
        for j in range(3):
            assert _value(found, (c, j)) == expected[c][j] / Fraction(2) ** int(unit[j])


def test_the_pull_is_exact_with_more_features_than_float64_adds_up() -> None:
    """The largest digits, of the sign that adds up."""
    d, k = 3 * SUMMED, 2
    largest = 2.0**21 - 1.0
    digits = np.full((k, d), largest)
    digits[0] -= 1.0
    digits[:, 0] -= 2.0  # an odd sum, which float64 has no room for
    rows = Rows(digits, np.zeros((k, 1)), np.ones(k))
    change = ChangedRows.of(rows, 1, np.zeros(d + 1, dtype=np.int_))
    y = np.full((1, d), largest)
    found = change.pull(cut(y, 0).balanced(), targets=False)
    errors = [-sum(int(v) for v in row) * int(largest) for row in digits]
    for j in (0, 1, d - 1):
        expected = sum(int(digits[i, j]) * errors[i] for i in range(k))
        assert _value(found, (0, j)) == expected


def test_two_changes_in_one_pull_as_both() -> None:
    rng = np.random.default_rng(2)
    unit = np.array([0, 0, 0])
    parts = [
        Rows(rng.normal(size=(k, 2)) * 10.0**size, rng.normal(size=(k, 1)), rng.random(k))
        for k, size in ((3, 0), (2, 30))
    ]
    changes = [ChangedRows.of(rows, sign, unit) for rows, sign in zip(parts, (-1, 1), strict=True)]
    y = rng.normal(size=(1, 2))
    point = cut(y, 0).balanced()
    both = changes[0].joined(changes[1])
    assert len(both) == 5
    for j in range(2):
        expected = sum(
            _pull(rows, sign, y, True)[0][j] for rows, sign in zip(parts, (-1, 1), strict=True)
        )
        assert _value(both.pull(point), (0, j)) == expected


@pytest.mark.parametrize(
    "weight",
    [
        [1.0, 1.0],
        [0.0, 3.0],
        [0.0, 0.0],
        [5e-324, 1e-300],
        [1e300, 1.7e308],
        [1e-8, 1e8],
        [-1.0, -0.3],
    ],
)
def test_the_digits_of_weights_are_theirs(weight: list[float]) -> None:
    digits = cut_weights(np.array(weight))
    for i, value in enumerate(weight):
        assert _value(digits, (i,)) == Fraction(value)
