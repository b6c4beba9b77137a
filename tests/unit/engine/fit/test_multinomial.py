"""The softmax objective against differences, and its closed-form roots."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from lethe.engine.errors import InvalidData
from lethe.engine.fit.fit import fit
from lethe.engine.fit.multinomial import SoftmaxObjective, curvature_roots, unvec, vec
from lethe.engine.fit.objective import Array, Rows

D, C, K = 3, 4, 30


def _rows(seed: int = 0) -> Rows:
    rng = np.random.default_rng(seed)
    y = np.eye(C)[rng.integers(C, size=K)]
    return Rows(rng.standard_normal((K, D)), y, rng.uniform(0.5, 2.0, size=K))


def _objective(rows: Rows) -> SoftmaxObjective:
    return SoftmaxObjective.of(np.array([0.5, 0.5, 0.0]), rows)


@pytest.mark.parametrize("spread", [0.1, 3.0, 300.0])
def test_the_roots_square_to_the_curvature(spread: float) -> None:
    """Saturated rows included, where tails are 0."""
    rng = np.random.default_rng(1)
    margin = spread * rng.standard_normal((50, C))
    p = np.exp(margin - margin.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    R = curvature_roots(p)
    assert R.shape == (50, C, C - 1)
    S = np.einsum("ic,cb->icb", p, np.eye(C)) - p[:, :, None] * p[:, None, :]
    np.testing.assert_allclose(R @ R.transpose(0, 2, 1), S, rtol=0, atol=1e-15)


def test_gradient_and_hessian_are_the_derivatives_of_the_value() -> None:
    rows, rng = _rows(), np.random.default_rng(2)
    objective, theta, v = _objective(rows), rng.standard_normal((D, C)), rng.standard_normal((D, C))
    h = 1e-5
    rise = (objective.value(rows, theta + h * v) - objective.value(rows, theta - h * v)) / (2 * h)
    np.testing.assert_allclose(np.sum(objective.gradient(rows, theta) * v), rise, rtol=1e-8)
    bent = objective.gradient(rows, theta + h * v) - objective.gradient(rows, theta - h * v)
    Hv = unvec(objective.hessian(rows, theta) @ vec(v), D)
    np.testing.assert_allclose(Hv, bent / (2 * h), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(Hv, objective.hessian_times(rows, theta, v), rtol=1e-12)


def test_the_error_of_a_row_that_fits_well_keeps_its_digits() -> None:
    rows = Rows(np.ones((1, 1)), np.eye(3)[:1], np.ones(1))
    objective = SoftmaxObjective.of(np.ones(1), rows)
    error = objective.error(rows, np.array([[80.0, 0.0, 0.0]]))
    expected = np.exp(-80.0) * np.array([[-2.0, 1.0, 1.0]])
    np.testing.assert_allclose(error, expected, rtol=1e-12)


@pytest.mark.parametrize("gauge", [1e-3, 1.0, 1e3])
def test_the_gauge_moves_nothing(gauge: float) -> None:
    rows = _rows()
    objective = _objective(rows)
    one = fit(objective, rows).theta
    other = fit(replace(objective, gauge=gauge), rows).theta
    np.testing.assert_allclose(other, one, rtol=0, atol=1e-12)
    np.testing.assert_allclose(one.sum(axis=1), 0.0, atol=1e-12)


def test_a_curvature_changes_no_faster_than_the_range_of_the_margins() -> None:
    """e^-r S(u) <= S(u + v) <= e^r S(u), r = max v - min v: what the certificate rests on."""
    rng = np.random.default_rng(3)

    def curvature(u: Array) -> Array:
        p = np.exp(u - u.max())
        p /= p.sum()
        matrix: Array = np.diag(p) - np.outer(p, p)
        return matrix

    for _ in range(2000):
        u, v = 3 * rng.standard_normal(C), 10.0 ** rng.uniform(-2, 1) * rng.standard_normal(C)
        before, after, r = curvature(u), curvature(u + v), float(np.ptp(v))
        for small, large in ((before, after), (after, before)):
            assert np.linalg.eigvalsh(np.exp(r) * large - small).min() >= -1e-12 * np.exp(r)


def test_more_coordinates_than_the_limit_are_refused() -> None:
    rows = Rows(np.zeros((2, 1001)), np.eye(4)[:2], np.ones(2))
    with pytest.raises(InvalidData, match="4004 coordinates, at most 4000"):
        SoftmaxObjective.of(np.ones(1001), rows)
