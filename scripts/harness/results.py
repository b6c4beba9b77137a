"""Results files: JSON that a person can look through, and what an interrupted run goes on from."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

ROOT = Path(__file__).resolve().parents[2]

_MANY = 3
_WIDTH = 1000

R = TypeVar("R")


def where(records: Iterable[R], **wanted: Any) -> list[R]:
    """Return the records, mappings or objects, that have all of these."""
    return [
        record
        for record in records
        if all(_field(record, name) == value for name, value in wanted.items())
    ]


def _field(record: object, name: str) -> Any:
    return record.get(name) if isinstance(record, Mapping) else getattr(record, name)


def rounded(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record with four significant digits: the rest is noise."""
    return {
        name: float(f"{value:.4g}") if isinstance(value, float) else value
        for name, value in record.items()
    }


def relative(path: Path) -> str:
    """Return a path as a page names it: from the checkout's root, or outside it the name."""
    full = path.resolve()
    return full.relative_to(ROOT).as_posix() if full.is_relative_to(ROOT) else full.name


def write(path: Path, text: str) -> None:
    """Write a file: a new one beside it, then renamed over it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".tmp")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)


def as_json(document: Mapping[str, Any]) -> str:
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


class Unfinished:
    """Finished units of a run that is not finished, one JSON line each.

    Units of another plan or seed are not taken up: ``plan`` is part of each line.
    """

    def __init__(self, path: Path, plan: str) -> None:
        self.path = path
        self.plan = plan
        self._done = dict(self._read())

    def _read(self) -> Iterator[tuple[str, list[dict[str, Any]]]]:
        if not self.path.exists():
            return
        for line in self.path.read_text(encoding="utf-8").splitlines():
            try:
                unit = json.loads(line)
            except ValueError:  # the run was killed while it wrote
                continue
            if unit["plan"] == self.plan:
                yield unit["name"], unit["records"]

    def get(self, name: str) -> list[dict[str, Any]] | None:
        """Return the records of a finished unit, or None."""
        return self._done.get(name)

    def add(self, name: str, records: list[dict[str, Any]]) -> None:
        """Keep a finished unit."""
        unit = {"plan": self.plan, "name": name, "records": records}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write("\n" + _line(unit))  # first: the last line may have been cut short

    def finish(self) -> None:
        """Forget all: the run is complete."""
        self.path.unlink(missing_ok=True)
