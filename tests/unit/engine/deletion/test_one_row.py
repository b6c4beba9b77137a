"""One row has a step of its own: it must be the general step, and refuse what that refuses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

import lethe.engine.deletion.one_row
import lethe.engine.deletion.stream
from lethe.engine.deletion.downdate import SMALLEST_PIVOT, by_cholesky, leave_one_out, leave_out
from lethe.engine.deletion.generation import (
    Deletion,
    Generation,
    LeftOut,
    Stream,
    linearised_error,
    linearised_error_at,
    rounding,
)
from lethe.engine.deletion.methods import METHODS, method_named
from lethe.engine.deletion.one_row import leave_row_out
from lethe.engine.deletion.span import extend_basis
from lethe.engine.deletion.stream import delete
from lethe.engine.errors import IllConditioned
from lethe.engine.fit.objective import Array, Rows
from lethe.engine.refresh.refreshes import adopt_polish, complete, polish_snapshot
from tests.support.families import families
from tests.support.oracles import relative
from tests.support.states import Started, started

CASES = [(kind, name) for kind in ("linear", "logistic") for name in families(kind)]


def by_the_general_step(
    monkeypatch: pytest.MonkeyPatch,
    generation: Generation,
    stream: Stream,
    rows: Rows,
    W: Array,
    method: str,
) -> Deletion:
    """Delete as k > 1 rows are deleted: by factors and arrays, whatever k is."""

    def general(generation: Generation, stream: Stream, rows: Rows, W: Array) -> LeftOut:
        return lethe.engine.deletion.stream.leave_block_out(generation, stream, rows, W)

    with monkeypatch.context() as patched:
        patched.setattr(lethe.engine.deletion.stream, "leave_row_out", general)
        patched.setattr(lethe.engine.deletion.stream, "leave_out", by_cholesky)
        return delete(generation, stream, rows, W, method_named(method))


def streams(state: Started) -> Iterator[tuple[str, Stream, int]]:
    """Return a state's stream at rest, after 1, 5 and 12 rows, completed, and how many are gone."""
    yield "at rest", state.stream, 0
    for gone in (1, 5, 12):
        yield f"after {gone}", state.delete_in([gone], "pru"), gone
    yield "completed", complete(state.delete_in([5], "pru")), 5


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("kind", "name"), CASES)
def test_one_row_is_deleted_as_several_are(
    monkeypatch: pytest.MonkeyPatch, kind: str, name: str, method: str
) -> None:
    state = started(name, kind)
    for _, stream, gone in streams(state):
        index = state.data.deleted[gone : gone + 1]
        rows, W = state.rows.take(index), state.made.dual_rows[index]
        fast = delete(state.generation, stream, rows, W, method_named(method))
        slow = by_the_general_step(monkeypatch, state.generation, stream, rows, W, method)
        one, other = fast.stream, slow.stream
        # Rounding in M is magnified by 1 / pivot, whichever way it is solved.
        near = 1e-13 / fast.smallest_pivot + 1e-12
        assert fast.smallest_pivot == pytest.approx(slow.smallest_pivot, rel=near)
        for theta in ("theta_exact", "published"):
            assert relative(getattr(one, theta), getattr(other, theta)) <= near
        scale = np.linalg.norm(slow.V_rows) + 1e-300
        assert np.linalg.norm(fast.V_rows - slow.V_rows) <= near * scale
        assert one.v_trace == pytest.approx(other.v_trace, rel=near)
        assert one.v_seconds == other.v_seconds
        assert one.least_pivot == pytest.approx(other.least_pivot, rel=near)
        # Orthonormal rows are given up to their sign.
        assert fast.Q_rows.shape == slow.Q_rows.shape
        np.testing.assert_allclose(
            fast.Q_rows.T @ fast.Q_rows, slow.Q_rows.T @ slow.Q_rows, atol=1e-9
        )
        np.testing.assert_array_equal(one.V.array[: len(stream.V)], stream.V.array)
        np.testing.assert_array_equal(one.V.array[len(stream.V) :], fast.V_rows)


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_its_residual_has_every_term_of_the_general_one(kind: str, name: str) -> None:
    """No less than the general one, but for what is measured: that is rounding, and differs."""
    state = started(name, kind)
    for _, stream, gone in streams(state):
        if stream.theta_exact.shape[1] > 1:
            continue
        index = state.data.deleted[gone : gone + 1]
        rows, W = state.rows.take(index), state.made.dual_rows[index]
        fast = leave_row_out(state.generation, stream, rows, W)
        slow = lethe.engine.deletion.stream.leave_block_out(state.generation, stream, rows, W)
        measured = sum(
            float(np.linalg.norm(rows.X)) * _unmet(state.generation, stream, rows, one)
            for one in (fast, slow)
        )
        assert fast.residual >= 0.999 * slow.residual - measured
        assert fast.residual <= 1.3 * slow.residual + measured


def test_an_inaccurate_step_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a pivot that is 1 % off, the row's error is not q once the row is out."""

    def off(x: Array, w: Array, s: float) -> tuple[float, float]:
        pivot, root = leave_one_out(x, w, s)
        return 1.01 * pivot, root

    for kind in ("linear", "logistic"):
        state = started("benign", kind)
        index = state.data.deleted[:1]
        rows, W = state.rows.take(index), state.made.dual_rows[index]
        error = abs(linearised_error(state.generation, state.stream, rows).item())
        with monkeypatch.context() as patched:
            patched.setattr(lethe.engine.deletion.one_row, "leave_one_out", off)
            left = leave_row_out(state.generation, state.stream, rows, W)
        unmet = error * (1 - 1 / 1.01) * float(np.linalg.norm(rows.X))
        assert left.residual == pytest.approx(unmet, rel=1e-6)


def _unmet(generation: Generation, stream: Stream, row: Rows, left: LeftOut) -> float:
    """Return |q - e'|: what the error of a row once it is out differs by from that in the step."""
    before = linearised_error_at(generation, stream, row, stream.theta_exact)
    after = linearised_error_at(generation, stream, row, left.theta)
    q = before / left.smallest_pivot
    return float(np.abs(q - after)[0, 0])


@pytest.mark.parametrize("m", [1, 3])
@pytest.mark.parametrize("s", [0.0, 1e-300, 0.2, 1.0, 1e6])
def test_the_closed_form_is_the_factored_one(m: int, s: float) -> None:
    rng = np.random.default_rng(0)
    for d in (1, 2, 40):
        for leverage in (1e-12, 0.3, 1 - 1e-3, 1 - 2 * SMALLEST_PIVOT):
            x, e = rng.standard_normal((1, d)), rng.standard_normal((1, m))
            w = x * leverage / (float(np.sum(x**2)) * max(s, 1e-9))
            if s * float(np.sum(x * w)) > leverage * (1 + 1e-15):
                continue
            one, other = leave_out(x, w, e, np.array([s])), by_cholesky(x, w, e, np.array([s]))
            near = 1e-14 / one.smallest_pivot
            assert one.smallest_pivot == pytest.approx(other.smallest_pivot, rel=near)
            for part in ("delta", "q", "V"):
                np.testing.assert_allclose(getattr(one, part), getattr(other, part), rtol=near)
                assert getattr(one, part).shape == getattr(other, part).shape


@pytest.mark.parametrize("leverage", [1.0, 1.0 - 1e-9, 1.0 + 1e-9, 2.0, np.nan, np.inf, -np.inf])
def test_the_gate_says_what_the_general_one_says(leverage: float) -> None:
    x, w, e = np.array([[1.0, 0.0]]), np.array([[leverage, 0.0]]), np.ones((1, 1))
    said = []
    with np.errstate(invalid="ignore"):
        for way in (leave_out, by_cholesky):
            with pytest.raises(IllConditioned) as refused:
                way(x, w, e, np.ones(1))
            said.append(str(refused.value))
    assert said[0] == said[1]


def test_a_negative_curvature_is_refused() -> None:
    x = np.ones((1, 2))
    with pytest.raises(IllConditioned, match="not a finite number"):
        leave_out(x, 0.1 * x, np.ones((1, 1)), np.array([-1.0]))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", ["linear", "logistic"])
def test_a_step_of_one_row_that_overflows_is_refused(kind: str, method: str) -> None:
    state = started("benign", kind)
    row = state.data.deleted[:1]
    for far in (1e308, np.nan):
        theta = np.full_like(state.stream.theta_exact, far)
        before = state.stream._replace(theta_exact=theta)
        with np.errstate(all="ignore"), pytest.raises(IllConditioned, match="the step is not"):
            state.delete(before, row, method)
        np.testing.assert_array_equal(before.theta_exact, theta)


def test_a_step_whose_error_cannot_be_stated_is_refused() -> None:
    state = started("benign", "linear")
    unstated = state.stream._replace(residual=np.inf)
    with pytest.raises(IllConditioned, match="rescale"):
        state.delete(unstated, state.data.deleted[:1], "exact")
    unknown = replace(state.generation, dual_error=0.6 * state.generation.smallest)
    with pytest.raises(IllConditioned, match="raise the ridge"):
        replace(state, generation=unknown).delete(state.stream, state.data.deleted[:1], "exact")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", ["linear", "logistic"])
def test_it_writes_to_nothing_that_it_is_given(kind: str, method: str) -> None:
    """BLAS heeds no flag of an array that it writes to: so the arrays themselves are compared."""
    state = started("benign", kind)
    first = state.delete(state.stream, state.data.deleted[:4], method)
    index = state.data.deleted[4:5]
    rows, W = state.rows.take(index), state.made.dual_rows[index]
    given = [rows.X, rows.y, rows.weight, W, state.generation.theta_b]
    given += [first.theta_exact, first.theta_r, first.anchor, first.published]
    given += [first.V.array, first.Q.array]
    before = [array.copy() for array in given]
    done = delete(state.generation, first, rows, W, method_named(method))
    for array, as_it_was in zip(given, before, strict=True):
        np.testing.assert_array_equal(array, as_it_was)
    after = done.stream.theta_exact.copy()
    delete(state.generation, done.stream, rows, 0.5 * W, method_named(method))
    np.testing.assert_array_equal(done.stream.theta_exact, after)
    assert not np.shares_memory(done.V_rows, done.stream.V.array)


def test_it_takes_a_row_in_any_memory_order() -> None:
    state = started("benign", "linear")
    index = state.data.deleted[:1]
    rows, W = state.rows.take(index), state.made.dual_rows[index]
    exact = method_named("exact")
    plain = delete(state.generation, state.stream, rows, W, exact).stream
    wide = np.repeat(rows.X, 2, axis=1)[:, ::2]
    strided = Rows(wide, rows.y, rows.weight)
    dual = np.asfortranarray(np.vstack([W, W]))[:1]
    other = delete(state.generation, state.stream, strided, dual, exact).stream
    np.testing.assert_allclose(other.theta_exact, plain.theta_exact, rtol=1e-15)
    np.testing.assert_allclose(other.V.array, plain.V.array, rtol=1e-15)


def test_a_polished_reference_is_linearised_at_as_by_several_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """theta_r is then not theta_b: errors are taken at the one, curvatures at the other."""
    state = started("benign", "logistic")
    stream = state.delete_in([6], "exact")
    rows, W = state.live_rows(6)
    polished = polish_snapshot(state.generation, stream, state.made.factor, rows, W, target=1e-12)
    stream = adopt_polish(stream, polished)
    assert stream.theta_r is not state.generation.theta_b
    index = state.data.deleted[6:7]
    rows, W = state.rows.take(index), state.made.dual_rows[index]
    fast = delete(state.generation, stream, rows, W, method_named("exact"))
    slow = by_the_general_step(monkeypatch, state.generation, stream, rows, W, "exact")
    assert relative(fast.stream.theta_exact, slow.stream.theta_exact) <= 1e-13
    assert fast.stream.residual == pytest.approx(slow.stream.residual, rel=0.3)
    after = rounding(state.generation, fast.stream)
    assert after == pytest.approx(rounding(state.generation, slow.stream), rel=0.3)


@pytest.mark.parametrize("size", [1e-200, 1e-9, 1.0, 1e200])
@pytest.mark.parametrize("gap", [0.0, 1e-15, 1e-11, 1e-6, 1.0])
def test_one_direction_extends_a_basis_as_several_do(gap: float, size: float) -> None:
    """A row of zeros beside it makes it the general way; a basis is given up to signs."""
    rng = np.random.default_rng(3)
    d = 30
    for r in (0, 1, 7, d):
        Q = extend_basis(np.empty((0, d)), rng.standard_normal((r, d)))
        inside = rng.standard_normal((1, r)) @ Q
        inside /= max(float(np.linalg.norm(inside)), 1e-300)
        u = size * (inside + gap * rng.standard_normal((1, d)))
        one, other = extend_basis(Q, u), extend_basis(Q, np.vstack([u, np.zeros_like(u)]))
        assert one.shape == other.shape
        np.testing.assert_allclose(
            one.T @ one, other.T @ other, atol=1e-4 if gap == 1e-11 else 1e-8
        )
        whole = np.vstack([Q, one])
        np.testing.assert_allclose(whole @ whole.T, np.eye(len(whole)), atol=1e-13)
    assert len(extend_basis(Q[:4], np.zeros((1, d)))) == 0
    with np.errstate(invalid="ignore"):
        assert len(extend_basis(Q[:4], np.full((1, d), np.nan))) == 0


def test_what_is_barely_a_direction_keeps_the_basis_orthonormal() -> None:
    rng = np.random.default_rng(5)
    d, kept = 60, 0
    for r in (1, 20, d - 1):
        Q = extend_basis(np.empty((0, d)), rng.standard_normal((r, d)))
        for gap in np.logspace(-15, -11, 60):
            u = rng.standard_normal((1, r)) @ Q + gap * rng.standard_normal((1, d))
            whole = np.vstack([Q, extend_basis(Q, u)])
            kept += len(whole) > r
            np.testing.assert_allclose(whole @ whole.T, np.eye(len(whole)), atol=1e-13)
    assert 60 < kept < 170  # some are directions, and some are rounding
