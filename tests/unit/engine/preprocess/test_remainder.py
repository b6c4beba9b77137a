"""The bound of a logistic pipeline's error, and each inequality that it is made of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lethe import LogisticModel
from lethe.engine.deletion.generation import Generation, Stream
from lethe.engine.fit.factor import factorise
from lethe.engine.fit.objective import Array, Kind, norm, ridge_penalty
from lethe.engine.preprocess.estimate import moved_rows
from lethe.engine.preprocess.extents import balanced_eigenvalue, dual_lengths, unbalanced
from lethe.engine.preprocess.input.columns import Columns, Numeric, OneHot, TargetEncode
from lethe.engine.preprocess.input.table import read_table
from lethe.engine.preprocess.remainder import excess, moved_margins
from lethe.engine.preprocess.transformation.layout import lay_out
from tests.proof.bounds.pipelines import Truth
from tests.support import pipelines

COLUMNS: Columns = {
    "a": Numeric(), "b": Numeric(), "town": OneHot(), "post": TargetEncode(standardise=True),
}  # fmt: skip


def made(
    n: int = 1500, seed: int = 0, columns: Columns = COLUMNS
) -> tuple[LogisticModel, Any, Array]:
    """Return a model, its rows and its targets."""
    rng = np.random.default_rng(seed)
    rows = pipelines.draw_rows(columns, n, rng)
    drawn = pipelines.draw_target(columns, rows, rng)
    y = (drawn + rng.logistic(scale=3.0, size=n) > np.median(drawn)).astype(np.float64)
    return LogisticModel(preprocess=columns).fit(rows, y), rows, y


@pytest.mark.parametrize("seed", range(3))
def test_the_bound_holds_and_is_of_use_over_a_stream(seed: int) -> None:
    model, rows, y = made(seed=seed)
    order = np.random.default_rng(seed).permutation(1500)
    for first in range(0, 10, 2):
        model.delete([str(i) for i in order[first : first + 2]], method="exact")
        live = np.sort(order[first + 2 :])
        refit = pipelines.pipeline(COLUMNS, kind="logistic")
        refit.fit(pipelines.matrix(COLUMNS, rows, live), y[live])
        truth = pipelines.parameters(refit)
        away, bound = norm(np.append(model.theta, model.intercept) - truth), model.error.bound
        assert bound is not None
        assert away <= bound + 1e-9
        assert bound < 0.1 * norm(truth)


def test_every_live_margin_has_moved_by_no_more_than_is_said_and_q_is_their_sum() -> None:
    model, _, _ = made(400)
    model.delete([str(i) for i in range(12)], method="exact")
    state: Any = model._state
    generation: Generation = state.generation
    stream: Stream = state.stream
    live = state.members.live
    rows = state.members.rows.take(live)
    moved = moved_rows(state.base.layout, state.answer.live, rows.X, state.entries[live])
    t = moved @ stream.theta_exact - rows.X @ generation.theta_b
    said = moved_margins(state.base, generation, stream, state.answer)
    assert np.abs(t).max() <= said.most < 10 * np.abs(t).max()
    curvature = generation.objective.curvature(rows, generation.theta_b)
    assert said.squares == pytest.approx(float(curvature @ t[:, 0] ** 2), rel=1e-6)
    errors = generation.objective.error_at(rows, moved @ stream.theta_exact)
    rest = errors - generation.objective.error(rows, generation.theta_b) - curvature[:, None] * t
    hessian = (moved.T * curvature) @ moved
    spread = state.answer.live.deviation**2
    hessian[np.diag_indices(len(spread))] += generation.objective.penalty[: len(spread)] * spread
    pulled = moved.T @ rest
    assert np.sqrt(np.sum(pulled * np.linalg.solve(hessian, pulled))) <= said.remainder


def test_the_excess_is_never_below_its_formula() -> None:
    for t in np.logspace(-12, 1.4, 200).astype(np.longdouble):
        exact = 0.5 + t / 6 + t**2 / 24 if t < 1e-3 else (np.expm1(t) - t) / t**2
        assert float(exact) <= excess(float(t)) * (1 + 1e-12)
        assert excess(float(t)) <= float(exact) * (1 + 1e-3)


def test_a_dual_length_is_that_of_the_inverse() -> None:
    rng = np.random.default_rng(5)
    X = rng.standard_normal((30, 4))
    factor = factorise(X.T @ X + np.eye(4))
    W = factor.solve(X.T).T
    true = np.sqrt(np.einsum("ij,ij->i", X, W))
    np.testing.assert_allclose(dual_lengths(X, W, 1e-14), true, rtol=1e-9)
    wrong = W + 1e-3 * rng.standard_normal(W.shape)
    off = np.max(np.linalg.norm(X - factor.product(wrong.T).T, axis=1) / norms(wrong))
    assert (dual_lengths(X, wrong, float(off)) >= true).all()


def norms(X: Array) -> Array:
    """Return the length of each row."""
    return np.asarray(np.linalg.norm(X, axis=1))


def test_over_balanced_directions_the_hessian_is_steeper_than_the_ridge() -> None:
    rng = np.random.default_rng(6)
    columns: Columns = {"x": Numeric(), "c": OneHot(), "d": OneHot()}
    rows: dict[str, Any] = {
        "x": rng.standard_normal(300),
        "c": [f"c{i}" for i in rng.integers(0, 4, 300)],
        "d": [f"d{i}" for i in rng.integers(0, 3, 300)],
    }
    layout = lay_out(columns, read_table(columns, rows))
    c = np.array([int(v[1]) for v in rows["c"]])
    d = np.array([int(v[1]) for v in rows["d"]])
    X = np.column_stack([rows["x"], np.eye(4)[c], np.eye(3)[d], np.ones(300)])
    penalty = ridge_penalty(1e-3, 9, intercept=True, penalise_intercept=False)
    A = 0.25 * X.T @ X + np.diag(penalty)
    factor = factorise(A)
    assert factor.smallest < 1e-3
    normals = np.zeros((9, 2))
    normals[1:5, 0], normals[5:8, 1] = 0.5, 3**-0.5
    basis = np.linalg.svd(normals, full_matrices=True)[0][:, 2:]
    true = np.linalg.eigvalsh(basis.T @ A @ basis)[0]
    assert 0.7 * true < balanced_eigenvalue(layout, penalty, factor) <= true
    held = np.full(9, 1e-3)  # a penalised intercept takes part in the trade
    assert balanced_eigenvalue(layout, held, factor) == factor.smallest
    theta = rng.standard_normal((9, 1))
    near = theta.copy()
    for part in (slice(1, 5), slice(5, 8)):
        near[8] += near[part].mean()
        near[part] -= near[part].mean()
    np.testing.assert_allclose(X @ near, X @ theta)
    off = unbalanced(layout, penalty, theta)
    assert norm(theta - near) <= off.distance
    assert norm(penalty[:, None] * (theta - near)) <= off.gradient
    assert unbalanced(layout, penalty, near).distance < 1e-14


@pytest.mark.parametrize("offset", [0.0, 1e4, 1e6, 1e9])
def test_one_class_left_far_from_0_has_a_bound_above_the_truth(offset: float) -> None:
    """The intercept is penalised then, and takes up no rounding of the column's centre."""
    rng = np.random.default_rng(1)
    x, y = offset + rng.normal(size=8), np.zeros(8)
    y[3] = 1.0
    columns = {"x": Numeric()}
    model = LogisticModel(ridge=1.0, preprocess=columns).fit({"x": x}, y.astype(int))
    model.delete(["3"])
    truth = Truth(columns, 1.0, {"x": x.astype(object)}, y, kind=Kind.LOGISTIC)
    [state] = truth.judge(model, [0, 1, 2, 4, 5, 6, 7], 0, 1, "one class left")
    assert state.excess <= 0.0
    assert state.bound <= 1e-12 or state.bound <= 3 * state.distance


def test_balanced_directions_are_those_of_equal_penalties() -> None:
    given = read_table({"town": OneHot()}, {"town": ["a", "b", "b", "c"]})
    penalty, theta = (
        ridge_penalty(1.0, 4, intercept=True, penalise_intercept=False),
        np.ones((4, 1)),
    )
    for standardise, distance in ((False, 12.0**0.5), ("centre", 12.0**0.5), ("scale", 0.0)):
        layout = lay_out({"town": OneHot(standardise=standardise)}, given)  # type: ignore[arg-type]
        assert unbalanced(layout, penalty, theta).distance == pytest.approx(distance)
