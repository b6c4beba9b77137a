"""A softmax model forgets rows as its refitted pipeline would: every change is a fit of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

from lethe import SoftmaxModel
from lethe.engine.errors import InvalidData
from lethe.engine.fit.objective import Array, Kind, norm
from lethe.engine.preprocess.input.columns import Columns, Numeric, OneHot
from lethe.engine.preprocess.library.softmax import PreparedSoftmax
from lethe.engine.store.layout.preprocessing import check_served
from tests.proof.bounds.pipelines import Truth
from tests.unit.engine.preprocess.test_several_classes import changed, mixed, parameters, table

COLUMNS: Columns = {"age": Numeric(), "income": Numeric(), "town": OneHot()}


def final(**given: Any) -> LogisticRegression:
    """Return the classifier, solved as far as there are digits."""
    return LogisticRegression(tol=1e-12, max_iter=1000, solver="newton-cg", **given)


@pytest.mark.parametrize("weights", [None, "balanced", {"basic": 3.0, "plus": 1.0, "pro": 0.5}])
def test_it_is_the_refitted_pipeline_after_mixed_changes(weights: Any) -> None:
    frame, y = table(600, 0)
    more, labels = table(60, 1)
    given = mixed(final(class_weight=weights)).fit(frame, y)
    model = SoftmaxModel.from_sklearn(given, frame, y)
    assert model.converted_from_ is not None
    assert model.converted_from_.relative < 1e-8
    live = {str(i): (frame.iloc[[i]], y[i]) for i in range(600)}
    rng = np.random.default_rng(2)
    for step in range(0, 12, 2):
        changed(model, live, step, rng, more, labels)
        rows = pd.concat([row for row, _ in live.values()])
        targets = np.array([label for _, label in live.values()])
        again = clone(given).fit(rows, targets)
        here = np.vstack([model.theta, model.intercept])
        assert norm(here - parameters(again)) < 1e-7 * norm(here)  # scikit-learn's own solver
        np.testing.assert_allclose(
            model.predict_proba(rows), again.predict_proba(rows), rtol=1e-9, atol=1e-12
        )
        assert model.error.kind == "certificate"
        assert model.error.relative is not None
        assert model.error.relative < 1e-8
    plain = model.to_sklearn()
    np.testing.assert_allclose(plain.predict_proba(rows), model.predict_proba(rows), rtol=1e-12)
    np.testing.assert_array_equal(plain.predict(rows), again.predict(rows))
    refit = clone(plain[-1]).set_params(tol=1e-12, max_iter=1000, solver="newton-cg")
    refit.fit(plain[:-1].transform(rows), targets)
    np.testing.assert_allclose(refit.coef_, model.theta.T, atol=1e-7)


def drawn(n: int, seed: int) -> tuple[dict[Any, Array], Array]:
    """Return rows as objects, the columns far from 0 or with gaps, and their classes."""
    frame, y = table(n, seed)
    rows = {name: frame[name].to_numpy(dtype=object) for name in COLUMNS}
    rows["age"] = rows["age"] + 1e6
    rows["income"] = np.array([None if np.isnan(v) else v for v in rows["income"]], dtype=object)
    return rows, np.array([["basic", "plus", "pro"].index(label) for label in y], dtype=np.float64)


@pytest.mark.parametrize("method", ["exact", "pru", "influence"])
def test_whatever_the_method_the_bound_is_above_the_distance_in_80_bits(method: str) -> None:
    rows, y = drawn(90, 5)
    truth = Truth(COLUMNS, 0.01, rows, y, kind=Kind.SOFTMAX, classes=3)
    model = SoftmaxModel(0.01, preprocess=COLUMNS).fit(rows, y.astype(int))
    live = list(range(90))
    for step in range(4):
        gone, live = live[:3], live[3:]
        model.delete([str(i) for i in gone], method=method)
        [state] = truth.judge(model, live, 0, step, method)
        assert state.excess <= 0.0
        assert state.relative < 1e-9


def test_a_class_without_rows_penalises_the_intercepts_and_no_row_at_all_is_0() -> None:
    rows, y = drawn(40, 6)
    y[:] = np.where(y == 2.0, 1.0, y)
    y[:2] = 2.0
    truth = Truth(COLUMNS, 1.0, rows, y, kind=Kind.SOFTMAX, classes=3)
    model = SoftmaxModel(preprocess=COLUMNS).fit(rows, y.astype(int))
    model.delete(["0", "1"])
    assert model.intercept_penalised
    [state] = truth.judge(model, list(range(2, 40)), 0, 1, "a class has left")
    assert state.excess <= 0.0
    model.insert({name: values[:1] for name, values in rows.items()}, [2], ["back"])
    assert [model.intercept_penalised] == [False]
    model.delete(model.live_ids)
    assert not model.theta.any()
    assert model.error.value == 0.0


def test_a_new_category_and_every_refresh_are_a_fit_as_well() -> None:
    frame, y = table(200, 7)
    model = SoftmaxModel(preprocess=COLUMNS).fit(frame, y)
    more = frame[:1].assign(town="Jena")
    model.insert(more, y[:1], ["new"])
    state = model._state
    assert isinstance(state, PreparedSoftmax)
    assert "town_Jena" in state.feature_names
    whole = SoftmaxModel(preprocess=COLUMNS).fit(
        pd.concat([frame, more]), np.append(y, y[0]), ids=[*map(str, range(200)), "new"]
    )
    np.testing.assert_allclose(model.theta, whole.theta, rtol=1e-8, atol=1e-9)
    for size in ("complete", "polish", "compact", "rebuild"):
        model.refresh(size)
        np.testing.assert_allclose(model.theta, whole.theta, rtol=1e-8, atol=1e-9)
        assert model.error.bound is not None


def test_what_there_is_not_is_refused_by_name() -> None:
    frame, y = table(60, 8)
    with pytest.raises(InvalidData, match="needs at least 3 classes"):
        SoftmaxModel(preprocess=COLUMNS).fit(frame, np.where(y == "pro", "plus", y))
    with pytest.raises(InvalidData, match="in the library alone; give a fitted transformer"):
        check_served(Kind.SOFTMAX)
    model = SoftmaxModel(preprocess=COLUMNS).fit(frame, y)
    before = model.theta
    with pytest.raises(InvalidData, match="label"):
        model.insert(frame[:1], ["gold"], ["new"])
    np.testing.assert_array_equal(model.theta, before)
