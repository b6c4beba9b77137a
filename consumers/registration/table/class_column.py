"""The target column of a logistic model: 0 and 1, or classes by name or number."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow.compute as pc

from lethe.consumers.registration.table.file import TableFile
from lethe.consumers.registration.table.values import (
    is_number,
    is_text,
    names_in,
    not_a_number,
    numbers,
    numeric_type,
)
from lethe.engine.errors import InvalidData
from lethe.engine.fit.classes import MAX_CLASSES, UnknownLabel, encoded, encoded_as
from lethe.engine.fit.objective import Array


def class_column(
    file: TableFile, name: str, known: tuple[str, ...] | None = None
) -> tuple[tuple[str, ...], Array]:
    """Return the names of the classes and the targets, as `engine.fit.classes.encoded` does.

    ``known``: the names of a model's classes, of which these must be; empty for 0 and 1.

    Raises
    ------
    InvalidData
        A value is missing, is neither a whole number nor text, or the column has both; or it is
        none of the known classes.
    """
    labels = _numbers_of(file, name) if _holds_numbers(file, name) else _names_of(file, name)
    try:
        return encoded(labels) if known is None else (known, encoded_as(labels, known))
    except UnknownLabel as error:
        place = file.place(error.row)
        raise InvalidData(f"{file.path}, {place}, column {name!r}: {error.what}") from None
    except InvalidData as error:
        raise InvalidData(f"{file.path}, column {name!r}: {error}") from None


def class_names(blocks: Iterable[TableFile], name: str) -> tuple[str, ...]:
    """Return the names of the classes of a table that is read in blocks; empty for 0 and 1.

    Raises
    ------
    InvalidData
        As `class_column` without known classes.
    """
    found: dict[bool, set[float | str]] = {True: set(), False: set()}
    for file in blocks:
        numeric = _holds_numbers(file, name)
        found[numeric].update(_numbers_of(file, name) if numeric else _names_of(file, name))
        if found[True] and found[False]:
            raise InvalidData(
                f"{file.path}, {file.place(0)}, column {name!r}: some lines hold text, others "
                "numbers; correct them, or make all classes text"
            )
        labels = sorted(found[numeric])
        if len(labels) > MAX_CLASSES:
            break
    try:
        return encoded(labels)[0]
    except InvalidData as error:
        raise InvalidData(f"{file.path}, column {name!r}: {error}") from None


def _holds_numbers(file: TableFile, name: str) -> bool:
    column = file.table.column(name)
    if not is_text(file, name):
        return numeric_type(column.type)
    good = is_number(column)
    if not good.any() or good.all():
        return bool(good.all())
    row = int(np.flatnonzero(~good)[0])
    if not pc.utf8_trim_whitespace(column)[row].as_py():
        raise not_a_number(file, name, row)
    raise InvalidData(
        f"{file.path}, {file.place(row)}, column {name!r}: holds text, other lines hold numbers; "
        "correct the line, or make all classes text"
    )


def _numbers_of(file: TableFile, name: str) -> Array:
    y = numbers(file, name)
    fractional = y != np.floor(y)
    if fractional.any():
        row = int(np.flatnonzero(fractional)[0])
        raise InvalidData(
            f"{file.path}, {file.place(row)}, column {name!r}: the target of a logistic model "
            f"must be 0 or 1, or classes (whole numbers or text), not {y[row]:g}; is it a "
            "regression target?"
        )
    return y


def _names_of(file: TableFile, name: str) -> list[str]:
    names: list[str] = []
    for row, value in enumerate(names_in(file, name, "classes")):
        if value is None:
            raise not_a_number(file, name, row)
        names.append(value.strip())
    return names
