"""Section ``what the bound costs``: of a precomputation and of a deletion, what the error is for.

Dual rows by two products with L^-1, beside one product with A^-1, which is faster and left bounds
below the truth (docs/error.md); measuring them; and of a deletion, what it adds to the residual.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.linalg.lapack import dpotri

from kernel_measures.clock import Call, in_turns
from kernel_measures.figures import Figure, Goal, timed
from kernel_measures.rebuilding import synthetic
from lethe.engine.deletion.downdate import leave_out
from lethe.engine.deletion.methods import method_named
from lethe.engine.deletion.residual import residual_added
from lethe.engine.deletion.stream import Generation, Stream, begin, delete, linearised_error
from lethe.engine.fit.factor import Factor
from lethe.engine.fit.objective import Array, Kind, Objective, Rows, mirror_lower
from lethe.engine.fit.precompute import BLOCK_ROWS, dual_error, dual_rows, precompute

SECTION = "what the bound costs"
_COST = Goal("<=", 1.15)


@dataclass(frozen=True, slots=True)
class Plan:
    """Sizes."""

    n: int = 10_000
    d: int = 1000
    k: Sequence[int] = (1, 10, 100)
    repeats: int = 30


QUICK = Plan(n=500, d=50, k=(1,), repeats=3)


def run(plan: Plan, seed: int) -> Iterable[Figure]:
    """Time the parts of a precomputation in turns, then those of deletions."""
    rows = synthetic(Kind.LINEAR, plan.n, plan.d, seed)
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
    median = {name: float(np.median(one.processor)) for name, one in samples.items()}
    for name, one in samples.items():
        yield timed(SECTION, setting, name, one, "s")
    cost = median["dual rows"] - median["dual rows, one product"] + median["dual rows measured"]
    ratio = median["precomputation"] / (median["precomputation"] - cost)
    what = "precomputation over the same without it"
    yield Figure(SECTION, setting, what, "1", ratio, samples=plan.repeats, goal=_COST)
    generation, stream = begin(0, objective, made)
    for k in plan.k:
        yield from _of_a_deletion(plan, generation, stream, rows.take(slice(0, k)), W[:k])


def _of_a_deletion(
    plan: Plan, generation: Generation, stream: Stream, rows: Rows, W: Array
) -> Iterable[Figure]:
    error = linearised_error(generation, stream, rows)
    left = leave_out(rows.X, W, error, rows.weight)
    exact = method_named("exact")
    theta = delete(generation, stream, rows, W, exact).stream.theta_exact
    lengths = np.linalg.norm(W, axis=1)
    calls: dict[str, Call] = {
        "deletion": partial(delete, generation, stream, rows, W, exact),
        "its residual": partial(residual_added, generation, stream, rows, left, theta, lengths),
    }
    if len(rows) == 1:  # one row has a step of its own, which does not take its residual apart
        del calls["its residual"]
    setting = {"n": plan.n, "d": plan.d, "k": len(rows)}
    for name, one in in_turns(calls, plan.repeats).items():
        yield timed(SECTION, setting, name, one)


def _one_product(factor: Factor, X: Array) -> Array:
    """Return X A^-1 by the inverse: what the engine did."""
    inverse, _ = dpotri(factor.L, lower=True)
    mirror_lower(inverse)
    W = np.empty(X.shape)
    for begin_ in range(0, len(X), BLOCK_ROWS):
        block = slice(begin_, begin_ + BLOCK_ROWS)
        np.matmul(X[block], inverse, out=W[block])
    return W
