"""What the linear accuracy experiments share: a trial's rows, and the answers of all methods."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np

from paper import ours, published
from paper.data import ROWS_PER_COLUMN, Array, covariance_root, gaussian_rows
from paper.experiment import (
    Cell,
    Method,
    Metric,
    Printed,
    Progress,
    Sample,
    generator,
    run_trials,
    summarise,
)
from paper.records import Record
from paper.retraining import LINEAR_RIDGE, LinearFit, linear_gradient

METHODS = (
    Method.INFLUENCE,
    Method.PRU_PUBLISHED,
    Method.PRU_PRINTED,
    Method.PRU,
    Method.NEWTON,
    Method.EXACT,
)
PAPER_D = 1500

_TRIALS_KEPT = 64


@lru_cache(maxsize=_TRIALS_KEPT)
def _covariance(seed: int, d: int, trial: int) -> Array:
    return covariance_root(generator(seed, "covariance", d, trial), d)


def trial_rows(seed: int, n: int, d: int, trial: int) -> Array:
    """Return a trial's Gaussian matrix X~, the same for all tables and cells."""
    rng = generator(seed, "rows", n, d, trial)
    return gaussian_rows(rng, n, d, _covariance(seed, d, trial))


def answers(
    X: Array,
    y: Array,
    k: int,
    full: LinearFit,
    live: LinearFit,
    methods: Sequence[str] = METHODS,
    hat_rows: Array | None = None,
) -> dict[str, Array]:
    """Return what each method says theta is without the first k rows.

    ``live`` lends its factor to the Newton step alone.
    """
    theta, W = full.theta, (full.inverse @ X[:k].T).T
    model = X, y, theta, np.arange(k)
    H = W @ X.T if hat_rows is None else hat_rows
    pru = published.projective_residual_update
    calls: Mapping[str, Callable[[], Array]] = {
        Method.INFLUENCE: lambda: published.influence(*model, full.inverse),
        Method.PRU_PUBLISHED: lambda: pru(*model, H),
        Method.PRU_PRINTED: lambda: pru(*model, H, as_printed=True),
        Method.PRU: lambda: ours.pru_from_dual_rows(*model, W),
        Method.NEWTON: lambda: published.newton(
            theta, linear_gradient(X[k:], y[k:], theta, LINEAR_RIDGE), live.inverse
        ),
        Method.EXACT: lambda: ours.exact_from_dual_rows(*model, W),
    }
    return {method: calls[method]() for method in methods}


def run(
    table: str,
    trial: Callable[[Mapping[str, Any], int, int], list[Sample]],
    printed: Printed,
    medians: Sequence[str],
    cell: Cell,
    seed: int,
    progress: Progress,
) -> list[Record]:
    """Run all trials of a table; what the paper prints counts at the paper's d."""
    plan, d = cell.plan, cell.plan["d"]
    trials = run_trials(cell, seed, plan["trials"], partial(trial, plan, seed), progress)
    common = {"table": table, "n": ROWS_PER_COLUMN * d, "d": d, "ridge": LINEAR_RIDGE}
    return summarise(
        trials, common, printed if d == PAPER_D else {}, medians, (Metric.LARGEST_ERROR,)
    )
