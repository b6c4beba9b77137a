"""Measure the kernels against their goals: steps, slopes, memory and the rate of a rebuild.

Results are printed as tables, with a verdict for each goal, and written to results/kernels.json
and docs/kernels.md. Progress goes to stderr. ``--quick`` measures the same things small, in under
30 seconds; its figures say nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeAlias

from benchmarks.machine import facts
from kernel_measures import compacting, leave_out, rebuilding, rows_kept, slopes
from kernel_measures.figures import Figure
from kernel_measures.page import document, markdown, show
from rich.console import Console
from threadpoolctl import threadpool_limits

Measure: TypeAlias = Callable[[bool, int], Iterable[Figure]]

SECTIONS: Mapping[str, Measure] = {
    leave_out.SECTION: lambda quick, seed: leave_out.run(
        leave_out.QUICK if quick else leave_out.Plan(), seed
    ),
    slopes.SECTION: lambda quick, seed: slopes.run(slopes.QUICK if quick else slopes.Plan(), seed),
    rows_kept.SECTION: lambda quick, seed: rows_kept.run(
        rows_kept.QUICK if quick else rows_kept.Plan(), seed
    ),
    rebuilding.SECTION: lambda quick, seed: rebuilding.run(
        rebuilding.QUICK if quick else rebuilding.Plan(), seed
    ),
    compacting.SECTION: lambda quick, seed: compacting.run(
        compacting.QUICK if quick else compacting.Plan(), seed
    ),
}
_PIPED_WIDTH = 150
ROOT = Path(__file__).resolve().parent.parent


def measure(wanted: Iterable[str], quick: bool, seed: int) -> list[Figure]:
    """Measure the sections that are wanted."""
    figures = []
    for section in wanted:
        begin = time.monotonic()
        for figure in SECTIONS[section](quick, seed):
            figures.append(figure)
            setting = " ".join(f"{name}={value}" for name, value in figure.setting.items())
            say(f"{section}: {setting}: {figure.metric} {figure.value:.4g} {figure.unit}")
        say(f"{section}: {time.monotonic() - begin:.1f} s")
    return figures


def say(line: str) -> None:
    """Report progress."""
    print(line, file=sys.stderr, flush=True)


def main(arguments: list[str]) -> int:
    """Run; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, for tests")
    parser.add_argument("--seed", type=int, default=20210413)
    parser.add_argument(
        "--only", action="append", choices=SECTIONS, help="measure this section (repeatable)"
    )
    parser.add_argument("--results", type=Path, default=ROOT / "results" / "kernels.json")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "kernels.md")
    chosen = parser.parse_args(arguments)
    with threadpool_limits(1):
        machine = facts()  # the load is that of others: taken before this adds its own
        figures = measure(chosen.only or SECTIONS, chosen.quick, chosen.seed)
    options = [
        *(["--quick"] if chosen.quick else []),
        *(f"--only '{section}'" for section in chosen.only or ()),
    ]
    command = " ".join(["scripts/kernels.py", *options]) if options else "make kernels"
    run = document(command, chosen.seed, machine, [figure.plain() for figure in figures])
    for path, text in (
        (chosen.results, json.dumps(run, indent=1, allow_nan=False) + "\n"),
        (chosen.page, markdown(run)),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    console = Console()
    show(console if console.is_terminal else Console(width=_PIPED_WIDTH), run)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
