"""A model made from a fitted estimator: the same objective, fitted again on the same rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn.pipeline import Pipeline

from lethe.engine.conversion.converters import ModelTerms, convert, kind_of
from lethe.engine.conversion.moved import measured
from lethe.engine.conversion.parameters import WAYS_OUT
from lethe.engine.conversion.pipelines import PipelineRead, read_pipeline, read_to_refit
from lethe.engine.conversion.steps import Step
from lethe.engine.conversion.targets import around, unwrapped
from lethe.engine.errors import InvalidData
from lethe.engine.estimator.columns import MadeFeatures, check_columns
from lethe.engine.fit.class_weights import ClassWeight
from lethe.engine.fit.objective import Kind
from lethe.engine.preprocess.input.columns import Column, Name, standardised

if TYPE_CHECKING:
    from lethe.engine.estimator.base import BaseModel

Model = TypeVar("Model", bound="BaseModel")


@dataclass(frozen=True, slots=True)
class EstimatorTerms:
    """The model that an estimator becomes, as far as the estimator says.

    Attributes
    ----------
    kind, ridge, fit_intercept
        Of the model; where the estimator's loss is a mean (``of_mean``), the ridge for each row.
    columns
        What is done to each column; None if nothing is.
    class_weight
        The weights of its classes, if any.
    penalise_intercept
        Whether its intercept is penalised, which no model of the service has.
    target
        The function of the target that it learns, if any, which no model of the service has.
    """

    kind: Kind
    ridge: float
    fit_intercept: bool
    columns: dict[Name, Column] | None
    class_weight: ClassWeight | None = None
    of_mean: bool = False
    penalise_intercept: bool = False
    target: str | None = None


def read_terms(estimator: Any) -> EstimatorTerms:
    """Return what a fitted estimator or Pipeline becomes, without its rows.

    Raises
    ------
    InvalidData
        It becomes no model.
    """
    read, target = _read(estimator)
    kind = kind_of(read.final)
    y = getattr(read.final.estimator, "classes_", [0.0])
    given = convert(read.final, y, kind, "a model")
    if read.columns is not None:
        _check_final(read.final, given, read.columns)
    return EstimatorTerms(
        kind, given.ridge, given.fit_intercept, read.columns, given.class_weight, given.of_mean,
        given.penalise_intercept, target,
    )  # fmt: skip


def _read(estimator: Any) -> tuple[PipelineRead, str | None]:
    """Return an estimator as it is read, and the function of the target that it learns, if any."""
    step, target = unwrapped(Step(estimator))
    whole = type(step.estimator) is Pipeline
    return read_pipeline(step) if whole else PipelineRead(step), target


def from_sklearn(
    model: type[Model],
    estimator: Any,
    X: Any,
    y: ArrayLike,
    ids: Sequence[str] | None = None,
    sample_weight: ArrayLike | None = None,
    *,
    refit: bool = False,
) -> Model:
    """Return a model of the estimator's objective, fitted on its rows; see `LinearModel`.

    The estimator's own parameters are only measured: a deletion needs the optimum, and theirs are
    as far from it as their tolerance allows. With ``refit``, steps that cannot be inside the model
    are no reason to refuse a Pipeline: they are fitted anew at every change, and the others too.

    Raises
    ------
    InvalidData
        The estimator minimises another objective or is not fitted, or the data are not its.
    """
    read, target, given = _converted(model, estimator, y, refit=refit)
    final, p = read.final, len(given.theta) - int(given.fit_intercept)
    if read.preprocess is None:
        columns = getattr(final.estimator, "feature_names_in_", None)
        check_columns(X, None if columns is None else list(columns), final.name)
        if np.ndim(X) == 2 and np.shape(X)[1] != p:
            raise InvalidData(
                f"X has {np.shape(X)[1]} columns, and the {final.name} was fitted on {p}"
            )
    total = 1.0
    if given.of_mean:
        total = float(len(np.asarray(y)) if sample_weight is None else np.sum(sample_weight))
    fitted = model(
        ridge=given.ridge * total,
        fit_intercept=given.fit_intercept,
        preprocess=read.preprocess,
        class_weight=given.class_weight,
    )
    if given.penalise_intercept:
        fitted.set_params(penalise_intercept=True)
    if target is not None:
        fitted.set_params(target=target)
    fitted.fit(X, given.y, ids, sample_weight)
    compared: tuple[Any, Any, Any] = (estimator, X, X)
    if fitted.prepared is not None:  # features are made once, and both predict from them
        made, own = read.check_features(fitted.prepared, X)
        last, m = final.estimator, given.theta.shape[1]
        if target is not None:  # predictions are compared as they are given
            last = around(last, target, m, flat=np.ndim(last.coef_) == 1)
        compared = (last, made, MadeFeatures(own))
    elif fitted.refitted is not None:
        read.check_refitted(fitted.refitted, X)
    optimum, theirs = fitted.published, np.ones(len(fitted.published), dtype=np.bool_)
    if fitted.prepared is not None:  # a category that is left out has no parameter of theirs
        theirs[: len(fitted.prepared.left_out)] = ~fitted.prepared.left_out
    if optimum[theirs].shape != given.theta.shape:
        raise InvalidData(
            f"y has {optimum.shape[1]} columns, and the {final.name} was fitted on "
            f"{given.theta.shape[1]}"
        )
    theta = np.zeros_like(optimum)
    theta[theirs] = given.theta
    name = type(estimator).__name__
    fitted.converted_from_ = measured(name, final.estimator, theta, fitted, compared)
    return fitted


def _converted(
    model: type[Model], estimator: Any, y: ArrayLike, *, refit: bool
) -> tuple[PipelineRead, str | None, ModelTerms]:
    """Return an estimator as it is read, the function of its target, and the model's terms.

    With ``refit``, its steps are those of a fit at every change where they cannot be inside.
    """
    try:
        read, target = _read(estimator)
        given = convert(read.final, y, model.kind, model.__name__)
        if read.columns is not None:
            _check_final(read.final, given, read.columns)
    except InvalidData:
        step, target = unwrapped(Step(estimator))
        if not refit or type(step.estimator) is not Pipeline:
            raise
        read = read_to_refit(step)
        given = convert(read.final, y, model.kind, model.__name__)
    if read.refitted is not None and target is not None:
        raise InvalidData(
            "steps are not fitted anew of a Pipeline that learns a function of its target; give "
            f"them by hand: {model.__name__}(target={target!r}, preprocess=Refitted(steps))"
        )
    return read, target, given


def _check_final(final: Step, given: ModelTerms, columns: Mapping[Name, Column]) -> None:
    """Refuse a last step that a model with these columns cannot be.

    Raises
    ------
    InvalidData
        Columns are standardised without an intercept.
    """
    scaled = [name for name, column in columns.items() if standardised(column)]
    if scaled and not given.fit_intercept:
        raise replace(final, column=scaled[0]).refusal(
            "with fit_intercept=False nothing takes up the mean of a standardised column; fit it "
            f"with fit_intercept=True, or {WAYS_OUT}"
        )
