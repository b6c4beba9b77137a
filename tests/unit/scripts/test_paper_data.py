"""The paper's data recipes, step by step; and the oracle of the linear tables."""

from __future__ import annotations

import numpy as np
import pytest

from paper import data
from paper.retraining import retrain
from tests.support.oracles import retrain_linear


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def linear_fit(n: int, d: int, k: int, p: float) -> data.Data:
    """Return data of the feature injection test for linear regression."""
    draw = rng()
    X = data.gaussian_rows(draw, n, d)
    X = data.inject(X, k, *data.sparse_masks(draw, n, d, p))
    return data.Data(X, data.linear_fit_targets(draw, X, k), k)


def test_rows_have_the_drawn_covariance() -> None:
    root = data.covariance_root(rng(), 4)

    X = data.gaussian_rows(rng(1), 200_000, 4, root)

    np.testing.assert_allclose(X.T @ X / len(X), root @ root.T, atol=0.02)


def test_only_deleted_rows_have_the_injected_feature_and_they_share_their_zeros() -> None:
    made = linear_fit(400, 40, 10, 0.25)
    deleted, rest = made.X[:10], made.X[10:]

    assert np.all(rest[:, -1] == 0)
    assert np.all(deleted[:, -1] != 0)
    zero = deleted == 0
    assert np.all(zero == zero[0])
    assert np.mean(rest[:, :-1] != 0) == pytest.approx(0.25, abs=0.02)
    assert len({tuple(row) for row in rest != 0}) > 300
    np.testing.assert_array_equal(made.y[:10], data.INJECTED_WEIGHT * deleted[:, -1])


def test_outliers_are_scaled_with_their_targets() -> None:
    X = data.gaussian_rows(rng(), 50, 5)
    y = data.linear_targets(rng(1), X)

    for plain in (X, y):
        scaled = data.enlarge(plain, 4, 10.0)

        np.testing.assert_allclose(scaled[:4], 10 * plain[:4])
        np.testing.assert_array_equal(scaled[4:], plain[4:])


def test_logistic_rows_to_delete_are_positive_and_injected() -> None:
    X = linear_fit(300, 30, 6, 0.3).X
    made = data.logistic_injected(X, data.logistic_labels(rng(1), X), 6)

    assert np.all(made.y[:6] == 1)
    assert set(made.y) == {0.0, 1.0}
    np.testing.assert_array_equal(made.X[:, -1], np.arange(300) < 6)


def test_the_oracle_of_the_linear_tables_agrees_with_a_qr_of_the_rows() -> None:
    made = linear_fit(300, 30, 8, 0.25)
    live = np.arange(300) >= 8
    wanted = retrain_linear(
        made.X[live], made.y[live], np.ones(int(live.sum())), np.full(30, 1e-4)
    )[:, 0]

    full = made.X.T @ made.X
    by_subtraction = retrain(
        made.X, made.y, 1e-4, full - made.X[:8].T @ made.X[:8], live.astype(np.float64)
    )

    for theta in (retrain(made.X[8:], made.y[8:], 1e-4).theta, by_subtraction.theta):
        np.testing.assert_allclose(theta, wanted, rtol=1e-10, atol=1e-12)
