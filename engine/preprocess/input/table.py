"""Tables: what a user gives as X, read by name; and the rows of a model before any transformation.

A table is a data frame (pandas, polars, or pyarrow's), a mapping from names to columns, or an
array, whose columns are named by place. None of those libraries is imported here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, repeat
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

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
)
from lethe.engine.preprocess.input.derived import (
    Expression,
    Filled,
    Same,
)
from lethe.engine.preprocess.input.evaluating import evaluated
from lethe.engine.preprocess.input.sources import sources
from lethe.engine.preprocess.input.values import (
    Values,
    is_missing,
    read_categories,
    read_dates,
    read_numbers,
)

Codes = NDArray[np.int32]

TableLike: TypeAlias = ArrayLike | Mapping[Any, Any]
"""What a user may give as X: see the module. (A data frame is an ArrayLike to NumPy.)"""

_NAMED = 5  # columns named in a message


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The categories of one column, by code, in the order in which they were first met."""

    categories: tuple[Category, ...] = ()

    def coded(self, values: Sequence[Category]) -> tuple[Codes, Vocabulary]:
        """Return the codes of ``values``, and the vocabulary that has them all."""
        longer = Vocabulary(tuple(dict.fromkeys(chain(self.categories, values))))
        return longer.code_of(values), longer

    def code_of(self, values: Sequence[Category]) -> Codes:
        """Return the codes of ``values``, -1 where there is none."""
        known = {category: code for code, category in enumerate(self.categories)}
        return np.fromiter(map(known.get, values, repeat(-1)), np.int32, len(values))


@dataclass(frozen=True, slots=True)
class Table:
    """Rows before any transformation.

    Attributes
    ----------
    numbers
        n x a, the numbers and days of the numeric columns in order, NaN where missing.
    codes
        n x c, the codes of the other columns in order.
    vocabularies
        One for each of these.
    """

    numbers: Array
    codes: Codes
    vocabularies: tuple[Vocabulary, ...]

    def __len__(self) -> int:
        return len(self.numbers)

    def take(self, index: NDArray[np.intp] | NDArray[np.bool_] | slice) -> Table:
        """Return the rows at ``index``."""
        return Table(self.numbers[index], self.codes[index], self.vocabularies)

    def forget(self, places: NDArray[np.intp]) -> None:
        """Overwrite rows. Cost O(k p)."""
        self.numbers[places] = 0.0
        self.codes[places] = -1

    def pruned(self, columns: Columns) -> Table:
        """Return this table with the categories that a row has or that are named. Cost O(n c)."""
        codes, vocabularies = self.codes.copy(), []
        given = [named(one) for one in columns.values() if not isinstance(one, Numeric)]
        for j, (vocabulary, kept) in enumerate(zip(self.vocabularies, given, strict=True)):
            used = np.unique(
                np.append(self.codes[self.codes[:, j] >= 0, j], vocabulary.code_of(kept))
            )
            back = np.full(len(vocabulary.categories) + 1, -1, dtype=np.int32)  # the last is for -1
            back[used] = np.arange(len(used))
            codes[:, j] = back[self.codes[:, j]]
            vocabularies.append(Vocabulary(tuple(vocabulary.categories[code] for code in used)))
        return Table(self.numbers, codes, tuple(vocabularies))

    def below(self, more: Table) -> Table:
        """Return this table with ``more`` below it, whose codes are by longer vocabularies."""
        return Table(
            np.vstack([self.numbers, more.numbers]),
            np.vstack([self.codes, more.codes]),
            more.vocabularies,
        )


def named(column: Column) -> tuple[Category, ...]:
    """Return the categories that have a place in a column without a row."""
    if not isinstance(column, OneHot):
        return ()
    return (*(column.categories or ()), *(() if column.impute is None else (None,)))


def read_table(
    columns: Columns,
    X: Any,
    vocabularies: Sequence[Vocabulary] = (),
    *,
    spelled: bool = False,
    dropped: Collection[Name] = (),
) -> Table:
    """Read a table; new categories are added to ``vocabularies``.

    Values that are computed from those of the table (`Numeric.of`) are from here on as if a table
    had had them. ``spelled``: the table comes from a file or a message, where a category may have
    another type. ``dropped``: columns that it may have as well.

    Raises
    ------
    InvalidData
        A column is missing, or in the table but not in ``columns``; a value is not of its column's
        kind.
    """
    values = read_columns(given_columns(columns), X, dropped)
    n = len(next(iter(values.values())))
    numbers: list[Array] = []
    codes: list[Codes] = []
    longer: list[Vocabulary] = []

    @cache
    def number(name: Name) -> Array:
        return read_numbers(name, values[name])

    for name, column in columns.items():
        of = Same(name) if column.of is None else column.of
        if isinstance(column, Date):
            [source] = sources(of)
            numbers.append(_checked_gaps(name, column, read_dates(source, values[source])))
            continue
        if isinstance(column, Numeric):
            read = number(of.name) if isinstance(of, Same) else _computed(name, of, number)
            numbers.append(_checked_gaps(name, column, read))
            continue
        known = vocabularies[len(longer)] if vocabularies else Vocabulary(named(column))
        like = known.categories if spelled else None
        [source] = sources(of)
        coded, vocabulary = known.coded(_categories(source, of, values[source], like))
        codes.append(coded)
        longer.append(vocabulary)
    return Table(
        np.column_stack(numbers) if numbers else np.empty((n, 0)),
        np.column_stack(codes) if codes else np.empty((n, 0), dtype=np.int32),
        tuple(longer),
    )


def _categories(
    source: Name, of: Expression, values: Values, like: Sequence[Category] | None
) -> list[Category]:
    if not isinstance(of, Filled):
        return read_categories(source, values, like)
    filled = [of.value if is_missing(value) else value for value in values]
    return read_categories(source, np.array(filled, dtype=object), like)


def _computed(name: Name, of: Expression, number: Callable[[Name], Array]) -> Array:
    """Return the numbers of an expression, NaN where one that it takes is missing."""
    numbers = evaluated(of, number)
    gaps = np.any([np.isnan(number(source)) for source in sources(of)], axis=0)
    bad = np.isinf(numbers) | (np.isnan(numbers) & ~gaps)
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise InvalidData(f"column {name!r}: {of} is not a finite number in row {row}; correct it")
    return numbers


def _checked_gaps(name: Name, column: Numeric, numbers: Array) -> Array:
    if column.impute is None and np.isnan(numbers).any():
        row = int(np.flatnonzero(np.isnan(numbers))[0])
        raise InvalidData(
            f"column {name!r} has no value in row {row}; correct the row, or set impute='mean'"
        )
    return numbers


def read_columns(columns: Columns, X: Any, dropped: Collection[Name] = ()) -> dict[Name, Values]:
    """Return the values of each of ``columns``, (n,) each, in their order.

    ``dropped``: columns that X may have as well; an array has them.

    Raises
    ------
    InvalidData
        X is no table, or has other columns.
    """
    named = _named(X)
    if named is None:
        return _by_place(columns, X, dropped)
    names, column_of = named
    missing = [name for name in columns if name not in names]
    extra = [name for name in names if name not in columns and name not in dropped]
    if missing:
        raise InvalidData(f"the table has no column {_list(missing)}")
    if extra:
        raise InvalidData(
            f"preprocess does not say what is done to column {_list(extra)}; name each, or leave "
            "them out of the table"
        )
    if len(set(names)) != len(names):
        raise InvalidData("two columns of the table have the same name")
    values = {name: _flat(name, column_of(name)) for name in columns}
    if len({len(column) for column in values.values()}) > 1:
        raise InvalidData("the columns of the table are not of the same length")
    return values


def _named(X: Any) -> tuple[list[Name], Any] | None:
    """Return a table's names and how a column is taken, or None for an array."""
    if isinstance(X, Mapping):
        return list(X), X.__getitem__
    names = getattr(X, "column_names", None) or getattr(X, "columns", None)
    if names is None or not hasattr(X, "__getitem__"):
        return None
    return list(names), X.__getitem__


def _by_place(columns: Columns, X: Any, dropped: Collection[Name]) -> dict[Name, Values]:
    if hasattr(X, "toarray"):
        raise InvalidData("X is a sparse matrix; give it as an array, X.toarray(), or as a table")
    array = np.asarray(X, dtype=None if isinstance(X, np.ndarray) else object)
    if array.ndim != 2:
        raise InvalidData(f"X must have 2 dimensions, or columns with names; not {array.ndim}")
    unnamed = [name for name in columns if not isinstance(name, int)]
    if unnamed:
        raise InvalidData(
            f"X is an array, and preprocess names column {_list(unnamed)}; give a data frame or a "
            "dict, or name columns by place, from 0"
        )
    places = {*columns, *dropped}
    if sorted(places, key=int) != list(range(array.shape[1])):
        raise InvalidData(
            f"X has {array.shape[1]} columns, and preprocess names {len(places)}: it must say "
            "what is done to each, by its place from 0"
        )
    return {place: array[:, int(place)] for place in columns}


def _flat(name: Name, column: Any) -> Values:
    if isinstance(column, np.ma.MaskedArray):  # an array of it would hold what is masked
        hidden, column = np.ma.getmaskarray(column), column.data.astype(object)
        column[hidden] = None
    try:
        values = np.asarray(column)
    except (ValueError, NotImplementedError) as error:
        raise InvalidData(f"column {name!r} is no list of single values: {error}") from None
    if values.ndim != 1:
        raise InvalidData(f"column {name!r} must have 1 dimension, not {values.ndim}")
    if values.dtype.kind == "U" and isinstance(column, (list, tuple)):  # numbers among text
        values = np.array(column, dtype=object)
    return values


def _list(names: Sequence[Name]) -> str:
    shown = ", ".join(repr(name) for name in names[:_NAMED])
    return shown if len(names) <= _NAMED else f"{shown} and {len(names) - _NAMED} more"


def numeric_names(columns: Mapping[Name, Column]) -> list[Name]:
    """Return the names of the numeric columns, in order."""
    return [name for name, column in columns.items() if isinstance(column, Numeric)]
