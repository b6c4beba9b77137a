"""What a refresh needs in memory, against the estimate by which jobs are begun or refused."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from lethe.consumers.refresh.queue import memory_of
from lethe.engine.refresh.size import RefreshSize
from tests.support.families import Data, make
from tests.support.platform import Platform

ROWS, FEATURES = 60_000, 30

_REBUILD = """
import sys
from pathlib import Path
from datetime import UTC, datetime
from lethe.consumers.contract.events import RefreshRequested
from lethe.consumers.refresh.job import run_job
from tests.support.platform import store_at

store = store_at(sys.argv[1])
store.load_model("m")
event = RefreshRequested.model_validate_json(sys.argv[2])


def kilobytes(name):
    [line] = [x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith(name)]
    return int(line.split()[1])


before = kilobytes("VmRSS")
run_job(store, event, now=datetime.now(UTC))
print(1024 * (kilobytes("VmHWM") - before))
"""


def wide(kind: str) -> Data:
    rng = np.random.default_rng(7)
    X = rng.standard_normal((ROWS, FEATURES))
    y = X @ rng.standard_normal((FEATURES, 1)) + rng.standard_normal((ROWS, 1))
    y = (y > 0).astype(float) if kind == "logistic" else y
    return replace(make("benign", kind), X=X, y=y, weight=np.ones(ROWS), intercept=False)


@pytest.mark.parametrize(("kind", "exact_sums"), [("logistic", False), ("linear", True)])
def test_a_rebuild_needs_at_most_what_is_reckoned_and_half_of_it(
    memory: Platform, kind: str, exact_sums: bool
) -> None:
    memory.register("m", wide(kind), kind, budget=10.0, exact_sums=exact_sums)
    event = memory.ordered("m", RefreshSize.REBUILD)
    ran = subprocess.run(
        [sys.executable, "-c", _REBUILD, memory.url, event.value().decode()],
        check=True,
        capture_output=True,
        text=True,
    )
    used, reckoned = int(ran.stdout), memory_of(memory.load())
    assert used <= reckoned <= 2 * used
