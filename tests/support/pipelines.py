"""Tables with every kind of column, and scikit-learn's pipeline for them.

The pipeline is put together from scikit-learn's own transformers and fitted anew to the rows that
are live: it shares nothing with the engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, timedelta
from typing import Any, TypeAlias

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, PoissonRegressor, Ridge
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    RobustScaler,
    StandardScaler,
    TargetEncoder,
)

from lethe.engine.preprocess.input.columns import (
    Column,
    Columns,
    Date,
    Name,
    Numeric,
    OneHot,
    Ordinal,
    Standardise,
    TargetEncode,
    passthrough,
)

Array: TypeAlias = NDArray[np.float64]
Values: TypeAlias = NDArray[Any]
Rows: TypeAlias = dict[Name, Values]

EPOCH = date(1970, 1, 1)
SIZES = ("S", "M", "L", "XL")

EVERY_KIND: Columns = {
    "age": Numeric(),
    "weight": Numeric(standardise=False),
    "score": passthrough(),
    "town": OneHot(),
    "size": Ordinal(categories=SIZES),
    "grade": Ordinal(standardise=True),
    "post": TargetEncode(standardise=True),
    "job": TargetEncode(smooth=5.0),
    "joined": Date(),
}
"""A column of each kind and setting."""


class UncrossedTargetEncoder(TargetEncoder):  # type: ignore[misc]  # scikit-learn has no types
    """TargetEncoder without cross-fitting: training rows are encoded as `transform` would."""

    def fit_transform(self, X: Any, y: Any = None, **_: Any) -> Any:
        """Fit and transform."""
        return self.fit(X, y).transform(X)


def days(values: Values) -> Values:
    """Return dates as days since 1970 (None: NaN), as a column of numbers."""
    flat = [np.nan if v is None else float((v - EPOCH).days) for v in values.ravel()]
    return np.array(flat).reshape(values.shape)


def as_numbers(values: Values) -> Array:
    """Return an object array as numbers."""
    return values.astype(np.float64)


def pipeline(
    columns: Columns, *, ridge: float = 1.0, kind: str = "linear", rows: int = 1
) -> Pipeline:
    """Return scikit-learn's pipeline for ``columns``; its X has object columns in their order.

    ``rows``: to which a Poisson pipeline will be fitted.
    """
    steps = [
        (str(name), _transformer(column), [i]) for i, (name, column) in enumerate(columns.items())
    ]
    newton = {"tol": 1e-12, "max_iter": 10_000, "solver": "newton-cholesky"}
    finals = {
        "linear": lambda: Ridge(alpha=ridge, solver="cholesky"),
        "logistic": lambda: LogisticRegression(C=1.0 / ridge, **newton),
        "classes": lambda: OneVsRestClassifier(LogisticRegression(C=1.0 / ridge, **newton)),
        "poisson": lambda: PoissonRegressor(alpha=ridge / rows, **newton),
    }
    final = finals[kind]()
    return Pipeline([("columns", ColumnTransformer(steps)), ("model", final)])


def _transformer(column: Column) -> Any:
    if isinstance(column, OneHot):
        hot = OneHotEncoder(
            sparse_output=False,
            handle_unknown=column.unknown,
            drop=list(column.drop) if isinstance(column.drop, tuple) else column.drop,
            min_frequency=column.min_frequency,
            max_categories=column.max_categories,
            categories="auto" if column.categories is None else [list(column.categories)],
        )
        fill = SimpleImputer(missing_values=None, strategy="most_frequent")
        steps: list[Any] = [hot] if column.impute is None else [fill, hot]
    elif isinstance(column, Numeric):
        read = days if isinstance(column, Date) else as_numbers
        steps = [FunctionTransformer(read)]
        steps += [SimpleImputer(strategy=column.impute)] if column.impute else []
    elif isinstance(column, Ordinal):
        named = "auto" if column.categories is None else [list(column.categories)]
        steps = [OrdinalEncoder(categories=named)]
        if column.unknown is not None:
            steps[0].set_params(handle_unknown="use_encoded_value", unknown_value=column.unknown)
    else:
        assert isinstance(column, TargetEncode)
        steps = [UncrossedTargetEncoder(smooth=column.smooth, target_type="continuous")]
    if column.standardise:
        before = isinstance(column, Numeric) and column.scaler_first  # the imputer
        steps.insert(len(steps) - int(before), _scaler(column.standardise))
    return make_pipeline(*steps)


def _scaler(standardise: Standardise) -> Any:
    if isinstance(standardise, tuple):
        return MinMaxScaler(standardise)
    others: dict[Any, Any] = {
        "centre": StandardScaler(with_std=False),
        "scale": StandardScaler(with_mean=False),
        "max-abs": MaxAbsScaler(),
        "robust": RobustScaler(),
    }
    return others.get(standardise, StandardScaler())


def matrix(columns: Columns, rows: Rows, places: Any = slice(None)) -> Values:
    """Return rows as an object array, columns in order: a pipeline's X."""
    parts = [np.asarray(rows[name], dtype=object)[places] for name in columns]
    return np.column_stack(parts)


def parameters(fitted: Pipeline) -> Array:
    """Return the final step's coefficients, the intercept last; of several classes, d x C."""
    model = fitted[-1]
    if isinstance(model, OneVsRestClassifier):
        parts = [np.append(one.coef_, one.intercept_) for one in model.estimators_]
        return np.column_stack(parts)
    return np.append(np.ravel(model.coef_), np.ravel(model.intercept_))


def draw_rows(columns: Columns, n: int, rng: Generator, *, missing: float = 0.1) -> Rows:
    """Return n random rows: numbers far from 0, categories of unequal size."""
    rows: Rows = {}
    for name, column in columns.items():
        values = _drawn(column, n, rng)
        if isinstance(column, Numeric | OneHot) and column.impute:
            values[rng.random(n) < missing] = None
        rows[name] = values
    return rows


def _drawn(column: Column, n: int, rng: Generator) -> Values:
    if isinstance(column, Date):
        first = date(2015, 3, 1)
        return _objects(first + timedelta(days=int(d)) for d in rng.integers(0, 3000, n))
    if isinstance(column, Numeric):
        return _objects(50.0 * bool(column.standardise) + 3.0 * v for v in rng.normal(size=n))
    if isinstance(column, Ordinal):
        named = column.categories or tuple("ABCDE")
        return _objects(named[i] for i in rng.integers(0, len(named), n))
    size = 12 if isinstance(column, OneHot) else 25
    return _objects(f"c{int(size * u * u)}" for u in rng.random(n))


def _objects(values: Any) -> Values:
    listed = list(values)
    array = np.empty(len(listed), dtype=object)
    array[:] = listed
    return array


def draw_target(columns: Columns, rows: Rows, rng: Generator) -> Array:
    """Return a target that depends on every column."""
    n = len(next(iter(rows.values())))
    y = rng.normal(size=n) + 10.0
    for i, (name, column) in enumerate(columns.items()):
        if isinstance(column, Date):
            y += 1e-3 * np.nan_to_num(days(rows[name]) - 17_000.0)
        elif isinstance(column, Numeric):
            y += np.nan_to_num(as_numbers(rows[name]) - 50.0 * bool(column.standardise)) / (i + 1)
        else:
            y += np.array([len(str(v)) + (hash_of(str(v)) % 7) / 3.0 for v in rows[name]])
    return y


def hash_of(text: str) -> int:
    """Return a number that is the same in every process."""
    return sum(ord(letter) * (i + 1) for i, letter in enumerate(text))


def joined(rows: Rows, more: Rows) -> Rows:
    """Return rows with ``more`` after them."""
    return {name: np.concatenate([values, more[name]]) for name, values in rows.items()}


def taken(rows: Mapping[Name, Values], places: Any) -> Rows:
    """Return the rows at ``places``."""
    return {name: values[places] for name, values in rows.items()}
