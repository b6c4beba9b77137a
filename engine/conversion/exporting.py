"""Plain fitted estimators of scikit-learn that predict what a model publishes.

They hold numbers, arrays and scikit-learn's own classes only: skops writes and loads them without
a type that it does not trust.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.compose import TransformedTargetRegressor
from sklearn.linear_model import LogisticRegression, PoissonRegressor, Ridge
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import LabelBinarizer

from lethe.engine.conversion.parameters import weighed_as
from lethe.engine.conversion.targets import around
from lethe.engine.fit.class_weights import ClassWeights
from lethe.engine.fit.objective import Array, Kind
from lethe.engine.preprocess.library import PreparedModel
from lethe.engine.preprocess.library.pipelines import pipeline_of

if TYPE_CHECKING:
    from lethe.engine.estimator.converting import ConvertibleModel
    from lethe.engine.generalised import PoissonModel, SoftmaxModel
    from lethe.engine.models import LinearModel, LogisticModel


@dataclass(frozen=True, slots=True)
class PublishedFit:
    """What a plain estimator is made of.

    Attributes
    ----------
    kind
        Of the model.
    theta
        Published parameters, d x m, the intercept last if there is one.
    fit_intercept
        Whether there is one.
    ridge
        The ridge strength of the fit, of a Poisson model divided by the weight of the rows; NaN if
        it is not known: scikit-learn then refuses to refit.
    flat
        Whether predictions are (n,), and not n x m.
    features
        Names of the columns, (p,), if the estimator is to check them.
    labels
        The classes of a classifier, (C,); None of a regression.
    class_weights
        The weights of two classes that it was fitted with, if any.
    penalise_intercept
        Whether the intercept is penalised, as by a LogisticRegression of liblinear alone.
    """

    kind: Kind
    theta: Array
    fit_intercept: bool
    ridge: float
    flat: bool
    features: NDArray[Any] | None = None
    labels: NDArray[Any] | None = None
    class_weights: ClassWeights | None = None
    penalise_intercept: bool = False

    @property
    def coefficients(self) -> Array:
        """The parameters as scikit-learn has them, (m, p)."""
        return np.array(self.theta[: self.p].T)

    @property
    def intercepts(self) -> Array:
        """The intercepts, (m,)."""
        return np.array(self.theta[self.p]) if self.fit_intercept else np.zeros(self.theta.shape[1])

    @property
    def p(self) -> int:
        """Number of features."""
        return len(self.theta) - int(self.fit_intercept)


def plain_estimator(
    fit: PublishedFit,
) -> Ridge | LogisticRegression | OneVsRestClassifier | PoissonRegressor:
    """Return a fitted estimator that predicts with the published parameters."""
    if fit.kind is Kind.POISSON:
        return _poisson(fit)
    if fit.labels is None:
        return _ridge(fit)
    coefficients, intercepts = fit.coefficients, fit.intercepts
    if len(fit.labels) == 2 or fit.kind is Kind.SOFTMAX:
        return _logistic(fit, coefficients, intercepts, fit.labels)
    whole = OneVsRestClassifier(_unfitted(fit))
    whole.estimators_ = [
        _logistic(fit, coefficients[c : c + 1], intercepts[c : c + 1], np.array([0, 1]))
        for c in range(len(fit.labels))
    ]
    whole.label_binarizer_ = LabelBinarizer(sparse_output=True).fit(fit.labels)
    # In the order of theta's columns: text of whole numbers is not in alphabetical order.
    whole.label_binarizer_.classes_ = np.array(fit.labels)
    if not hasattr(type(whole), "classes_"):  # before scikit-learn 1.9 a property
        whole.classes_ = np.array(fit.labels)
    return _named(whole, fit)


def ridge_of(model: LinearModel) -> Ridge | Pipeline | TransformedTargetRegressor:
    """Return a Ridge with the published parameters; see `LinearModel.to_sklearn`."""
    fit = _fit_of(model, None)
    made, target = _estimator_of(model, fit), model.fitted_target
    return made if target is None else around(made, target, fit.theta.shape[1], flat=fit.flat)


def logistic_of(model: LogisticModel) -> LogisticRegression | OneVsRestClassifier | Pipeline:
    """Return the classifier with the published parameters; see `LogisticModel.to_sklearn`."""
    return _estimator_of(model, _fit_of(model, model.classes_))


def poisson_of(model: PoissonModel) -> PoissonRegressor | Pipeline:
    """Return a PoissonRegressor with the published parameters; see `PoissonModel.to_sklearn`."""
    weight = model.live_weight
    ridge = model.fitted_ridge / weight if weight > 0 else math.nan
    return _estimator_of(model, _fit_of(model, None, ridge))


def softmax_of(model: SoftmaxModel) -> LogisticRegression | Pipeline:
    """Return a LogisticRegression with the published parameters; see `SoftmaxModel.to_sklearn`."""
    return _estimator_of(model, _fit_of(model, model.classes_))


def _estimator_of(model: ConvertibleModel, fit: PublishedFit) -> Any:
    if model.prepared is not None:
        return _with_transformers(model.prepared, fit)
    transformer, rows = model.transformer, model.refitted
    if transformer is None:
        return plain_estimator(fit)
    names = None
    if rows is not None and rows.frame is not None:  # the last step is given names, too
        names = np.array(rows.frame, dtype=object)
    return _after(transformer, plain_estimator(replace(fit, features=names)))


def _fit_of(
    model: ConvertibleModel, labels: NDArray[Any] | None, ridge: float | None = None
) -> PublishedFit:
    return PublishedFit(
        model.kind,
        model.published,
        model.has_intercept,
        model.fitted_ridge if ridge is None else ridge,
        model.theta.ndim == 1,
        getattr(model, "feature_names_in_", None),
        labels,
        model.class_weights,
        model.has_intercept and model.penalise_intercept,
    )


def _poisson(fit: PublishedFit) -> PoissonRegressor:
    poisson = PoissonRegressor(alpha=fit.ridge, fit_intercept=fit.fit_intercept)
    poisson.coef_, poisson.intercept_ = fit.coefficients[0], fit.intercepts[0]
    poisson.n_iter_, poisson._base_loss = 0, poisson._get_loss()  # as its fit leaves them
    return _named(poisson, fit)


def _ridge(fit: PublishedFit) -> Ridge:
    ridge = Ridge(alpha=fit.ridge, fit_intercept=fit.fit_intercept)
    ridge.coef_ = fit.coefficients[0] if fit.flat else fit.coefficients
    ridge.intercept_ = 0.0  # whatever the targets, without an intercept
    if fit.fit_intercept:
        ridge.intercept_ = float(fit.intercepts[0]) if fit.flat else fit.intercepts
    ridge.n_iter_, ridge.solver_ = None, "cholesky"
    return _named(ridge, fit)


def _with_transformers(state: PreparedModel, fit: PublishedFit) -> Pipeline:
    """Return a pipeline that ends in the estimator of a fit."""
    pipeline, theta = pipeline_of(state, "passthrough")
    final = plain_estimator(replace(fit, theta=theta, features=None))
    pipeline.steps[-1] = (pipeline.steps[-1][0], final)
    return pipeline


def _after(transformer: Any, final: Any) -> Pipeline:
    """Return a Pipeline of a copy of a fitted transformer, or of its steps, and an estimator."""
    before = deepcopy(transformer)
    steps = before.steps if type(before) is Pipeline else [("preprocess", before)]
    name, taken = type(final).__name__.lower(), {name for name, _ in steps}
    return Pipeline([*steps, (f"last-{name}" if name in taken else name, final)])


def _unfitted(fit: PublishedFit) -> LogisticRegression:
    weight: Mapping[Any, float] | str | None = None
    alone = fit.labels is not None and (len(fit.labels) == 2 or fit.kind is Kind.SOFTMAX)
    if fit.class_weights is not None and fit.labels is not None and alone:
        values, labels = fit.class_weights.values, map(weighed_as, fit.labels.tolist())
        weight = "balanced" if values is None else dict(zip(labels, values, strict=True))
    one = LogisticRegression(
        C=1.0 / fit.ridge, fit_intercept=fit.fit_intercept, class_weight=weight
    )
    return one.set_params(solver="liblinear") if fit.penalise_intercept else one


def _logistic(
    fit: PublishedFit, coefficients: Array, intercept: Array, labels: NDArray[Any]
) -> LogisticRegression:
    one = _unfitted(fit)
    one.coef_, one.intercept_ = coefficients, intercept
    one.classes_, one.n_iter_ = np.array(labels), np.zeros(1, dtype=np.int32)
    return _named(one, fit)


def _named(estimator: Any, fit: PublishedFit) -> Any:
    """Return the estimator with the number and the names of its features."""
    estimator.n_features_in_ = fit.p
    if fit.features is not None:
        estimator.feature_names_in_ = fit.features
    return estimator
