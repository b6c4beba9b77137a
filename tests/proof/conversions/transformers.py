"""Transformers: the values that scikit-learn documents for each parameter, and what they compute.

A model has, of a column: its mean, median or mode for missing numbers, (x - mean) / deviation or
either half of it, or the same by extremes or quartiles, a feature of 0 and 1 a category, or the
place of the category; all of them learnt from its rows, of equal weight. Before that it has what
learns nothing: products, functions by name, given values, and indicators of gaps.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

import numpy as np
import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.feature_selection import SelectKBest, VarianceThreshold
from sklearn.impute import KNNImputer, MissingIndicator, SimpleImputer
from sklearn.kernel_approximation import Nystroem, RBFSampler
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    KBinsDiscretizer,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    PowerTransformer,
    QuantileTransformer,
    RobustScaler,
    SplineTransformer,
    StandardScaler,
    TargetEncoder,
)

from tests.proof.conversions.estimators import Values, shown
from tests.proof.conversions.setting import SIZES, TOWNS, Offence

SCALER: Values = {"copy": (True, False), "with_mean": (True, False), "with_std": (True, False)}

IMPUTER: Values = {
    "missing_values": (np.nan, -1, 0, 0.0, -1.0, pd.NA, math.nan),
    "strategy": ("mean", "median", "most_frequent", "constant", np.nanmax),
    "fill_value": (None, 3.0),
    "copy": (True, False),
    "add_indicator": (False, True),
    "keep_empty_features": (False, True),
}

ONE_HOT: Values = {
    "categories": ("auto", "given"),  # those of the column
    "drop": (None, "first", "if_binary"),
    "sparse_output": (True, False),
    "dtype": (np.float64, float, "float64", int, np.int8, bool, np.float32),
    "handle_unknown": ("error", "ignore", "infrequent_if_exist", "warn"),
    "min_frequency": (None, 20, 0.2),
    "max_categories": (None, 2),
    "feature_name_combiner": ("concat", lambda name, category: f"{name}={category}"),
}

ORDINAL: Values = {
    "categories": ("auto", "given"),
    "dtype": (np.float64, float, np.int64, np.int32, np.int8, np.float32),
    "handle_unknown": ("error", "use_encoded_value"),
    "unknown_value": (None, -1),
    "encoded_missing_value": (np.nan, -1),
    "min_frequency": (None, 20),
    "max_categories": (None, 2),
}

NOTHING: Values = {
    "func": (None, np.abs, np.log1p, np.nan_to_num),
    "inverse_func": (None, np.exp),
    "validate": (False, True),
    "accept_sparse": (False, True),
    "check_inverse": (True, False),
    "feature_names_out": (None, "one-to-one"),
    "kw_args": (None,),
    "inv_kw_args": (None, {"a": 1}),
}

KNOWN: Mapping[type, Values] = {
    StandardScaler: SCALER,
    MinMaxScaler: {
        "feature_range": ((0, 1), (-1.0, 2.5)),
        "copy": (True, False),
        "clip": (False, True),
    },
    MaxAbsScaler: {"copy": (True, False), "clip": (False, True)},
    RobustScaler: {
        "with_centering": (True, False),
        "with_scaling": (True, False),
        "quantile_range": ((25.0, 75.0), (10.0, 90.0)),
        "copy": (True, False),
        "unit_variance": (False, True),
    },
    SimpleImputer: IMPUTER,
    OneHotEncoder: ONE_HOT,
    OrdinalEncoder: ORDINAL,
    FunctionTransformer: NOTHING,
}

SCALERS: Sequence[type] = (
    StandardScaler, StandardScaler, StandardScaler, MinMaxScaler, MaxAbsScaler, RobustScaler,
)  # fmt: skip

UNION: Values = {
    "transformer_list": ((),),  # drawn
    "transformer_weights": (None, {"products": 0.5}),
    "n_jobs": (None, 1),
    "verbose": (False,),
    "verbose_feature_names_out": (True, False),
}

COMPUTED: Mapping[type, Values] = {
    Binarizer: {"threshold": (0.0, 0.7, -2.0), "copy": (True, False)},
    FeatureUnion: UNION,
    MissingIndicator: {
        "missing_values": (np.nan, math.nan, pd.NA),
        "features": ("missing-only", "all"),
        "sparse": ("auto", True, False),
        "error_on_new": (True, False),
    },
    Normalizer: {"norm": ("l1", "l2", "max"), "copy": (True, False)},
    RBFSampler: {"gamma": (1.0, 0.01), "n_components": (3, 1), "random_state": (0, 7)},
    SplineTransformer: {
        "n_knots": (5,),
        "degree": (1, 2, 3),
        "knots": ("given",),  # of as many columns as there are
        "extrapolation": ("constant", "linear", "continue", "periodic"),
        "include_bias": (True, False),
        "order": ("C", "F"),
        "handle_missing": ("error",),
        "sparse_output": (False, True),
    },
    PolynomialFeatures: {
        "degree": (2, 3, (1, 2), (2, 3)),
        "interaction_only": (False, True),
        "include_bias": (True, False),
        "order": ("C", "F"),
    },
}
"""Transformers that learn nothing."""

GIVEN: Mapping[str, Sequence[Any]] = {
    "town": (*TOWNS, "Zwickau"),
    "size": [*reversed(SIZES)],
    "grade": (1, 2, 3, 4, 5),
}
"""Categories of the columns, in an order, some without a row."""


@dataclass(frozen=True, slots=True)
class Part:
    """What is done to some columns, and why a model cannot do it."""

    transformer: Any
    offences: tuple[Offence, ...] = ()


def offences(transformer: Any, *, gaps: bool = False) -> list[Offence]:
    """Return why a known transformer makes other features than a model does."""
    p = transformer.get_params(deep=False)
    if isinstance(transformer, FunctionTransformer):
        wrong = ["func"] if p["func"] is np.nan_to_num else []
    elif isinstance(transformer, StandardScaler):
        wrong = []
    elif isinstance(transformer, MinMaxScaler | MaxAbsScaler):
        wrong = ["clip"] if p["clip"] else []
    elif isinstance(transformer, RobustScaler):
        wrong = [n for n in ("with_centering", "with_scaling") if not p[n]]
        wrong += ["quantile_range"] if p["quantile_range"] != (25.0, 75.0) else []
        wrong += ["unit_variance"] if p["unit_variance"] else []
    elif isinstance(transformer, SimpleImputer):
        # "missing_values can be set to either np.nan or pd.NA" for a missing value of a data frame.
        wrong = [] if pd.isna(p["missing_values"]) else ["missing_values"]
        wrong += [] if isinstance(p["strategy"], str) else ["strategy"]  # a function of its own
    elif isinstance(transformer, OneHotEncoder):
        # "warn" is "infrequent_if_exist" and a warning, which a model has not.
        wrong = ["dtype"] if p["dtype"] is np.float32 else []
        wrong += ["handle_unknown"] if p["handle_unknown"] == "warn" else []
        if not isinstance(p["categories"], str) and (p["min_frequency"] or p["max_categories"]):
            named = [(shown(transformer, name, p[name]),) for name in wrong]
            return [*named, ("OneHotEncoder: categories beside",)]
    else:
        wrong = [n for n in ("min_frequency", "max_categories") if p[n] is not None]
        wrong += ["dtype"] if p["dtype"] in (np.float32, np.int8) else []
        wrong += ["encoded_missing_value"] if gaps else []
    return [(shown(transformer, name, p[name]),) for name in wrong]


def learns(transformer: Any) -> bool:
    """Return whether weights of what it makes cannot be those of its columns: no mean is learnt."""
    said = _NEITHER_HALF.sub("", " ".join(repr(transformer).split()))
    return any(name in said for name in ("Scaler", "Encoder", "gamma='scale'"))


_NEITHER_HALF = re.compile(r"StandardScaler\([^()]*with_mean=False, with_std=False\)")


def made(kind: type, given: dict[str, Any], columns: Sequence[str]) -> Any:
    """Return a transformer of columns, with their own categories where those are given."""
    if isinstance(given.get("categories"), str) and given["categories"] == "given":
        if any(name not in GIVEN for name in columns):
            given["categories"] = "auto"
        elif kind is OneHotEncoder:
            given["categories"] = [sorted(GIVEN[name]) for name in columns]
        else:
            given["categories"] = [list(GIVEN[name]) for name in columns]
    if given.get("handle_unknown") == "use_encoded_value":
        given["unknown_value"] = -1
    elif "unknown_value" in given:
        given["unknown_value"] = None
    return kind(**given)


def drawn(rng: Random, kind: type, columns: Sequence[str], defaults: float) -> Any:
    """Return a transformer; each parameter has its first value with a chance of ``defaults``."""
    given = {
        name: options[0] if rng.random() < defaults else rng.choice(options)
        for name, options in KNOWN[kind].items()
    }
    return made(kind, given, columns)


OTHERS: Sequence[Callable[[], Any]] = (
    PowerTransformer, SplineTransformer, VarianceThreshold, Nystroem,
    lambda: RBFSampler(gamma="scale"),
    lambda: QuantileTransformer(n_quantiles=10), lambda: PCA(1), lambda: SelectKBest(k=1),
    lambda: KBinsDiscretizer(3, quantile_method="averaged_inverted_cdf"),
)  # fmt: skip
"""Transformers of numbers that a model has not."""

_TOGETHER: Sequence[Callable[[], Any]] = (
    lambda: make_pipeline(PolynomialFeatures((2, 3), interaction_only=True), StandardScaler()),
    lambda: ColumnTransformer([("inner", StandardScaler(), [0])], remainder="passthrough"),
)


def computing(rng: Random, kind: type, columns: Sequence[str] = ()) -> Any:
    """Return a transformer that learns nothing, all of its parameters drawn."""
    given = {name: rng.choice(options) for name, options in COMPUTED[kind].items()}
    if kind is FeatureUnion:
        products = ("products", computing(rng, PolynomialFeatures))
        given["transformer_list"] = [("scale", StandardScaler()), products]
    if kind is SplineTransformer:
        given["knots"] = np.array([[-1.0, 0.5, 4.0, 90.0]] * len(columns)).T
        if given["extrapolation"] == "linear":  # of degree 1, scikit-learn's is wrong
            given["degree"] = max(given["degree"], 2)
    return kind(**given)


_COMPUTING = (
    Binarizer, FeatureUnion, Normalizer, PolynomialFeatures, RBFSampler, SplineTransformer
)  # fmt: skip

OTHERS_OF_GAPS: Sequence[Callable[[], Any]] = (KNNImputer,)


def on_numbers(rng: Random, columns: Sequence[str], defaults: float) -> Part:
    """Return what is done to columns of numbers."""
    choice = rng.randrange(8)
    if choice == 0:
        return Part("passthrough")
    if choice == 1:
        function = drawn(rng, FunctionTransformer, columns, defaults)
        return Part(function, tuple(offences(function)))
    if choice == 2 and rng.random() > defaults:
        other = rng.choice(OTHERS)()
        return Part(other, ((f"{type(other).__name__}: ",),))
    if choice == 3:
        return on_gaps(rng, columns, defaults)
    if choice == 4:
        kind = rng.choice(_COMPUTING)
        choices: list[Callable[[], Any]] = [*_TOGETHER, partial(computing, rng, kind, columns)]
        return Part(rng.choice(choices)())
    scaler = drawn(rng, rng.choice(SCALERS), columns, defaults)
    return Part(scaler, tuple(offences(scaler)))


def on_gaps(rng: Random, columns: Sequence[str], defaults: float) -> Part:
    """Return what is done to columns of numbers of which some are missing."""
    if rng.random() > 0.97:
        return Part(computing(rng, MissingIndicator))
    if rng.random() > max(defaults, 0.9):
        other = rng.choice(OTHERS_OF_GAPS)()
        return Part(other, ((f"{type(other).__name__}: ",),))
    imputer = drawn(rng, SimpleImputer, columns, defaults)
    if rng.randrange(2):
        return Part(imputer, tuple(offences(imputer)))
    scaler = drawn(rng, rng.choice(SCALERS), columns, defaults)
    name = type(scaler).__name__
    wrong = [("'simpleimputer'", *one) for one in offences(imputer)]
    wrong += [(f"'{name.lower()}'", *one) for one in offences(scaler)]
    if rng.random() < 0.1:
        centres = isinstance(scaler, RobustScaler) or getattr(scaler, "with_mean", False)
        zero = centres and imputer.fill_value in (None, 0)
        if imputer.strategy == "constant" and learns(scaler) and not zero:
            wrong.append(("'simpleimputer'", "SimpleImputer: fill_value=", f"after {name}"))
        return Part(make_pipeline(scaler, imputer), tuple(wrong))
    return Part(make_pipeline(imputer, scaler), tuple(wrong))


def on_categories(rng: Random, columns: Sequence[str], defaults: float, *, gaps: bool) -> Part:
    """Return what is done to columns of categories; ``gaps``: some are missing."""
    choice = rng.randrange(6)
    if choice == 0 and rng.random() > defaults:
        return Part(TargetEncoder(target_type="continuous"), (("TargetEncoder: ", "cross-fit"),))
    if choice <= 3:
        hot = drawn(rng, OneHotEncoder, columns, defaults)
        if choice < 3:
            return Part(hot, tuple(offences(hot)))
        scaler = drawn(rng, StandardScaler, columns, defaults)
        hot.set_params(sparse_output=hot.sparse_output and not scaler.with_mean)
        named = [("'onehotencoder'", *one) for one in offences(hot)]
        named += [("'standardscaler'", *one) for one in offences(scaler)]
        return Part(make_pipeline(hot, scaler), tuple(named))
    ordinal = drawn(rng, OrdinalEncoder, columns, defaults)
    if gaps:
        ordinal.set_params(encoded_missing_value=-1)
    wrong = tuple(offences(ordinal, gaps=gaps))
    if choice == 4:
        return Part(ordinal, wrong)
    scaler = drawn(rng, StandardScaler, columns, defaults)
    named = [("'ordinalencoder'", *one) for one in wrong]
    named += [("'standardscaler'", *one) for one in offences(scaler)]
    return Part(make_pipeline(ordinal, scaler), tuple(named))
