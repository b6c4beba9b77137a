"""From a row as it is given to the features that theta belongs to, by published columns alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lethe.engine.errors import InvalidData
from lethe.engine.fit.objective import Array
from lethe.engine.preprocess.input.by_name import given_columns
from lethe.engine.preprocess.input.columns import Column, Name
from lethe.engine.preprocess.input.derived import (
    Same,
)
from lethe.engine.preprocess.input.sources import sources
from lethe.engine.preprocess.input.table import Codes, read_table
from lethe.engine.store.layout.columns import FittedColumn
from lethe.engine.store.layout.preprocessing import column_of, vocabularies_of

_SHOWN = 60  # characters of a category in a message


def features_of(columns: Sequence[FittedColumn], X: Any) -> Array:
    """Return features, n x p, or (p,) for one row. Cost O(n p).

    Parameters
    ----------
    columns
        The columns that a version publishes.
    X
        Named columns (a mapping, a data frame, an Arrow table), others ignored; or an array with
        the columns in order.

    Raises
    ------
    InvalidData
        A column is missing; a value is not of its column's kind, or missing where nothing stands in
        for it; or a category that no live row has, and the column does not ignore those.
    """
    settings: dict[Name, Column] = {column.name: column_of(column) for column in columns}
    named, single = _columns_in([str(name) for name in given_columns(settings)], X)
    table = read_table(settings, named, vocabularies_of(columns), spelled=True)
    numbers, codes = iter(table.numbers.T), iter(table.codes.T)
    parts: list[Array] = []
    for column in columns:
        if column.step in ("numeric", "date"):
            parts.append(_numeric(column, next(numbers)))
        elif column.step == "one-hot":
            parts.append(_one_hot(column, next(codes), named))
        else:
            parts.append(_coded(column, next(codes), named))
    features = np.hstack(parts)
    return features[0] if single else features


def _columns_in(columns: Sequence[str], X: Any) -> tuple[dict[str, Any], bool]:
    """Return the columns of X by name, and whether it is a single row."""
    if isinstance(X, Mapping) or hasattr(X, "columns") or hasattr(X, "column_names"):
        try:
            named = {name: X[name] for name in columns}
        except KeyError as error:
            names = ", ".join(columns)
            missing = repr(error.args[0]) if error.args else str(error)
            raise InvalidData(
                f"the table needs the columns {names}; {missing} is missing"
            ) from None
        single = isinstance(X, Mapping) and all(_is_scalar(value) for value in named.values())
        return ({k: [v] for k, v in named.items()} if single else named), single
    array = np.array(X, dtype=object)
    if array.ndim not in (1, 2) or array.shape[-1] != len(columns):
        names = ", ".join(columns)
        raise InvalidData(
            f"the rows are of shape {array.shape}; they must be (n, {len(columns)}), in the order "
            f"{names}"
        )
    matrix = array.reshape(-1, len(columns))
    return {name: matrix[:, i] for i, name in enumerate(columns)}, array.ndim == 1


def _is_scalar(value: Any) -> bool:
    return isinstance(value, str) or value is None or np.ndim(value) == 0


def _numeric(column: FittedColumn, x: Array) -> Array:
    missing = np.isnan(x)
    if missing.any():
        if column.impute is None:
            raise InvalidData(
                f"column {column.name!r} has no value in a row, and nothing is imputed for it"
            )
        x = np.where(missing, column.impute, x)
    return ((x - column.mean) / column.deviation)[:, None]


def _one_hot(column: FittedColumn, codes: Codes, named: Mapping[str, Any]) -> Array:
    if column.impute is not None:
        codes = np.where(codes == column.categories.index(None), int(column.impute), codes)
    known = _known(column, codes)
    if not column.ignores_unknown:
        _refuse(column, ~known, named)
    features = np.zeros((len(codes), column.width))
    place = np.where(np.isin(codes, column.rare), len(column.categories), codes)
    if column.otherwise is not None:
        place, known = np.where(known, place, int(column.otherwise)), np.ones_like(known)
    rows = np.flatnonzero(known)
    features[rows, place[rows]] = 1.0
    means, deviations = column.scaling
    return (features - means) / deviations


def _coded(column: FittedColumn, codes: Codes, named: Mapping[str, Any]) -> Array:
    known = _known(column, codes)
    if column.otherwise is None:
        _refuse(column, ~known, named)
    values = np.array([*column.values, column.otherwise or 0.0])
    x = values[np.where(known, codes, len(column.values))]
    return ((x - column.mean) / column.deviation)[:, None]


def _known(column: FittedColumn, codes: Codes) -> NDArray[np.bool_]:
    """Return which codes are those of a category that a live row has."""
    known: NDArray[np.bool_] = codes < len(column.categories)
    return known & ~np.isin(codes, column.vanished)


def _refuse(column: FittedColumn, unknown: NDArray[np.bool_], named: Mapping[str, Any]) -> None:
    if not unknown.any():
        return
    row = int(np.flatnonzero(unknown)[0])
    [source] = sources(column_of(column).of or Same(column.name))
    value = list(named[str(source)])[row]
    shown = "a missing value" if value is None else repr(value)[:_SHOWN]
    raise InvalidData(
        f"column {column.name!r} holds {shown}, which no live row of the model has; correct the "
        "row, or register the model with a column that takes unknown categories"
    )
