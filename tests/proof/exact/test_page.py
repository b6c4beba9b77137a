"""The audit page's retraining in whole numbers, against rational arithmetic: the same bytes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from lethe.consumers.audit.rational_refit import rational_refit
from lethe.engine.errors import InvalidData
from lethe.engine.fit.objective import Array, Rows
from tests.proof.exact.families import FAMILIES
from tests.support.page_verifier import PageVerifier, page_verifier

# One worker runs the file: its tests share a process.
pytestmark = pytest.mark.xdist_group("test_exact_page")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageVerifier]:
    with page_verifier(tmp_path_factory.mktemp("page")) as verifier:
        yield verifier


def same(page: PageVerifier, X: Array, y: Array, weight: Array, penalty: Array) -> Array | None:
    """Return what both give; None if there is no single minimiser that float64 can hold."""
    given = X.tolist(), y.tolist(), weight.tolist(), penalty.tolist()
    try:
        theirs = rational_refit(Rows(X, y, weight), penalty)
    except InvalidData as error:
        if "beyond float64" in str(error):
            with pytest.raises(AssertionError, match="beyond float64"):
                page.minimiser(X, y, weight, penalty)
        else:
            assert page.minimiser(X, y, weight, penalty) is None, given
        return None
    ours = page.minimiser(X, y, weight, penalty)
    assert ours is not None, given
    assert ours.tobytes() == theirs.tobytes(), (ours, theirs, given)
    return ours


@pytest.mark.parametrize("name", FAMILIES)
def test_drawn_tables_have_the_bytes_of_rational_arithmetic(page: PageVerifier, name: str) -> None:
    family, solved = FAMILIES[name], 0
    for seed in range(15):
        rng = np.random.default_rng(70_000 + seed)
        d, m = int(rng.integers(1, family.most + 1)), int(rng.integers(1, 4))
        n = int(rng.integers(1, d + 1)) if family.few else int(rng.integers(1, 6 * d + 4))
        X, y = family.draw(rng, n, d)
        penalty = np.full(d, 10.0 ** rng.uniform(-12, 3))
        if seed % 3 == 0:  # an intercept, which is not penalised
            X, penalty = np.hstack([X, np.ones((n, 1))]), np.append(penalty, 0.0)
        weight = 10.0 ** rng.uniform(-8, 8, size=n) if family.weighted else np.ones(n)
        targets = np.column_stack([y, *rng.normal(size=(m - 1, n))])
        solved += same(page, X, targets, weight, penalty) is not None
    assert solved == 15


def test_numbers_from_all_of_float64_have_them_too(page: PageVerifier) -> None:
    solved = 0
    for seed in range(150):
        rng = np.random.default_rng(80_000 + seed)
        n, d, m = (int(k) for k in rng.integers(1, 6, size=3))

        def bits(*shape: int, rng: np.random.Generator = rng, seed: int = seed) -> Array:
            """Draw sign, mantissa and exponent, subnormal numbers and zeros among them."""
            reach = (40, 300, 1000)[seed % 3]
            low = rng.integers(-reach - 50, -reach + 50) if seed % 2 else -reach
            exponent = rng.integers(low, low + 100 if seed % 2 else reach, size=shape)
            drawn: Array = np.ldexp(rng.choice([1.0, 0.5, rng.uniform(1, 2)], size=shape), exponent)
            signs: Array = rng.choice([-1.0, 0.0, 1.0], size=shape, p=[0.45, 0.1, 0.45])
            return drawn * signs

        penalty = np.abs(bits(d))
        found = same(page, bits(n, d), bits(n, m), np.abs(bits(n)), penalty)
        solved += found is not None
    assert solved > 75


@pytest.mark.parametrize(
    ("x", "y", "ridge", "expected"),
    [
        ([1.0, 1.0], [1.0, 2.0**-53], 2.0, 0.25),  # half way: 1/4 + 2^-55 goes to the even one
        ([1.0, 1.0], [1.0, 3 * 2.0**-53], 2.0, 0.25 + 2.0**-53),  # to the even one, above
        ([1.0, 1.0], [1.0, -1.0], 1.0, 0.0),
        ([1.0, 1.0], [5e-324, 0.0], 0.0, 0.0),  # half of the smallest: to the even one
        ([1.0, 1.0], [5e-324, 1e-323], 0.0, 1e-323),  # 1.5 of it
        ([1.0, 1.0], [-5e-324, 0.0], 0.0, -0.0),
        ([2.0], [2.0**-1021], 0.0, 2.0**-1022),  # the smallest that is not subnormal
        ([1.0], [2.0**-1022 - 2.0**-1074], 0.0, 2.0**-1022 - 2.0**-1074),
        ([0.5], [np.finfo(np.float64).max / 2], 0.0, np.finfo(np.float64).max),
    ],
)
def test_ties_zeros_and_the_ends_of_float64_are_rounded_as_they_must_be(
    page: PageVerifier, x: list[float], y: list[float], ridge: float, expected: float
) -> None:
    X, targets = np.array([x]).T, np.array([y]).T
    found = same(page, X, targets, np.ones(len(x)), np.array([ridge]))
    assert found is not None
    assert found.tobytes() == np.array([[expected]]).tobytes()


def test_a_table_without_a_single_minimiser_is_said(page: PageVerifier) -> None:
    X = np.array([[1.0, 2.0], [3.0, 6.0]])
    assert same(page, X, X[:, :1], np.ones(2), np.zeros(2)) is None
    assert same(page, X, X[:, :1], np.ones(2), np.array([0.0, 1e-300])) is not None


def test_a_coefficient_beyond_float64_is_refused(page: PageVerifier) -> None:
    X, y = np.array([[1e-200]]), np.array([[1e200]])
    assert same(page, X, y, np.ones(1), np.zeros(1)) is None


def test_a_table_that_would_take_too_long_is_refused_at_once(page: PageVerifier) -> None:
    X = np.random.default_rng(0).normal(size=(300, 250))
    with pytest.raises(AssertionError, match=r"300 rows and 250 coefficients.*too many"):
        page.minimiser(X, X[:, :1], np.ones(300), np.ones(250))
