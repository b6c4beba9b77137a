"""Features of rows that are not a model's own, as its live pipeline would transform them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lethe.engine.errors import InvalidData
from lethe.engine.fit.objective import Array
from lethe.engine.preprocess.input.columns import Name, Ordinal
from lethe.engine.preprocess.input.table import Table
from lethe.engine.preprocess.transformation.base import BaseTransformation
from lethe.engine.preprocess.transformation.categories import OneHotPart
from lethe.engine.preprocess.transformation.layout import CodedPart, looked_up
from lethe.engine.preprocess.transformation.statistics import Statistics

_SHOWN = 60  # characters of a category in a message


def pipeline_features(
    base: BaseTransformation,
    live: Statistics,
    counts: NDArray[np.int64],
    table: Table,
) -> Array:
    """Return the features that the final step of the live pipeline sees, n x p.

    Parameters
    ----------
    base, live
        The transformation.
    counts
        Live rows of each entry.
    table
        The rows, coded by the categories that the model has met and more.

    Raises
    ------
    InvalidData
        A category that no live row has, where the column does not say what is done then.
    """
    features, entries = base.rows(table)
    layout = base.layout
    for part in layout.numeric:
        column = features[:, part.feature]
        column[np.isnan(column)] = live.imputed[part.feature]
    row_of, place = np.nonzero(entries[:, : layout.moving] >= 0)
    entry = entries[row_of, place]
    features[row_of, layout.entry_feature[entry]] += live.shift[entry]
    for coded in layout.coded:
        _fill_unknown(coded, base, live, counts, table, features)
    for hot in layout.one_hot:
        _check_known(hot, base, live, table)
        if hot.shared is not None:
            features[:, hot.features] = _shared_or_own(hot, base, live, table, hot.shared)
            features[:, hot.features] -= base.centre[hot.features]
            features[:, hot.features] /= base.scale[hot.features]
    out: Array = (features - live.mean) / live.deviation
    return out


def _fill_unknown(
    part: CodedPart,
    base: BaseTransformation,
    live: Statistics,
    counts: NDArray[np.int64],
    table: Table,
    features: Array,
) -> None:
    """Give rows whose category no live row has the number that it has without any."""
    codes = table.codes[:, part.source]
    entry = looked_up(part.entry_of, codes)
    unknown = np.flatnonzero((entry < 0) | (counts[entry] == 0))
    if not len(unknown):
        return
    values = np.full(len(unknown), live.target_mean)
    if isinstance(part.column, Ordinal):
        named = list(part.column.categories or ())
        categories = table.vocabularies[part.source].categories
        for i, code in enumerate(codes[unknown]):
            if categories[code] in named:
                values[i] = named.index(categories[code])
            elif part.column.unknown is not None:
                values[i] = part.column.unknown
            else:
                raise _unknown(part.name, categories[code])
    feature = part.feature
    features[unknown, feature] = (values - base.centre[feature]) / base.scale[feature]


def _shared_or_own(
    part: OneHotPart, base: BaseTransformation, live: Statistics, table: Table, shared: int
) -> Array:
    """Return the features of 0 and 1 of a column whose rare categories share one."""
    feature = base.filled(part, table)
    known = (feature >= 0) & (live.present[feature] > 0)
    takes = known & live.rare[feature]
    if part.column.unknown == "infrequent_if_exist":
        takes |= ~known
    place = np.where(takes, shared, feature) - part.first
    hot = np.zeros((len(table), part.width))
    rows = np.flatnonzero(known | takes)
    hot[rows, place[rows]] = 1.0
    return hot


def _check_known(
    part: OneHotPart, base: BaseTransformation, live: Statistics, table: Table
) -> None:
    if part.column.unknown != "error":
        return
    feature = base.filled(part, table)
    unknown = np.flatnonzero((feature < 0) | ~part.is_known(live.present[feature]))
    if len(unknown):
        code = table.codes[unknown[0], part.source]
        category = table.vocabularies[part.source].categories[code]
        raise _unknown(part.name, category)


def _unknown(name: Name, category: object) -> InvalidData:
    shown = "a missing value" if category is None else repr(category)[:_SHOWN]
    return InvalidData(
        f"column {name!r} holds {shown}, which no live row of the model has; correct the row, or "
        "encode the column by OneHot(unknown='ignore') or TargetEncode()"
    )
