from __future__ import annotations

import numpy as np
import pytest

from engine import precompute
from engine.factor import Factor, lower_triangle
from engine.precompute import INFLATION_LIMIT, dual_rows, leverages
from tests.families import families
from tests.states import started

KINDS = ("linear", "logistic")


@pytest.mark.parametrize("kind", KINDS)
def test_dual_rows_are_the_hessians_inverse_times_the_rows(kind: str) -> None:
    for name in families(kind):
        state = started(name, kind)
        A = state.objective.hessian(state.rows, state.made.theta)
        back = state.made.dual_rows @ A
        np.testing.assert_allclose(back, state.rows.X, atol=1e-9 * np.abs(state.rows.X).max())


def test_blocks_of_rows_give_the_same_dual_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    state = started("benign", "linear")
    monkeypatch.setattr(precompute, "BLOCK_ROWS", 7)
    blocked = dual_rows(state.made.factor, state.rows.X)
    np.testing.assert_allclose(blocked, state.made.dual_rows, rtol=1e-13, atol=1e-16)


@pytest.mark.parametrize("kind", KINDS)
def test_leverages_are_the_diagonal_of_the_hat_matrix_and_sum_to_its_trace(kind: str) -> None:
    state = started("benign", kind)
    s = state.objective.curvature(state.rows, state.made.theta)
    A = state.objective.hessian(state.rows, state.made.theta)
    H = state.rows.X @ np.linalg.solve(A, state.rows.X.T) * s
    h = leverages(state.rows.X, state.made.dual_rows, s)
    np.testing.assert_allclose(h, np.diag(H), rtol=1e-10)
    assert (h < 1).all()


@pytest.mark.parametrize("apart", [1e-1, 1e-3])
def test_nearly_collinear_columns_cost_no_digits_that_the_rows_have(apart: float) -> None:
    """Either way of making dual rows is as near to X A^-1 as A's conditioning allows."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 20))
    X[:, 1] = X[:, 0] + apart * X[:, 1]
    X *= np.logspace(-4, 4, 20)  # scales must not matter
    A = X.T @ X + np.diag(1e-12 * np.diag(X.T @ X))
    factor = Factor(lower_triangle(A), 1.0, 1.0)
    inflation = np.diag(A) * np.diag(np.linalg.inv(A))
    assert (inflation.max() > INFLATION_LIMIT) == (apart < 1e-2)
    before = X.copy()
    W = dual_rows(factor, X)
    assert np.array_equal(X, before)
    size = np.abs(X).max(axis=0)
    assert np.abs((W @ A - X) / size).max() < 1e-12


@pytest.mark.parametrize("limit", [1.0, 1e3])
def test_both_ways_of_making_dual_rows_take_any_memory_order(
    monkeypatch: pytest.MonkeyPatch, limit: float
) -> None:
    monkeypatch.setattr(precompute, "INFLATION_LIMIT", limit)
    monkeypatch.setattr(precompute, "BLOCK_ROWS", 7)
    state = started("benign", "linear")
    X, factor = state.rows.X, state.made.factor
    expected = np.linalg.solve(factor.product(np.eye(X.shape[1])), X.T).T
    for L in (np.ascontiguousarray(factor.L), np.asfortranarray(factor.L)):
        for rows in (X, np.asfortranarray(X), X[:0]):
            W = dual_rows(Factor(L, factor.smallest, factor.largest), rows)
            np.testing.assert_allclose(W, expected[: len(rows)], rtol=1e-11, atol=1e-14)
            assert W.flags.c_contiguous
            assert np.array_equal(L, factor.L)
