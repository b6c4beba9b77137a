"""The least error of a version with a long row, against fits that have it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lethe.engine.deletion.generation import Generation, Stream, begin
from lethe.engine.deletion.insertion import base_dual_rows
from lethe.engine.error.attainable import LeastError, least_error
from lethe.engine.error.estimate import published_error
from lethe.engine.error.sentinels import Sentinels
from lethe.engine.errors import LetheError
from lethe.engine.fit.factor import Factor
from lethe.engine.fit.objective import Array, Kind, Objective, Rows
from lethe.engine.fit.precompute import precompute
from tests.support.families import Data, families, make

NOTHING = Sentinels((), Rows(np.empty((0, 0)), np.empty((0, 1)), np.empty(0)), np.empty((0, 0)))


def fitted(data: Data) -> tuple[Generation, Stream, Factor]:
    objective = Objective(Kind(data.kind), data.penalty)
    computed = precompute(objective, Rows(data.design, data.y[:, :1], data.weight))
    return *begin(0, objective, computed), computed.factor


def with_row(data: Data, x: Array, y: float) -> Data:
    return Data(
        data.name,
        data.kind,
        np.vstack([data.X, x]),
        np.vstack([data.y[:, :1], [[y]]]),
        np.append(data.weight, 1.0),
        data.ridge,
        data.intercept,
        np.arange(0),
    )


def stated(data: Data) -> float:
    """Return the relative error that a fit states; infinite if there is no fit."""
    try:
        generation, stream, _ = fitted(data)
        bound = None
        if generation.objective.kind is not Kind.LINEAR:
            objective = generation.objective
            rows = Rows(data.design, data.y, data.weight)
            bound = precompute(objective, rows).certificate.bound
        error = published_error(generation, stream, NOTHING, len(data.X), bound)
    except LetheError:
        return math.inf
    return math.inf if error.relative is None else error.relative


def least(data: Data, x: Array, y: float, enough: float) -> LeastError:
    generation, stream, factor = fitted(data)
    row = x[None, :]
    if data.intercept:
        row = np.hstack([row, [[1.0]]])
    W, _ = base_dual_rows(generation, factor, row)
    rows = Rows(row, np.array([[y]]), np.ones(1))
    return least_error(generation, stream, factor, rows, W, enough)


@pytest.mark.parametrize("size", [1e2, 1e4, 1e6, 1e7, 1e8, 1e9, 1e11, 1e13, 1e20, 1e80, 1e150])
@pytest.mark.parametrize("kind", ["linear", "logistic"])
def test_no_row_is_out_of_range_with_which_a_fit_keeps_the_budget(kind: str, size: float) -> None:
    rng = np.random.default_rng(int(math.log10(size)))
    for family in families(kind):
        data = make(family, kind)
        if data.y.shape[1] > 1:
            continue
        x = rng.normal(size=data.X.shape[1]) * np.where(
            rng.random(data.X.shape[1]) < 0.3, size, 1.0
        )
        y = float(rng.integers(2)) if kind == "logistic" else 0.5
        budget = 0.01
        found = least(data, x, y, budget / 64).relative
        if found > budget:
            assert stated(with_row(data, x, y)) > budget, family


@pytest.mark.parametrize("kind", ["linear", "logistic"])
def test_a_row_with_which_no_fit_keeps_the_budget_is_found(kind: str) -> None:
    data = make("benign", kind)
    stream = fitted(data)[1]
    for size in (1e20, 1e80, 1e150, 1e160, 1e300):
        x = np.ones(data.X.shape[1])
        x[2] = size
        wrong = float(x[2] * stream.published[2, 0] < 0)
        found = least(data, x, wrong if kind == "logistic" else 0.5, 1e-4)
        assert found.relative > 0.01, size
        assert stated(with_row(data, x, wrong if kind == "logistic" else 0.5)) > 0.01


def test_a_row_that_is_alone_in_every_direction_loses_nothing_beside_itself() -> None:
    """With one column and no intercept, whatever its length, theta is that row's to every digit."""
    rng = np.random.default_rng(0)
    data = Data(
        "one", "linear", rng.normal(size=(50, 1)), rng.normal(size=(50, 1)), np.ones(50), 1.0,
        False, np.arange(0),
    )  # fmt: skip
    for size in (1e8, 1e20):
        x = np.array([size])
        assert least(data, x, 0.5, 1e-4).relative == 0.0
        assert stated(with_row(data, x, 0.5)) < 0.01


def test_a_feature_that_no_row_had_is_not_out_of_range_because_the_ridge_is_small() -> None:
    """The smallest eigenvalue is the ridge, and the row itself raises it."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(200, 4))
    X[:, 3] = 0.0
    data = Data(
        "new", "linear", X, rng.normal(size=(200, 1)), np.ones(200), 1e-9, True, np.arange(0)
    )
    x = np.array([0.1, 0.2, 0.3, 100.0])
    assert least(data, x, 0.5, 1e-6).relative <= 0.01
    assert stated(with_row(data, x, 0.5)) < 0.01
