"""The least stiffness of a sample, against all eigenvalues."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import eigh

from lethe.engine.deletion.correction import Correction
from lethe.engine.error.stiffness import least_stiffness
from lethe.engine.fit.objective import Array


def _sampled(seed: int, d: int = 6) -> tuple[Array, Array, Correction, Array, Array]:
    """Return X, W, V, the change of each row's curvature, and A_t."""
    rng = np.random.default_rng(seed)
    X, gone = rng.standard_normal((60, d)), 0.3 * rng.standard_normal((4, d))
    curvature = rng.uniform(0.01, 0.25, 60)
    A_t: Array = (X.T * curvature).dot(X) + 0.1 * np.eye(d)
    A_b: Array = np.asarray(A_t + gone.T @ gone, dtype=np.float64)
    # A_t^-1 = A_b^-1 + V^T V with V = M^-1/2 gone A_b^-1.
    M = np.eye(4) - gone @ np.linalg.solve(A_b, gone.T)
    root = np.linalg.cholesky(M)
    V: Array = np.asarray(np.linalg.solve(root, gone @ np.linalg.inv(A_b)), dtype=np.float64)
    W: Array = np.asarray(np.linalg.solve(A_b, X.T).T, dtype=np.float64)
    changed = -curvature * rng.uniform(0.0, 1.0, 60) * (rng.random(60) < 0.7)
    return X, W, Correction.of(V), changed[:, None], np.asarray(A_t)


@pytest.mark.parametrize("seed", range(20))
def test_it_is_the_least_eigenvalue_of_the_changed_hessian_over_the_old_one(seed: int) -> None:
    X, W, V, changed, A_t = _sampled(seed)
    H = A_t + (X.T * changed[:, 0]) @ X
    least = float(eigh(H, A_t, eigvals_only=True)[0])
    assert least_stiffness(X, W, V, changed, -1.0) == pytest.approx(least, rel=1e-8)


def test_curvatures_that_have_risen_make_up_for_none_that_fell() -> None:
    X, W, V, changed, _ = _sampled(0)
    fallen = least_stiffness(X, W, V, changed, -1.0)
    assert least_stiffness(X, W, V, np.where(changed < 0, changed, 5.0), -1.0) == fallen
    assert least_stiffness(X, W, V, np.abs(changed), -1.0) == 1.0


def test_it_ends_at_what_the_caller_asks_and_not_above_it() -> None:
    X, W, V, changed, _ = _sampled(1)
    least = least_stiffness(X, W, V, changed, -1.0)
    assert least_stiffness(X, W, V, changed, least + 0.05) <= least + 0.05


def test_of_several_blocks_the_worst_counts() -> None:
    X, W, V, changed, _ = _sampled(2)
    _, W2, V2, _, _ = _sampled(2)
    both = np.hstack([np.zeros_like(changed), changed])
    found = least_stiffness(
        X, np.hstack([W2, W]), Correction.of(np.hstack([V2.array, V.array])), both, -1.0
    )
    assert found == pytest.approx(least_stiffness(X, W, V, changed, -1.0), rel=1e-8)


def test_numbers_that_overflow_are_not_stiff() -> None:
    X, W, V, changed, _ = _sampled(3)
    with np.errstate(all="ignore"):
        assert not least_stiffness(X, 1e300 * W, V, 1e300 * changed, 0.5) > 0.5
