"""Trials of a cell, kept one by one: an interrupted cell goes on after its last whole trial."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np

from reproduction.experiment import Cell, Progress
from reproduction.records import Record, quartiles


class Sample(NamedTuple):
    """One figure of one trial; ``p`` and ``outlier`` are None where the experiment has none."""

    k: int
    p: float | None
    outlier: float | None
    method: str
    metric: str
    value: float


Trial: TypeAlias = Callable[[int], list[Sample]]


def run_trials(
    cell: Cell, seed: int, count: int, trial: Trial, progress: Progress
) -> list[list[Sample]]:
    """Return the samples of each trial; trials that the cell's file holds are not run again."""
    done = _read(cell, seed)[:count]
    for number in range(len(done), count):
        progress(number / count)
        samples = trial(number)
        if cell.partial is not None:
            _append(cell.partial, cell, seed, samples)
        done.append(samples)
    progress(1.0)
    return done


def _head(cell: Cell, seed: int) -> str:
    return json.dumps({"key": cell.key, "plan": dict(cell.plan), "seed": seed})


def _read(cell: Cell, seed: int) -> list[list[Sample]]:
    """Return the trials in the file; none if it is of another plan or seed."""
    if cell.partial is None or not cell.partial.exists():
        return []
    head, *lines = cell.partial.read_text(encoding="utf-8").split("\n")
    if head != _head(cell, seed):
        cell.partial.unlink()
        return []
    # What follows the last line end was cut short by the interruption.
    whole = lines[:-1]
    cell.partial.write_text("".join(line + "\n" for line in (head, *whole)), encoding="utf-8")
    return [[Sample(*sample) for sample in json.loads(line)] for line in whole]


def _append(file: Path, cell: Cell, seed: int, samples: Sequence[Sample]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    head = "" if file.exists() else _head(cell, seed) + "\n"
    with file.open("a", encoding="utf-8") as out:
        out.write(head + json.dumps(samples) + "\n")


def summarise(
    trials: Sequence[Sequence[Sample]],
    common: Record,
    paper: Mapping[tuple[int, float | None, float | None, str, str], float],
    medians: Sequence[str] = (),
    largest: Sequence[str] = (),
) -> list[Record]:
    """Return a record for each setting, method and metric: the mean, or median, or largest.

    Parameters
    ----------
    common
        Table, d, n and ridge.
    paper
        What the paper prints, by setting, method and metric.
    medians, largest
        Metrics that are shown as median, or as largest value, in place of the mean.
    """
    gathered: dict[tuple[int, float | None, float | None, str, str], list[float]] = {}
    for samples in trials:
        for sample in samples:
            gathered.setdefault(sample[:5], []).append(sample.value)
    made = []
    for where, values in gathered.items():
        k, p, outlier, method, metric = where
        take = np.max if metric in largest else np.median if metric in medians else np.mean
        made.append(
            common.model_copy(
                update={
                    "k": k,
                    "p": p,
                    "outlier": outlier,
                    "method": method,
                    "metric": metric,
                    "value": float(take(values)),
                    "spread": quartiles(values),
                    "paper": paper.get(where),
                    "samples": len(values),
                }
            )
        )
    return made
