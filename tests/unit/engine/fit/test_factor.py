from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import cho_factor, cho_solve

from lethe.engine.errors import IllConditioned
from lethe.engine.fit.factor import factorise
from lethe.engine.fit.objective import Array
from tests.support.families import families, make


def _with_condition(rng: np.random.Generator, d: int, decades: float) -> tuple[Array, float]:
    turn = np.linalg.qr(rng.standard_normal((d, d)))[0]
    spectrum = np.logspace(0, -decades, d)
    A = (turn * spectrum) @ turn.T
    return (A + A.T) / 2, float(spectrum[-1])


def test_the_eigenvalue_bound_is_true_and_within_a_small_factor() -> None:
    rng = np.random.default_rng(0)
    for trial in range(300):
        decades = float(rng.uniform(0, 11))
        A, smallest = _with_condition(rng, int(rng.integers(2, 30)), decades)
        factor = factorise(A)
        # The smallest eigenvalue of the rounded A: known to eps |A| from how it was made.
        assert factor.smallest <= smallest + 1e-16, trial
        assert factor.smallest >= smallest / 4, trial
        assert factor.largest >= 1.0 - 1e-14, trial


@pytest.mark.parametrize("name", families("linear"))
def test_the_eigenvalue_bounds_hold_for_every_family(name: str) -> None:
    data = make(name, "linear")
    X = data.design * np.sqrt(data.weight)[:, None]
    A = X.T @ X + np.diag(data.penalty)
    factor = factorise(A)
    augmented = np.vstack([X, np.diag(np.sqrt(data.penalty))])
    singular = np.linalg.svd(augmented, compute_uv=False)  # no squaring: accurate at the small end
    assert factor.smallest <= float(singular[-1]) ** 2
    assert factor.largest >= float(singular[0]) ** 2 * (1 - 1e-14)


def test_it_solves_and_multiplies_as_scipy_does() -> None:
    A, _ = _with_condition(np.random.default_rng(1), 12, 3.0)
    B = np.random.default_rng(2).standard_normal((12, 4))
    factor = factorise(A)
    np.testing.assert_allclose(factor.solve(B), cho_solve(cho_factor(A), B), rtol=1e-10)
    np.testing.assert_allclose(factor.product(B), A @ B, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize(
    "A",
    [
        np.zeros((3, 3)),
        np.diag([1.0, 1.0, -1e-3]),
        np.diag([1.0, 1e-18]),  # positive, yet not to working precision
        np.diag([1.0, np.nan]),
        np.ones((4, 4)) + 1e-17 * np.eye(4),
    ],
)
def test_a_matrix_that_is_not_positive_to_working_precision_is_refused(A: Array) -> None:
    with pytest.raises(IllConditioned, match="raise the ridge"):
        factorise(A)
