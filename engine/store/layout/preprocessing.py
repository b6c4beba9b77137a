"""Preprocessing inside a model, as the store keeps it: columns, base, sums, and rows as given.

A row record holds the row as it was given: its numbers (NaN where missing), and the codes of its
categories. A generation's transformation turns them into features when they are read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from lethe.engine.errors import CorruptState, InvalidData
from lethe.engine.fit.objective import Array, Kind
from lethe.engine.preprocess.input.columns import (
    Category as Given,
    Column,
    Columns,
    Date,
    Name,
    Numeric,
    OneHot,
    Ordinal,
    TargetEncode,
    standardise_of,
)
from lethe.engine.preprocess.input.expression_text import parsed
from lethe.engine.preprocess.input.settings import Settings
from lethe.engine.preprocess.input.table import Table, Vocabulary
from lethe.engine.preprocess.rounded.raw import RawColumns
from lethe.engine.preprocess.transformation.base import BaseTransformation
from lethe.engine.preprocess.transformation.layout import (
    CodedPart,
    Layout,
    OneHotPart,
    check_dropped,
    lay_out,
    lay_out_known,
)
from lethe.engine.preprocess.transformation.sums import (
    Contribution,
    MatrixTotal,
    RowsSummed,
    Sums,
    Total,
)
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
    impute = "mean" if record.impute else None
    match record.step:
        case "numeric":
            return Numeric("mean" if impute else None, record.standardise)
        case "date":
            return Date("mean" if impute else None, record.standardise)
        case "one-hot":
            return OneHot(record.unknown, record.drop)
        case "ordinal":
            named = record.categories if record.ordered else None
            return Ordinal(named, record.standardise)
        case "target-encode":
            return TargetEncode(record.smooth, record.standardise)


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
        The algebra has no place for it.
    """
    return Settings(
        columns_of(config.preprocess),
        config.kind,
        config.ridge,
        config.fit_intercept,
        penalise_intercept=False,
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
    if layout.entries * (layout.entries + layout.features + 1) > MAX_SUMMED:
        raise InvalidData(
            f"{layout.entries} categories that are encoded as numbers, or imputed means, beside "
            f"{layout.features} features are more than a model can keep sums of; put rare "
            "categories together, or fill in missing values"
        )
    gaps = {part.name for part in layout.numeric if part.entry >= 0}
    parts: list[CodedPart | OneHotPart] = [*layout.coded, *layout.one_hot]
    codes = table.codes.copy()
    categories: dict[Name, tuple[Category, ...]] = {}
    for part in parts:
        met, column = table.vocabularies[part.source], part.column
        known: Sequence[Given] = [met.categories[code] for code in part.codes]
        if isinstance(column, Ordinal) and column.categories is not None:
            known = column.categories
        categories[part.name] = tuple(_category(part.name, category) for category in known)
        back = Vocabulary(tuple(known)).code_of(met.categories)
        codes[:, part.source] = back[table.codes[:, part.source]]
    records = tuple(
        _record(name, column, categories.get(name, ()), gaps=name in gaps)
        for name, column in columns.items()
    )
    return records, Table(table.numbers, codes, vocabularies_of(records))


def _record(
    name: Name, column: Column, categories: tuple[Category, ...], *, gaps: bool
) -> ColumnRecord:
    return ColumnRecord(
        name=str(name),
        step=_step(column),
        impute=isinstance(column, Numeric) and column.impute is not None,
        standardise=standardise_of(column),
        unknown=column.unknown if isinstance(column, OneHot) else "error",
        drop=_drop(name, column),
        smooth=column.smooth if isinstance(column, TargetEncode) else "auto",
        ordered=isinstance(column, Ordinal) and column.categories is not None,
        categories=categories,
        gaps=gaps,
        of="" if column.of is None else str(column.of),
    )


def _drop(name: Name, column: Column) -> Drop:
    drop = column.drop if isinstance(column, OneHot) else None
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


def pack_base(base: BaseTransformation) -> bytes:
    """Return a base transformation, without its layout, as raw float64."""
    parts = [base.centre, base.scale, base.constant, base.value, [base.target_mean]]
    return codec.pack(np.concatenate([np.asarray(part, dtype=np.float64) for part in parts]))


def unpack_base(stored: bytes | None, layout: Layout, what: str) -> BaseTransformation:
    """Return the stored base transformation.

    Raises
    ------
    CorruptState
        It is not one of this layout.
    """
    p, q = layout.features, layout.entries
    numbers = codec.unpack(stored, (3 * p + q + 1,), f"{what}, its base transformation")
    centre, scale, constant, value, [mean] = np.split(numbers, np.cumsum([p, p, p, q]))
    if not (scale > 0).all():
        raise CorruptState(f"{what}: its base transformation divides by 0; run `lethe check`")
    return BaseTransformation(layout, centre, scale, constant != 0, value, float(mean))


# -- the sums -----------------------------------------------------------------------------------

_TOTALS = ("first", "second", "target", "all_target", "responses", "weighted", "errors")
_SCALARS = ("rows", "square_size", "response_size", "error_size", "longest", "reach", "balanced")
_ALL = "all"
"""Field of the sums that are not by entry; those of an entry are named by its number."""

SINCE = "since:"
"""Before a number from 0 on: fields of the rows that came and went since then."""

FIRST_SINCE = f"{SINCE}0"
"""A field that is there if anything came or went."""


def packed_sums(sums: Sums) -> dict[str, bytes]:
    """Return sums as the fields of a hash, whole: nothing has come or gone since."""
    head = np.array([getattr(sums, name) for name in _SCALARS], dtype=np.float64)
    parts = [head, sums.counts.astype(np.float64), sums.present.astype(np.float64)]
    for name in _TOTALS:
        parts += [total.ravel() for total in getattr(sums, name)]
    fields = {_ALL: codec.pack(np.concatenate(parts))}
    totals = (*sums.crossed.copy(joined=True), *sums.paired.copy(joined=True))
    for entry in range(len(sums.counts)):
        fields[str(entry)] = codec.pack(np.concatenate([total[entry] for total in totals]))
    return fields


def packed_since(sums: Sums, before: Sums | None = None) -> dict[str, bytes]:
    """Return the fields of what came and went since ``before``, or since the sums were written.

    A commit writes these and no sums: 8 d bytes a row, where the sums of the entries that ten rows
    have take megabytes. V gets a row for each of them, too.
    """
    first = 0 if before is None else len(before.since)
    return {
        f"{SINCE}{number}": codec.pack(_as_numbers(part))
        for number, part in enumerate(sums.since[first:], first)
    }


def _as_numbers(part: RowsSummed) -> Array:
    """Return sign, and then of each row curvature, target, reach, entries, x, response, error."""
    rows = part.rows
    scalars = np.column_stack([rows.curvature, rows.target, rows.reach, rows.entries])
    return np.append(np.float64(part.sign), np.hstack([scalars, rows.X, rows.response, rows.error]))


def _unpack_since(stored: bytes, layout: Layout, d: int, m: int, e: int, what: str) -> RowsSummed:
    """Return what `_as_numbers` was given; ``e`` columns are of the error."""
    width = 3 + layout.moving + d + m + e
    rows = max(1, len(stored) // (8 * width))
    numbers = codec.unpack(stored, (1 + rows * width,), what)
    sign, parts = numbers[0], numbers[1:].reshape(rows, width)
    scalars, entries, X, response, error = np.split(
        parts, np.cumsum([3, layout.moving, d, m]), axis=1
    )
    known = (entries >= -1) & (entries < layout.entries) & (entries == np.floor(entries))
    if abs(sign) != 1 or not known.all():
        raise CorruptState(f"{what}: a row is none of the model's; run `lethe check`")
    curvature, target, reach = scalars.T.copy()
    return RowsSummed(
        Contribution(X, entries.astype(np.intp), curvature, response, target, error, reach),
        int(sign),
    )


def unpack_sums(
    stored: Mapping[bytes, bytes], layout: Layout, d: int, m: int, what: str, *, kind: Kind
) -> Sums:
    """Return stored sums of a model with d coefficients and m targets.

    Raises
    ------
    CorruptState
        They are not those of this layout.
    """
    p, q = layout.features, layout.entries
    shapes = {"first": (p,), "second": (p,), "target": (2, q), "all_target": (2,)}
    shapes |= {"responses": (q, m), "weighted": (d,)}
    shapes["errors"] = (d, 0 if kind is Kind.LINEAR else m)
    sizes = [
        len(_SCALARS),
        q,
        p,
        *(int(np.prod(shapes[name])) for name in _TOTALS for _ in range(2)),
    ]
    what = f"{what}, its sums"
    numbers = codec.unpack(stored.get(_ALL.encode()), (sum(sizes),), what)
    head, counts, present, *flat = np.split(numbers, np.cumsum(sizes)[:-1])
    fields: dict[str, Any] = {
        name: Total(flat[2 * i].reshape(shapes[name]), flat[2 * i + 1].reshape(shapes[name]))
        for i, name in enumerate(_TOTALS)
    }
    fields |= zip(_SCALARS[1:], map(float, head[1:]), strict=True)
    rows = [stored.get(b"%d" % entry) for entry in range(q)]
    by_entry = [codec.unpack(row, (2 * (d + q),), what) for row in rows]
    entries = np.array(by_entry).reshape(q, 2 * (d + q))
    high, low, paired_high, paired_low = np.split(entries, np.cumsum([d, d, q]), axis=1)
    unbounded = kind is not Kind.LINEAR and not fields["balanced"] > 0
    least = min(head.min(), counts.min(initial=0), present.min(initial=0))
    if not head[0] >= 1 or least < 0 or unbounded:
        raise CorruptState(f"{what}: are those of no rows; run `lethe check`")
    written = Sums(
        rows=int(head[0]),
        counts=counts.astype(np.int64),
        present=present.astype(np.int64),
        crossed=MatrixTotal(high.copy(), low.copy()),
        paired=MatrixTotal(paired_high.copy(), paired_low.copy()),
        **fields,
    )
    return _with_rows_since(written, stored, layout, d, m, what)


def _with_rows_since(
    written: Sums, stored: Mapping[bytes, bytes], layout: Layout, d: int, m: int, what: str
) -> Sums:
    """Return sums with what came and went since they were written."""
    e, count = written.errors.high.shape[1], len(stored) - 1 - layout.entries
    parts = [stored.get(f"{SINCE}{number}".encode()) for number in range(count)]
    since = [_unpack_since(part or b"", layout, d, m, e, what) for part in parts]
    sums = written
    for sign in (1, -1):
        moved = [part.rows for part in since if part.sign == sign]
        if moved:
            sums = sums.changed(layout, Contribution.joined(moved), sign)
    if sums.rows < 1 or min(sums.counts.min(initial=0), sums.present.min(initial=0)) < 0:
        raise CorruptState(f"{what}: are those of no rows; run `lethe check`")
    return replace(sums, since=tuple(since))
