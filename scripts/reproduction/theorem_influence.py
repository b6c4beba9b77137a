"""Theorem 5: the influence method makes no update as the outlier grows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from reproduction.data import ROWS_PER_COLUMN, linear_targets
from reproduction.experiment import Cell, Experiment, Progress, generator
from reproduction.figures import figure, save
from reproduction.linear import (
    EXACT,
    INFLUENCE,
    PRU,
    RELATIVE_ERROR,
    answers,
    blank,
    trial_rows,
)
from reproduction.metrics import relative_error
from reproduction.records import Record
from reproduction.retraining import LINEAR_RIDGE, retrain
from reproduction.tables import distinct, find, markdown, scientific
from reproduction.trials import Sample, run_trials, summarise

TABLE = "theorem"
STEP = "step / exact step"
THEORY = "theory, 1 / (1 + c factor^2)"
_TOLERANCE = 1e-8
_RATE_TOLERANCE = 1e-3


def cells(quick: bool) -> list[Cell]:
    """Return one cell."""
    factors = [1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0]
    plan = {"d": 100, "factors": factors, "trials": 3} if quick else None
    plan = plan or {"d": 1500, "factors": factors, "trials": 10}
    return [Cell(f"{TABLE} k=1", plan, 0.3 if quick else 80.0)]


def run_cell(cell: Cell, seed: int, progress: Progress) -> list[Record]:
    """Delete one row times a growing factor."""
    plan = cell.plan
    trials = run_trials(
        cell, seed, plan["trials"], lambda trial: _trial(plan, seed, trial), progress
    )
    common = blank(TABLE, ROWS_PER_COLUMN * plan["d"], plan["d"])
    return summarise(trials, common, {}, medians=(STEP,), largest=(RELATIVE_ERROR,))


def _trial(plan: Mapping[str, Any], seed: int, trial: int) -> list[Sample]:
    d = plan["d"]
    X = trial_rows(seed, ROWS_PER_COLUMN * d, d, trial)
    y = linear_targets(generator(seed, TABLE, "targets", d, trial), X)
    x, target = X[0].copy(), float(y[0])
    rest = X[1:].T @ X[1:]
    live = retrain(X[1:], y[1:], LINEAR_RIDGE, rest)
    c = float(x @ live.solve(x))
    made: list[Sample] = []
    for factor in plan["factors"]:
        X[0], y[0] = x * factor, target * factor
        full = retrain(X, y, LINEAR_RIDGE, rest + np.outer(X[0], X[0]))
        exact = float(np.linalg.norm(live.theta - full.theta))
        given = answers(X, y, 1, full, live)
        for method in (INFLUENCE, PRU, EXACT):
            step = float(np.linalg.norm(given[method] - full.theta))
            error = relative_error(given[method], live.theta)
            made.append(Sample(1, None, factor, method, STEP, step / exact))
            made.append(Sample(1, None, factor, method, RELATIVE_ERROR, error))
        made.append(Sample(1, None, factor, THEORY, STEP, 1 / (1 + c * factor**2)))
    return made


def render(records: Sequence[Record]) -> str:
    """Return the measured steps beside the theory's."""
    lines = []
    for factor in distinct(records, "outlier"):
        found = [
            find(records, outlier=factor, method=method, metric=STEP)
            for method in (INFLUENCE, THEORY, PRU, EXACT)
        ]
        shown = [scientific(None if r is None else r.value) for r in found[:2]]
        rest = ["-" if r is None else f"{r.value:.6f}" for r in found[2:]]
        lines.append([f"{factor:g}", *shown, *rest])
    header = ["factor", "influence", "theory", "PRU", "ours"]
    return "\n".join(
        [
            _TEXT.format(samples=max(record.samples for record in records)),
            markdown(header, lines),
            "![Length of each method's step as the outlier grows](images/paper-theorem.png)\n",
        ]
    )


def checks(records: Sequence[Record]) -> list[tuple[bool, str]]:
    """Check the rate of the theorem and that ours does not care."""
    worst = 0.0
    for factor in distinct(records, "outlier"):
        measured = find(records, outlier=factor, method=INFLUENCE, metric=STEP)
        theory = find(records, outlier=factor, method=THEORY, metric=STEP)
        if measured is not None and theory is not None:
            worst = max(worst, abs(measured.value / theory.value - 1))
    far = max(r.value for r in records if r.method == EXACT and r.metric == RELATIVE_ERROR)
    return [
        (
            worst <= _RATE_TOLERANCE,
            f"the influence step follows 1 / (1 + c factor^2) (largest deviation {worst:.1e})",
        ),
        (far <= _TOLERANCE, f"ours within {_TOLERANCE:.0e} of retraining (largest {far:.1e})"),
    ]


def draw(records: Sequence[Record], images: Path) -> None:
    """Draw the steps."""
    factors = distinct(records, "outlier")
    made, axes = figure()
    styles = {INFLUENCE: "o", THEORY: "-", PRU: "s--", EXACT: "^--"}
    names = {INFLUENCE: "influence, measured", THEORY: THEORY, PRU: "PRU", EXACT: "ours (exact)"}
    for method, style in styles.items():
        found = [find(records, outlier=f, method=method, metric=STEP) for f in factors]
        axes.loglog(factors, [r.value if r else np.nan for r in found], style, label=names[method])
    axes.set_xlabel("factor of the deleted row")
    axes.set_ylabel("length of the step / exact step")
    axes.set_title("As the outlier grows, the influence method stops updating")
    axes.legend()
    save(made, images / "paper-theorem")


_TEXT = """\
The full data hold one row times a factor; it is deleted. The paper proves that the influence
method's answer tends to theta_full. From its equations the rate follows: the influence step is
the exact step times 1 - h = 1 / (1 + c factor^2), with h the row's leverage in the full data and
c = x^T (A without the row)^-1 x; so it falls as factor^-2 (the two steps have the same
direction). The PRU keeps its share, the cosine between x and A^-1 x. Length of each method's
step over that of the exact step, medians of {samples} trials:
"""

EXPERIMENT = Experiment(
    name=TABLE,
    title="Theorem 5, the influence method: no update as the outlier grows",
    cells=cells,
    run_cell=run_cell,
    render=render,
    checks=checks,
    draw=draw,
)
