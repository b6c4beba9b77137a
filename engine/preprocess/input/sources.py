"""What an expression is made of, and which columns of a table it reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lethe.engine.preprocess.input.derived import (
    Expression,
    Filled,
    Name,
    Normalised,
    Product,
    Same,
    Sum,
)


def parts_of(of: Expression) -> Sequence[Expression]:
    """Return the expressions that one is made of."""
    match of:
        case Same():
            return ()
        case Product(factors):
            return [factor for factor, _ in factors]
        case Normalised(to) | Sum(to):
            return to
        case _:
            return (of.to,)


def names_a_column(of: Expression | None) -> bool:
    """Return whether categories can be read: the values of a column as they are, or filled."""
    return of is None or isinstance(of.to if isinstance(of, Filled) else of, Same)


def holds_text(of: Expression) -> bool:
    """Return whether an expression fills in text, so that its values are no numbers."""
    text = isinstance(of, Filled) and isinstance(of.value, str)
    return text or any(holds_text(part) for part in parts_of(of))


def sources(of: Expression) -> tuple[Name, ...]:
    """Return the table's columns that an expression reads, each once."""
    if isinstance(of, Same):
        return (of.name,)
    return tuple(dict.fromkeys(name for part in parts_of(of) for name in sources(part)))


def renamed(of: Expression, names: Sequence[str]) -> Expression:
    """Return an expression of an array's columns, whose columns have these names in a table."""
    match of:
        case Same(name):
            return Same(names[name]) if isinstance(name, int) else of
        case Product(factors):
            return Product([(renamed(factor, names), power) for factor, power in factors])
        case Normalised(to) | Sum(to):
            return replace(of, to=tuple(renamed(one, names) for one in to))
        case _:
            return replace(of, to=renamed(of.to, names))
