"""Where a model's columns are: in the table, among the features, and among the entries.

An *entry* is a value that all rows of some kind share in one feature, and that moves when other
rows come and go: the mean that stands in for a missing number, or the code of a category. A row
has at most one entry in a feature. Features and entries are numbered in the order of the columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lethe.engine.errors import InvalidData
from lethe.engine.preprocess.input.columns import (
    MAX_PLACES,
    Category,
    Columns,
    Name,
    Numeric,
    OneHot,
    Ordinal,
    Standardise,
    TargetEncode,
    centres,
    scales,
    standardised,
)
from lethe.engine.preprocess.input.table import Table, Vocabulary, named
from lethe.engine.preprocess.input.values import sorted_categories
from lethe.engine.preprocess.transformation.categories import OneHotPart
from lethe.engine.preprocess.transformation.order import kept_quantiles

Places = NDArray[np.intp]

RARE = "infrequent_sklearn"
"""What scikit-learn calls the feature that rare categories share."""

MAX_ENTRIES = MAX_PLACES
"""Entries of a model: how often two of them meet in a row is kept as a matrix, 64 MB at that."""


@dataclass(frozen=True, slots=True)
class NumericPart:
    """A numeric column; ``entry`` is -1 if no row of the generation's fit had no value in it."""

    name: Name
    column: Numeric
    source: int
    feature: int
    entry: int


@dataclass(frozen=True, slots=True)
class OrderPart:
    """A quantile of a numeric column, which sums keep a window about.

    ``gap`` is the place of the column's missing values among a row's entries; -1 if it has none.
    """

    part: NumericPart
    quantile: float
    gap: int


@dataclass(frozen=True, slots=True)
class CodedPart:
    """A column that is one number a category.

    ``codes`` are the vocabulary's, one for each entry from ``first`` on; ``entry_of`` leads back,
    -1 where there is none.
    """

    name: Name
    column: Ordinal | TargetEncode
    source: int
    feature: int
    first: int
    codes: Places
    entry_of: Places

    @property
    def entries(self) -> slice:
        """The column's entries."""
        return slice(self.first, self.first + len(self.codes))


@dataclass(frozen=True, slots=True)
class Layout:
    """The places of everything; it holds for one generation.

    Attributes
    ----------
    names
        (p,) of the features: the column's, and of one-hot features its category.
    numeric, coded, one_hot
        The columns by kind.
    order
        The quantiles of numeric columns that are kept, those of a column together.
    features, entries
        p and q.
    entry_feature
        (q,) the feature that each entry belongs to.
    centred, scaled
        (p,) whether a feature's mean is subtracted, and whether its deviation divides it.
    scaler_first
        (p,) whether what scales a feature is learnt from known values alone.
    numeric_features
        (a,) the features of the numeric columns.
    gap_features, gap_entries
        Features and entries of those that have an entry.
    moving_features
        (c,) the features that have entries: those, and then the coded ones.
    """

    names: tuple[str, ...]
    numeric: tuple[NumericPart, ...]
    coded: tuple[CodedPart, ...]
    one_hot: tuple[OneHotPart, ...]
    order: tuple[OrderPart, ...]
    features: int
    entries: int
    entry_feature: Places
    centred: NDArray[np.bool_]
    scaled: NDArray[np.bool_]
    scaler_first: NDArray[np.bool_]
    numeric_features: Places
    gap_features: Places
    gap_entries: Places
    moving_features: Places

    @property
    def counted(self) -> list[OneHotPart]:
        """The one-hot columns of which features in base units do not tell a row's category."""
        return [
            hot
            for hot in self.one_hot
            if hot.column.drop is not None
            or hot.column.shares
            or hot.column.impute is not None
            or standardised(hot.column)
        ]

    @property
    def moving(self) -> int:
        """Number of features that have entries."""
        return len(self.moving_features)

    @property
    def places(self) -> int:
        """Numbers of a row's places: its entries, and its category in each of `counted`."""
        return self.moving + len(self.counted)


def lay_out(columns: Columns, table: Table) -> Layout:
    """Lay out a table's columns; its categories are those that some row has.

    Raises
    ------
    InvalidData
        A category is not among those that were named, or there are more than `MAX_ENTRIES` entries.
    """
    codes: list[Places] = []
    for name, column in columns.items():
        if isinstance(column, OneHot):
            codes.append(_one_hot_codes(name, column, table, len(codes)))
        elif not isinstance(column, Numeric):
            codes.append(_ordinal_codes(name, column, table, len(codes)))
    gaps = np.asarray(np.isnan(table.numbers).any(axis=0))
    return _placed(columns, gaps, codes, table.vocabularies)


def check_dropped(columns: Columns, table: Table) -> None:
    """Refuse to leave out a category that no row has.

    Raises
    ------
    InvalidData
        There is such a column.
    """
    coded = [(name, column) for name, column in columns.items() if not isinstance(column, Numeric)]
    for (name, column), vocabulary in zip(coded, table.vocabularies, strict=True):
        named = isinstance(column, OneHot) and isinstance(column.drop, tuple) and column.drop
        if named and named[0] not in vocabulary.categories:
            raise InvalidData(
                f"column {name!r} leaves out {named[0]!r}, which no row has; set drop to a "
                "category that some row has, or to 'first'"
            )


def lay_out_known(
    columns: Columns, gaps: NDArray[np.bool_], vocabularies: Sequence[Vocabulary]
) -> Layout:
    """Lay out columns whose categories are all of their vocabularies', in that order.

    ``gaps`` (a,) says which numeric columns have an entry for missing values.

    Raises
    ------
    InvalidData
        There are more than `MAX_ENTRIES` entries.
    """
    codes = [np.arange(len(known.categories), dtype=np.intp) for known in vocabularies]
    return _placed(columns, gaps, codes, vocabularies)


def _placed(
    columns: Columns,
    gaps: NDArray[np.bool_],
    codes: Sequence[Places],
    vocabularies: Sequence[Vocabulary],
) -> Layout:
    """Place columns one after the other; ``codes`` are those of each column of categories."""
    numeric: list[NumericPart] = []
    coded: list[CodedPart] = []
    one_hot: list[OneHotPart] = []
    entry_feature: list[int] = []
    standardise: list[Standardise] = []
    names: list[str] = []
    for name, column in columns.items():
        feature = len(standardise)
        if isinstance(column, Numeric):
            entry = len(entry_feature) if gaps[len(numeric)] else -1
            entry_feature += [feature] if entry >= 0 else []
            numeric.append(NumericPart(name, column, len(numeric), feature, entry))
            standardise.append(column.standardise)
            names.append(str(name))
            continue
        source = len(coded) + len(one_hot)
        categories, own = vocabularies[source].categories, codes[source]
        if isinstance(column, OneHot):
            back = _back(own, feature, len(categories))
            one_hot.append(OneHotPart(name, column, source, feature, own, back))
            standardise += [column.standardise] * one_hot[-1].width
            names += [f"{name}_{categories[code]}" for code in own]
            names += [f"{name}_{RARE}"] * int(column.shares)
            continue
        first = len(entry_feature)
        back = _back(own, first, len(categories))
        coded.append(CodedPart(name, column, source, feature, first, own, back))
        entry_feature += [feature] * len(own)
        standardise.append(column.standardise)
        names.append(str(name))
    if len(entry_feature) > MAX_ENTRIES:
        raise InvalidData(
            f"the columns have {len(entry_feature)} categories that are encoded as numbers, or "
            f"imputed means; at most {MAX_ENTRIES} are possible: put rare categories together"
        )
    scaler_first = np.zeros(len(standardise), dtype=np.bool_)
    scaler_first[[part.feature for part in numeric if part.column.scaler_first]] = True
    with_gaps = [part for part in numeric if part.entry >= 0]
    moving = [part.feature for part in with_gaps] + [part.feature for part in coded]
    order = [
        OrderPart(part, quantile, with_gaps.index(part) if part.entry >= 0 else -1)
        for part in numeric
        for quantile in kept_quantiles(part.column)
    ]
    return Layout(
        tuple(names),
        tuple(numeric),
        tuple(coded),
        tuple(one_hot),
        tuple(order),
        len(standardise),
        len(entry_feature),
        np.array(entry_feature, dtype=np.intp),
        np.array([centres(one) for one in standardise], dtype=np.bool_),
        np.array([scales(one) for one in standardise], dtype=np.bool_),
        scaler_first,
        np.array([part.feature for part in numeric], dtype=np.intp),
        np.array([part.feature for part in with_gaps], dtype=np.intp),
        np.array([part.entry for part in with_gaps], dtype=np.intp),
        np.array(moving, dtype=np.intp),
    )


def _sorted_codes(name: Name, table: Table, source: int) -> Places:
    """Return the codes that some row has, in the order of their categories."""
    vocabulary = table.vocabularies[source]
    present = [vocabulary.categories[code] for code in np.unique(table.codes[:, source])]
    ordered = sorted_categories(name, present)
    return vocabulary.code_of(ordered).astype(np.intp)


def _one_hot_codes(name: Name, column: OneHot, table: Table, source: int) -> Places:
    vocabulary = table.vocabularies[source]
    present = {vocabulary.categories[code] for code in np.unique(table.codes[:, source])}
    if column.categories is None:
        ordered = sorted_categories(name, present.union(named(column)))
        return vocabulary.code_of(ordered).astype(np.intp)
    _check_named(name, column.categories, [*present])
    return vocabulary.code_of(column.categories).astype(np.intp)


def _check_named(name: Name, named: Sequence[Category], present: Sequence[Category]) -> None:
    strange = [category for category in present if category not in named]
    if strange:
        raise InvalidData(
            f"column {name!r} holds {strange[0]!r}, which is not among its named categories"
        )


def _ordinal_codes(name: Name, column: Ordinal | TargetEncode, table: Table, source: int) -> Places:
    codes = _sorted_codes(name, table, source)
    if isinstance(column, TargetEncode):
        return codes
    present = [table.vocabularies[source].categories[code] for code in codes]
    if None in present:
        raise InvalidData(
            f"column {name!r} has missing values, and Ordinal has no number for them: encode it "
            "otherwise, or write a category in their place"
        )
    if column.categories is None:
        return codes
    _check_named(name, column.categories, present)
    return (
        table.vocabularies[source]
        .code_of([category for category in column.categories if category in present])
        .astype(np.intp)
    )


def _back(codes: Places, first: int, size: int) -> Places:
    """Return the array that leads from a vocabulary's codes to places from ``first`` on."""
    back = np.full(size, -1, dtype=np.intp)
    back[codes] = np.arange(first, first + len(codes))
    return back


def looked_up(back: Places, codes: NDArray[np.int32]) -> Places:
    """Return the places of codes, -1 for one that is unknown or newer than ``back``."""
    known = (codes >= 0) & (codes < len(back))
    return np.where(known, back[np.where(known, codes, 0)] if len(back) else -1, -1)
