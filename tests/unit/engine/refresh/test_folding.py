from __future__ import annotations

import numpy as np
import pytest

from lethe import LinearModel
from lethe.engine.refresh.folding import compacted_dual_rows, downdated_factor
from tests.support.families import families
from tests.support.states import started


@pytest.mark.parametrize("kind", ["linear", "logistic"])
def test_factor_and_dual_rows_become_those_of_the_live_rows(kind: str) -> None:
    for name in families(kind):
        state = started(name, kind)
        gone = len(state.data.deleted)
        stream = state.delete_in([gone - 3, 3], "exact")
        rows, W = state.live_rows(gone)
        A = state.objective.hessian(rows, state.made.theta)
        folded = downdated_factor(state.made.factor, stream)
        size = np.abs(A).max()
        # The injected column's pivot is 1e-6: what is subtracted there has lost those digits.
        atol = (1e-7 if name == "injected_tiny_ridge" else 1e-9) * size
        np.testing.assert_allclose(folded.L @ folded.L.T, A, atol=atol, err_msg=name)
        assert np.array_equal(folded.L, np.tril(folded.L))
        assert folded.smallest <= np.linalg.eigvalsh(A)[0] * (1 + 1e-6) + 1e-15 * size, name
        assert folded.largest >= np.linalg.eigvalsh(A)[-1]
        dual = compacted_dual_rows(stream, rows.X, W)
        np.testing.assert_allclose(dual @ A, rows.X, atol=1e-6 * np.abs(rows.X).max())


def test_with_nothing_deleted_nothing_changes() -> None:
    state = started("benign", "linear")
    folded = downdated_factor(state.made.factor, state.stream)
    np.testing.assert_allclose(folded.L, state.made.factor.L, rtol=1e-13, atol=1e-14)
    assert folded.smallest == pytest.approx(state.made.factor.smallest, rel=1e-13)
    W = compacted_dual_rows(state.stream, state.rows.X, state.made.dual_rows)
    np.testing.assert_array_equal(W, state.made.dual_rows)


def test_the_factor_of_a_compact_is_as_wrong_as_it_was_measured() -> None:
    """Where one row had all the curvature but the ridge's: a bound was once below the truth."""
    r = np.random.default_rng(0)
    X, y = r.normal(size=(6, 3)), r.normal(size=6)
    X[0] *= 4000.0
    model = LinearModel(ridge=1.0, fit_intercept=False, rounded_features=0).fit(X, y)
    model.delete(["0"], method="exact")
    model.refresh("compact")
    state = model._fitted
    wide = X[1:].astype(np.longdouble)
    L = state.factor.L.astype(np.longdouble)
    off = (wide.T @ wide + np.eye(3) - L @ L.T).astype(np.float64)
    wrong = float(np.linalg.norm(off, 2))
    assert 1e-11 < wrong <= state.generation.factor_error
