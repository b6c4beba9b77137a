"""What the bounds cost: a deletion with an intercept beside one without, and a rebuild.

A library deletion is to cost nothing that grows with n; and dual rows that are made and measured so
that bounds hold are to make a rebuild little longer than that of another checkout.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from lethe.engine import LinearModel, LogisticModel
from tests.proof.bounds.figures import Figures

INTERCEPT = 1.2
"""Times that a deletion with an intercept may take as long as one without."""

SLOWER = 1.15
"""Times that a rebuild may take as long as the other checkout's."""

_ROWS, _COLUMNS, _DELETIONS = 100_000, 50, 300
_ROUNDS = 5

# Fitting a model is a rebuild; the library's face is the same in both engines.
_CHILD = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1] + "/src")
import numpy as np
from threadpoolctl import threadpool_limits
import lethe
assert Path(lethe.__file__).resolve().parents[2] == Path(sys.argv[1]).resolve()
rng = np.random.default_rng(0)
X = rng.standard_normal((10_000, 1_000))
y = X @ rng.standard_normal(1_000) + rng.standard_normal(10_000)
with threadpool_limits(1):
    for _ in range(3):
        begin = time.process_time()
        lethe.LinearModel(fit_intercept=False).fit(X, y)
        print(time.process_time() - begin)
"""


def deletions() -> dict[str, Figures]:
    """Return milliseconds of a single-row deletion at n = 100,000, d = 50: medians, in turns."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((_ROWS, _COLUMNS))
    margin = X @ rng.standard_normal(_COLUMNS) / 7.0
    found: dict[str, Figures] = {}
    for kind in (LinearModel, LogisticModel):
        noise = rng.logistic(size=_ROWS)
        y = margin + noise if kind is LinearModel else (margin + noise > 0) * 1.0
        models = [kind(fit_intercept=free).fit(X, y) for free in (False, True)]
        taken: list[list[float]] = [[], []]
        with threadpool_limits(1):
            for i in range(_DELETIONS):
                for model, times in zip(models, taken, strict=True):
                    begin = time.perf_counter()
                    model.delete([str(i)], method="exact")
                    times.append(1e3 * (time.perf_counter() - begin))
        without, free = (float(np.median(times)) for times in taken)
        ratio = free / without
        found[kind.kind.value] = {"without": without, "with_intercept": free, "ratio": ratio}
    return found


def too_dear(found: dict[str, Figures]) -> list[str]:
    """Return what takes longer than it may."""
    return [
        f"a {kind} deletion takes {row['ratio']:.2f} times as long with an intercept"
        for kind, row in found.items()
        if not float(row["ratio"] or 0.0) <= INTERCEPT
    ]


def rebuilds(directory: Path) -> Figures:
    """Return seconds of processor time of a rebuild at 10,000 x 1,000, here and there, in turns."""
    here = Path(__file__).resolve().parents[3]
    taken: dict[Path, list[float]] = {here: [], directory.resolve(): []}
    for _ in range(_ROUNDS):
        for root, times in taken.items():
            command = [sys.executable, "-c", _CHILD, str(root)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            times += [float(line) for line in done.stdout.split()]
    own, other = (float(np.median(times)) for times in taken.values())
    return {"here": own, "there": other, "ratio": own / other}
