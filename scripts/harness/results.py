"""Results: small CSV files, one table a file and one measurement a row; and interrupted runs."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "results"

Row: TypeAlias = dict[str, Any]
"""A measurement: text, numbers, truth values, or None."""

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


def rounded(record: Mapping[str, Any], digits: int = 4) -> Row:
    """Return the record with so many significant digits: the rest is noise."""
    return {
        name: float(f"{value:.{digits}g}") if isinstance(value, float) else value
        for name, value in record.items()
    }


def write(path: Path, text: str) -> None:
    """Write a file: a new one beside it, then renamed over it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".tmp")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)


def write_table(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write a table: a column for each name that a row has, in the order in which they appear.

    None and what a row has not are the same: an empty cell.
    """
    text = io.StringIO()
    names = list(dict.fromkeys(name for row in rows for name in row))
    table = csv.DictWriter(text, names, lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    write(path, text.getvalue())


def read_table(path: Path) -> list[Row]:
    """Return the rows of a table; an empty cell is None."""
    return [{name: _value(text) for name, text in row.items()} for row in read_texts(path)]


def read_texts(path: Path) -> list[dict[str, str]]:
    """Return the rows of a table as they are written; none if there is no such file."""
    if not path.exists():
        return []
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


def side_by_side(rows: Iterable[Row], by: Sequence[str], over: str) -> list[Row]:
    """Return one row for all that have the same ``by``, with a column for each figure of each."""
    made: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        case = {name: row[name] for name in by}
        made.setdefault(tuple(case.values()), case).update(
            {f"{row[over]}: {name}": row[name] for name in row if name not in (*by, over)}
        )
    return list(made.values())


def one_by_one(rows: Iterable[Row], by: Sequence[str], over: str) -> Iterator[Row]:
    """Yield the rows that became these `side_by_side`, without what they had not."""
    for row in rows:
        found: dict[str, Row] = {}
        for column, value in row.items():
            if column not in by and value is not None:
                which, _, name = column.rpartition(": ")
                case = {one: row[one] for one in by} | {over: which}
                found.setdefault(which, case)[name] = value
        yield from found.values()


def _value(text: str) -> Any:
    if text in _WORDS:
        return _WORDS[text]
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text


_WORDS = {"": None, "True": True, "False": False}


def note(directory: Path, parts: Iterable[str], facts: Mapping[str, str]) -> None:
    """Write into ``machine.csv`` what these parts of a study were measured with."""
    path, parts = directory / "machine.csv", list(parts)
    kept = [row for row in read_texts(path) if row["part"] not in parts]
    write_table(path, [*kept, *({"part": part, **facts} for part in parts)])


def noted(directory: Path) -> dict[str, dict[str, str]]:
    """Return what each part was measured with."""
    rows = read_texts(directory / "machine.csv")
    return {row.pop("part"): {name: text for name, text in row.items() if text} for row in rows}


class Unfinished:
    """Finished units of a run that is not finished, one JSON line each.

    Units of another plan or seed are not taken up: ``plan`` is part of each line.
    """

    def __init__(self, path: Path, plan: str) -> None:
        self.path = path
        self.plan = plan
        self._done = dict(self._read())

    def _read(self) -> Iterator[tuple[str, list[Row]]]:
        if not self.path.exists():
            return
        for line in self.path.read_text(encoding="utf-8").splitlines():
            try:
                unit = json.loads(line)
            except ValueError:  # the run was killed while it wrote
                continue
            if unit["plan"] == self.plan:
                yield unit["name"], unit["records"]

    def get(self, name: str) -> list[Row] | None:
        """Return the records of a finished unit, or None."""
        return self._done.get(name)

    def add(self, name: str, records: list[Row]) -> None:
        """Keep a finished unit."""
        unit = {"plan": self.plan, "name": name, "records": records}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write("\n" + json.dumps(unit))  # first: the last line may have been cut short

    def finish(self) -> None:
        """Forget all: the run is complete."""
        self.path.unlink(missing_ok=True)
