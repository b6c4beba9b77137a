"""Records: what one figure of a table comes to, and the tables that a run resumes from."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from pydantic import BaseModel, ConfigDict

from harness.results import (
    Row,
    note,
    noted,
    one_by_one,
    read_table,
    rounded,
    side_by_side,
    where,
    write_table,
)
from lethe.engine.errors import InvalidData


class Record(BaseModel):
    """One figure: one method and metric in one cell of one table.

    Attributes
    ----------
    table
        The experiment's name, for example ``table3``.
    d, n, k
        Columns, rows, and rows deleted.
    p, outlier
        Share of nonzero entries; factor that the deleted rows were multiplied by. None where the
        experiment has none.
    method, metric
        Who, and what was measured (with its unit where it has one).
    value
        The figure, as the paper takes it: mean for linear tables, median for logistic and times.
    spread
        Lower and upper quartile of the samples; None for a figure derived from others.
    paper, paper_spread
        The figure that the paper prints there, and its quartiles; None where it prints none.
    ridge
        Ridge strength.
    samples
        Trials, or timed repetitions.
    cell
        The cell of the run that made it; filled in by `Results`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    table: str
    d: int
    n: int
    k: int
    p: float | None = None
    outlier: float | None = None
    method: str
    metric: str
    value: float
    spread: tuple[float, float] | None = None
    paper: float | None = None
    paper_spread: tuple[float, float] | None = None
    ridge: float
    samples: int
    cell: str = ""


def quartiles(samples: Sequence[float]) -> tuple[float, float]:
    """Return the lower and upper quartile."""
    low, high = np.percentile(np.asarray(samples, dtype=np.float64), [25, 75])
    return float(low), float(high)


class CellRun(BaseModel):
    """How a cell was run: what must be equal for its records to count as present."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    table: str
    plan: dict[str, Any]
    seed: int
    seconds: float


_DIGITS = 12
_SETTING = ("cell", "d", "n", "k", "p", "outlier", "ridge", "method", "samples")
"""What one row has in common; its other columns are the metrics."""


def as_rows(records: Iterable[Record]) -> list[Row]:
    """Return a row for each method in each setting."""
    rows = []
    for record in records:
        low, high = record.spread or (None, None)
        paper_low, paper_high = record.paper_spread or (None, None)
        figures = {"value": record.value, "low": low, "high": high, "paper": record.paper}
        figures |= {"paper low": paper_low, "paper high": paper_high}
        row = {name: getattr(record, name) for name in (*_SETTING, "metric")}
        present = {name: figure for name, figure in figures.items() if figure is not None}
        rows.append(row | rounded(present, _DIGITS))
    return side_by_side(rows, _SETTING, "metric")


def of_rows(table: str, rows: Iterable[Row]) -> list[Record]:
    """Return the records that became these rows."""
    records = []
    for row in one_by_one(rows, _SETTING, "metric"):
        for name, ends in (
            ("spread", ("low", "high")),
            ("paper_spread", ("paper low", "paper high")),
        ):
            found = [row.pop(end, None) for end in ends]
            row[name] = None if None in found else tuple(found)
        records.append(Record(table=table, **row))
    return records


class Results:
    """The records of a run, in a directory whose tables are replaced after each cell."""

    def __init__(self, directory: Path, *, quick: bool) -> None:
        self.directory = directory
        self.quick = quick
        self.cells: dict[str, CellRun] = {}
        self.records: list[Record] = []

    @classmethod
    def open(cls, directory: Path, *, quick: bool) -> Self:
        """Read the tables, or begin an empty run.

        A run of the other size is not resumed: InvalidData.
        """
        results = cls(directory, quick=quick)
        for key, facts in noted(directory).items():
            if (facts["sizes"] == "quick") != quick:
                raise InvalidData(f"{directory.name} holds another kind of run; name another one")
            plan = json.loads(facts["plan"])
            seconds = float(facts["seconds"])
            results.cells[key] = CellRun(
                table=facts["table"], plan=plan, seed=int(facts["seed"]), seconds=seconds
            )
        for table in dict.fromkeys(run.table for run in results.cells.values()):
            results.records += of_rows(table, read_table(directory / f"{table}.csv"))
        return results

    def has(self, key: str, plan: Mapping[str, Any], seed: int | None = None) -> bool:
        """Say whether the cell is present, made by the same plan and seed (None: any seed)."""
        run = self.cells.get(key)
        return run is not None and run.plan == dict(plan) and seed in (None, run.seed)

    def put(
        self, key: str, run: CellRun, records: Sequence[Record], machine: Mapping[str, str]
    ) -> None:
        """Replace the cell's records, and write its table and its line of machine.csv."""
        made = [record.model_copy(update={"cell": key}) for record in records]
        self.cells[key] = run
        self.records = [record for record in self.records if record.cell != key]
        self.records += of_rows(run.table, as_rows(made))
        write_table(self.directory / f"{run.table}.csv", as_rows(self.of(run.table)))
        facts = {
            "table": run.table,
            "sizes": "quick" if self.quick else "full",
            "plan": json.dumps(run.plan),
            "seed": str(run.seed),
            "seconds": f"{run.seconds:.6g}",
        }
        note(self.directory, [key], {**machine, **facts})

    def of(self, table: str) -> list[Record]:
        """Return the records of a table."""
        return where(self.records, table=table)
