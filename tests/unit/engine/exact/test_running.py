"""Rows come and go: the answer stays that of the remaining rows, and so does what is proved."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from copy import deepcopy
from fractions import Fraction

import numpy as np
import pytest

from lethe.engine.exact.rounding import Inverse, NormalEquations
from lethe.engine.exact.rows import MOST, ChangedRows
from lethe.engine.exact.running import Solution, Warm, _leverage
from lethe.engine.exact.sums import Sums
from lethe.engine.fit.objective import Array, Rows
from tests.support.in_fractions import (
    Matrix,
    hessian,
    in_fractions,
    is_definite,
    nearest,
    rounded_minimiser,
    solve,
    sums,
)


def _rows(X: Array, y: Array, weight: Array | None = None) -> Rows:
    targets = y if y.ndim == 2 else y[:, np.newaxis]
    return Rows(X, targets, np.ones(len(X)) if weight is None else weight)


def _joined(*parts: Rows) -> Rows:
    return Rows(
        np.vstack([part.X for part in parts]),
        np.vstack([part.y for part in parts]),
        np.concatenate([part.weight for part in parts]),
    )


def _solution(rows: Rows, penalty: Array) -> Solution:
    return Solution.of(Sums.of(rows), penalty)


def _drawn(rng: np.random.Generator, n: int, d: int, m: int = 1) -> Rows:
    return _rows(rng.normal(size=(n, d)), rng.normal(size=(n, m)))


def _ordinary(rng: np.random.Generator, k: int, d: int) -> Rows:
    return _drawn(rng, k, d, 2)


def _collinear(rng: np.random.Generator, k: int, d: int) -> Rows:
    X = rng.normal(size=(k, 1)) + 10.0 ** -rng.uniform(1, 6) * rng.normal(size=(k, d))
    return _rows(X, rng.normal(size=(k, 2)))


def _badly_scaled(rng: np.random.Generator, k: int, d: int) -> Rows:
    return _rows(rng.normal(size=(k, d)) * 10.0 ** np.linspace(-6, 6, d), rng.normal(size=(k, 2)))


def _weighted(rng: np.random.Generator, k: int, d: int) -> Rows:
    weight = 10.0 ** rng.uniform(-8, 8, k) * (rng.random(k) < 0.9)
    return _rows(rng.normal(size=(k, d)), rng.normal(size=(k, 2)), weight)


def _too_long(rng: np.random.Generator, k: int, d: int) -> Rows:
    X = rng.normal(size=(k, d)) * np.where(rng.random((k, 1)) < 0.1, 1e6, 1.0)
    return _rows(X, rng.normal(size=(k, 2)))


def _duplicates(rng: np.random.Generator, k: int, d: int) -> Rows:
    X = np.repeat(rng.integers(-2, 3, size=(2, d)), (k + 1) // 2, axis=0)[:k].astype(np.float64)
    return _rows(X, rng.integers(0, 3, size=(k, 2)).astype(np.float64))


def _sparse(rng: np.random.Generator, k: int, d: int) -> Rows:
    return _rows(rng.normal(size=(k, d)) * (rng.random((k, d)) < 0.2), rng.normal(size=(k, 2)))


FAMILIES: tuple[Callable[[np.random.Generator, int, int], Rows], ...] = (
    _ordinary,
    _collinear,
    _badly_scaled,
    _weighted,
    _too_long,
    _duplicates,
    _sparse,
)


def _walk(
    family: Callable[[np.random.Generator, int, int], Rows], seed: int, changes: int
) -> Iterator[tuple[Rows, Array, Solution]]:
    """Yield the live rows, the penalty and the solution after each of some changes."""
    rng = np.random.default_rng(seed)
    d = int(rng.integers(1, 5))
    n = int(rng.integers(1, 25))
    penalty = np.full(d, 10.0 ** rng.uniform(-8, 1))
    live = family(rng, n, d)
    solution = _solution(live, penalty)
    yield live, penalty, solution
    for _ in range(changes):
        k = int(rng.integers(0, min(3, len(live)) + 1))
        gone = np.zeros(len(live), dtype=np.bool_)
        gone[rng.choice(len(live), k, replace=False)] = True
        came = family(rng, int(rng.integers(0 if k else 1, 3)), d)
        solution = solution.changed(live.take(gone), came)
        live = _joined(live.take(~gone), came)
        yield live, penalty, solution


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", range(4))
def test_after_every_change_it_is_the_rounded_minimiser_of_the_remaining_rows(
    family: Callable[[np.random.Generator, int, int], Rows], seed: int
) -> None:
    for live, penalty, solution in _walk(family, seed, 12):
        assert solution.minimiser.rounded
        assert np.array_equal(solution.minimiser.theta, rounded_minimiser(live, penalty))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_warm_answer_has_the_bytes_of_a_cold_one_in_another_order(
    family: Callable[[np.random.Generator, int, int], Rows],
) -> None:
    warm = 0
    for seed in range(100, 104):
        for live, penalty, solution in _walk(family, seed, 25):
            again = _solution(live.take(slice(None, None, -1)), penalty)
            assert solution.minimiser.theta.tobytes() == again.minimiser.theta.tobytes()
            warm += solution.warm is not None and solution.warm.beside is not None
    assert warm > 10


def _scaled_matrix(live: Rows, penalty: Array, solution: Solution, warm: Warm) -> Matrix:
    """Return the matrix whose smallest eigenvalue is bounded, in fractions."""
    power = [int(e) for e in warm.inverse.scale - solution.sums.unit[: len(penalty)]]
    two = Fraction(2)
    return [
        [value * two ** (power[j] + power[k]) for k, value in enumerate(row)]
        for j, row in enumerate(hessian(live, penalty))
    ]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_smallest_eigenvalue_is_never_below_its_bound(
    family: Callable[[np.random.Generator, int, int], Rows],
) -> None:
    judged = updated = 0
    for seed in range(200, 204):
        for live, penalty, solution in _walk(family, seed, 25):
            if solution.warm is None:
                continue
            assert solution.warm.inverse.smallest > 0.0
            matrix = _scaled_matrix(live, penalty, solution, solution.warm)
            # It was proved to be at most half of what float64 takes it for.
            assert is_definite(matrix, solution.warm.inverse.smallest)
            judged += 1
            updated += solution.warm.beside is not None
    assert judged > 20
    assert updated > 10


def _norm_of_hat(X: Array, rows: Array, penalty: Array, at_least: float) -> bool:
    """Return whether the largest eigenvalue of rows A^-1 rows^T is at most ``at_least``.

    That is so if at_least A - rows^T rows has no negative eigenvalue.
    """
    d = len(penalty)
    A = hessian(_rows(X, np.zeros(len(X))), penalty)
    R = hessian(_rows(rows, np.zeros(len(rows))), np.zeros(d))
    left = [[Fraction(at_least) * A[j][k] - R[j][k] for k in range(d)] for j in range(d)]
    return is_definite(left)


@pytest.mark.parametrize("spoilt", [0.0, 1e-12, 1e-6, 1e-3, 0.1])
@pytest.mark.parametrize("condition", [1e0, 1e4, 1e8, 1e11])
@pytest.mark.parametrize("k", [1, 3])
def test_the_bound_of_leverage_holds_for_an_inverse_that_is_wrong(
    spoilt: float, condition: float, k: int
) -> None:
    """Whatever the inverse, its error counts: also one that says that rows have no leverage."""
    rng = np.random.default_rng(int(1e3 * spoilt) + k)
    d = 4
    for _ in range(20):
        basis = np.linalg.qr(rng.normal(size=(d, d)))[0]
        X = rng.normal(size=(9, d)) @ (basis * np.geomspace(1.0, condition**-0.5, d)) @ basis.T
        penalty = np.full(d, 1e-3 / condition)
        solution = _solution(_rows(X, X[:, 0]), penalty)
        assert solution.warm is not None
        inverse = solution.warm.inverse
        wrong = inverse.inverse * (1.0 + spoilt * rng.normal(size=(d, d)))
        change = ChangedRows.of(_rows(X[:k], X[:k, 0]), -1, solution.sums.unit)
        root = change.x.nearest(inverse.scale).T
        for V in (wrong @ root, (1.0 - spoilt) * (inverse.inverse @ root), 0.0 * root):
            assert _norm_of_hat(X, X[:k], penalty, _leverage(inverse, root, V))


def test_the_bound_of_leverage_counts_how_the_matrix_was_rounded() -> None:
    """Off by as much as its size allows, in the direction that hides the most leverage."""
    rng = np.random.default_rng(5)
    d = 3
    for _ in range(50):
        X = rng.normal(size=(6, d)) @ np.diag([1.0, 1e-2, 1e-5])
        X[:, 1:] += X[:, :1]
        penalty = np.full(d, 1e-14)
        solution = _solution(_rows(X, X[:, 0]), penalty)
        assert solution.warm is not None
        inverse = solution.warm.inverse
        change = ChangedRows.of(_rows(X[:1], X[:1, 0]), -1, solution.sums.unit)
        root = change.x.nearest(inverse.scale).T
        towards = np.linalg.eigh(inverse.matrix)[1][:, :1]
        off = 2.0**-51 * inverse.size * (towards @ towards.T)
        other = Inverse(
            inverse.scale,
            inverse.matrix + off,
            np.linalg.inv(inverse.matrix + off),
            inverse.smallest,
            inverse.size,
        )
        assert _norm_of_hat(X, X[:1], penalty, _leverage(other, root, other.inverse @ root))


def test_a_row_without_weight_changes_nothing_among_rows_with_one() -> None:
    rng = np.random.default_rng(0)
    rows, penalty = _drawn(rng, 12, 3), np.ones(3)
    leaving = Rows(rows.X[:3], rows.y[:3], np.array([1.0, 0.0, 1.0]))
    arriving = Rows(rows.X[:2], rows.y[:2], np.array([0.0, 2.0]))
    solution = _solution(rows, penalty).changed(leaving, arriving)
    assert solution.warm is not None
    assert solution.warm.beside is not None
    live = _joined(rows.take(np.arange(12) != 0).take(np.arange(11) != 1), arriving)
    assert np.array_equal(solution.minimiser.theta, rounded_minimiser(live, penalty))
    assert solution.changed(rows.take(slice(0)), Rows(rows.X, rows.y, 0.0 * rows.weight)) is (
        solution
    )


@pytest.mark.parametrize("times", [1e3, 1e6, 1e12, 1e100, 1e150])
def test_a_row_that_was_much_too_long_leaves_nothing_behind(times: float) -> None:
    rng = np.random.default_rng(3)
    rows, penalty = _drawn(rng, 30, 4), np.full(4, 1e-6)
    before = _solution(rows, penalty)
    long = Rows(rows.X[:1] * times, rows.y[:1], rows.weight[:1])
    slipped = before.changed(rows.take(slice(1)), long)
    live = _joined(rows.take(slice(1, None)), long)
    assert np.array_equal(slipped.minimiser.theta, rounded_minimiser(live, penalty))
    back = slipped.changed(long, rows.take(slice(1)))
    assert back.minimiser.theta.tobytes() == before.minimiser.theta.tobytes()
    assert not _differ(back, before)


def _pickled(solution: Solution) -> Solution:
    copy = pickle.loads(pickle.dumps(solution))  # noqa: S301 (its own)
    assert isinstance(copy, Solution)
    return copy


def _differ(one: Solution, other: Solution) -> bool:
    a, b = one.live_sums.entries, other.live_sums.entries
    return a.first != b.first or not np.array_equal(a.places, b.places)


def test_the_sums_after_changes_are_the_bytes_of_those_before() -> None:
    rng = np.random.default_rng(4)
    rows = _weighted(rng, 40, 3)
    before = _solution(rows, np.ones(3))
    long = _rows(1e9 * rng.normal(size=(70, 3)), rng.normal(size=(70, 2)))
    after = before.changed(None, long).changed(rows.take(slice(9)), None)
    after = after.changed(long, rows.take(slice(9)))
    assert not _differ(before, after)


def test_the_first_value_of_a_column_arrives() -> None:
    rng = np.random.default_rng(1)
    rows, penalty = _drawn(rng, 10, 3), np.ones(3)
    rows.X[:, 1] = 0.0
    solution = _solution(rows, penalty)
    assert solution.minimiser.theta[1, 0] == 0.0
    assert not solution.minimiser.rational
    for value in (1.0, 1e-200, 1e200):
        came = _rows(np.array([[1.0, value, 2.0]]), np.array([3.0]))
        found = solution.changed(None, came)
        live = _joined(rows, came)
        assert np.array_equal(found.minimiser.theta, rounded_minimiser(live, penalty))
        left = found.changed(came, None)
        assert left.minimiser.theta.tobytes() == solution.minimiser.theta.tobytes()


def test_no_row_that_left_is_in_a_copy() -> None:
    rng = np.random.default_rng(2)
    rows, penalty = _drawn(rng, 12, 3), np.ones(3)
    solution = _solution(rows, penalty).changed(rows.take(slice(2)), None)
    assert solution.warm is not None
    assert solution.warm.beside is not None
    live = rows.take(slice(2, None))
    for copy in (_pickled(solution), deepcopy(solution)):
        assert copy.warm is None or copy.warm.beside is None
        assert in_fractions(copy.live_sums) == sums(live)
        assert copy.minimiser.theta.tobytes() == solution.minimiser.theta.tobytes()
    secret = float(rows.X[0, 0])
    assert np.float64(secret).tobytes() not in pickle.dumps(solution)


def test_without_any_row_nothing_is_left_of_them() -> None:
    rng = np.random.default_rng(8)
    rows, penalty = _drawn(rng, 5, 3), np.array([1.0, 1.0, 0.0])  # singular without a row
    for empty in (
        _solution(rows, penalty).without(rows),
        _solution(rows, penalty).changed(rows, None),
    ):
        assert empty.live_sums.entries.is_zero()
        assert not empty.minimiser.theta.any()
        assert _pickled(empty).live_sums.entries.is_zero()
        again = empty.changed(None, rows)
        assert np.array_equal(again.minimiser.theta, rounded_minimiser(rows, penalty))


def test_rows_beside_the_sums_are_added_up_before_they_are_many() -> None:
    rng = np.random.default_rng(6)
    rows, penalty = _drawn(rng, 3 * MOST, 2), np.ones(2)
    solution = _solution(rows, penalty)
    for i in range(2 * MOST):
        solution = solution.changed(rows.take(slice(i, i + 1)), None)
        assert solution.warm is not None
        assert solution.warm.beside is None or len(solution.warm.beside) <= MOST
    live = rows.take(slice(2 * MOST, None))
    assert np.array_equal(solution.minimiser.theta, rounded_minimiser(live, penalty))


def test_dual_rows_are_those_of_the_sums() -> None:
    rng = np.random.default_rng(7)
    X, penalty = rng.normal(size=(20, 3)), np.full(3, 0.5)
    solution = _solution(_rows(X, X[:, 0]), penalty)
    A = X.T @ X + np.diag(penalty)
    np.testing.assert_allclose(solution.dual_rows(X[:4]), X[:4] @ np.linalg.inv(A), rtol=1e-12)


def test_dual_rows_that_float64_does_not_know_are_rounded_ones() -> None:
    rng = np.random.default_rng(9)
    X = rng.normal(size=(8, 3)) * 1e-3
    X[:, 1:] = X[:, :1]
    penalty = np.full(3, 1e-20)
    solution = _solution(_rows(X, X[:, 0]), penalty)
    assert solution.minimiser.rational
    leaving = rng.normal(size=(2, 3)) * 1e3
    assert Inverse.of(NormalEquations.of(solution.sums, penalty).matrix) is None
    left = hessian(_rows(X, X[:, 0]), penalty)
    for x, w in zip(leaving, solution.dual_rows(leaving), strict=True):
        exact = solve(left, [[Fraction(float(v))] for v in x])
        assert w.tolist() == [nearest(value[0]) for value in exact]
