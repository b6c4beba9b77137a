from __future__ import annotations

import numpy as np
import pytest

from lethe.engine.deletion.correction import Correction
from lethe.engine.fit.objective import Kind, Objective, Rows
from lethe.engine.fit.precompute import precompute
from lethe.engine.refresh.live import Live, Point, blocks_of, survey
from lethe.engine.refresh.polish import stale_inverse
from lethe.engine.refresh.proving import audit
from tests.support.families import families
from tests.support.states import Started, started

GONE = 12


def _surveyed(state: Started) -> tuple[Live, Point]:
    stream = state.delete_in([GONE], "exact")
    rows, W = state.live_rows(GONE)
    A = state.objective.hessian(rows, state.made.theta)
    return survey(
        state.objective,
        rows,
        W,
        stream.V,
        stale=stale_inverse(state.made.factor, stream.V),
        smallest=float(np.linalg.eigvalsh(A)[0]) * (1 - 1e-6),
        theta=stream.theta_exact,
        theta_b=state.generation.theta_b,
    )


@pytest.mark.parametrize("name", families("logistic"))
def test_the_reach_at_hand_is_a_bound_of_the_true_one(name: str) -> None:
    state = started(name, "logistic")
    live, _ = _surveyed(state)
    X = live.rows.X
    A = state.objective.hessian(live.rows, state.made.theta)
    true = float(np.sqrt(np.max(np.sum(X * np.linalg.solve(A, X.T).T, axis=1))))
    bound = live.reach
    assert live.least_reach == 0.0
    live.base_leverage()
    live.sharpen()
    assert live.least_reach <= live.reach
    assert live.sharp
    assert live.reach == pytest.approx(true, rel=1e-6)
    assert live.reach <= bound


@pytest.mark.parametrize("name", families("logistic"))
def test_the_first_pass_measures_what_the_objective_says(name: str) -> None:
    state = started(name, "logistic")
    live, point = _surveyed(state)
    X, objective = live.rows.X, live.objective
    scale = objective.gradient_scale(live.rows, point.theta)
    away = point.gradient - objective.gradient(live.rows, point.theta)
    assert float(np.abs(away).max()) <= 1e-14 * scale
    np.testing.assert_allclose(live.lengths, np.linalg.norm(X, axis=1), rtol=1e-14)
    np.testing.assert_allclose(live.margin_b, X @ state.generation.theta_b, rtol=1e-9, atol=1e-9)
    assert live.gradient_scale(point) == pytest.approx(scale, rel=1e-9)


def test_leverages_are_computed_only_where_they_decide() -> None:
    state = started("benign", "logistic")
    for target, decides in ((0.0, False), (float("inf"), True)):
        live, point = _surveyed(state)
        loose = live.reach
        certificate = audit(live, point, live.stale(point.gradient), target)
        assert live.sharp == decides
        if decides:
            assert certificate.bound is not None
            assert live.reach < loose


def test_blocks_of_rows_are_all_rows_once_and_fit_a_cache() -> None:
    for n, d in ((0, 3), (1, 3), (5000, 2), (5000, 1000), (100, 300_000)):
        rows = np.broadcast_to(0.0, (n, d))
        seen = [i for block in blocks_of(rows) for i in range(*block.indices(n))]
        assert seen == list(range(n))
        assert all(block.stop - block.start <= 1024 for block in blocks_of(rows))


def test_many_blocks_add_up_to_the_same_gradient() -> None:
    rng = np.random.default_rng(3)
    X = rng.standard_normal((2100, 5))
    y = (X[:, :1] > rng.standard_normal((2100, 1))).astype(np.float64)
    rows = Rows(X, y, np.ones(2100))
    objective = Objective(Kind.LOGISTIC, np.full(5, 0.5), rng.standard_normal((5, 1)))
    made = precompute(objective, rows)
    V = Correction.empty(5)
    theta = made.theta + 0.1
    _, point = survey(
        objective,
        rows,
        made.dual_rows,
        V,
        stale=stale_inverse(made.factor, V),
        smallest=made.factor.smallest,
        theta=theta,
        theta_b=made.theta,
    )
    np.testing.assert_allclose(point.gradient, objective.gradient(rows, theta), rtol=1e-11)
