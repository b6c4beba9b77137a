"""The table of chaos runs: what one run has and another has not stays in its own column."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from tests.proof.chaos.table import add_run


def _run(commit: str, broken: int, **more: Any) -> dict[str, Any]:
    promise = {"promise": "rows", "broken": broken, "of": 9, "notes": {}, "examples": []}
    return {"date": "2026-11-24", "commit": commit, "promises": [promise], "forks": []} | more


def test_a_run_is_a_column_of_the_table(tmp_path: Path) -> None:
    path = tmp_path / "chaos.csv"

    add_run(path, _run("a", 0, losses={"failover": {"happened": 2}}))
    add_run(path, _run("b", 1, erasures=5))

    with path.open(newline="") as file:
        lines = {name: values for name, *values in csv.reader(file)}
    assert lines == {
        "figure": ["2026-11-24 a", "2026-11-24 b"],
        "date": ["2026-11-24", "2026-11-24"],
        "commit": ["a", "b"],
        "promise: rows": ["0 of 9", "1 of 9"],
        "losses, failover, happened": ["2", ""],
        "erasures": ["", "5"],
    }
