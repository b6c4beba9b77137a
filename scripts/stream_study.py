"""Measure what happens over a stream of deletions: true error, published error, cost.

Thousands of deletions, several batch sizes, isotropic, anisotropic, sparse and outlier data,
linear and logistic models; the paper's formula repeated, one-shot PRU, streaming PRU and exact,
with and without the product's refreshes. Writes results/stream.json, docs/stream.md and its
figures; prints what passed. Progress goes to stderr. An interrupted run goes on where it stopped.
``--quick`` does the same small, in seconds; its figures say nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from harness.machine import facts
from harness.progress import reporting
from harness.results import ROOT, Unfinished, as_json, rounded, write
from harness.study import SEED
from streams import cost, divergence, over_time
from streams.checks import checked
from streams.data import FAMILIES, Record
from streams.figures import draw
from streams.page import page

FORMAT = 2


@dataclass(frozen=True, slots=True)
class Part:
    """One subject: what measures a case of it, at which sizes, in about how many seconds."""

    name: str
    run: Callable[..., Iterator[Record]]
    full: Any
    quick: Any
    weight: float
    cases: Sequence[tuple[str, ...]] = ((),)


_KINDS = (("linear",), ("logistic",))
PARTS = (
    Part(
        over_time.ORDER,
        over_time.order,
        over_time.OrderPlan(),
        over_time.OrderPlan(n=300, d=20, deletions=60, orders=2),
        15,
        _KINDS,
    ),
    Part(
        over_time.TRACE,
        over_time.trace,
        over_time.TracePlan(),
        over_time.TracePlan(n=400, d=20, k=5, batches=20),
        20,
        _KINDS,
    ),
    Part(
        divergence.PART,
        divergence.run,
        divergence.Plan(),
        divergence.Plan(n=120, deletions=96, dimensions=(5, 60), decades=(0.0, 2.0), seeds=2),
        30,
    ),
    Part(
        over_time.ENDURANCE,
        over_time.endurance,
        over_time.EndurancePlan(),
        over_time.EndurancePlan(n=1200, d=40, checkpoints=(1, 100, 300, 600)),
        60,
        [(family,) for family in over_time.ENDURED],
    ),
    Part(
        cost.PART,
        cost.run,
        cost.Plan(),
        cost.Plan(n=600, d=40, edges=(0, 64, 128, 256), batches=(1, 10)),
        60,
    ),
    Part(
        over_time.OVER_TIME,
        over_time.over_time,
        over_time.LongPlan(),
        over_time.LongPlan(n=500, d=30, checkpoints=(1, 10, 20, 40, 100, 200), batches=(1, 20)),
        70,
        [(kind, family) for (kind,) in _KINDS for family in FAMILIES],
    ),
)
"""The short ones first."""


def measure(
    unfinished: Unfinished, *, quick: bool, seed: int, only_finished: bool
) -> tuple[list[Record], list[str]]:
    """Measure all cases, or take them from an interrupted run; return what is missing, too."""
    records: list[Record] = []
    missing: list[str] = []
    with reporting(sum(part.weight * len(part.cases) for part in PARTS)) as reporter:
        for part in PARTS:
            for case in part.cases:
                name = f"{part.name}: {', '.join(case)}" if case else part.name
                begin, how = time.monotonic(), "taken from the interrupted run"
                found = unfinished.get(name)
                if found is None and only_finished:
                    missing.append(name)
                    continue
                if found is None:
                    plan = part.quick if quick else part.full
                    found = [rounded(record) for record in part.run(*case, plan, seed)]
                    unfinished.add(name, found)
                    how = f"{time.monotonic() - begin:.1f} s"
                reporter.finished(name, part.weight, how)
                records += found
    return records, missing


def main(arguments: list[str]) -> int:
    """Run; return the exit code: 1 if a check fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, for tests")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--results", type=Path, default=ROOT / "results" / "stream.json")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "stream.md")
    parser.add_argument(
        "--render", action="store_true", help="measure nothing: draw the results again"
    )
    parser.add_argument(
        "--partial",
        action="store_true",
        help="measure nothing: write what an interrupted run has finished, and keep it",
    )
    chosen = parser.parse_args(arguments)
    if chosen.render:
        run = json.loads(chosen.results.read_text(encoding="utf-8"))
    else:
        plan = f"{'quick' if chosen.quick else 'full'}, seed {chosen.seed}, format {FORMAT}"
        unfinished = Unfinished(chosen.results.with_suffix(".unfinished.jsonl"), plan)
        with threadpool_limits(1):
            machine = facts()
            records, missing = measure(
                unfinished, quick=chosen.quick, seed=chosen.seed, only_finished=chosen.partial
            )
        small = "python scripts/stream_study.py --quick"
        run = {
            "format": FORMAT,
            "command": small if chosen.quick else "make stream-study",
            "seed": chosen.seed,
            "machine": machine,
            "missing": missing,
            "records": records,
        }
        write(chosen.results, as_json(run))
        if not chosen.partial:
            unfinished.finish()
    draw(run, chosen.page.parent / "images")
    write(chosen.page, page(run))
    outcomes = checked(run["records"])
    for outcome in outcomes:
        print(outcome.line())
    return 0 if all(outcome.passed for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
