"""A second opinion never contradicts what is true, and finds what V has lost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lethe import LinearModel
from lethe.engine.deletion.generation import rounding, smallest_eigenvalue
from lethe.engine.error.drift import audit
from lethe.engine.error.second_opinion import Opinion, second_opinion
from lethe.engine.fit.factor import factorise
from lethe.engine.fit.objective import Rows


def opinion_of(model: Any) -> tuple[Opinion, float, float]:
    """Return the opinion on a linear model, and its claims: least lam_min, largest distance."""
    state = model._fitted
    rows = state.members.rows.take(state.members.live)
    objective, stream = state.generation.objective, state.stream
    gradient = objective.gradient(rows, stream.theta_exact)
    scale = objective.gradient_scale(rows, stream.theta_exact)
    opinion = second_opinion(rows, rows.weight, objective.penalty, state.factor, gradient, scale)
    return (
        opinion,
        smallest_eigenvalue(state.generation, stream),
        rounding(state.generation, stream),
    )


def typing_error(size: float) -> Any:
    """Return the smallest case: a row far out comes, rows with a rare feature go, it goes again."""
    rng = np.random.default_rng(23)
    X = rng.normal(size=(300, 5))
    X[8:, 4] = 0
    y = rng.normal(size=300)
    X[0, 4] = 1
    far = rng.normal(size=(1, 5)) * size
    model = LinearModel(ridge=1e-4, fit_intercept=False, rounded_features=0).fit(X, y)
    model.correct(far, y[9:10], ["9"], method="exact")
    model.delete([str(i) for i in range(8)], method="exact")
    model.correct(X[9:10], y[9:10], ["9"], method="exact")
    return model


@pytest.mark.parametrize("seed", range(20))
def test_it_lies_on_the_right_side_of_the_truth(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(5, 60)), int(rng.integers(1, 12))
    X = rng.normal(size=(n, d)) * 10.0 ** rng.uniform(-2, 2, d)
    rows = Rows(X, rng.normal(size=(n, 1)), rng.uniform(0.1, 2.0, n))
    penalty = np.full(d, 10.0 ** rng.uniform(-3, 1))
    A = (X.T * rows.weight) @ X + np.diag(penalty)
    stale = factorise(A + 0.5 * (X[:3].T @ X[:3]))  # three rows have left
    gradient = rng.normal(size=(d, 2))
    opinion = second_opinion(rows, rows.weight, penalty, stale, gradient, 1e-6)
    truth = np.linalg.solve(A, gradient)
    assert opinion.smallest >= np.linalg.eigvalsh(A)[0] * (1 - 1e-9)
    least = float(np.linalg.eigvalsh(A)[0])
    assert opinion.distance(least) <= np.linalg.norm(truth) * (1 + 1e-9)
    # What three rows have changed is found; what is as the factor has it need not be.
    assert opinion.smallest <= 3 * np.linalg.eigvalsh(A)[0]
    assert opinion.distance(least) >= 0.9 * float(np.linalg.norm(truth))


def test_nothing_to_find_is_no_fault() -> None:
    rows = Rows(np.eye(3), np.zeros((3, 1)), np.ones(3))
    factor = factorise(2 * np.eye(3))
    opinion = second_opinion(rows, rows.weight, np.ones(3), factor, np.zeros((3, 1)), 0.0)
    assert opinion.smallest >= 2.0
    assert opinion.distance(2.0) <= 0.0


def test_it_finds_what_v_has_lost() -> None:
    model = typing_error(1e5)
    assert model.error.kind == "unknown"
    state = model._fitted
    believed = state.stream._replace(v_trace=float(np.sum(state.stream.V.grown**2)))
    state.stream = believed  # as if V were taken at its word
    opinion, claimed, distance = opinion_of(model)
    assert opinion.smallest < claimed
    assert opinion.distance(1e-4) > 100 * distance
    rows = state.members.rows.take(state.members.live)
    W = state.members.W[state.members.live]
    drift = audit(state.generation, believed, state.factor, rows, W)
    assert drift.fault is not None


def test_a_stream_that_kept_its_digits_is_not_contradicted() -> None:
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(200, 12)), rng.normal(size=200)
    model = LinearModel(ridge=0.1, rounded_features=0).fit(X, y)
    model.delete([str(i) for i in range(60)], method="exact")
    model.insert(30 * X[:3], y[:3], ["a", "b", "c"], method="exact")
    model.delete(["a", "b"], method="exact")
    opinion, claimed, distance = opinion_of(model)
    assert opinion.smallest >= claimed > 0
    assert opinion.distance(claimed) <= distance
