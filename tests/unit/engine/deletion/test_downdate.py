from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import solve

from lethe.engine.deletion.downdate import SMALLEST_PIVOT, leave_out
from lethe.engine.deletion.generation import rounding
from lethe.engine.errors import IllConditioned
from lethe.engine.fit.objective import Array
from tests.support.families import Data
from tests.support.oracles import distance, retrain_linear_wide
from tests.support.states import start


def _solved(A: Array, B: Array) -> Array:
    solved: Array = solve(A, B)
    return solved


def _brute_force(k: int, d: int, seed: int) -> tuple[Array, ...]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((60, d))
    s = rng.uniform(0.0, 0.25, 60)
    s[:2] = 0.0  # saturated logistic rows
    A = X.T @ (s[:, None] * X) + 0.5 * np.eye(d)
    return X[:k], s[:k], A, rng.standard_normal((k, 3))


@pytest.mark.parametrize(("k", "d"), [(1, 5), (4, 5), (12, 5), (40, 5), (3, 30), (40, 30)])
def test_it_equals_brute_force(k: int, d: int) -> None:
    for seed in range(5):
        U, s, A, e = _brute_force(k, d, seed)
        left = leave_out(U, _solved(A, U.T).T, e, s)
        remaining = A - U.T @ (s[:, None] * U)
        np.testing.assert_allclose(left.delta, np.linalg.solve(remaining, U.T @ e), rtol=1e-9)
        inverse = np.linalg.inv(A) + left.V.T @ left.V
        np.testing.assert_allclose(inverse, np.linalg.inv(remaining), rtol=1e-8, atol=1e-10)


def test_the_step_is_that_of_the_corrected_algorithm_2_and_not_of_the_printed_one() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((50, 6)), rng.standard_normal((50, 1))
    A = X.T @ X + np.eye(6)
    H = X @ np.linalg.solve(A, X.T)
    theta = np.linalg.solve(A, X.T @ y)
    k = 4
    h, r = np.diag(H)[:k], (y - X @ theta)[:k, 0]
    off = H[:k, :k] - np.diag(h)
    right = np.linalg.solve(np.eye(k) - off / (1 - h)[:, None], r / (1 - h))
    printed = np.linalg.solve(np.eye(k) - off / (1 - h)[None, :], r / (1 - h))
    W = _solved(A, X[:k].T).T
    left = leave_out(X[:k], W, (X @ theta - y)[:k], np.ones(k))
    np.testing.assert_allclose(left.delta[:, 0], -W.T @ right, rtol=1e-11)
    assert np.linalg.norm(left.delta[:, 0] + W.T @ printed) > 1e-4 * np.linalg.norm(left.delta)


def test_nothing_left_out_changes_nothing() -> None:
    left = leave_out(np.empty((0, 4)), np.empty((0, 4)), np.empty((0, 2)), np.empty(0))
    assert left.delta.tolist() == [[0.0, 0.0]] * 4
    assert left.V.shape == (0, 4)
    assert left.smallest_pivot == 1.0


def _injected(column: float, k: int, ridge: float, seed: int) -> Data:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((150, 10))
    X[:, 3] = 0.0
    X[:k, 3] = column * rng.uniform(0.5, 1.5, k)
    y = X[:, :3].sum(axis=1, keepdims=True) + rng.standard_normal((150, 1))
    y[:k] += 10.0
    index = np.arange(k)
    return Data("injected", "linear", X, y, np.ones(150), ridge, False, index, injected=3)


@pytest.mark.parametrize("ridge", [1.0, 1e-4])
@pytest.mark.parametrize("k", [1, 20, 100])
def test_what_the_gate_lets_through_leaves_no_injected_weight(k: int, ridge: float) -> None:
    passed, nearest = 0, 1.0
    for column in np.logspace(-1, 5, 25):
        for seed in range(3):
            data = _injected(float(column), k, ridge, seed)
            state = start(data)
            try:
                stream = state.delete(state.stream, data.deleted, "exact")
            except IllConditioned:
                continue
            passed += 1
            nearest = min(nearest, ridge / (ridge + float(np.sum(data.X[:k, 3] ** 2))))
            assert abs(stream.theta_exact[3, 0]) <= 1e-6 * abs(state.made.theta[3, 0])
            truth = retrain_linear_wide(data.X[k:], data.y[k:], data.weight[k:], data.penalty)
            error = distance(stream.theta_exact, truth)
            assert error <= 1e-6 * float(np.linalg.norm(state.made.theta))
            assert error <= rounding(state.generation, stream)
    assert passed >= 12
    assert nearest < 10 * SMALLEST_PIVOT * k  # the data did come near the gate


@pytest.mark.parametrize("ridge", [1e-12, 1e-16])
def test_leverage_too_near_to_1_is_refused(ridge: float) -> None:
    x = np.array([[1e3, 0.0]])
    W = x / np.array([1e6 + ridge, 1.0])
    with pytest.raises(IllConditioned, match="leverage"):
        leave_out(x, W, np.ones((1, 1)), np.ones(1))


def test_a_number_that_is_not_finite_is_refused() -> None:
    U = np.array([[1.0, np.nan]])
    with pytest.raises(IllConditioned, match="leverage"):
        leave_out(U, U, np.ones((1, 1)), np.ones(1))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("where", ["row", "dual row", "curvature"])
def test_one_such_number_anywhere_is_refused(value: float, k: int, where: str) -> None:
    U, s, A, e = _brute_force(k, 5, seed=0)
    s = np.ones(k)
    W = _solved(A, U.T).T
    {"row": U, "dual row": W, "curvature": s[:, None]}[where][-1, 0] = value
    with np.errstate(invalid="ignore"), pytest.raises(IllConditioned, match="leverage"):
        leave_out(U, W, e, s)


def test_what_it_is_given_stays_as_it_is_in_any_memory_order() -> None:
    U, s, A, e = _brute_force(6, 5, seed=1)
    W = _solved(A, U.T).T
    plain = leave_out(U, np.ascontiguousarray(W), e, s)
    for given in (np.asfortranarray(W), np.repeat(W, 2, axis=0)[::2]):
        before = given.copy()
        left = leave_out(np.asfortranarray(U), given, e, s)
        assert np.array_equal(given, before)
        np.testing.assert_allclose(left.V, plain.V, rtol=1e-13, atol=1e-15)
        np.testing.assert_allclose(left.delta, plain.delta, rtol=1e-13, atol=1e-15)
