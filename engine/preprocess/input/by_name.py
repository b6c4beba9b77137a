"""A model's columns by name: what a user gives, and which columns a table has to have for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from lethe.engine.errors import InvalidData
from lethe.engine.preprocess.input.columns import (
    Column,
    Columns,
    Date,
    Dropped,
    Name,
    Numeric,
    OneHot,
    Ordinal,
    TargetEncode,
)
from lethe.engine.preprocess.input.derived import (
    Expression,
    Same,
)
from lethe.engine.preprocess.input.sources import holds_text, names_a_column, renamed, sources


def checked_columns(columns: object) -> dict[Name, Column]:
    """Return a model's ``preprocess`` as a mapping of its own, without what is `Dropped`.

    Raises
    ------
    InvalidData
        It is no mapping from names to what this module has, or it is empty; or dates or categories
        are computed.
    """
    if not isinstance(columns, Mapping) or not columns:
        raise InvalidData(
            "preprocess must map each column's name to what is done to it, such as "
            "{'age': Numeric(), 'town': OneHot()}"
        )
    kept = {name: one for name, one in columns.items() if not isinstance(one, Dropped)}
    for name, column in kept.items():
        if not isinstance(column, (Numeric, OneHot, Ordinal, TargetEncode)):
            raise InvalidData(
                f"column {name!r}: there is no preprocessing {column!r}; choose Numeric, Date, "
                "OneHot, Ordinal, TargetEncode or Dropped"
            )
        _check_of(name, column)
    if not kept:
        raise InvalidData("every column is Dropped; leave the model one to learn from")
    return kept


def _check_of(name: Name, column: Column) -> None:
    of, kind = column.of, type(column)
    if of is not None and not isinstance(of, Expression):
        raise InvalidData(f"column {name!r}: of={of!r} is no expression, such as Same('age')")
    if kind is Numeric and of is not None and holds_text(of):
        raise InvalidData(f"column {name!r}: of={of!s} fills in text, and its values are numbers")
    if kind is Date and not isinstance(of, Same | None):
        raise InvalidData(f"column {name!r}: of={of!s} is computed from numbers, not from dates")
    if not (isinstance(column, Numeric) or names_a_column(of)):
        raise InvalidData(
            f"column {name!r}: of={of!s} is computed, and {kind.__name__} takes a column of the "
            "table, such as of=Same('town') or of=Filled('town', 'none')"
        )


def dropped_columns(columns: Mapping[Any, Any]) -> frozenset[Name]:
    """Return the names of the columns of a table that are `Dropped`."""
    return frozenset(name for name, one in columns.items() if isinstance(one, Dropped))


def given_columns(columns: Columns) -> dict[Name, Column]:
    """Return the columns that a table has to have, and how each is read, in order of first use.

    What several columns are computed from is read as categories if one of them needs these.
    """
    given: dict[Name, Column] = {}
    for name, column in columns.items():
        of = Same(name) if column.of is None else column.of
        computed = isinstance(column, Numeric) and not isinstance(of, Same)
        plain = Numeric() if computed else replace(column, of=None)
        for source in sources(of):
            if source not in given or not isinstance(plain, Numeric):
                given[source] = plain
    return given


def named_by(columns: Columns, names: Sequence[str]) -> dict[str, Column]:
    """Return columns of an array, whose columns have these names in a table."""
    named: dict[str, Column] = {}
    for name, column in columns.items():
        of = None if column.of is None else renamed(column.of, names)
        key = names[name] if isinstance(name, int) else name
        if of is not None and name == str(column.of) and str(of) not in names:
            key = str(of)
        named[key] = replace(column, of=of)
    return named
