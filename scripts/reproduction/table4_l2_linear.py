"""Table 4: L2 distance after deleting outliers from linear data, and its baseline distances."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from reproduction.data import ROWS_PER_COLUMN, linear_targets
from reproduction.experiment import Cell, Experiment, Progress, generator
from reproduction.linear import (
    EXACT,
    INFLUENCE,
    METHODS,
    NEWTON,
    PRU,
    PRU_PRINTED,
    PRU_PUBLISHED,
    RELATIVE_ERROR,
    Tally,
    answers,
    blank,
    trial_rows,
)
from reproduction.metrics import l2_ratio, relative_error
from reproduction.records import Record
from reproduction.retraining import LINEAR_RIDGE, LinearFit, retrain
from reproduction.tables import distinct, find, markdown, scientific, select, two_decimals

TABLE = "table4"
L2 = "L2"
BASELINE = "baseline distance"
FULL_MODEL = "full model"
ONE_TOO_MANY = "influence, against one row too many"
PRU_ONE_TOO_MANY = "pru, against one row too many"

_PAPER_L2 = {  # factor: {k: (influence, PRU)}
    1: {5: (0.38, 0.92), 50: (0.16, 0.88), 100: (0.14, 0.88)},
    10: {5: (0.93, 0.92), 50: (0.91, 0.88), 100: (0.90, 0.88)},
    100: {5: (0.99, 0.92), 50: (0.99, 0.88), 100: (0.99, 0.88)},
}
_PAPER_DISTANCE = {
    1: {5: 0.018, 50: 0.057, 100: 0.082},
    10: {5: 0.175, 50: 0.523, 100: 0.761},
    100: {5: 0.192, 50: 0.572, 100: 0.842},
}
_TRIALS_A_CELL = 50
_TOLERANCE = 1e-8


def cells(quick: bool) -> list[Cell]:
    """Return one cell: all k and factors share a trial's data."""
    plan: dict[str, Any] = (
        {"d": 100, "k": [2, 10, 20], "factors": [1, 10, 100], "trials": 3}
        if quick
        else {"d": 1500, "k": [5, 50, 100], "factors": [1, 10, 100], "trials": _TRIALS_A_CELL}
    )
    return [Cell(f"{TABLE} all", plan, 0.5 if quick else 500.0)]


def run_cell(cell: Cell, seed: int, progress: Progress) -> list[Record]:
    """Run all trials."""
    plan = cell.plan
    tallies = {(k, factor): Tally() for k in plan["k"] for factor in plan["factors"]}
    for trial in range(plan["trials"]):
        _trial(plan, seed, trial, tallies)
        progress((trial + 1) / plan["trials"])
    d = plan["d"]
    records: list[Record] = []
    for (k, factor), tally in tallies.items():
        influence, pru = _PAPER_L2[factor].get(k, (None, None))
        paper = {
            (FULL_MODEL, BASELINE): _PAPER_DISTANCE[factor].get(k),
            (INFLUENCE, L2): influence,
            (ONE_TOO_MANY, L2): influence,
            (PRU, L2): pru,
            (PRU_PUBLISHED, L2): pru,
            (PRU_ONE_TOO_MANY, L2): pru,
        }
        records += tally.records(
            blank(TABLE, ROWS_PER_COLUMN * d, d, k, outlier=factor),
            {key: value for key, value in paper.items() if value is not None and d == 1500},
            medians=(BASELINE,),
        )
    return records


def _trial(plan: Any, seed: int, trial: int, tallies: dict[tuple[int, float], Tally]) -> None:
    d = plan["d"]
    n, most = ROWS_PER_COLUMN * d, max(plan["k"]) + 1
    X = trial_rows(seed, n, d, trial)
    y = linear_targets(generator(seed, TABLE, "targets", d, trial), X)
    first, first_y = X[:most].copy(), y[:most].copy()
    rest = X[most:].T @ X[most:]

    def live_fit(k: int) -> LinearFit:
        gram = rest + first[k:].T @ first[k:]
        return retrain(X[k:], y[k:], LINEAR_RIDGE, gram)

    typical = retrain(X, y, LINEAR_RIDGE, rest + first.T @ first)
    for k in plan["k"]:
        X[:most], y[:most] = first, first_y
        live, one_more = live_fit(k), live_fit(k + 1)
        for factor in plan["factors"]:
            X[:k], y[:k] = first[:k] * factor, first_y[:k] * factor
            full = (
                typical
                if factor == 1
                else retrain(X, y, LINEAR_RIDGE, rest + X[:most].T @ X[:most])
            )
            tally = tallies[k, factor]
            given = answers(X, y, k, full, live)
            for method, theta in given.items():
                tally.add(method, L2, l2_ratio(theta, full.theta, live.theta))
                tally.add(method, RELATIVE_ERROR, relative_error(theta, live.theta))
            distance = float(np.linalg.norm(full.theta - live.theta))
            tally.add(FULL_MODEL, BASELINE, distance)
            if factor == 1:
                for method, name in ((INFLUENCE, ONE_TOO_MANY), (PRU, PRU_ONE_TOO_MANY)):
                    wrong = l2_ratio(given[method], full.theta, one_more.theta)
                    tally.add(name, L2, wrong)
    X[:most], y[:most] = first, first_y


def render(records: Sequence[Record]) -> str:
    """Return the table, the authors' baseline, and the baseline distances."""
    lines, baselines, distances = [], [], []
    for k in distinct(records, "k"):
        for factor in distinct(records, "outlier"):
            of = select(records, k=k, outlier=factor)
            setting = f"{k}, {factor:g}"
            lines.append([setting, *_line(of)])
            distance = find(of, method=FULL_MODEL, metric=BASELINE)
            if distance is not None:
                printed = "-" if distance.paper is None else f"{distance.paper:.3f}"
                distances.append([setting, printed, f"{distance.value:.3f}"])
            wrong = find(of, method=ONE_TOO_MANY, metric=L2)
            right = find(of, method=INFLUENCE, metric=L2)
            pru = find(of, method=PRU_ONE_TOO_MANY, metric=L2)
            if wrong is not None and right is not None and pru is not None:
                baselines.append(
                    [
                        str(k),
                        two_decimals(wrong.paper),
                        two_decimals(wrong.value),
                        two_decimals(right.value),
                        two_decimals(pru.paper),
                        two_decimals(pru.value),
                    ]
                )
    header = [
        "k, factor", "paper inf", "inf", "paper PRU", "PRU", "PRU, T_ij as printed", "Newton",
        "ours", "ours, largest relative error",
    ]  # fmt: skip
    wrong_header = [
        "k", "paper inf", "inf, k + 1 left out", "inf, k left out", "paper PRU",
        "PRU, k + 1 left out",
    ]  # fmt: skip
    return "\n".join(
        [
            _INTRODUCTION.format(samples=max(record.samples for record in records)),
            markdown(header, lines),
            _BASELINE,
            markdown(wrong_header, baselines),
            "Baseline distances |theta_full - theta_LKO| (the paper's appendix; medians):\n",
            markdown(["k, factor", "paper", "here"], distances),
            _DISTANCES,
        ]
    )


def _line(of: Sequence[Record]) -> list[str]:
    found = {method: find(of, method=method, metric=L2) for method in METHODS}
    error = find(of, method=EXACT, metric=RELATIVE_ERROR)

    def value(method: str) -> str:
        record = found[method]
        return "-" if record is None else two_decimals(record.value)

    def paper(method: str) -> str:
        record = found[method]
        return "-" if record is None else two_decimals(record.paper)

    return [
        paper(INFLUENCE), value(INFLUENCE), paper(PRU), value(PRU), value(PRU_PRINTED),
        value(NEWTON), value(EXACT), scientific(None if error is None else error.value),
    ]  # fmt: skip


def checks(records: Sequence[Record]) -> list[tuple[bool, str]]:
    """Check that ours is exact."""
    errors = [r.value for r in records if r.method == EXACT and r.metric == RELATIVE_ERROR]
    far = max(errors)
    sentence = f"ours within {_TOLERANCE:.0e} of retraining in all {len(errors)} cells"
    return [(far <= _TOLERANCE, f"{sentence} (largest {far:.1e})")]


_INTRODUCTION = """\
Mean of |theta - theta_LKO| / |theta_full - theta_LKO| ({samples} trials; 0 is perfect, 1 is no
update). The k deleted rows and their targets are multiplied by the factor.
"""

_BASELINE = """\
The baseline that leaves out one row too many. In the authors' program the retrained model lacks
rows 0..k, that is k + 1 of them, while every method deletes k. For rows that are not outliers
the influence method is so near to the truth that this one row is most of its distance. With
factor 1:
"""

_DISTANCES = """\
With a factor above 1 the authors' program also multiplies k + 1 rows, and its baseline leaves
all of them out.
"""

EXPERIMENT = Experiment(
    name=TABLE,
    title="Table 4: L2 distance with outliers, linear",
    cells=cells,
    run_cell=run_cell,
    render=render,
    checks=checks,
)
