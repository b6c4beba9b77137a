"""A Poisson model's preprocessing forgets rows, as a pipeline that is fitted anew would."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import PoissonRegressor
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from lethe import PoissonModel
from lethe.engine.conversion import final_of
from lethe.engine.errors import InvalidData
from lethe.engine.fit.objective import Array, Kind, Objective, Rows, norm, ridge_penalty
from lethe.engine.preprocess.input.columns import Columns, Numeric, OneHot
from lethe.engine.preprocess.transformation.sums import cancelled_in_errors
from tests.proof.bounds.pipelines import Truth

ROWS, ALPHA = 400, 0.05


def table(n: int, seed: int) -> tuple[pd.DataFrame, Array]:
    """Return visits of customers, by numbers far from 0, some missing, and a town."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": 40.0 + 12.0 * rng.normal(size=n),
            "income": 3000.0 + 900.0 * rng.normal(size=n),
            "town": rng.choice(["Ulm", "Bonn", "Kiel"], n, p=[0.5, 0.3, 0.2]),
        }
    )
    margin = 0.03 * (frame["age"] - 40.0) + 3e-4 * (frame["income"] - 3000.0)
    counts = rng.poisson(np.exp(margin + 0.4 * (frame["town"] == "Ulm") + 0.5))
    frame.loc[rng.random(n) < 0.1, "income"] = np.nan
    return frame, counts.astype(np.float64)


def scaled() -> Pipeline:
    """Return the plainest pipeline, and one with every kind of column below."""
    return make_pipeline(SimpleImputer(), StandardScaler(), _last())


def mixed() -> Pipeline:
    """Return a pipeline with imputed and one-hot columns."""
    columns = make_column_transformer(
        (make_pipeline(SimpleImputer(), StandardScaler()), ["age", "income"]),
        (OneHotEncoder(sparse_output=False), ["town"]),
    )
    return make_pipeline(columns, _last())


def _last() -> PoissonRegressor:
    return PoissonRegressor(alpha=ALPHA, tol=1e-14, max_iter=1000, solver="newton-cholesky")


def refitted(given: Pipeline, frame: pd.DataFrame, y: Array) -> Pipeline:
    """Return the pipeline fitted to these rows, with the ridge strength of the first fit."""
    again = clone(given)
    final_of(again).set_params(alpha=ALPHA * ROWS / len(y))
    return again.fit(frame, y)


def parameters(fitted: Any) -> Array:
    """Return the coefficients of the last step, the intercept last."""
    last = final_of(fitted)
    return np.append(last.coef_, last.intercept_)


@pytest.mark.parametrize(("made", "columns"), [(scaled, ["age", "income"]), (mixed, None)])
def test_it_is_the_pipeline_refitted_within_its_bound_after_mixed_changes(
    made: Any, columns: list[str] | None
) -> None:
    frame, y = table(ROWS, 0)
    more, their_y = table(60, 1)
    frame, more = (one[columns] if columns else one for one in (frame, more))
    given = made().fit(frame, y)
    model = PoissonModel.from_sklearn(given, frame, y)
    assert model.ridge == ALPHA * ROWS
    assert model.converted_from_ is not None
    assert model.converted_from_.relative < 1e-10
    live = {str(i): (frame.iloc[[i]], y[i]) for i in range(ROWS)}
    rng = np.random.default_rng(2)
    moved = 0.0
    for step in range(0, 24, 2):
        new, new_y = more.iloc[step : step + 2], their_y[step : step + 2]
        ids = [str(i) for i in rng.choice(sorted(live), 2, replace=False)]
        what = ("delete", "insert", "correct")[step // 2 % 3]
        if what == "delete":
            model.delete(ids, method="exact")
            for one in ids:
                del live[one]
        else:
            ids = [f"new{step}", f"new{step + 1}"] if what == "insert" else ids
            getattr(model, what)(new, new_y, ids, method="exact")
            live |= {one: (new.iloc[[i]], new_y[i]) for i, one in enumerate(ids)}
        rows = pd.concat([row for row, _ in live.values()])
        truth = parameters(refitted(given, rows, np.array([count for _, count in live.values()])))
        away = norm(np.append(model.theta, model.intercept) - truth)
        assert model.error.bound is not None
        assert away <= model.error.bound + 1e-10
        assert model.error.bound < 0.5 * norm(truth)
        moved = max(moved, away)
    assert moved > 1e-8  # between rebuilds there is something to bound
    model.refresh("rebuild")
    again = refitted(given, rows, np.array([count for _, count in live.values()]))
    np.testing.assert_allclose(
        np.append(model.theta, model.intercept), parameters(again), rtol=1e-9
    )
    plain = model.to_sklearn()
    np.testing.assert_allclose(plain.predict(rows), again.predict(rows), rtol=1e-9)
    np.testing.assert_allclose(model.predict(rows), again.predict(rows), rtol=1e-9)
    assert plain[-1].alpha == pytest.approx(ALPHA * ROWS / len(rows))


def test_counts_of_0_alone_have_a_penalised_intercept_and_a_bound() -> None:
    columns: Columns = {"x": Numeric(), "c": OneHot()}
    rng = np.random.default_rng(3)
    rows = {"x": 10.0 + rng.normal(size=8), "c": np.array(list("ababbaab"), dtype=object)}
    y = np.array([0.0, 0.0, 4.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    model = PoissonModel(preprocess=columns).fit(rows, y)
    model.delete(["2"])
    assert model.intercept_penalised
    truth = Truth(columns, 1.0, rows, y, kind=Kind.POISSON)
    [state] = truth.judge(model, [0, 1, 3, 4, 5, 6, 7], 0, 1, "counts of 0")
    assert state.excess <= 0.0


def test_a_count_and_its_mean_cancel_and_what_they_are_relative_to_is_kept() -> None:
    rng = np.random.default_rng(4)
    X, weight = rng.normal(size=(50, 3)), rng.uniform(0.0, 2.0, 50)
    theta = rng.normal(size=(3, 1))
    y = np.floor(np.exp(X @ theta))
    rows = Rows(X, y, weight)
    objective = Objective(
        Kind.POISSON, ridge_penalty(1.0, 3, intercept=False, penalise_intercept=False)
    )
    error, margin = objective.error(rows, theta), X @ theta
    size = cancelled_in_errors(Kind.POISSON, objective.curvatures(rows, theta), error)
    np.testing.assert_allclose(
        size + np.abs(error[:, 0]), objective.error_size_at(rows, margin)[:, 0], rtol=1e-12
    )
    assert not cancelled_in_errors(Kind.LOGISTIC, weight[:, None], error).any()


def test_a_count_below_0_or_a_category_that_is_unknown_is_refused() -> None:
    columns: Columns = {"x": Numeric(), "c": OneHot()}
    rows = {"x": np.arange(6.0), "c": np.array(list("aabbab"), dtype=object)}
    with pytest.raises(InvalidData, match="count of row 1 is below 0"):
        PoissonModel(preprocess=columns).fit(rows, [1.0, -1.0, 0.0, 2.0, 3.0, 1.0])
    model = PoissonModel(preprocess=columns).fit(rows, [1.0, 1.0, 0.0, 2.0, 3.0, 1.0])
    with pytest.raises(InvalidData, match="below 0"):
        model.insert({"x": [1.0], "c": ["a"]}, [-2.0], ["new"])
    with pytest.raises(InvalidData, match="the model predicts for row 'new' a mean of e"):
        model.insert({"x": [1e6], "c": ["a"]}, [2.0], ["new"])
    model.insert({"x": [1.0], "c": ["new"]}, [2.0], ["new"])  # by a rebuild
    assert model.error.bound is not None
    assert "c_new" in model.prepared.feature_names  # type: ignore[union-attr]
