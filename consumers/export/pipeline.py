"""Published columns as scikit-learn's transformers, without a row of the model.

All that they learn is published: a mean, a deviation, a category's number. Each is fitted to
made-up rows, for its form, and is then given these. Imports scikit-learn.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler, TargetEncoder

from lethe.engine.errors import InvalidData
from lethe.engine.fit.objective import Array
from lethe.engine.preprocess.library.pipelines import name_columns, spell_missing, type_categories
from lethe.engine.store.layout.columns import Category, FittedColumn

TRUSTED = ("numpy.dtype",)
"""What skops has to trust for an imputed column, beside what it trusts by itself."""

_ROWS = 5  # made up: one for each fold that TargetEncoder fits as well
_NO_RANK = -1  # of a category that an empty model is asked for: its weight is 0


def transformer_of_columns(
    columns: Sequence[FittedColumn], theta: Array, *, intercept: bool
) -> tuple[ColumnTransformer, Array]:
    """Return a fitted transformer of published columns, and the parameters of its features, d x m.

    It takes rows as they were given, and refuses those that the version refuses. Categories without
    a live row are no features, and a missing one is several (`spell_missing`).

    Raises
    ------
    InvalidData
        A column holds dates, for which scikit-learn has no transformer.
    """
    steps = [(column.name, _transformer(column), [i]) for i, column in enumerate(columns)]
    transformer = ColumnTransformer(steps)
    rows = np.empty((_ROWS, len(columns)), dtype=object)
    rows[:] = [_made_up(column) for column in columns]
    transformer.fit(rows, np.zeros(_ROWS))
    for column, (_, step, _) in zip(columns, transformer.transformers_, strict=True):
        for one in [one for _, one in step.steps] if isinstance(step, Pipeline) else [step]:
            _set(column, one)
    type_categories(transformer)
    name_columns(transformer, [column.name for column in columns])
    live = theta[_kept(columns, intercept=intercept)]
    return transformer, spell_missing(transformer, live, pandas=False)


def _kept(columns: Sequence[FittedColumn], *, intercept: bool) -> NDArray[np.bool_]:
    """Return which rows of theta have features: not those of categories without a live row."""
    mask: list[bool] = []
    for column in columns:
        width = len(column.categories) if column.step == "one-hot" else 1
        gone = column.vanished if column.step == "one-hot" else ()
        mask += [place not in gone for place in range(width)]
    return np.array([*mask, True] if intercept else mask)


def _known(column: FittedColumn) -> list[Category | float]:
    """Return the categories that the version knows, in their order; NaN for a missing value.

    Data frames have that. To scikit-learn, None is another category.
    """
    gone = frozenset(column.vanished)
    live = [known for place, known in enumerate(column.categories) if place not in gone]
    return [math.nan if known is None else known for known in live]


def _transformer(column: FittedColumn) -> Any:
    if column.step == "date":
        raise InvalidData(
            f"column {column.name!r} holds dates, for which scikit-learn has no transformer; "
            "export .onnx, .json, .safetensors or .npz, or register days as numbers"
        )
    steps: list[Any] = []
    if column.step == "numeric":
        steps += [SimpleImputer()] if column.impute is not None else []
    elif column.step == "one-hot":
        unknown = "ignore" if column.ignores_unknown else "error"
        return OneHotEncoder(
            categories=[_known(column)], handle_unknown=unknown, sparse_output=False
        )
    elif column.step == "ordinal":
        steps += [_ordinal(column)]
    else:
        steps += [TargetEncoder(categories=[_known(column)], target_type="continuous")]
    steps += [StandardScaler()] if (column.mean, column.deviation) != (0.0, 1.0) else []
    if not steps:
        return "passthrough"
    return steps[0] if len(steps) == 1 else make_pipeline(*steps)


def _ordinal(column: FittedColumn) -> OrdinalEncoder:
    encoder = OrdinalEncoder(categories=[_known(column)])
    if column.otherwise is not None:
        encoder.set_params(handle_unknown="use_encoded_value", unknown_value=_NO_RANK)
    return encoder


def _made_up(column: FittedColumn) -> Any:
    return 0.0 if column.step == "numeric" else _known(column)[0]


def _set(column: FittedColumn, step: Any) -> None:
    """Give a fitted transformer what the version says."""
    if isinstance(step, SimpleImputer):
        step.statistics_ = np.array([column.impute])
    elif isinstance(step, StandardScaler):
        step.mean_, step.scale_ = np.array([column.mean]), np.array([column.deviation])
        step.var_ = step.scale_**2
    elif isinstance(step, TargetEncoder):
        step.encodings_, step.target_mean_ = [np.array(column.values)], column.otherwise
