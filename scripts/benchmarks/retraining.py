"""Section ``retraining``: scikit-learn on the same data, next to the deletion, in turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from sklearn.linear_model import LogisticRegression, Ridge

from benchmarks.records import Record, Setting, derived, measured
from benchmarks.synthetic import RIDGE, matrices
from lethe.engine.deletion.methods import method_named
from lethe.engine.deletion.stream import begin, delete
from lethe.engine.fit.objective import Kind, Objective, Rows
from lethe.engine.fit.precompute import precompute

SECTION = "retraining"
METHODS = ("exact", "pru")


@dataclass(frozen=True, slots=True)
class Plan:
    """Size of the data; ``k`` rows are deleted."""

    n: int = 10_000
    d: int = 1000
    k: int = 10
    repeats: int = 16


QUICK = Plan(n=500, d=50, k=2, repeats=2)


def run(plan: Plan, seed: int) -> Iterable[Record]:
    """Retrain without the deleted rows, and delete them."""
    for kind in (Kind.LINEAR, Kind.LOGISTIC):
        X, y = matrices(kind, plan.n, plan.d, seed)
        rows = Rows(X, y, np.ones(plan.n))
        objective = Objective(kind, np.full(plan.d, RIDGE))
        started = time.perf_counter()
        made = precompute(objective, rows)
        once = time.perf_counter() - started
        generation, stream = begin(0, objective, made)
        gone = np.random.default_rng(seed).choice(plan.n, plan.k, replace=False)
        deleted, W = rows.take(gone), made.dual_rows[gone]
        live = np.delete(np.arange(plan.n), gone)
        X_live, y_live = X[live], y[live, 0]
        name, retrain = _retraining(kind)
        samples: dict[str, list[float]] = {"exact": [], "pru": [], name: []}
        for repeat in range(plan.repeats):
            samples[name].append(_seconds(lambda: retrain(X_live, y_live)))  # noqa: B023
            for method in METHODS if repeat % 2 == 0 else reversed(METHODS):
                chosen = method_named(method)
                step = lambda: delete(generation, stream, deleted, W, chosen)  # noqa: B023,E731
                samples[method].append(_seconds(step))
        setting: Setting = {"kind": kind.value, "n": plan.n, "d": plan.d, "k": plan.k}
        for who, seconds in samples.items():
            metric = "retraining" if who == name else "deletion step"
            yield measured(SECTION, {"who": who, **setting}, metric, "s", seconds)
        yield measured(
            SECTION, {"who": "precompute", **setting}, "precomputation, once", "s", [once]
        )
        for method in METHODS:
            ratio = float(np.median(samples[name]) / np.median(samples[method]))
            which: Setting = {"who": method, **setting}
            yield derived(SECTION, which, "retraining / deletion", "1", ratio, plan.repeats)


def _retraining(kind: Kind) -> tuple[str, Callable[..., object]]:
    if kind is Kind.LINEAR:
        ridge = Ridge(alpha=RIDGE, solver="cholesky", fit_intercept=False)
        return "Ridge(solver='cholesky')", ridge.fit
    logistic = LogisticRegression(C=1 / RIDGE, fit_intercept=False, max_iter=1000)
    return "LogisticRegression()", logistic.fit


def _seconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started
