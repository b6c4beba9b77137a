"""Section ``fit``: `LinearModel.fit` beside scikit-learn's Ridge on the same rows, and its parts.

A model is more than its parameters: dual rows, a factor whose smallest eigenvalue is proved, and a
bound of the error. Ridge's Gram matrix costs n d^2, and the dual rows twice that.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

import numpy as np
from sklearn.linear_model import Ridge

from harness.records import Record, at_most, timed
from harness.study import Section, Setup
from harness.synthetic import noisy_rows
from harness.timing import Call, in_turns
from lethe import LinearModel
from lethe.engine.fit.factor import lower_triangle
from lethe.engine.fit.objective import Kind, Objective, with_intercept
from lethe.engine.fit.precompute import dual_rows, precompute


@dataclass(frozen=True, slots=True)
class Plan:
    """Sizes."""

    n: int = 10_000
    d: int = 1000
    repeats: int = 30


def run(plan: Plan, setup: Setup) -> Iterable[Record]:
    """Time fits and their parts in turns."""
    rows = noisy_rows(Kind.LINEAR, plan.n, plan.d, setup.seed)
    y = rows.y[:, 0]
    design = type(rows)(with_intercept(rows.X), rows.y, rows.weight)
    penalty = np.r_[np.ones(plan.d), 0.0]
    objective = Objective(Kind.LINEAR, penalty)
    made = precompute(objective, design)
    A = objective.hessian(design, made.theta)
    calls: dict[str, Call] = {
        "scikit-learn's Ridge, cholesky": partial(Ridge(solver="cholesky").fit, rows.X, y),
        "LinearModel.fit": partial(LinearModel(rounded_features=0).fit, rows.X, y),
        "precomputation": partial(precompute, objective, design),
        "Gram matrix": partial(objective.hessian, design, made.theta),
        "factor": partial(lower_triangle, A),
        "dual rows": partial(dual_rows, made.factor, design.X),
    }
    samples = in_turns(calls, plan.repeats)
    setting = {"n": plan.n, "d": plan.d}
    times = {name: timed(setting, name, taken, "s") for name, taken in samples.items()}
    yield from times.values()
    ridge, fit, whole, *parts = (time.value for time in times.values())
    for name, seconds in (
        ("Gram matrix", parts[0]),
        ("factor and dual rows", parts[1] + parts[2]),
        ("proof of the bound", whole - sum(parts)),
        ("rows copied and checked", fit - whole),
    ):
        yield Record(setting, f"share of LinearModel.fit: {name}", "1", seconds / fit, plan.repeats)
    metric = "LinearModel.fit over scikit-learn's Ridge"
    yield Record(setting, metric, "1", fit / ridge, plan.repeats, goal=at_most(5.0))


SECTION = Section("fit", Plan(), Plan(n=500, d=50, repeats=3), run)
