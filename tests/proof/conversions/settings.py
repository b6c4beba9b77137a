"""Several hundred settings: every parameter of each class at several values, alone and together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from sklearn import config_context
from sklearn.compose import ColumnTransformer
from sklearn.impute import KNNImputer, SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge, RidgeClassifier
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    StandardScaler,
    TargetEncoder,
)

ROWS = 72


@dataclass(frozen=True, slots=True)
class Setting:
    """One estimator, not yet fitted, and what it is fitted to.

    Attributes
    ----------
    name
        What is particular about it.
    estimator
        The estimator.
    X, y
        Its rows.
    routed
        Whether it is fitted with metadata routing, and weights.
    """

    name: str
    estimator: Any
    X: Any
    y: Any
    routed: bool = False


def table(seed: int = 0) -> pd.DataFrame:
    """Return whole numbers with gaps, numbers, a town and an ordered size."""
    rng = np.random.default_rng(seed)
    age = rng.integers(18, 80, ROWS).astype(float)
    age[rng.random(ROWS) < 0.15] = np.nan
    age[rng.random(ROWS) < 0.05] = -1.0
    age[rng.random(ROWS) < 0.05] = 0.0
    return pd.DataFrame(
        {
            "age": age,
            "income": rng.normal(3.0, 1.5, ROWS),
            "town": rng.choice(["a", "b", "c"], ROWS, p=[0.5, 0.4, 0.1]).astype(object),
            "size": rng.choice(["S", "M", "L"], ROWS).astype(object),
        }
    )


def numbers(seed: int = 0) -> np.ndarray[Any, Any]:
    X: np.ndarray[Any, Any] = np.random.default_rng(seed).normal(0.0, 1.0, size=(ROWS, 4))
    return np.asarray(X * [1.0, 2.0, 1.0, 0.5])


def targets(classes: int = 0, seed: int = 1) -> np.ndarray[Any, Any]:
    X, rng = numbers(), np.random.default_rng(seed)
    y: np.ndarray[Any, Any] = X @ [1.0, -0.5, 0.3, 0.2] + rng.normal(size=ROWS)
    if classes == 2:
        return np.asarray(y > np.median(y), dtype=int)
    return np.asarray(np.digitize(y, np.quantile(y, [0.3, 0.7]))) if classes == 3 else y


def every(made: type, fixed: dict[str, Any], values: dict[str, list[Any]]) -> Iterator[Any]:
    """Yield the class at each value of each parameter, one at a time."""
    for parameter, listed in values.items():
        for value in listed:
            yield made(**{**fixed, parameter: value})


_RIDGE: dict[str, list[Any]] = {
    "alpha": [1e-3, 7.0, np.array([2.0]), np.array([3.0]), 0.0],
    "fit_intercept": [True, False],
    "copy_X": [False],
    "max_iter": [5000],
    "tol": [1e-8],
    "positive": [True],
    "random_state": [3],
}
_LOGISTIC: dict[str, list[Any]] = {
    "C": [0.05, 20.0, np.inf],
    "l1_ratio": [0.5, 1.0],
    "dual": [True],
    "intercept_scaling": [4.0],
    "class_weight": ["balanced", {1: 3.0}],
    "warm_start": [True],
    "random_state": [1],
    "verbose": [0],
    "max_iter": [2000],
    "tol": [1e-9],
}
TRANSFORMERS: dict[str, list[tuple[str, Any]]] = {
    "age": [
        ("imputer", one)
        for one in [
            SimpleImputer(),
            *every(
                SimpleImputer,
                {},
                {
                    "missing_values": [-1.0, 0.0, -1],
                    "strategy": ["median", "most_frequent", "constant"],
                    "fill_value": [5.0],
                    "add_indicator": [True],
                    "keep_empty_features": [True],
                    "copy": [False],
                },
            ),
            KNNImputer(),
        ]
    ],
    "income": [
        ("scaler", one)
        for one in [
            StandardScaler(),
            *every(
                StandardScaler,
                {},
                {"with_mean": [False], "with_std": [False], "copy": [False]},
            ),
            MinMaxScaler(),
            "passthrough",
            "drop",
            FunctionTransformer(),
            FunctionTransformer(np.exp),
            FunctionTransformer(validate=True),
            FunctionTransformer(kw_args={"a": 1}),
            PolynomialFeatures(2),
            FeatureUnion([("one", StandardScaler()), ("two", StandardScaler())]),
            Pipeline([("idle", "passthrough"), ("scale", StandardScaler())]),
            Pipeline([("scale", StandardScaler()), ("idle", "passthrough")]),
            Pipeline([("fill", SimpleImputer()), ("scale", StandardScaler())]),
            Pipeline([("scale", StandardScaler()), ("fill", SimpleImputer())]),
            Pipeline([("scale", StandardScaler()), ("again", StandardScaler())]),
        ]
    ],
    "town": [
        ("hot", one)
        for one in [
            OneHotEncoder(),
            *every(
                OneHotEncoder,
                {},
                {
                    "categories": [[["a", "b", "c"]], [["c", "b", "a", "d"]]],
                    "drop": ["first", "if_binary", ["b"]],
                    "sparse_output": [False],
                    "dtype": [np.float32, np.int64],
                    "handle_unknown": ["ignore", "infrequent_if_exist", "warn"],
                    "min_frequency": [10, 0.2],
                    "max_categories": [2],
                    "feature_name_combiner": [lambda feature, category: f"{feature}={category}"],
                },
            ),
            Pipeline([("hot", OneHotEncoder(sparse_output=False)), ("scale", StandardScaler())]),
            Pipeline([("fill", SimpleImputer(strategy="most_frequent")), ("hot", OneHotEncoder())]),
            TargetEncoder(),
            OrdinalEncoder(),
        ]
    ],
    "size": [
        ("ordinal", one)
        for one in [
            OrdinalEncoder(categories=[["S", "M", "L"]]),
            *every(
                OrdinalEncoder,
                {},
                {
                    "categories": ["auto", [["L", "M", "S"]]],
                    "dtype": [np.int32, np.float32],
                    "encoded_missing_value": [-1],
                    "min_frequency": [5],
                    "max_categories": [2],
                },
            ),
            OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1),
            Pipeline([("order", OrdinalEncoder()), ("scale", StandardScaler())]),
            OneHotEncoder(),
        ]
    ],
}
_WHOLE: dict[str, Any] = {
    "age": Pipeline([("fill", SimpleImputer()), ("scale", StandardScaler())]),
    "income": StandardScaler(),
    "town": OneHotEncoder(handle_unknown="ignore"),
    "size": OrdinalEncoder(),
}


def finals() -> Iterator[Setting]:
    """Yield estimators of numbers alone."""
    X, y, two, three = numbers(), targets(), targets(2), targets(3)
    for one in every(Ridge, {}, _RIDGE):
        yield Setting(f"{one}", one, X, y)
        yield Setting(f"{one}, column of targets", one, X, y[:, None])
    for solver, intercept, alpha in product(
        ["svd", "cholesky", "lsqr", "sparse_cg", "sag", "saga", "lbfgs"], [True, False], [0.1, 9.0]
    ):
        positive = solver == "lbfgs"
        tight: dict[str, Any] = {"tol": 1e-12, "max_iter": 20_000}
        ridge = Ridge(alpha, fit_intercept=intercept, solver=solver, positive=positive, **tight)
        yield Setting(f"{ridge}", ridge, X, y)
    both = np.column_stack([y, y[::-1]])
    strengths: list[Any] = [2.0, np.array([2.0]), np.array([1.0, 3.0])]
    for strength in strengths:
        yield Setting(f"Ridge({strength}), two targets", Ridge(strength), X, both)
    for labels in (two, three):
        classifiers = list(every(RidgeClassifier, {}, {**_RIDGE, "class_weight": ["balanced"]}))
        for one in classifiers:
            if np.ndim(one.alpha) == 0:
                yield Setting(f"{one}, {len(set(labels))} classes", one, X, labels)
        for intercept, C in product([True, False], [0.1, 5.0]):
            of = LogisticRegression(C=C, fit_intercept=intercept, tol=1e-10, max_iter=5000)
            yield Setting(f"one of {of}, {len(set(labels))}", OneVsRestClassifier(of), X, labels)
    names = np.array(["no", "yes"])[two]
    for solver, intercept, C in product(
        ["lbfgs", "liblinear", "newton-cg", "newton-cholesky", "sag", "saga"],
        [True, False],
        [0.2, 4.0],
    ):
        one = LogisticRegression(
            C=C, fit_intercept=intercept, solver=solver, tol=1e-10, max_iter=20_000
        )
        yield Setting(f"{one}", one, X, names)
    saga: dict[str, Any] = {"solver": "saga", "max_iter": 20_000, "tol": 1e-10}
    for one in every(LogisticRegression, saga, _LOGISTIC):
        yield Setting(f"{one}", one, X, two)
    liblinear: dict[str, Any] = {
        "solver": "liblinear",
        "fit_intercept": False,
        "tol": 1e-10,
        "max_iter": 20_000,
    }
    for one in every(LogisticRegression, liblinear, _LOGISTIC):
        yield Setting(f"{one}", one, X, two)
    converged: dict[str, Any] = {"tol": 1e-10, "max_iter": 5000}
    yield Setting("three classes", LogisticRegression(**converged), X, three)
    for inner in [
        LogisticRegression(class_weight="balanced"),
        LogisticRegression(solver="liblinear"),
        Ridge(),
        LinearRegression(),
    ]:
        yield Setting(f"one of {inner}", OneVsRestClassifier(inner), X, three)
    parallel = OneVsRestClassifier(LogisticRegression(**converged), n_jobs=1, verbose=1)
    yield Setting("one against the rest, in parallel", parallel, X, three)
    yield Setting("LinearRegression", LinearRegression(), X, y)


def columns_of(column: str, transformer: Any, **more: Any) -> ColumnTransformer:
    steps = {**_WHOLE, column: transformer}
    return ColumnTransformer([(name, step, [name]) for name, step in steps.items()], **more)


def last(kind: str, intercept: bool = True) -> tuple[Any, Any]:
    if kind == "linear":
        return Ridge(0.5, fit_intercept=intercept), targets()
    return (
        LogisticRegression(C=2.0, fit_intercept=intercept, tol=1e-10, max_iter=5000),
        targets(2),
    )


def pipelines() -> Iterator[Setting]:
    """Yield pipelines: each transformer by itself, in columns, and in a plain Pipeline."""
    X = table()
    for kind in ("linear", "logistic"):
        for column, made in TRANSFORMERS.items():
            for _, step in made:
                final, y = last(kind)
                whole = Pipeline([("columns", columns_of(column, step)), ("model", final)])
                yield Setting(f"{kind}, {column}: {step}", whole, X, y)
        final, y = last(kind, intercept=False)
        whole = Pipeline([("columns", columns_of("income", StandardScaler())), ("model", final)])
        yield Setting(f"{kind}, no intercept", whole, X, y)
        for more in (
            {"transformer_weights": {"income": 2.0}},
            {"remainder": "passthrough"},
            {"sparse_threshold": 0.0},
            {"n_jobs": 1},
            {"verbose": True},
            {"verbose_feature_names_out": False},
        ):
            final, y = last(kind)
            columns = columns_of("income", StandardScaler(), **more)
            yield Setting(f"{kind}, columns {more}", Pipeline([("c", columns), ("m", final)]), X, y)
        for where in (slice(1, 2), [False, True, False, False], [1], ["income", "income"]):
            final, y = last(kind)
            chosen = ColumnTransformer(
                [("one", StandardScaler(), where), ("two", SimpleImputer(), ["age"])]
            )
            yield Setting(f"{kind}, columns {where}", Pipeline([("c", chosen), ("m", final)]), X, y)
        for steps in (
            [],
            [("idle", "passthrough")],
            [("none", FunctionTransformer())],
            [("idle", "passthrough"), ("scale", StandardScaler())],
            [("scale", StandardScaler()), ("idle", "passthrough")],
            [("fill", SimpleImputer()), ("scale", StandardScaler())],
            [("scale", StandardScaler()), ("fill", SimpleImputer())],
            [("fill", SimpleImputer(add_indicator=True)), ("scale", StandardScaler())],
            [("fill", SimpleImputer(missing_values=0))],
            [("poly", PolynomialFeatures(2))],
            [("inner", Pipeline([("scale", StandardScaler())]))],
        ):
            final, y = last(kind)
            for of in (numbers(), pd.DataFrame(numbers(), columns=list("abcd"))):
                name = f"{kind}, {[one for one, _ in steps]}, {type(of).__name__}"
                yield Setting(name, Pipeline([*steps, ("m", final)]), of, y)
        with config_context(enable_metadata_routing=True):
            for weighted in (True, False):
                final, y = last(kind)
                scaler = StandardScaler().set_fit_request(sample_weight=weighted)
                asking = final.set_fit_request(sample_weight=True)
                whole = Pipeline([("scale", scaler), ("model", asking)])
                name = f"{kind}, {'weighted' if weighted else 'plain'} statistics"
                yield Setting(name, whole, numbers(), y, routed=True)


def settings() -> list[Setting]:
    """Return all of them."""
    return [*finals(), *pipelines()]
