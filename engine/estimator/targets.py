"""Targets of which a linear model learns a function, such as the logarithm of a price."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike

from lethe.engine.errors import InvalidData
from lethe.engine.fit.objective import Array, check_finite
from lethe.engine.preprocess.input.derived import FUNCTIONS
from lethe.engine.rows import numbers

INVERSES: Mapping[str, str] = MappingProxyType(
    {
        "arcsinh": "sinh",
        "exp": "log",
        "expm1": "log1p",
        "log": "exp",
        "log1p": "expm1",
        "sinh": "arcsinh",
        "sqrt": "square",
    }
)
"""Functions that a target can be learnt by, as NumPy names them, each with its inverse.

Each is one-to-one where it has a value: targets can be told from what was learnt.
"""


def check_function(name: object) -> None:
    """Refuse a function of the target that there is not.

    Raises
    ------
    InvalidData
        It is neither None nor one of `INVERSES`.
    """
    if name is not None and (not isinstance(name, str) or name not in INVERSES):
        raise InvalidData(f"target must be None or one of {', '.join(INVERSES)}, not {name!r}")


def learnt(function: str | None, y: ArrayLike) -> ArrayLike:
    """Return the function of targets, (n,) or (n, m); without one, the targets as they are.

    Raises
    ------
    InvalidData
        Some target is not a finite number, or the function has no finite value there.
    """
    if function is None:
        return y
    given = numbers(y, "y", (1, 2))
    check_finite("target", given)
    with np.errstate(all="ignore"):
        values: Array = FUNCTIONS[function](given)
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        raise InvalidData(
            f"the target of row {bad[0][0]} is {given[tuple(bad[0])]:.6g}, of which {function} is "
            "not a finite number; correct the row, or fit a model of another function"
        )
    return values


def taken_back(function: str | None, values: Array) -> Array:
    """Return what the function was of: of predictions those in the units of the targets."""
    if function is None:
        return values
    with np.errstate(all="ignore"):
        back: Array = FUNCTIONS[INVERSES[function]](values)
    return back
