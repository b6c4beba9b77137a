"""Results as JSON that a person can look through: what there are many of stands one a line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

_MANY = 3
_WIDTH = 1000


def one_a_line(document: Mapping[str, Any]) -> str:
    """Return a document as JSON, each element of its long parts on a line of its own."""
    members = [f" {json.dumps(name)}: {_member(value)}" for name, value in document.items()]
    return "{\n" + ",\n".join(members) + "\n}\n"


def _member(value: Any) -> str:
    if isinstance(value, list) and len(value) >= _MANY and isinstance(value[0], list | dict):
        return "[\n" + ",\n".join(_lines(value)) + "\n ]"
    if isinstance(value, dict) and any(isinstance(one, list | dict) for one in value.values()):
        inner = (f"  {json.dumps(name)}: {_member(one)}" for name, one in value.items())
        return "{\n" + ",\n".join(inner) + "\n }"
    return _line(value)


def _lines(values: list[Any]) -> Iterator[str]:
    """Yield records one a line, and rows of a table as many as fit."""
    if isinstance(values[0], dict):
        yield from (f"  {_line(one)}" for one in values)
        return
    line = ""
    for text in map(_line, values):
        if line and len(line) + len(text) > _WIDTH:
            yield line
            line = ""
        line = f"{line}, {text}" if line else f"  {text}"
    yield line


def _line(value: Any) -> str:
    return json.dumps(value, allow_nan=False)
