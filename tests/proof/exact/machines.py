"""The same streams on what passes for other machines: threads, kinds of CPU, another BLAS."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_info

from lethe import LinearModel
from tests.proof.exact.families import FAMILIES
from tests.proof.exact.found import Found
from tests.proof.exact.stream import run_all

_WIDE = 150
"""Features of the model that is large enough for BLAS to use its threads and its blocks."""

_CHANGES = 40
"""Of a stream: what differs from machine to machine shows in one."""

MACHINES = {
    "1 thread": {"OPENBLAS_NUM_THREADS": "1"},
    "2 threads": {"OPENBLAS_NUM_THREADS": "2"},
    "as Nehalem (SSE)": {"OPENBLAS_NUM_THREADS": "1", "OPENBLAS_CORETYPE": "Nehalem"},
    "as Haswell (AVX2)": {"OPENBLAS_NUM_THREADS": "1", "OPENBLAS_CORETYPE": "Haswell"},
}


@dataclass(frozen=True, slots=True)
class Machine:
    """What a process found: the kinds of CPU that its BLAS took it for, and digests."""

    architectures: tuple[str, ...]
    rounded: str
    not_rounded: str


def digest(seeds: range) -> Machine:
    """Return the digests of streams here, and of a model that is not rounded beside them."""
    found = Found()
    for name in FAMILIES:
        found.add(run_all(name, seeds, _CHANGES))
    rounded, other = _wide(LinearModel(1e-3)), _wide(LinearModel(1e-3, rounded_features=0))
    found.add(Found(digest=rounded))
    kinds = {
        str(info.get("architecture")) for info in threadpool_info() if "blas" in info["user_api"]
    }
    return Machine(tuple(sorted(kinds)), found.digest, other)


def _wide(model: LinearModel) -> str:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2 * _WIDE, _WIDE))
    model.fit(X, rng.normal(size=2 * _WIDE))
    parameters = [model.theta.tobytes()]
    for i in range(20):
        model.delete([str(i)], method="exact")
        parameters.append(model.theta.tobytes())
    model.refresh("rebuild")
    return hashlib.sha256(b"".join([*parameters, model.theta.tobytes()])).hexdigest()


def with_mkl(library: Path, scratch: Path) -> dict[str, str]:
    """Return the environment in which Intel's MKL does what OpenBLAS would; it takes a C compiler.

    ``library`` is libmkl_rt.so of `pip download mkl`, unpacked.
    """
    forward = scratch / "forward.so"
    source = Path(__file__).with_name("forward.c")
    subprocess.run(["cc", "-fPIC", "-shared", "-o", str(forward), str(source), "-ldl"], check=True)
    return {
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_THREADING_LAYER": "SEQUENTIAL",
        "LD_PRELOAD": str(forward),
        "LD_LIBRARY_PATH": str(library.resolve().parent),
        "FORWARD_TO": str(library.resolve()),
    }


def digest_elsewhere(environment: dict[str, str], seeds: range) -> Machine:
    """Return the digests of a new process with some variables of its environment set."""
    root = Path(__file__).resolve().parents[3]
    done = subprocess.run(
        [sys.executable, "-m", "tests.proof.exact", "--digest", "--seeds", str(len(seeds))],
        cwd=root,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    architectures, rounded, not_rounded = json.loads(done.stdout)
    return Machine(tuple(architectures), rounded, not_rounded)
