"""scikit-learn's pipelines, made of the preprocessing inside a model. Imports scikit-learn."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    OneHotEncoder,
    OrdinalEncoder,
    StandardScaler,
    TargetEncoder,
)

from lethe.engine.errors import InvalidData
from lethe.engine.fit.objective import Array
from lethe.engine.preprocess.input.columns import (
    Column,
    Date,
    Name,
    Numeric,
    OneHot,
    Ordinal,
    TargetEncode,
    passthrough,
    standardised,
)
from lethe.engine.preprocess.input.values import Values, is_missing
from lethe.engine.preprocess.library.fitted import PreparedFit


def pipeline_of(state: PreparedFit, final: Any) -> tuple[Pipeline, Array]:
    """Return a pipeline whose transformers are fitted to the live rows, and its final parameters.

    Parameters
    ----------
    state
        A fitted model, with a live row.
    final
        The last step, which gets its parameters from the caller.

    Returns
    -------
    pipeline, parameters
        Columns are found by name in a data frame, and otherwise by place, in the order of the
        model's; parameters are d x m, without those of categories that no live row has, and with
        those of a missing one repeated (`spell_missing`).

    Raises
    ------
    InvalidData
        A column holds dates, for which scikit-learn has no transformer.

    Notes
    -----
    Cost O(n p).
    """
    columns = state.settings.columns
    dates = [name for name, column in columns.items() if isinstance(column, Date)]
    if dates:
        raise InvalidData(f"column {dates[0]!r} holds dates; give days as numbers instead")
    order = sorted(columns) if all(isinstance(n, int) for n in columns) else list(columns)
    rows = live_values(state)
    X = np.column_stack([rows[name] for name in order])
    steps = [
        (str(name), _transformer(column, rows[name]), [order.index(name)])
        for name, column in columns.items()
    ]
    transformer = ColumnTransformer(steps)
    live = state.members.live
    transformer.fit(X, state.members.rows.y[live, 0])
    type_categories(transformer)
    if not any(isinstance(name, int) for name in order):
        name_columns(transformer, [str(name) for name in order])
    layout = state.base.layout
    keep = np.ones(len(state.published), dtype=np.bool_)
    for hot in layout.one_hot:
        keep[hot.features] = state.answer.sums.present[hot.features] > 0
    parameters = spell_missing(transformer, state.published[keep])
    return Pipeline([("columns", transformer), ("model", final)]), parameters


def spell_missing(
    transformer: ColumnTransformer, parameters: Array, *, pandas: bool = True
) -> Array:
    """Let fitted encoders know a missing category however a table spells it.

    To scikit-learn None, NaN and pandas' NA are three categories, and a data frame has one or the
    other by the type of its column. So each becomes a category, with the same parameters.

    Parameters
    ----------
    transformer
        Of one column in each step; its encoders are changed.
    parameters
        Those of its features, and then others, d x m.
    pandas
        Whether pandas' NA is one of them, if pandas is imported: no file holds that.

    Returns
    -------
    parameters
        With those of added features.
    """
    times: list[int] = []
    for _, step, _ in transformer.transformers_:
        encoder = encoder_of(step)
        added = 0 if encoder is None else _spelt(encoder, _missing_values(pandas=pandas))
        if isinstance(encoder, OneHotEncoder):
            times += [1] * (len(encoder.categories_[0]) - added)
            times[-1] += added
        else:
            times.append(1)
    times += [1] * (len(parameters) - len(times))
    return np.repeat(parameters, times, axis=0)


def _spelt(encoder: Any, spellings: Sequence[Any]) -> int:
    """Add the other spellings of a missing category, which is the last; return how many."""
    [categories] = encoder.categories_
    if categories.dtype.kind != "O" or not len(categories) or not is_missing(categories[-1]):
        return 0
    encoder.categories_ = [np.array([*categories[:-1], *spellings], dtype=object)]
    added = len(encoder.categories_[0]) - len(categories)
    if isinstance(encoder, OneHotEncoder):
        encoder._n_features_outs = [len(encoder.categories_[0])]  # as its fit counts them
    elif isinstance(encoder, TargetEncoder):
        [encodings] = encoder.encodings_
        encoder.encodings_ = [np.append(encodings, np.repeat(encodings[-1:], added))]
    return added


def _missing_values(*, pandas: bool) -> list[Any]:
    """Return what stands for a missing value in tables."""
    imported = sys.modules.get("pandas") if pandas else None
    return [None, math.nan, *([] if imported is None else [imported.NA])]


def type_categories(transformer: ColumnTransformer) -> None:
    """Make arrays of numbers of categories that are numbers, as fitting to a typed column does.

    They were fitted as objects, and scikit-learn cannot compare a column of numbers with those.
    """
    for _, step, _ in transformer.transformers_:
        encoder = encoder_of(step)
        if encoder is not None:
            encoder.categories_ = [_typed(categories) for categories in encoder.categories_]


def encoder_of(step: Any) -> Any:
    """Return the fitted encoder in a column's step, or None."""
    steps = [one for _, one in step.steps] if isinstance(step, Pipeline) else [step]
    return next((one for one in steps if hasattr(one, "categories_")), None)


def _typed(categories: NDArray[Any]) -> NDArray[Any]:
    listed = categories.tolist()
    return np.array(listed) if all(isinstance(one, (int, float)) for one in listed) else categories


def name_columns(transformer: ColumnTransformer, names: Sequence[str]) -> None:
    """Name the columns of a fitted transformer, as fitting to a data frame does.

    A frame whose columns come in another order would otherwise be read by place.
    """
    transformer.feature_names_in_ = np.array(names, dtype=object)
    for _, step, [place] in transformer.transformers_:
        first = step[0] if isinstance(step, Pipeline) else step  # whose names are the pipeline's
        first.feature_names_in_ = np.array([names[place]], dtype=object)


def live_values(state: PreparedFit) -> dict[Name, Values]:
    """Return the live rows as they were given, by column: numbers, or categories."""
    table = state.table.take(state.members.live)
    numbers, codes = (
        iter(table.numbers.T),
        iter(zip(table.codes.T, table.vocabularies, strict=True)),
    )
    values: dict[Name, Values] = {}
    for name, column in state.settings.columns.items():
        if isinstance(column, Numeric):
            values[name] = next(numbers).astype(object)
            continue
        coded, vocabulary = next(codes)
        listed = np.empty(len(coded), dtype=object)
        listed[:] = [vocabulary.categories[code] for code in coded]
        values[name] = listed
    return values


def _transformer(column: Column, values: Values) -> Any:
    if column == passthrough():
        return "passthrough"
    steps: list[Any] = []
    if isinstance(column, (OneHot, TargetEncode)) and _numbers_with_gaps(values):
        # Such a column has another type if a table spells what is missing otherwise.
        steps += [FunctionTransformer(np.asarray, kw_args={"dtype": object})]
    if isinstance(column, OneHot):
        steps += [OneHotEncoder(sparse_output=False, handle_unknown=column.unknown)]
    elif isinstance(column, Numeric):
        steps += [SimpleImputer()] if column.impute else []
    elif isinstance(column, Ordinal):
        named = "auto" if column.categories is None else [list(column.categories)]
        steps += [OrdinalEncoder(categories=named)]
    elif isinstance(column, TargetEncode):
        steps += [TargetEncoder(smooth=column.smooth, target_type="continuous")]
    steps += [StandardScaler()] if standardised(column) else []
    return steps[0] if len(steps) == 1 else make_pipeline(*steps)


def _numbers_with_gaps(values: Values) -> bool:
    known = [value for value in values if not is_missing(value)]
    return len(known) < len(values) and not any(isinstance(value, str) for value in known)
