"""One battery that every method must pass, for both kinds and every family of data.

A check is a function of a method's name and a started family. What each method should publish is
computed by the oracles: retraining (linear) or the Newton step (logistic) without the rows, its
projection (SVD), or the influence step by a dense solve.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable

import numpy as np
import pytest
from scipy.linalg import solve

from engine.error import Sentinels, published_error
from engine.errors import InvalidData
from engine.methods import METHODS, method_named
from engine.stream import Stream, distance_to_exact
from tests.families import Array, families
from tests.oracles import distance, newton_from, projection, retrain
from tests.states import Started, singles, started

# What the data allow: at 1 - leverage = 3e-7 the step has lost seven of its digits.
TOLERANCE = {"injected_tiny_ridge": 1e-6}
CASES = [(kind, name) for kind in ("linear", "logistic") for name in families(kind)]


def _target(state: Started, gone: int) -> Array:
    """Return the answer without the first rows: exact for linear, Newton's for logistic."""
    data, live = state.data, state.data.live(gone)
    parts = (data.design[live], data.y[live], data.weight[live], data.penalty)
    if data.kind == "linear":
        return retrain("linear", *parts)
    return newton_from(state.made.theta, *parts)


def _expected(method: str, state: Started, gone: int) -> Array:
    theta_b, out = state.made.theta, state.rows.take(state.data.deleted[:gone])
    if method == "influence":
        A = state.objective.hessian(state.rows, theta_b)
        change: Array = solve(A, out.X.T @ state.objective.error(out, theta_b))
        return theta_b + change
    exact = _target(state, gone)
    if method == "exact":
        return exact
    return theta_b + projection(out.X, exact - theta_b)


def _gap(state: Started, one: Array, other: Array) -> float:
    scale = max(float(np.linalg.norm(state.made.theta)), float(np.linalg.norm(other)))
    return float(np.linalg.norm(one - other)) / scale


def _tolerance(state: Started, otherwise: float) -> float:
    return TOLERANCE.get(state.data.name, otherwise)


def _batchings(state: Started) -> list[list[int]]:
    k = len(state.data.deleted)
    return [[k], singles(state.data), [1, k - 3, 2], [k // 2, 0, k - k // 2]]


def check_publishes_what_the_paper_says(method: str, state: Started) -> None:
    for gone in (1, 2, len(state.data.deleted) // 2, len(state.data.deleted)):
        stream = state.delete_in([gone], method)
        gap = _gap(state, stream.published, _expected(method, state, gone))
        assert gap <= _tolerance(state, 1e-9), gone


def check_batching_does_not_matter(method: str, state: Started) -> None:
    whole, *others = (state.delete_in(sizes, method) for sizes in _batchings(state))
    for other in others:
        assert _gap(state, other.published, whole.published) <= _tolerance(state, 1e-9)
        assert _gap(state, other.theta_exact, whole.theta_exact) <= _tolerance(state, 1e-9)


def check_order_does_not_matter(method: str, state: Started) -> None:
    forward = state.delete(state.stream, state.data.deleted, method)
    backward = state.stream
    for row in state.data.deleted[::-1]:
        backward = state.delete(backward, np.array([row]), method)
    assert _gap(state, backward.published, forward.published) <= _tolerance(state, 1e-9)


def check_nothing_that_went_before_is_written_to(method: str, state: Started) -> None:
    half = len(state.data.deleted) // 2
    before = state.delete_in([half], method)
    arrays = (before.theta_exact, before.published, before.anchor, before.V.array, before.Q.array)
    kept = [array.copy() for array in arrays]
    sources = [array.copy() for array in (state.rows.X, state.rows.y, state.made.dual_rows)]
    state.delete(before, state.data.deleted[half:], method)
    for array, copy in zip(arrays, kept, strict=True):
        np.testing.assert_array_equal(array, copy)
    for array, copy in zip(
        (state.rows.X, state.rows.y, state.made.dual_rows), sources, strict=True
    ):
        np.testing.assert_array_equal(array, copy)


def check_deleting_nothing_changes_nothing(method: str, state: Started) -> None:
    assert state.delete(state.stream, np.empty(0, dtype=np.intp), method) is state.stream


def check_every_number_is_finite(method: str, state: Started) -> None:
    stream = state.delete_in(singles(state.data), method)
    for array in (stream.published, stream.theta_exact, stream.V.array, stream.Q.array):
        assert np.isfinite(array).all()
    assert np.isfinite([stream.rounding, stream.v_trace, stream.carried]).all()


def check_a_published_bound_is_true(method: str, state: Started) -> None:
    stream, bounded = state.stream, 0
    for i, row in enumerate(state.data.deleted):
        stream = state.delete(stream, np.array([row]), method)
        rows, W = state.live_rows(i + 1)
        sentinels = Sentinels(tuple(map(str, range(len(rows)))), rows, W)
        error = published_error(state.generation, stream, sentinels, len(rows))
        if error.bound is not None:
            bounded += 1
            assert distance(stream.published, state.retrained(i + 1)) <= error.bound
    assert bounded == (len(state.data.deleted) if state.data.kind == "linear" else 0)


def check_the_basis_is_orthonormal_and_spans_what_was_deleted(method: str, state: Started) -> None:
    stream: Stream = state.delete_in(singles(state.data), method)
    Q = stream.Q.array
    if method != "pru":
        assert len(Q) == 0
        return
    np.testing.assert_allclose(Q @ Q.T, np.eye(len(Q)), atol=1e-12)
    U = state.rows.X[state.data.deleted]
    assert len(Q) == np.linalg.matrix_rank(U)
    scale = np.linalg.norm(U, axis=1, keepdims=True) + 1e-300
    np.testing.assert_allclose((U - (U @ Q.T) @ Q) / scale, 0.0, atol=1e-11)


def check_injected_weight_comes_out(method: str, state: Started) -> None:
    column = state.data.injected
    if column is None or method == "influence":
        return
    for sizes in _batchings(state):
        stream = state.delete_in(sizes, method)
        before, after = state.made.theta[column], stream.theta_exact[column]
        assert np.abs(after).max() <= 1e-6 * np.abs(before).max()
        # The projection drops what the deleted rows do not span; here they span everything.
        if method == "exact" or len(stream.Q) == state.objective.d:
            published = stream.published[column]
            assert np.abs(published).max() <= 1e-6 * np.abs(before).max()


def check_the_exact_method_publishes_the_exact_answer(method: str, state: Started) -> None:
    stream = state.delete_in(singles(state.data), method)
    if method == "exact":
        assert distance_to_exact(stream) == 0.0
    else:
        assert distance_to_exact(stream) >= 0.0


CHECKS: list[Callable[[str, Started], None]] = [
    check
    for name, check in inspect.getmembers(sys.modules[__name__], inspect.isfunction)
    if name.startswith("check_")
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("kind", "name"), CASES)
def test_battery(check: Callable[[str, Started], None], method: str, kind: str, name: str) -> None:
    check(method, started(name, kind))


def test_an_unknown_method_is_refused_with_the_names_that_exist() -> None:
    with pytest.raises(InvalidData, match="choose one of pru, exact, influence"):
        method_named("magic")


def test_every_method_is_found_by_its_name() -> None:
    assert set(METHODS) == {"pru", "exact", "influence"}
    for name in METHODS:
        assert method_named(name).name == name
