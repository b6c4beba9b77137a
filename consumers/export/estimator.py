"""A published version as a plain fitted estimator of scikit-learn. Imports scikit-learn."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from lethe.consumers.contract.events import Parameters
from lethe.consumers.export.pipeline import kept, pipeline_of_columns
from lethe.consumers.subscriber.model_version import ModelVersion
from lethe.engine.conversion import PublishedFit, plain_estimator
from lethe.engine.fit.objective import Array, Kind
from lethe.engine.store.layout.columns import FittedColumn


def estimator_of(event: Parameters, theta: Array, ridge: float) -> Any:
    """Return a plain fitted estimator of scikit-learn, of checked parameters.

    ``theta`` is d x m with any intercept last, ``ridge`` what the model was registered with. It
    predicts what the version does, holds no row, and checks the names of a data frame's columns.
    With preprocessing inside the model it is a Pipeline that ends in such an estimator. What
    belongs to ``ridge`` in a PoissonRegressor depends on the weight of the rows, which is not
    known: its alpha is NaN, with which scikit-learn refuses to refit.

    Raises
    ------
    InvalidData
        scikit-learn has no transformer for one of the columns.
    """
    if event.kind == "poisson":
        ridge = math.nan
    flat = theta.shape[1] == 1
    names = np.array(event.feature_names, dtype=object)
    labels = _labels(event.kind, event.classes)
    return _estimator(
        event.columns,
        PublishedFit(Kind(event.kind), theta, event.fit_intercept, ridge, flat, names, labels),
    )


def estimator_of_version(version: ModelVersion) -> Any:
    """Return the estimator of a version that a subscriber yielded, as `estimator_of`.

    Versions do not name the ridge strength, so it is NaN, with which scikit-learn refuses to refit.
    """
    flat = version.theta.ndim == 1
    theta = version.theta[:, None] if flat else version.theta
    theta = np.vstack([theta, np.reshape(version.intercept, (1, -1))])
    names = np.array(version.feature_names, dtype=object)
    labels = _labels(version.kind, version.classes)
    return _estimator(
        version.columns,
        PublishedFit(Kind(version.kind), theta, True, math.nan, flat, names, labels),
    )


def _estimator(columns: tuple[FittedColumn, ...], fit: PublishedFit) -> Any:
    if not columns:
        return plain_estimator(fit)
    mask = kept(columns, intercept=fit.fit_intercept)
    final = plain_estimator(replace(fit, theta=fit.theta[mask], features=None))
    return pipeline_of_columns(columns, final)


def _labels(kind: str, classes: tuple[str, ...]) -> Any:
    """Return the labels of a classifier in the order of theta's columns; None of a regression."""
    if not Kind(kind).has_classes:
        return None
    return np.array(classes) if classes else np.array([0, 1])
