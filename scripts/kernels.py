"""Measure the kernels against their goals: steps, slopes, memory and the rate of a rebuild.

Results are printed as tables, with a verdict for each goal, and written to results/kernels.json
and results/kernels.md. Progress goes to stderr. ``--quick`` measures the same things small, in
under 30 seconds; its figures say nothing.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from threadpoolctl import threadpool_limits

from benchmarks.command import options, repeated_by, say, write
from benchmarks.machine import facts
from kernel_measures import bounds, compacting, leave_out, one_row, rebuilding, rows_kept, slopes
from kernel_measures.figures import Figure
from kernel_measures.page import document, markdown, show

Measure: TypeAlias = Callable[[bool, int], Iterable[Figure]]

SECTIONS: Mapping[str, Measure] = {
    leave_out.SECTION: lambda quick, seed: leave_out.run(
        leave_out.QUICK if quick else leave_out.Plan(), seed
    ),
    one_row.SECTION: lambda quick, seed: one_row.run(
        one_row.QUICK if quick else one_row.Plan(), seed
    ),
    slopes.SECTION: lambda quick, seed: slopes.run(slopes.QUICK if quick else slopes.Plan(), seed),
    rows_kept.SECTION: lambda quick, seed: rows_kept.run(
        rows_kept.QUICK if quick else rows_kept.Plan(), seed
    ),
    rebuilding.SECTION: lambda quick, seed: rebuilding.run(
        rebuilding.QUICK if quick else rebuilding.Plan(), seed
    ),
    bounds.SECTION: lambda quick, seed: bounds.run(bounds.QUICK if quick else bounds.Plan(), seed),
    compacting.SECTION: lambda quick, seed: compacting.run(
        compacting.QUICK if quick else compacting.Plan(), seed
    ),
}
_PIPED_WIDTH = 150


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


def main(arguments: list[str]) -> int:
    """Run; return the exit code."""
    chosen = options(__doc__, "kernels", SECTIONS).parse_args(arguments)
    with threadpool_limits(1):
        machine = facts()  # the load is that of others: taken before this adds its own
        figures = measure(chosen.only or SECTIONS, chosen.quick, chosen.seed)
    records = [figure.plain() for figure in figures]
    run = document(repeated_by(chosen, "kernels"), chosen.seed, machine, records)
    write(chosen, run, markdown, show, _PIPED_WIDTH)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
