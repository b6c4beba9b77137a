from __future__ import annotations

import numpy as np
import pytest

from engine import precompute
from engine.precompute import dual_rows, leverages
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
