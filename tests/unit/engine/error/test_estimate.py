from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.linalg import solve

from lethe.engine.deletion.generation import Stream, distance_to_exact
from lethe.engine.error.estimate import (
    ErrorKind,
    published_error,
    remainder,
    remainder_estimate,
    scale,
)
from lethe.engine.error.sentinels import SENTINELS, Sentinels, choose_sentinels, possible_parts
from lethe.engine.fit.objective import Rows, norm
from tests.support.families import CLASSES, families
from tests.support.oracles import distance
from tests.support.states import Started, started


def _all_rows_as_sentinels(state: Started, gone: int) -> Sentinels:
    rows, W = state.live_rows(gone)
    return Sentinels(tuple(str(i) for i in range(len(rows))), rows, W)


def _deleted(name: str, kind: str, gone: int = 12) -> tuple[Started, Stream, Sentinels]:
    state = started(name, kind)
    stream = state.delete_in([gone - 4, 4], "pru")
    return state, stream, _all_rows_as_sentinels(state, gone)


def test_the_live_gradient_is_exactly_the_sum_of_the_remainders() -> None:
    for name in families("logistic"):
        state, stream, everyone = _deleted(name, "logistic")
        measured = state.objective.gradient(everyone.rows, stream.theta_exact)
        summed = everyone.rows.X.T @ remainder(state.generation, stream, everyone.rows)
        # Rounding of the fit's own gradient is what remains.
        slack = 1e-13 * state.objective.gradient_scale(everyone.rows, stream.theta_exact)
        assert norm(measured - summed) <= slack, name


def test_with_every_row_a_sentinel_the_estimate_is_the_newton_step_and_its_true_stiffness() -> None:
    state, stream, everyone = _deleted("benign", "logistic")
    A = state.objective.hessian(everyone.rows, state.made.theta)
    H = state.objective.hessian(everyone.rows, stream.theta_exact)
    g = state.objective.gradient(everyone.rows, stream.theta_exact)
    step = solve(A, g)
    stiffness = float((step.T @ H @ step)[0, 0] / (step.T @ A @ step)[0, 0])
    n = len(everyone.rows)
    estimate = remainder_estimate(state.generation, stream, everyone, n)
    assert estimate == pytest.approx(norm(step) / stiffness, rel=1e-6)
    assert 0.8 < estimate / distance(stream.theta_exact, state.retrained(12)) < 1.25


@pytest.mark.parametrize("name", ["benign", *CLASSES])
def test_the_margin_is_the_samples_own_standard_error(name: str) -> None:
    state, stream, everyone = _deleted(name, "logistic")
    n, objective, X = len(everyone.rows), state.objective, everyone.rows.X
    pi = np.random.default_rng(2).uniform(0.4, 1.0, n)
    sampled = replace(everyone, pi=pi)
    rem = remainder(state.generation, stream, everyone.rows) / pi[:, None]
    classes = range(rem.shape[1])
    A = [objective.hessian(everyone.rows, state.made.theta[:, c : c + 1]) for c in classes]
    parts = np.stack([solve(A[c], (X * rem[:, c : c + 1]).T).T for c in classes], axis=2)
    T = parts.sum(axis=0)
    spread = np.sqrt(np.sum((1 - pi) * (np.sum(parts * T, axis=(1, 2)) / norm(T)) ** 2))
    changed = objective.curvatures(everyone.rows, stream.theta_exact)
    changed = changed - objective.curvatures(everyone.rows, state.made.theta)
    added = float(np.sum(changed / pi[:, None] * (X @ T) ** 2))
    stiffness = 1 + added / sum(float(T[:, c] @ A[c] @ T[:, c]) for c in classes)
    assert 0.5 < stiffness < 2.0
    expected = (norm(T) + spread) / stiffness
    estimate = remainder_estimate(state.generation, stream, sampled, n)
    assert estimate == pytest.approx(expected, rel=1e-6)
    assert spread > 0.01 * norm(T)


def test_a_linear_error_is_exact_and_carries_a_bound() -> None:
    state, stream, everyone = _deleted("benign", "linear")
    error = published_error(state.generation, stream, everyone, len(everyone.rows))
    assert error.kind is ErrorKind.EXACT
    assert error.bound == error.value
    assert error.value is not None
    assert error.relative == error.value / norm(stream.published)
    assert distance(stream.published, state.retrained(12)) <= error.value


def test_a_logistic_error_is_an_estimate_without_a_bound_until_it_is_certified() -> None:
    state, stream, everyone = _deleted("benign", "logistic")
    n = len(everyone.rows)
    estimate = published_error(state.generation, stream, everyone, n)
    assert (estimate.kind, estimate.bound) == (ErrorKind.ESTIMATE, None)
    assert estimate.value is not None
    assert estimate.value > distance_to_exact(stream)
    certified = published_error(state.generation, stream, everyone, n, certified=0.25)
    assert certified.kind is ErrorKind.CERTIFICATE
    assert certified.bound == certified.value == distance_to_exact(stream) + 0.25


def test_a_deleted_row_leaves_the_sentinels() -> None:
    _, _, everyone = _deleted("benign", "logistic")
    rest = everyone.without(frozenset({"0", "5", "unknown"}))
    assert len(rest.ids) == len(rest.rows) == len(rest.W) == len(everyone.ids) - 2
    drawn = replace(everyone, pi=np.linspace(0.5, 1.0, len(everyone.ids)))
    left = drawn.without(frozenset({"0"}))
    assert drawn.pi is not None
    assert left.pi is not None
    np.testing.assert_array_equal(left.pi, drawn.pi[1:])
    assert "5" not in rest.ids
    np.testing.assert_array_equal(rest.W[0], everyone.W[1])
    assert everyone.without(frozenset({"unknown"})) is everyone


def test_with_no_sentinel_left_the_error_is_not_said_to_be_nothing() -> None:
    state, stream, everyone = _deleted("benign", "logistic")
    none = everyone.without(frozenset(everyone.ids))
    value = remainder_estimate(state.generation, stream, none, len(everyone.rows))
    assert value == norm(stream.theta_exact - stream.theta_r) > 0
    assert value > distance(stream.theta_exact, state.retrained(12))


def test_sentinels_are_a_fixed_random_sample() -> None:
    few, certain = choose_sentinels(np.arange(10.0), seed=0)
    assert few.tolist() == list(range(10))
    assert (certain == 1.0).all()
    parts = np.random.default_rng(0).exponential(size=5000)
    chosen, pi = choose_sentinels(parts, seed=3)
    assert chosen.tolist() == sorted(set(chosen)) == choose_sentinels(parts, seed=3)[0].tolist()
    assert len(chosen) == len(pi) == SENTINELS
    assert chosen.tolist() != choose_sentinels(parts, seed=4)[0].tolist()


def test_a_sum_over_the_sample_is_without_bias_and_every_row_has_a_chance() -> None:
    rng = np.random.default_rng(1)
    parts = rng.standard_cauchy(2000) ** 2
    parts[:500] = 0.0  # nothing by what is known now, but drawn all the same
    values = parts * rng.uniform(0.5, 1.5, 2000) + 0.1
    sums, drawn = [], np.zeros(2000)
    for seed in range(400):
        places, pi = choose_sentinels(parts, seed)
        assert ((pi > 0) & (pi <= 1)).all()
        drawn[places] += 1
        sums.append(float(np.sum(values[places] / pi)))
    error = abs(np.mean(sums) - values.sum())
    assert error < 4 * np.std(sums) / np.sqrt(400)
    assert np.std(sums) < 0.05 * values.sum()  # alike, it would be far above the sum itself
    assert drawn[np.argmax(parts)] == 400  # the largest is taken for certain
    assert drawn[:500].sum() > 400 * 500 * 0.25 * SENTINELS / 2000 / 2


def test_where_nothing_tells_rows_apart_they_are_drawn_alike() -> None:
    for parts in (np.zeros(1024), np.full(1024, 3.0), np.full(1024, np.inf)):
        _, pi = choose_sentinels(parts, seed=0)
        np.testing.assert_allclose(pi, SENTINELS / 1024)


def test_what_a_row_can_add_is_its_dual_row_times_its_leverage() -> None:
    state, _, everyone = _deleted("high_leverage", "logistic")
    parts = possible_parts(state.generation, everyone.rows, everyone.W)
    s = state.objective.curvature(everyone.rows, state.made.theta)
    mean = state.objective.mean(everyone.rows.X @ state.made.theta)[:, 0]
    leverage = s * np.sum(everyone.rows.X * everyone.W, axis=1)
    skew = np.abs(1 - 2 * mean) + 0.1
    expected = np.linalg.norm(everyone.W, axis=1) * leverage * skew
    np.testing.assert_allclose(parts, expected, rtol=1e-12)
    assert (
        possible_parts(
            started("benign", "linear").generation,
            Rows(np.ones((3, 2)), np.ones((3, 1)), np.ones(3)),
            np.ones((3, 2)),
        )
        == 1.0
    ).all()


def test_the_relative_error_has_a_floor() -> None:
    state, stream, everyone = _deleted("benign", "linear")
    nothing = stream._replace(published=np.zeros_like(stream.published))
    assert scale(state.generation, nothing) == 1e-3 * norm(state.generation.theta_b)
    error = published_error(state.generation, nothing, everyone, len(everyone.rows))
    assert error.value is not None
    assert error.relative == error.value / scale(state.generation, nothing)


def test_where_retraining_gives_zero_the_relative_error_is_the_absolute_one() -> None:
    state, stream, everyone = _deleted("benign", "linear")
    nothing = np.zeros_like(stream.published)
    origin = replace(state.generation, theta_b=nothing)
    at_zero = stream._replace(theta_exact=nothing, published=nothing)
    error = published_error(origin, at_zero, everyone, len(everyone.rows))
    assert error.value is not None
    assert 0 < error.value < 1e-9
    assert error.relative == error.value
