"""The table of scikit-learn's estimators whose objective a model has, and the refusals by name.

A converter reads a fitted estimator, whose parameters were checked, and its labels, and returns
them in a model's terms. To add one, write the function, put it into `CONVERTERS` and its parameters
into `engine.conversion.parameters`; estimators are found by their exact class, as a subclass may
minimise something else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.linear_model import LogisticRegression, PoissonRegressor, Ridge, RidgeClassifier
from sklearn.multiclass import OneVsRestClassifier

from lethe.engine.conversion.parameters import check_parameters, weighed_as
from lethe.engine.conversion.steps import Step
from lethe.engine.errors import InvalidData
from lethe.engine.fit.class_weights import ClassWeight
from lethe.engine.fit.objective import Array, Kind

Converter = Callable[[Step, ArrayLike], "ModelTerms"]


@dataclass(frozen=True, slots=True)
class ModelTerms:
    """An estimator in the terms of a model.

    Attributes
    ----------
    ridge, fit_intercept
        The model's parameters that give the same objective.
    y
        The targets or labels that the model is fitted on.
    theta
        Parameters of the estimator, d x m, the intercept last if there is one.
    class_weight
        The model's weights of classes, if any.
    of_mean
        Whether the estimator's loss is a mean: ``ridge`` is then that of a row of weight 1.
    penalise_intercept
        Whether the intercept is, as the coefficients are.
    """

    ridge: float
    fit_intercept: bool
    y: ArrayLike
    theta: Array
    class_weight: ClassWeight | None = None
    of_mean: bool = False
    penalise_intercept: bool = False


def convert_ridge(step: Step, y: ArrayLike) -> ModelTerms:
    """Read a Ridge."""
    ridge = step.estimator
    return ModelTerms(_alpha(ridge), bool(ridge.fit_intercept), y, _theta(ridge))


def convert_ridge_classifier(step: Step, y: ArrayLike) -> ModelTerms:
    """Read a RidgeClassifier: a ridge regression of -1 and 1, of several classes a column each."""
    classifier = step.estimator
    labels = _known_labels(step, y)
    targets = np.where(labels[:, None] == classifier.classes_, 1.0, -1.0)
    signed = targets[:, 1] if len(classifier.classes_) == 2 else targets
    intercept = bool(classifier.fit_intercept)
    return ModelTerms(_alpha(classifier), intercept, signed, _theta(classifier))


def convert_logistic(step: Step, y: ArrayLike) -> ModelTerms:
    """Read a LogisticRegression of two classes; raise `InvalidData` on more."""
    logistic = step.estimator
    if len(logistic.classes_) > 2:
        raise step.refusal(
            f"with {len(logistic.classes_)} classes it minimises the multinomial loss; use "
            "SoftmaxModel.from_sklearn, or fit OneVsRestClassifier(LogisticRegression(...))"
        )
    _known_labels(step, y)
    return _logistic_terms(logistic, y, _theta(logistic))


def convert_softmax(step: Step, y: ArrayLike) -> ModelTerms:
    """Read a LogisticRegression of more than two classes; raise `InvalidData` on two.

    The same number added to every intercept changes no prediction: they are read with the sum 0.
    """
    logistic = step.estimator
    if len(logistic.classes_) < 3:
        raise step.refusal("with two classes it is a LogisticModel; use LogisticModel.from_sklearn")
    for parameter, value in (("solver", "liblinear"), ("multi_class", "ovr")):
        if getattr(logistic, parameter, None) == value:
            raise step.refusal(
                f"{parameter}={value!r} fits each class against the rest; fit it with another, or "
                "OneVsRestClassifier(LogisticRegression(...)) for LogisticModel"
            )
    _known_labels(step, y)
    theta = _theta(logistic)
    if logistic.fit_intercept:
        theta[-1] -= theta[-1].mean()
    return ModelTerms(1.0 / float(logistic.C), bool(logistic.fit_intercept), y, theta)


def convert_poisson(step: Step, y: ArrayLike) -> ModelTerms:
    """Read a PoissonRegressor, whose objective is the mean half deviance and alpha / 2 |w|^2."""
    poisson = step.estimator
    intercept = bool(poisson.fit_intercept)
    return ModelTerms(float(poisson.alpha), intercept, y, _theta(poisson), of_mean=True)


def convert_one_vs_rest(step: Step, y: ArrayLike) -> ModelTerms:
    """Read a OneVsRestClassifier of LogisticRegressions, one of each class."""
    whole = step.estimator
    inner = step.below("estimator", whole.estimator)
    if type(inner.estimator) is not LogisticRegression:
        raise step.refusal(
            f"its inner estimator is a {inner.name}, but a model is made only from a "
            "LogisticRegression; fit it with LogisticRegression()"
        )
    check_parameters(inner.estimator, inner.where)
    if inner.estimator.class_weight is not None:
        raise inner.refusal(_WEIGHTS_OF_EACH)
    if whole.multilabel_:
        raise step.refusal(_SEVERAL_LABELS)
    parts = whole.estimators_
    if any(type(part) is not LogisticRegression for part in parts):
        raise step.refusal("some class has no row, or every one; leave that class out")
    _known_labels(step, y)
    theta = np.hstack([_theta(part) for part in parts])
    return _logistic_terms(inner.estimator, y, theta)


def _logistic_terms(logistic: Any, y: ArrayLike, theta: Array) -> ModelTerms:
    intercept = bool(logistic.fit_intercept)
    penalised = intercept and logistic.solver == "liblinear"
    return ModelTerms(1.0 / float(logistic.C), intercept, y, theta, penalise_intercept=penalised)


_WEIGHTS_OF_EACH = (
    "class_weight weighs a row anew in the problem of each class, and a row of a model has one "
    "weight in all of them; fit it without, or a LogisticRegression of each class as its own model"
)

_SEVERAL_LABELS = "its rows have several labels each, and a model's have one; fit one of each label"

CONVERTERS: Mapping[type, Mapping[Kind, Converter]] = MappingProxyType(
    {
        Ridge: {Kind.LINEAR: convert_ridge},
        RidgeClassifier: {Kind.LINEAR: convert_ridge_classifier},
        LogisticRegression: {Kind.LOGISTIC: convert_logistic, Kind.SOFTMAX: convert_softmax},
        OneVsRestClassifier: {Kind.LOGISTIC: convert_one_vs_rest},
        PoissonRegressor: {Kind.POISSON: convert_poisson},
    }
)
"""Estimators whose objective a model has: what reads them, for each kind of model."""

REFUSED: Mapping[str, str] = MappingProxyType(
    {
        "ElasticNet": "its penalty has an l1 part; fit Ridge",
        "Lasso": "its penalty is l1; fit Ridge",
        "LinearRegression": "it has no penalty; fit Ridge with a small alpha",
        "LinearSVC": "its loss is the hinge; fit LogisticRegression",
        "LogisticRegressionCV": "the rows chose its C; fit LogisticRegression(C=...) with that",
        "Perceptron": "its objective has no unique minimum; fit LogisticRegression",
        "RidgeCV": "the rows chose its alpha; fit Ridge(alpha=...) with that",
        "RidgeClassifierCV": "the rows chose its alpha; fit RidgeClassifier(alpha=...) with that",
        "GridSearchCV": "it is a search; give its best_estimator_",
        "RandomizedSearchCV": "it is a search; give its best_estimator_",
        "SGDClassifier": "it stops before its optimum; fit LogisticRegression",
        "SGDRegressor": "it stops before its optimum; fit Ridge",
    }
)
"""Why others are refused, where there is more to say than that their objective is another."""


def convert(step: Step, y: ArrayLike, kind: Kind, model: str) -> ModelTerms:
    """Return a fitted estimator and its labels in the terms of a model of this kind.

    Raises
    ------
    InvalidData
        Its objective is not that of such a model, or the labels are not its.
    NotFitted
        It is not.
    """
    estimator = step.estimator
    if isinstance(estimator, type):
        raise InvalidData(f"{estimator.__name__} is a class; give a fitted estimator")
    if type(estimator) not in CONVERTERS:
        known = ", ".join(one.__name__ for one, kinds in CONVERTERS.items() if kind in kinds)
        why = REFUSED.get(step.name, "it minimises another objective, or none")
        raise step.refusal(f"{why}. {model} is made from {known}; fit one of these")
    kinds = CONVERTERS[type(estimator)]
    if kind not in kinds:
        other = " or ".join(f"{of.title()}Model.from_sklearn" for of in kinds)
        raise step.refusal(f"use {other}; {model} has another objective")
    check_parameters(estimator, step.where)
    step.check_fitted()
    return replace(kinds[kind](step, y), class_weight=_class_weight(estimator, kind))


def kind_of(step: Step) -> Kind:
    """Return the kind of model that an estimator becomes in the service.

    Raises
    ------
    InvalidData
        It becomes none.
    """
    if type(step.estimator) not in CONVERTERS:
        known = ", ".join(one.__name__ for one in CONVERTERS)
        why = REFUSED.get(step.name, "it minimises another objective, or none")
        raise step.refusal(f"{why}. Models are made from {known}")
    kinds = CONVERTERS[type(step.estimator)]
    if Kind.SOFTMAX in kinds and len(getattr(step.estimator, "classes_", ())) > 2:
        return Kind.SOFTMAX
    return next(iter(kinds))


def _alpha(estimator: Any) -> float:
    """Return the ridge strength of a Ridge or a RidgeClassifier."""
    return float(np.reshape(estimator.alpha, ()))


def _class_weight(estimator: Any, kind: Kind) -> ClassWeight | None:
    """Return the weights of an estimator's classes; None without any."""
    asked = getattr(estimator, "class_weight", None)
    if not isinstance(asked, Mapping):
        return "balanced" if asked == "balanced" else None
    labels = estimator.classes_.tolist()
    keys = labels
    if kind is Kind.LINEAR:  # the targets that the classes become
        keys = [-1, 1] if len(labels) == 2 else range(len(labels))
    given = (float(asked.get(weighed_as(label), 1.0)) for label in labels)
    return dict(zip(keys, given, strict=True)) if asked else None


def _known_labels(step: Step, y: ArrayLike) -> np.ndarray[Any, Any]:
    """Return the labels, (n,); refuse those that are not the estimator's classes."""
    labels = np.asarray(y)
    if labels.ndim == 2 and labels.shape[1] > 1:
        raise step.refusal(_SEVERAL_LABELS)
    labels = labels.reshape(-1)
    found = np.unique(labels)
    classes = step.estimator.classes_.tolist()
    if found.tolist() != classes:
        raise step.refusal(
            f"y has the labels {found.tolist()}, and it was fitted on {classes}; give the rows "
            "that it was fitted on"
        )
    return labels


def _theta(estimator: Any) -> Array:
    """Return coefficients and intercept of a linear estimator, d x m."""
    coefficients = np.atleast_2d(np.asarray(estimator.coef_, dtype=np.float64)).T
    if not estimator.fit_intercept:
        return coefficients
    intercept = np.broadcast_to(estimator.intercept_, (1, coefficients.shape[1]))
    return np.vstack([coefficients, intercept])
