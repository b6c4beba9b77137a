"""What the linear accuracy tables (3 and 4) have in common: one trial, all methods."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from reproduction import ours, published
from reproduction.data import ROWS_PER_COLUMN, Array, covariance_root, gaussian_rows
from reproduction.experiment import Cell, Progress, generator
from reproduction.metrics import relative_error
from reproduction.records import Record
from reproduction.retraining import LINEAR_RIDGE, LinearFit, gradient
from reproduction.tables import find, two_decimals, with_quartiles
from reproduction.trials import Sample, run_trials, summarise

INFLUENCE = "influence"
PRU_PUBLISHED = "pru as published"
PRU_PRINTED = "pru, T_ij as printed"
PRU = "pru"
NEWTON = "newton"
EXACT = "exact from dual rows"
METHODS = (INFLUENCE, PRU_PUBLISHED, PRU_PRINTED, PRU, NEWTON, EXACT)

RELATIVE_ERROR = "largest relative error to retraining"
LKO_ERROR = "relative error of LKO predictions"

PAPER_D = 1500

_TRIALS_KEPT = 64


@lru_cache(maxsize=_TRIALS_KEPT)
def trial_covariance(seed: int, d: int, trial: int) -> Array:
    """Return the root of a trial's covariance: the same for all tables and cells."""
    return covariance_root(generator(seed, "covariance", d, trial), d)


def trial_rows(seed: int, n: int, d: int, trial: int) -> Array:
    """Return a trial's Gaussian matrix X~, the same for all tables and cells."""
    rng = generator(seed, "rows", n, d, trial)
    return gaussian_rows(rng, n, d, trial_covariance(seed, d, trial))


def answers(
    X: Array, y: Array, k: int, full: LinearFit, live: LinearFit, hat_rows: Array | None = None
) -> dict[str, Array]:
    """Return what each method says theta is without the first k rows.

    ``live`` lends its factor to the Newton step alone.
    """
    deleted = np.arange(k)
    theta = full.theta
    W = full.solve(X[:k].T).T
    hat_rows = W @ X.T if hat_rows is None else hat_rows
    slope = gradient(X[k:], y[k:], theta, LINEAR_RIDGE)
    pru = published.projective_residual_update
    return {
        INFLUENCE: published.influence(X, y, theta, deleted, full.inverse),
        PRU_PUBLISHED: pru(X, y, theta, deleted, hat_rows),
        PRU_PRINTED: pru(X, y, theta, deleted, hat_rows, as_printed=True),
        PRU: ours.pru_from_dual_rows(X, y, theta, deleted, W),
        NEWTON: published.newton(theta, slope, live.inverse),
        EXACT: ours.exact_from_dual_rows(X, y, theta, deleted, W),
    }


def prediction_errors(
    X: Array, y: Array, k: int, hat_rows: Array, live: LinearFit
) -> dict[str, float]:
    """Return the relative error of Algorithm 2's predictions: corrected, and as printed."""
    deleted = np.arange(k)
    wanted = X[:k] @ live.theta
    return {
        method: relative_error(
            published.leave_k_out_predictions(y, deleted, hat_rows, as_printed=printed), wanted
        )
        for method, printed in ((PRU_PUBLISHED, False), (PRU_PRINTED, True))
    }


def blank(table: str, n: int, d: int) -> Record:
    """Return a record that lacks its setting, method, metric and value."""
    return Record(
        table=table, d=d, n=n, k=0, method="", metric="", value=0.0, ridge=LINEAR_RIDGE, samples=0
    )


Printed: TypeAlias = dict[tuple[int, float | None, float | None, str, str], float]
"""The paper's figures by k, p, outlier factor, method and metric."""


def run_linear(
    table: str,
    cell: Cell,
    seed: int,
    progress: Progress,
    trial: Callable[[Mapping[str, Any], int, int], list[Sample]],
    *,
    paper: Printed,
    medians: Sequence[str],
) -> list[Record]:
    """Run all trials of a table; ``paper`` counts at the paper's d."""
    plan, d = cell.plan, cell.plan["d"]
    trials = run_trials(
        cell, seed, plan["trials"], lambda number: trial(plan, seed, number), progress
    )
    printed = paper if d == PAPER_D else {}
    return summarise(
        trials,
        blank(table, ROWS_PER_COLUMN * d, d),
        printed,
        medians=medians,
        largest=(RELATIVE_ERROR,),
    )


def line(of: Sequence[Record], metric: str, methods: Sequence[str]) -> list[str]:
    """Return the cells of one setting: the paper's figure before each method that it prints."""
    cells = []
    for method in methods:
        record = find(of, method=method, metric=metric)
        if method in (INFLUENCE, PRU):
            cells.append("-" if record is None else two_decimals(record.paper))
        cells.append(with_quartiles(record))
    return cells
