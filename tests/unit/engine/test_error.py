from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.linalg import solve

from engine.error import (
    SENTINELS,
    ErrorKind,
    Sentinels,
    choose_sentinels,
    published_error,
    remainder,
    remainder_estimate,
    scale,
)
from engine.objective import norm
from engine.stream import Stream, distance_to_exact
from tests.families import families
from tests.oracles import distance
from tests.states import Started, started


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


def test_with_every_row_a_sentinel_the_estimate_is_the_newton_step() -> None:
    state, stream, everyone = _deleted("benign", "logistic")
    A = state.objective.hessian(everyone.rows, state.made.theta)
    g = state.objective.gradient(everyone.rows, stream.theta_exact)
    n = len(everyone.rows)
    estimate = remainder_estimate(state.generation, stream, everyone, n)
    assert estimate == pytest.approx(norm(solve(A, g)), rel=1e-6)
    assert 0.5 < estimate / distance(stream.theta_exact, state.retrained(12)) < 2


def test_a_linear_error_is_exact_and_carries_a_bound() -> None:
    state, stream, everyone = _deleted("benign", "linear")
    error = published_error(state.generation, stream, everyone, len(everyone.rows))
    assert error.kind is ErrorKind.EXACT
    assert error.bound == error.value
    assert error.relative == error.value / norm(stream.published)
    assert distance(stream.published, state.retrained(12)) <= error.value


def test_a_logistic_error_is_an_estimate_without_a_bound_until_it_is_certified() -> None:
    state, stream, everyone = _deleted("benign", "logistic")
    n = len(everyone.rows)
    estimate = published_error(state.generation, stream, everyone, n)
    assert (estimate.kind, estimate.bound) == (ErrorKind.ESTIMATE, None)
    assert estimate.value > distance_to_exact(stream)
    certified = published_error(state.generation, stream, everyone, n, certified=0.25)
    assert certified.kind is ErrorKind.CERTIFICATE
    assert certified.bound == certified.value == distance_to_exact(stream) + 0.25


def test_a_deleted_row_leaves_the_sentinels() -> None:
    _, _, everyone = _deleted("benign", "logistic")
    rest = everyone.without(frozenset({"0", "5", "unknown"}))
    assert len(rest.ids) == len(rest.rows) == len(rest.W) == len(everyone.ids) - 2
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
    assert choose_sentinels(10, seed=0) == list(range(10))
    chosen = choose_sentinels(5000, seed=3)
    assert chosen == sorted(set(chosen)) == choose_sentinels(5000, seed=3)
    assert len(chosen) == SENTINELS
    assert chosen != choose_sentinels(5000, seed=4)


def test_the_relative_error_has_a_floor() -> None:
    state, stream, everyone = _deleted("benign", "linear")
    nothing = replace(stream, published=np.zeros_like(stream.published))
    assert scale(state.generation, nothing) == 1e-3 * norm(state.generation.theta_b)
    error = published_error(state.generation, nothing, everyone, len(everyone.rows))
    assert error.relative == error.value / scale(state.generation, nothing)


def test_where_retraining_gives_zero_the_relative_error_is_the_absolute_one() -> None:
    state, stream, everyone = _deleted("benign", "linear")
    nothing = np.zeros_like(stream.published)
    origin = replace(state.generation, theta_b=nothing)
    at_zero = replace(stream, theta_exact=nothing, published=nothing)
    error = published_error(origin, at_zero, everyone, len(everyone.rows))
    assert 0 < error.value < 1e-9
    assert error.relative == error.value
