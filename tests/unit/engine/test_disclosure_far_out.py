"""Prices of rows far from the others, against refits in extended precision: right, or not told.

A price is never silently wrong: rounding takes it away instead, until the scale is measured again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import numpy as np
import pytest
from numpy.typing import NDArray

from lethe.engine.disclosure import NOT_KNOWN, Price, ResidualScale, begin_scale
from lethe.engine.errors import IllConditioned, InvalidData
from lethe.engine.fit.objective import Array, Rows
from tests.unit.engine.test_disclosure import Live, rows_of, stacked

Wide: TypeAlias = NDArray[np.longdouble]

WITHIN = 3e-3  # what `PRICED_WITHIN` leaves: of the step squared, and of the scale


def solved(A: Wide, B: Wide) -> Wide:
    """Return A^-1 B of a positive definite A, by elimination."""
    A, B = A.copy(), B.copy()
    for i in range(len(A)):
        factor = A[i + 1 :, i] / A[i, i]
        A[i + 1 :] -= factor[:, None] * A[i]
        B[i + 1 :] -= factor[:, None] * B[i]
    for i in reversed(range(len(A))):
        B[i] = (B[i] - A[i, i + 1 :] @ B[i + 1 :]) / A[i, i]
    return B


class Refit:
    """The minimiser on rows, its Hessian, and p s^2."""

    def __init__(self, rows: Rows, penalty: Array) -> None:
        X, y, weight = (np.asarray(a, np.longdouble) for a in (rows.X, rows.y, rows.weight))
        self.A: Wide = X.T @ (X * weight[:, None]) + np.diag(np.asarray(penalty, np.longdouble))
        self.theta = solved(self.A, X.T @ (weight[:, None] * y))
        leverage = weight * np.einsum("ij,ji->i", X, solved(self.A, X.T))
        squares = weight @ (y - X @ self.theta)[:, 0] ** 2
        left = np.sum((1 - leverage)[weight > 0])
        self.unit = float(leverage.sum() * squares / left)


def expected(live: Live, before: dict[int, tuple[Rows, Array]], row: int) -> Price:
    """Return the price of a row of the last change; ``before``: the rows before it."""
    without = dict(live.rows)
    without.pop(row, None)
    if row in before:
        without[row] = before[row]
    here = Refit(live.live(), live.penalty)
    there = Refit(stacked(list(without.values())), live.penalty)
    then = Refit(stacked(list(before.values())), live.penalty)
    A, unit = (there.A, then.unit) if row in before else (here.A, here.unit)
    delta = there.theta - here.theta
    squared = float((delta.T @ A @ delta)[0, 0])
    return Price(squared / unit, float(np.sqrt(np.sum(delta**2))))


def check(price: Price, truth: Price, within: float = WITHIN) -> None:
    """Compare what is told with the truth."""
    if price.distance is not None:
        assert price.distance == pytest.approx(truth.distance, rel=within)
    if price.length is not None:
        assert price.length == pytest.approx(truth.length, rel=within)


@pytest.mark.parametrize("target", [1e4, 1e6, 1e7, 1e8, 1e9, 1e10])
def test_residuals_that_were_lost_beside_a_target_are_not_told_until_they_are_measured(
    target: float,
) -> None:
    """Its square was in the sum: the figures of other rows were off by up to 85 times."""
    rows = rows_of(200, 1)
    rows.y[0] = target
    live = Live(rows, 1.0)
    before = dict(live.rows)
    [price] = live.change([0], {})
    assert price.distance is not None
    check(price, expected(live, before, 0))
    then, before = live.scale, dict(live.rows)
    [price] = live.change([1], {})
    assert price.length is not None
    assert (price.distance is None) == (target >= 1e7)
    check(price, expected(live, before, 1))
    now = live.live()  # a rebuild began after row 0 had gone, and ends now
    fresh = Live(stacked(list(before.values())), 1.0)
    live.scale = live.scale.since(then, fresh.scale)
    truth = Refit(now, live.penalty).unit
    assert live.scale.unit == pytest.approx(truth, rel=1e-9)
    before = dict(live.rows)
    [price] = live.change([2], {})
    assert price.distance is not None
    check(price, expected(live, before, 2))


@pytest.mark.parametrize("size", [1.0, 1e2, 1e4, 1e6])
@pytest.mark.parametrize("k", [1, 3])
def test_inserted_rows_are_priced_however_far_out(size: float, k: int) -> None:
    """By 1 + leverage before, not by 1 - leverage after: the length was off by 56 % at 1e6."""
    live, fresh = Live(rows_of(200, 1), 1.0), rows_of(k, 5)
    fresh.X[0, :-1] *= size
    before = dict(live.rows)
    prices = live.change([], {1000 + i: fresh.take(slice(i, i + 1)) for i in range(k)})
    for i, price in enumerate(prices):
        assert price.distance is not None
        assert price.length is not None
        check(price, expected(live, before, 1000 + i), 1e-6)
    truth = Refit(live.live(), live.penalty).unit
    assert live.scale.unit == pytest.approx(truth, rel=1e-6)


@pytest.mark.parametrize("size", [1e2, 1e4, 1e6])
def test_a_correction_of_a_row_far_out_and_one_to_there(size: float) -> None:
    rows, fresh = rows_of(80, 2), rows_of(2, 6)
    rows.X[0, :-1] *= size
    fresh.X[1, :-1] *= size
    live = Live(rows, 1e-2)
    for row, new in ((0, fresh.take(slice(0, 1))), (1, fresh.take(slice(1, 2)))):
        before = dict(live.rows)
        try:
            [price] = live.change([row], {row: new})
        except IllConditioned:  # a worker rejects it
            live = Live(stacked(list(before.values())), 1e-2)
            continue
        check(price, expected(live, before, row))


def changes(draw: np.random.Generator, live: Live, step: int) -> tuple[list[int], dict[int, Rows]]:
    """Return rows to delete, and rows to insert or correct, some of them far out."""
    k = int(draw.choice([1, 3]))
    kind = draw.choice(["delete", "insert", "correct"])
    went = [int(i) for i in draw.choice(list(live.rows), k, replace=False)]
    fresh = rows_of(k, 1000 + step)
    if draw.random() < 0.4:
        fresh.X[0, :-1] *= 10.0 ** draw.uniform(0, 6)
    if draw.random() < 0.3:
        fresh.y[0] = 10.0 ** draw.uniform(0, 10)
    names = went if kind == "correct" else [10_000 + 10 * step + i for i in range(k)]
    came = {name: fresh.take(slice(i, i + 1)) for i, name in enumerate(names)}
    return [] if kind == "insert" else went, {} if kind == "delete" else came


def hostile(draw: np.random.Generator, seed: int) -> Live:
    rows = rows_of(int(draw.choice([6, 30, 70])), seed, weighted=bool(draw.integers(2)))
    rows.weight[:4] = 1.0
    if draw.random() < 0.4:
        rows.y[4] = 10.0 ** draw.uniform(1, 11)
    if draw.random() < 0.3:
        rows.X[5, :-1] *= 10.0 ** draw.uniform(1, 4)
    return Live(rows, 10.0 ** draw.uniform(-9, 1))


@pytest.mark.parametrize("seed", range(24))
def test_over_hostile_streams_what_is_told_is_right(seed: int) -> None:
    draw = np.random.default_rng(seed)
    try:
        live = hostile(draw, seed)
    except (IllConditioned, InvalidData):
        return
    for step in range(8):
        if len(live.rows) < 5:
            return
        went, came = changes(draw, live, step)
        before, stream, scale = dict(live.rows), live.stream, live.scale
        try:
            prices = live.change(went, came)
        except IllConditioned:  # a worker rejects it, or it waits for a rebuild
            live.rows, live.stream, live.scale = before, stream, scale
            continue
        for row, price in zip(dict.fromkeys([*went, *came]), prices, strict=True):
            check(price, expected(live, before, row))


@pytest.mark.parametrize("ridge", [1e-9, 0.1])
def test_where_the_bound_leaves_no_digit_nothing_is_told(ridge: float) -> None:
    """Four rows, one at 1e6: the answer was off by 29 %, and so were lengths that were told."""
    for seed in range(8):
        live, fresh = Live(rows_of(4, seed), ridge), rows_of(1, 100 + seed)
        fresh.X[0, :-1] *= 1e6
        before = dict(live.rows)
        [price] = live.change([], {1000: fresh})
        check(price, expected(live, before, 1000))


def test_ordinary_streams_are_priced_throughout() -> None:
    for seed in range(6):
        draw = np.random.default_rng(seed)
        live = Live(rows_of(70, seed), 10.0 ** draw.uniform(-3, 1))
        for row in draw.permutation(70)[:30]:
            fresh = rows_of(1, 100 + int(row))
            for went, came in (([int(row)], {int(row): fresh}), ([int(row)], {})):
                for price in live.change(went, came):
                    assert price.distance is not None
                    assert price.length is not None


def test_a_scale_that_is_not_known_stays_so_and_gives_no_distance() -> None:
    live = Live(rows_of(60, 3), 1.0)
    live.scale = NOT_KNOWN
    [price] = live.change([1], {})
    assert price.distance is None
    assert price.length is not None
    assert live.scale == NOT_KNOWN


def test_fewer_rows_than_columns_with_next_to_no_ridge_leave_no_scale() -> None:
    """Of n - p, 1e-12, nothing is left but the rounding of n and p."""
    rows = rows_of(5, 7)
    live = Live(rows, 1e-10)
    assert live.scale.unit is None
    truth = Refit(rows, live.penalty).unit
    live = Live(rows, 1.0)
    truth = Refit(rows, live.penalty).unit
    assert live.scale.unit == pytest.approx(truth, rel=1e-9)


def parts(scale: ResidualScale) -> Iterable[float]:
    return (scale.freedom, scale.squares, scale.left)


def test_what_was_measured_takes_the_place_of_what_was_carried() -> None:
    then, now = ResidualScale(3.0, 10.0, 50.0, 1.0, 2.0), ResidualScale(3.5, 9.0, 48.0, 1.5, 4.0)
    measured = ResidualScale(3.1, 12.0, 49.9, 0.1, 0.2)
    assert then.since(then, measured) is measured
    moved = now.since(then, measured)
    assert list(parts(moved)) == pytest.approx([3.6, 11.0, 47.9])
    assert (moved.freedom_error, moved.squares_error) == pytest.approx((0.6, 2.2))


def test_the_scale_of_a_fit_does_not_depend_on_the_unit_of_the_target() -> None:
    rows = rows_of(40, 8)
    live = Live(rows, 0.1)
    for unit in (1e-100, 1e100):
        scaled = Rows(rows.X, rows.y * unit, rows.weight)
        scale = begin_scale(
            scaled, live.fit.dual_rows, live.stream.theta_exact * unit, live.generation.dual_error
        )
        assert scale.unit is not None
        assert live.scale.unit is not None
        assert scale.unit / unit**2 == pytest.approx(live.scale.unit, rel=1e-12)
