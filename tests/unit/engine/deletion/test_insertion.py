"""Inserting rows: the answer of a fit that had them from the beginning."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from lethe.engine.deletion.generation import Stream, current_dual_rows, distance_to_exact, rounding
from lethe.engine.deletion.insertion import base_dual_rows, insert
from lethe.engine.deletion.methods import method_named
from lethe.engine.deletion.stream import delete
from lethe.engine.errors import IllConditioned
from lethe.engine.fit.objective import Rows
from lethe.engine.refresh.blockwise import compacted_dual_rows, downdated_factors
from lethe.engine.refresh.refreshes import compact
from tests.support.families import Data, families, make
from tests.support.oracles import distance, newton_from, retrain_wide
from tests.support.states import Started, start

FAMILIES = families("linear")
LOOSE = ("injected_tiny_ridge",)
"""Their new rows bring the only values of a column: A_b is nearly singular there, and the bound,
which knows lam_min(A_b) alone, does not see that they mend it. A rebuild does."""


class Bench:
    """A family without its rows to delete, which are inserted instead."""

    def __init__(self, name: str, kind: str, seed: int = 0) -> None:
        self.data = make(name, kind, seed)
        self.all = Rows(self.data.design, self.data.y, self.data.weight)
        live = self.data.live(len(self.data.deleted))
        self.started: Started = start(part(self.data, live))
        self.first = np.flatnonzero(live)
        self.W = np.zeros((len(self.data.X), self.started.made.dual_rows.shape[1]))
        self.W[self.first] = self.started.made.dual_rows

    def insert(self, stream: Stream, index: np.ndarray, method: str = "exact") -> Stream:
        rows, generation = self.all.take(index), self.started.generation
        W, error = base_dual_rows(generation, self.started.made.factor, rows.X)
        self.W[index] = W
        return insert(generation, stream, rows, W, method_named(method), error).stream

    def delete(self, stream: Stream, index: np.ndarray, method: str = "exact") -> Stream:
        rows = self.all.take(index)
        return delete(
            self.started.generation, stream, rows, self.W[index], method_named(method)
        ).stream

    def retrained(self, index: np.ndarray) -> np.ndarray:
        data = self.data
        return retrain_wide(
            data.kind, data.design[index], data.y[index], data.weight[index], data.penalty
        )


def part(data: Data, live: np.ndarray) -> Data:
    return replace(
        data,
        X=data.X[live],
        y=data.y[live],
        weight=data.weight[live],
        deleted=np.arange(0),
        injected=None,
    )


def known(bench: Bench, stream: Stream) -> float:
    return rounding(bench.started.generation, stream) + stream.carried


@pytest.mark.parametrize("sizes", [[36], [1] * 36, [5, 1, 30]])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_linear_model_is_what_a_fit_with_the_rows_gives(family: str, sizes: list[int]) -> None:
    bench = Bench(family, "linear")
    stream, new, at = bench.started.stream, bench.data.deleted, 0
    for size in sizes:
        stream = bench.insert(stream, new[at : at + size])
        at += size
    truth = bench.retrained(np.concatenate([bench.first, new[:at]]))
    assert distance(stream.theta_exact, truth) <= known(bench, stream)
    assert distance(stream.theta_exact, truth) <= 1e-9 * float(np.linalg.norm(truth))
    if family not in LOOSE:
        assert known(bench, stream) <= 1e-6 * float(np.linalg.norm(truth))


@pytest.mark.parametrize(
    ("family", "kind"), [(name, kind) for kind in ("linear", "logistic") for name in families(kind)]
)
def test_a_row_that_is_inserted_and_deleted_leaves_only_rounding(family: str, kind: str) -> None:
    bench = Bench(family, kind)
    before, new = bench.started.stream, bench.data.deleted[:9]
    stream = bench.delete(bench.insert(before, new), new[::-1])
    allowed = known(bench, stream) + known(bench, before)
    assert distance(stream.theta_exact, before.theta_exact.astype(np.longdouble)) <= allowed
    assert stream.V.signs is not None
    assert list(stream.V.signs) == [-1.0] * 9 + [1.0] * 9


@pytest.mark.parametrize("size", [1e2, 1e4, 1e6, 1e8])
@pytest.mark.parametrize("k", [1, 3, 20])
def test_a_row_far_out_costs_no_digits_when_it_comes(size: float, k: int) -> None:
    """q is as nothing beside e there: as a difference of two terms it lost the square of ``size``.

    At 1e6 the answer was off by 2.6e-5, and its bound was 1e9 times what it is now.
    """
    bench = Bench("benign", "linear")
    new = bench.data.deleted[:k]
    bench.all.X[new[0], :-1] *= size
    stream = bench.insert(bench.started.stream, new)
    live = np.concatenate([bench.first, new])
    theta = retrain_wide(
        "linear", bench.all.X[live], bench.all.y[live], bench.all.weight[live], bench.data.penalty
    )
    off, length = distance(stream.theta_exact, theta), float(np.linalg.norm(stream.theta_exact))
    assert off <= rounding(bench.started.generation, stream)
    assert off <= 1e-14 * length
    assert rounding(bench.started.generation, stream) <= 1e-14 * size**2 * length


def test_a_row_that_takes_the_answer_out_of_float64_is_refused() -> None:
    bench = Bench("benign", "linear")
    new = bench.data.deleted[:1]
    bench.all.y[new] = 1e308
    bench.all.weight[new] = 10.0  # its error overflows, its leverage does not
    with np.errstate(all="ignore"), pytest.raises(IllConditioned, match="not a finite number"):
        bench.insert(bench.started.stream, new)


@pytest.mark.parametrize("kind", ["linear", "logistic"])
def test_the_state_is_a_function_of_the_live_rows_in_any_order(kind: str) -> None:
    bench = Bench("benign", kind)
    new, old = bench.data.deleted[:12], bench.first[:10]
    one = bench.delete(bench.insert(bench.started.stream, new), old)
    other = bench.started.stream
    for k in range(5):
        other = bench.delete(other, old[2 * k : 2 * k + 2])
        other = bench.insert(other, new[2 * k : 2 * k + 2])
    other = bench.insert(other, new[10:])
    size = float(np.linalg.norm(one.theta_exact))
    np.testing.assert_allclose(other.theta_exact, one.theta_exact, rtol=0, atol=1e-12 * size)
    live = np.concatenate([bench.first[10:], new])
    probe = bench.all.take(live)
    np.testing.assert_allclose(
        current_dual_rows(other, probe.X, bench.W[live]),
        current_dual_rows(one, probe.X, bench.W[live]),
        rtol=0,
        atol=1e-11,
    )


def test_a_logistic_step_is_newtons_on_all_rows_with_the_old_curvatures() -> None:
    """Where the curvatures at theta_b are those of all rows, one Newton step from theta_b."""
    bench = Bench("benign", "logistic")
    new = bench.data.deleted[:8]
    stream = bench.insert(bench.started.stream, new)
    index = np.concatenate([bench.first, new])
    data = bench.data
    expected = newton_from(
        bench.started.made.theta, data.design[index], data.y[index], data.weight[index],
        data.penalty,
    )  # fmt: skip
    np.testing.assert_allclose(stream.theta_exact, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("method", ["pru", "influence"])
def test_a_projection_spans_the_changed_rows(method: str) -> None:
    bench = Bench("benign", "linear")
    new = bench.data.deleted[:3]
    stream = bench.insert(bench.started.stream, new, method)
    moved = stream.published - bench.started.stream.published
    if method == "pru":
        assert len(stream.Q) == 3
        Q, exact = stream.Q.array, stream.theta_exact - bench.started.stream.theta_exact
        np.testing.assert_allclose(moved, Q.T @ (Q @ exact), atol=1e-13)
    else:
        e = bench.started.objective.error(bench.all.take(new), bench.started.made.theta)
        np.testing.assert_allclose(moved, -bench.W[new].T @ e, atol=1e-13)
    assert distance_to_exact(stream) > 0


@pytest.mark.parametrize("kind", ["linear", "logistic"])
def test_a_compact_folds_insertions_away(kind: str) -> None:
    bench = Bench("benign", kind)
    new, old = bench.data.deleted[:7], bench.first[:5]
    stream = bench.delete(bench.insert(bench.started.stream, new), old)
    live = np.concatenate([bench.first[5:], new])
    rows, started = bench.all.take(live), bench.started
    folded = downdated_factors(started.made.factor, stream)
    A = started.objective.hessian(rows, started.generation.theta_b)
    np.testing.assert_allclose(folded.L @ folded.L.T, A, rtol=0, atol=1e-10 * np.abs(A).max())
    eigenvalues = np.linalg.eigvalsh(A)
    assert folded.smallest <= eigenvalues[0]
    assert folded.largest >= eigenvalues[-1]
    W = compacted_dual_rows(stream, rows.X, bench.W[live])
    np.testing.assert_allclose(W @ A, rows.X, rtol=0, atol=1e-9)
    done = compact(started.generation, stream, started.made.factor, rows, bench.W[live])
    assert len(done.stream.V) == 0
    assert (done.stream.added, done.stream.dual_error) == (0.0, 0.0)
