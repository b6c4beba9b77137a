"""The table of scikit-learn's parameters, against the scikit-learn that is installed."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import Ridge
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import SplineTransformer

from lethe.engine.conversion.parameters import (
    CARRIED,
    FREE,
    PARAMETERS,
    If,
    Only,
    check_parameters,
)
from lethe.engine.errors import InvalidData


def made(known: type) -> Any:
    """Return an estimator of the class, with its defaults."""
    if known is OneVsRestClassifier:
        return known(Ridge())
    if known is SplineTransformer:  # whose knots are learnt unless they are given
        return known(knots=[[0.0], [1.0]])
    composite = (Pipeline, ColumnTransformer, FeatureUnion)
    return known([("one", Ridge())]) if known in composite else known()


@pytest.mark.parametrize("known", PARAMETERS, ids=lambda known: known.__name__)
def test_every_parameter_of_a_known_class_is_in_the_table(known: type) -> None:
    names = set(made(known).get_params(deep=False))
    assert names - PARAMETERS[known].keys() == set(), "a new parameter: carry it over, or refuse it"


@pytest.mark.parametrize("known", PARAMETERS, ids=lambda known: known.__name__)
def test_the_defaults_of_every_known_class_are_accepted(known: type) -> None:
    check_parameters(made(known))


@pytest.mark.parametrize("known", PARAMETERS, ids=lambda known: known.__name__)
def test_a_value_that_is_not_known_is_refused_by_name(known: type) -> None:
    for parameter, rule in PARAMETERS[known].items():
        assert rule in (CARRIED, FREE) or isinstance(rule, Only | If)
        if isinstance(rule, Only) and parameter in inspect.signature(known).parameters:
            estimator = made(known).set_params(**{parameter: "something else"})
            with pytest.raises(InvalidData, match=f"{parameter}='something else' .*(;|fit)"):
                check_parameters(estimator)


def test_a_parameter_that_a_new_release_adds_is_refused_unless_it_is_at_its_default() -> None:
    class Newer(Ridge):  # type: ignore[misc]
        def __init__(self, alpha: float = 1.0, *, gravity: float = 9.81) -> None:
            super().__init__(alpha)
            self.gravity = gravity

    table = {**PARAMETERS, Newer: PARAMETERS[Ridge]}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("lethe.engine.conversion.parameters.PARAMETERS", table)
        check_parameters(Newer())
        with pytest.raises(InvalidData, match=r"step 's', Newer: gravity=1.6 is not known here"):
            check_parameters(Newer(gravity=1.6), "step 's', ")


def test_numbers_are_no_truth_values() -> None:
    check_parameters(Ridge(positive=np.False_))
    with pytest.raises(InvalidData, match="positive=0 constrains"):
        check_parameters(Ridge(positive=0))
