"""Published columns as scikit-learn's transformers, without a row of the model.

All that they learn is published: a mean, a deviation, a category's number. Each is fitted to
made-up rows, for its form, and is then given these. Imports scikit-learn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler, TargetEncoder

from lethe.engine.errors import InvalidData
from lethe.engine.preprocess.input.by_name import given_columns
from lethe.engine.preprocess.input.columns import Column, Name
from lethe.engine.preprocess.input.derived import Filled
from lethe.engine.preprocess.library.computing import computing
from lethe.engine.preprocess.library.pipelines import (
    computed,
    filling,
    knowing_missing,
    name_columns,
    places_of,
    type_categories,
)
from lethe.engine.store.layout.columns import Category, FittedColumn
from lethe.engine.store.layout.preprocessing import column_of

TRUSTED = (
    "numpy.dtype",
    "scipy.interpolate._bsplines.BSpline",
    "scipy._lib.array_api_compat.numpy._aliases.asarray",
)
"""What skops has to trust for an imputed column, and for one of splines, beside what it trusts by
itself."""

_ROWS = 5  # made up: one for each fold that TargetEncoder fits as well
_BLANK = ""  # blank text is a missing category, as in every file that is read
_NO_RANK = -1  # of a category that an empty model is asked for: its weight is 0


def pipeline_of_columns(columns: Sequence[FittedColumn], final: Any) -> Pipeline:
    """Return a fitted pipeline that ends in ``final``, whose features are those that `kept` names.

    It takes rows as they were given, and refuses those that the version refuses.

    Raises
    ------
    InvalidData
        A column holds dates, for which scikit-learn has no transformer.
    """
    settings: dict[Name, Column] = {column.name: column_of(column) for column in columns}
    order = [*given_columns(settings)]
    steps = [
        (column.name, _transformer(column), places_of(name, settings[name], order))
        for name, column in zip(settings, columns, strict=True)
    ]
    transformer = ColumnTransformer(steps)
    made_up = [_made_up(column) for column in columns]
    n = max(map(len, made_up), default=0)
    rows = np.empty((n, len(order)), dtype=object)
    rows[:] = 1.0
    for column, (_, _, [place, *_]), values in zip(columns, steps, made_up, strict=True):
        if not computed(settings[column.name]):
            rows[:, place] = [*values, *values[:1] * (n - len(values))]
    transformer.fit(rows, np.zeros(n))
    for column, (_, step, _) in zip(columns, transformer.transformers_, strict=True):
        for one in [one for _, one in step.steps] if isinstance(step, Pipeline) else [step]:
            _set(column, one)
    type_categories(transformer)
    name_columns(transformer, [str(name) for name in order])
    return Pipeline([("columns", transformer), ("model", final)])


def kept(columns: Sequence[FittedColumn], *, intercept: bool) -> NDArray[np.bool_]:
    """Return which rows of theta the pipeline has: not those of categories without a live row."""
    mask = [column.kept() for column in columns]
    return np.concatenate([*mask, [True]] if intercept else mask)


def _known(column: FittedColumn) -> list[Category]:
    """Return the categories that live rows have, in their order."""
    gone = frozenset(column.vanished)
    return [known for place, known in enumerate(column.categories) if place not in gone]


def _transformer(column: FittedColumn) -> Any:
    if column.step == "date":
        raise InvalidData(
            f"column {column.name!r} holds dates, for which scikit-learn has no transformer; "
            "export .onnx, .json, .safetensors or .npz, or register days as numbers"
        )
    steps: list[Any] = []
    of = column_of(column).of
    if column.step == "numeric":
        if of is not None and computed(column_of(column)):
            steps.append(computing(of))
        steps += [SimpleImputer()] if column.impute is not None else []
    else:
        steps += filling(of)
        if column.step == "one-hot" and column.impute is not None:
            instead: Any = column.categories[int(column.impute)]
            # Among truth values a number: it is filled in where they are numbers already.
            value = instead if isinstance(instead, str) else float(instead)
            steps += filling(Filled(column.name, value))
        steps += knowing_missing(_encoder(column), _known(column), _BLANK)
    scaled = (
        column.values if column.step == "one-hot" else (column.mean, column.deviation) != (0, 1)
    )
    steps += [StandardScaler()] if scaled else []
    if not steps:
        return "passthrough"
    alone = len(steps) == 1 and not computed(column_of(column))
    return steps[0] if alone else make_pipeline(*steps)


def _encoder(column: FittedColumn) -> Any:
    known: Any = [_known(column)]
    if column.step == "one-hot":
        unknown = "ignore" if column.ignores_unknown else "error"
        encoder = OneHotEncoder(categories=known, handle_unknown=unknown, sparse_output=False)
        if column.otherwise is not None:
            encoder.set_params(handle_unknown="infrequent_if_exist")
        if column.rare:  # as `_made_up` has them
            some = len(known[0]) > len(column.rare)
            encoder.set_params(**{"min_frequency": 2} if some else {"max_categories": 1})
        return encoder
    if column.step == "target-encode":
        return TargetEncoder(categories=known, target_type="continuous")
    encoder = OrdinalEncoder(categories=known)
    if column.otherwise is not None:
        number = int(column.otherwise)
        number = _NO_RANK if 0 <= number < len(known[0]) else number
        encoder.set_params(handle_unknown="use_encoded_value", unknown_value=number)
    return encoder


def _made_up(column: FittedColumn) -> list[Any]:
    """Return values that a column is fitted to: rare categories once, where others are twice."""
    if column.step == "numeric":
        return [0.0] * _ROWS
    if not column.rare:
        return _known(column)[:1] * _ROWS
    rare = [column.categories[place] for place in column.rare]
    return [*(one for one in _known(column) if one not in rare)] * 2 + rare


def _set(column: FittedColumn, step: Any) -> None:
    """Give a fitted transformer what the version says."""
    if isinstance(step, SimpleImputer) and column.impute is not None and column.step == "numeric":
        step.statistics_ = np.array([column.impute])
    elif isinstance(step, StandardScaler) and step.with_std:
        step.mean_, step.scale_ = (np.array(part)[column.kept()] for part in column.scaling)
        step.var_ = step.scale_**2
    elif isinstance(step, TargetEncoder):
        step.encodings_, step.target_mean_ = [np.array(column.values)], column.otherwise
