"""Sections ``rebuild`` and ``what the bound costs``: the precomputation, its rate and its memory.

Operations that the algorithm needs (a multiplication and an addition count as two):

    Hessian        n d^2          half of the symmetric product X^T S X
    factor         d^3 / 3
    dual rows      2 n d^2        two products with L^-1
    logistic       Hessian and factor once for each Newton step more

Nothing else is counted: the check for numbers that are not finite, refinement, the verified bound
of the smallest eigenvalue (a second factorisation), L^-1, what the dual rows are off by. They
are inside the timer. Its rate is compared with that of X (n x d) times a d x d matrix, measured in
turns with it in the same run, twice: written to memory that was used before, which is the rate of
the arithmetic alone; and with a new result, which as the dual rows do must first get its memory
from the system (on a virtual machine that can take a tenth of the time and more).

What the bound costs: dual rows by two products with L^-1, beside one product with A^-1, which is
faster and left bounds below the truth (docs/error.md); measuring them; and of a deletion, what it
adds to the residual.

    python -m kernel_measures.rebuilding linear N D SEED

precomputes once and prints by how much the process's resident memory grew at its peak.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from scipy.linalg.lapack import dpotri
from threadpoolctl import threadpool_limits

from harness.records import Record, at_least, at_most, timed
from harness.results import ROOT
from harness.study import Section, Setup
from harness.timing import Call, in_turns
from lethe.engine.deletion.downdate import leave_out
from lethe.engine.deletion.methods import method_named
from lethe.engine.deletion.residual import rounded
from lethe.engine.deletion.stream import Generation, Stream, begin, delete, linearised_error
from lethe.engine.fit.factor import Factor
from lethe.engine.fit.fit import fit
from lethe.engine.fit.objective import Array, Kind, Objective, Rows, mirror_lower
from lethe.engine.fit.precompute import BLOCK_ROWS, dual_error, dual_rows, precompute

OLD = "a product into used memory"
NEW = "a product with a new result"
_ACCOUNT = Path("/proc/self/status")  # Linux; elsewhere memory is not measured

_NOTE = """
Operations counted: n d^2 (Hessian) + d^3 / 3 (factor) + 2 n d^2 (dual rows); for a logistic model
Hessian and factor once for each Hessian formed. All else is in the timer and not in the count:
checks, refinement, the verified eigenvalue bound (a second factorisation), L^-1, what the dual rows
are off by, rounding scales. The product is that of X and a d x d matrix. Into memory that was used
before its rate is that of the arithmetic alone; with a new result it gets its memory from the
system first, as the dual rows must. Memory is the growth of a process of its own at its peak, X
counted.
"""

_NOTE_OF_BOUND = """
Dual rows are two products with L^-1 and are measured with four random directions; one product with
A^-1 is faster, but what it rounds a deletion magnifies, and bounds were below the truth
([error.md](../docs/error.md#how-it-is-judged)). The last ratio is a
precomputation over itself less that difference. Of a deletion, `its residual` is what it takes to
know what rounding has added; of one row it is not computed apart.
"""


@dataclass(frozen=True, slots=True)
class Plan:
    """Sizes; n is ``rows_per_column`` times d."""

    d: Sequence[int] = (1000, 2000, 3000)
    logistic_d: Sequence[int] = (1000,)
    rows_per_column: int = 10
    repeats: int = 30


class _Counting(Objective):
    """An objective that counts the Hessians that were asked for."""

    __slots__ = ("hessians",)

    hessians: list[int]

    def hessian(self, rows: Rows, theta: Array) -> Array:
        """Return the Hessian."""
        self.hessians.append(len(rows))
        return super().hessian(rows, theta)


def synthetic(kind: Kind, n: int, d: int, seed: int) -> Rows:
    """Return n rows of a noisy linear or logistic model."""
    rng = np.random.default_rng((seed, d))
    X = rng.standard_normal((n, d))
    margin = X @ rng.standard_normal((d, 1)) / np.sqrt(d)
    if kind is Kind.LINEAR:
        return Rows(X, margin + rng.standard_normal((n, 1)), np.ones(n))
    y = (rng.random((n, 1)) < 1.0 / (1.0 + np.exp(-2.0 * margin))).astype(np.float64)
    return Rows(X, y, np.ones(n))


def run(plan: Plan, setup: Setup) -> Iterable[Record]:
    """Time precomputations and matrix products in turns; then measure memory."""
    wanted = [(Kind.LINEAR, d) for d in plan.d] + [(Kind.LOGISTIC, d) for d in plan.logistic_d]
    for kind, d in wanted:
        n = plan.rows_per_column * d
        yield from _speed(kind, n, d, plan.repeats, setup.seed)
        if _ACCOUNT.exists():
            yield _memory(kind, n, d, setup.seed)


def operations(n: int, d: int, hessians: int) -> float:
    """Return what a precomputation needs; see the module."""
    return hessians * (n * d**2 + d**3 / 3) + 2 * n * d**2


def _speed(kind: Kind, n: int, d: int, repeats: int, seed: int) -> Iterable[Record]:
    rows = synthetic(kind, n, d, seed)
    objective = Objective(kind, np.ones(d))
    hessians = _hessians(objective, rows)
    square, product = np.random.default_rng(seed).standard_normal((d, d)), np.zeros((n, d))
    samples = in_turns(
        {
            OLD: partial(np.matmul, rows.X, square, out=product),
            NEW: partial(np.matmul, rows.X, square),
            "precomputation": partial(precompute, objective, rows),
        },
        repeats,
    )
    setting = {"kind": kind.value, "n": n, "d": d}
    times = {name: timed(setting, name, taken, "s") for name, taken in samples.items()}
    yield from times.values()
    once = times["precomputation"]
    reached = operations(n, d, hessians) / once.value / 1e9
    if kind is Kind.LOGISTIC:
        yield Record(setting, "Hessians", "1", hessians)
    yield Record(setting, "rate", "Gflop/s", reached, once.samples)
    for name in (OLD, NEW):
        rate = 2 * n * d**2 / times[name].value / 1e9
        share = reached / rate
        yield Record(setting, f"rate of {name}", "Gflop/s", rate, once.samples)
        yield Record(
            setting, f"share of the rate of {name}", "1", share, once.samples, goal=at_least(0.8)
        )


def _hessians(objective: Objective, rows: Rows) -> int:
    """Return how many Hessians a fit forms."""
    counting = _Counting(objective.kind, objective.penalty)
    object.__setattr__(counting, "hessians", [])
    fit(counting, rows)
    return len(counting.hessians)


def _memory(kind: Kind, n: int, d: int, seed: int) -> Record:
    """Measure the peak of a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "kernel_measures.rebuilding", kind.value, str(n), str(d), str(seed)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "scripts")},
        check=True,
        capture_output=True,
    )
    setting = {"kind": kind.value, "n": n, "d": d}
    metric = "peak memory over that of X and dual rows"
    grown = int(done.stdout) / (2 * 8 * n * d)
    return Record(setting, metric, "1", grown, goal=at_most(1.3))


def _status(name: str) -> int:
    """Return a size from the system's account of this process, in bytes.

    (``ru_maxrss`` would not do: on Linux it begins with the size of the process that began this.)
    """
    lines = _ACCOUNT.read_text().splitlines()
    (line,) = (line for line in lines if line.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024


def _print_memory(kind: str, n: int, d: int, seed: int) -> None:
    """Precompute, and print by how much memory grew; X is counted."""
    before = _status("VmRSS")  # with everything imported
    rows = synthetic(Kind(kind), n, d, seed)
    with threadpool_limits(1):
        made = precompute(Objective(Kind(kind), np.ones(d)), rows)
    grown = _status("VmHWM") - before
    del made
    print(grown)


@dataclass(frozen=True, slots=True)
class BoundPlan:
    """Sizes."""

    n: int = 10_000
    d: int = 1000
    k: Sequence[int] = (1, 10, 100)
    repeats: int = 30


def cost_of_bound(plan: BoundPlan, setup: Setup) -> Iterable[Record]:
    """Time the parts of a precomputation in turns, then those of deletions."""
    rows = synthetic(Kind.LINEAR, plan.n, plan.d, setup.seed)
    objective = Objective(Kind.LINEAR, np.ones(plan.d))
    made = precompute(objective, rows)
    factor, theta, W = made.factor, made.theta, made.dual_rows
    setting = {"n": plan.n, "d": plan.d}
    calls: dict[str, Call] = {
        "precomputation": partial(precompute, objective, rows),
        "dual rows": partial(dual_rows, factor, rows.X),
        "dual rows, one product": partial(_one_product, factor, rows.X),
        "dual rows measured": partial(dual_error, objective, rows, theta, W, factor.largest),
    }
    samples = in_turns(calls, plan.repeats)
    times = {name: timed(setting, name, taken, "s") for name, taken in samples.items()}
    yield from times.values()
    whole, two, one, check = (time.value for time in times.values())
    ratio = whole / (whole - (two - one + check))
    metric = "precomputation over the same without it"
    yield Record(setting, metric, "1", ratio, plan.repeats, goal=at_most(1.15))
    generation, stream = begin(0, objective, made)
    for k in plan.k:
        yield from _of_a_deletion(plan, generation, stream, rows.take(slice(0, k)), W[:k])


def _of_a_deletion(
    plan: BoundPlan, generation: Generation, stream: Stream, rows: Rows, W: Array
) -> Iterable[Record]:
    error = linearised_error(generation, stream, rows)
    left = leave_out(rows.X, W, error, rows.weight)
    exact = method_named("exact")
    theta = delete(generation, stream, rows, W, exact).stream.theta_exact
    lengths = np.linalg.norm(W, axis=1)
    calls: dict[str, Call] = {
        "deletion": partial(delete, generation, stream, rows, W, exact),
        "its residual": partial(rounded, generation, stream, rows, left, theta, lengths),
    }
    if len(rows) == 1:  # one row has a step of its own, which does not take its residual apart
        del calls["its residual"]
    setting = {"n": plan.n, "d": plan.d, "k": len(rows)}
    for name, taken in in_turns(calls, plan.repeats).items():
        yield timed(setting, name, taken)


def _one_product(factor: Factor, X: Array) -> Array:
    """Return X A^-1 by the inverse: what the engine did."""
    inverse, _ = dpotri(factor.L, lower=True)
    mirror_lower(inverse)
    W = np.empty(X.shape)
    for first in range(0, len(X), BLOCK_ROWS):
        block = slice(first, first + BLOCK_ROWS)
        np.matmul(X[block], inverse, out=W[block])
    return W


SECTION = Section("rebuild", _NOTE, Plan(), Plan(d=(100, 200), logistic_d=(100,), repeats=3), run)
BOUND_SECTION = Section(
    "what the bound costs",
    _NOTE_OF_BOUND,
    BoundPlan(),
    BoundPlan(n=500, d=50, k=(1,), repeats=3),
    cost_of_bound,
)

if __name__ == "__main__":
    _print_memory(sys.argv[1], *(int(argument) for argument in sys.argv[2:]))
