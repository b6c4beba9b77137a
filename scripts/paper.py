"""Run the paper's experiments and render docs/paper.md and results/paper.md, all its tables.

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
from harness.progress import Reporter, reporting
from harness.results import ROOT
from harness.study import SEED
from lethe.engine.errors import LetheError
from reproduction import linear_tables, logistic_tables, page, table2, yelp
from reproduction.experiment import Cell, Experiment
from reproduction.records import CellRun, Results


def experiments(reviews: Path | None = None) -> list[Experiment]:
    """Return all experiments; that of the Yelp reviews has no cells without their file."""
    return [
        table2.EXPERIMENT,
        linear_tables.TABLE3,
        linear_tables.TABLE4,
        logistic_tables.TABLE5,
        logistic_tables.TABLE6,
        linear_tables.THEOREM,
        yelp.experiment(reviews),
    ]


def run(wanted: Sequence[Experiment], results: Results, seed: int) -> None:
    """Run the cells that are missing; write after each."""
    planned = [(one, cell) for one in wanted for cell in one.cells(results.document.quick)]
    waiting = [(one, cell) for one, cell in planned if not results.has(cell.key, cell.plan, seed)]
    machine = facts()  # the load is that of others: taken before the run adds its own
    with reporting(sum(cell.cost for _, cell in waiting)) as reporter, threadpool_limits(1):
        reporter.say(f"{len(waiting)} cells to run, {len(planned) - len(waiting)} present")
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
    records = experiment.run_cell(
        replace(cell, partial=partial),
        seed,
        lambda share: reporter.within(cell.key, cell.cost, share),
    )
    seconds = time.monotonic() - begin
    done = CellRun(table=experiment.name, plan=dict(cell.plan), seed=seed, seconds=seconds)
    results.put(cell.key, done, records, machine)
    partial.unlink(missing_ok=True)
    if partial.parent.exists() and not any(partial.parent.iterdir()):
        partial.parent.rmdir()
    reporter.finished(cell.key, cell.cost, f"{seconds:.1f} s")


def show_checks(wanted: Sequence[Experiment], results: Results, *, strict: bool) -> bool:
    """Print what was checked; return whether all that counts passed."""
    good = True
    for experiment in wanted:
        for passed, sentence, of_times in page.all_checks(experiment, results):
            name = f"{experiment.name}, times" if of_times else experiment.name
            print(f"{'pass' if passed else 'FAIL'}  {name}: {sentence}")
            good = good and (passed or (of_times and not strict))
    return good


def main(arguments: list[str]) -> int:
    """Run; return the exit code."""
    chosen = _options().parse_args(arguments)
    wanted = [e for e in experiments(chosen.yelp) if not chosen.only or e.name in chosen.only]
    file = chosen.results or ROOT / "results" / f"paper{'-quick' * chosen.quick}.json"
    try:
        results = Results.open(file, quick=chosen.quick)
        if chosen.merge is not None:
            results.merge(Results.open(chosen.merge, quick=chosen.quick))
        if chosen.fresh:
            for experiment in wanted:
                results.drop_table(experiment.name)
        if not chosen.render:
            run(wanted, results, chosen.seed)
            if any(e.name == yelp.TABLE for e in wanted) and not results.of(yelp.TABLE):
                print(yelp.HOW_TO_GET, file=sys.stderr)
    except LetheError as error:
        print(error, file=sys.stderr)
        return 2
    if chosen.page is not None or not chosen.quick:
        to = chosen.page or ROOT / "docs" / "paper.md"
        tables = ROOT / "results" / "paper.md"
        if chosen.page is not None:
            tables = to.with_stem(f"{to.stem}-tables")
        images = chosen.images or to.parent / "images"
        page.write(experiments(), results, page=to, tables=tables, images=images)
    return 0 if show_checks(wanted, results, strict=chosen.strict) else 1


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--quick", action="store_true", help="small sizes, for tests")
    add("--seed", type=int, default=SEED)
    names = [experiment.name for experiment in experiments()]
    add("--only", action="append", choices=names, help="this table (repeatable)")
    add("--fresh", action="store_true", help="run also the cells that are present")
    add("--render", action="store_true", help="render what exists; run nothing")
    add("--strict", action="store_true", help="exit 1 for a slow timing as well")
    add("--results", type=Path, help="default: results/paper[-quick].json")
    add(
        "--page",
        type=Path,
        help="default: docs/paper.md, its tables in results/paper.md; else they go beside it as "
        "NAME-tables.md; none with --quick",
    )
    add("--images", type=Path, help="default: docs/images; none with --quick")
    add("--yelp", type=Path, help="yelp_academic_dataset_review.json")
    add("--merge", type=Path, help="take over the cells of this results file first")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
