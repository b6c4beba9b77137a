"""Measure the kernels against their goals: steps, slopes, memory and the rate of a rebuild.

Results are printed as tables, with a verdict for each goal, and written to results/kernels.json
and results/kernels.md. Progress goes to stderr. ``--quick`` measures the same things small, in
under 30 seconds; its figures say nothing.
"""

from __future__ import annotations

import sys

from harness.study import Study
from kernel_measures import auditing, fitting, leave_out, one_row, rebuilding, rows_kept, steps

STUDY = Study(
    "kernels",
    "Kernels",
    "One BLAS thread. Times are medians of the thread's processor time with the distance between "
    "the quartiles (IQR), the median by the wall clock beside them: on a machine with nothing else "
    "to do they are the same. At least 30 samples, of times above 5 s fewer; the column says how "
    "many. Everything that is compared was measured in turns, in one run.",
    (
        leave_out.SECTION,
        one_row.SECTION,
        steps.SECTION,
        rows_kept.SECTION,
        rebuilding.SECTION,
        rebuilding.BOUND_SECTION,
        fitting.SECTION,
        auditing.SECTION,
    ),
)

if __name__ == "__main__":
    sys.exit(STUDY.main(__doc__, sys.argv[1:]))
