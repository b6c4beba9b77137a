"""What is published about a state, against exact arithmetic."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from lethe.engine.deletion.generation import length_above
from lethe.engine.fit.objective import norm


@pytest.mark.parametrize("d", [1, 10, 1000])
def test_a_distance_is_not_below_that_of_exact_arithmetic(d: int) -> None:
    """It is published as a bound, and can be nearly all of it."""
    rng = np.random.default_rng(d)
    below = 0
    for _ in range(200):
        a, b = 1e12 * rng.standard_normal((2, d, 1))
        exact = sum((Fraction(x) - Fraction(y)) ** 2 for x, y in zip(a.flat, b.flat, strict=True))
        assert Fraction(length_above(a - b)) ** 2 >= exact
        below += Fraction(norm(a - b)) ** 2 < exact
    assert below  # without rounding up it would be
