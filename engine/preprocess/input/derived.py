"""Columns that a fixed function computes from a table's columns, row by row: nothing is learnt.

An expression says which columns and which function. It is written as text such as ``log1p(age)``,
``age**2 * income``, ``0.5 * age + 2.0`` or ``filled('monthly income', 0.0)``, which `str` gives
(and `engine.preprocess.input.expression_text` reads).
"""

from __future__ import annotations

import keyword
import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from lethe.engine.errors import InvalidData

Name: TypeAlias = str | int
"""A column's name in a data frame, or its place in an array."""

Operand: TypeAlias = Any
"""An expression, or the name of a column for its values; once it is there, an expression."""

Norm: TypeAlias = Literal["l1", "l2", "max"]

Extrapolation: TypeAlias = Literal["constant", "linear", "continue", "periodic"]
"""A spline beyond its outer knots, by scikit-learn's names."""

MAX_POWER = 32

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
            inner = f"({factor})" if isinstance(factor, Scaled | Sum) else str(factor)
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
        _set(self, by=finite(self.by), to=expression(self.to))

    def __str__(self) -> str:
        inner = f"({self.to})" if isinstance(self.to, Product | Scaled | Sum) else str(self.to)
        return f"{self.by!r} * {inner}"


@dataclass(frozen=True, slots=True)
class Sum:
    """A sum of values and of a number; added up in this order, the number last.

    Attributes
    ----------
    to
        What is added up: two summands, or one and a number. Sums in it are taken apart.
    plus
        The number.
    """

    to: tuple[Operand, ...]
    plus: float = 0.0

    def __post_init__(self) -> None:
        """Take names for columns, and sums in sums apart.

        Raises
        ------
        InvalidData
            There is nothing to add up, or ``plus`` is no number.
        """
        plus, parts = finite(self.plus), list[Expression]()
        for one in map(expression, self.to):
            parts += one.to if isinstance(one, Sum) else (one,)
            plus += one.plus if isinstance(one, Sum) else 0.0
        if not parts or (len(parts) == 1 and plus == 0.0):
            raise InvalidData("a sum has two summands, or one and a number")
        _set(self, to=tuple(parts), plus=finite(plus))

    def __str__(self) -> str:
        plus = [repr(self.plus)] if self.plus else []
        return " + ".join([*map(str, self.to), *plus])


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
        value = self.value if isinstance(self.value, str) else finite(self.value)
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
        _set(self, threshold=finite(self.threshold), to=expression(self.to))

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


@dataclass(frozen=True, slots=True)
class Spline:
    """One B-spline of a basis with given knots.

    Attributes
    ----------
    to
        Where it is evaluated.
    knots
        Two or more, ascending. Beyond them the basis goes on at the distance of the outer two; of
        a periodic one, at the distances at the other end.
    degree
        From 1 to `MAX_POWER`; of a periodic one, below the number of knots.
    place
        Which of the `splines`.
    extrapolation
        Beyond the outer knots: ``"constant"``, its value there; ``"linear"``, its tangent there;
        ``"continue"``, the polynomial of the outer interval; ``"periodic"``, again from the other
        end.
    """

    to: Operand
    knots: tuple[float, ...]
    degree: int
    place: int
    extrapolation: Extrapolation = "constant"

    def __post_init__(self) -> None:
        """Refuse what is no basis.

        Raises
        ------
        InvalidData
            The knots do not ascend, or there is no such degree, place or extrapolation.
        """
        knots = tuple(finite(knot) for knot in self.knots)
        _set(self, knots=knots, to=expression(self.to))
        if len(knots) < 2 or not all(one < other for one, other in pairwise(knots)):
            raise InvalidData(f"a spline has two knots or more, which ascend, not {knots}")
        if self.extrapolation not in get_args(Extrapolation):
            raise InvalidData(
                f"a spline goes on as {', '.join(get_args(Extrapolation))}, not as "
                f"{self.extrapolation!r}"
            )
        most = min(MAX_POWER, len(knots) - 1 if self.extrapolation == "periodic" else MAX_POWER)
        there_are = splines(len(knots), self.degree, self.extrapolation)
        if not (1 <= self.degree <= most and 0 <= self.place < there_are):
            raise InvalidData(
                f"with {len(knots)} knots, a spline's degree is from 1 to {most} and its place "
                f"below the number of splines, not {self.degree} and {self.place}"
            )

    def __str__(self) -> str:
        beyond = "" if self.extrapolation == "constant" else f"{self.extrapolation!r}, "
        knots = ", ".join(map(repr, self.knots))
        return f"spline({beyond}{self.degree}, {self.place}, {self.to}, {knots})"


Expression: TypeAlias = (
    Same | Applied | Product | Scaled | Sum | Filled | Missing | Above | Normalised | Spline
)


def _set(one: Expression, **fields: Any) -> None:
    for name, value in fields.items():
        object.__setattr__(one, name, value)


def splines(knots: int, degree: int, extrapolation: Extrapolation) -> int:
    """Return how many splines a basis of so many knots has, one with a constant among them."""
    return knots - 1 + (0 if extrapolation == "periodic" else degree)


def finite(number: object) -> float:
    """Return a number in double precision; raise `InvalidData` if it is none, or infinite."""
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
