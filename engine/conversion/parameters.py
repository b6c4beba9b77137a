"""Every parameter of the scikit-learn classes that are read: carried, without effect, or limited.

An estimator with a parameter that is not listed, or that is not at a value that is known, is
refused by name: what a new release adds cannot pass unnoticed
(`tests/unit/engine/conversion/test_parameters.py` compares the table with the one installed).
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, get_args

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import LogisticRegression, PoissonRegressor, Ridge, RidgeClassifier
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    RobustScaler,
    SplineTransformer,
    StandardScaler,
)
from sklearn.utils.metadata_routing import get_routing_for_object

from lethe.engine.errors import InvalidData
from lethe.engine.estimator.targets import INVERSES
from lethe.engine.preprocess.input.derived import FUNCTIONS, Extrapolation
from lethe.engine.preprocess.input.values import is_missing

_SHOWN = 60  # characters of a value in a message

CARRIED = "carried"
"""The parameter is read, and the model has its effect."""

FREE = "free"
"""It says how the same minimiser is found, or in which form the same numbers come."""


@dataclass(frozen=True, slots=True)
class Only:
    """A parameter that is known at some values alone.

    Attributes
    ----------
    values
        Those.
    why
        What another value does, and what to do instead.
    """

    values: tuple[Any, ...]
    why: str

    def allows(self, value: Any) -> bool:
        """Return whether a value is one of them: the same object, NaN, or of the same type."""
        return any(_same(value, known) for known in self.values)


@dataclass(frozen=True, slots=True)
class If:
    """A parameter that is carried over, or without effect, if its value permits it.

    Attributes
    ----------
    permits
        Whether a value does, of an estimator.
    why
        What another value does, and what to do instead.
    """

    permits: Callable[[Any, Any], bool]
    why: str


Rule = str | Only | If

WAYS_OUT = (
    "fit the steps anew at each change (`refit=True`), or keep them as they are "
    "(`preprocess=pipeline[:-1]`, `lethe register --freeze`)"
)
"""The two ways out that there are of every transformer."""


def function_name(func: Any) -> str | None:
    """Return the name of a function of NumPy that a model may compute columns by."""
    return next((name for name, known in FUNCTIONS.items() if func is known), None)


def _one_above_zero(value: Any, _: Any) -> bool:
    return np.size(value) == 1 and 0.0 < float(np.reshape(value, ())) < math.inf


def _weights_of_classes(value: Any, _: Any) -> bool:
    if not isinstance(value, Mapping):
        return value in (None, "balanced")
    return all(0.0 < float(weight) < math.inf for weight in value.values())


def _no_l1(l1_ratio: Any, logistic: Any) -> bool:
    """Only the elastic net mixes; until scikit-learn 1.9, that is one of several penalties."""
    mixed = getattr(logistic, "penalty", "elasticnet") in ("elasticnet", "deprecated")
    return not mixed or l1_ratio in (None, 0)


def _is_inverse(inverse: Any, whole: Any) -> bool:
    known = INVERSES.get(function_name(whole.func) or "")
    return inverse is None if whole.func is None else function_name(inverse) == known


_WEIGHTS = If(
    _weights_of_classes,
    "is neither 'balanced' nor a mapping from labels to weights above 0; leave out the rows of a "
    "class that counts for nothing",
)
_OF_TARGETS = "one of numpy's " + ", ".join(f"{of} and {back}" for of, back in INVERSES.items())
_ALPHA = If(
    _one_above_zero, "is not a single ridge strength above 0 for all targets; fit it with one"
)
_PRECISION = f"has less precision; fit it with dtype=numpy.float64, or {WAYS_OUT}"
_GAPS = If(
    lambda value, _: value is not None and is_missing(value),
    f"takes something else for missing; replace it by NaN, or {WAYS_OUT}",
)
_BOTH = Only((True,), f"leaves out a half that a model has with the other; {WAYS_OUT}")
_ALL_CATEGORIES = Only((None,), f"merges rare categories; {WAYS_OUT}")

PARAMETERS: Mapping[type, Mapping[str, Rule]] = MappingProxyType(
    {
        Ridge: {
            "alpha": _ALPHA,
            "fit_intercept": CARRIED,
            "positive": Only((False,), "constrains the coefficients; fit it without"),
            "copy_X": FREE,
            "max_iter": FREE,
            "tol": FREE,
            "solver": FREE,
            "random_state": FREE,
        },
        RidgeClassifier: {
            "alpha": _ALPHA,
            "fit_intercept": CARRIED,
            "class_weight": _WEIGHTS,
            "positive": Only((False,), "constrains the coefficients; fit it without"),
            "copy_X": FREE,
            "max_iter": FREE,
            "tol": FREE,
            "solver": FREE,
            "random_state": FREE,
        },
        LogisticRegression: {
            "C": If(_one_above_zero, "is no penalty; fit it with a finite C"),
            "fit_intercept": CARRIED,
            "penalty": Only(
                ("l2", "deprecated", "elasticnet"),
                "is not the l2 penalty, the only one known; fit it with l2",
            ),
            "l1_ratio": If(_no_l1, "has an l1 part; fit it with l1_ratio=0"),
            "class_weight": _WEIGHTS,
            "multi_class": If(
                lambda value, logistic: (
                    value in ("auto", "ovr", "deprecated")
                    or (value == "multinomial" and len(getattr(logistic, "classes_", ())) > 2)
                ),
                "has another penalty of two classes; fit it with multi_class='ovr'",
            ),
            "solver": CARRIED,  # liblinear penalises the intercept
            "dual": FREE,
            "tol": FREE,
            "intercept_scaling": If(
                lambda scaling, logistic: (
                    scaling == 1 or logistic.solver != "liblinear" or not logistic.fit_intercept
                ),
                "weakens the penalty of the intercept; fit it with 1, or with another solver",
            ),
            "random_state": FREE,
            "max_iter": FREE,
            "verbose": FREE,
            "warm_start": FREE,
            "n_jobs": FREE,
        },
        PoissonRegressor: {
            "alpha": _ALPHA,
            "fit_intercept": CARRIED,
            "solver": FREE,
            "max_iter": FREE,
            "tol": FREE,
            "warm_start": FREE,
            "verbose": FREE,
        },
        OneVsRestClassifier: {"estimator": CARRIED, "n_jobs": FREE, "verbose": FREE},
        TransformedTargetRegressor: {
            "regressor": CARRIED,
            "transformer": Only(
                (None,),
                "learns from targets, and a model only takes functions of them; fit it with func "
                "and inverse_func, such as numpy.log1p and numpy.expm1",
            ),
            "func": If(
                lambda func, _: func is None or function_name(func) in INVERSES,
                f"is no function of a target that a model has; fit it with {_OF_TARGETS}",
            ),
            "inverse_func": If(
                _is_inverse, f"is not the inverse of its func; fit it with that ({_OF_TARGETS})"
            ),
            "check_inverse": FREE,  # a warning
        },
        Pipeline: {
            "steps": CARRIED,
            "transform_input": Only((None,), "transforms metadata as well; fit it without"),
            "memory": FREE,
            "verbose": FREE,
        },
        ColumnTransformer: {
            "transformers": CARRIED,
            "remainder": CARRIED,
            "transformer_weights": CARRIED,  # if nothing but a mean was learnt
            "sparse_threshold": FREE,
            "n_jobs": FREE,
            "verbose": FREE,
            "verbose_feature_names_out": FREE,
            "force_int_remainder_cols": FREE,
        },
        StandardScaler: {
            "with_mean": CARRIED,
            "with_std": CARRIED,
            "copy": FREE,
        },
        MinMaxScaler: {
            "feature_range": CARRIED,
            "clip": Only((False,), f"cuts off what is beyond the extremes; {WAYS_OUT}"),
            "copy": FREE,
        },
        MaxAbsScaler: {
            "clip": Only((False,), f"cuts off what is beyond the extremes; {WAYS_OUT}"),
            "copy": FREE,
        },
        RobustScaler: {
            "with_centering": _BOTH,
            "with_scaling": _BOTH,
            "quantile_range": If(
                lambda value, _: tuple(value) == (25.0, 75.0),
                f"is not (25.0, 75.0), the only one that a model has; {WAYS_OUT}",
            ),
            "unit_variance": Only((False,), f"multiplies by a normal's deviation; {WAYS_OUT}"),
            "copy": FREE,
        },
        SimpleImputer: {
            "missing_values": _GAPS,
            "strategy": Only(
                ("mean", "median", "most_frequent", "constant"),
                f"is none of scikit-learn's; {WAYS_OUT}",
            ),
            "add_indicator": CARRIED,
            "fill_value": CARRIED,
            "keep_empty_features": FREE,  # a column without a value is refused
            "copy": FREE,
        },
        OneHotEncoder: {
            "categories": CARRIED,
            "drop": CARRIED,
            "handle_unknown": Only(
                ("error", "ignore", "infrequent_if_exist"),
                "is none of 'error', 'ignore' and 'infrequent_if_exist'; fit it with one of these",
            ),
            "min_frequency": CARRIED,
            "max_categories": CARRIED,
            "sparse_output": FREE,
            "dtype": If(
                lambda dtype, _: np.dtype(dtype).kind in "biu" or np.dtype(dtype) == np.float64,
                _PRECISION,
            ),
            "feature_name_combiner": FREE,
        },
        OrdinalEncoder: {
            "categories": CARRIED,
            "handle_unknown": CARRIED,
            "encoded_missing_value": FREE,  # a missing category is refused
            "min_frequency": _ALL_CATEGORIES,
            "max_categories": _ALL_CATEGORIES,
            "unknown_value": CARRIED,
            "dtype": If(
                lambda dtype, _: np.dtype(dtype) in (np.float64, np.int64, np.int32), _PRECISION
            ),
        },
        FunctionTransformer: {
            "func": If(
                lambda func, _: func is None or function_name(func) is not None,
                f"has no name that a model knows; give one of NumPy's, such as numpy.log1p, or "
                f"{WAYS_OUT}",
            ),
            "inverse_func": FREE,
            "validate": FREE,
            "accept_sparse": FREE,
            "check_inverse": FREE,
            "feature_names_out": FREE,
            "kw_args": If(
                lambda given, step: not given or step.func is None,
                f"changes the function; fit it without, or {WAYS_OUT}",
            ),
            "inv_kw_args": FREE,
        },
        FeatureUnion: {
            "transformer_list": CARRIED,
            "transformer_weights": CARRIED,
            "n_jobs": FREE,
            "verbose": FREE,
            "verbose_feature_names_out": FREE,
        },
        PolynomialFeatures: {
            "degree": CARRIED,
            "interaction_only": CARRIED,
            "include_bias": CARRIED,
            "order": FREE,
        },
        Binarizer: {"threshold": CARRIED, "copy": FREE},
        RBFSampler: {
            "gamma": If(
                lambda gamma, _: not isinstance(gamma, str),
                f"learns the scale from rows; give it as a number, or {WAYS_OUT}",
            ),  # with it, the weights that were drawn are carried over
            "n_components": CARRIED,
            "random_state": FREE,
        },
        SplineTransformer: {
            "n_knots": FREE,  # of knots that are not given
            "degree": If(
                lambda degree, _: degree > 0,
                f"has steps, and scikit-learn no value of theirs beyond the knots; {WAYS_OUT}",
            ),
            "knots": If(
                lambda knots, _: not isinstance(knots, str),
                "learns the knots from the smallest and largest value, or quantiles, of rows; give "
                f"them as an array, n_knots x columns, or {WAYS_OUT}",
            ),
            "extrapolation": Only(
                get_args(Extrapolation),
                f"has no value beyond the knots; fit it with 'constant', or {WAYS_OUT}",
            ),
            "include_bias": CARRIED,
            "order": FREE,
            "handle_missing": Only(
                ("error",), f"takes zeros for missing values; fill them in before it, or {WAYS_OUT}"
            ),
            "sparse_output": FREE,
        },
        Normalizer: {"norm": CARRIED, "copy": FREE},
        MissingIndicator: {
            "missing_values": _GAPS,
            "features": CARRIED,
            "sparse": FREE,
            "error_on_new": FREE,
        },
    }
)
"""What is known of each parameter of the classes that are read."""


def check_parameters(estimator: Any, where: str = "") -> None:
    """Refuse an estimator of a known class that is more, or other, than what is read of it.

    Parameters
    ----------
    estimator
        Of a class of `PARAMETERS`.
    where
        What the message begins with: the step and the column that it stands for.

    Raises
    ------
    InvalidData
        A parameter is unknown, or at a value that is not known.
    """
    known, name = PARAMETERS[type(estimator)], type(estimator).__name__
    defaults = inspect.signature(type(estimator)).parameters
    for parameter, value in estimator.get_params(deep=False).items():
        rule = known.get(parameter)
        if rule is None:
            if not _same(value, defaults[parameter].default):
                raise InvalidData(
                    f"{where}{name}: {parameter}={_shown(value)} is not known here; leave it at "
                    f"its default, {defaults[parameter].default!r}"
                )
        elif (isinstance(rule, Only) and not rule.allows(value)) or (
            isinstance(rule, If) and not rule.permits(value, estimator)
        ):
            raise InvalidData(f"{where}{name}: {parameter}={_shown(value)} {rule.why}")


def check_requests(step: BaseEstimator, where: str) -> None:
    """Refuse a transformer that asks for metadata, such as weights of the rows.

    Raises
    ------
    InvalidData
        Its statistics would be weighted.
    """
    asked = get_routing_for_object(step).fit.requests
    for metadata, alias in asked.items():
        if alias not in (None, False):
            raise InvalidData(
                f"{where}{type(step).__name__}: it asks for {metadata} (set_fit_request), which "
                "weighs its statistics; fit it without"
            )


def weighed_as(label: Any) -> Any:
    """Return what scikit-learn looks for in ``class_weight``: of the text "1", the number 1."""
    try:
        return int(label)
    except ValueError:
        return label


def _shown(value: Any) -> str:
    """Return a value in one line, and no more of it than helps to find it."""
    shown = " ".join(repr(value).split())
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."


def _same(value: Any, known: Any) -> bool:
    if value is known:
        return True
    if isinstance(known, float) and math.isnan(known):
        return isinstance(value, (float, np.floating)) and bool(np.isnan(value))
    if isinstance(known, (bool, np.bool_)) or isinstance(value, (bool, np.bool_)):
        return isinstance(value, (bool, np.bool_)) and bool(value) == known
    numbers = (int, float, np.number)
    if isinstance(value, numbers) and isinstance(known, numbers):
        return bool(value == known)
    return type(value) is type(known) and isinstance(value, str) and value == known
