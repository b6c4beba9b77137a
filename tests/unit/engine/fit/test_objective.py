from __future__ import annotations

import numpy as np
import pytest

from lethe.engine.errors import InvalidData
from lethe.engine.fit.objective import Array, Kind, Objective, Rows, ridge_penalty, with_intercept
from tests.support.families import families, make
from tests.support.oracles import distance
from tests.support.states import started

KINDS = ("linear", "logistic")


def _case(kind: str) -> tuple[Objective, Rows, Array]:
    data = make("weighted", kind)
    theta = np.random.default_rng(1).standard_normal((data.design.shape[1], data.y.shape[1]))
    rows = Rows(data.design, data.y, data.weight)
    return Objective(Kind(kind), data.penalty), rows, theta


@pytest.mark.parametrize("kind", KINDS)
def test_the_gradient_is_the_derivative_of_the_value(kind: str) -> None:
    objective, rows, theta = _case(kind)
    gradient = objective.gradient(rows, theta)
    for j in range(objective.d):
        h = np.zeros_like(theta)
        h[j] = 1e-5
        slope = (objective.value(rows, theta + h) - objective.value(rows, theta - h)) / 2e-5
        assert slope == pytest.approx(gradient[j, 0], rel=1e-6, abs=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_the_hessian_is_the_derivative_of_the_gradient(kind: str) -> None:
    objective, rows, theta = _case(kind)
    A = objective.hessian(rows, theta)
    for j in range(objective.d):
        h = np.zeros_like(theta)
        h[j] = 1e-5
        column = (objective.gradient(rows, theta + h) - objective.gradient(rows, theta - h)) / 2e-5
        np.testing.assert_allclose(column[:, 0], A[:, j], rtol=1e-6, atol=1e-5)


def test_errors_and_curvatures_of_well_fitted_rows_keep_their_digits() -> None:
    objective = Objective(Kind.LOGISTIC, np.ones(1))
    rows = Rows(np.array([[40.0], [-40.0]]), np.array([[1.0], [0.0]]), np.ones(2))
    tiny = np.exp(-40.0)
    one = np.ones((1, 1))
    np.testing.assert_allclose(objective.error(rows, one)[:, 0], [-tiny, tiny], rtol=1e-14)
    np.testing.assert_allclose(objective.curvature(rows, one), [tiny, tiny], rtol=1e-14)
    assert objective.value(rows, one) == pytest.approx(2 * tiny + 0.5, rel=1e-14)


def test_blocks_of_rows_sum_to_the_whole_gradient() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((5000, 3)), rng.standard_normal((5000, 2))
    objective = Objective(Kind.LINEAR, np.ones(3))
    theta = rng.standard_normal((3, 2))
    expected = X.T @ (X @ theta - y) + theta
    measured = objective.gradient(Rows(X, y, np.ones(5000)), theta)
    np.testing.assert_allclose(measured, expected, rtol=1e-11)


@pytest.mark.parametrize("kind", KINDS)
def test_the_scale_of_rounding_bounds_the_gradient_at_the_true_minimiser(kind: str) -> None:
    for name in families(kind):
        state = started(name, kind)
        truth = state.retrained(0)
        plain = truth.astype(np.float64)
        # The stored minimiser itself is off by eps |theta|, which the Hessian magnifies.
        stored = state.made.factor.largest * distance(plain, truth)
        left = float(np.linalg.norm(state.objective.gradient(state.rows, plain)))
        scale = state.objective.gradient_scale(state.rows, plain)
        assert left <= 4 * 2.3e-16 * scale + stored, name


def test_the_scale_of_rounding_does_not_vanish_with_theta() -> None:
    objective = Objective(Kind.LINEAR, np.ones(2))
    rows = Rows(np.eye(2), np.ones((2, 1)), np.ones(2))
    assert objective.gradient_scale(rows, np.zeros((2, 1))) == pytest.approx(2.0)


def test_rows_that_do_not_fit_together_are_refused() -> None:
    with pytest.raises(InvalidData, match="do not fit together"):
        Rows(np.ones((3, 2)), np.ones((2, 1)), np.ones(3))


@pytest.mark.parametrize("where", ["X", "y", "weight"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_number_that_is_not_finite_is_named_with_its_row(where: str, value: float) -> None:
    rows = Rows(np.ones((3, 2)), np.ones((3, 1)), np.ones(3))
    getattr(rows, where)[1] = value
    with pytest.raises(InvalidData, match="of row 1 is not a finite number"):
        rows.check_finite()


@pytest.mark.parametrize("ridge", [0.0, -1.0, np.nan, np.inf])
def test_the_ridge_strength_must_be_above_zero(ridge: float) -> None:
    with pytest.raises(InvalidData, match="above 0"):
        ridge_penalty(ridge, 3, intercept=True, penalise_intercept=False)


def test_the_intercept_is_last_and_not_penalised_unless_asked() -> None:
    free = ridge_penalty(2.0, 3, intercept=True, penalise_intercept=False)
    assert free.tolist() == [2.0, 2.0, 0.0]
    held = ridge_penalty(2.0, 3, intercept=True, penalise_intercept=True)
    assert held.tolist() == [2.0, 2.0, 2.0]
    assert with_intercept(np.zeros((2, 1))).tolist() == [[0.0, 1.0], [0.0, 1.0]]


def test_the_hessian_is_the_product_and_symmetric_to_the_last_bit() -> None:
    rng = np.random.default_rng(0)
    n, d = 1500, 300  # more than one block of rows and of columns
    rows = Rows(rng.standard_normal((n, d)), rng.standard_normal((n, 1)), rng.uniform(0, 2, n))
    A = Objective(Kind.LINEAR, np.arange(d, dtype=np.float64)).hessian(rows, np.zeros((d, 1)))
    assert np.array_equal(A, A.T)
    expected = rows.X.T @ (rows.weight[:, None] * rows.X) + np.diag(np.arange(d))
    np.testing.assert_allclose(A, expected, rtol=1e-12, atol=1e-11)
