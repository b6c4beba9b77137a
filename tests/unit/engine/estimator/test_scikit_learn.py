"""Both models are scikit-learn estimators: its own checks, and what its tools do with them."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.validation import check_is_fitted

from lethe import LinearModel, LogisticModel
from lethe.engine import Limits
from lethe.engine.errors import InvalidData
from tests.support.families import make

Kind = type[LinearModel] | type[LogisticModel]
KINDS: list[Kind] = [LinearModel, LogisticModel]
METHODS = ["predict", "predict_proba", "decision_function"]


def refused(estimator: Any) -> dict[str, str]:
    """Return the checks that fail on purpose, each with its reason."""
    reasons = {
        "check_dtype_object": "an entry that is no number raises InvalidData, a ValueError, where "
        "scikit-learn lets the TypeError of float() through",
    }
    if isinstance(estimator, LogisticModel):
        reasons["check_supervised_y_2d"] = (
            "a column of labels is taken for what it is, without a DataConversionWarning"
        )
    return reasons


with warnings.catch_warnings():  # said while tests are collected
    # BaseEstimator would import scikit-learn with the library: engine/estimator/protocol.py
    warnings.filterwarnings("ignore", ".*does not inherit from `sklearn.base.BaseEstimator`")
    passes_its_checks = parametrize_with_checks(
        [LinearModel(), LogisticModel(), LinearModel(fit_intercept=False)],
        expected_failed_checks=refused,
    )


@passes_its_checks  # type: ignore[untyped-decorator]
def test_scikit_learns_own_checks(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)


@pytest.mark.parametrize("kind", KINDS)
def test_the_library_is_imported_without_scikit_learn(kind: Kind) -> None:
    script = f"""
import sys, numpy
from lethe import {kind.__name__}
model = {kind.__name__}().fit(numpy.eye(4), [0, 1, 0, 1])
model.delete(["1"]), model.predict(numpy.eye(4)), model.leverage(), model.get_params(), repr(model)
assert not any(name.split(".")[0] == "sklearn" for name in sys.modules)
"""
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize("kind", KINDS)
def test_parameters_are_stored_as_given_and_checked_by_fit(kind: Kind) -> None:
    limits = Limits()
    model = kind(ridge=float(np.float32(2)), seed=3, limits=limits)
    assert model.get_params()["limits"] is limits
    copy = clone(model.fit(np.eye(4), [0, 1, 0, 1]))
    assert copy.get_params()["ridge"] == 2
    assert not hasattr(copy, "coef_")
    assert repr(kind(seed=3)) == f"{kind.__name__}(seed=3)"
    with pytest.raises(InvalidData, match="has no parameter 'alpha'; it has ridge, fit_intercept"):
        model.set_params(ridge=5.0, alpha=1.0)
    assert model.ridge == 2
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"ridge": "1"}, "ridge must be a finite number above 0, not '1'"),
        ({"ridge": True}, "ridge must be a finite number above 0, not True"),
        ({"fit_intercept": 1}, "fit_intercept must be True or False, not 1"),
        ({"penalise_intercept": None}, "penalise_intercept must be True or False"),
        ({"error_budget": None}, "error_budget must be a number above 0"),
        ({"seed": -1}, "seed must be a whole number of at least 0, not -1"),
        ({"seed": 0.5}, "seed must be a whole number"),
        ({"limits": 3}, "limits must be Limits or None, not 3"),
    ]
    for parameters, message in wrong:
        with pytest.raises(InvalidData, match=message):
            kind(**parameters).fit(np.eye(4), [0, 1, 0, 1])


@pytest.mark.parametrize("kind", KINDS)
def test_parameters_set_after_a_fit_wait_for_the_next(kind: Kind) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((40, 3)), np.arange(40) % 2
    model, other = kind().fit(X, y), kind().fit(X, y)
    model.set_params(fit_intercept=False, ridge=100.0)
    for one in (model, other):
        one.delete(["3"], "exact")
        one.refresh("rebuild")
    np.testing.assert_array_equal(model.theta, other.theta)
    np.testing.assert_array_equal(model.intercept, other.intercept)
    np.testing.assert_array_equal(model.predict(X), other.predict(X))
    assert model.fit(X, y).intercept == 0.0


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_that_is_not_fitted_says_so(kind: Kind) -> None:
    with pytest.raises(NotFittedError, match="is not fitted; call fit first") as caught:
        kind().predict(np.eye(2))
    assert isinstance(caught.value, InvalidData)
    for call in ("leverage", "cooks_distance", "leave_one_out", "to_sklearn", "refresh"):
        with pytest.raises(NotFittedError):
            getattr(kind(), call)()
    assert not any(hasattr(kind(), name) for name in ("coef_", "n_features_in_", "classes_"))
    with pytest.raises(NotFittedError):
        check_is_fitted(kind())


def test_they_are_of_their_type() -> None:
    assert is_regressor(LinearModel())
    assert is_classifier(LogisticModel())


def test_searches_and_pipelines_take_them() -> None:
    data = make("benign", "logistic")
    y = np.where(data.y[:, 0] == 1, "yes", "no")
    pipeline = make_pipeline(StandardScaler(), LogisticModel())
    search = GridSearchCV(pipeline, {"logisticmodel__ridge": [0.1, 10.0]}, cv=3).fit(data.X, y)
    assert set(search.predict(data.X)) <= {"yes", "no"}
    ours = cross_val_score(LinearModel(2.0), data.X, data.y[:, 0], cv=4)
    theirs = cross_val_score(Ridge(2.0), data.X, data.y[:, 0], cv=4)
    np.testing.assert_allclose(ours, theirs, rtol=1e-9)


@pytest.mark.parametrize("targets", [None, 3])
def test_a_linear_model_has_the_attributes_of_ridge(targets: int | None) -> None:
    rng = np.random.default_rng(1)
    X = rng.standard_normal((50, 4))
    y = rng.standard_normal(50 if targets is None else (50, targets))
    weight = rng.integers(3, size=50) * 1.0
    for intercept in (True, False):
        ours = LinearModel(2.0, fit_intercept=intercept).fit(X, y, sample_weight=weight)
        theirs = Ridge(2.0, fit_intercept=intercept).fit(X, y, sample_weight=weight)
        assert np.shape(ours.coef_) == np.shape(theirs.coef_)
        np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-10)
        np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=1e-12)
        assert ours.n_features_in_ == theirs.n_features_in_
        np.testing.assert_allclose(ours.score(X, y, weight), theirs.score(X, y, weight))


@pytest.mark.parametrize(
    "labels", [[0, 1], [False, True], [3, 7], ["no", "yes"], [0.0, 2.0], ["a", "b", "c"], [5, 1, 3]]
)
def test_a_logistic_model_has_the_attributes_of_its_counterpart(labels: list[Any]) -> None:
    rng = np.random.default_rng(2)
    X = rng.standard_normal((90, 4))
    index = (X[:, 0] + rng.standard_normal(90) > 0) * 1 + (X[:, 1] > 0.5) * (len(labels) > 2)
    y = np.array(labels)[index]
    ours = LogisticModel(0.5).fit(X, y)
    theirs: Any = LogisticRegression(C=2.0, tol=1e-12, max_iter=100, solver="newton-cholesky")
    if len(labels) > 2:
        theirs = OneVsRestClassifier(theirs)
    theirs.fit(X, y)
    assert ours.classes_.dtype == theirs.classes_.dtype
    np.testing.assert_array_equal(ours.classes_, theirs.classes_)
    parts = theirs.estimators_ if len(labels) > 2 else [theirs]
    np.testing.assert_allclose(ours.coef_, np.vstack([one.coef_ for one in parts]), rtol=1e-6)
    intercepts = np.concatenate([one.intercept_ for one in parts])
    np.testing.assert_allclose(ours.intercept_, intercepts, rtol=1e-6)
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), rtol=1e-6)
    np.testing.assert_allclose(ours.decision_function(X), theirs.decision_function(X), rtol=1e-5)
    assert ours.score(X, y) == theirs.score(X, y)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_weight_0_change_nothing_until_they_get_one(kind: Kind) -> None:
    data = make("benign", kind.kind.value)
    X, y = data.X, data.y[:, 0]
    weight = np.where(np.arange(len(X)) % 4 == 0, 0.0, 1.5)
    has = weight > 0
    model = kind().fit(X, y, sample_weight=weight)
    ids = np.array(model.live_ids)
    plain = kind().fit(X[has], y[has], ids=ids[has].tolist(), sample_weight=weight[has])
    bound = 2 * (model.error.bound or np.inf) + 1e-12
    assert np.linalg.norm(model.theta - plain.theta) <= bound
    before = model.theta
    model.delete(ids[~has][:5].tolist(), "exact")
    np.testing.assert_array_equal(model.theta, before)
    model.delete(ids[has][:5].tolist(), "exact")
    plain.delete(ids[has][:5].tolist(), "exact")
    np.testing.assert_allclose(model.theta, plain.theta, rtol=0, atol=bound)
    model.correct(X[[20]], y[[20]], ["20"], [1.5], method="exact")
    plain.insert(X[[20]], y[[20]], ["20"], [1.5], method="exact")
    np.testing.assert_allclose(model.theta, plain.theta, rtol=0, atol=bound)
    with pytest.raises(InvalidData, match="weight of row 0 is below 0: -1"):
        model.insert(X[:1], y[:1], ["new"], sample_weight=[-1.0])
    assert not model.leverage(ids[~has][6:].tolist()).any()


def test_a_class_whose_rows_have_no_weight_has_none() -> None:
    rng = np.random.default_rng(3)
    X, y = rng.standard_normal((30, 2)), np.arange(30) % 2
    model = LogisticModel().fit(X, y, sample_weight=1.0 * (y == 1))
    assert model.intercept_penalised
    assert np.all(model.predict(X) == 1)


def test_a_model_of_which_only_rows_without_weight_are_left_is_empty() -> None:
    rng = np.random.default_rng(4)
    X, y = rng.standard_normal((12, 2)), rng.standard_normal(12)
    weight = np.r_[np.ones(6), np.zeros(6)]
    model = LinearModel().fit(X, y, sample_weight=weight)
    model.delete([str(i) for i in range(6)])
    assert not model.theta.any()
    assert model.error.value == 0.0
    model.insert(X[:6], y[:6], [f"n{i}" for i in range(6)])
    fresh = LinearModel().fit(X[:6], y[:6])
    np.testing.assert_allclose(model.theta, fresh.theta, rtol=1e-12)
