"""The values of expressions, row by row: the same bits on every machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from types import MappingProxyType
from typing import Any, cast

import numpy as np

from lethe.engine.fit.objective import Array
from lethe.engine.preprocess.input.derived import (
    FUNCTIONS,
    Above,
    Applied,
    Expression,
    Filled,
    Missing,
    Name,
    Norm,
    Normalised,
    Product,
    Same,
    Scaled,
    Spline,
    Sum,
)
from lethe.engine.preprocess.input.sources import parts_of

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


def evaluated(of: Expression, numbers: Callable[[Name], Array]) -> Array:
    """Return the values, (n,), of the numbers of each column; NaN where there is none.

    A function beside its domain has no value, too.
    """
    with np.errstate(all="ignore"):
        return _evaluated(of, numbers)


def _evaluated(of: Expression, numbers: Callable[[Name], Array]) -> Array:
    if isinstance(of, Same):
        return numbers(of.name)
    parts = [_evaluated(part, numbers) for part in parts_of(of)]
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
        case Sum():
            values = reduce(np.add, parts) + of.plus
        case Spline():
            values = _spline(of, parts[0])
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


def _spline(of: Spline, x: Array) -> Array:
    """Return one spline of a basis, beyond the outer knots as it says. Cost O(n degree^2)."""
    low, high, knots = of.knots[0], of.knots[-1], _with_outer(of)
    if of.extrapolation == "periodic":
        x = low + (x - low) % (high - low)  # the remainder is exact
        value, _ = _basis(knots, of.degree, of.place, x)
        if of.place < of.degree:  # what reaches beyond one end comes in again at the other
            value = value + _basis(knots, of.degree, of.place + len(of.knots) - 1, x)[0]
        return value
    inside = x if of.extrapolation == "continue" else np.clip(x, low, high)
    value, slope = _basis(knots, of.degree, of.place, inside)
    if of.extrapolation == "linear":
        value = value + (x - inside) * slope
    return value


def _with_outer(of: Spline) -> Array:
    """Return the knots, and as many as the degree before and after them."""
    knots, degree = np.array(of.knots), of.degree
    if of.extrapolation == "periodic":
        period = knots[-1] - knots[0]
        outer = knots[-degree - 1 : -1] - period, knots[1 : degree + 1] + period
    else:
        (low, second), (last, high) = knots[:2], knots[-2:]
        first, final = second - low, high - last
        outer = (
            np.linspace(low - degree * first, low - first, degree),
            np.linspace(high + final, high + degree * final, degree),
        )
    return np.concatenate([outer[0], knots, outer[1]])


def _basis(knots: Array, degree: int, first: int, x: Array) -> tuple[Array, Array]:
    """Return a B-spline and its slope, by the recursion of Cox and de Boor.

    Beyond the interval of the basis they are those of its outer polynomials.
    """
    at = np.searchsorted(knots, x, side="right") - 1
    at = np.clip(at, degree, len(knots) - degree - 2)  # the last interval has its end, too
    values = [(at == first + i).astype(np.float64) for i in range(degree + 1)]
    own = knots[first:]
    for k in range(1, degree + 1):
        lower = values
        values = [
            (x - own[i]) / (own[i + k] - own[i]) * lower[i]
            + (own[i + k + 1] - x) / (own[i + k + 1] - own[i + 1]) * lower[i + 1]
            for i in range(degree + 1 - k)
        ]
    rise, fall = lower[0] / (own[degree] - own[0]), lower[1] / (own[degree + 1] - own[1])
    return np.where(np.isnan(x), np.nan, values[0]), degree * (rise - fall)
