"""The logistic experiments: the oracle is right, Algorithm 3 does what Theorem 6 says."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import lstsq
from sklearn.linear_model import LogisticRegression

from paper import logistic, retraining as oracle
from paper.data import Array, Data
from paper.experiment import Method, Metric

N, D, K = 300, 40, 6


@pytest.fixture(scope="module")
def data() -> Data:
    return logistic.draw(3, 0, N, D, K, 0.5)


def by_scikit_learn(X: Array, y: Array, ridge: float) -> Array:
    model = LogisticRegression(
        solver="newton-cholesky", C=1 / ridge, fit_intercept=False, tol=1e-12, max_iter=200
    )
    return np.asarray(model.fit(X, y).coef_[0])


@pytest.mark.parametrize("ridge", [0.1, 1.0, 10.0])
def test_retraining_agrees_with_scikit_learn_from_any_start(data: Data, ridge: float) -> None:
    retraining = oracle.LogisticRetraining(ridge)
    for rows in (slice(None), slice(K, None), slice(0, N // 2)):
        X, y = data.X[rows], data.y[rows]

        theta = retraining.fit(X, y)

        wanted = by_scikit_learn(X, y, ridge)
        assert np.linalg.norm(theta - wanted) <= 1e-8 * np.linalg.norm(wanted)


def test_gradient_and_hessian_are_those_of_the_loss(data: Data) -> None:
    theta = np.random.default_rng(5).standard_normal(D) / 4
    step = np.random.default_rng(6).standard_normal(D) * 1e-4
    X, y = data.X, data.y

    rise = oracle.logistic_loss(X, y, theta + step, 1.0) - oracle.logistic_loss(
        X, y, theta - step, 1.0
    )
    turn = oracle.logistic_gradient(X, y, theta + step, 1.0) - oracle.logistic_gradient(
        X, y, theta - step, 1.0
    )

    slope = oracle.logistic_gradient(X, y, theta, 1.0)
    assert rise == pytest.approx(2 * float(slope @ step), rel=1e-5)
    assert turn == pytest.approx(
        2 * oracle.logistic_hessian(X, theta, 1.0) @ step, rel=1e-4, abs=1e-9
    )


def test_algorithm_3_projects_the_newton_step_onto_the_deleted_rows(data: Data) -> None:
    X, y = data.X, data.y
    full = oracle.LogisticRetraining(1.0).fit(X, y)
    A = oracle.logistic_hessian(X, full, 1.0)
    inverse_rows = np.asarray(np.linalg.solve(A, X[:K].T).T, dtype=np.float64)
    slope = oracle.logistic_gradient(X[K:], y[K:], full, 1.0)
    step = -np.linalg.solve(oracle.logistic_hessian(X[K:], full, 1.0), slope)

    theta = logistic.pru_published(X, y, full, K, inverse_rows)

    projected = lstsq(X[:K], X[:K] @ step)[0]
    assert theta - full == pytest.approx(projected, rel=1e-6, abs=1e-9)


def test_the_recipe_of_the_injected_feature(data: Data) -> None:
    retraining = oracle.LogisticRetraining(1.0)

    made, theta, turned = logistic.classified_correctly(data, retraining)

    assert set(data.y) == {0.0, 1.0}
    assert made.y[:K].tolist() == [1.0] * K
    assert made.X[:K, -1].tolist() == [1.0] * K
    assert not made.X[K:, -1].any()
    assert (made.X[:K] @ theta > 0).all()
    assert turned > 0  # this seed has rows on the wrong side
    assert np.abs(made.X).tolist() == np.abs(data.X).tolist()


def test_one_trial_the_exact_step_removes_the_feature_and_the_polish_the_rest() -> None:
    plan = {"n": N, "d": D, "k": [K], "p": [0.1], "ridge": 1.0}

    samples = logistic.run_trial(plan, 3, 1)

    figures = {(sample.method, sample.metric): sample.value for sample in samples}
    assert len(figures) == len(samples)
    for metric in (Metric.FIT, Metric.L2):
        assert {name for name, of in figures if of == metric} == set(logistic.METHODS)
    assert abs(figures[Method.EXACT, Metric.FIT]) < 1e-8
    distances = {name: value for (name, metric), value in figures.items() if metric == Metric.L2}
    assert distances[Method.EXACT] == pytest.approx(distances[Method.NEWTON], rel=1e-6)
    assert distances[Method.PRU] == pytest.approx(distances[Method.PRU_PUBLISHED], rel=1e-5)
    assert figures[Method.POLISHED, Metric.LARGEST_ERROR] <= logistic.POLISH_TARGET
    assert figures[Method.EXACT, Metric.LARGEST_ERROR] > logistic.POLISH_TARGET
    assert figures[Method.RETRAINING, logistic.LARGEST_ORACLE] < 1e-8
