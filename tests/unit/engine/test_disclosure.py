"""Prices of changed rows, against statsmodels and against dense refits."""

from __future__ import annotations

import math

import numpy as np
import pytest
import statsmodels.api as sm

from lethe.engine.deletion.generation import Stream, begin, current_dual_rows
from lethe.engine.deletion.insertion import base_dual_rows, insert
from lethe.engine.deletion.methods import method_named
from lethe.engine.deletion.stream import BLOCK, delete
from lethe.engine.disclosure import (
    Changes,
    Price,
    ResidualScale,
    begin_scale,
    disclose,
    dual_error_in,
    epsilon_spent,
    noise_to_hide,
)
from lethe.engine.error.gaussian import delta_of
from lethe.engine.fit.objective import Array, Kind, Objective, Rows, ridge_penalty
from lethe.engine.fit.precompute import Precomputation, precompute

D = 6
EXACT = method_named("exact")


def rows_of(n: int, seed: int, *, weighted: bool = False) -> Rows:
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.standard_normal((n, D - 1)) * [3, 1, 1, 0.2, 1], np.ones(n)])
    y = X @ rng.standard_normal((D, 1)) + rng.standard_normal((n, 1))
    return Rows(X, y, rng.choice([0.0, 0.5, 1.0, 3.0], n) if weighted else np.ones(n))


class Live:
    """A model whose rows change, with the prices of each change; and the dense oracle of each."""

    def __init__(self, rows: Rows, ridge: float) -> None:
        self.penalty = ridge_penalty(ridge, D, intercept=True, penalise_intercept=False)
        objective = Objective(Kind.LINEAR, self.penalty)
        self.fit: Precomputation = precompute(objective, rows)
        self.generation, self.stream = begin(1, objective, self.fit)
        self.rows = {
            i: (rows.take(slice(i, i + 1)), self.fit.dual_rows[[i]]) for i in range(len(rows))
        }
        self.scale = begin_scale(
            rows, self.fit.dual_rows, self.stream.theta_exact, self.generation.dual_error
        )

    def change(self, went: list[int], came: dict[int, Rows]) -> list[Price]:
        """Delete, insert and correct (a row in both); return the prices of ``went``, ``came``."""
        before: Stream = self.stream
        old = [self.rows.pop(i) for i in went]
        W, error = base_dual_rows(
            self.generation,
            self.fit.factor,
            np.vstack([np.empty((0, D)), *(r.X for r in came.values())]),
        )
        new = [(row, W[[j]]) for j, row in enumerate(came.values())]
        if came:
            self.stream = insert(self.generation, self.stream, stacked(new), W, EXACT, error).stream
        if went:
            W_old = np.vstack([w for _, w in old])
            self.stream = delete(self.generation, self.stream, stacked(old), W_old, EXACT).stream
        self.rows |= dict(zip(came, new, strict=True))
        lines: dict[int, list[int]] = {}
        for line, row in enumerate([*went, *came]):
            lines.setdefault(row, []).append(line)
        every = [*old, *new]
        rows = stacked(every)
        base = np.vstack([w for _, w in every])
        dual = current_dual_rows(self.stream, rows.X, base)
        signs = np.repeat([-1.0, 1.0], [len(went), len(came)])
        prices, self.scale = disclose(
            self.scale,
            self.penalty,
            before.theta_exact,
            self.stream.theta_exact,
            Changes(
                rows,
                signs,
                list(lines.values()),
                dual,
                current_dual_rows(before, rows.X, base) if came else None,
                dual_error_in(self.generation, self.stream),
                dual_error_in(self.generation, before),
            ),
        )
        return prices

    def live(self) -> Rows:
        return stacked(list(self.rows.values()))


def stacked(parts: list[tuple[Rows, Array]]) -> Rows:
    return Rows(
        np.vstack([rows.X for rows, _ in parts]),
        np.vstack([rows.y for rows, _ in parts]),
        np.concatenate([rows.weight for rows, _ in parts]),
    )


def refit(rows: Rows, penalty: Array) -> tuple[Array, Array, ResidualScale]:
    """Return theta, A and the scale of a dense fit."""
    scaled = rows.X * rows.weight[:, None]
    A = rows.X.T @ scaled + np.diag(penalty)
    theta = np.asarray(np.linalg.solve(A, scaled.T @ rows.y), dtype=np.float64)
    freedom = float(np.trace(np.linalg.solve(A, rows.X.T @ scaled)))
    squares = float(rows.weight @ (rows.y - rows.X @ theta)[:, 0] ** 2)
    return theta, A, ResidualScale(freedom, squares, np.count_nonzero(rows.weight) - freedom)


def dense_price(
    without_change: Rows, after: Rows, with_row: Rows, scale: ResidualScale, penalty: Array
) -> Price:
    delta = refit(without_change, penalty)[0] - refit(after, penalty)[0]
    A = refit(with_row, penalty)[1]
    unit = scale.unit
    assert unit is not None
    return Price(float((delta.T @ A @ delta)[0, 0]) / unit, float(np.linalg.norm(delta)))


def assert_price(price: Price, expected: Price) -> None:
    assert price.distance == pytest.approx(expected.distance, rel=1e-8)
    assert price.length == pytest.approx(expected.length, rel=1e-8)


def assert_scale(live: Live) -> None:
    expected = refit(live.live(), live.penalty)[2]
    assert live.scale.freedom == pytest.approx(expected.freedom, rel=1e-9)
    assert live.scale.squares == pytest.approx(expected.squares, rel=1e-9)
    assert live.scale.left == pytest.approx(expected.left, rel=1e-9)


def test_a_deleted_row_is_priced_by_its_cooks_distance_as_statsmodels_has_it() -> None:
    live = Live(rows_of(80, 1), 1e-12)
    for row in (3, 40, 41, 7):
        rows = live.live()
        at = list(live.rows).index(row)
        influence = sm.OLS(rows.y[:, 0], rows.X).fit().get_influence()
        [price] = live.change([row], {})
        assert price.distance == pytest.approx(influence.cooks_distance[0][at], rel=1e-7)


@pytest.mark.parametrize("ridge", [1e-6, 0.7, 50.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_prices_and_scale_are_those_of_dense_refits_over_a_stream(
    ridge: float, *, weighted: bool
) -> None:
    rows = rows_of(70, 2, weighted=weighted)
    fresh = rows_of(30, 3, weighted=weighted)
    live = Live(rows, ridge)
    penalty = live.penalty
    went, next_row = iter(range(70)), 0
    for kind in "dicddciD":
        before, scale = live.live(), live.scale
        rows_before = dict(live.rows)
        if kind in "dD":  # one row; a batch of three
            gone = [next(went) for _ in range(3 if kind == "D" else 1)]
            prices = live.change(gone, {})
            after = live.live()
            for row, price in zip(gone, prices, strict=True):
                back = stacked([*live.rows.values(), rows_before[row]])
                assert_price(price, dense_price(back, after, back, scale, penalty))
        elif kind == "i":
            [price] = live.change([], {100 + next_row: fresh.take(slice(next_row, next_row + 1))})
            after, next_row = live.live(), next_row + 1
            assert_price(price, dense_price(before, after, after, live.scale, penalty))
        else:
            row = next(went)
            [price] = live.change([row], {row: fresh.take(slice(next_row, next_row + 1))})
            after, next_row = live.live(), next_row + 1
            assert_price(price, dense_price(before, after, before, scale, penalty))
        assert_scale(live)


def test_a_batch_of_several_blocks_keeps_the_scale() -> None:
    live = Live(rows_of(3 * BLOCK, 4), 0.3)
    live.change(list(range(2 * BLOCK + 9)), {})
    assert_scale(live)


def test_a_row_of_leverage_one_is_priced_without_a_division_by_what_is_left_of_it() -> None:
    rows = rows_of(60, 5)
    rows.X[0] *= 1e7
    after = Live(rows.take(slice(1, None)), 1e-3)  # refitted without it, as a rebuild does
    theta, A, scale = refit(rows, after.penalty)
    dual = after.fit.factor.solve(rows.X[[0]].T).T
    prices, _ = disclose(
        scale,
        after.penalty,
        theta,
        after.stream.theta_exact,
        Changes(rows.take(slice(0, 1)), -np.ones(1), [[0]], dual),
    )
    delta = theta - after.stream.theta_exact
    unit = scale.unit
    assert unit is not None
    assert prices[0].distance == pytest.approx(float((delta.T @ A @ delta)[0, 0]) / unit, rel=1e-6)


def test_without_a_residual_there_is_no_distance() -> None:
    rows = rows_of(D, 6)
    live = Live(rows, 1e-3)
    live.scale = ResidualScale(float(D), 1e-3, 0.0)  # as many parameters as rows
    [price] = live.change([0], {})
    assert price.distance is None
    assert price.length is not None
    assert price.length > 0


def test_the_noise_to_hide_a_row_hides_it() -> None:
    distance, freedom, epsilon, delta = 0.3, 4.0, 1.0, 1e-4
    tau = noise_to_hide(distance, freedom, epsilon, delta)
    mu = math.sqrt(freedom * distance) / tau
    assert delta_of(mu, epsilon) == pytest.approx(delta, rel=1e-6)
    assert delta_of(mu, epsilon) <= delta
    assert epsilon_spent(2.0, 0.5, delta) > 0
    assert delta_of(4.0, epsilon_spent(2.0, 0.5, delta)) <= delta
