"""Records: what one figure of a table comes to, and the file that a run resumes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from harness.results import as_json, where, write
from lethe.engine.errors import InvalidData

FORMAT = 1


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


class Document(BaseModel):
    """results/paper.json."""

    model_config = ConfigDict(extra="forbid")

    format: int = FORMAT
    quick: bool
    machines: dict[str, dict[str, str]] = {}
    cells: dict[str, CellRun] = {}
    records: list[Record] = []


class Results:
    """The records of a run, in a file that is replaced as a whole after each cell."""

    def __init__(self, path: Path, document: Document) -> None:
        self.path = path
        self.document = document

    @classmethod
    def open(cls, path: Path, *, quick: bool) -> Self:
        """Read the file, or begin an empty one.

        A file of another format, or of the other size of run, is not resumed: InvalidData.
        """
        if not path.exists():
            return cls(path, Document(quick=quick))
        try:
            document = Document.model_validate_json(path.read_text(encoding="utf-8"))
        except ValidationError as error:
            raise InvalidData(f"{path.name} is not a results file: {error}") from error
        if document.format != FORMAT or document.quick != quick:
            raise InvalidData(f"{path.name} holds another kind of run; name another file")
        return cls(path, document)

    def has(self, key: str, plan: Mapping[str, Any], seed: int | None = None) -> bool:
        """Say whether the cell is present, made by the same plan and seed (None: any seed)."""
        run = self.document.cells.get(key)
        return run is not None and run.plan == dict(plan) and seed in (None, run.seed)

    def put(
        self, key: str, run: CellRun, records: Sequence[Record], machine: Mapping[str, str]
    ) -> None:
        """Replace the cell's records and write the file.

        A table's machine is that of its first cell; a cell that was run elsewhere has its own.
        """
        self._replace(key, run, [record.model_copy(update={"cell": key}) for record in records])
        if self.document.machines.setdefault(run.table, dict(machine)) != dict(machine):
            self.document.machines[key] = dict(machine)
        self._write()

    def merge(self, other: Results) -> None:
        """Take over the cells of another run, in place of those of the same key; write the file."""
        for key, run in other.document.cells.items():
            self._replace(key, run, where(other.document.records, cell=key))
        self.document.machines |= other.document.machines
        self._write()

    def _replace(self, key: str, run: CellRun, records: Sequence[Record]) -> None:
        self._drop(key)
        self.document.cells[key] = run
        self.document.records += records

    def _drop(self, key: str) -> None:
        self.document.cells.pop(key, None)
        self.document.machines.pop(key, None)
        self.document.records = [r for r in self.document.records if r.cell != key]

    def _write(self) -> None:
        write(self.path, as_json(self.document.model_dump(mode="json")))

    def drop_table(self, table: str) -> None:
        """Forget all cells of a table."""
        for key in [key for key, run in self.document.cells.items() if run.table == table]:
            self._drop(key)
        self.document.machines.pop(table, None)

    def of(self, table: str) -> list[Record]:
        """Return the records of a table."""
        return where(self.document.records, table=table)
