"""Losses: each derivative is that of the line above it, and the Poisson model is scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import PoissonRegressor

from lethe.engine.errors import InvalidData
from lethe.engine.fit.fit import fit
from lethe.engine.fit.objective import LOSSES, Array, Kind, Objective, Rows
from tests.support.oracles import distance, retrain_poisson_wide

STEP = 1e-5
MARGINS = np.array([[-30.0], [-3.0], [-0.1], [0.0], [0.4], [2.0], [8.0]])


@pytest.mark.parametrize("kind", list(LOSSES))
def test_each_derivative_is_that_of_what_stands_above_it(kind: Kind) -> None:
    loss, u = LOSSES[kind], MARGINS
    y = np.array([[0.0], [1.0], [0.0], [1.0], [1.0], [0.0], [1.0]])

    def slope(values: Array, more: Array) -> Array:
        return (more - values) / (2 * STEP)

    error = slope(loss.value(u - STEP, y), loss.value(u + STEP, y))
    assert loss.error(u, y) == pytest.approx(error, rel=1e-6, abs=1e-8)
    assert loss.error(u, y) == pytest.approx(loss.mean(u) - y, rel=1e-12, abs=1e-15)
    curvature = slope(loss.error(u - STEP, y), loss.error(u + STEP, y))
    assert loss.curvature(u) == pytest.approx(curvature, rel=1e-6, abs=1e-9)
    change = slope(loss.curvature(u - STEP), loss.curvature(u + STEP))
    assert loss.skewness(u) * loss.curvature(u) == pytest.approx(change, rel=1e-6, abs=1e-9)
    assert (np.abs(loss.skewness(u)) <= 1.0).all()  # what the certificates rest on
    for i in range(len(u)):
        error_i, size, curvature_i = loss.at(float(u[i, 0]), float(y[i, 0]))
        assert error_i == pytest.approx(loss.error(u, y)[i, 0], rel=1e-14)
        assert size == pytest.approx(loss.error_size(u, y)[i, 0], rel=1e-14)
        assert curvature_i == pytest.approx(loss.curvature(u)[i, 0], rel=1e-14)


def counts(n: int = 400, d: int = 6, mean: float = 3.0) -> tuple[Array, Array]:
    rng = np.random.default_rng(4)
    X = rng.standard_normal((n, d))
    return X, rng.poisson(np.exp(X @ rng.standard_normal(d) / 4 + np.log(mean))).astype(np.float64)


@pytest.mark.parametrize("mean", [0.05, 3.0, 1e6])
def test_a_poisson_fit_is_scikit_learns(mean: float) -> None:
    """Its objective is the mean over the rows, so that ridge = n alpha."""
    X, y = counts(mean=mean)
    design = np.hstack([X, np.ones((len(X), 1))])
    penalty = np.append(np.full(X.shape[1], 2.0), 0.0)
    rows = Rows(design, y[:, None], np.ones(len(y)))
    theta = fit(Objective(Kind.POISSON, penalty), rows).theta
    theirs = PoissonRegressor(
        alpha=2.0 / len(y), tol=1e-12 * max(mean, 1.0), max_iter=10_000, solver="newton-cholesky"
    )
    theirs.fit(X, y)
    expected = np.append(theirs.coef_, theirs.intercept_)
    assert theta[:, 0] == pytest.approx(expected, rel=1e-6, abs=1e-9)
    truth = retrain_poisson_wide(design, y, np.ones(len(y)), penalty)
    assert distance(theta, truth) <= 1e-12 * float(np.linalg.norm(theta))


def test_a_start_whose_predictions_overflow_is_no_start() -> None:
    X, y = counts()
    objective = Objective(Kind.POISSON, np.full(X.shape[1], 1.0))
    rows = Rows(X, y[:, None], np.ones(len(y)))
    far = np.full((X.shape[1], 1), 1e4)
    assert fit(objective, rows, far).theta == pytest.approx(fit(objective, rows).theta, rel=1e-10)


def test_targets_that_overflow_are_refused() -> None:
    X, y = counts()
    rows = Rows(X, 1e300 * (1 + y[:, None]), np.ones(len(y)))
    with pytest.raises(InvalidData, match="rescale"):
        fit(Objective(Kind.POISSON, np.full(X.shape[1], 1.0)), rows)
