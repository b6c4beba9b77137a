"""Rows that are out of range: with them no version of the model can be within its error budget.

The limit is not a multiple of what is usual: an outlier that the arithmetic can carry is a row like
any other, however far it lies from the rest. Two things are judged.

- The least error of any version with the rows (`engine.error.attainable`) is over the budget: not
  even a rebuild would help, and most such rebuilds would fail.
- The version that would result is over the budget although the last one was within, and these
  rows are the cause. Of a logistic model without preprocessing such a version is usual, and a
  refresh repairs it: there only the first counts.

Deletions are never judged.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lethe.consumers.commits.recovery.changed_rows import ChangedRows
from lethe.consumers.contract import codes
from lethe.consumers.deletions.decisions import GuardRefusal
from lethe.engine.error.attainable import BLAMED, LeastError, least_error
from lethe.engine.error.estimate import PublishedError
from lethe.engine.fit.counts import out_of_reach
from lethe.engine.fit.factor import Factor
from lethe.engine.fit.multinomial import SoftmaxObjective
from lethe.engine.fit.objective import Array, Kind
from lethe.engine.store.layout.state import ModelState

_DEVIATIONS = 10.0
"""How far a row may spread a column of a model with preprocessing, in the column's own deviations,
before it is the cause: as far as a standardised column may (`STATISTICS_MOVED`)."""


class Typical(NamedTuple):
    """What a generation was fitted on: each coordinate's mean and standard deviation, (d,)."""

    mean: Array
    deviation: Array


def least_error_of(state: ModelState, changed: ChangedRows, factor: Factor) -> LeastError:
    """Return the least error of a version with rows; 0 where it does not matter.

    Of a model with preprocessing it is not known: a rebuild scales rows anew.
    """
    config = state.meta.config
    if config.take_out_of_range or state.pipeline is not None or not len(changed.arriving.rows):
        return LeastError(0.0)
    enough = BLAMED * config.error_budget
    return least_error(
        state.generation, state.stream, factor, changed.arriving.rows, changed.arriving.W, enough
    )


def check_means(state: ModelState, changed: ChangedRows) -> None:
    """Refuse rows of a Poisson model for which it predicts a mean that cannot be computed with.

    Raises
    ------
    GuardRefusal
        `OUT_OF_RANGE`.
    """
    far = out_of_reach(changed.arriving.rows, state.generation.theta_b, state.stream.theta_r)
    if far is not None:
        raise GuardRefusal(
            codes.OUT_OF_RANGE,
            f"the model predicts for a row {far[1]}; nothing was changed. Rescale its features",
        )


def check_least(state: ModelState, changed: ChangedRows, factor: Factor, least: LeastError) -> None:
    """Refuse rows with which not even a rebuild is within the budget.

    Raises
    ------
    GuardRefusal
        `OUT_OF_RANGE`.
    """
    if least.relative > state.meta.config.error_budget:
        raise refusal(state, changed, factor, least.worst, least.relative)


def check_version(
    state: ModelState,
    changed: ChangedRows,
    factor: Factor,
    least: LeastError,
    error: PublishedError | None,
) -> None:
    """Refuse rows that take the version over the budget, if they are the cause.

    ``error``: of the exact answer with them; None if the step has no finite answer.

    Raises
    ------
    GuardRefusal
        `OUT_OF_RANGE`.
    """
    config = state.meta.config
    if config.take_out_of_range or not len(changed.arriving.rows) or state.meta.error.over:
        return
    if error is not None and not error.over(config.error_budget):
        return
    worst = least.worst
    if state.pipeline is not None:
        far = _spread(state, changed, factor).max(axis=1)
        worst = int(np.argmax(far))
        blamed = bool(far[worst] > _DEVIATIONS)
    else:
        blamed = config.kind is Kind.LINEAR and least.relative > BLAMED * config.error_budget
    if blamed:
        raise refusal(state, changed, factor, worst, None if error is None else error.relative)


def _spread(state: ModelState, changed: ChangedRows, factor: Factor) -> Array:
    """Return each column's deviation with each row alone added, over the column's own, k x d."""
    usual = typical_values(state, factor)
    away = np.abs(changed.arriving.rows.X - usual.mean) / np.sqrt(state.meta.rows_live + 1.0)
    spread: Array = np.zeros(away.shape)
    np.divide(away, usual.deviation, out=spread, where=usual.deviation > 0)
    return spread


def typical_values(state: ModelState, factor: Factor) -> Typical:
    """Return what the generation's rows were like, from its Hessian L L^T alone. Cost O(d^2).

    Sums over all rows, by their curvatures: no smallest or largest value, which would be one
    person's and would stay in receipts after that person's rows are erased. Without an intercept
    the mean is taken to be 0.
    """
    objective = state.generation.objective
    L, base = factor.block(0).L[: objective.d, : objective.d], objective.penalty
    if isinstance(objective, SoftmaxObjective):
        base = base + objective.gauge
    squares = np.maximum(np.einsum("ij,ij->i", L, L) - base, 0.0)
    mean, total = np.zeros(len(L)), float(max(state.meta.rows_live, 1))
    if state.meta.config.fit_intercept and squares[-1] > 0:
        total = float(squares[-1])
        mean = L @ L[-1] / total
        mean[-1] = 1.0  # the column of ones
    elif state.meta.config.kind.has_classes:
        total *= 0.25  # no curvature is larger, and no deviation smaller
    deviation = np.sqrt(np.maximum(squares / total - mean**2, 0.0))
    return Typical(mean, deviation)


def refusal(
    state: ModelState,
    changed: ChangedRows,
    factor: Factor,
    worst: int,
    error: float | None,
) -> GuardRefusal:
    """Return the refusal of rows, with the column of the worst one that stands out most.

    Many can read a receipt: of the row's own value it tells the size, to one digit.
    """
    config, row = state.meta.config, changed.arriving.rows.X[worst]
    features = slice(0, len(config.feature_names))
    usual = typical_values(state, factor)
    mean, deviation = usual.mean[features], usual.deviation[features]
    tiny = np.finfo(np.float64).tiny
    with np.errstate(over="ignore"):
        far = np.abs(row[features] - mean) / np.maximum(deviation, tiny)
    j = int(np.argmax(far)) if len(far) else 0
    target = float(np.max(np.abs(changed.arriving.rows.y[worst]), initial=0.0))
    weight = float(changed.arriving.rows.weight[worst])
    if target > np.max(np.abs(row), initial=0.0) and not error_is_stated(error):
        what = f"a target is about {target:.0e}, too large to compute with"
    elif len(far) and far[j] >= np.sqrt(weight):
        centre, scale = 0.0, 1.0
        if state.pipeline is not None:
            centre = float(state.pipeline.base.centre[j])
            scale = float(state.pipeline.base.scale[j])
        what = (
            f"column {config.feature_names[j]!r} has a value of about "
            f"{centre + scale * row[j]:.0e}; the model was fitted on values of "
            f"{centre + scale * mean[j]:.2g} ± {scale * deviation[j]:.2g} "
            "(mean and standard deviation)"
        )
    else:
        what = (
            f"a row has a weight of about {weight:.0e}; rows have a weight of 1 unless one is given"
        )
    least = f", which would be {error:.1g}" if error_is_stated(error) else ""
    return GuardRefusal(
        codes.OUT_OF_RANGE,
        f"{what}. With it the error could not be within the budget of "
        f"{config.error_budget:g}{least}; nothing was changed. Correct the value, or register the "
        "model with --take-out-of-range",
    )


def error_is_stated(error: float | None) -> bool:
    """Return whether an error is a finite number."""
    return error is not None and bool(np.isfinite(error))
