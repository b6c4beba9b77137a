from __future__ import annotations

import numpy as np
import pytest

from lethe.engine.errors import IllConditioned
from lethe.engine.fit import precompute
from lethe.engine.fit.factor import Factor, lower_triangle
from lethe.engine.fit.precompute import check_inverse, dual_error, dual_rows, factor_error
from tests.support.families import families
from tests.support.states import started

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
    h = np.einsum("ij,ij->i", state.rows.X, state.made.dual_rows) * s
    np.testing.assert_allclose(h, np.diag(H), rtol=1e-10)
    assert (h < 1).all()


@pytest.mark.parametrize("apart", [1e-1, 1e-3])
def test_nearly_collinear_columns_cost_no_digits_that_the_rows_have(apart: float) -> None:
    """A solve is backward stable whatever A's condition, and scales do not matter."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 20))
    X[:, 1] = X[:, 0] + apart * X[:, 1]
    X *= np.logspace(-4, 4, 20)
    A = X.T @ X + np.diag(1e-12 * np.diag(X.T @ X))
    factor = Factor(lower_triangle(A), 1.0, 1.0)
    before = X.copy()
    W = dual_rows(factor, X)
    assert np.array_equal(X, before)
    size = np.abs(X).max(axis=0)
    assert np.abs((W @ A - X) / size).max() < 1e-12


def test_dual_rows_take_any_memory_order(monkeypatch: pytest.MonkeyPatch) -> None:
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


@pytest.mark.parametrize("kind", KINDS)
def test_what_dual_rows_are_off_by_is_measured_and_never_less_than_the_truth(kind: str) -> None:
    """Judged with the Hessian in extended precision, as made, and when a dual row is damaged."""
    for name in families(kind):
        state = started(name, kind)
        theta, W, wide = state.made.theta, state.made.dual_rows, np.longdouble
        X = state.rows.X.astype(wide)
        s = state.objective.curvature(state.rows, theta).astype(wide)
        A = X.T @ (s[:, None] * X) + np.diag(state.objective.penalty.astype(wide))
        for off in (0.0, 1e-9):
            given = W.copy()
            given[0] *= 1.0 + off
            residual = np.linalg.norm((X - given.astype(wide) @ A).astype(np.float64), axis=1)
            lengths = np.linalg.norm(given, axis=1)
            true = float(np.max(residual[lengths > 0] / lengths[lengths > 0]))
            measured = dual_error(state.objective, state.rows, theta, given, 0.0)
            noise = 1e-14 * state.made.factor.largest
            assert true <= measured <= 40 * true + noise, name


def test_a_hessian_of_whose_inverse_too_little_is_known_is_refused() -> None:
    check_inverse(1.0, 0.5)
    for smallest, off in ((1.0, 0.51), (np.nan, 0.0), (1.0, np.nan)):
        with pytest.raises(IllConditioned, match="raise the ridge"):
            check_inverse(smallest, off)


@pytest.mark.parametrize("bad", [np.nan, np.inf, 0.0])
def test_a_dual_row_that_is_no_number_or_nothing_is_not_taken_for_a_good_one(bad: float) -> None:
    state = started("benign", "linear")
    W = state.made.dual_rows.copy()
    W[3] = bad
    found = dual_error(state.objective, state.rows, state.made.theta, W, 1.0)
    assert not np.isfinite(found)


@pytest.mark.parametrize("kind", KINDS)
def test_the_error_of_a_factor_is_seen_in_every_direction(kind: str) -> None:
    for name in families(kind):
        state = started(name, kind)
        theta, factor = state.made.theta, state.made.factor
        A = state.objective.hessian(state.rows, theta)
        values, vectors = np.linalg.eigh(A)
        exact = factor_error(state.objective, state.rows, theta, factor)
        assert exact <= 1e-12 * values[-1] * len(A)
        for direction in (vectors[:, 0], vectors[:, -1], vectors[:, len(A) // 2]):
            off = 1e-6 * values[-1]
            wrong = np.linalg.cholesky(A + off * np.outer(direction, direction))
            found = factor_error(
                state.objective, state.rows, theta, Factor(wrong, factor.smallest, factor.largest)
            )
            assert off <= found <= 100.0 * off
