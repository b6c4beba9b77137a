"""A process that precomputes once and prints by how much its resident memory grew at the peak.

    python scripts/kernel_measures/memory.py linear N D SEED

X is counted: memory is read before it is made, with everything imported.
"""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

import numpy as np  # noqa: E402
from threadpoolctl import threadpool_limits  # noqa: E402

from engine.objective import Kind, Objective  # noqa: E402
from engine.precompute import precompute  # noqa: E402
from kernel_measures.rebuilding import synthetic  # noqa: E402


def resident() -> int:
    """Return the bytes that are resident now (the peak, where the system does not say)."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * resource.getpagesize()
    return peak()


def peak() -> int:
    """Return the largest number of bytes that were resident so far."""
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return largest if sys.platform == "darwin" else largest * 1024


def main(kind: str, n: int, d: int, seed: int) -> None:
    """Measure and print."""
    before = resident()
    rows = synthetic(Kind(kind), n, d, seed)
    with threadpool_limits(1):
        made = precompute(Objective(Kind(kind), np.ones(d)), rows)
    print(json.dumps({"grown": peak() - before, "dual_rows": made.dual_rows.nbytes}))


if __name__ == "__main__":
    main(sys.argv[1], *(int(argument) for argument in sys.argv[2:]))
