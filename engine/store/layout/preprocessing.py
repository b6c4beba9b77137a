"""Preprocessing inside a model, as the store keeps it: columns, base, and rows as given.

A row record holds the row as it was given: its numbers (NaN where missing), and the codes of its
categories. A generation's transformation turns them into features when they are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Literal

import numpy as np

from lethe.engine.errors import CorruptState, InvalidData
from lethe.engine.fit.objective import Array, Kind
from lethe.engine.preprocess.input.columns import (
    Category as Given,
    Column,
    Columns,
    Date,
    Drop as GivenDrop,
    Impute,
    Name,
    Numeric,
    OneHot,
    Ordinal,
    TargetEncode,
)
from lethe.engine.preprocess.input.expression_text import parsed
from lethe.engine.preprocess.input.settings import Settings
from lethe.engine.preprocess.input.table import Table, Vocabulary
from lethe.engine.preprocess.rounded.raw import RawColumns
from lethe.engine.preprocess.transformation.base import BaseTransformation
from lethe.engine.preprocess.transformation.categories import OneHotPart
from lethe.engine.preprocess.transformation.layout import (
    CodedPart,
    Layout,
    check_dropped,
    lay_out,
    lay_out_known,
)
from lethe.engine.preprocess.transformation.order import Interval
from lethe.engine.store.layout import codec
from lethe.engine.store.layout.columns import (
    Category,
    ColumnRecord,
    Drop,
    FittedColumn,
    Step,
)
from lethe.engine.store.layout.config import ModelConfig

_LARGEST_WHOLE = 2**53  # beyond it, JSON has no canonical form of whole numbers

MAX_SUMMED = 4_000_000
"""Numbers of the sums by entry, which a state holds twice: 64 MB."""


# -- columns ------------------------------------------------------------------------------------


def column_of(record: ColumnRecord | FittedColumn) -> Column:
    """Return what is done to a column. Of a fitted one, how it is read: with gaps, as known."""
    of = parsed(record.of) if record.of else None
    if isinstance(record, FittedColumn):
        kinds: dict[Step, Column] = {"numeric": Numeric(of=of), "date": Date(of=of)}
        return kinds.get(record.step, OneHot(of=of))
    return replace(_own_column(record), of=of)


def _own_column(record: ColumnRecord) -> Column:
    standardise = record.standardise
    impute: Impute = "mean" if record.impute is True else record.impute or None
    named = record.categories if record.ordered else None
    match record.step:
        case "numeric":
            return Numeric(impute, standardise, scaler_first=record.scaler_first)
        case "date":
            return Date(impute, standardise, scaler_first=record.scaler_first)
        case "one-hot":
            return OneHot(
                record.unknown,
                record.drop,
                record.standardise,
                record.min_frequency,
                record.max_categories,
                named,
                impute="most_frequent" if record.impute == "most_frequent" else None,
            )
        case "ordinal":
            return Ordinal(named, standardise, record.otherwise)
        case "target-encode":
            return TargetEncode(record.smooth, standardise)


def columns_of(records: Sequence[ColumnRecord]) -> dict[Name, Column]:
    """Return what is done to each column, by name."""
    return {record.name: column_of(record) for record in records}


def vocabularies_of(records: Sequence[ColumnRecord | FittedColumn]) -> tuple[Vocabulary, ...]:
    """Return the categories of each column that has them."""
    return tuple(Vocabulary(r.categories) for r in records if r.step not in ("numeric", "date"))


def layout_of(records: Sequence[ColumnRecord]) -> Layout:
    """Return the places of columns that were registered."""
    gaps = np.array([r.gaps for r in records if r.step in ("numeric", "date")], dtype=np.bool_)
    return lay_out_known(columns_of(records), gaps, vocabularies_of(records))


def raw_columns(config: ModelConfig) -> RawColumns:
    """Return where everything is in a raw row of a model with preprocessing and exact sums."""
    return _raw_columns(config.preprocess, config.kind, config.ridge, config.fit_intercept)


@lru_cache(maxsize=256)
def _raw_columns(
    records: tuple[ColumnRecord, ...], kind: Kind, ridge: float, intercept: bool
) -> RawColumns:
    settings = Settings(columns_of(records), kind, ridge, intercept, penalise_intercept=False)
    return RawColumns(settings, layout_of(records), vocabularies_of(records))


def settings_of(config: ModelConfig) -> Settings:
    """Return what a model was asked for.

    Raises
    ------
    InvalidData
        The algebra has no place for it, the sums would be too large, or the classes share one
        softmax.
    """
    check_served(config.kind)
    if config.blocks > 1:
        _check_sums(layout_of(config.preprocess), config.blocks)
    return Settings(
        columns_of(config.preprocess),
        config.kind,
        config.ridge,
        config.fit_intercept,
        penalise_intercept=False,
    )


def check_served(kind: Kind) -> None:
    """Refuse a kind that has no preprocessing in a service.

    Raises
    ------
    InvalidData
        Softmax: in the library, a change of its pipeline is a pass over all rows.
    """
    if kind is Kind.SOFTMAX:
        raise InvalidData(
            "preprocessing inside a softmax model is in the library alone; give a fitted "
            "transformer (--preprocess FILE.skops, --freeze), which stays as it is, or fit each "
            "class against the rest (--kind logistic, OneVsRestClassifier)"
        )


def recorded(columns: Columns, table: Table) -> tuple[tuple[ColumnRecord, ...], Table]:
    """Return the columns of a new model with their categories, and the table coded by these.

    Raises
    ------
    InvalidData
        As `check_dropped` and `lay_out`; or the sums would be too large.
    """
    check_dropped(columns, table)
    layout = lay_out(columns, table)
    _check_sums(layout)
    gaps = {part.name for part in layout.numeric if part.entry >= 0}
    parts: list[CodedPart | OneHotPart] = [*layout.coded, *layout.one_hot]
    codes = table.codes.copy()
    categories: dict[Name, tuple[Category, ...]] = {}
    for part in parts:
        met, column = table.vocabularies[part.source], part.column
        known: Sequence[Given] = [met.categories[code] for code in part.codes]
        if not isinstance(column, TargetEncode) and column.categories is not None:
            known = column.categories
        categories[part.name] = tuple(_category(part.name, category) for category in known)
        back = Vocabulary(tuple(known)).code_of(met.categories)
        codes[:, part.source] = back[table.codes[:, part.source]]
    records = tuple(
        _record(name, column, categories.get(name, ()), gaps=name in gaps)
        for name, column in columns.items()
    )
    return records, Table(table.numbers, codes, vocabularies_of(records))


def _check_sums(layout: Layout, blocks: int = 1) -> None:
    """Refuse a layout whose sums by entry would be too large, of several classes in blocks."""
    if blocks * layout.entries * (layout.entries + layout.features + 1) > MAX_SUMMED:
        classes = f" and {blocks} classes" if blocks > 1 else ""
        raise InvalidData(
            f"{layout.entries} categories that are encoded as numbers, or imputed means, beside "
            f"{layout.features} features{classes} are more than a model can keep sums of; put rare "
            "categories together, or fill in missing values"
        )


def _record(
    name: Name, column: Column, categories: tuple[Category, ...], *, gaps: bool
) -> ColumnRecord:
    hot = column if isinstance(column, OneHot) else OneHot()
    return ColumnRecord(
        name=str(name),
        step=_step(column),
        impute=_impute(column),
        standardise=column.standardise,
        scaler_first=isinstance(column, Numeric) and column.scaler_first,
        unknown=hot.unknown,
        drop=_drop(name, hot.drop),
        min_frequency=hot.min_frequency,
        max_categories=hot.max_categories,
        smooth=column.smooth if isinstance(column, TargetEncode) else "auto",
        ordered=isinstance(column, Ordinal | OneHot) and column.categories is not None,
        otherwise=column.unknown if isinstance(column, Ordinal) else None,
        categories=categories,
        gaps=gaps,
        of="" if column.of is None else str(column.of),
    )


def _impute(column: Column) -> bool | Literal["median", "most_frequent"]:
    impute = column.impute if isinstance(column, Numeric | OneHot) else None
    return impute == "mean" if impute is None or impute == "mean" else impute


def _drop(name: Name, drop: GivenDrop) -> Drop:
    return (_category(name, drop[0]),) if isinstance(drop, tuple) else drop


def _step(column: Column) -> Step:
    match column:
        case Date():
            return "date"
        case Numeric():
            return "numeric"
        case OneHot():
            return "one-hot"
        case Ordinal():
            return "ordinal"
        case TargetEncode():
            return "target-encode"


def _category(name: Name, category: Given) -> Category:
    if isinstance(category, float) or (
        isinstance(category, int) and abs(category) > _LARGEST_WHOLE
    ):
        raise InvalidData(
            f"column {name!r}: categories are text, true and false, or whole numbers up to 2^53; "
            "write others as text"
        )
    return category


# -- rows ---------------------------------------------------------------------------------------


def given_values(table: Table) -> Array:
    """Return rows as records keep them: numbers, then codes, n x r."""
    return np.hstack([table.numbers, table.codes.astype(np.float64)])


def given_table(records: Sequence[ColumnRecord], values: Array, what: str) -> Table:
    """Return the table of rows as records keep them.

    Raises
    ------
    CorruptState
        A number is infinite or missing where no column has gaps, or a code is none of its column's.
    """
    numeric = [record for record in records if record.step in ("numeric", "date")]
    numbers, codes = values[:, : len(numeric)], values[:, len(numeric) :]
    vocabularies = vocabularies_of(records)
    sizes = np.array([len(known.categories) for known in vocabularies], dtype=np.float64)
    gaps = np.array([record.gaps for record in numeric], dtype=np.bool_)
    valid = (codes >= 0) & (codes < sizes) & (codes == np.floor(codes))
    if np.isinf(numbers).any() or (np.isnan(numbers) & ~gaps).any() or not valid.all():
        raise CorruptState(f"{what}: a row is none of the model's; run `lethe check`")
    return Table(numbers, codes.astype(np.int32), vocabularies)


# -- the base -----------------------------------------------------------------------------------


_LEFT_OUT, _RARE, _MODE = 2.0, 4.0, 8.0  # are added to 1, of a constant feature


def pack_base(base: BaseTransformation) -> bytes:
    """Return a base transformation, without its layout, as raw float64."""
    ends = [end for interval in base.intervals for end in interval]
    state = base.constant + _LEFT_OUT * base.left_out + _RARE * base.rare + _MODE * base.mode
    parts = [base.centre, base.scale, state, base.value, [base.target_mean], ends]
    return codec.pack(np.concatenate([np.asarray(part, dtype=np.float64) for part in parts]))


def unpack_base(stored: bytes | None, layout: Layout, what: str) -> BaseTransformation:
    """Return the stored base transformation.

    Raises
    ------
    CorruptState
        It is not one of this layout.
    """
    p, q, windows = layout.features, layout.entries, len(layout.order)
    size = 3 * p + q + 1 + 2 * windows
    numbers = codec.unpack(stored, (size,), f"{what}, its base transformation")
    centre, scale, state, value, [mean], ends = np.split(numbers, np.cumsum([p, p, p, q, 1]))
    if not (scale > 0).all():
        raise CorruptState(f"{what}: its base transformation divides by 0; run `lethe check`")
    mode, rest = np.divmod(state, _MODE)
    rare, rest = np.divmod(rest, _RARE)
    left_out, constant = np.divmod(rest, _LEFT_OUT)
    flags = constant != 0, left_out != 0, rare != 0, mode != 0
    intervals = tuple(Interval(*of) for of in ends.reshape(windows, 2).tolist())
    return BaseTransformation(layout, centre, scale, *flags, value, float(mean), intervals)
