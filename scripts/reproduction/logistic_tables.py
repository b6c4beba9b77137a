"""What tables 5 and 6 have in common: cells, trials, and how they are shown.

Their trials are the same, so both read one file of trials while a run is under way: whichever
table comes second finds them done.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from reproduction.experiment import Cell, Progress
from reproduction.linear import EXACT, INFLUENCE, NEWTON, PRU, PRU_PUBLISHED
from reproduction.logistic import METHODS, POLISHED, Outcome, run_trial
from reproduction.records import Record
from reproduction.tables import distinct, find, markdown, two_decimals, with_quartiles
from reproduction.trials import Sample, run_trials, summarise

RIDGE = 1.0
"""The paper prints no ridge strength for logistic regression: this one, and two beside it."""

OTHER_RIDGES = (0.1, 10.0)

FIT = "FIT"
L2 = "L2"
BASELINE_WEIGHT = "baseline weight"
BASELINE_DISTANCE = "baseline distance"
TURNED = "deleted rows turned around"
LARGEST_FIT = "largest |FIT|"
LARGEST_ERROR = "largest relative error to retraining"
LARGEST_GAP = "largest distance to Newton, of its step"
LARGEST_ORACLE = "largest bound of what retraining leaves"
PASSES = "passes"
FULL_MODEL = "full model"
RETRAINING = "retraining"

_OF_BOTH = {
    "table5": {FIT, BASELINE_WEIGHT, TURNED, LARGEST_FIT},
    "table6": {L2, BASELINE_DISTANCE, LARGEST_ERROR, LARGEST_GAP, LARGEST_ORACLE, PASSES},
}
_LARGEST = (LARGEST_FIT, LARGEST_ERROR, LARGEST_GAP, LARGEST_ORACLE)

Printed: TypeAlias = tuple[float, float, float]
"""Median, lower and upper quartile, as the paper's appendix prints them."""

Paper: TypeAlias = Mapping[float, Mapping[int, Mapping[str, Printed]]]
"""By p, k and method."""

_PAPER_SIZE = (5000, 1000)
_LABELS = {
    INFLUENCE: "inf",
    PRU_PUBLISHED: "PRU as published",
    PRU: "PRU",
    NEWTON: "Newton",
    EXACT: "ours",
    POLISHED: "ours, polished",
}


def cells(table: str, quick: bool) -> list[Cell]:
    """Return one cell for each ridge strength; fewer trials for the two beside `RIDGE`."""
    plan: dict[str, Any] = (
        {"n": 400, "d": 80, "k": [4, 8, 16], "p": [0.5, 0.1, 0.05]}
        if quick
        else {"n": 5000, "d": 1000, "k": [25, 50, 100], "p": [0.5, 0.1, 0.05]}
    )
    each = 0.5 if quick else 25.0
    second = 0.01 if table == "table6" else 1.0  # its trials are found done
    made = []
    for ridge, trials in (
        (RIDGE, 2 if quick else 10),
        *((r, 1 if quick else 3) for r in OTHER_RIDGES),
    ):
        whole = {**plan, "ridge": ridge, "trials": trials}
        made.append(Cell(f"{table} ridge={ridge:g}", whole, each * trials * second))
    return made


def run_cell(table: str, paper: Paper, cell: Cell, seed: int, progress: Progress) -> list[Record]:
    """Run the trials, or find them done by the other table; return this table's records."""
    plan = cell.plan
    name = f"logistic ridge={plan['ridge']:g}"
    partial = cell.partial and cell.partial.with_name(f"{name.replace(' ', '-')}.jsonl")
    shared = replace(cell, key=name, partial=partial)
    trials = run_trials(
        shared, seed, plan["trials"], lambda trial: _trial(plan, seed, trial), progress
    )
    wanted = _OF_BOTH[table]
    kept = [[sample for sample in samples if sample.metric in wanted] for samples in trials]
    common = Record(
        table=table,
        d=plan["d"],
        n=plan["n"],
        k=0,
        method="",
        metric="",
        value=0.0,
        ridge=plan["ridge"],
        samples=0,
    )
    records = summarise(kept, common, {}, medians=tuple(wanted - set(_LARGEST)), largest=_LARGEST)
    if partial is not None and table == "table6":
        partial.unlink(missing_ok=True)
    at_size = (plan["n"], plan["d"]) == _PAPER_SIZE
    return [_beside_paper(record, paper) for record in records] if at_size else records


def _beside_paper(record: Record, paper: Paper) -> Record:
    """Return the record with what the paper prints for it."""
    method = PRU if record.method == PRU_PUBLISHED else record.method
    printed = paper.get(record.p or 0.0, {}).get(record.k, {}).get(method)
    if record.metric not in (FIT, L2) or printed is None:
        return record
    return record.model_copy(update={"paper": printed[0], "paper_spread": printed[1:]})


def _trial(plan: Mapping[str, Any], seed: int, trial: int) -> list[Sample]:
    made: list[Sample] = []
    for p in plan["p"]:
        outcomes = run_trial(seed, trial, plan["n"], plan["d"], plan["k"], p, plan["ridge"])
        for k, outcome in zip(plan["k"], outcomes, strict=True):
            made += [Sample(k, p, None, *figures) for figures in _figures(outcome)]
    return made


def _figures(outcome: Outcome) -> Iterator[tuple[str, str, float]]:
    """Yield method, metric and value of all figures of one outcome, for both tables."""
    for method, point in outcome.points.items():
        yield method, FIT, point.fit
        yield method, L2, point.l2
    yield EXACT, LARGEST_FIT, abs(outcome.points[EXACT].fit)
    yield EXACT, LARGEST_ERROR, outcome.points[EXACT].error
    yield POLISHED, LARGEST_ERROR, outcome.points[POLISHED].error
    yield EXACT, LARGEST_GAP, outcome.from_newton
    yield POLISHED, PASSES, outcome.passes
    yield FULL_MODEL, BASELINE_WEIGHT, outcome.weight
    yield FULL_MODEL, BASELINE_DISTANCE, outcome.distance
    yield FULL_MODEL, TURNED, outcome.turned
    yield RETRAINING, LARGEST_ORACLE, outcome.oracle


def beside_paper(records: Sequence[Record], metric: str) -> str:
    """Return the table at `RIDGE`: the paper's figure and ours in each column, with quartiles."""
    at = [record for record in records if record.ridge == RIDGE]
    ps = distinct(at, "p")
    header = ["k, method", *(f"p = {p}: {who}" for p in ps for who in ("paper", "here"))]
    lines = []
    for k in distinct(at, "k"):
        for method in METHODS:
            line = [f"{k}, {_LABELS[method]}"]
            for p in ps:
                found = find(at, k=k, p=p, method=method, metric=metric)
                line += [_printed(found), with_quartiles(found)]
            lines.append(line)
    return markdown(header, lines)


def _printed(record: Record | None) -> str:
    if record is None or record.paper is None:
        return "-"
    asked = record.model_copy(update={"value": record.paper, "spread": record.paper_spread})
    return with_quartiles(asked)


def by_ridge(records: Sequence[Record], metric: str) -> str:
    """Return medians at every ridge strength, and the paper's between them."""
    ridges = sorted(distinct(records, "ridge"))
    methods = (INFLUENCE, PRU, NEWTON, EXACT)
    header = ["k, p, method", "paper", *(f"ridge {ridge:g}" for ridge in ridges)]
    lines = []
    for k in distinct(records, "k"):
        for p in distinct(records, "p"):
            for method in methods:
                where = {"k": k, "p": p, "method": method, "metric": metric}
                found = [find(records, ridge=ridge, **where) for ridge in ridges]
                main = find(records, ridge=RIDGE, **where)
                lines.append(
                    [
                        f"{k}, {p}, {_LABELS[method]}",
                        two_decimals(None if main is None else main.paper),
                        *(two_decimals(None if r is None else r.value) for r in found),
                    ]
                )
    return markdown(header, lines)


def largest(records: Sequence[Record], method: str, metric: str) -> float:
    """Return the largest value of a metric over all settings; NaN where there is none."""
    values = [r.value for r in records if r.method == method and r.metric == metric]
    return max(values, default=float("nan"))
