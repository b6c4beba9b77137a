"""Weights of classes: the models of a weighted refit, through deletions, inserts, corrections."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from lethe import LinearModel, LogisticModel, PoissonModel, SoftmaxModel
from lethe.engine.errors import InvalidData
from lethe.engine.fitted_balanced import BalancedLinear

N, D = 90, 4
TWO = {0: 0.5, 1: 5.0}
THREE = {"a": 2.0, "c": 0.3}
_EXACT = 1e-9


class Mirror:
    """A model beside the rows that it should have, and scikit-learn's refit of them."""

    def __init__(self, model: Any, refit: Any, classes: list[Any], seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.model, self.refit, self.classes = model, refit, classes
        self.X = {str(i): self.rng.normal(size=D) for i in range(N)}
        self.y = {name: self._label() for name in self.X}
        model.fit(self._table(), self._targets(self.y.values()), list(self.X))

    def _label(self) -> Any:
        return self.classes[int(self.rng.integers(len(self.classes)))]

    def _table(self) -> Any:
        return np.array(list(self.X.values()))

    def _targets(self, labels: Any) -> Any:
        """Return labels as the model has them: of a linear one -1 and 1, a column a class."""
        given = np.array(list(labels))
        if isinstance(self.model, LogisticModel):
            return given
        signs = np.where(given[:, None] == np.array(self.classes), 1.0, -1.0)
        return signs[:, 1] if len(self.classes) == 2 else signs

    def change(self) -> None:
        """Delete, insert or correct a row, of any class."""
        some, names = str(N + len(self.y) + int(self.rng.integers(10**9))), list(self.X)
        match int(self.rng.integers(3)):
            case 0:
                self.delete(names[int(self.rng.integers(len(names)))])
                return
            case 1:
                step = self.model.insert
            case _:
                some, step = names[int(self.rng.integers(len(names)))], self.model.correct
        self.X[some], self.y[some] = self.rng.normal(size=D), self._label()
        step([self.X[some]], self._targets([self.y[some]]), [some], method="exact")

    def delete(self, name: str) -> None:
        self.model.delete([name], "exact")
        del self.X[name], self.y[name]

    def apart(self) -> float:
        """Return the largest distance of a coefficient from the refit."""
        refit = clone(self.refit).fit(self._table(), np.array(list(self.y.values())))
        theirs = np.vstack([np.atleast_2d(refit.coef_).T, np.reshape(refit.intercept_, (1, -1))])
        return float(np.max(np.abs(self.model.published - theirs)))


def _linear(weight: Any, of_linear: Any, classes: list[Any], **options: Any) -> Mirror:
    refit = RidgeClassifier(2.0, class_weight=weight, solver="svd")
    return Mirror(LinearModel(2.0, class_weight=of_linear, **options), refit, classes)


@pytest.mark.parametrize("rounded", [200, 0])
@pytest.mark.parametrize(
    ("weight", "of_linear", "classes"),
    [
        (TWO, {-1: 0.5, 1: 5.0}, [0, 1]),
        (THREE, {0: 2.0, 2: 0.3}, ["a", "b", "c"]),
        ("balanced", "balanced", [0, 1]),
        ("balanced", "balanced", ["a", "b", "c"]),
    ],
)
def test_a_linear_model_is_the_refitted_ridge_classifier(
    weight: Any, of_linear: Any, classes: list[Any], rounded: int
) -> None:
    mirror = _linear(weight, of_linear, classes, rounded_features=rounded)
    for _ in range(12):
        for _ in range(10):
            mirror.change()
        assert mirror.apart() < _EXACT
    mirror.model.refresh("rebuild")
    assert mirror.apart() < _EXACT


@pytest.mark.parametrize("rounded", [200, 0])
def test_five_thousand_changes_and_then_deletions_until_a_class_has_two_rows(rounded: int) -> None:
    mirror, apart = _linear("balanced", "balanced", [0, 1], rounded_features=rounded), list[float]()
    for done in range(5000):
        mirror.change()
        if done % 20 == 0:
            apart.append(mirror.apart())
    for name in [name for name, label in mirror.y.items() if label == 1][:-2]:
        mirror.delete(name)
        apart.append(mirror.apart())
    assert max(apart) < 1e-12


def test_balanced_weights_follow_until_a_class_has_two_rows_and_then_none() -> None:
    mirror = _linear("balanced", "balanced", [0, 1])
    ones = [name for name, label in mirror.y.items() if label == 1]
    for name in ones[:-2]:
        mirror.delete(name)
        assert mirror.apart() < _EXACT
    for name in ones[-2:]:
        mirror.delete(name)
    assert isinstance(mirror.model._fitted, BalancedLinear)
    left = LinearModel(2.0).fit(mirror._table(), -np.ones(len(mirror.y)))
    np.testing.assert_allclose(mirror.model.published, left.published, atol=_EXACT)
    mirror.model.delete(list(mirror.X))
    assert not mirror.model.published.any()
    mirror.model.insert(np.eye(D), [1, 1, -1, -1], list("wxyz"))
    again = LinearModel(2.0).fit(np.eye(D), [1, 1, -1, -1])
    np.testing.assert_allclose(mirror.model.published, again.published, atol=_EXACT)


@pytest.mark.parametrize("weight", [TWO, "balanced"])
def test_a_logistic_model_is_the_refitted_regression(weight: Any) -> None:
    refit = LogisticRegression(class_weight=weight, solver="newton-cholesky", tol=1e-12)
    mirror = Mirror(LogisticModel(class_weight=weight), refit, [0, 1])
    for i in range(40):
        mirror.change()
        if weight == "balanced":  # each change is a refit
            assert mirror.apart() < 1e-8, i
            assert mirror.model.error.bound is not None
    mirror.model.refresh("rebuild")
    assert mirror.apart() < 1e-8


def test_a_correction_keeps_a_rows_own_weight_and_takes_that_of_its_new_class() -> None:
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(30, D)), np.arange(30) % 2
    own = np.where(np.arange(30) == 4, 3.0, 1.0)
    model = LogisticModel(class_weight=TWO).fit(X, y, sample_weight=own)
    model.correct(X[4:6], [1, 0], ["4", "5"]).error  # noqa: B018
    model.refresh("rebuild")
    y[4], y[5] = 1, 0
    fresh = LogisticModel(class_weight=TWO).fit(X, y, sample_weight=own)
    np.testing.assert_allclose(model.published, fresh.published, atol=1e-10)


def _in_pipeline(estimator: Any) -> Any:
    coded = OneHotEncoder(handle_unknown="ignore")
    columns = make_column_transformer((StandardScaler(), ["a"]), (coded, ["town"]))
    return make_pipeline(columns, estimator)


@pytest.mark.parametrize("whole", [_in_pipeline, lambda estimator: estimator])
@pytest.mark.parametrize("labels", ["0 1", "false true", "no yes", "1 2"])
@pytest.mark.parametrize("balanced", [True, False])
@pytest.mark.parametrize("linear", [True, False])
def test_a_converted_classifier_forgets_as_its_clone_is_refitted(
    whole: Callable[[Any], Any], labels: str, balanced: bool, linear: bool
) -> None:
    rng = np.random.default_rng(2)
    X = pd.DataFrame({"a": rng.normal(3, 2, 120), "town": rng.choice(list("uvw"), 120)})
    y = rng.choice(labels.split(), 120)
    keys: list[Any] = labels.split()
    if labels != "no yes":  # scikit-learn looks for whole numbers, also of text
        keys = [1, 2] if labels == "1 2" else [0, 1]
        y = (
            y
            if labels == "1 2"
            else (y == labels.split()[1]).astype(bool if labels == "false true" else int)
        )
    weight: Any = "balanced" if balanced else dict(zip(keys, (0.4, 3.0), strict=True))
    final = LogisticRegression(class_weight=weight, solver="newton-cholesky", tol=1e-12)
    model: Any = LogisticModel
    if linear:
        final, model = RidgeClassifier(class_weight=weight, solver="svd"), LinearModel
    table = X if whole is _in_pipeline else X[["a"]]
    given = whole(final).fit(table, y)
    made = model.from_sklearn(given, table, y)
    assert made.converted_from_.relative < 1e-8
    gone = rng.choice(120, 50, replace=False)
    made.delete([str(i) for i in gone], "exact")
    made.refresh("rebuild")
    left = np.setdiff1d(np.arange(120), gone)
    refit = clone(given).fit(table.iloc[left], y[left]).decision_function(table.iloc[left])
    ours = made.predict if linear else made.decision_function
    np.testing.assert_allclose(ours(table.iloc[left]), refit, atol=1e-8)
    if not linear:  # what comes back is refitted to the same
        back = clone(made.to_sklearn()).fit(table.iloc[left], y[left])
        np.testing.assert_allclose(back.decision_function(table.iloc[left]), refit, atol=1e-3)


@pytest.mark.parametrize(
    ("model", "y", "message"),
    [
        (LogisticModel(class_weight={2: 1.0}), [0, 1, 1], "2 is none of the classes, 0, 1"),
        (LogisticModel(class_weight={0: 0.0}), [0, 1, 1], "the weight of 0 must be"),
        (LogisticModel(class_weight={0: True}), [0, 1, 1], "the weight of 0 must be"),
        (LogisticModel(class_weight="equal"), [0, 1, 1], "must be None, 'balanced', or"),  # type: ignore[arg-type]
        (LinearModel(class_weight="balanced"), [0, 1, 1], "the target of row 0 is no class"),
        (LinearModel(class_weight={1: 2.0}), [[1, 1], [1, -1], [-1, 1]], "row 0 is no class"),
        (PoissonModel(class_weight="balanced"), [0, 1, 1], "a Poisson model has none"),
    ],
)
def test_weights_that_are_of_no_class_are_refused(model: Any, y: Any, message: str) -> None:
    with pytest.raises(InvalidData, match=message):
        model.fit(np.eye(3), y)


def test_balanced_weights_go_without_weights_of_rows_and_without_diagnostics() -> None:
    X, y = np.random.default_rng(3).normal(size=(20, 2)), np.arange(20) % 2
    model = LogisticModel(class_weight="balanced")
    with pytest.raises(InvalidData, match="goes without sample_weight"):
        model.fit(X, y, sample_weight=np.ones(20))
    model.fit(X, y)
    with pytest.raises(InvalidData, match="goes without sample_weight"):
        model.insert(X[:1], [1], ["x"], [2.0])
    with pytest.raises(InvalidData, match="balanced class weights"):
        model.leave_one_out()


def test_a_change_that_is_refused_changes_nothing() -> None:
    mirror = _linear("balanced", "balanced", [0, 1])
    before = mirror.model.published.copy()
    for X, y in (([[1.0] * D], [0.5]), ([[1e300] * D], [1.0])):
        with pytest.raises(InvalidData):
            mirror.model.insert(X, y, ["x"])
        assert np.array_equal(mirror.model.published, before)
    mirror.delete("0")
    assert mirror.apart() < _EXACT


def test_a_softmax_model_has_weights_of_classes_too() -> None:
    rng = np.random.default_rng(4)
    X, y = rng.normal(size=(60, 3)), rng.choice(["a", "b", "c"], 60)
    for weight in (THREE, "balanced"):
        model = SoftmaxModel(class_weight=weight).fit(X, y)
        model.delete([str(i) for i in range(20)], "exact")
        model.refresh("rebuild")
        refit = LogisticRegression(class_weight=weight, solver="newton-cholesky", tol=1e-12)
        refit.fit(X[20:], y[20:])
        np.testing.assert_allclose(model.coef_, refit.coef_, atol=1e-8)


def test_weights_of_each_one_vs_rest_problem_are_refused_with_a_way_out() -> None:
    X, y = np.random.default_rng(5).normal(size=(30, 2)), np.arange(30) % 3
    given = OneVsRestClassifier(LogisticRegression(class_weight="balanced")).fit(X, y)
    with pytest.raises(InvalidData, match="of each class as its own model"):
        LogisticModel.from_sklearn(given, X, y)
