"""What the linear accuracy tables (3 and 4) have in common: one trial, all methods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from reproduction import ours, published
from reproduction.data import Array, covariance_root, gaussian_rows
from reproduction.experiment import generator
from reproduction.metrics import relative_error
from reproduction.records import Record, quartiles
from reproduction.retraining import LINEAR_RIDGE, LinearFit, gradient

INFLUENCE = "influence"
PRU_PUBLISHED = "pru as published"
PRU_PRINTED = "pru, T_ij as printed"
PRU = "pru"
NEWTON = "newton"
EXACT = "exact from dual rows"
METHODS = (INFLUENCE, PRU_PUBLISHED, PRU_PRINTED, PRU, NEWTON, EXACT)

RELATIVE_ERROR = "largest relative error to retraining"
LKO_ERROR = "relative error of LKO predictions"

_TRIALS_KEPT = 64


@lru_cache(maxsize=_TRIALS_KEPT)
def trial_covariance(seed: int, d: int, trial: int) -> Array:
    """Return the root of a trial's covariance: the same for all tables and cells."""
    return covariance_root(generator(seed, "covariance", d, trial), d)


def trial_rows(seed: int, n: int, d: int, trial: int) -> Array:
    """Return a trial's Gaussian matrix X~, the same for all tables and cells."""
    rng = generator(seed, "rows", n, d, trial)
    return gaussian_rows(rng, n, d, trial_covariance(seed, d, trial))


def answers(X: Array, y: Array, k: int, full: LinearFit, live: LinearFit) -> dict[str, Array]:
    """Return what each method says theta is without the first k rows.

    ``live`` lends its factor to the Newton step alone.
    """
    deleted = np.arange(k)
    theta = full.theta
    W = full.solve(X[:k].T).T
    hat_rows = W @ X.T
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


def prediction_errors(X: Array, y: Array, k: int, full: LinearFit, live: LinearFit) -> list[float]:
    """Return the relative error of Algorithm 2's predictions: corrected, and as printed."""
    deleted = np.arange(k)
    hat_rows = full.solve(X[:k].T).T @ X.T
    wanted = X[:k] @ live.theta
    return [
        relative_error(
            published.leave_k_out_predictions(y, deleted, hat_rows, as_printed=printed), wanted
        )
        for printed in (False, True)
    ]


@dataclass(slots=True)
class Tally:
    """Samples of one cell, by method and metric."""

    samples: dict[tuple[str, str], list[float]] = field(default_factory=dict)

    def add(self, method: str, metric: str, value: float) -> None:
        """Add a sample."""
        self.samples.setdefault((method, metric), []).append(value)

    def records(
        self,
        common: Record,
        paper: Mapping[tuple[str, str], float],
        medians: Sequence[str] = (),
        largest: Sequence[str] = (RELATIVE_ERROR,),
    ) -> list[Record]:
        """Return means (medians, largest) with quartiles, beside the paper's figures."""
        made = []
        for (method, metric), values in self.samples.items():
            take = np.max if metric in largest else np.median if metric in medians else np.mean
            made.append(
                common.model_copy(
                    update={
                        "method": method,
                        "metric": metric,
                        "value": float(take(values)),
                        "spread": quartiles(values),
                        "paper": paper.get((method, metric)),
                        "samples": len(values),
                    }
                )
            )
        return made


def blank(table: str, n: int, d: int, k: int, **where: float) -> Record:
    """Return a record that lacks method, metric and value."""
    return Record(
        table=table, d=d, n=n, k=k, method="", metric="", value=0.0, ridge=LINEAR_RIDGE,
        samples=0, p=where.get("p"), outlier=where.get("outlier"),
    )  # fmt: skip
