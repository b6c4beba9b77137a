"""Columns of a model with preprocessing: what is done to each, and as it is fitted at a version."""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from operator import attrgetter
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import (
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    TypeAdapter,
    ValidationError,
)
from pydantic_core import to_json

from lethe.engine.errors import CorruptState
from lethe.engine.store.layout.records import Finite, Stored

Step = Literal["numeric", "date", "one-hot", "ordinal", "target-encode"]
NUMERIC: tuple[Step, ...] = ("numeric", "date")
Category: TypeAlias = StrictStr | StrictBool | StrictInt | None
Drop: TypeAlias = Literal["first", "if_binary"] | tuple[Category] | None
Categories = Annotated[tuple[Category, ...], Field(fail_fast=True)]

# Not written in Python: a commit of 1,000 columns asks them thousands of times.
_absent: Callable[[object], bool] = partial(operator.is_, None)
_is_one: Callable[[object], bool] = (1.0).__eq__


class ColumnRecord(Stored):
    """What is done to a column, and the categories that it has places for, in their order.

    ``gaps``: a missing value has a place, because a row of the registration had none.
    ``impute``: the statistic that stands in for it, true for the mean. ``scaler_first``: as of
    `Numeric`.
    ``drop``, ``min_frequency``, ``max_categories``: as of `OneHot`.
    ``ordered``: a person named the categories, in this order. ``otherwise``: the number of an
    unknown category of an ordinal column. ``of``: the expression
    that the column is computed by (`engine.preprocess.input.derived`); empty: the table has it.
    """

    name: str
    step: Step
    impute: StrictBool | Literal["median", "most_frequent"] = True
    standardise: (
        StrictBool | Literal["centre", "scale", "max-abs", "robust"] | tuple[Finite, Finite]
    ) = False
    scaler_first: bool = Field(default=False, exclude_if=operator.not_)
    unknown: Literal["error", "ignore", "infrequent_if_exist"] = "error"
    drop: Drop = Field(default=None, exclude_if=_absent)
    min_frequency: StrictInt | StrictFloat | None = Field(default=None, exclude_if=_absent)
    max_categories: StrictInt | None = Field(default=None, exclude_if=_absent)
    smooth: Finite | Literal["auto"] = "auto"
    ordered: bool = False
    otherwise: StrictInt | None = Field(default=None, exclude_if=_absent)
    categories: Categories = ()
    gaps: bool = False
    of: str = Field(default="", exclude_if=operator.not_)

    @property
    def shares(self) -> bool:
        """Whether rare categories share a feature."""
        return self.min_frequency is not None or self.max_categories is not None


class FittedColumn(Stored):
    """A column as the live rows have fitted it: what a reader needs to transform a row.

    A number is ``(x - mean) / deviation``, where ``impute`` stands in for a missing x (of a one-hot
    column, where it is the place of the category that does so for a missing one); x of a
    category is its place in ``values``, or ``otherwise`` if it is not known; a date counts days
    since 1970-01-01. A one-hot column is a feature of 0 and 1 for each category; if these are
    standardised, ``values`` are their means, and then their deviations. ``vanished`` are
    places of categories that no live row has: these are unknown, too. An unknown category that has
    no number is refused, unless ``ignores_unknown``: then all of its features are 0. Where rare
    categories share a feature (``shares``), it is one more, the last; those at the places ``rare``
    have it in place of their own, and ``otherwise`` is its place if unknown categories have it,
    too. ``of`` is the expression that x is computed by from the columns of the table, if it is none
    of these.
    """

    name: str
    step: Step
    impute: Finite | None = Field(default=None, exclude_if=_absent)
    mean: Finite = Field(default=0.0, exclude_if=operator.not_)
    deviation: Finite = Field(default=1.0, exclude_if=_is_one)
    categories: Categories = Field(default=(), exclude_if=operator.not_)
    values: Annotated[tuple[Finite, ...], Field(fail_fast=True)] = Field(
        default=(), exclude_if=operator.not_
    )
    vanished: Annotated[tuple[int, ...], Field(fail_fast=True)] = Field(
        default=(), exclude_if=operator.not_
    )
    rare: Annotated[tuple[int, ...], Field(fail_fast=True)] = Field(
        default=(), exclude_if=operator.not_
    )
    otherwise: Finite | None = Field(default=None, exclude_if=_absent)
    shares: bool = Field(default=False, exclude_if=operator.not_)
    ignores_unknown: bool = Field(default=False, exclude_if=operator.not_)
    of: str = Field(default="", exclude_if=operator.not_)

    @property
    def scaling(self) -> tuple[Sequence[float], Sequence[float]]:
        """Mean and deviation of each feature: (x - mean) / deviation."""
        if self.step != "one-hot":
            return (self.mean,), (self.deviation,)
        values = self.values or (0.0,) * self.width + (1.0,) * self.width
        return values[: self.width], values[self.width :]

    @property
    def width(self) -> int:
        """Number of features."""
        return len(self.categories) + int(self.shares) if self.step == "one-hot" else 1

    def kept(self) -> list[bool]:
        """Return which features are not those of categories that no live row has."""
        if self.step != "one-hot":
            return [True]
        gone = {*self.vanished, *self.rare}
        kept = [place not in gone for place in range(len(self.categories))]
        return [*kept, bool(self.rare)] if self.shares else kept


FixedPart: TypeAlias = tuple[str, Step, bool, bool, tuple[tuple[Category, type], ...], str]

_COLUMNS = TypeAdapter(tuple[FittedColumn, ...])
_CHANGING = attrgetter("impute", "mean", "deviation", "values", "vanished", "otherwise")


@dataclass(frozen=True, slots=True)
class FixedColumns:
    """What of columns stays as it is while their rows change, made once.

    Attributes
    ----------
    records
        The columns.
    parts
        What digests are looked up by (`fixed_parts`).
    starts
        Name, step and expression of each as JSON, up to where an object's next member follows.
    numeric_starts, imputes
        Of the numeric columns, these starts, and whether a mean stands in for missing numbers.
    """

    records: tuple[ColumnRecord, ...]
    parts: tuple[FixedPart, ...]
    starts: tuple[bytes, ...]
    numeric_starts: tuple[bytes, ...]
    imputes: tuple[bool, ...]

    @classmethod
    def of(cls, records: tuple[ColumnRecord, ...]) -> FixedColumns:
        """Return what is fixed of columns."""
        starts = [to_json(_start(one.name, one.step, one.of))[:-1] for one in records]
        numeric = [i for i, one in enumerate(records) if one.step in NUMERIC]
        return cls(
            records,
            tuple(map(fixed_part, records)),
            tuple(starts),
            tuple(starts[i] for i in numeric),
            tuple(bool(records[i].impute) for i in numeric),
        )


@dataclass(frozen=True)
class PublishedColumns:
    """Fitted columns as a version publishes them; a commit of 1,000 makes no object of each.

    Attributes
    ----------
    packed
        The columns as JSON, without members at their defaults.
    fixed, numbers
        What of them stays as it is, and what changes with rows: `numbers_of`.
    """

    packed: bytes
    fixed: tuple[FixedPart, ...]
    numbers: bytes

    @classmethod
    def of(cls, columns: Sequence[FittedColumn]) -> PublishedColumns:
        """Return columns that are there as objects."""
        return cls(packed_columns(columns), fixed_parts(columns), numbers_of(columns))

    @classmethod
    def read(cls, stored: bytes | None, what: str) -> PublishedColumns:
        """Return columns from JSON. Raises as `parse_columns`."""
        columns = parse_columns(stored, what)
        return cls(stored or b"", fixed_parts(columns), numbers_of(columns))

    @cached_property
    def columns(self) -> tuple[FittedColumn, ...]:
        """The columns as objects."""
        return parse_columns(self.packed, "its fitted columns")


def packed_columns(columns: Sequence[FittedColumn]) -> bytes:
    """Return fitted columns as JSON."""
    return _COLUMNS.dump_json(tuple(columns))


def numbers_of(columns: Sequence[FittedColumn]) -> bytes:
    """Return what of columns changes with rows, as float64; each list after its length.

    Digests are of these, because canonical JSON of them takes longer than a deletion.
    """
    numbers: list[float] = []
    for column in columns:
        numbers += numbers_of_column(*_CHANGING(column))
        numbers += numbers_of_rare(column.rare) if column.shares else ()
    return struct.pack(f"<{len(numbers)}d", *numbers)


def numbers_of_column(
    impute: float | None,
    mean: float,
    deviation: float,
    values: Sequence[float],
    vanished: Sequence[int],
    otherwise: float | None,
) -> tuple[float, ...]:
    """Return the same of one column, but for its rare categories."""
    stands_in = (impute is not None, impute or 0.0)
    unknown = (otherwise is not None, otherwise or 0.0)
    return (*stands_in, mean, deviation, len(values), *values, len(vanished), *vanished, *unknown)


def numbers_of_rare(rare: Sequence[int]) -> tuple[float, ...]:
    """Return what follows of a column whose rare categories share a feature."""
    return (len(rare), *rare)


def fixed_parts(columns: Sequence[FittedColumn]) -> tuple[FixedPart, ...]:
    """Return what of fitted columns does not change with rows, to look it up by.

    Each category comes with its type: 1 equals True, and is another category.
    """

    def typed(categories: tuple[Category, ...]) -> tuple[tuple[Category, type], ...]:
        return tuple((category, type(category)) for category in categories)

    return tuple(
        (
            c.name, c.step, c.ignores_unknown, c.shares,
            typed(c.categories) if c.categories else (), c.of,
        )
        for c in columns
    )  # fmt: skip


def fixed_part(record: ColumnRecord) -> FixedPart:
    """Return the same of a column before it is fitted."""
    categories = tuple((category, type(category)) for category in record.categories)
    ignores = record.step == "one-hot" and record.unknown != "error"
    return record.name, record.step, ignores, record.shares, categories, record.of


def fixed_json(part: FixedPart) -> dict[str, Any]:
    """Return what is fixed of a column as JSON data, without members at their defaults."""
    name, step, ignores_unknown, shares, categories, of = part
    members = _start(name, step, of)
    if categories:
        members["categories"] = [category for category, _ in categories]
    if ignores_unknown:
        members["ignores_unknown"] = True
    if shares:
        members["shares"] = True
    return members


def _start(name: str, step: Step, of: str) -> dict[str, Any]:
    return {"name": name, "step": step} | ({"of": of} if of else {})


def parse_columns(stored: bytes | None, what: str) -> tuple[FittedColumn, ...]:
    """Return fitted columns from JSON, all at once: one by one takes four times as long.

    Raises
    ------
    CorruptState
        They are missing, or do not parse.
    """
    try:
        return _COLUMNS.validate_json(stored or b"")
    except ValidationError:
        raise CorruptState(f"{what}: does not parse; run `lethe check`") from None
