"""Measure the service: end-to-end time, throughput, what a commit and options cost.

Tables and a verdict for each goal are printed; results/bench/ gets a table a section. Progress goes
to stderr. ``--quick`` measures the same small, in under a minute; its figures say nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from bench import costs, options, pipelines, preprocessing
from harness.study import Study

STUDY = Study(
    "bench",
    (
        pipelines.END_TO_END,
        pipelines.DURING_REBUILD,
        pipelines.THROUGHPUT,
        costs.SECTION,
        preprocessing.SECTION,
        options.DISCLOSURE,
        options.EXACT_SUMS,
    ),
)


def main(arguments: Sequence[str]) -> int:
    """Measure; return the exit code."""
    return STUDY.main(__doc__, arguments)
