"""Columns that a fixed function computes from a table's columns, row by row: nothing is learnt.

An expression says which columns and which function. It is written as text such as ``log1p(age)``,
``age**2 * income``, ``0.5 * age`` or ``filled('monthly income', 0.0)``; text is parsed, never run.
"""

from __future__ import annotations

import ast
import keyword
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, cast

import numpy as np

from lethe.engine.errors import InvalidData
from lethe.engine.fit.objective import Array

Name: TypeAlias = str | int
"""A column's name in a data frame, or its place in an array."""

Operand: TypeAlias = Any
"""An expression, or the name of a column for its values; once it is there, an expression."""

Norm: TypeAlias = Literal["l1", "l2", "max"]

MAX_TEXT = 20_000
"""Characters of an expression: a norm over 150 columns with the longest names."""

MAX_POWER = 32
MAX_DEPTH = 20

FUNCTIONS: Mapping[str, np.ufunc] = MappingProxyType(
    {
        name: getattr(np, name)
        for name in (
            "absolute", "arcsinh", "arctan", "cbrt", "ceil", "cos", "exp", "expm1", "floor", "log",
            "log10", "log1p", "log2", "rint", "sign", "sin", "sinh", "sqrt", "square", "tanh",
        )
    }
)  # fmt: skip
"""Functions by the names that NumPy gives them."""

_ROUNDED: Mapping[str, Callable[[Any], Any]] = MappingProxyType(
    {
        "arcsinh": lambda x: x.asinh(),
        "arctan": lambda x: x.atan(),
        "cbrt": lambda x: x.root(3) if x > 0 else -(-x).root(3),
        "cos": lambda x: x.cos(),
        "exp": lambda x: x.exp(),
        "expm1": lambda x: x.expm1(),
        "log": lambda x: x.log(),
        "log10": lambda x: x.log_base(10),
        "log1p": lambda x: x.log1p(),
        "log2": lambda x: x.log_base(2),
        "sin": lambda x: x.sin(),
        "sinh": lambda x: x.sinh(),
        "tanh": lambda x: x.tanh(),
    }
)
"""Those that NumPy does not round correctly: what it returns depends on the processor."""

_BITS = 128


@dataclass(frozen=True, slots=True)
class Same:
    """A column of the table as it is."""

    name: Name

    def __str__(self) -> str:
        name = self.name
        if isinstance(name, str) and name.isascii() and name.isidentifier():
            return repr(name) if keyword.iskeyword(name) else name
        return repr(name) if isinstance(name, str) else f"x{name}"


@dataclass(frozen=True, slots=True)
class Applied:
    """A function of `FUNCTIONS` of each value."""

    to: Operand
    function: str

    def __post_init__(self) -> None:
        """Refuse a function that there is not.

        Raises
        ------
        InvalidData
            It is none of `FUNCTIONS`.
        """
        if self.function not in FUNCTIONS:
            raise InvalidData(
                f"there is no function {self.function!r}; choose one of {', '.join(FUNCTIONS)}"
            )
        object.__setattr__(self, "to", expression(self.to))

    def __str__(self) -> str:
        return f"{self.function}({self.to})"


@dataclass(frozen=True, slots=True)
class Product:
    """A product of powers, such as ``Product({"age": 2, "income": 1})``.

    Attributes
    ----------
    factors
        What is multiplied, and how often each: 0 gives the constant 1. Given as a mapping or as
        pairs; each stands there once.
    """

    factors: Any

    def __post_init__(self) -> None:
        """Take names for columns, and products in products apart.

        Raises
        ------
        InvalidData
            There is no factor, or a power is no whole number from 0 to `MAX_POWER`.
        """
        given = self.factors.items() if isinstance(self.factors, Mapping) else self.factors
        powers: dict[Expression, int] = {}
        for factor, power in given:
            for one, of in _factors(expression(factor), power):
                powers[one] = powers.get(one, 0) + of
        if not powers or not all(0 <= power <= MAX_POWER for power in powers.values()):
            raise InvalidData(f"a product has factors, with whole powers from 0 to {MAX_POWER}")
        object.__setattr__(self, "factors", tuple(powers.items()))

    def __str__(self) -> str:
        parts = []
        for factor, power in self.factors:
            inner = f"({factor})" if isinstance(factor, Scaled) else str(factor)
            bare = power == 1 and len(self.factors) > 1
            parts.append(inner if bare else f"{inner}**{power}")
        return " * ".join(parts)


@dataclass(frozen=True, slots=True)
class Scaled:
    """Each value times a number."""

    to: Operand
    by: float

    def __post_init__(self) -> None:
        """Refuse what is no number.

        Raises
        ------
        InvalidData
            It is none.
        """
        _set(self, by=_finite(self.by), to=expression(self.to))

    def __str__(self) -> str:
        inner = f"({self.to})" if isinstance(self.to, Product | Scaled) else str(self.to)
        return f"{self.by!r} * {inner}"


@dataclass(frozen=True, slots=True)
class Filled:
    """Each value, and a given one where it is missing: a number, or text among categories."""

    to: Operand
    value: float | str

    def __post_init__(self) -> None:
        """Refuse what is neither.

        Raises
        ------
        InvalidData
            It is neither.
        """
        value = self.value if isinstance(self.value, str) else _finite(self.value)
        _set(self, value=value, to=expression(self.to))

    def __str__(self) -> str:
        return f"filled({self.to}, {self.value!r})"


@dataclass(frozen=True, slots=True)
class Missing:
    """1 where the value is missing, else 0."""

    to: Operand

    def __post_init__(self) -> None:
        """Take a name for a column."""
        _set(self, to=expression(self.to))

    def __str__(self) -> str:
        return f"missing({self.to})"


@dataclass(frozen=True, slots=True)
class Above:
    """1 where the value is above a threshold, else 0."""

    to: Operand
    threshold: float

    def __post_init__(self) -> None:
        """Refuse what is no number.

        Raises
        ------
        InvalidData
            It is none.
        """
        _set(self, threshold=_finite(self.threshold), to=expression(self.to))

    def __str__(self) -> str:
        return f"above({self.to}, {self.threshold!r})"


@dataclass(frozen=True, slots=True)
class Normalised:
    """One of several values of a row, divided by their norm; of a norm of 0, as it is.

    Attributes
    ----------
    to
        The values.
    norm
        ``"l1"``, ``"l2"``, or ``"max"``: the largest magnitude.
    place
        Which of them.
    """

    to: tuple[Operand, ...]
    norm: Norm
    place: int

    def __post_init__(self) -> None:
        """Refuse what there is not.

        Raises
        ------
        InvalidData
            The norm is none of the three, or the place is none of the values'.
        """
        _set(self, to=tuple(expression(one) for one in self.to))
        if self.norm not in ("l1", "l2", "max") or not 0 <= self.place < len(self.to):
            raise InvalidData("the norm is l1, l2 or max, and the place one of the values', from 0")

    def __str__(self) -> str:
        return f"normalised({self.norm!r}, {self.place}, {', '.join(map(str, self.to))})"


Expression: TypeAlias = Same | Applied | Product | Scaled | Filled | Missing | Above | Normalised


def _set(one: Expression, **fields: Any) -> None:
    for name, value in fields.items():
        object.__setattr__(one, name, value)


def _finite(number: object) -> float:
    if isinstance(number, bool | np.bool_) or not isinstance(number, int | float | np.number):
        raise InvalidData(f"{number!r} is not a number")
    if not math.isfinite(number):
        raise InvalidData(f"{number!r} is not finite")
    return float(number)


def _factors(factor: Expression, power: int) -> list[tuple[Expression, int]]:
    if isinstance(power, bool) or not isinstance(power, int | np.integer):
        raise InvalidData(f"a power of a product is a whole number, not {power!r}")
    if not isinstance(factor, Product):
        return [(factor, int(power))]
    return [(one, of * int(power)) for one, of in factor.factors]


def expression(given: Expression | Name) -> Expression:
    """Return an expression, or the column of a name.

    Raises
    ------
    InvalidData
        It is neither.
    """
    if isinstance(given, Expression):
        return given
    if isinstance(given, str | int) and not isinstance(given, bool):
        return Same(given)
    raise InvalidData(f"{given!r} is no expression: give a column's name, or Product, Applied, ...")


def _parts(of: Expression) -> Sequence[Expression]:
    match of:
        case Same():
            return ()
        case Product(factors):
            return [factor for factor, _ in factors]
        case Normalised(to):
            return to
        case _:
            return (of.to,)


def names_a_column(of: Expression | None) -> bool:
    """Return whether categories can be read: the values of a column as they are, or filled."""
    return of is None or isinstance(of.to if isinstance(of, Filled) else of, Same)


def holds_text(of: Expression) -> bool:
    """Return whether an expression fills in text, so that its values are no numbers."""
    text = isinstance(of, Filled) and isinstance(of.value, str)
    return text or any(holds_text(part) for part in _parts(of))


def sources(of: Expression) -> tuple[Name, ...]:
    """Return the table's columns that an expression reads, each once."""
    if isinstance(of, Same):
        return (of.name,)
    return tuple(dict.fromkeys(name for part in _parts(of) for name in sources(part)))


def renamed(of: Expression, names: Sequence[str]) -> Expression:
    """Return an expression of an array's columns, whose columns have these names in a table."""
    match of:
        case Same(name):
            return Same(names[name]) if isinstance(name, int) else of
        case Product(factors):
            return Product([(renamed(factor, names), power) for factor, power in factors])
        case Normalised(to):
            return replace(of, to=tuple(renamed(one, names) for one in to))
        case _:
            return replace(of, to=renamed(of.to, names))


def evaluated(of: Expression, numbers: Callable[[Name], Array]) -> Array:
    """Return the values, (n,), of the numbers of each column; NaN where there is none.

    A function beside its domain has no value, too.
    """
    with np.errstate(all="ignore"):
        return _evaluated(of, numbers)


def _evaluated(of: Expression, numbers: Callable[[Name], Array]) -> Array:
    if isinstance(of, Same):
        return numbers(of.name)
    parts = [_evaluated(part, numbers) for part in _parts(of)]
    match of:
        case Applied():
            values = _applied(of.function, parts[0])
        case Product():
            values = np.ones_like(parts[0])
            for part, (_, power) in zip(parts, of.factors, strict=True):
                for _ in range(power):
                    values = values * part
        case Scaled():
            values = parts[0] * of.by
        case Filled():
            values = np.where(np.isnan(parts[0]), float(of.value), parts[0])
        case Missing():
            values = np.isnan(parts[0]).astype(np.float64)
        case Above():
            values = np.where(np.isnan(parts[0]), np.nan, parts[0] > of.threshold)
        case Normalised():
            values = parts[of.place] / _norm(parts, of.norm)
    return values


def _applied(name: str, x: Array) -> Array:
    """Return a function of numbers, correctly rounded: the same bits on every machine.

    A row is computed when it comes, and again when the log is read, maybe on another processor.
    Cost 1 to 3 microseconds a number where NumPy does not round correctly.
    """
    values: Array = FUNCTIONS[name](x)
    rounded = _ROUNDED.get(name)
    finite = np.isfinite(values) & (x != 0.0)  # of 0, all are 0, 1 or infinite
    if rounded is not None and finite.any():
        import flint  # noqa: PLC0415 (what few models need)

        with flint.ctx.workprec(_BITS):
            values[finite] = [float(rounded(flint.arb(one))) for one in x[finite].tolist()]
    return values


def _norm(parts: Sequence[Array], norm: Norm) -> Array:
    """Return the norm of each row, added up in the order of the values."""
    sizes = [np.abs(part) for part in parts]
    if norm == "max":
        lengths = reduce(np.maximum, sizes)
    elif norm == "l1":
        lengths = reduce(np.add, sizes)
    else:
        lengths = np.sqrt(reduce(np.add, [size * size for size in sizes]))
    return cast("Array", np.where(lengths == 0.0, 1.0, lengths))


# -- text ---------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def parsed(text: str) -> Expression:
    """Return the expression that text writes, as `str` does.

    Raises
    ------
    InvalidData
        It writes none; the message says which part of it is not known.
    """
    if len(text) > MAX_TEXT:
        raise InvalidData(f"the expression has {len(text)} characters, and at most {MAX_TEXT}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return _of_tree(ast.parse(text.strip(), mode="eval").body, 0)
    except InvalidData:
        raise
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise InvalidData(
            f"{text!r} is no expression; write for example log1p(age), age**2 * income, or a "
            "column's name in quotes"
        ) from None


def _of_tree(tree: ast.expr, depth: int) -> Expression:
    if depth > MAX_DEPTH:
        raise InvalidData(f"the expression has more than {MAX_DEPTH} levels")
    match tree:
        case ast.Name(id=name):
            return Same(name)
        case ast.Constant(value=str(name)):
            return Same(name)
        case ast.BinOp(left=base, op=ast.Pow(), right=ast.Constant(value=int(power))):
            return Product([(_of_tree(base, depth + 1), power)])
        case ast.BinOp(left=left, op=ast.Mult(), right=right) if _is_number(left):
            return Scaled(_of_tree(right, depth + 1), _number(left))
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            # A product of many factors is a tree as deep as there are factors.
            return Product([(_of_tree(left, depth), 1), (_of_tree(right, depth + 1), 1)])
        case ast.Call(func=ast.Name(id=name), args=given, keywords=[]):
            return _of_call(name, given, depth + 1)
    raise InvalidData(f"{ast.unparse(tree)!r} is no part of an expression")


def _of_call(name: str, given: list[ast.expr], depth: int) -> Expression:
    match name, given:
        case "filled", [to, value]:
            return Filled(_of_tree(to, depth), _text_or_number(value))
        case "missing", [to]:
            return Missing(_of_tree(to, depth))
        case "above", [to, threshold]:
            return Above(_of_tree(to, depth), _number(threshold))
        case "normalised", [ast.Constant(value=str(norm)), ast.Constant(value=int(place)), *to]:
            values = tuple(_of_tree(one, depth) for one in to)
            return Normalised(values, cast("Norm", norm), place)
        case _, [to] if name not in ("filled", "above", "normalised"):
            return Applied(_of_tree(to, depth), name)
    known = "filled(x, value), missing(x), above(x, threshold), normalised(norm, place, x, ...)"
    raise InvalidData(f"{name} does not take these; there are {known}, and functions of one value")


def _is_number(tree: ast.expr) -> bool:
    inner = tree.operand if isinstance(tree, ast.UnaryOp) else tree
    return isinstance(inner, ast.Constant) and isinstance(inner.value, int | float)


def _text_or_number(tree: ast.expr) -> float | str:
    text = isinstance(tree, ast.Constant) and isinstance(tree.value, str)
    return str(ast.literal_eval(tree)) if text else _number(tree)


def _number(tree: ast.expr) -> float:
    try:
        return _finite(ast.literal_eval(tree))
    except (ValueError, OverflowError):  # of what InvalidData derives from, too
        raise InvalidData(f"{ast.unparse(tree)!r} is not a number") from None
