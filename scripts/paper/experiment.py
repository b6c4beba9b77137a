"""The skeleton of every experiment: cells of trials, and the records that their samples come to.

Each table is an `Experiment`; `paper.command` lists them. The same cell and the same seed give the
same records (times apart), whatever ran before. Trials are kept one by one: an interrupted cell
goes on after its last whole trial.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from harness.results import Unfinished, where
from paper.data import Array
from paper.records import Record, quartiles

PRINTS_AS_ZERO = 0.005
EXACT_TOLERANCE = 1e-8

Progress: TypeAlias = Callable[[float], None]
"""Called with the share of the cell that is done, 0 to 1, as often as it likes."""


class Method(StrEnum):
    """What makes an answer, as records name it; Table 2 has names of its own."""

    INFLUENCE = "influence"
    PRU_PUBLISHED = "pru as published"
    PRU_PRINTED = "pru, T_ij as printed"
    PRU = "pru"
    NEWTON = "newton"
    EXACT = "exact from dual rows"
    POLISHED = "exact, polished"
    FULL_MODEL = "full model"
    RETRAINING = "retraining"


class Metric(StrEnum):
    """What is measured, as records name it, where several experiments measure it."""

    FIT = "FIT"
    L2 = "L2"
    ERROR = "relative error to retraining"
    LARGEST_ERROR = "largest relative error to retraining"
    BASELINE_WEIGHT = "baseline weight"
    BASELINE_DISTANCE = "baseline distance"


class Check(NamedTuple):
    """Whether something holds, and the sentence that says what; a time is no failure by itself."""

    passed: bool
    sentence: str
    of_times: bool = False


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
        Where `run_trials` keeps the trials of a cell that is under way; set by the run, which
        removes the file once the cell's records are written.
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
        For ``--only``, the `table` of its records, and its section in page.md and tables.md.
    cells
        The cells at full size, or at small sizes when called with quick=True.
    run_cell
        Runs one cell: (cell, seed, progress) -> records.
    tables
        What the section's placeholders stand for, from whatever records exist (never none).
    checks
        What the run prints and the page lists; of times, at full size only.
    draw
        Writes figures ``paper-*.png`` into a directory; None if there are none.
    absent
        What the page says in place of the section when there is neither a cell nor a record.
    """

    name: str
    cells: Callable[[bool], Sequence[Cell]]
    run_cell: Callable[[Cell, int, Progress], list[Record]]
    tables: Callable[[Sequence[Record]], Mapping[str, object]]
    checks: Callable[[Sequence[Record]], list[Check]]
    draw: Callable[[Sequence[Record], Path], None] | None = None
    absent: str = ""


class Sample(NamedTuple):
    """One figure of one trial; ``p`` and ``outlier`` are None where the experiment has none."""

    k: int
    p: float | None
    outlier: float | None
    method: str
    metric: str
    value: float


Setting: TypeAlias = tuple[int, float | None, float | None, str, str]
"""The fields of a sample before its value."""

Printed: TypeAlias = Mapping[Setting, Mapping[str, Any]]
"""What the paper prints: a record's `paper`, and its `paper_spread` where there are quartiles."""


def generator(seed: int, *names: str | int) -> np.random.Generator:
    """Return the random generator of a named part of a run (a trial, a data set)."""
    key = "/".join(str(name) for name in names)
    return np.random.default_rng([seed, zlib.crc32(key.encode())])


def run_trials(
    cell: Cell, seed: int, count: int, trial: Callable[[int], list[Sample]], progress: Progress
) -> list[list[Sample]]:
    """Return the samples of each trial; trials that the cell's file holds are not run again."""
    plan = json.dumps({"key": cell.key, "plan": dict(cell.plan), "seed": seed})
    kept = Unfinished(cell.partial, plan) if cell.partial else None
    trials = []
    for number in range(count):
        progress(number / count)
        done = kept.get(str(number)) if kept else None
        samples = [Sample(**one) for one in done] if done else trial(number)
        if kept and not done:
            kept.add(str(number), [sample._asdict() for sample in samples])
        trials.append(samples)
    progress(1.0)
    return trials


def gathered(trials: Iterable[Iterable[Sample]]) -> dict[Setting, list[float]]:
    """Return the values of each setting, method and metric over all trials."""
    values: dict[Setting, list[float]] = {}
    for samples in trials:
        for sample in samples:
            values.setdefault(sample[:5], []).append(sample.value)
    return values


def summarise(
    trials: Iterable[Iterable[Sample]],
    common: Mapping[str, Any],
    printed: Printed,
    medians: Iterable[str] = (),
    largest: Iterable[str] = (),
) -> list[Record]:
    """Return a record for each setting, method and metric: the mean, or median, or largest.

    Parameters
    ----------
    common
        Table, d, n and ridge.
    medians, largest
        Metrics that are shown as median, or as largest value, in place of the mean.
    """
    take: dict[str, Callable[[Sequence[float]], Any]] = dict.fromkeys(medians, np.median)
    take |= dict.fromkeys(largest, np.max)
    made = []
    for setting, values in gathered(trials).items():
        k, p, outlier, method, metric = setting
        made.append(
            Record(
                **common,
                k=k,
                p=p,
                outlier=outlier,
                method=method,
                metric=metric,
                value=float(take.get(metric, np.mean)(values)),
                spread=quartiles(values),
                samples=len(values),
                **printed.get(setting, {}),
            )
        )
    return made


def largest_under(
    limit: float, values: Iterable[float], sentence: str, largest: str = "largest"
) -> Check:
    """Check that all values are under the limit (which fails where there is none)."""
    worst = max(values, default=float("nan"))
    return Check(worst < limit, f"{sentence} ({largest} {worst:.1e})")


def exact_within(records: Sequence[Record], sentence: str = "") -> Check:
    """Check the relative error of ours to retraining, over all records."""
    errors = [
        r.value for r in where(records, method=Method.EXACT) if r.metric.endswith(Metric.ERROR)
    ]
    said = f"ours within {EXACT_TOLERANCE:.0e} of retraining{sentence.format(len(errors))}"
    return largest_under(EXACT_TOLERANCE, errors, said)


def l2_ratio(theta: Array, full: Array, retrained: Array) -> float:
    """Return |theta - theta_LKO| / |theta_full - theta_LKO|: 0 is perfect, 1 is no update."""
    return float(np.linalg.norm(theta - retrained) / np.linalg.norm(full - retrained))


def feature_injection(theta: Array, full: Array) -> float:
    """Return the feature injection test (FIT): injected (last) weight after / before; 0 is perfect.

    The paper prints it without a sign; here the sign is kept: below 0 the weight was overshot.
    """
    return float(theta[-1] / full[-1])


def relative_error(theta: Array, retrained: Array) -> float:
    """Return |theta - theta_LKO| / |theta_LKO|."""
    return float(np.linalg.norm(theta - retrained) / np.linalg.norm(retrained))
