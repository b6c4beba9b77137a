"""The terms of a model that a converter reads from an estimator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import ArrayLike
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from lethe.engine.errors import InvalidData
from lethe.engine.estimator.unfitted import NotFitted
from lethe.engine.fit.objective import Array


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
    """

    ridge: float
    fit_intercept: bool
    y: ArrayLike
    theta: Array


def refuse(estimator: Any, why: str) -> InvalidData:
    """Return the refusal of an estimator that minimises another objective."""
    return InvalidData(f"{type(estimator).__name__}: {why}")


def check_fitted(estimator: Any) -> None:
    """Refuse an estimator that is not fitted.

    Raises
    ------
    NotFitted
        It is not.
    """
    try:
        check_is_fitted(estimator)
    except NotFittedError as error:
        name = type(estimator).__name__
        raise NotFitted(f"this {name} is not fitted; fit it first, on the rows given") from error


def inverse(C: float) -> float:
    """Return the ridge strength of an inverse strength C, (0, inf)."""
    return 1.0 / float(C)
