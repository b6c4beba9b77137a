"""Run the paper's experiments and render docs/paper.md: every table beside the paper's figures.

Resumable: results/paper.json is written after each cell, and a cell that is present for the same
plan and seed is skipped. ``--quick`` runs everything at small sizes in under 3 minutes.
Progress and the time left go to stderr; what was checked goes to stdout. Exit code 1: a check
that does not depend on the machine failed (``--strict``: any check).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from threadpoolctl import threadpool_limits

from harness.machine import facts
from lethe.engine.errors import LetheError
from reproduction import (
    page,
    table2_runtimes,
    table3_fit_linear,
    table4_l2_linear,
    table5_fit_logistic,
    table6_l2_logistic,
    theorem_influence,
    yelp,
)
from reproduction.experiment import Cell, Experiment
from reproduction.progress import Reporter, reporting
from reproduction.records import CellRun, Results

EXPERIMENTS: tuple[Experiment, ...] = (
    table2_runtimes.EXPERIMENT,
    table3_fit_linear.EXPERIMENT,
    table4_l2_linear.EXPERIMENT,
    table5_fit_logistic.EXPERIMENT,
    table6_l2_logistic.EXPERIMENT,
    theorem_influence.EXPERIMENT,
    yelp.EXPERIMENT,
)
ROOT = Path(__file__).resolve().parent.parent
SEED = 20210413


def run(experiments: Sequence[Experiment], results: Results, seed: int) -> None:
    """Run the cells that are missing; write after each."""
    waiting = [
        (experiment, cell)
        for experiment in experiments
        for cell in experiment.cells(results.document.quick)
        if not results.has(cell.key, cell.plan, seed)
    ]
    machine = facts()  # the load is that of others: taken before the run adds its own
    with reporting(sum(cell.cost for _, cell in waiting)) as reporter, threadpool_limits(1):
        present = sum(len(e.cells(results.document.quick)) for e in experiments) - len(waiting)
        reporter.say(f"{len(waiting)} cells to run, {present} present")
        for experiment, cell in waiting:
            _run_cell(experiment, cell, results, seed, reporter, machine)


def _run_cell(
    experiment: Experiment,
    cell: Cell,
    results: Results,
    seed: int,
    reporter: Reporter,
    machine: dict[str, str],
) -> None:
    begin = time.monotonic()
    partial = results.path.with_suffix(".partial") / f"{cell.key.replace(' ', '-')}.jsonl"
    cell = replace(cell, partial=partial)
    records = experiment.run_cell(
        cell, seed, lambda share: reporter.within(cell.key, cell.cost, share)
    )
    seconds = time.monotonic() - begin
    done = CellRun(table=experiment.name, plan=dict(cell.plan), seed=seed, seconds=seconds)
    results.put(cell.key, done, records, machine)
    partial.unlink(missing_ok=True)
    if partial.parent.exists() and not any(partial.parent.iterdir()):
        partial.parent.rmdir()
    reporter.finished(cell.key, cell.cost, seconds)


def show_checks(experiments: Sequence[Experiment], results: Results, *, strict: bool) -> bool:
    """Print what was checked; return whether all that counts passed."""
    good = True
    for experiment in experiments:
        records = results.of(experiment.name)
        if not records:
            continue
        for passed, sentence in experiment.checks(records):
            print(f"{'pass' if passed else 'FAIL'}  {experiment.name}: {sentence}")
            good = good and passed
        if results.document.quick:
            continue  # times at small sizes say nothing
        for passed, sentence in experiment.timing_checks(records):
            print(f"{'pass' if passed else 'FAIL'}  {experiment.name}, times: {sentence}")
            good = good and (passed or not strict)
    return good


def main(arguments: list[str]) -> int:
    """Run; return the exit code."""
    names = [experiment.name for experiment in EXPERIMENTS]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, for tests")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--only", action="append", choices=names, help="this table (repeatable)")
    parser.add_argument("--fresh", action="store_true", help="run also the cells that are present")
    parser.add_argument("--render", action="store_true", help="render what exists; run nothing")
    parser.add_argument("--strict", action="store_true", help="exit 1 for a slow timing as well")
    parser.add_argument("--results", type=Path, help="default: results/paper[-quick].json")
    parser.add_argument("--page", type=Path, help="default: docs/paper.md; none with --quick")
    parser.add_argument("--images", type=Path, help="default: docs/images; none with --quick")
    parser.add_argument("--yelp", type=Path, help="yelp_academic_dataset_review.json")
    parser.add_argument("--merge", type=Path, help="take over the cells of this results file first")
    chosen = parser.parse_args(arguments)
    wanted = [e for e in EXPERIMENTS if not chosen.only or e.name in chosen.only]
    if chosen.yelp is not None:
        wanted = [yelp.with_file(chosen.yelp) if e is yelp.EXPERIMENT else e for e in wanted]
    file = chosen.results or ROOT / "results" / f"paper{'-quick' * chosen.quick}.json"
    try:
        results = Results.open(file, quick=chosen.quick)
        if chosen.merge is not None:
            results.merge(Results.open(chosen.merge, quick=chosen.quick))
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    if chosen.fresh:
        for experiment in wanted:
            results.drop_table(experiment.name)
    if not chosen.render:
        try:
            run(wanted, results, chosen.seed)
        except LetheError as error:
            print(error, file=sys.stderr)
            return 2
        if yelp.EXPERIMENT in wanted and not results.of(yelp.TABLE):
            print(yelp.HOW_TO_GET, file=sys.stderr)
    _write_page(chosen.page, chosen.images, results)
    return 0 if show_checks(wanted, results, strict=chosen.strict) else 1


def _write_page(to: Path | None, images: Path | None, results: Results) -> None:
    """Render the page and the figures, unless this is a quick run that names no place for them."""
    if results.document.quick and to is None:
        return
    to = to or ROOT / "docs" / "paper.md"
    images = images or to.parent / "images"
    images.mkdir(parents=True, exist_ok=True)
    for experiment in EXPERIMENTS:
        records = results.of(experiment.name)
        if experiment.draw is not None and records:
            experiment.draw(records, images)
    to.write_text(page.render(EXPERIMENTS, results), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
