"""Plain fitted estimators of scikit-learn that predict what a model publishes.

They hold numbers, arrays and scikit-learn's own classes only: skops writes and loads them without
a type that it does not trust.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import LabelBinarizer

from lethe.engine.preprocess.fitted import PreparedFit
from lethe.engine.preprocess.pipelines import pipeline_of

if TYPE_CHECKING:
    from lethe.engine.models import LinearModel, LogisticModel


def ridge_of(model: LinearModel) -> Ridge | Pipeline:
    """Return a Ridge with the published parameters; see `LinearModel.to_sklearn`."""
    if model.prepared is not None:
        return _with_transformers(model, model.prepared, Ridge(alpha=model.fitted_ridge))
    ridge = Ridge(alpha=model.fitted_ridge, fit_intercept=model.has_intercept)
    ridge.coef_ = np.array(model.coef_)
    ridge.intercept_ = model.intercept_ if model.has_intercept else 0.0  # whatever the targets
    ridge.n_iter_, ridge.solver_ = None, "cholesky"
    return _named(ridge, model)


def logistic_of(model: LogisticModel) -> LogisticRegression | OneVsRestClassifier | Pipeline:
    """Return the classifier with the published parameters; see `LogisticModel.to_sklearn`."""
    if model.prepared is not None:
        one = _with_transformers(model, model.prepared, _unfitted(model))
        one[-1].classes_ = np.array(model.classes_)
        one[-1].n_iter_ = np.zeros(1, dtype=np.int32)
        return one
    coefficients, intercepts, labels = model.coef_, model.intercept_, model.classes_
    if len(labels) == 2:
        return _logistic(model, coefficients, intercepts, labels)
    whole = OneVsRestClassifier(_unfitted(model))
    whole.estimators_ = [
        _logistic(model, coefficients[c : c + 1], intercepts[c : c + 1], np.array([0, 1]))
        for c in range(len(labels))
    ]
    whole.label_binarizer_ = LabelBinarizer(sparse_output=True).fit(labels)
    if not hasattr(type(whole), "classes_"):  # before scikit-learn 1.9 a property
        whole.classes_ = np.array(labels)
    return _named(whole, model)


def _with_transformers(
    model: LinearModel | LogisticModel, state: PreparedFit, final: Any
) -> Pipeline:
    """Return a pipeline that ends in ``final``, which gets the published parameters."""
    final.fit_intercept = model.has_intercept
    pipeline, theta = pipeline_of(state, final)
    p = len(theta) - int(model.has_intercept)
    coefficients, intercept = theta[:p].T, theta[p] if model.has_intercept else np.zeros(1)
    flat = isinstance(final, Ridge) and len(coefficients) == 1
    final.coef_ = coefficients[0].copy() if flat else coefficients.copy()
    final.intercept_ = float(intercept[0]) if flat else intercept.copy()
    final.n_features_in_ = p
    return pipeline


def _unfitted(model: LogisticModel) -> LogisticRegression:
    fitted = model._fitted
    return LogisticRegression(C=1.0 / fitted.ridge, fit_intercept=fitted.intercept)


def _logistic(
    model: LogisticModel, coefficients: NDArray[Any], intercept: NDArray[Any], labels: NDArray[Any]
) -> LogisticRegression:
    one = _unfitted(model)
    one.coef_, one.intercept_ = np.array(coefficients), np.array(intercept)
    one.classes_, one.n_iter_ = np.array(labels), np.zeros(1, dtype=np.int32)
    return _named(one, model)


def _named(estimator: Any, model: LinearModel | LogisticModel) -> Any:
    """Return the estimator with the number and the names of its features."""
    estimator.n_features_in_ = model.n_features_in_
    if hasattr(model, "feature_names_in_"):
        estimator.feature_names_in_ = model.feature_names_in_
    return estimator
