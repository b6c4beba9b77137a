"""A process that precomputes once and prints by how much its resident memory grew at the peak.

    python scripts/kernel_measures/memory.py linear N D SEED

X is counted: memory is read before it is made, with everything imported.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

import numpy as np  # noqa: E402
from threadpoolctl import threadpool_limits  # noqa: E402

from kernel_measures.rebuilding import synthetic  # noqa: E402
from lethe.engine.fit.objective import Kind, Objective  # noqa: E402
from lethe.engine.fit.precompute import precompute  # noqa: E402


def status(name: str) -> int:
    """Return a size from the system's account of this process, in bytes.

    (``ru_maxrss`` would not do: on Linux it begins with the size of the process that began this.)
    """
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024


def main(kind: str, n: int, d: int, seed: int) -> None:
    """Measure and print."""
    before = status("VmRSS")
    rows = synthetic(Kind(kind), n, d, seed)
    with threadpool_limits(1):
        made = precompute(Objective(Kind(kind), np.ones(d)), rows)
    print(json.dumps({"grown": status("VmHWM") - before, "dual_rows": made.dual_rows.nbytes}))


if __name__ == "__main__":
    main(sys.argv[1], *(int(argument) for argument in sys.argv[2:]))
