"""From scikit-learn's estimators to models, and back."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import (
    ElasticNet,
    Lasso,
    LinearRegression,
    LogisticRegression,
    PoissonRegressor,
    Ridge,
    RidgeClassifier,
    RidgeCV,
    SGDClassifier,
)
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from sklearn.svm import LinearSVC

from lethe import LinearModel, LogisticModel
from lethe.engine.conversion import final_of
from lethe.engine.errors import InvalidData
from lethe.engine.fit.objective import Array


def table(classes: int = 2) -> tuple[Array, Array, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(6)
    X = rng.standard_normal((150, 5))
    y = X @ np.arange(1.0, 6.0) + rng.standard_normal(150)
    edges = np.quantile(y, np.linspace(0, 1, classes + 1)[1:-1])
    return X, y, np.array(["a", "b", "c", "d"])[np.digitize(y, edges)]


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("targets", [1, 3])
def test_a_ridge_becomes_a_model_and_a_ridge_again(intercept: bool, targets: int) -> None:
    X, y, _ = table()
    Y = y if targets == 1 else np.column_stack([y, -y, y**2])
    theirs = Ridge(alpha=2.5, fit_intercept=intercept).fit(X, Y)
    model = LinearModel.from_sklearn(theirs, X, Y, ids=[f"row {i}" for i in range(len(X))])
    assert model.converted_from_ is not None
    assert model.converted_from_.relative < 1e-12
    model.delete(["row 3", "row 5"], method="exact")
    kept = np.setdiff1d(np.arange(len(X)), [3, 5])
    back = model.to_sklearn()
    assert isinstance(back, Ridge)
    np.testing.assert_allclose(back.predict(X), model.predict(X), rtol=1e-12, atol=1e-12)
    afresh = clone(back).fit(X[kept], Y[kept])
    np.testing.assert_allclose(back.coef_, afresh.coef_, rtol=1e-9)
    assert np.shape(back.coef_) == np.shape(afresh.coef_)
    assert np.shape(back.intercept_) == np.shape(afresh.intercept_)


@pytest.mark.parametrize("classes", [2, 3])
def test_a_logistic_regression_becomes_a_model_and_one_again(classes: int) -> None:
    X, _, labels = table(classes)
    theirs: Any = LogisticRegression(C=0.4)
    if classes > 2:
        theirs = OneVsRestClassifier(theirs)
    theirs.fit(X, labels)
    model = LogisticModel.from_sklearn(theirs, X, labels)
    assert model.converted_from_ is not None
    # scikit-learn's default tolerance leaves it away from its own optimum, and that is said.
    assert 1e-9 < model.converted_from_.relative < 0.05
    back = model.to_sklearn()
    assert type(back) is type(theirs)
    np.testing.assert_array_equal(back.predict(X), model.predict(X))
    np.testing.assert_allclose(back.predict_proba(X), model.predict_proba(X), rtol=1e-12)
    np.testing.assert_array_equal(back.classes_, theirs.classes_)
    clone(back).fit(X, labels)


@pytest.mark.parametrize(
    ("classes", "before"),
    [
        (2, None),
        (3, None),
        (2, PolynomialFeatures(2, include_bias=False)),
        (2, StandardScaler(with_std=False)),
    ],
)
def test_liblinear_penalises_the_intercept_and_so_does_the_model(classes: int, before: Any) -> None:
    X, _, labels = table(classes)
    X = X - 0.7  # so that the intercept, and with it its penalty, is not small
    theirs: Any = LogisticRegression(solver="liblinear", C=0.3, tol=1e-12, max_iter=10_000)
    if classes > 2:
        theirs = OneVsRestClassifier(theirs)
    if before is not None:
        theirs = make_pipeline(before, theirs)
    theirs.fit(X, labels)
    model = LogisticModel.from_sklearn(theirs, X, labels)
    assert model.converted_from_ is not None
    assert model.converted_from_.relative < 1e-6
    model.delete(["0", "1", "2", "3"])
    model.refresh("rebuild")
    refit = clone(theirs).fit(X[4:], labels[4:])
    free = clone(theirs).set_params(**_FREE[classes, before is None]).fit(X[4:], labels[4:])
    truth = refit.predict_proba(X)
    assert np.abs(free.predict_proba(X) - truth).max() > 1e-3
    back = model.to_sklearn()
    np.testing.assert_allclose(model.predict_proba(X), truth, atol=1e-7)
    np.testing.assert_allclose(back.predict_proba(X), truth, atol=1e-7)
    again = clone(back).set_params(**_TIGHT[classes, before is None]).fit(X[4:], labels[4:])
    np.testing.assert_allclose(again.predict_proba(X), truth, atol=1e-7)


_FREE = {
    (2, True): {"solver": "newton-cholesky"},
    (2, False): {"logisticregression__solver": "newton-cholesky"},
    (3, True): {"estimator__solver": "newton-cholesky"},
}
_TIGHT: dict[tuple[int, bool], dict[str, Any]] = {
    (2, True): {"tol": 1e-12, "max_iter": 10_000},
    (2, False): {"model__tol": 1e-12, "model__max_iter": 10_000},
    (3, True): {"estimator__tol": 1e-12, "estimator__max_iter": 10_000},
}


def test_a_ridge_classifier_is_a_linear_model_of_signs() -> None:
    X, _, labels = table()
    theirs = RidgeClassifier(alpha=3.0).fit(X, labels)
    model = LinearModel.from_sklearn(theirs, X, labels)
    signs = model.predict(X) > 0
    np.testing.assert_array_equal(theirs.classes_[signs.astype(int)], theirs.predict(X))


@pytest.mark.parametrize(
    ("estimator", "model", "message"),
    [
        (Lasso(), LinearModel, "its penalty is l1"),
        (ElasticNet(), LinearModel, "an l1 part"),
        (LinearRegression(), LinearModel, "it has no penalty"),
        (RidgeCV(), LinearModel, "the rows chose its alpha"),
        (Ridge(alpha=0.0), LinearModel, "alpha=0.0 is not a single ridge"),
        (Ridge(positive=True), LinearModel, "positive=True"),
        (Ridge(), LogisticModel, "use LinearModel.from_sklearn"),
        (LogisticRegression(), LinearModel, "use LogisticModel.from_sklearn"),
        (LogisticRegression(class_weight={"a": 0.0, "b": 1.0}), LogisticModel, "class_weight"),
        (
            LogisticRegression(C=np.inf),
            LogisticModel,
            "C=inf is no penalty; fit it with",
        ),
        (
            LogisticRegression(solver="liblinear", intercept_scaling=2.0),
            LogisticModel,
            "intercept_scaling=2.0 weakens the penalty of the intercept",
        ),
        (
            make_pipeline(
                StandardScaler(), LogisticRegression(solver="liblinear", fit_intercept=False)
            ),
            LogisticModel,
            "column 0, LogisticRegression: with fit_intercept=False .* mean of a standardised",
        ),
        (
            LogisticRegression(solver="saga", l1_ratio=0.5),
            LogisticModel,
            "l1_ratio=0.5 has an l1 part",
        ),
        (SGDClassifier(), LogisticModel, "it stops before its optimum"),
        (LinearSVC(), LogisticModel, "its loss is the hinge"),
        (PoissonRegressor(), LinearModel, "use PoissonModel.from_sklearn"),
    ],
    ids=lambda value: type(value).__name__ if hasattr(value, "get_params") else None,
)
@pytest.mark.filterwarnings("ignore")
def test_another_objective_is_refused_by_name(estimator: Any, model: Any, message: str) -> None:
    X, y, labels = table()
    target = labels if is_classifier(estimator) else y
    if isinstance(estimator, PoissonRegressor):
        target = np.abs(y)
    with pytest.raises(InvalidData, match=message) as refused:
        model.from_sklearn(estimator.fit(X, target), X, target)
    assert type(final_of(estimator)).__name__ in str(refused.value)


def test_what_is_not_fitted_or_has_other_rows_is_refused() -> None:
    X, y, labels = table()
    with pytest.raises(InvalidData, match="fit"):
        LinearModel.from_sklearn(Ridge(), X, y)
    with pytest.raises(InvalidData, match="is a class"):
        LinearModel.from_sklearn(Ridge, X, y)
    with pytest.raises(InvalidData, match="X has 4 columns"):
        LinearModel.from_sklearn(Ridge().fit(X, y), X[:, :4], y)
    three = table(3)[2]
    with pytest.raises(InvalidData, match=r"multinomial loss; use SoftmaxModel.from_sklearn"):
        LogisticModel.from_sklearn(LogisticRegression().fit(X, three), X, three)
    with pytest.raises(InvalidData, match="has the labels"):
        LogisticModel.from_sklearn(LogisticRegression().fit(X, labels), X, three)


@pytest.mark.parametrize("intercept", [True, False])
def test_the_distance_is_to_the_optimum_of_the_weighted_rows(intercept: bool) -> None:
    X, y, _ = table()
    weight = np.arange(150) % 3 * 1.0
    given = Ridge(3.0, fit_intercept=intercept, solver="lsqr", tol=1e-2).fit(X, y, weight)
    model = LinearModel.from_sklearn(given, X, y, sample_weight=weight)
    exact = Ridge(3.0, fit_intercept=intercept, solver="svd").fit(X, y, weight)
    np.testing.assert_allclose(model.coef_, exact.coef_, rtol=1e-10)
    apart = np.append(given.coef_ - exact.coef_, given.intercept_ - exact.intercept_)
    assert model.converted_from_ is not None
    assert model.converted_from_.distance == pytest.approx(np.linalg.norm(apart), rel=1e-6)
    assert str(model.converted_from_).startswith("this Ridge was ")
    assert model.fit(X, y).converted_from_ is None


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (Ridge(), "targets and weights that it was fitted on: no tolerance"),
        (LogisticRegression(tol=1e-10), "targets and weights that it was fitted on: no tolerance"),
        (LogisticRegression(tol=1e-3), r"fit it with tol=1e-\d\d, on the rows given, to move it"),
    ],
)
def test_no_tolerance_is_named_that_would_not_help(estimator: Any, message: str) -> None:
    X, y, labels = table()
    target = labels if is_classifier(estimator) else y
    model: Any = LogisticModel if is_classifier(estimator) else LinearModel
    made = model.from_sklearn(estimator.fit(X, target), X, target[::-1])
    assert re.search(message, made.converted_from_.warning)


@pytest.mark.parametrize("estimator", [Ridge(), LogisticRegression()])
def test_what_is_not_fitted_is_refused_as_scikit_learn_does(estimator: Any) -> None:
    X, _, labels = table()
    kind: Any = LinearModel if isinstance(estimator, Ridge) else LogisticModel
    with pytest.raises(NotFittedError, match="is not fitted; fit it first"):
        kind.from_sklearn(estimator, X, labels)


def test_a_subclass_may_minimise_something_else() -> None:
    class Other(Ridge):  # type: ignore[misc]
        pass

    X, y, _ = table()
    with pytest.raises(InvalidData, match="Other: it minimises another objective"):
        LinearModel.from_sklearn(Other().fit(X, y), X, y)


@pytest.mark.parametrize("inner", [LinearSVC(), LogisticRegression(class_weight={1: 2.0})])
def test_the_parts_of_a_one_vs_rest_classifier_are_checked(inner: Any) -> None:
    X, _, labels = table(3)
    given = OneVsRestClassifier(inner).fit(X, labels)
    with pytest.raises(InvalidData, match=r"is a LinearSVC|class_weight weighs a row anew"):
        LogisticModel.from_sklearn(given, X, labels)


def test_a_frame_must_have_the_columns_of_the_estimator() -> None:
    X, y, _ = table()
    frame = pd.DataFrame(X, columns=list("abcde"))
    given = Ridge().fit(frame, y)
    with pytest.raises(InvalidData, match="Feature names must be in the same order"):
        LinearModel.from_sklearn(given, frame[list("edcba")], y)
    model = LinearModel.from_sklearn(given, frame, y)
    assert model.to_sklearn().feature_names_in_.tolist() == list("abcde")


@pytest.mark.parametrize("classes", [0, 2, 3])
def test_what_comes_back_holds_only_values_that_need_no_pickle(classes: int) -> None:
    """skops trusts scikit-learn's own classes, arrays of numbers or text, and plain values."""
    X, y, _ = table()
    labels = table(classes)[2] if classes else y
    model: Any = LogisticModel() if classes else LinearModel()
    model.fit(pd.DataFrame(X, columns=list("abcde")), labels).delete(["1", "2"])
    waiting, own = [model.to_sklearn()], 0
    while waiting:
        value = waiting.pop()
        if type(value).__module__.startswith("sklearn."):
            waiting += vars(value).values()
            own += 1
        elif isinstance(value, list):
            waiting += value
        elif isinstance(value, np.ndarray) and value.dtype.kind == "O":
            waiting += value.tolist()
        else:
            assert isinstance(value, int | float | str | np.ndarray | np.generic | None)
    assert own == {0: 1, 2: 1, 3: 6}[classes]
