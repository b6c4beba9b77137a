"""Part 4: the paper's one-batch update, repeated as it stands: how far it diverges, and why.

The counter-example of the study. Nothing of the precomputation is updated: the hat matrix (here:
the dual rows it comes from) stays that of all rows, errors are taken at the drifting theta, and
each batch is projected by itself. The first batch is the published method exactly (with
T_ij = h_ij / (1 - h_ii), see `engine/deletion/downdate.py`).

A batch of one row multiplies theta by I + c x x^T / |x|^2 with c = h / (1 - h): it repeats the
step that the first deletion was right to take, in a model in which earlier rows still count. What
is wrong along x grows by 1 + c each time. Over a stream the logarithm grows with the sum of
h / (1 - h), shared among as many directions as the data have: the trace of X^T X over its norm,
their stable rank. So it needs high leverage (n near d), and few directions (anisotropy).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from lethe.engine.deletion.downdate import leave_out
from lethe.engine.deletion.span import extend_basis, project
from lethe.engine.fit.objective import Array
from lethe.engine.fit.precompute import Precomputation, precompute
from stream.data import Record, StreamData
from stream.retraining import relative_error, retrain

PART = "divergence"


@dataclass(frozen=True, slots=True)
class Plan:
    """The recipe's sizes; ``decades`` of the features' scales."""

    n: int = 500
    deletions: int = 400
    dimensions: tuple[int, ...] = (10, 25, 50, 100, 200, 300, 350, 400)
    decades: tuple[float, ...] = (0.0, 1.0, 2.0, 3.0)
    ridge: float = 1e-2
    seeds: int = 3
    k: int = 1


def repeated(data: StreamData, made: Precomputation, k: int) -> Iterator[tuple[int, Array]]:
    """Yield the number of rows deleted and theta, (d,), after each batch of k."""
    objective, rows = data.objective, data.rows
    theta, none = made.theta, np.empty((0, data.d))
    for start in range(0, len(data.order), k):
        batch = data.order[start : start + k]
        U = rows.take(batch)
        stale = objective.curvature(U, made.theta)
        left = leave_out(U.X, made.dual_rows[batch], objective.error(U, theta), stale)
        theta = theta + project(extend_basis(none, U.X), left.delta)
        yield start + len(batch), theta[:, 0]


def recipe(plan: Plan, d: int, decades: float, seed: int) -> StreamData:
    """Return the data: scales 10^0 .. 10^-decades, turned at random, y = X beta + noise."""
    rng = np.random.default_rng(seed)
    spread = np.logspace(0, -decades, d)
    X = (rng.standard_normal((plan.n, d)) * spread) @ np.linalg.qr(rng.standard_normal((d, d)))[0]
    y = X @ rng.standard_normal(d) / spread.mean() + rng.standard_normal(plan.n)
    order = rng.permutation(plan.n)[: plan.deletions]
    return StreamData("linear", "recipe", X, y, plan.ridge, order)


def run(plan: Plan, seed: int) -> Iterator[Record]:
    """Repeat the formula over the grid; one record a cell, the median over the seeds."""
    for decades in plan.decades:
        for d in plan.dimensions:
            cells = [_cell(plan, d, decades, seed + i) for i in range(plan.seeds)]
            errors, condition, predicted = np.array(cells).T
            yield {
                "part": PART,
                "kind": "linear",
                "data": f"scales over {decades:g} decades",
                "decades": decades,
                "n": plan.n,
                "d": d,
                "k": plan.k,
                "method": "naive",
                "deleted": plan.deletions,
                "true": float(np.median(errors)),
                "largest": float(errors.max()),
                "condition": float(np.median(condition)),
                "exponent": float(np.median(predicted)),
            }


def _cell(plan: Plan, d: int, decades: float, seed: int) -> tuple[float, float, float]:
    data = recipe(plan, d, decades, seed)
    made = precompute(data.objective, data.rows)
    theta: Array = made.theta[:, 0]
    for _, moved in repeated(data, made, plan.k):
        theta = moved
    h = np.einsum("ij,ij->i", data.X, made.dual_rows)[data.order]
    size = np.linalg.svd(data.X, compute_uv=False) ** 2
    stable_rank = float(size.sum() / size[0])
    exponent = float(np.sum(h / (1 - h))) / stable_rank
    condition = float((size[0] + plan.ridge) / (size[-1] + plan.ridge))
    return relative_error(theta, retrain(data, plan.deletions)), condition, exponent
