"""Preprocessing inside a model, as the store keeps it: columns, base, sums, and rows as given.

A row record holds the row as it was given: its numbers (NaN where missing), and the codes of its
categories. A generation's transformation turns them into features when they are read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Literal

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
from lethe.engine.preprocess.transformation.layout import (
    CodedPart,
    Layout,
    OneHotPart,
    check_dropped,
    lay_out,
    lay_out_known,
)
from lethe.engine.preprocess.transformation.order import Interval, Window
from lethe.engine.preprocess.transformation.sums import (
    Contribution,
    MatrixTotal,
    RowsSummed,
    Sums,
    Total,
    cancelled_in_errors,
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
    standardise = record.standardise
    impute: Impute = "mean" if record.impute is True else record.impute or None
    named = record.categories if record.ordered else None
    match record.step:
        case "numeric":
            return Numeric(impute, standardise)
        case "date":
            return Date(impute, standardise)
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


# -- the sums -----------------------------------------------------------------------------------

_TOTALS = ("first", "second", "target", "all_target", "responses", "weighted", "errors")
_SCALARS = ("rows", "square_size", "response_size", "error_size", "longest", "reach", "balanced")
_ALL = "all"
"""Field of the sums that are not by entry; those of an entry are named by its number."""

_WINDOW = "window:"
"""Before the number of a window: fields of the values about a quantile."""

SINCE = "since:"
"""Before a number from 0 on: fields of the rows that came and went since then."""

_SINCE = SINCE.encode()

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
    for number, window in enumerate(sums.windows):
        outside = [window.below, window.above]
        packed = codec.pack(np.concatenate([outside, window.counts, window.values]))
        fields[f"{_WINDOW}{number}"] = packed
    return fields


def _unpack_window(stored: bytes | None, interval: Interval, what: str) -> Window:
    size = max(2, len(stored or b"") // 8)
    numbers = codec.unpack(stored, (size,), what)
    below, above = numbers[:2]
    counts, values = numbers[2 : 2 + size // 2 - 1], numbers[2 + size // 2 - 1 :]
    if (
        size % 2
        or min(below, above, counts.min(initial=1) - 1) < 0
        or (numbers[: 2 + len(counts)] % 1).any()
        or (np.diff(values) <= 0).any()
        or not interval.low <= values.min(initial=interval.high)
        or not values.max(initial=interval.low) <= interval.high
    ):
        raise CorruptState(f"{what}: are those of no rows; run `lethe check`")
    return Window(interval, values, counts.astype(np.int64), int(below), int(above))


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
    """Return sign, and then of each row curvatures, target, reach, entries, x, response, error."""
    rows = part.rows
    scalars = np.column_stack([rows.curvature, rows.target, rows.reach, rows.entries])
    return np.append(np.float64(part.sign), np.hstack([scalars, rows.X, rows.response, rows.error]))


def _unpack_since(
    stored: bytes, layout: Layout, d: int, m: int, what: str, *, kind: Kind
) -> RowsSummed:
    """Return what `_as_numbers` was given."""
    e, h = (0, 1) if kind is Kind.LINEAR else (m, m)
    width = h + 2 + layout.places + d + m + e
    rows = max(1, len(stored) // (8 * width))
    numbers = codec.unpack(stored, (1 + rows * width,), what)
    sign, parts = numbers[0], numbers[1:].reshape(rows, width)
    scalars, entries, X, response, error = np.split(
        parts, np.cumsum([h + 2, layout.places, d, m]), axis=1
    )
    most = np.repeat([layout.entries, layout.features], [layout.moving, len(layout.counted)])
    known = (entries >= -1) & (entries < most) & (entries == np.floor(entries))
    if abs(sign) != 1 or not known.all():
        raise CorruptState(f"{what}: a row is none of the model's; run `lethe check`")
    curvature, (target, reach) = scalars[:, :h].copy(), scalars[:, h:].T.copy()
    cancelled = cancelled_in_errors(kind, curvature, error)
    places = entries.astype(np.intp)
    return RowsSummed(
        Contribution(X, places, curvature, response, target, error, reach, cancelled), int(sign)
    )


def unpack_sums(
    stored: Mapping[bytes, bytes],
    base: BaseTransformation,
    d: int,
    m: int,
    what: str,
    *,
    kind: Kind,
) -> Sums:
    """Return stored sums of a model with d coefficients and m targets.

    Raises
    ------
    CorruptState
        They are not those of this layout.
    """
    layout = base.layout
    p, q, h = layout.features, layout.entries, 1 if kind is Kind.LINEAR else m
    shapes = {"first": (p,), "second": (p,), "target": (2, q), "all_target": (2,)}
    shapes |= {"responses": (q, m), "weighted": (h * d,)}
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
    width = 2 * h * (d + q)
    by_entry = [codec.unpack(row, (width,), what) for row in rows]
    entries = np.array(by_entry).reshape(q, width)
    cuts = np.cumsum([h * d, h * d, h * q])
    high, low, paired_high, paired_low = np.split(entries, cuts, axis=1)
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
        windows=tuple(
            _unpack_window(stored.get(f"{_WINDOW}{number}".encode()), interval, what)
            for number, interval in enumerate(base.intervals)
        ),
        **fields,
    )
    return _with_rows_since(written, stored, layout, d, m, what, kind=kind)


def _with_rows_since(
    written: Sums,
    stored: Mapping[bytes, bytes],
    layout: Layout,
    d: int,
    m: int,
    what: str,
    *,
    kind: Kind,
) -> Sums:
    """Return sums with what came and went since they were written."""
    count = sum(field.startswith(_SINCE) for field in stored)
    parts = [stored.get(f"{SINCE}{number}".encode()) for number in range(count)]
    since = [_unpack_since(part or b"", layout, d, m, what, kind=kind) for part in parts]
    sums = written
    for sign in (1, -1):
        moved = [part.rows for part in since if part.sign == sign]
        if moved:
            sums = sums.changed(layout, Contribution.joined(moved), sign)
    least = [sums.rows - 1, sums.counts.min(initial=0), sums.present.min(initial=0)]
    least += [min(w.below, w.above, w.counts.min(initial=0)) for w in sums.windows]
    if min(least) < 0:
        raise CorruptState(f"{what}: are those of no rows; run `lethe check`")
    return replace(sums, since=tuple(since))
