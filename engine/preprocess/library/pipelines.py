"""scikit-learn's pipelines, made of the preprocessing inside a model. Imports scikit-learn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import (
    MaxAbsScaler,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    RobustScaler,
    StandardScaler,
    TargetEncoder,
)

from lethe.engine.errors import InvalidData
from lethe.engine.fit.objective import Array
from lethe.engine.preprocess.input.by_name import given_columns
from lethe.engine.preprocess.input.columns import (
    Category,
    Column,
    Columns,
    Date,
    Name,
    Numeric,
    OneHot,
    Ordinal,
    Standardise,
    TargetEncode,
    by_order,
    centres,
    passthrough,
    scales,
)
from lethe.engine.preprocess.input.derived import (
    Expression,
    Filled,
    Same,
)
from lethe.engine.preprocess.input.settings import Settings
from lethe.engine.preprocess.input.sources import sources
from lethe.engine.preprocess.input.values import Values, sorted_categories
from lethe.engine.preprocess.library import PreparedModel
from lethe.engine.preprocess.library.computing import computing


def pipeline_of(state: PreparedModel, final: Any) -> tuple[Pipeline, Array]:
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
        model's; parameters are d x m, without those of categories that no live row has, or that
        are left out.

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
    order = _order(state.settings)
    rows, y = live_values(state), state.members.rows.y[state.members.live, 0]
    X = np.column_stack([_values_of(source, columns, rows) for source in order])
    steps = [
        (str(name), _transformer(name, column, rows[name]), places_of(name, column, order))
        for name, column in columns.items()
    ]
    transformer = ColumnTransformer(steps)
    transformer.fit(X, y)
    for (name, column), (_, step, _) in zip(
        columns.items(), transformer.transformers_, strict=False
    ):
        if computed(column) and isinstance(step, Pipeline):
            _learn(step, rows[name])
    type_categories(transformer)
    if not any(isinstance(name, int) for name in order):
        name_columns(transformer, [str(name) for name in order])
    layout = state.layout
    keep = np.ones(len(state.published), dtype=np.bool_)
    for hot in layout.one_hot:
        own = hot.features
        keep[own] = hot.is_known(state.present[own]) & ~state.left_out[own]
    return Pipeline([("columns", transformer), ("model", final)]), state.published[keep]


def _order(settings: Settings) -> list[Name]:
    """Return the columns of a table, in the order of an array's."""
    order = [*given_columns(settings.columns)]
    if all(isinstance(name, int) for name in order):
        return sorted({*order, *settings.dropped}, key=int)
    return order


def places_of(name: Name, column: Column, order: Sequence[Name]) -> list[int]:
    """Return the places of what a column is made from among the table's."""
    return [order.index(one) for one in sources(column.of or Same(name))]


def computed(column: Column) -> bool:
    """Return whether a column is not the table's own."""
    return isinstance(column, Numeric) and not isinstance(column.of, Same | None)


def _values_of(source: Name, columns: Columns, rows: dict[Name, Values]) -> Values:
    """Return the live values of a table's column; made-up ones if none of the model's is it."""
    for name, column in columns.items():
        if not computed(column) and source in (
            (name,) if column.of is None else sources(column.of)
        ):
            return rows[name]
    return np.ones(len(next(iter(rows.values()))), dtype=object)


def _learn(step: Pipeline, values: Values) -> None:
    """Fit the steps after the first, which computes the values and learns nothing."""
    made = values.reshape(-1, 1)
    for _, one in step.steps[1:]:
        made = one.fit_transform(made)


_NO_TEXT = "\0missing"
"""Text that no file or database holds: NUL ends a text in many."""


def knowing_missing(encoder: Any, known: Sequence[Category], fill: str = _NO_TEXT) -> list[Any]:
    """Return the steps that make one category of every missing value, and then encode all.

    scikit-learn takes None and NaN for two categories. So both are filled in by one value, which no
    row has: the largest number, or ``fill``. pandas' NA in a column that is not of a type of
    numbers raises an error, as in scikit-learn's own encoders: nothing there tells it from a value.

    Parameters
    ----------
    encoder
        An encoder that is not fitted yet.
    known
        The categories, in their order. If none is missing, the encoder is all there is.
    """
    if None not in known:
        return [encoder]
    if _are_numbers(known):
        instead: Any = float(np.finfo(np.float64).max)
        before = [_as_numbers(), SimpleImputer(strategy="constant", fill_value=instead)]
    else:
        while fill in known:
            fill += "_"
        instead = fill
        before = [
            SimpleImputer(
                missing_values=missing, strategy="constant", fill_value=fill,
                keep_empty_features=True,
            )
            for missing in (np.nan, None)
        ]  # fmt: skip
    named = [instead if one is None else one for one in known]
    return [*before, encoder.set_params(categories=[named])]


def _are_numbers(known: Sequence[Category]) -> bool:
    """Return whether there are categories, and all but a missing one are numbers."""
    there = [one for one in known if one is not None]
    return bool(there) and not any(isinstance(one, str) for one in there)


def _as_numbers() -> StandardScaler:
    """Return a step that makes NaN of None and of pandas' NA, and does no more."""
    return StandardScaler(with_mean=False, with_std=False)


def type_categories(transformer: ColumnTransformer) -> None:
    """Make arrays of numbers of categories that are numbers, as fitting to a typed column does.

    They were fitted as objects, and scikit-learn cannot compare a column of numbers with those.
    """
    for _, step, _ in transformer.transformers_:
        for one in [one for _, one in step.steps] if isinstance(step, Pipeline) else [step]:
            if hasattr(one, "categories_"):
                one.categories_ = [_typed(categories) for categories in one.categories_]


def _typed(categories: NDArray[Any]) -> NDArray[Any]:
    listed = categories.tolist()
    return np.array(listed) if all(isinstance(one, (int, float)) for one in listed) else categories


def name_columns(transformer: ColumnTransformer, names: Sequence[str]) -> None:
    """Name the columns of a fitted transformer, as fitting to a data frame does.

    A frame whose columns come in another order would otherwise be read by place.
    """
    transformer.feature_names_in_ = np.array(names, dtype=object)
    for _, step, places in transformer.transformers_:
        first = step
        while isinstance(first, Pipeline):  # whose names are those of its first step
            first = first[0]
        first.feature_names_in_ = np.array([names[place] for place in places], dtype=object)


def live_values(state: PreparedModel) -> dict[Name, Values]:
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


def _transformer(name: Name, column: Column, live: Values) -> Any:
    """Return what scikit-learn has for a column with these live values."""
    if replace(column, of=None) == passthrough() and not computed(column):
        return "passthrough"
    steps: list[Any] = []
    standardise = column.standardise
    if column.of is not None and computed(column):
        steps.append(computing(column.of))
    if isinstance(column, Numeric):
        # A column whose last value was deleted keeps its feature, as it does in the model.
        if column.impute == "most_frequent":  # which takes values of any type as they are
            steps.append(_as_numbers())
        if column.impute:
            steps.append(SimpleImputer(strategy=column.impute, keep_empty_features=True))
    else:
        known = sorted_categories(name, live)
        steps += filling(column.of)
        if isinstance(column, OneHot) and column.impute is not None:
            if _are_numbers(known):  # of which an imputer of None takes no array
                steps += [_as_numbers(), SimpleImputer(strategy=column.impute)]
            else:
                steps += [
                    SimpleImputer(missing_values=missing, strategy=column.impute)
                    for missing in (np.nan, None)
                ]
            known = [one for one in known if one is not None]
        steps += knowing_missing(_encoder(column, known), known)
        if (
            isinstance(column, OneHot)
            and column.drop not in (None, "if_binary")
            and len(known) == 1
        ):
            standardise = False  # no feature is left, and scikit-learn does not scale none
    if standardise:
        before = isinstance(column, Numeric) and column.scaler_first  # the imputer
        before = before and not np.isnan(live.astype(np.float64)).all()
        steps.insert(len(steps) - int(before), _scaler(standardise))
    if not steps:
        return "passthrough"
    return steps[0] if len(steps) == 1 and not computed(column) else make_pipeline(*steps)


def _scaler(standardise: Standardise) -> Any:
    if isinstance(standardise, tuple):
        return MinMaxScaler(standardise)
    if by_order(standardise):
        return MaxAbsScaler() if standardise == "max-abs" else RobustScaler()
    return StandardScaler(with_mean=centres(standardise), with_std=scales(standardise))


def filling(of: Expression | None) -> list[Any]:
    """Return the steps that fill in a category where one is missing."""
    if not isinstance(of, Filled):
        return []
    if not isinstance(of.value, str):
        return [_as_numbers(), SimpleImputer(strategy="constant", fill_value=of.value)]
    return [
        SimpleImputer(
            missing_values=missing, strategy="constant", fill_value=of.value,
            keep_empty_features=True,
        )
        for missing in (np.nan, None)
    ]  # fmt: skip


def _encoder(column: OneHot | Ordinal | TargetEncode, known: Sequence[Category]) -> Any:
    if isinstance(column, OneHot):
        drop: Any = column.drop
        if isinstance(drop, tuple):
            drop = list(drop) if drop[0] in known else None
        return OneHotEncoder(
            sparse_output=False,
            handle_unknown=column.unknown,
            drop=drop,
            min_frequency=column.min_frequency,
            max_categories=column.max_categories,
            categories="auto" if column.categories is None else [list(column.categories)],
        )
    if isinstance(column, TargetEncode):
        return TargetEncoder(smooth=column.smooth, target_type="continuous")
    encoder = OrdinalEncoder(
        categories="auto" if column.categories is None else [list(column.categories)]
    )
    if column.unknown is not None:
        encoder.set_params(handle_unknown="use_encoded_value", unknown_value=column.unknown)
    return encoder
