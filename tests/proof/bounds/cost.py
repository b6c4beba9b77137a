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
from lethe.engine.preprocess.input.columns import Columns, Numeric, TargetEncode
from lethe.engine.preprocess.library.fitted import PreparedFit
from lethe.engine.preprocess.movement import conjugate_gradients
from tests.proof.bounds.figures import Figures
from tests.support.pipelines import draw_rows

INTERCEPT = 1.2
"""Times that a deletion with an intercept may take as long as one without."""

SLOWER = 1.15
"""Times that a rebuild may take as long as the other checkout's."""

_ROWS, _COLUMNS, _DELETIONS = 100_000, 50, 300
_ROUNDS = 5
_CORRECTED, _SOLVED = 30, 1e-9  # deletions measured, and how far a system is solved

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


def corrections() -> dict[str, Figures]:
    """Return what a correction of a model with preprocessing takes beside two triangular solves.

    Milliseconds of processor time, in turns with as many pairs of solves; the first of each finds
    the factor outside of the cache. ``products`` is the ratio of the matrix products alone that a
    correction cannot do without: the solves, and V and what moves the rows, twice each.
    """
    with threadpool_limits(1):
        return {
            f"{numbers}, {gaps} imputed, {encoded} encoded": _corrections(numbers, gaps, encoded)
            for numbers, gaps, encoded in ((80, 20, 10), (900, 100, 0), (800, 190, 10))
        }


def _corrections(numbers: int, gaps: int, encoded: int, n: int = 3000) -> Figures:
    rng = np.random.default_rng(0)
    columns: Columns = {
        **{f"number{i}": Numeric(impute=None) for i in range(numbers)},
        **{f"gap{i}": Numeric() for i in range(gaps)},
        **{f"post{i}": TargetEncode(standardise=True) for i in range(encoded)},
    }
    model = LinearModel(preprocess=columns, rounded_features=0)
    model.fit(draw_rows(columns, n, rng), rng.standard_normal(n))
    state, taken, solving, whole, multiplying = model.prepared, 0.0, 0.0, 0.0, 0.0
    assert isinstance(state, PreparedFit)
    count = needed = 0
    d = len(state.published)
    other, right = np.ones(2**23), rng.standard_normal((d, 1))  # fills the cache; a system
    enough = _SOLVED * float(np.linalg.norm(right))
    for i in range(_CORRECTED):
        other += 1.0
        begin = time.process_time()
        model.delete([str(i)], method="exact")
        whole += time.process_time() - begin
        needed += state.answer.corrections
        other += 1.0
        begin = time.process_time()
        settled = conjugate_gradients(
            state.generation, state.stream, state.factor, state.answer.moved[0], right, enough
        )
        taken, count = taken + time.process_time() - begin, count + settled.corrections
        other += 1.0
        begin = time.process_time()
        for _ in range(settled.corrections):
            state.factor.solve(right)
        solving += time.process_time() - begin
        V, Y = state.stream.V.array, state.answer.moved[0].crossed
        some = right[: len(Y)]
        other += 1.0
        begin = time.process_time()
        for _ in range(settled.corrections):
            state.factor.solve(right)
            V.T @ (V @ right)
            Y @ right
            Y.T @ some
        multiplying += time.process_time() - begin
    return {
        "features": d - 1,
        "moving": state.base.layout.moving,
        "a_deletion": needed / _CORRECTED,
        "correction_ms": 1e3 * taken / count,
        "two_solves_ms": 1e3 * solving / count,
        "ratio": taken / solving,
        "products": multiplying / solving,
        "deletion_ms": 1e3 * whole / _CORRECTED,
    }


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
