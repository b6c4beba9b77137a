"""What an experiment is: cells to run, a function that runs one, and how its part is shown.

A module of an experiment ends in ``EXPERIMENT = Experiment(...)``; ``scripts/paper.py`` lists
them in one tuple. `run_cell` is a plain function of the cell and the seed: the same two give the
same records (times apart), whatever ran before.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from reproduction.records import Record

Progress: TypeAlias = Callable[[float], None]
"""Called by `run_cell` with the share of the cell that is done, 0 to 1, as often as it likes."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One unit of work that a resumed run does or skips as a whole; aim at under 10 minutes.

    Attributes
    ----------
    key
        Unique in the whole run, for example ``table3 p=0.25``.
    plan
        Everything but the seed that the records follow from; JSON values. A changed plan is run
        again.
    cost
        Estimated seconds on one core; only proportions matter to the progress bar.
    partial
        Where `reproduction.trials` keeps the trials of a cell that is under way; set by the run,
        which removes the file once the cell's records are written.
    """

    key: str
    plan: Mapping[str, Any]
    cost: float
    partial: Path | None = None


@dataclass(frozen=True, slots=True)
class Experiment:
    """One table (or figure) of the paper.

    Attributes
    ----------
    name
        For ``--only``, and the `table` of its records.
    title
        Heading of its section in docs/paper.md.
    cells
        The cells at full size, or at small sizes when called with quick=True.
    run_cell
        Runs one cell: (cell, seed, progress) -> records.
    render
        Markdown of the section, without the heading, from whatever records exist (never none).
    checks
        Lines that the run prints and the page lists: (passed, sentence) from the records.
    timing_checks
        The same for times: printed at full size only, and without `--strict` no failure.
    draw
        Writes figures ``paper-*.png`` and ``.svg`` into a directory; None if there are none.
    absent
        What the page says in place of the section when there is neither a cell nor a record.
    timed
        Its records are times: they say something only on a quiet machine.
    """

    name: str
    title: str
    cells: Callable[[bool], Sequence[Cell]]
    run_cell: Callable[[Cell, int, Progress], list[Record]]
    render: Callable[[Sequence[Record]], str]
    checks: Callable[[Sequence[Record]], list[tuple[bool, str]]] = lambda _records: []
    timing_checks: Callable[[Sequence[Record]], list[tuple[bool, str]]] = lambda _records: []
    draw: Callable[[Sequence[Record], Path], None] | None = None
    timed: bool = False
    absent: str = ""


def generator(seed: int, *names: str | int) -> np.random.Generator:
    """Return the random generator of a named part of a run (a trial, a data set)."""
    key = "/".join(str(name) for name in names)
    return np.random.default_rng([seed, zlib.crc32(key.encode())])
