"""Section ``rebuild``: the rate of the precomputation beside that of a matrix product; its memory.

Operations that the algorithm needs (a multiplication and an addition count as two):

    Hessian        n d^2          half of the symmetric product X^T S X
    factor         d^3 / 3
    dual rows      2 n d^2        two products with L^-1
    logistic       Hessian and factor once for each Newton step more

Nothing else is counted: the check for numbers that are not finite, refinement, the verified bound
of the smallest eigenvalue (a second factorisation), L^-1, what the dual rows are off by. They
are inside the timer. It is compared with the rate of X (n x d) times a d x d matrix, measured in
turns with it in the same run, twice: written to memory that was used before, which is the rate of
the arithmetic alone; and with a new result, which as the dual rows do must first get its memory
from the system (on a virtual machine that can take a tenth of the time and more).
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from kernel_measures.clock import in_turns
from kernel_measures.figures import Figure, Goal, timed
from lethe.engine.fit.fit import fit
from lethe.engine.fit.objective import Array, Kind, Objective, Rows
from lethe.engine.fit.precompute import precompute

SECTION = "rebuild"
OLD = "a product into used memory"
NEW = "a product with a new result"
_SHARE = Goal(">=", 0.8)
_MEMORY = Goal("<=", 1.3)
_ACCOUNT = Path("/proc/self/status")  # Linux; elsewhere memory is not measured
_MEASURE_MEMORY = Path(__file__).with_name("memory.py")


@dataclass(frozen=True, slots=True)
class Plan:
    """Sizes; n is ``rows_per_column`` times d."""

    d: Sequence[int] = (1000, 2000, 3000)
    logistic_d: Sequence[int] = (1000,)
    rows_per_column: int = 10
    repeats: int = 30


QUICK = Plan(d=(100, 200), logistic_d=(100,), repeats=3)


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


def run(plan: Plan, seed: int) -> Iterable[Figure]:
    """Time precomputations and matrix products in turns; then measure memory."""
    wanted = [(Kind.LINEAR, d) for d in plan.d] + [(Kind.LOGISTIC, d) for d in plan.logistic_d]
    for kind, d in wanted:
        n = plan.rows_per_column * d
        yield from _speed(kind, n, d, plan.repeats, seed)
        if _ACCOUNT.exists():
            yield _memory(kind, n, d, seed)


def operations(n: int, d: int, hessians: int) -> float:
    """Return what a precomputation needs; see the module."""
    return hessians * (n * d**2 + d**3 / 3) + 2 * n * d**2


def _speed(kind: Kind, n: int, d: int, repeats: int, seed: int) -> Iterable[Figure]:
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
    times = {name: timed(SECTION, setting, name, taken, "s") for name, taken in samples.items()}
    yield from times.values()
    once = times["precomputation"]
    reached = operations(n, d, hessians) / once.value / 1e9
    if kind is Kind.LOGISTIC:
        yield Figure(SECTION, setting, "Hessians", "1", hessians)
    yield Figure(SECTION, setting, "rate", "Gflop/s", reached, samples=once.samples)
    for name in (OLD, NEW):
        rate = 2 * n * d**2 / times[name].value / 1e9
        yield Figure(SECTION, setting, f"rate of {name}", "Gflop/s", rate, samples=once.samples)
        share = f"share of the rate of {name}"
        yield Figure(
            SECTION, setting, share, "1", reached / rate, samples=once.samples, goal=_SHARE
        )


def _hessians(objective: Objective, rows: Rows) -> int:
    """Return how many Hessians a fit forms."""
    counting = _Counting(objective.kind, objective.penalty)
    object.__setattr__(counting, "hessians", [])
    fit(counting, rows)
    return len(counting.hessians)


def _memory(kind: Kind, n: int, d: int, seed: int) -> Figure:
    """Measure the peak of a process of its own."""
    arguments = [kind.value, str(n), str(d), str(seed)]
    done = subprocess.run(
        [sys.executable, str(_MEASURE_MEMORY), *arguments], check=True, capture_output=True
    )
    grown = json.loads(done.stdout)["grown"]
    needed = 2 * 8 * n * d
    setting = {"kind": kind.value, "n": n, "d": d}
    metric = "peak memory over that of X and dual rows"
    return Figure(SECTION, setting, metric, "1", grown / needed, goal=_MEMORY)
