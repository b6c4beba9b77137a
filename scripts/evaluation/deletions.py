"""One deletion by every method of the engine, and retraining by code that is not the engine's."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from evaluation.data import Array, Index, Table
from lethe.engine.deletion.correction import Correction
from lethe.engine.deletion.downdate import leave_out
from lethe.engine.deletion.generation import at_rest
from lethe.engine.deletion.methods import method_named
from lethe.engine.deletion.methods.method import Step
from lethe.engine.fit.factor import factorise
from lethe.engine.fit.fit import fit
from lethe.engine.fit.objective import Kind, Objective, Rows, ridge_penalty
from lethe.engine.fit.precompute import dual_rows
from lethe.engine.refresh.polish import polish
from reproduction.retraining import LogisticRetraining, retrain

METHODS = ("none", "influence", "pru", "exact", "polished", "retrain")
POLISH_TARGET = 1e-6
"""Of |theta|: the certificate at which the polish stops."""


def retrained(table: Table, rows: Index) -> Array:
    """Return the minimiser on these rows, shape (d,), by `reproduction.retraining`."""
    X, y = table.X[rows], table.y[rows]
    if table.kind is Kind.LINEAR:
        return retrain(X, y, table.ridge).theta
    return LogisticRetraining(table.ridge).fit(X, y)


def answers(table: Table, kept: Index, gone: Index) -> Mapping[str, Array]:
    """Fit ``kept`` and ``gone``, delete ``gone``, and return theta (d,) of all but retraining."""
    d = table.X.shape[1]
    objective = Objective(
        table.kind, ridge_penalty(table.ridge, d, intercept=False, penalise_intercept=True)
    )
    index = np.concatenate([gone, kept])
    rows = Rows(table.X[index], table.y[index][:, None], np.ones(len(index)))
    theta = fit(objective, rows).theta
    factor = factorise(objective.hessian(rows, theta))
    W = dual_rows(factor, rows.X)
    k = len(gone)
    deleted, live = rows.take(slice(0, k)), rows.take(slice(k, None))
    error = objective.error(deleted, theta)
    left_out = leave_out(deleted.X, W[:k], error, objective.curvature(deleted, theta))
    moved = theta + left_out.delta
    step = Step(deleted.X, W[:k], lambda: error, moved, at_rest(theta, 0.0))
    published = {name: method_named(name).publish(step).theta for name in ("influence", "pru")}
    polished = polish(
        objective,
        live,
        W[k:],
        factor=factor,
        V=Correction.of(left_out.V),
        theta=moved,
        theta_b=theta,
        target=POLISH_TARGET * float(np.linalg.norm(moved)),
    ).theta
    found = {"none": theta, **published, "exact": moved, "polished": polished}
    return {name: one[:, 0] for name, one in found.items()}
