"""Leverage, Cook's distance and leaving rows out, against statsmodels and against refits."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import statsmodels.api as sm

from lethe import LinearModel, LogisticModel
from lethe.engine.errors import IllConditioned, InvalidData, UnknownRows
from lethe.engine.fit.objective import Array
from tests.support.families import Data, families, make
from tests.support.oracles import newton_from, retrain

TINY = 1e-9
"""A ridge that statsmodels, which has none, does not notice."""


def table(n: int = 60, p: int = 4) -> tuple[Array, Array]:
    rng = np.random.default_rng(8)
    X = rng.standard_normal((n, p)) * np.array([1.0, 3.0, 0.2, 1.0])
    X[0] *= 8.0  # of high leverage
    return X, 1.0 + X @ np.array([1.0, -0.5, 2.0, 0.0]) + rng.standard_normal(n)


def fitted(data: Data) -> LinearModel | LogisticModel:
    kind = LinearModel if data.kind == "linear" else LogisticModel
    model = kind(ridge=data.ridge, fit_intercept=data.intercept)
    y = data.y[:, 0] if data.y.shape[1] == 1 else data.y
    return model.fit(data.X, y, sample_weight=data.weight)


def test_a_linear_model_has_the_influence_of_statsmodels() -> None:
    X, y = table()
    model = LinearModel(ridge=TINY).fit(X, y)
    theirs = sm.OLS(y, sm.add_constant(X)).fit().get_influence()
    np.testing.assert_allclose(model.leverage(), theirs.hat_matrix_diag, rtol=1e-7)
    np.testing.assert_allclose(model.cooks_distance(), theirs.cooks_distance[0], rtol=1e-6)
    np.testing.assert_allclose(model.leave_one_out().residuals, theirs.resid_press, rtol=1e-7)
    # Theirs is the fitted theta less the one without the row, the constant first.
    ours = model.leave_one_out().steps
    np.testing.assert_allclose(-np.roll(ours, 1, axis=1), theirs.dfbeta, rtol=1e-5, atol=1e-10)


def test_a_logistic_model_has_the_one_step_influence_of_statsmodels() -> None:
    X, y = table()
    labels = (y > np.median(y)).astype(np.float64)
    model = LogisticModel(ridge=TINY).fit(X / 4, labels)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = sm.GLM(labels, sm.add_constant(X / 4), family=sm.families.Binomial()).fit(tol=1e-14)
        theirs = fit.get_influence()
        np.testing.assert_allclose(model.leverage(), theirs.hat_matrix_diag, rtol=1e-5)
        np.testing.assert_allclose(
            model.cooks_distance(), theirs.cooks_distance[0], rtol=1e-4, atol=1e-9
        )


@pytest.mark.parametrize("name", families("linear"))
def test_leaving_one_row_out_of_a_linear_model_is_a_refit(name: str) -> None:
    data = make(name, "linear")
    model = fitted(data)
    left = model.leave_one_out()
    theta = retrain("linear", data.design, data.y, data.weight, data.penalty)
    for i in range(0, len(data.X), 17):
        rest = np.arange(len(data.X)) != i
        afresh = retrain("linear", data.design[rest], data.y[rest], data.weight[rest], data.penalty)
        step = left.steps[i].reshape(theta.shape)
        size = np.linalg.norm(theta)
        if np.isnan(step).any():  # of leverage near 1: only a refit can tell
            assert model.leverage()[i] > 1 - 1e-7
            continue
        assert np.linalg.norm(step - (afresh - theta)) <= 1e-7 * size
        expected = data.design[i] @ afresh
        given = np.reshape(left.predictions[i], expected.shape)
        assert np.linalg.norm(given - expected) <= 1e-6 * (1 + size)


@pytest.mark.parametrize("name", ["benign", "sparse", "weighted", "rank_deficient", "duplicated"])
@pytest.mark.parametrize("kind", ["linear", "logistic"])
def test_a_group_is_what_its_deletion_would_do_and_nothing_is_deleted(name: str, kind: str) -> None:
    data = make(name, kind)
    model = fitted(data)
    group = data.deleted[:9]
    before = model.theta.copy()
    found = model.influence([str(i) for i in group])
    assert np.array_equal(model.theta, before)
    assert len(model.live_ids) == len(data.X)
    rest = np.setdiff1d(np.arange(len(data.X)), group)
    X, y, weight = data.design[rest], data.y[rest], data.weight[rest]
    theta = np.append(model.theta, model.intercept) if data.intercept else model.theta
    if kind == "linear":
        expected = retrain(kind, X, y, weight, data.penalty)[:, 0] - theta
    else:
        expected = newton_from(theta[:, None], X, y, weight, data.penalty)[:, 0] - theta
    assert np.linalg.norm(found.step - expected) <= 1e-7 * np.linalg.norm(theta)
    assert found.cooks_distance >= 0
    deleted = model.delete([str(i) for i in group], method="exact")
    np.testing.assert_allclose(deleted.step, found.step, rtol=1e-6, atol=1e-12)


def test_after_deletions_it_is_the_influence_among_the_rows_that_are_left() -> None:
    data = make("benign", "linear")
    model = fitted(data)
    gone = [str(i) for i in data.deleted[:20]]
    model.delete(gone, method="pru")
    rest = data.live(20)
    afresh = LinearModel(ridge=data.ridge).fit(data.X[rest], data.y[rest, 0])
    np.testing.assert_allclose(model.leverage(), afresh.leverage(), rtol=1e-9)
    np.testing.assert_allclose(model.cooks_distance(), afresh.cooks_distance(), rtol=1e-7)


def test_rows_that_are_not_there_and_groups_without_a_rest_are_refused() -> None:
    X, y = table()
    model = LinearModel().fit(X, y)
    model.delete(["3"])
    for call in (model.leverage, model.cooks_distance, model.leave_one_out, model.influence):
        with pytest.raises(UnknownRows, match="'3' was deleted"):
            call(iter(["4", "3"]))
        with pytest.raises(UnknownRows, match=r"'nobody' was never a row of this model$"):
            call(["4", "nobody"])
        with pytest.raises(InvalidData, match="give a list of row ids"):
            call("4")
    with pytest.raises(InvalidData, match="there is no step"):
        model.influence(model.live_ids)
    near = LinearModel(ridge=1e-14, fit_intercept=False).fit(np.eye(3), [1.0, 2.0, 3.0])
    assert np.isnan(near.cooks_distance()).all()
    with pytest.raises(IllConditioned):
        near.influence(["1"])


def test_weights_are_those_of_weighted_least_squares() -> None:
    data = make("weighted", "linear")
    y, root = data.y[:, 0], np.sqrt(data.weight)
    model = LinearModel(TINY).fit(data.X, y, sample_weight=data.weight)
    theirs = sm.OLS(root * y, root[:, None] * data.design).fit().get_influence()
    np.testing.assert_allclose(model.leverage(), theirs.hat_matrix_diag, rtol=1e-6)
    np.testing.assert_allclose(model.cooks_distance(), theirs.cooks_distance[0], rtol=1e-6)


def hat(data: Data) -> tuple[Array, Array]:
    """Return the Hessian and the hat matrix of a linear data set with weights."""
    A = data.design.T @ (data.weight[:, None] * data.design) + np.diag(data.penalty)
    root = np.sqrt(data.weight)[:, None] * data.design
    return A, root @ np.linalg.solve(A, root.T)


@pytest.mark.parametrize("name", ["benign", "weighted", "several_outputs", "wide"])
def test_with_a_ridge_cooks_distance_is_what_it_is_defined_as(name: str) -> None:
    data = make(name, "linear")
    model = fitted(data)
    A, H = hat(data)
    np.testing.assert_allclose(model.leverage(), np.diag(H), rtol=1e-8, atol=1e-12)
    freedom = float(np.trace(H))
    residual = data.y - data.design @ model._fitted.stream.theta_exact
    variance = data.weight @ residual**2 / (len(data.X) - freedom)
    steps = model.leave_one_out().steps.reshape(len(data.X), len(A), -1)
    expected = np.einsum("idm,de,iem->im", steps, A, steps) / (freedom * variance)
    ours = model.cooks_distance().reshape(expected.shape)
    np.testing.assert_allclose(ours, expected, rtol=1e-6)
    group = model.influence(["3", "4", "5"])
    step = group.step.reshape(len(A), -1)
    squares = np.sum(step * (A @ step), axis=0) / (freedom * variance)
    np.testing.assert_allclose(group.cooks_distance, np.squeeze(squares), rtol=1e-6)
    one = model.influence(["7"])
    np.testing.assert_allclose(one.cooks_distance, model.cooks_distance(["7"])[0], rtol=1e-8)


@pytest.mark.parametrize("kind", ["linear", "logistic"])
def test_they_follow_deletions_and_insertions(kind: str) -> None:
    data = make("benign", kind)
    y = data.y[:, 0]
    model = fitted(data)
    gone = [str(i) for i in data.deleted[:20]]
    model.delete(gone, "pru")
    names = [f"n{i}" for i in range(10)]
    model.insert(data.X[:10] + 0.1, y[:10], names, method="pru")
    live = [i for i in range(len(y)) if str(i) not in gone]
    X, t = np.vstack([data.X[live], data.X[:10] + 0.1]), np.append(y[live], y[:10])
    if kind == "linear":
        fresh: Any = LinearModel(data.ridge).fit(X, t)
        tolerance = 1e-9
    else:  # curvatures stay those of the last rebuild: after one they are the fresh model's
        model.refresh("rebuild")
        fresh = LogisticModel(data.ridge).fit(X, t)
        tolerance = 1e-6
    assert model.leave_one_out().ids == model.live_ids
    np.testing.assert_allclose(model.leverage(), fresh.leverage(), rtol=tolerance)
    np.testing.assert_allclose(model.cooks_distance(), fresh.cooks_distance(), rtol=10 * tolerance)
    one, other = model.leave_one_out(names), fresh.leave_one_out(fresh.live_ids[-10:])
    np.testing.assert_allclose(one.predictions, other.predictions, rtol=10 * tolerance)
    np.testing.assert_allclose(model.cooks_distance(names), fresh.cooks_distance()[-10:], rtol=1e-5)


def test_more_than_two_classes_have_one_of_each_class() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((90, 3)), rng.integers(3, size=90)
    model = LogisticModel().fit(X, y)
    left_out = model.leave_one_out()
    for c in range(3):
        alone = LogisticModel().fit(X, y == c)
        np.testing.assert_allclose(model.leverage()[:, c], alone.leverage(), rtol=1e-6)
        np.testing.assert_allclose(model.cooks_distance()[:, c], alone.cooks_distance(), rtol=1e-5)
        theirs = alone.leave_one_out()
        np.testing.assert_allclose(left_out.residuals[:, c], theirs.residuals, rtol=1e-5)
        np.testing.assert_allclose(left_out.steps[..., c], theirs.steps, rtol=1e-4, atol=1e-8)
    assert model.influence(["1", "2"]).cooks_distance.shape == (3,)
