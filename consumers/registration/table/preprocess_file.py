"""The file of ``--preprocess``: for each column, what is done to it. TOML.

[columns.age]
step = "numeric"

[columns.town]
step = "one-hot"
unknown = "ignore"

[columns.area]
step = "numeric"
of = "length * width"
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from lethe.consumers.service.configuration.toml_file import read_toml
from lethe.engine.errors import InvalidData
from lethe.engine.preprocess.input.by_name import checked_columns
from lethe.engine.preprocess.input.columns import (
    Column,
    Date,
    Numeric,
    OneHot,
    Ordinal,
    TargetEncode,
)
from lethe.engine.preprocess.input.expression_text import parsed

MAX_BYTES = 4 << 20
"""Largest file: 8,000 columns with the longest names that any model takes."""

_HALVES, _NUMBER, _DROP, _COUNT = (bool, str), (int, float, str), (str, list), (int, float)
_SCALED = (bool, str, list)
_OF_NUMBERS: Mapping[str, type | tuple[type, ...]] = {
    "impute": str,
    "standardise": _SCALED,
    "scaler_first": bool,
    "of": str,
}

_STEPS: Mapping[str, tuple[Callable[..., Column], Mapping[str, type | tuple[type, ...]]]] = {
    "numeric": (Numeric, _OF_NUMBERS),
    "date": (Date, _OF_NUMBERS),
    "one-hot": (
        OneHot,
        {
            "unknown": str,
            "drop": _DROP,
            "standardise": _HALVES,
            "min_frequency": _COUNT,
            "max_categories": int,
            "categories": list,
            "impute": str,
            "of": str,
        },
    ),
    "ordinal": (Ordinal, {"categories": list, "standardise": _HALVES, "unknown": int, "of": str}),
    "target-encode": (TargetEncode, {"smooth": _NUMBER, "standardise": _HALVES, "of": str}),
}
"""By step: what it makes, and its settings with their types."""

_KINDS: Mapping[type | tuple[type, ...], str] = {
    str: "text",
    bool: "true or false",
    list: "a list",
    int: "a whole number",
    _COUNT: "a number",
    _HALVES: "true, false or text",
    _SCALED: "true, false, text or a list of two numbers",
    _NUMBER: 'a number or "auto"',
    _DROP: '"first", "if_binary" or a list of one category',
}


def read_preprocess_file(path: Path) -> dict[str, Column]:
    """Return what is done to each column, in the order of the file.

    Raises
    ------
    InvalidData
        The file cannot be read, or names a step or setting that does not exist; the message says
        which and where.
    """
    document = read_toml(path, MAX_BYTES)
    strange = [name for name in document if name != "columns"]
    listed = document.get("columns")
    if strange or not isinstance(listed, dict) or not listed:
        what = f"has [{strange[0]}]" if strange else "names no column"
        raise InvalidData(f"{path}: {what}; write a table [columns.NAME] for each column")
    columns = {name: _column(f"{path}, column {name!r}", fields) for name, fields in listed.items()}
    try:
        return {str(name): column for name, column in checked_columns(columns).items()}
    except InvalidData as error:
        raise InvalidData(f"{path}, {error}") from None


def _column(where: str, fields: Any) -> Column:
    if not isinstance(fields, dict):
        raise InvalidData(f'{where}: write a table with step = "numeric", or another step')
    settings = dict(fields)
    step = settings.pop("step", None)
    if step not in _STEPS:
        near = get_close_matches(str(step), _STEPS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise InvalidData(f"{where}: step is one of {', '.join(_STEPS)}, not {step!r}{hint}")
    make, known = _STEPS[step]
    for name, value in settings.items():
        if name not in known:
            raise InvalidData(f"{where}: {step} has no setting {name!r}; it has {', '.join(known)}")
        kinds = known[name]
        if type(value) not in (kinds if isinstance(kinds, tuple) else (kinds,)):
            raise InvalidData(f"{where}: {name} is {_KINDS[kinds]}, not {value!r}")
    if settings.get("impute") == "none":
        settings["impute"] = None
    if "categories" in settings:
        settings["categories"] = tuple(_checked_categories(where, settings["categories"]))
    try:
        if "of" in settings:
            settings["of"] = parsed(settings["of"])
        return make(**settings)
    except InvalidData as error:
        raise InvalidData(f"{where}: {error}") from None


def _checked_categories(where: str, listed: list[Any]) -> list[Any]:
    if not all(isinstance(value, (str, int)) for value in listed):
        raise InvalidData(f"{where}: categories are text, whole numbers, or true and false")
    return listed


def proposal(steps: Mapping[str, str | None]) -> str:
    """Return a file to start from: ``steps`` by column; without one, a column is commented out."""
    return "\n".join(_section(name, step) for name, step in steps.items())


def _section(name: str, step: str | None) -> str:
    if step is None:
        why = "# Hardly any value repeats: does the column name rows rather than describe them?"
        return f'{why}\n# [columns.{_key(name)}]\n# step = "target-encode"\n'
    return f'[columns.{_key(name)}]\nstep = "{step}"\n'


def _key(name: str) -> str:
    """Return a name as a TOML key, in quotes unless it is bare."""
    if name and all(letter.isascii() and (letter.isalnum() or letter in "_-") for letter in name):
        return name
    escaped = "".join(_escaped(letter) for letter in name)
    return f'"{escaped}"'


def _escaped(letter: str) -> str:
    if letter in ('"', "\\"):
        return "\\" + letter
    return letter if letter.isprintable() else f"\\U{ord(letter):08x}"
