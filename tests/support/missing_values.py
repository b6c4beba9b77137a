"""Columns of pandas with missing values: whatever stands for these, whatever the column's type."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import numpy as np
import pyarrow as pa

pd: Any = import_module("pandas")  # has no types

Form = Callable[[Sequence[Any]], Any]
"""A column of pandas from values of which some are None."""


def frame_of(column: Any) -> Any:
    """Return a data frame with this column, ``c``."""
    return pd.DataFrame({"c": column})


def typed(dtype: Any) -> Form:
    return lambda values: pd.Series(list(values), dtype=dtype)


def objects(*missing: Any) -> Form:
    """Return a column of objects, in which these take turns to stand for what is missing."""

    def column(values: Sequence[Any]) -> Any:
        stand_in = [missing[i % len(missing)] for i in range(len(values))]
        listed = [m if v is None else v for v, m in zip(values, stand_in, strict=True)]
        return pd.Series(listed, dtype=object)

    return column


def categorical(form: Form) -> Form:
    return lambda values: form(values).astype("category")


def arrow(kind: Any) -> Any:
    return pd.ArrowDtype(kind)


OBJECTS: dict[str, Form] = {
    "None": objects(None),
    "NaN": objects(np.nan),
    "NA": objects(pd.NA),
    "each": objects(None, np.nan, pd.NA),
}
TEXT: dict[str, Form] = {
    **OBJECTS,
    "str": typed("str"),
    "string": typed("string"),
    "string[pyarrow]": typed("string[pyarrow]"),
    "category": categorical(typed("str")),
    "category of string": categorical(typed("string")),
    "Arrow": typed(arrow(pa.string())),
    "Arrow, large": typed(arrow(pa.large_string())),
}
WHOLE: dict[str, Form] = {
    **OBJECTS,
    "float": typed(float),
    "Int64": typed("Int64"),
    "Float64": typed("Float64"),
    "category": categorical(typed("Int64")),
    "category of float": categorical(typed(float)),
    "Arrow": typed(arrow(pa.int64())),
}
TRUTH: dict[str, Form] = {
    **OBJECTS,
    "boolean": typed("boolean"),
    "category": categorical(typed("boolean")),
    "Arrow": typed(arrow(pa.bool_())),
}
DAYS: dict[str, Form] = {
    **OBJECTS,
    "NaT": objects(pd.NaT),
    "datetime64": lambda values: pd.to_datetime(pd.Series(list(values))),
    "text": lambda values: typed("str")([None if v is None else v.isoformat() for v in values]),
    "Arrow": typed(arrow(pa.date32())),
    "Arrow, moments": typed(arrow(pa.timestamp("us", "UTC"))),
}

KINDS: dict[str, tuple[dict[str, Form], tuple[Any, Any], Any]] = {
    "text": (TEXT, ("b", "a"), "z"),
    "whole numbers": (WHOLE, (2, 1), 9),
    "true and false": (TRUTH, (True, False), 2),
}
"""By kind of category: how a column holds it, two categories, and one that is sorted last."""


def is_refused_by_scikit_learn(column: Any) -> bool:
    """Return whether a column holds pandas' NA and is not of a type of numbers, or true and false.

    scikit-learn makes NaN of NA in those types only; its own encoders refuse all others.
    """
    seen = np.asarray(column)
    untyped = column.dtype == object or any(isinstance(value, str) for value in seen)
    return untyped and any(value is pd.NA for value in seen)
