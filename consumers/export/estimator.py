"""A published version as a plain fitted estimator of scikit-learn. Imports scikit-learn."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lethe.consumers.contract.events import Parameters
from lethe.consumers.subscriber.model_version import ModelVersion
from lethe.engine.conversion import PublishedFit, plain_estimator
from lethe.engine.errors import InvalidData
from lethe.engine.fit.objective import Array


def estimator_of(event: Parameters, theta: Array, ridge: float) -> Any:
    """Return a fitted Ridge, LogisticRegression or OneVsRestClassifier of checked parameters.

    ``theta`` is d x m with any intercept last, ``ridge`` what the model was registered with. It
    predicts what the version does, holds no row, and checks the names of a data frame's columns.
    """
    return plain_estimator(
        PublishedFit(
            theta,
            event.fit_intercept,
            ridge,
            theta.shape[1] == 1,
            np.array(event.feature_names, dtype=object),
            _labels(event.kind, event.classes),
        )
    )


def estimator_of_version(version: ModelVersion) -> Any:
    """Return the estimator of a version that a subscriber yielded.

    Versions do not name the ridge strength, so it is NaN, with which scikit-learn refuses to refit.

    Raises
    ------
    InvalidData
        Preprocessing is part of the model, and the estimator would take its features.
    """
    if version.columns:
        raise InvalidData(
            f"model {version.model_id!r}: preprocessing is part of it, which an estimator of "
            "scikit-learn does not hold yet; serve it with a ModelSubscriber"
        )
    flat = version.theta.ndim == 1
    theta = version.theta[:, None] if flat else version.theta
    return plain_estimator(
        PublishedFit(
            np.vstack([theta, np.reshape(version.intercept, (1, -1))]),
            True,
            math.nan,
            flat,
            np.array(version.feature_names, dtype=object),
            _labels(version.kind, version.classes),
        )
    )


def _labels(kind: str, classes: tuple[str, ...]) -> Any:
    """Return the labels of a classifier in the order of theta's columns; None of a regression."""
    if kind == "linear":
        return None
    return np.array(classes) if classes else np.array([0, 1])
