"""Facts that a reader of figures needs: the machine and the commit; no names, no paths."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import scipy
import sklearn
from threadpoolctl import threadpool_info

from harness.results import ROOT

ONE_THREAD: Mapping[str, str] = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}
"""Environment of the processes that a study starts."""


def facts() -> dict[str, str]:
    """Return the facts, in the order in which they are shown."""
    blas = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    names = dict.fromkeys(
        f"{pool['internal_api']} {pool['version']} ({pool.get('architecture', 'unknown')})"
        for pool in blas
    )
    return {
        "cores": str(len(os.sched_getaffinity(0))),
        "processor": _processor(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "scikit-learn": sklearn.__version__,
        "BLAS": ", ".join(names),
        "BLAS threads": "1",
        "load before the run": f"{os.getloadavg()[0]:.1f}",
        "commit": _commit(),
    }


def of_parts(machines: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Return the facts of several parts as one: where they differ, each part's own."""
    names = dict.fromkeys(name for machine in machines.values() for name in machine)
    merged = {}
    for name in names:
        parts = {part: machine[name] for part, machine in machines.items() if name in machine}
        alike = len(set(parts.values())) == 1 and len(parts) == len(machines)
        texts = parts.values() if alike else [f"{part}: {text}" for part, text in parts.items()]
        merged[name] = "; ".join(dict.fromkeys(texts))
    return merged


def _processor() -> str:
    """Return the processor's model where the system says it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or "unknown"


def _commit() -> str:
    """Return the commit of the checkout, with ``-dirty`` where files were changed."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):  # no git, or not a checkout
        return "unknown"
    return done.stdout.strip()
