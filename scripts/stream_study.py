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
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from threadpoolctl import threadpool_limits

from benchmarks.machine import facts
from streams import cost, divergence, endurance, order, over_time, trace
from streams.checks import checked
from streams.data import FAMILIES
from streams.figures import draw
from streams.page import page
from streams.records import FORMAT, Record, Unfinished, rounded, written

ROOT = Path(__file__).resolve().parent.parent
SEED = 20210413
_LINEAR, _LOGISTIC = 40, 100


@dataclass(frozen=True, slots=True)
class Unit:
    """What a resumed run does or skips as a whole; ``weight`` is about its seconds in full."""

    name: str
    weight: float
    measure: Callable[[], Iterator[Record]]


def units(*, quick: bool, seed: int) -> list[Unit]:
    """Return everything that is measured, in order."""
    long = over_time.QUICK if quick else over_time.Plan()
    found = [
        Unit(
            f"{over_time.PART}: {kind}, {family}",
            _LINEAR if kind == "linear" else _LOGISTIC,
            partial(over_time.run, kind, family, long, seed),
        )
        for kind in ("linear", "logistic")
        for family in FAMILIES
    ]
    traced = trace.QUICK if quick else trace.Plan()
    found += [
        Unit(f"{trace.PART}: {kind}", 20, partial(trace.run, kind, traced, seed))
        for kind in ("linear", "logistic")
    ]
    lasting = endurance.QUICK if quick else endurance.Plan()
    found += [
        Unit(f"{endurance.PART}: {family}", 60, partial(endurance.run, family, lasting, seed))
        for family in endurance.FAMILIES
    ]
    grid = divergence.QUICK if quick else divergence.Plan()
    found.append(Unit(divergence.PART, 30, partial(divergence.run, grid, seed)))
    sets = order.QUICK if quick else order.Plan()
    found += [
        Unit(f"{order.PART}: {kind}", 15, partial(order.run, kind, sets, seed))
        for kind in ("linear", "logistic")
    ]
    timed = cost.QUICK if quick else cost.Plan()
    found.append(Unit(cost.PART, 60, partial(cost.run, timed, seed)))
    return sorted(found, key=lambda unit: unit.weight)


def measure(wanted: list[Unit], unfinished: Unfinished, console: Console) -> list[Record]:
    """Measure all units, the short ones first, or take them from an interrupted run."""
    records: list[Record] = []
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("left:"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=sum(unit.weight for unit in wanted))
        for unit in wanted:
            progress.update(task, description=unit.name)
            begin = time.monotonic()
            done = unfinished.get(unit.name)
            if done is None:
                done = [rounded(record) for record in unit.measure()]
                unfinished.add(unit.name, done)
                console.print(f"{unit.name}: {time.monotonic() - begin:.1f} s", highlight=False)
            else:
                console.print(f"{unit.name}: taken from the interrupted run", highlight=False)
            records += done
            progress.advance(task, unit.weight)
    return records


def write(run: dict[str, object], results: Path, page_path: Path) -> None:
    """Write the records, the figures and the page."""
    images = page_path.parent / "images"
    for directory in (results.parent, images):
        directory.mkdir(parents=True, exist_ok=True)
    results.write_text(written(run), encoding="utf-8")
    draw(run, images)
    page_path.write_text(page(run), encoding="utf-8")


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
        wanted = units(quick=chosen.quick, seed=chosen.seed)
        plan = f"{'quick' if chosen.quick else 'full'}, seed {chosen.seed}, format {FORMAT}"
        unfinished = Unfinished(chosen.results.with_suffix(".unfinished.jsonl"), plan)
        missing = [unit.name for unit in wanted if unfinished.get(unit.name) is None]
        with threadpool_limits(1):
            machine = facts()
            if chosen.partial:
                wanted = [unit for unit in wanted if unit.name not in missing]
            records = measure(wanted, unfinished, Console(stderr=True))
        run = {
            "format": FORMAT,
            "command": "scripts/stream_study.py --quick" if chosen.quick else "make stream-study",
            "seed": chosen.seed,
            "machine": machine,
            "missing": missing if chosen.partial else [],
            "records": records,
        }
    write(run, chosen.results, chosen.page)
    if not (chosen.render or chosen.partial):
        unfinished.finish()
    outcomes = checked(run["records"])
    for outcome in outcomes:
        print(outcome.line())
    return 0 if all(outcome.passed for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
