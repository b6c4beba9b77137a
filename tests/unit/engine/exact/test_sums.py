"""Sums have every digit, whatever the order of the rows and the digits of their columns."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import TypeAlias

import numpy as np
import pytest

from lethe.engine.errors import InvalidData
from lethe.engine.exact.digits import BITS, SUMMED
from lethe.engine.exact.rows import ChangedRows
from lethe.engine.exact.sums import Sums
from lethe.engine.fit.objective import Array, Rows
from tests.support.in_fractions import in_fractions, sums


def _rows(X: Array, weight: Array | None = None) -> Rows:
    return Rows(X[:, :-1], X[:, -1:], np.ones(len(X)) if weight is None else weight)


def _sparse(rng: np.random.Generator, n: int) -> Array:
    """Few rows have a digit at some of the places."""
    X = np.rint(8.0 * rng.normal(size=(n, 3)))
    X[rng.random(n) < 0.02] += 2.0**-50
    X[rng.random(n) < 0.02, 0] *= 2.0**90
    return X


Draw: TypeAlias = Callable[[np.random.Generator, int], Array]

DATA: dict[str, Draw] = {
    "doubles": lambda rng, n: rng.normal(size=(n, 3)),
    "whole": lambda rng, n: rng.integers(-1000, 1000, size=(n, 3)).astype(np.float64),
    "cents": lambda rng, n: np.round(rng.normal(size=(n, 3)) * 100, 2),
    "float32": lambda rng, n: rng.normal(size=(n, 3)).astype(np.float32).astype(np.float64),
    "sparse": _sparse,
    "wide": lambda rng, n: rng.normal(size=(n, 3)) * 10.0 ** rng.uniform(-60, 60, (n, 3)),
    "huge": lambda rng, n: rng.normal(size=(n, 3)) * [1e150, 1e-150, 1.0],
    "subnormal": lambda rng, n: rng.integers(-9, 9, size=(n, 3)).astype(np.float64) * 5e-324,
    "zeros": lambda _rng, n: np.zeros((n, 3)),
    "absent": lambda rng, n: rng.normal(size=(n, 3)) * [0.0, 1.0, 0.0],
}
WEIGHTS: dict[str, Draw] = {
    "one": lambda _rng, n: np.ones(n),
    "any": lambda rng, n: 10.0 ** rng.uniform(-8, 8, n),
    "some are 0": lambda rng, n: rng.integers(0, 2, n) * rng.random(n),
    "tiny": lambda rng, n: rng.random(n) * 1e-300,
    "huge": lambda rng, n: rng.random(n) * 1e300,
    "all are 0": lambda _rng, n: np.zeros(n),
}


@pytest.mark.parametrize("weight", WEIGHTS)
@pytest.mark.parametrize("data", DATA)
def test_sums_are_those_of_fractions_in_any_order(data: str, weight: str) -> None:
    rng = np.random.default_rng(3)
    rows = _rows(DATA[data](rng, 70), WEIGHTS[weight](rng, 70))
    found = Sums.of(rows)
    assert in_fractions(found) == sums(rows)
    again = Sums.of(rows.take(rng.permutation(70)))
    assert again.entries.first == found.entries.first
    assert again.entries.places.tobytes() == found.entries.places.tobytes()
    half = 1 << (BITS - 1)
    assert ((found.entries.places >= -half) & (found.entries.places < half)).all()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("data", ["doubles", "sparse", "whole"])
def test_more_rows_than_float64_adds_up_are_summed_exactly(data: str, weighted: bool) -> None:
    rng = np.random.default_rng(4)
    n = 2 * SUMMED + 77
    rows = _rows(DATA[data](rng, n), rng.random(n) if weighted else None)
    found = Sums.of(rows)
    assert in_fractions(found) == sums(rows)
    none = Sums.of(rows.take(slice(1)))
    none = none.changed(ChangedRows.of(rows.take(slice(1, None)), 1, none.unit))
    assert in_fractions(none) == sums(rows)


@pytest.mark.parametrize("weight", [1.0, 1.0 + 2.0**-52])
def test_the_largest_digits_of_many_blocks_do_not_run_over(weight: float) -> None:
    """Every digit at its largest, all products of one sign, and sums that no float64 holds."""
    n, value = 20 * SUMMED + 1, float((1 << (BITS - 1)) - 1) / (1 << (BITS - 1))
    X = np.full((n, 2), value + value * 2.0**-BITS)
    X[-1] = 1.0 - 2.0**-53
    found = in_fractions(Sums.of(_rows(X, np.full(n, weight))))
    one, last = Fraction(float(X[0, 0])), Fraction(float(X[-1, 0]))
    assert found[0][1] == Fraction(weight) * ((n - 1) * one * one + last * last)


def test_what_rows_brought_they_take_with_them() -> None:
    rng = np.random.default_rng(5)
    rows = _rows(DATA["doubles"](rng, 50), WEIGHTS["any"](rng, 50))
    before = Sums.of(rows)
    long = _rows(DATA["doubles"](rng, 3) * [1e150, 1e20, 1.0], WEIGHTS["some are 0"](rng, 3) + 1.0)
    with_them = before.changed(ChangedRows.of(long, 1, before.unit))
    assert in_fractions(with_them)[0][0] > 10**290
    after = with_them.changed(ChangedRows.of(rows.take(slice(7)), -1, before.unit))
    after = after.changed(ChangedRows.of(long, -1, before.unit))
    after = after.changed(ChangedRows.of(rows.take(slice(7)), 1, before.unit))
    assert after.entries.first == before.entries.first
    assert after.entries.places.tobytes() == before.entries.places.tobytes()
    nothing = after.changed(ChangedRows.of(rows, -1, before.unit))
    assert nothing.entries.is_zero()
    assert nothing.d == 2


def test_a_column_that_differs_too_much_in_size_is_refused_in_one_line() -> None:
    X = np.ones((4, 3))
    X[0] = 1e-300
    X[1] = 1e100
    with pytest.raises(
        InvalidData, match="row 0: its number in column 0 differs too much"
    ) as caught:
        Sums.of(_rows(X))
    assert "\n" not in str(caught.value)
    with pytest.raises(InvalidData, match="row 0: its weight differs too much"):
        Sums.of(_rows(np.ones((2, 3)), np.array([1e-300, 1e300])))
