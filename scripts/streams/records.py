"""Records of the study, and the file that an interrupted run goes on from.

A record is a flat mapping: where it was measured (part, kind, data, method, k, deleted), then
figures. Errors are relative to |retrained theta|; times are wall clock, one BLAS thread.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from one_a_line import one_a_line

Record: TypeAlias = dict[str, Any]

FORMAT = 1


class Unfinished:
    """Finished units of a run that is not finished, one JSON line each.

    Units of another plan or seed are not taken up: ``plan`` is part of each line.
    """

    def __init__(self, path: Path, plan: str) -> None:
        self.path = path
        self.plan = plan
        self._done = dict(self._read())

    def _read(self) -> Iterable[tuple[str, list[Record]]]:
        if not self.path.exists():
            return
        for line in self.path.read_text(encoding="utf-8").splitlines():
            try:
                unit = json.loads(line)
            except ValueError:  # the run was killed while it wrote
                continue
            if unit["plan"] == self.plan:
                yield unit["name"], unit["records"]

    def get(self, name: str) -> list[Record] | None:
        """Return the records of a finished unit, or None."""
        return self._done.get(name)

    def add(self, name: str, records: list[Record]) -> None:
        """Keep a finished unit."""
        unit = {"plan": self.plan, "name": name, "records": records}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(unit, allow_nan=False) + "\n")

    def finish(self) -> None:
        """Forget all: the run is complete."""
        self.path.unlink(missing_ok=True)


def written(run: Mapping[str, Any]) -> str:
    """Return the run as JSON, one record a line."""
    return one_a_line({**run, "records": [rounded(record) for record in run["records"]]})


def rounded(record: Mapping[str, Any]) -> Record:
    """Return the record with four significant digits: the rest is noise."""
    return {
        name: float(f"{value:.4g}") if isinstance(value, float) else value
        for name, value in record.items()
    }


def where(records: Iterable[Record], **wanted: Any) -> list[Record]:
    """Return the records that have all of these."""
    return [
        record
        for record in records
        if all(record.get(name) == value for name, value in wanted.items())
    ]
