"""A coefficient is the float64 nearest to the minimiser's, or it is not called that."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from lethe.engine.errors import IllConditioned, InvalidData
from lethe.engine.exact import rounding
from lethe.engine.exact.digits import Digits, added, cut
from lethe.engine.exact.rounding import (
    Inverse,
    Minimiser,
    NormalEquations,
    Product,
    _round,
    rationally,
    settled,
    solved,
)
from lethe.engine.exact.running import Solution
from lethe.engine.exact.sums import Sums
from lethe.engine.fit.objective import Array, Rows
from tests.support.in_fractions import is_definite, minimiser, rounded_minimiser

TWO = Fraction(2)


def _rows(X: Array, y: Array, weight: Array | None = None) -> Rows:
    targets = y if y.ndim == 2 else y[:, np.newaxis]
    return Rows(X, targets, np.ones(len(X)) if weight is None else weight)


def _solved(rows: Rows, penalty: Array) -> Minimiser:
    return Solution.of(Sums.of(rows), penalty).minimiser


def _equations(rows: Rows, penalty: Array) -> NormalEquations:
    return NormalEquations.of(Sums.of(rows), penalty)


def _matches(rows: Rows, penalty: Array) -> Minimiser:
    found = _solved(rows, penalty)
    assert found.rounded
    assert found.theta.tobytes() == rounded_minimiser(rows, penalty).tobytes()
    return found


@pytest.mark.parametrize("digits", range(0, 21, 2))
def test_any_condition_gives_the_rounded_minimiser(digits: int) -> None:
    """The matrix has a condition number of about 10^digits."""
    rng = np.random.default_rng(digits)
    for _ in range(5):
        basis = np.linalg.qr(rng.normal(size=(4, 4)))[0]
        X = rng.normal(size=(9, 4)) @ (basis * np.geomspace(1.0, 10.0 ** (-digits / 2), 4))
        found = _matches(_rows(X @ basis.T, rng.normal(size=(9, 2))), np.full(4, 10.0**-digits))
        assert not (digits <= 10 and found.rational)
        assert not (digits >= 18 and not found.rational)


@pytest.mark.parametrize("n", [1, 2, 3, 50])
@pytest.mark.parametrize("ridge", [1e-12, 1.0, 1e12])
@pytest.mark.parametrize("free", [True, False])
def test_any_number_of_rows_and_a_free_intercept(n: int, ridge: float, free: bool) -> None:
    rng = np.random.default_rng(n)
    X = np.hstack([rng.normal(size=(n, 3)), np.ones((n, 1))])
    penalty = np.full(4, ridge)
    penalty[-1] = 0.0 if free else ridge
    _matches(_rows(X, rng.normal(size=(n, 2)), 10.0 ** rng.uniform(-8, 8, n)), penalty)


def test_a_tie_is_rounded_to_even() -> None:
    X = np.array([[1.0], [1.0]])
    for low, expected in (
        (2.0**-53, 0.25),
        (2.0**-52 + 2.0**-53, 0.25 + 2.0**-53),
        (-(2.0**-54), 0.25),
    ):
        found = _matches(_rows(X, np.array([1.0, low])), np.array([2.0]))
        assert found.rational
        assert found.theta[0, 0] == expected
    for low in (np.nextafter(2.0**-53, 1.0), np.nextafter(2.0**-53, 0.0)):
        _matches(_rows(X, np.array([1.0, low])), np.array([2.0]))


@pytest.mark.parametrize("free", [True, False])
def test_a_constant_target_has_coefficients_of_exactly_0(free: bool) -> None:
    rng = np.random.default_rng(1)
    X = np.hstack([rng.normal(size=(20, 3)), np.ones((20, 1))])
    penalty = np.array([1.0, 1.0, 1.0, 0.0 if free else 1.0])
    found = _matches(_rows(X, np.full(20, 0.3)), penalty)
    if free:
        assert found.theta[:, 0].tolist() == [0.0, 0.0, 0.0, 0.3]


def test_a_column_that_is_absent_has_a_coefficient_of_0_without_rationals() -> None:
    rng = np.random.default_rng(2)
    X = rng.normal(size=(20, 4)) * [1.0, 0.0, 1.0, 0.0]
    found = _matches(_rows(X, rng.normal(size=20)), np.ones(4))
    assert not found.rational
    nothing = _matches(_rows(0.0 * X, rng.normal(size=20)), np.ones(4))
    assert not nothing.theta.any()


def test_an_orthogonal_design_has_coefficients_of_exactly_0() -> None:
    X = np.array([[1, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]], dtype=np.float64)
    found = _matches(_rows(X, X[:, :2] * [0.1, 3.0]), np.full(4, 0.7))
    assert found.theta.T[0, 1:].tolist() == [0.0, 0.0, 0.0]
    _matches(_rows(X, np.zeros((4, 1))), np.full(4, 0.7))


def test_targets_of_very_different_size_do_not_disturb_each_other() -> None:
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(12, 3)), rng.normal(size=(12, 3)) * [1e-200, 1.0, 1e200]
    found = _matches(_rows(X, y), np.ones(3))
    assert not found.rational


@pytest.mark.parametrize("column", [0, 100])
@pytest.mark.parametrize("power", [100, 300, 500, 530, 560, 700, 850])
def test_coefficients_of_one_target_may_be_of_any_size(power: int, column: int) -> None:
    """Squares of the smaller one's residual, and its digits beside the larger one, underflow."""
    X = np.array([[1.0, 0.0], [0.0, 3.0 * 2.0**-column]])
    for high, penalty in ((2.0**400, [1.0, 0.7]), (0.3 * 2.0**400, [0.1, 0.7])):
        y = np.array([high, 2.0 ** (400 - power)])
        _matches(_rows(X, y), np.array(penalty))
        both = np.column_stack([y, y[::-1]])
        _matches(_rows(X, both), np.array(penalty))
    scaled = X * [[2.0**-300], [2.0**100]]  # a column that the ridge is far above
    _matches(_rows(scaled, np.array([1.0, 2.0**-power])), np.array([1.0, 0.7]))
    exact = _matches(_rows(np.eye(2), np.array([2.0**400, 2.0 ** (400 - power)])), np.ones(2))
    assert exact.theta[1, 0] == 2.0 ** (399 - power)


def test_subnormal_coefficients_are_rounded_once() -> None:
    rng = np.random.default_rng(4)
    for power in (-1030, -1060, -1074):
        y = rng.integers(1, 2**30, size=(8, 1)).astype(np.float64) * 2.0**-60
        found = _matches(_rows(rng.normal(size=(8, 2)), y * 2.0 ** (power + 31)), np.ones(2))
        assert found.rational
    X = np.array([[2.0**500]])
    for y_value in (3 * 2.0**-574, 5 * 2.0**-575, 2.0**-575):
        _matches(_rows(X, np.array([y_value])), np.array([1.0]))


def test_large_and_small_numbers() -> None:
    rng = np.random.default_rng(5)
    for size in (1e-150, 1e150):
        X = rng.normal(size=(8, 2)) * size
        _matches(_rows(X, rng.normal(size=8) * size), np.full(2, size * size))
    X = rng.normal(size=(8, 2)) * 1e-150
    with pytest.raises(InvalidData, match="the parameters are too large") as caught:
        _solved(_rows(X, rng.normal(size=8) * 1e300), np.full(2, 1e-300))
    assert "\n" not in str(caught.value)


def test_a_singular_matrix_is_refused_in_one_line() -> None:
    X = np.ones((3, 2))
    with pytest.raises(IllConditioned, match="raise the ridge strength") as caught:
        _solved(_rows(X, np.ones(3)), np.zeros(2))
    assert "\n" not in str(caught.value)


def test_beyond_the_rationals_a_matrix_that_is_not_proved_definite_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rounding, "LARGEST_RATIONAL", 1)
    with pytest.raises(IllConditioned, match="raise the ridge strength"):
        _solved(_rows(np.ones((3, 2)), np.ones(3)), np.full(2, 1e-30))


def test_float64_and_rationals_find_the_same() -> None:
    rng = np.random.default_rng(6)
    for _ in range(20):
        rows = _rows(rng.normal(size=(30, 12)), rng.normal(size=(30, 2)))
        equations = _equations(rows, np.full(12, 0.1))
        inverse = Inverse.of(equations.matrix)
        assert inverse is not None
        found = settled(equations, solved(equations, inverse, Product(equations.matrix)))
        assert found is not None
        assert found.theta.tobytes() == rationally(equations).theta.tobytes()


def test_the_residual_of_a_corrected_point_is_exact_and_encloses_the_solution() -> None:
    rng = np.random.default_rng(7)
    for digits in (0, 6, 11):
        X = rng.normal(size=(9, 3)) @ np.diag([1.0, 1.0, 10.0 ** (-digits / 2)])
        X[:, :2] += X[:, :1]
        rows, penalty = _rows(X, rng.normal(size=9)), np.full(3, 10.0 ** -(digits + 1))
        equations = _equations(rows, penalty)
        inverse = Inverse.of(equations.matrix)
        assert inverse is not None
        product = Product(equations.matrix)
        point = solved(equations, inverse, product)
        assert added([equations.right, *product.negative(point.y)]).places.tobytes() == (
            point.residual.places.tobytes()
        )
        exact = minimiser(rows, penalty)
        square = Fraction(0)
        for j in range(3):
            y = exact[j][0] * TWO ** int(equations.unit[j] - equations.target_unit[0])
            here = sum(
                int(place[0, j]) * TWO ** (-22 * p)
                for p, place in enumerate(point.y.places, point.y.first)
            )
            square += ((here - y) / TWO ** int(point.exponent[0, j])) ** 2
        assert square <= Fraction(float(point.distance[0, 0])) ** 2


@pytest.mark.parametrize("d", [2, 5, 9])
def test_the_proved_eigenvalue_is_below_the_smallest(d: int) -> None:
    """Also where the matrix is at the edge of what float64 can tell from a singular one."""
    rng = np.random.default_rng(d)
    proved = 0
    for digits in np.linspace(0.0, 18.0, 60):
        X = rng.normal(size=(d + 3, d)) @ np.diag(np.geomspace(1.0, 10.0 ** (-digits / 2), d))
        X[:, 1:] += X[:, :1]
        equations = _equations(_rows(X, X[:, 0]), np.full(d, 10.0**-digits))
        inverse = Inverse.of(equations.matrix)
        if inverse is None:
            continue
        whole, exponent = equations.matrix.integers()
        matrix = [
            [
                int(whole[j, k]) * TWO ** int(exponent + inverse.scale[j] + inverse.scale[k])
                for k in range(d)
            ]
            for j in range(d)
        ]
        assert is_definite(matrix, inverse.smallest)
        proved += 1
    assert proved > 30


def test_a_matrix_that_only_rounding_makes_definite_is_not_proved() -> None:
    """Its smallest eigenvalue is negative, and far below float64's rounding of its entries."""
    rng = np.random.default_rng(8)
    passed = 0
    for _ in range(300):
        x = np.rint(2.0**20 * rng.random((3, 2)))
        whole = (x @ x.T).astype(np.int64)  # of rank 2
        entries = Digits(0, whole[np.newaxis])
        minus = np.zeros((1, 3, 3), np.int64)
        minus[0, np.arange(3), np.arange(3)] = -1
        matrix = added([entries, Digits(2, minus)])  # less 2^-44 of the identity
        M = matrix.nearest()
        passed += np.linalg.eigvalsh(M)[0] > 0.0
        assert Inverse.of(matrix) is None
    assert passed > 10


HALF = 2.0**-53


@pytest.mark.parametrize("low", [HALF, HALF * (1.0 - 2.0**-44), -HALF / 2.0, 3.0 * HALF])
def test_what_is_as_near_to_a_tie_as_the_bound_is_not_proved(low: float) -> None:
    """`_round` sees 1 + low, and the solution may be anywhere within the distance."""
    y = added([cut(np.array([[1.0]]), 0), cut(np.array([[low]]), 0)])
    exact = Fraction(1) + Fraction(low)
    shift = np.zeros((1, 1), dtype=np.int_)
    for power in range(-140, -50):
        distance = Fraction(2) ** power
        nearest, proved = _round(y, shift, np.array([[float(distance)]]))
        ends = {_to_float(exact - distance), _to_float(exact + distance)}
        if proved[0, 0]:
            assert ends == {float(nearest[0, 0])}
    nearest, proved = _round(y, shift, np.zeros((1, 1)))
    assert not (proved[0, 0] and low in (HALF, -HALF / 2.0, 3.0 * HALF))


def test_what_is_rounded_is_rounded_the_same_anywhere_within_the_distance() -> None:
    rng = np.random.default_rng(9)
    proofs = 0
    for _ in range(3000):
        high = float(rng.choice([1.0, np.nextafter(1.0, 0.0), 1.0 + 2.0**-52, rng.random()]))
        tie = float(np.spacing(high)) / float(rng.choice([2.0, 4.0]))
        below = float(rng.choice([0.0, 1.0])) * 2.0 ** float(rng.integers(-160, -52))
        parts = (high, float(rng.choice([-tie, tie, tie / 3.0])), below * rng.normal())
        y = added([cut(np.array([[part]]), 0) for part in parts])
        exact = sum((Fraction(part) for part in parts), Fraction(0))
        distance = 2.0 ** float(rng.integers(-170, -52))
        nearest, proved = _round(y, np.zeros((1, 1), np.int_), np.array([[distance]]))
        if proved[0, 0]:
            for end in (-1, 1):
                assert _to_float(exact + end * Fraction(distance)) == nearest[0, 0]
            proofs += 1
    assert proofs > 500


def test_zero_is_proved_by_a_residual_of_0_alone() -> None:
    zero = Digits(0, np.zeros((0, 1, 1), np.int64))
    shift = np.zeros((1, 1), np.int_)
    assert _round(zero, shift, np.zeros((1, 1)))[1].all()
    assert not _round(zero, shift, np.full((1, 1), 5e-324))[1].any()


def test_what_vanishes_beside_another_number_is_not_proved() -> None:
    ones = np.ones((1, 2))
    for powers in ([0, -950], [0, -1100], [0, -1040]):
        parts = [Digits(-(p // 22), np.array([[[0, 1 << (p % 22)]]])) for p in powers[1:]]
        y = added(
            [
                cut(np.array([[1.0, 0.0]]), 0),
                *parts,
                Digits(60, (ones * [0, 1]).astype(np.int64)[np.newaxis]),
            ]
        )
        proved = _round(y, np.zeros((1, 2), np.int_), np.zeros((1, 2)))[1]
        assert proved.tolist() == [[True, False]]


def _to_float(value: Fraction) -> float:
    return value.numerator / value.denominator


def test_a_minimiser_knows_its_error() -> None:
    theta = np.array([[1.0], [0.0]])
    assert Minimiser(theta, rounded=True).error >= 2.0**-53
    assert Minimiser(theta, rounded=True).error <= 2.0**-52
    assert math.isclose(Minimiser(theta, rounded=False, beyond=1.0).error, 1.0)
