"""Digits are those of the numbers, and the only ones."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from lethe.engine.errors import InvalidData
from lethe.engine.exact.digits import (
    BITS,
    LONGEST,
    NEAREST,
    NOTHING,
    Digits,
    added,
    cut,
    side_by_side,
    sliced,
    stacked,
    units_of,
)

TWO = Fraction(2)
FINITE = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e130, max_value=1e130).filter(
    lambda value: value == 0.0 or abs(value) > 1e-130
)


def _values(digits: Digits) -> list[Fraction]:
    """Return the numbers, in order."""
    size = int(np.prod(digits.places.shape[1:]))
    flat = digits.places.reshape(len(digits.places), size)
    return [
        sum(
            (int(place[i]) * TWO ** (-BITS * p) for p, place in enumerate(flat, digits.first)),
            Fraction(0),
        )
        for i in range(size)
    ]


@given(st.lists(FINITE, min_size=1, max_size=6), st.integers(-200, 200))
@settings(max_examples=200, deadline=None)
def test_numbers_that_are_cut_are_the_same_numbers(values: list[float], unit: int) -> None:
    digits = cut(np.array(values), unit)
    assert _values(digits) == [Fraction(value) / TWO**unit for value in values]
    first, slices = sliced(np.array(values), unit)
    assert first == digits.first
    assert all((one == other).all() for one, other in zip(slices, digits.places, strict=True))
    assert not digits.places.size or np.abs(digits.places).max() <= 1 << (BITS - 1)


@given(st.lists(FINITE, min_size=1, max_size=6), st.integers(-50, 50))
@settings(max_examples=100, deadline=None)
def test_a_unit_of_each_column_counts(values: list[float], shift: int) -> None:
    unit = shift + np.arange(len(values))
    found = _values(cut(np.array(values), unit))
    assert found == [Fraction(value) / TWO ** int(u) for value, u in zip(values, unit, strict=True)]


DIGITS = st.lists(
    st.lists(st.integers(-(2**62) + 1, 2**62 - 1), min_size=3, max_size=3), min_size=1, max_size=6
)


@given(DIGITS, st.integers(-5, 5))
@settings(max_examples=300, deadline=None)
def test_balanced_digits_are_in_range_and_of_the_same_number(
    places: list[list[int]], first: int
) -> None:
    given_digits = Digits(first, np.array(places, dtype=np.int64))
    balanced = given_digits.balanced()
    assert _values(balanced) == _values(given_digits)
    assert ((balanced.places >= -(1 << (BITS - 1))) & (balanced.places < 1 << (BITS - 1))).all()
    if len(balanced.places):
        assert balanced.places[0].any()
        assert balanced.places[-1].any()


@given(DIGITS, st.integers(-3, 3), st.lists(st.integers(-(2**40), 2**40), min_size=3, max_size=3))
@settings(max_examples=300, deadline=None)
def test_equal_numbers_have_equal_balanced_digits(
    places: list[list[int]], first: int, moved: list[int]
) -> None:
    """However it came about: here a multiple of one place is written into the next one."""
    one = np.zeros((len(places) + 1, 3), dtype=np.int64)
    one[:-1] = np.array(places, dtype=np.int64) >> 1
    other = one.copy()
    by = np.array(moved) >> BITS
    other[0] += by
    other[1] -= by << BITS
    a, b = Digits(first, one).balanced(), Digits(first, other).balanced()
    assert a.first == b.first
    assert a.places.tobytes() == b.places.tobytes()


@pytest.mark.parametrize("sign", [-1, 1])
def test_a_carry_goes_through_all_places(sign: int) -> None:
    top = (1 << (BITS - 1)) - 1 if sign > 0 else -(1 << (BITS - 1))
    digits = Digits(0, np.full((LONGEST, 1), top, dtype=np.int64))
    more = np.zeros((LONGEST, 1), dtype=np.int64)
    more[-1] = sign
    found = added([digits, Digits(0, more)])
    assert _values(found) == [_values(digits)[0] + sign * TWO ** (-BITS * (LONGEST - 1))]
    back = added([found, Digits(0, -more)])
    assert back.places.tobytes() == digits.balanced().places.tobytes()


def test_what_is_added_and_taken_away_leaves_nothing() -> None:
    rng = np.random.default_rng(0)
    parts = [cut(rng.normal(size=4) * 10.0 ** rng.uniform(-90, 90), 0) for _ in range(9)]
    total = added([*parts, *(Digits(part.first, -part.places) for part in reversed(parts))])
    assert total.is_zero()
    assert total.places.shape == (0, 4)
    assert added([total, total]).places.shape == (0, 4)
    order = rng.permutation(9)
    one, other = added(parts), added([parts[i] for i in order])
    assert one.places.tobytes() == other.places.tobytes()


@given(DIGITS, st.integers(-10, 10), st.integers(-300, 300))
@settings(max_examples=200, deadline=None)
def test_the_nearest_float_is_near(places: list[list[int]], first: int, shift: int) -> None:
    digits = Digits(first, np.array(places, dtype=np.int64)).balanced()
    exact = [value * TWO**shift for value in _values(digits)]
    for found, value in zip(digits.nearest(shift), exact, strict=True):
        assert abs(Fraction(float(found)) - value) <= Fraction(NEAREST) * abs(value)


def test_what_is_below_float64_becomes_0_or_subnormal() -> None:
    digits = cut(np.array([1.0, 3.0]), 0).balanced()
    assert digits.nearest(-1100).tolist() == [0.0, 0.0]
    assert digits.nearest(-1074).tolist() == [5e-324, 1.5e-323]
    assert digits.nearest(1021).tolist() == [2.0**1021, 3 * 2.0**1021]


@given(DIGITS, st.integers(-10, 10))
@settings(max_examples=300, deadline=None)
def test_exponents_enclose_the_numbers(places: list[list[int]], first: int) -> None:
    digits = Digits(first, np.array(places, dtype=np.int64)).balanced()
    for found, value in zip(digits.exponents(), _values(digits), strict=True):
        if value == 0:
            assert found == NOTHING
        else:
            assert TWO ** (int(found) - 4) < abs(value) <= TWO ** int(found)


def test_exponents_of_a_first_digit_that_the_others_nearly_take_back() -> None:
    digits = Digits(0, np.array([[1], *[[-(1 << (BITS - 1))]] * 4], dtype=np.int64))
    [value], [exponent] = _values(digits), digits.exponents()
    assert value < Fraction(1, 2)
    assert TWO ** (int(exponent) - 4) < value <= TWO ** int(exponent)


@given(DIGITS, st.integers(-10, 10))
@settings(max_examples=100, deadline=None)
def test_integers_are_the_numbers_in_one_unit(places: list[list[int]], first: int) -> None:
    digits = Digits(first, np.array(places, dtype=np.int64)).balanced()
    whole, exponent = digits.integers()
    assert [int(value) * TWO**exponent for value in whole] == _values(digits)
    assert all(isinstance(value, int) for value in whole)


def test_integers_of_nothing() -> None:
    whole, exponent = Digits(0, np.zeros((0, 2), np.int64)).integers()
    assert whole.tolist() == [0, 0]
    assert exponent == 0


@pytest.mark.parametrize("value", [5e-324, 2.2e-308, 1e-150, 1.0, 1e150, 1.7976931348623157e308])
def test_the_unit_of_numbers_leaves_one_digit_before_the_point(value: float) -> None:
    values = np.array([value, -value / 2, 0.0])
    unit = int(units_of(np.abs(values).max(initial=0.0)))
    assert 2 ** (BITS - 2) <= Fraction(value) / TWO**unit < 2 ** (BITS - 1)
    digits = cut(values, unit)
    assert digits.first == 0
    assert _values(digits) == [Fraction(float(v)) / TWO**unit for v in values]


def test_the_longest_numbers_are_cut_and_longer_ones_are_refused() -> None:
    longest = np.array([2.0**20, 2.0**-1022 * (1.0 + 2.0**-12)])  # its last bit is 2^-1034
    assert len(cut(longest, 0).places) == LONGEST
    assert _values(cut(longest, 0)) == [Fraction(float(v)) for v in longest]
    longer = np.array([2.0**20, 2.0**-1022 * (1.0 + 2.0**-13)])
    for values in (longer, np.array([1e200, 1e-200])):
        with pytest.raises(InvalidData, match="its weight differs too much") as caught:
            cut(values, 0)
        assert "\n" not in str(caught.value)


def test_no_bit_is_lost_at_the_end_of_the_range() -> None:
    """Below it, ldexp would round the number of one column beside that of another."""
    tiny = np.array([1.0, np.nextafter(2.0**-981, 1.0)])
    assert _values(cut(tiny, 0)) == [Fraction(float(v)) for v in tiny]
    subnormal = np.array([2.0**-100, 3 * 5e-324])
    with pytest.raises(InvalidData, match="differs too much"):
        cut(np.array([1.0, 3 * 5e-324]), 0)
    assert _values(cut(subnormal, -100)) == [Fraction(float(v)) * 2**100 for v in subnormal]
    assert _values(cut(subnormal, 0)) == [Fraction(float(v)) for v in subnormal]


def test_parts_and_joints_keep_the_numbers() -> None:
    rng = np.random.default_rng(1)
    one, other = cut(rng.normal(size=(2, 3)) * 1e30, 0), cut(rng.normal(size=(4, 3)) * 1e-30, 0)
    assert _values(stacked(one, other)) == _values(one) + _values(other)
    wide = side_by_side(one, cut(rng.normal(size=(2, 1)), 5))
    assert _values(wide.of((slice(None), slice(3)))) == _values(one)
    assert _values(wide.of((1, 0))) == [_values(one)[3]]
    assert wide.end == wide.first + len(wide.places)
