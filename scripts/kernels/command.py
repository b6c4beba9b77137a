"""Measure the engine's kernels against their goals, one BLAS thread: kernels/README.md.

Tables and a verdict for each goal are printed; results/kernels/ gets a table a section. Progress
goes to stderr. ``--quick`` measures the same small, in seconds; its figures say nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from harness.study import Study
from kernels import rows_kept, steps

STUDY = Study("kernels", (steps.SECTION, rows_kept.SECTION))


def main(arguments: Sequence[str]) -> int:
    """Measure; return the exit code."""
    return STUDY.main(__doc__, arguments)
