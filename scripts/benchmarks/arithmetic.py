"""Sections ``step`` and ``retraining``: the engine alone, without store and log.

The precomputation of a step is synthetic, as in `kernel_measures.steps`; times are by the clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from sklearn.linear_model import LogisticRegression, Ridge

from benchmarks.synthetic import RIDGE, matrices
from harness.records import Record, Setting, measured, slope
from harness.study import Section, Setup
from harness.timing import in_turns, seconds
from kernel_measures.steps import METHODS, Deletion, renew_all, synthetic_deletion
from lethe.engine.deletion.stream import begin
from lethe.engine.fit.objective import Kind, Objective, Rows
from lethe.engine.fit.precompute import precompute

_LARGE_D = 1000  # from here on fixed costs no longer hide the slope

_NOTE_OF_STEP = """
`engine.deletion.stream.delete` alone. K rows were deleted in the generation before. The slope is
that of log time over log d for d > K; from d = 1000 on, fixed costs hide it less.
"""

_NOTE_OF_RETRAINING = """
scikit-learn retrains without the k rows (with its own tolerance, 1e-4 for the logistic model); the
engine deletes them. Each deletion is the first of its generation (K = 0) and comes after a
retraining, so with cold caches. The precomputation is made once for all deletions of a generation.
"""


@dataclass(frozen=True, slots=True)
class StepPlan:
    """Which steps are timed, and how often each."""

    d: Sequence[int] = (250, 500, 1000, 2000, 4000)
    k: Sequence[int] = (1, 5, 10, 25, 50, 100)
    k_with_history: Sequence[int] = (1, 10, 100)
    K: Sequence[int] = (0, 250, 1000)
    repeats: int = 40

    def settings(self) -> list[tuple[int, int, Sequence[int]]]:
        """Return K, d and the sizes of batches that are timed there."""
        return [(K, d, self.k if K == 0 else self.k_with_history) for K in self.K for d in self.d]


def steps(plan: StepPlan, setup: Setup) -> Iterable[Record]:
    """Time all steps, the methods in turns; then fit the slopes in d of each method, k and K."""
    medians: dict[tuple[str, int, int], dict[int, float]] = {}
    for K, d, sizes in plan.settings():
        rng = np.random.default_rng((setup.seed, K, d))
        largest = {m: synthetic_deletion(rng, d, K, max(sizes), m) for m in METHODS}
        for k in sizes:
            calls = {method: deletion.first(k) for method, deletion in largest.items()}
            samples = in_turns(calls, plan.repeats, fresh=partial(renew_all, calls.values()))
            for method, taken in samples.items():
                setting: Setting = {"method": method, "d": d, "k": k, "K": K}
                record = measured(setting, "step time", "us", [1e6 * s for s in taken.wall])
                medians.setdefault((method, k, K), {})[d] = record.value
                yield record
    for (method, k, K), times in medians.items():
        above = [d for d in times if d > K]
        large = [d for d in above if d >= _LARGE_D]
        for metric, chosen in (
            ("slope in d", above),
            (f"slope in d, d >= {_LARGE_D}", large if len(large) < len(above) else []),
        ):
            if len(chosen) > 1:
                steepness = slope(chosen, [times[d] for d in chosen])
                setting = {"method": method, "k": k, "K": K}
                yield Record(setting, metric, "1", steepness, len(chosen))


@dataclass(frozen=True, slots=True)
class RetrainingPlan:
    """Size of the data; ``k`` rows are deleted."""

    n: int = 10_000
    d: int = 1000
    k: int = 10
    repeats: int = 16


def retraining(plan: RetrainingPlan, setup: Setup) -> Iterable[Record]:
    """Retrain without the deleted rows, and delete them."""
    for kind in (Kind.LINEAR, Kind.LOGISTIC):
        X, y = matrices(kind, plan.n, plan.d, setup.seed)
        rows = Rows(X, y, np.ones(plan.n))
        objective = Objective(kind, np.full(plan.d, RIDGE))
        started = time.perf_counter()
        made = precompute(objective, rows)
        once = time.perf_counter() - started
        generation, stream = begin(0, objective, made)
        gone = np.random.default_rng(setup.seed).choice(plan.n, plan.k, replace=False)
        deletions = {
            method: Deletion(generation, stream, rows.take(gone), made.dual_rows[gone], method)
            for method in METHODS
        }
        live = np.delete(np.arange(plan.n), gone)
        name, fit = _scikit_learn(kind)
        retrain = partial(fit, X[live], y[live, 0])
        samples: dict[str, list[float]] = {method: [] for method in (*METHODS, name)}
        for repeat in range(plan.repeats):
            samples[name].append(seconds(retrain))
            for method in METHODS if repeat % 2 == 0 else reversed(METHODS):
                samples[method].append(seconds(deletions[method]))
        setting: Setting = {"kind": kind.value, "n": plan.n, "d": plan.d, "k": plan.k}
        for who, taken in samples.items():
            metric = "retraining" if who == name else "deletion step"
            yield measured({"who": who, **setting}, metric, "s", taken)
        yield measured({"who": "precompute", **setting}, "precomputation, once", "s", [once])
        for method in METHODS:
            ratio = float(np.median(samples[name]) / np.median(samples[method]))
            yield Record(
                {"who": method, **setting}, "retraining / deletion", "1", ratio, plan.repeats
            )


def _scikit_learn(kind: Kind) -> tuple[str, Callable[..., object]]:
    if kind is Kind.LINEAR:
        ridge = Ridge(alpha=RIDGE, solver="cholesky", fit_intercept=False)
        return "Ridge(solver='cholesky')", ridge.fit
    logistic = LogisticRegression(C=1 / RIDGE, fit_intercept=False, max_iter=1000)
    return "LogisticRegression()", logistic.fit


STEP = Section(
    "step",
    _NOTE_OF_STEP,
    StepPlan(),
    StepPlan(d=(250, 500), k=(1, 10), k_with_history=(1,), K=(0, 250), repeats=5),
    steps,
)
RETRAINING = Section(
    "retraining",
    _NOTE_OF_RETRAINING,
    RetrainingPlan(),
    RetrainingPlan(n=500, d=50, k=2, repeats=2),
    retraining,
)
