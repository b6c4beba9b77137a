"""Sums over live rows: what a row added is subtracted again, to the last digit."""

from __future__ import annotations

import numpy as np
import pytest

from lethe.engine.preprocess.input.columns import Columns, Numeric, TargetEncode
from lethe.engine.preprocess.input.table import read_table
from lethe.engine.preprocess.transformation.base import fit_base
from lethe.engine.preprocess.transformation.sums import Contribution, Sums, Total


def test_a_total_holds_twice_the_digits() -> None:
    total = Total.zero(1)
    for value in (1e16, 1.0, 1e-5, -1e16):
        total.add(np.array([value]))
    assert total.high[0] == 1.0 + 1e-5


def test_large_rows_that_come_and_go_leave_nothing() -> None:
    rng = np.random.default_rng(0)
    total, kept = Total.zero(3), rng.standard_normal((20, 3))
    for row in kept:
        total.add(row)
    for _ in range(1000):
        row = rng.standard_normal(3) * 10.0 ** rng.uniform(0, 8)
        total.add(row)
        total.add(-row)
    exact = np.array([float(sum(map(np.longdouble, column))) for column in kept.T])
    np.testing.assert_allclose(total.high, exact, rtol=4e-16, atol=0)


@pytest.fixture
def rows() -> tuple[object, Contribution]:
    rng = np.random.default_rng(1)
    n = 60
    x = rng.standard_normal(n)
    x[rng.random(n) < 0.3] = np.nan
    columns: Columns = {"x": Numeric(), "c": TargetEncode()}
    table = read_table(columns, {"x": x, "c": [f"c{i}" for i in rng.integers(0, 4, n)]})
    y = rng.standard_normal(n)
    base = fit_base(columns, table, y, centred=True)
    features, entries = base.rows(table)
    X, s = np.hstack([features, np.ones((n, 1))]), rng.uniform(0.5, 2.0, (n, 1))
    response, error = s * y[:, None], rng.standard_normal((n, 1))
    return base.layout, Contribution(
        X, entries, s, response, y - base.target_mean, error, rng.uniform(size=n), np.zeros(n)
    )


def test_the_sums_are_those_of_the_dense_indicator_matrix(rows: tuple) -> None:  # type: ignore[type-arg]
    layout, contribution = rows
    sums = Sums.of(layout, contribution)
    N = np.zeros((len(contribution), layout.entries))
    for i, entries in enumerate(contribution.entries):
        N[i, entries[entries >= 0]] = 1.0
    S = np.diag(contribution.curvature[:, 0])
    np.testing.assert_array_equal(sums.counts, N.sum(axis=0))
    np.testing.assert_allclose(sums.crossed.at(), N.T @ S @ contribution.X, rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(sums.paired.at(), N.T @ S @ N, rtol=1e-13)
    np.testing.assert_allclose(sums.responses.high, N.T @ contribution.response, rtol=1e-12)
    np.testing.assert_allclose(
        sums.weighted.high, contribution.X.T @ contribution.curvature[:, 0], rtol=1e-13, atol=1e-13
    )
    np.testing.assert_allclose(
        sums.errors.high, contribution.X.T @ contribution.error, rtol=1e-12, atol=1e-13
    )
    assert sums.longest == np.max(np.linalg.norm(contribution.X, axis=1))
    assert sums.reach == np.max(contribution.reach)


def test_subtracted_rows_leave_the_sums_of_the_others(rows: tuple) -> None:  # type: ignore[type-arg]
    layout, contribution = rows
    before = Sums.of(layout, contribution)
    after = before.changed(layout, contribution.take(slice(0, 25)), -1)
    afresh = Sums.of(layout, contribution.take(slice(25, None)))
    assert before.rows == 60  # the old sums stay as they are
    np.testing.assert_array_equal(after.counts, afresh.counts)
    np.testing.assert_array_equal(after.present, afresh.present)
    np.testing.assert_allclose(after.crossed.at(), afresh.crossed.at(), rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(after.paired.at(), afresh.paired.at(), rtol=1e-13, atol=1e-14)
    for name in ("first", "second", "target", "all_target", "responses", "errors"):
        mine, other = getattr(after, name).high, getattr(afresh, name).high
        np.testing.assert_allclose(mine, other, rtol=1e-13, atol=1e-14, err_msg=name)


def test_changes_of_a_few_rows_join_the_others_in_the_end(rows: tuple) -> None:  # type: ignore[type-arg]
    layout, contribution = rows
    before = Sums.of(layout, contribution)
    kept = before.crossed.at().copy()
    sums, most = before, 0
    for i in range(60):
        some = contribution.take(slice(i % 35, i % 35 + 25))
        for sign in (-1, 1):
            sums = sums.changed(layout, some, sign)
            most = max(most, sums.late)
    assert 0 < sums.late < 60 * 2 * 25
    assert most <= 1024
    np.testing.assert_allclose(sums.crossed.at(), kept, rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(sums.paired.at(), before.paired.at(), rtol=1e-13)
    np.testing.assert_array_equal(before.crossed.at(), kept)  # the old sums stay as they are
    np.testing.assert_array_equal(sums.counts, before.counts)
