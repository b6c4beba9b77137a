"""Measure steps, end-to-end time, evidence, retraining, rebuilds, throughput, floor, and options.

Results are printed as tables, with a verdict for each goal, and written to results/bench.json and
results/bench.md. Progress goes to stderr. ``--quick`` measures the same things small, in under a
minute; its figures say nothing.
"""

from __future__ import annotations

import sys

from benchmarks import against_floor, arithmetic, costs, options, pipelines, preprocessing
from harness.study import Study

STUDY = Study(
    "bench",
    "Measurements",
    "Figures are medians with the distance between the quartiles (IQR); a 99th percentile is given "
    "from 100 samples on. Everything in a section was measured in one run on one machine, in turns "
    "where a ratio is given.",
    (
        arithmetic.STEP,
        pipelines.END_TO_END,
        pipelines.EVIDENCE,
        arithmetic.RETRAINING,
        pipelines.DURING_REBUILD,
        pipelines.THROUGHPUT,
        against_floor.SECTION,
        costs.SECTION,
        preprocessing.SECTION,
        options.DISCLOSURE,
        options.EXACT_SUMS,
    ),
)

if __name__ == "__main__":
    sys.exit(STUDY.main(__doc__, sys.argv[1:]))
