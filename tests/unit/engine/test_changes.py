"""Inserting into a library model and correcting it: the same as fitting what is live then."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lethe import LinearModel, LogisticModel
from lethe.engine.errors import IllConditioned, InvalidData, UnknownRows
from tests.support.changes import Table


@pytest.mark.parametrize("seed", range(4))
def test_a_linear_model_stays_what_a_fit_gives_through_mixed_changes(seed: int) -> None:
    table = Table("linear", seed)
    for _ in range(150):
        table.act("exact")
        bound = table.model.error.bound
        assert bound is not None
        assert table.distance() <= bound
    assert set(table.model.live_ids) == set(table.live)
    assert table.distance() <= 1e-9 * float(np.linalg.norm(table.model.theta))
    for size in ("polish", "compact", "rebuild"):
        table.act("exact")
        table.model.refresh(size)
        assert table.distance() <= 1e-9 * float(np.linalg.norm(table.model.theta))


@pytest.mark.parametrize("method", ["pru", "influence"])
def test_a_projection_stays_within_its_bound(method: str) -> None:
    table = Table("linear", 7)
    for _ in range(40):
        table.act(method)
        bound = table.model.error.bound
        assert bound is not None
        assert table.distance() <= bound
    table.model.refresh("complete")
    assert table.distance() <= 1e-10


@pytest.mark.parametrize("seed", range(3))
def test_a_logistic_models_error_is_known_and_a_refresh_mends_it(seed: int) -> None:
    table = Table("logistic", seed, n=400)
    for _ in range(30):
        table.act("exact")
        error = table.model.error
        assert error.value is None or table.distance() <= 3 * error.value
    table.model.refresh("polish")
    bound = table.model.error.bound
    assert bound is not None
    assert table.distance() <= bound


def test_a_correction_keeps_id_and_weight() -> None:
    rng = np.random.default_rng(1)
    X, y = rng.standard_normal((30, 3)), rng.standard_normal(30)
    weight = rng.uniform(0.5, 2.0, 30)
    model = LinearModel().fit(X, y, sample_weight=weight)
    X[4], y[4] = 1.0, 2.0
    model.correct(X[4:5], y[4:5], ["4"], method="exact")
    other = LinearModel().fit(X, y, sample_weight=weight)
    np.testing.assert_allclose(model.theta, other.theta, rtol=0, atol=1e-12)
    assert len(model.live_ids) == 30
    model.delete(["4"], "exact")
    assert "4" not in model.live_ids


def test_classes_are_those_that_the_model_was_fitted_on() -> None:
    rng = np.random.default_rng(2)
    X, names = rng.standard_normal((90, 4)), np.array(["cat", "dog", "owl"])
    y = names[rng.integers(3, size=90)]
    model = LogisticModel().fit(X[:60], y[:60], ids=[f"a{i}" for i in range(60)])
    model.insert(X[60:], y[60:], [f"b{i}" for i in range(30)], method="exact")
    model.refresh("polish")
    other = LogisticModel().fit(X, y)
    apart = np.vstack([model.theta - other.theta, model.intercept - other.intercept])
    assert model.error.bound is not None
    assert other.error.bound is not None
    assert float(np.linalg.norm(apart)) <= model.error.bound + other.error.bound
    with pytest.raises(InvalidData, match="row 0 is none of the classes"):
        model.insert(X[:1], ["cow"], ["new"])


def test_an_emptied_model_begins_again_with_what_is_inserted() -> None:
    table = Table("linear", 3, n=5)
    table.model.delete(list(table.live))
    table.live = {}
    names, X, y = table.draw(12)
    table.model.insert(X, y, names)
    table.live = {name: (X[i], y[i]) for i, name in enumerate(names)}
    assert table.distance() <= 1e-10


def test_a_class_that_a_correction_empties_is_refitted() -> None:
    rng = np.random.default_rng(4)
    X, y = rng.standard_normal((20, 2)), np.r_[np.ones(1), np.zeros(19)]
    model = LogisticModel().fit(X, y)
    assert not model.intercept_penalised
    model.correct(X[:1], [0], ["0"])
    assert model.intercept_penalised


WRONG: dict[str, tuple[Any, Any, Any, str]] = {
    "known": (np.ones((1, 2)), [1.0], ["0"], "'0' is a row of this model already; correct it"),
    "deleted": (np.ones((1, 2)), [1.0], ["1"], "'1' was deleted .* never comes back"),
    "columns": (np.ones((1, 3)), [1.0], ["new"], "X has 3 columns; the model was fitted on 2"),
    "targets": (np.ones((1, 2)), [[1.0, 2.0]], ["new"], "y has 2 columns"),
    "ids": (np.ones((1, 2)), [1.0], "new", "give a list of row ids"),
    "twice": (np.ones((2, 2)), [1.0, 1.0], ["new", "new"], "ids are not distinct"),
    "NaN": (np.array([[np.nan, 1.0]]), [1.0], ["new"], "not a finite number"),
    "counts": (np.ones((1, 2)), [1.0, 2.0], ["new"], "1 rows of X, 2 of y"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_inserted_changes_nothing(case: str) -> None:
    rng = np.random.default_rng(5)
    model = LinearModel().fit(rng.standard_normal((9, 2)), rng.standard_normal(9))
    model.delete(["1"], "exact")
    before, live = model.theta, model.live_ids
    X, y, ids, match = WRONG[case]
    with pytest.raises(InvalidData, match=match):
        model.insert(X, y, ids)
    np.testing.assert_array_equal(model.theta, before)
    assert model.live_ids == live


@pytest.mark.parametrize("name", ["1", "stranger"])
def test_only_live_rows_are_corrected(name: str) -> None:
    rng = np.random.default_rng(6)
    model = LinearModel().fit(rng.standard_normal((9, 2)), rng.standard_normal(9))
    model.delete(["1"])
    with pytest.raises(UnknownRows, match="nothing was corrected"):
        model.correct(np.ones((1, 2)), [1.0], [name])


def test_a_row_that_overflows_changes_nothing() -> None:
    rng = np.random.default_rng(8)
    model = LinearModel().fit(rng.standard_normal((9, 2)), rng.standard_normal(9))
    before, live = model.theta, model.live_ids
    with pytest.raises((InvalidData, IllConditioned)):
        model.insert(np.full((1, 2), 1e200), [1.0], ["new"], method="exact")
    np.testing.assert_array_equal(model.theta, before)
    assert model.live_ids == live
