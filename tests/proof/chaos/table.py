"""results/chaos.csv: a line for each figure, a column for each run."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any


def add_run(path: Path, found: Mapping[str, Any]) -> None:
    """Add the figures of a run (`tests.proof.chaos.report.figures`) as a column of the table."""
    lines: dict[str, list[str]] = {}
    if path.exists():
        with path.open(encoding="utf-8", newline="") as file:
            lines = {name: values for name, *values in csv.reader(file)}
    before = len(lines["figure"]) if lines else 0
    title = f"{found['date']} {found['commit']}"
    run = {"figure": title} | {name: str(value) for name, value in _flat(found) if value != []}
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        for name in lines | run:
            table.writerow([name, *lines.get(name, [""] * before), run.get(name, "")])


def _flat(found: Any, name: str = "") -> Iterator[tuple[str, object]]:
    """Yield name and value of all figures; of a promise, how often it was broken of how often."""
    if isinstance(found, Mapping):
        for key, value in found.items():
            yield from _flat(value, f"{name}, {key}" if name else str(key))
    elif name == "promises":
        for promise in found:
            said = f"promise: {promise['promise']}"
            yield said, f"{promise['broken']} of {promise['of']}"
            yield from _flat(promise["notes"], said)
            yield f"{said}, examples", promise["examples"]
    else:
        yield name, found
