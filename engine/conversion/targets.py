"""Estimators that learn a function of their target: what they are without, and around others."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.linear_model import Ridge
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer

from lethe.engine.conversion.parameters import check_parameters, function_name
from lethe.engine.conversion.steps import Step
from lethe.engine.estimator.targets import INVERSES
from lethe.engine.preprocess.input.derived import FUNCTIONS


def final_of(estimator: Any) -> Any:
    """Return the last step of a Pipeline, also of one in it; another estimator itself."""
    while type(estimator) is Pipeline:
        estimator = estimator[-1]
    return estimator


def unwrapped(step: Step) -> tuple[Step, str | None]:
    """Return an estimator of the function of its target, and the function's name.

    A TransformedTargetRegressor may stand around a Pipeline or at the end of one: what it is
    around takes its place. Any other estimator is returned as it is, with None.

    Raises
    ------
    InvalidData
        What is done to the target is learnt, has no name, or is nothing; or its regressor is none
        that a linear model is made from.
    NotFitted
        It is not fitted.
    """
    one = step.estimator
    if type(one) is Pipeline and one.steps:
        name, last = one.steps[-1]
        inner, function = unwrapped(step.below(name, last))
        if function is None:
            return step, None
        steps = [*one.steps[:-1], (name, inner.estimator)]
        return Step(Pipeline(**{**one.get_params(deep=False), "steps": steps}), step.path), function
    if type(one) is not TransformedTargetRegressor:
        return step, None
    check_parameters(one, step.where)
    step.check_fitted()
    function = function_name(one.func)
    if function is None:
        raise step.refusal("it has no func, so it changes nothing; give its regressor_")
    final = final_of(one.regressor_)
    if type(final) is not Ridge:
        raise step.refusal(
            f"its regressor is a {type(final).__name__}, and models of a function of the target "
            "are made from Ridge, alone or at the end of a Pipeline; fit it with one of these"
        )
    return step.below("regressor", one.regressor_), function


def around(regressor: Any, function: str, targets: int, *, flat: bool) -> Any:
    """Return a fitted TransformedTargetRegressor around a fitted estimator of the function.

    ``flat``: whether predictions are (n,), and not n x ``targets``.
    """
    func, inverse = FUNCTIONS[function], FUNCTIONS[INVERSES[function]]
    whole = TransformedTargetRegressor(clone(regressor), func=func, inverse_func=inverse)
    whole.regressor_ = regressor
    whole.transformer_ = FunctionTransformer(func, inverse, validate=True, check_inverse=False)
    whole.transformer_.fit(np.ones((1, targets)))
    whole._training_dim = 1 if flat else 2  # as its fit leaves it
    if hasattr(regressor, "feature_names_in_"):
        whole.feature_names_in_ = regressor.feature_names_in_
    return whole
