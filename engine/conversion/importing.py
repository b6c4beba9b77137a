"""A model made from a fitted estimator: the same objective, fitted again on the same rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn.pipeline import Pipeline

from lethe.engine.conversion.converters import converter_of
from lethe.engine.conversion.model_terms import check_fitted
from lethe.engine.conversion.pipelines import read_pipeline
from lethe.engine.errors import InvalidData
from lethe.engine.estimator.columns import check_columns
from lethe.engine.fit.objective import norm
from lethe.engine.result import Conversion

if TYPE_CHECKING:
    from lethe.engine.estimator.base import BaseModel

Model = TypeVar("Model", bound="BaseModel")


def from_sklearn(
    model: type[Model],
    estimator: Any,
    X: Any,
    y: ArrayLike,
    ids: Sequence[str] | None = None,
    sample_weight: ArrayLike | None = None,
) -> Model:
    """Return a model of the estimator's objective, fitted on its rows; see `LinearModel`.

    The estimator's own parameters are only measured: a deletion needs the optimum, and theirs are
    as far from it as their tolerance allows.

    Raises
    ------
    InvalidData
        The estimator minimises another objective or is not fitted, or the data are not its.
    """
    preprocess, final = None, estimator
    if type(estimator) is Pipeline:
        check_fitted(estimator)
        preprocess, final = read_pipeline(estimator)
    given = converter_of(final, model.kind, model.__name__)(final, y)
    p = len(given.theta) - int(given.fit_intercept)
    if preprocess is None:
        columns = getattr(estimator, "feature_names_in_", None)
        check_columns(X, None if columns is None else list(columns), type(estimator).__name__)
    if preprocess is None and np.ndim(X) == 2 and np.shape(X)[1] != p:
        raise InvalidData(
            f"X has {np.shape(X)[1]} columns, and the {type(estimator).__name__} was fitted on {p}"
        )
    fitted = model(ridge=given.ridge, fit_intercept=given.fit_intercept, preprocess=preprocess)
    fitted.fit(X, given.y, ids, sample_weight)
    optimum = fitted.published
    if preprocess is not None and len(optimum) != len(given.theta):
        raise InvalidData(
            f"X has {len(optimum) - int(given.fit_intercept)} features once transformed, and the "
            f"Pipeline was fitted on {p}; give the rows that it was fitted on"
        )
    if optimum.shape != given.theta.shape:
        raise InvalidData(
            f"y has {optimum.shape[1]} columns, and the {type(estimator).__name__} was fitted on "
            f"{given.theta.shape[1]}"
        )
    distance, size = norm(given.theta - optimum), norm(optimum)
    relative = distance / size if size > 0 else float(distance > 0)
    fitted.converted_from_ = Conversion(type(estimator).__name__, distance, relative)
    return fitted
