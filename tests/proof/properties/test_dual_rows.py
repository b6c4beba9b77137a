"""What dual rows are off by does to theta, and lam_min(A_t), against the live Hessian.

A step takes what its dual rows are off by to be `Generation.dual_error` times the lengths that they
were added up from, times a factor for leverage (`engine.deletion.residual.rounded`). That is
argued to first order in docs/error.md, and measured here: the sum of all such terms of a stream, in
extended precision, over lam_min(A_t). Over the lower bound that follows from V, which high leverage
lowers too, the factor is not even needed; over the ridge, which nothing lowers, it is.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy.linalg import solve_triangular

from lethe.engine import LinearModel
from lethe.engine.deletion.generation import current_dual_rows, inverse_error, smallest_eigenvalue
from lethe.engine.deletion.residual import dual_row_error
from lethe.engine.errors import LetheError
from lethe.engine.fit.objective import Array
from lethe.engine.fitted import Fitted
from tests.proof.bounds.case import Case, drawn
from tests.proof.bounds.families import HOSTILE

LOG = logging.getLogger(__name__)
SEEDS = 12


class _Needed(NamedTuple):
    """What the dual rows' errors do to theta, over what a bound allows for it."""

    by_trace: float
    """With the lower bound that follows from V alone, and no factor for leverage."""
    published: float
    """With `smallest_eigenvalue`, and the factor."""


class _Followed:
    """The sum over a generation's steps of R^T q, and what was allowed for it."""

    def __init__(self) -> None:
        self.sum: Any = 0.0
        self.without_leverage = 0.0
        self.allowed = 0.0

    def delete(self, model: LinearModel, ids: list[str]) -> _Needed:
        """Delete, and return what the sum does to theta, over what is allowed."""
        state = model._fitted
        places = state.members.places(tuple(ids))
        rows, W = state.members.rows.take(places), state.members.W[places]
        now, H = current_dual_rows(state.stream, rows.X, W), _hessian(state)
        off = rows.X.astype(np.longdouble) - now.astype(np.longdouble) @ H
        summed = np.linalg.norm(W, axis=1) + np.linalg.norm(now - W, axis=1)
        model.delete(ids, method="exact")
        state = model._fitted
        generation, stream = state.generation, state.stream
        theta = stream.theta_exact.astype(np.longdouble)
        q = rows.weight[:, None] * (rows.X.astype(np.longdouble) @ theta - rows.y)
        self.sum = self.sum + off.T @ q
        sizes = np.linalg.norm(q.astype(np.float64), axis=1)
        size = float(sizes @ summed)
        self.without_leverage += inverse_error(generation, stream) * size
        self.allowed += dual_row_error(generation, stream, stream.least_pivot) * size
        R = np.linalg.qr(_augmented(state), mode="r")
        half = solve_triangular(R, self.sum.astype(np.float64), trans="T")
        moved = float(np.linalg.norm(solve_triangular(R, half)))
        return _Needed(
            moved * _by_trace(state) / self.without_leverage,
            moved * smallest_eigenvalue(generation, stream) / self.allowed,
        )


def _by_trace(state: Fitted) -> float:
    """Return the lower bound of lam_min(A_t) that follows from V, 0 if there is none."""
    generation, stream = state.generation, state.stream
    norm_of_inverse = 1.0 / generation.smallest + stream.v_trace
    return max(1.0 / norm_of_inverse - inverse_error(generation, stream), 0.0)


def _hessian(state: Fitted) -> Any:
    rows = state.members.rows.take(state.members.live)
    X = rows.X.astype(np.longdouble)
    penalty = state.generation.objective.penalty.astype(np.longdouble)
    return X.T @ (rows.weight.astype(np.longdouble)[:, None] * X) + np.diag(penalty)


def _augmented(state: Fitted) -> Array:
    """Return the rows whose Gram matrix is the live Hessian."""
    rows = state.members.rows.take(state.members.live)
    penalty = state.generation.objective.penalty
    return np.vstack([np.sqrt(rows.weight)[:, None] * rows.X, np.diag(np.sqrt(penalty))])


def _claimed(state: Fitted) -> float:
    """Return the lower bound of lam_min(A_t), over what the singular values of the rows say.

    Those are off by a few eps of the largest: by little, even of a smallest one whose square has no
    digit left in the Hessian.
    """
    sizes = np.linalg.svd(_augmented(state), compute_uv=False)
    true = sizes[-1] + 10 * np.finfo(np.float64).eps * sizes[0]
    return float(smallest_eigenvalue(state.generation, state.stream) / true**2)


def _states(case: Case, rng: np.random.Generator) -> Iterator[tuple[float, float, float]]:
    model = LinearModel(
        case.ridge,
        fit_intercept=case.intercept,
        penalise_intercept=case.penalise_intercept,
        rounded_features=0,
    ).fit(case.X, case.y, sample_weight=case.weight)
    followed = _Followed()
    rest = [i for i in rng.permutation(len(case.X)).tolist() if i not in set(case.order)]
    order = [str(i) for i in (*case.order, *rest)][: -case.keep]
    while order:
        k = int(rng.integers(1, 5))
        ids, order = order[:k], order[k:]
        try:
            yield *followed.delete(model, ids), _claimed(model._fitted)
            if rng.random() < 0.2:
                model.refresh("compact")
                followed = _Followed()
        except LetheError:
            return  # refused: no step, and no bound


@pytest.mark.parametrize("name", list(HOSTILE.named))
def test_dual_rows_move_theta_no_further_than_is_allowed(
    name: str,
) -> None:
    found: list[tuple[float, float, float]] = []
    for seed in range(SEEDS):
        case, rng = drawn(name, HOSTILE.named[name], 700_000 + seed)
        try:
            found += list(_states(case, rng))
        except LetheError:
            continue  # the fit was refused
    by_trace, published, claimed = np.max(found, axis=0)
    needed = f"need {by_trace:.3f} and {published:.3f}"
    LOG.info("%-26s %4d states, %s, lam_min %.2f", name, len(found), needed, claimed)
    assert len(found) >= SEEDS
    assert by_trace <= 1.0
    assert published <= 1.0
    assert claimed <= 1.0
