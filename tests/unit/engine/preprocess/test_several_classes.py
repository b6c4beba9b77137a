"""A logistic model of several classes forgets rows as its refitted pipeline would."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from lethe import LogisticModel
from lethe.engine.conversion import final_of
from lethe.engine.errors import InvalidData
from lethe.engine.fit.objective import Array, norm
from lethe.engine.preprocess.input.columns import Columns, Numeric, OneHot, TargetEncode

ROWS = 900
NUMBERS = ["age", "income"]


def table(n: int, seed: int) -> tuple[pd.DataFrame, Any]:
    """Return customers, by numbers far from 0, some missing, and a town; and their segments."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": 40.0 + 12.0 * rng.normal(size=n),
            "income": 3000.0 + 900.0 * rng.normal(size=n),
            "town": rng.choice(["Ulm", "Bonn", "Kiel"], n, p=[0.5, 0.3, 0.2]),
        }
    )
    margin = np.column_stack(
        [
            0.08 * (frame["age"] - 40.0),
            1e-3 * (frame["income"] - 3000.0),
            1.0 * (frame["town"] == "Ulm"),
        ]
    )
    drawn = (margin + rng.gumbel(size=margin.shape)).argmax(axis=1)
    frame.loc[rng.random(n) < 0.1, "income"] = np.nan
    return frame, np.array(["basic", "plus", "pro"])[drawn]


def scaled(final: Any) -> Pipeline:
    """Return a pipeline of numbers alone."""
    columns = make_column_transformer((make_pipeline(SimpleImputer(), StandardScaler()), NUMBERS))
    return make_pipeline(columns, final)


def mixed(final: Any) -> Pipeline:
    """Return a pipeline with imputed and one-hot columns."""
    columns = make_column_transformer(
        (make_pipeline(SimpleImputer(), StandardScaler()), NUMBERS),
        (OneHotEncoder(sparse_output=False), ["town"]),
    )
    return make_pipeline(columns, final)


def each_against_the_rest() -> OneVsRestClassifier:
    """Return the classifier, solved as far as there are digits."""
    return OneVsRestClassifier(LogisticRegression(tol=1e-12, solver="newton-cholesky"))


def parameters(fitted: Pipeline) -> Array:
    """Return coefficients and intercepts, d x C."""
    last = final_of(fitted)
    parts = getattr(last, "estimators_", [last])
    coefficients = np.vstack([part.coef_ for part in parts])
    return np.vstack([coefficients.T, np.hstack([part.intercept_ for part in parts])])


def changed(model: Any, live: dict[str, Any], step: int, rng: Any, more: Any, labels: Any) -> None:
    """Delete, insert or correct two rows, and keep ``live``."""
    new, new_y = more.iloc[step : step + 2], labels[step : step + 2]
    ids = [str(i) for i in rng.choice(sorted(live), 2, replace=False)]
    what = ("delete", "insert", "correct")[step // 2 % 3]
    if what == "delete":
        model.delete(ids, method="exact")
        for one in ids:
            del live[one]
        return
    ids = [f"new{step}", f"new{step + 1}"] if what == "insert" else ids
    getattr(model, what)(new, new_y, ids, method="exact")
    live |= {one: (new.iloc[[i]], new_y[i]) for i, one in enumerate(ids)}


@pytest.mark.parametrize("made", [scaled, mixed])
def test_it_is_the_pipeline_refitted_within_its_bound_after_mixed_changes(made: Any) -> None:
    frame, y = table(ROWS, 0)
    more, labels = table(60, 1)
    given = made(each_against_the_rest()).fit(frame, y)
    model = LogisticModel.from_sklearn(given, frame, y)
    assert model.converted_from_ is not None
    assert model.converted_from_.relative < 1e-9
    live = {str(i): (frame.iloc[[i]], y[i]) for i in range(ROWS)}
    rng = np.random.default_rng(2)
    moved = 0.0
    for step in range(0, 18, 2):
        changed(model, live, step, rng, more, labels)
        rows = pd.concat([row for row, _ in live.values()])
        targets = np.array([label for _, label in live.values()])
        again = clone(given).fit(rows, targets)
        truth = parameters(again)
        away = norm(np.vstack([model.theta, model.intercept]) - truth)
        assert model.error.bound is not None
        assert away <= model.error.bound + 1e-9
        assert model.error.bound < 0.5 * norm(truth)
        moved = max(moved, away)
    assert moved > 1e-8  # between rebuilds there is something to bound
    model.refresh("compact")
    assert away <= (model.error.bound or np.inf)
    model.refresh("rebuild")
    np.testing.assert_allclose(np.vstack([model.theta, model.intercept]), truth, atol=1e-8)
    plain = model.to_sklearn()
    for one in (plain, model):
        found = one.predict_proba(rows)
        found = found / found.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(found, again.predict_proba(rows), atol=1e-8)
    np.testing.assert_array_equal(plain.predict(rows), again.predict(rows))


def test_it_is_a_model_of_each_class_against_the_rest() -> None:
    """Blocks share their statistics, and nothing else."""
    columns: Columns = {"age": Numeric(), "income": Numeric(), "town": OneHot()}
    frame, y = table(300, 3)
    model = LogisticModel(preprocess=columns).fit(frame, y)
    model.delete(["0", "7", "9"], method="exact")
    model.insert(frame[:2], y[:2], ["a", "b"], method="exact")
    bounds = []
    for c, label in enumerate(model.classes_):
        one = LogisticModel(preprocess=columns).fit(frame, 1 * (y == label))
        one.delete(["0", "7", "9"], method="exact")
        one.insert(frame[:2], 1 * (y[:2] == label), ["a", "b"], method="exact")
        np.testing.assert_allclose(model.theta[:, c], one.theta, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(model.intercept[c], one.intercept, rtol=1e-9)
        assert one.error.bound is not None
        bounds.append(one.error.bound)
    assert model.error.bound is not None
    assert np.hypot.reduce(bounds) <= model.error.bound <= 3 * np.hypot.reduce(bounds)


def test_a_class_without_rows_penalises_the_intercepts() -> None:
    columns: Columns = {"age": Numeric()}
    x = 40.0 + np.arange(12.0)
    y = np.array(["a", "b", "c"] + ["a", "b"] * 4 + ["a"])
    model = LogisticModel(preprocess=columns).fit({"age": x}, y)
    model.delete(["2"])
    assert model.intercept_penalised
    assert model.error.bound is not None


def test_no_column_is_encoded_by_several_classes() -> None:
    frame, y = table(30, 4)
    frame = frame[["town"]]
    with pytest.raises(
        InvalidData, match="column 'town' is encoded by the target, and there are 3"
    ):
        LogisticModel(preprocess={"town": TargetEncode()}).fit(frame, y)
