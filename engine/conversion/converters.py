"""The table of scikit-learn's estimators whose objective a model has, and the refusals by name.

A converter reads a fitted estimator and its labels, and returns them in a model's terms. To add
one, write the function and put it into `CONVERTERS`; estimators are found by their exact class, as
a subclass may minimise something else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier
from sklearn.multiclass import OneVsRestClassifier

from lethe.engine.conversion.model_terms import ModelTerms, check_fitted, inverse, refuse
from lethe.engine.conversion.parameters import check_parameters
from lethe.engine.errors import InvalidData
from lethe.engine.fit.objective import Array, Kind

Converter = Callable[[Any, ArrayLike], ModelTerms]


def convert_ridge(estimator: Any, y: ArrayLike) -> ModelTerms:
    """Read a Ridge; raise `InvalidData` on another objective."""
    check_parameters(estimator)
    check_fitted(estimator)
    return ModelTerms(_alpha(estimator), bool(estimator.fit_intercept), y, _theta(estimator))


def convert_ridge_classifier(estimator: Any, y: ArrayLike) -> ModelTerms:
    """Read a RidgeClassifier: a ridge regression of -1 and 1, of several classes a column each."""
    check_parameters(estimator)
    check_fitted(estimator)
    labels = _known_labels(estimator, y)
    targets = np.where(labels[:, None] == estimator.classes_, 1.0, -1.0)
    signed = targets[:, 1] if len(estimator.classes_) == 2 else targets
    return ModelTerms(_alpha(estimator), bool(estimator.fit_intercept), signed, _theta(estimator))


def convert_logistic(estimator: Any, y: ArrayLike) -> ModelTerms:
    """Read a LogisticRegression of two classes; raise `InvalidData` on another objective."""
    _check_logistic(estimator)
    check_fitted(estimator)
    if len(estimator.classes_) > 2:
        raise refuse(
            estimator,
            f"with {len(estimator.classes_)} classes it minimises the multinomial loss; fit "
            "OneVsRestClassifier(LogisticRegression(...))",
        )
    _known_labels(estimator, y)
    return ModelTerms(inverse(estimator.C), bool(estimator.fit_intercept), y, _theta(estimator))


def convert_one_vs_rest(estimator: Any, y: ArrayLike) -> ModelTerms:
    """Read a OneVsRestClassifier of LogisticRegressions, one of each class."""
    check_parameters(estimator)
    if type(estimator.estimator) is not LogisticRegression:
        name = type(estimator.estimator).__name__
        raise refuse(
            estimator,
            f"of a {name}; fit OneVsRestClassifier(LogisticRegression(...)), the only one known",
        )
    _check_logistic(estimator.estimator)
    check_fitted(estimator)
    if estimator.multilabel_:
        raise refuse(estimator, "its rows have several labels each, and a model's have one")
    parts = estimator.estimators_
    if any(type(part) is not LogisticRegression for part in parts):
        raise refuse(estimator, "some class has no row, or every one; leave that class out")
    _known_labels(estimator, y)
    theta = np.hstack([_theta(part) for part in parts])
    inner = estimator.estimator
    return ModelTerms(inverse(inner.C), bool(inner.fit_intercept), y, theta)


CONVERTERS: Mapping[type, tuple[Kind, Converter]] = MappingProxyType(
    {
        Ridge: (Kind.LINEAR, convert_ridge),
        RidgeClassifier: (Kind.LINEAR, convert_ridge_classifier),
        LogisticRegression: (Kind.LOGISTIC, convert_logistic),
        OneVsRestClassifier: (Kind.LOGISTIC, convert_one_vs_rest),
    }
)
"""Estimators whose objective a model has: the model's kind, and what reads them."""

REFUSED: Mapping[str, str] = MappingProxyType(
    {
        "ElasticNet": "its penalty has an l1 part",
        "Lasso": "its penalty is l1",
        "LinearRegression": "it has no penalty; fit Ridge with a small alpha",
        "LinearSVC": "its loss is the hinge",
        "LogisticRegressionCV": "the rows chose its C; fit LogisticRegression(C=...) with that",
        "Perceptron": "it minimises no objective with one minimum",
        "PoissonRegressor": "its loss is that of counts",
        "RidgeCV": "the rows chose its alpha; fit Ridge(alpha=...) with that",
        "RidgeClassifierCV": "the rows chose its alpha; fit RidgeClassifier(alpha=...) with that",
        "SGDClassifier": "it stops before its optimum; fit LogisticRegression",
        "SGDRegressor": "it stops before its optimum; fit Ridge",
    }
)
"""Why others are refused, where there is more to say than that their objective is another."""


def converter_of(estimator: Any, kind: Kind, model: str) -> Converter:
    """Return what reads an estimator.

    Raises
    ------
    InvalidData
        Its objective is not that of a model of this kind.
    """
    name = type(estimator).__name__
    if isinstance(estimator, type):
        raise InvalidData(f"{estimator.__name__} is a class; give a fitted estimator")
    if type(estimator) not in CONVERTERS:
        known = ", ".join(one.__name__ for one, (of, _) in CONVERTERS.items() if of is kind)
        why = REFUSED.get(name, "it minimises another objective")
        raise refuse(estimator, f"{why}. {model} is made from {known}")
    of, converter = CONVERTERS[type(estimator)]
    if of is not kind:
        other = "LinearModel" if of is Kind.LINEAR else "LogisticModel"
        raise refuse(estimator, f"use {other}.from_sklearn; {model} has another objective")
    return converter


def _alpha(estimator: Any) -> float:
    """Return the ridge strength of a Ridge or a RidgeClassifier."""
    if np.size(estimator.alpha) != 1:
        raise refuse(
            estimator,
            "it has an alpha for each target, and a model one for all of them; fit one of each",
        )
    alpha = float(np.reshape(estimator.alpha, ()))
    if not alpha > 0:
        raise refuse(
            estimator,
            f"alpha={alpha:g}, and a model needs a ridge above 0; fit it with a small one",
        )
    return alpha


def _check_logistic(estimator: Any) -> None:
    """Refuse a LogisticRegression whose objective is not that of a `LogisticModel`."""
    if estimator.penalty is None or not np.isfinite(estimator.C):
        raise refuse(estimator, f"C={estimator.C!r} is no penalty; give it a finite C")
    check_parameters(estimator)
    if estimator.solver == "liblinear" and estimator.fit_intercept:
        raise refuse(estimator, "solver='liblinear' penalises the intercept; use another solver")


def _known_labels(estimator: Any, y: ArrayLike) -> np.ndarray[Any, Any]:
    """Return the labels, (n,); refuse those that are not the estimator's classes."""
    labels = np.asarray(y).reshape(-1)
    found = np.unique(labels)
    if found.tolist() != estimator.classes_.tolist():
        raise refuse(
            estimator,
            f"y has the labels {found.tolist()}, and it was fitted on "
            f"{estimator.classes_.tolist()}; give the rows that it was fitted on",
        )
    return labels


def _theta(estimator: Any) -> Array:
    """Return coefficients and intercept of a linear estimator, d x m."""
    coefficients = np.atleast_2d(np.asarray(estimator.coef_, dtype=np.float64)).T
    if not estimator.fit_intercept:
        return coefficients
    intercept = np.broadcast_to(estimator.intercept_, (1, coefficients.shape[1]))
    return np.vstack([coefficients, intercept])
