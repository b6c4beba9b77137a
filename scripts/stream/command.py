"""Measure what happens over a stream of deletions: true error, published error, cost.

Thousands of deletions, several batch sizes, isotropic, anisotropic, sparse and outlier data,
linear and logistic models; the paper's formula repeated, one-shot PRU, streaming PRU and exact,
with and without the product's refreshes. Writes results/stream/, docs/stream.md and its
figures; prints what passed. Progress goes to stderr. An interrupted run goes on where it stopped.
``--quick`` does the same small, in seconds; its figures say nothing.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from harness.machine import facts
from harness.progress import reporting
from harness.results import (
    RESULTS,
    ROOT,
    Unfinished,
    note,
    noted,
    one_by_one,
    read_table,
    rounded,
    side_by_side,
    write,
    write_table,
)
from harness.study import SEED
from stream import cost, divergence, over_time
from stream.checks import checked
from stream.data import FAMILIES, Record
from stream.figures import draw
from stream.page import page

FORMAT = 3


@dataclass(frozen=True, slots=True)
class Part:
    """One subject: what measures a case of it, at which sizes, in about how many seconds.

    A row of its table has the figures of all methods, for what ``by`` names.
    """

    name: str
    by: tuple[str, ...]
    run: Callable[..., Iterator[Record]]
    full: Any
    quick: Any
    weight: float
    cases: Sequence[tuple[str, ...]] = ((),)


_KINDS = (("linear",), ("logistic",))
PARTS = (
    Part(
        over_time.ORDER,
        ("kind", "data", "deleted", "ways"),
        over_time.order,
        over_time.OrderPlan(),
        over_time.OrderPlan(n=300, d=20, deletions=60, orders=2),
        15,
        _KINDS,
    ),
    Part(
        over_time.TRACE,
        ("kind", "data", "k", "deleted"),
        over_time.trace,
        over_time.TracePlan(),
        over_time.TracePlan(n=400, d=20, k=5, batches=20),
        20,
        _KINDS,
    ),
    Part(
        divergence.PART,
        ("kind", "data", "decades", "n", "d", "k", "deleted"),
        divergence.run,
        divergence.Plan(),
        divergence.Plan(n=120, deletions=96, dimensions=(5, 60), decades=(0.0, 2.0), seeds=2),
        30,
    ),
    Part(
        over_time.ENDURANCE,
        ("kind", "data", "n", "d", "k", "deleted"),
        over_time.endurance,
        over_time.EndurancePlan(),
        over_time.EndurancePlan(n=1200, d=40, checkpoints=(1, 100, 300, 600)),
        60,
        [(family,) for family in over_time.ENDURED],
    ),
    Part(
        cost.PART,
        ("kind", "data", "n", "d", "k", "range"),
        cost.run,
        cost.Plan(),
        cost.Plan(n=600, d=40, edges=(0, 64, 128, 256), batches=(1, 10)),
        60,
    ),
    Part(
        over_time.OVER_TIME,
        ("kind", "data", "n", "d", "k", "deleted"),
        over_time.over_time,
        over_time.LongPlan(),
        over_time.LongPlan(n=500, d=30, checkpoints=(1, 10, 20, 40, 100, 200), batches=(1, 20)),
        70,
        [(kind, family) for (kind,) in _KINDS for family in FAMILIES],
    ),
)
"""The short ones first."""


def measure(unfinished: Unfinished, *, quick: bool, seed: int) -> dict[str, list[Record]]:
    """Measure all cases, or take them from an interrupted run; return the records of each part."""
    tables: dict[str, list[Record]] = {}
    with reporting(sum(part.weight * len(part.cases) for part in PARTS)) as reporter:
        for part in PARTS:
            for case in part.cases:
                name = f"{part.name}: {', '.join(case)}" if case else part.name
                begin, how = time.monotonic(), "taken from the interrupted run"
                found = unfinished.get(name)
                if found is None:
                    plan = part.quick if quick else part.full
                    found = [rounded(record) for record in part.run(*case, plan, seed)]
                    unfinished.add(name, found)
                    how = f"{time.monotonic() - begin:.1f} s"
                reporter.finished(name, part.weight, how)
                tables.setdefault(part.name, []).extend(found)
    return tables


def read(results: Path) -> list[Record]:
    """Return the records of all tables."""
    return [
        {"part": part.name, **row}
        for part in PARTS
        for row in one_by_one(read_table(_file(results, part)), part.by, "method")
    ]


def _file(results: Path, part: Part) -> Path:
    return results / f"{part.name.replace(' ', '-')}.csv"


def main(arguments: Sequence[str]) -> int:
    """Run; return the exit code: 1 if a check fails."""
    parser = argparse.ArgumentParser(prog="study.py stream", description=__doc__)
    add = parser.add_argument
    add("--quick", action="store_true", help="small sizes, for tests (name other --results)")
    add("--seed", type=int, default=SEED)
    add("--results", type=Path, default=RESULTS / "stream", help="a directory of tables")
    add("--page", type=Path, default=ROOT / "docs" / "stream.md")
    add("--render", action="store_true", help="measure nothing: draw the results again")
    chosen = parser.parse_args(arguments)
    results: Path = chosen.results
    if chosen.quick and results == RESULTS / "stream":
        parser.error("--quick needs --results, and a --page")
    if not chosen.render:
        plan = f"{'quick' if chosen.quick else 'full'}, seed {chosen.seed}, format {FORMAT}"
        unfinished = Unfinished(results / "unfinished.jsonl", plan)
        with threadpool_limits(1):
            machine = facts() | {"seed": str(chosen.seed)}
            tables = measure(unfinished, quick=chosen.quick, seed=chosen.seed)
        for part in PARTS:
            found = tables[part.name]
            rows = [{name: v for name, v in row.items() if name != "part"} for row in found]
            write_table(_file(results, part), side_by_side(rows, part.by, "method"))
        note(results, tables, machine)
        unfinished.finish()
    records = read(results)
    draw(records, chosen.page.parent / "images")
    write(chosen.page, page(records, noted(results)))
    outcomes = checked(records)
    for outcome in outcomes:
        print(outcome.line())
    return 0 if all(outcome.passed for outcome in outcomes) else 1
