"""Run the paper's experiments, and render docs/paper.md.

Resumable: the tables of results/paper are written after each cell, and a cell that is present for
the same plan and seed is skipped. ``--quick`` runs everything at small sizes in under 3 minutes.
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
from harness.results import RESULTS, ROOT
from harness.study import SEED
from lethe.engine.errors import LetheError
from paper import linear_tables, logistic_tables, page, table2, yelp
from paper.experiment import Cell, Experiment
from paper.records import CellRun, Results


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


def run(wanted: Sequence[Experiment], results: Results, seed: int, *, fresh: bool) -> None:
    """Run the cells that are missing, or afresh all of them; write after each."""
    planned = [(one, cell) for one in wanted for cell in one.cells(results.quick)]
    waiting = [
        (one, cell) for one, cell in planned if fresh or not results.has(cell.key, cell.plan, seed)
    ]
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
    partial = results.directory / "unfinished" / f"{cell.key.replace(' ', '-')}.jsonl"
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


def main(arguments: Sequence[str]) -> int:
    """Run; return the exit code."""
    chosen = _options().parse_args(arguments)
    wanted = [e for e in experiments(chosen.yelp) if not chosen.only or e.name in chosen.only]
    directory = chosen.results or RESULTS / f"paper{'-quick' * chosen.quick}"
    try:
        results = Results.open(directory, quick=chosen.quick)
        if not chosen.render:
            run(wanted, results, chosen.seed, fresh=chosen.fresh)
            if any(e.name == yelp.TABLE for e in wanted) and not results.of(yelp.TABLE):
                print(yelp.HOW_TO_GET, file=sys.stderr)
    except LetheError as error:
        print(error, file=sys.stderr)
        return 2
    if chosen.page is not None or not chosen.quick:
        to = chosen.page or ROOT / "docs" / "paper.md"
        page.write(experiments(), results, to, chosen.images or to.parent / "images")
    return 0 if show_checks(wanted, results, strict=chosen.strict) else 1


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="study.py paper", description=__doc__)
    add = parser.add_argument
    add("--quick", action="store_true", help="small sizes, for tests")
    add("--seed", type=int, default=SEED)
    names = [experiment.name for experiment in experiments()]
    add("--only", action="append", choices=names, help="this table (repeatable)")
    add("--fresh", action="store_true", help="run also the cells that are present")
    add("--render", action="store_true", help="render what exists; run nothing")
    add("--strict", action="store_true", help="exit 1 for a slow timing as well")
    add("--results", type=Path, help="a directory of tables: results/paper[-quick]")
    add("--page", type=Path, help="default: docs/paper.md; none with --quick")
    add("--images", type=Path, help="default: docs/images; none with --quick")
    add("--yelp", type=Path, help="yelp_academic_dataset_review.json")
    return parser
