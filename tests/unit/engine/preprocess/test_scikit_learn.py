"""From scikit-learn's pipelines and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.compose import ColumnTransformer, make_column_transformer
from sklearn.datasets import load_diabetes
from sklearn.exceptions import NotFittedError
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    OneHotEncoder,
    OrdinalEncoder,
    PowerTransformer,
    StandardScaler,
    TargetEncoder,
)

from lethe import LinearModel, LogisticModel
from lethe.engine.errors import InvalidData
from lethe.engine.preprocess.input.columns import (
    Columns,
    Date,
    Numeric,
    OneHot,
    Ordinal,
    passthrough,
)

KINDS = ("S", "M", "L")


def table(n: int = 120, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return numbers with gaps, numbers, a category, and an ordered one; and a target."""
    rng = np.random.default_rng(seed)
    X = np.empty((n, 4), dtype=object)
    X[:, 0], X[:, 1] = 5 + rng.standard_normal(n), rng.standard_normal(n)
    X[rng.random(n) < 0.1, 0] = np.nan
    X[:, 2] = rng.choice(["a", "b", "c"], n)
    X[:, 3] = rng.choice(KINDS, n)
    return X, X[:, 1].astype(float) + (X[:, 2] == "a") + rng.standard_normal(n)


def transformers() -> ColumnTransformer:
    return ColumnTransformer(
        [
            ("filled", make_pipeline(SimpleImputer(), StandardScaler()), [0]),
            ("plain", "passthrough", [1]),
            ("town", OneHotEncoder(handle_unknown="ignore"), [2]),
            ("size", OrdinalEncoder(categories=[list(KINDS)]), [3]),
        ]
    )


EXPECTED: Columns = {
    0: Numeric(),
    1: passthrough(),
    2: OneHot(unknown="ignore"),
    3: Ordinal(categories=KINDS),
}


def refit(pipeline: Pipeline, X: np.ndarray, y: np.ndarray) -> np.ndarray:
    model = pipeline.fit(X, y)[-1]
    return np.append(np.ravel(model.coef_), np.ravel(model.intercept_))


def test_a_ridge_pipeline_becomes_a_model_that_forgets_as_it_would() -> None:
    X, y = table()
    pipeline = make_pipeline(transformers(), Ridge(alpha=2.0)).fit(X, y)
    model = LinearModel.from_sklearn(pipeline, X, y)
    assert model.preprocess == EXPECTED
    assert model.converted_from_ is not None
    assert model.converted_from_.relative < 1e-10
    model.delete([str(i) for i in range(20)], method="exact")
    truth = refit(pipeline, X[20:], y[20:])
    np.testing.assert_allclose(np.append(model.theta, model.intercept), truth, atol=1e-10)


def test_a_scaler_alone_before_a_logistic_regression_is_read_for_all_columns() -> None:
    X, y = table()
    plain, labels = X[:, 1:2].astype(float), np.where(y > 0.5, "yes", "no")
    pipeline = make_pipeline(StandardScaler(), LogisticRegression(tol=1e-10)).fit(plain, labels)
    model = LogisticModel.from_sklearn(pipeline, plain, labels)
    assert model.preprocess == {0: Numeric(impute=None)}
    np.testing.assert_array_equal(model.predict(plain), pipeline.predict(plain))


@pytest.mark.parametrize("kind", ["linear", "logistic"])
def test_a_model_becomes_a_plain_pipeline_that_predicts_the_same(kind: str) -> None:
    X, y = table()
    labels = (y > 0.5).astype(int)
    model: Any = LinearModel(preprocess=EXPECTED) if kind == "linear" else None
    model = model or LogisticModel(preprocess=EXPECTED)
    model.fit(X, y if kind == "linear" else labels)
    rare = [str(i) for i in np.flatnonzero(X[:, 2] == "c")]
    model.delete(rare, method="exact")
    plain = model.to_sklearn()
    assert isinstance(plain, Pipeline)
    kept = X[X[:, 2] != "c"]
    if kind == "linear":
        np.testing.assert_allclose(plain.predict(kept), model.predict(kept), rtol=1e-9)
        return
    np.testing.assert_allclose(plain.predict_proba(kept), model.predict_proba(kept), rtol=1e-9)
    np.testing.assert_array_equal(plain.predict(kept), model.predict(kept))


def test_a_plain_pipeline_finds_the_columns_of_a_frame_by_name() -> None:
    frame = load_diabetes(as_frame=True, scaled=False)
    X, y = frame.data, frame.target
    hot, scaled = (OneHotEncoder(), ["sex"]), (StandardScaler(), [*X.columns.drop("sex")])
    given = make_pipeline(make_column_transformer(hot, scaled), Ridge()).fit(X, y)
    model = LinearModel.from_sklearn(given, X, y)
    plain = model.to_sklearn()
    assert isinstance(plain, Pipeline)
    truth = given.predict(X)
    for columns in (list(X.columns), list(reversed(X.columns))):
        np.testing.assert_allclose(plain.predict(X[columns]), truth, rtol=1e-9)
    with pytest.raises(ValueError, match=r"columns are missing: .*bmi"):
        plain.predict(X.drop(columns="bmi"))


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (TargetEncoder(), r"step 'all' > 'one', column 0, TargetEncoder: .*cross-fitting"),
        (PowerTransformer(), "step 'all' > 'one', column 0, PowerTransformer: a model has Simple"),
        (
            SimpleImputer(strategy=np.nanmax),
            r"strategy=<function nanmax.* is none of scikit-learn's",
        ),
        (SimpleImputer(missing_values=-1), r"missing_values=-1 .*replace it by NaN"),
        (
            SimpleImputer(missing_values=0.0),
            r"missing_values=0\.0 .*replace it by NaN",
        ),
        (
            OneHotEncoder(dtype=np.float32),
            r"dtype=.*less precision; fit it with dtype=numpy",
        ),
        (FunctionTransformer(np.flip), "FunctionTransformer: func=<function flip.*> has no name"),
        (
            make_pipeline(StandardScaler(), PowerTransformer()),
            "'one' > 'powertransformer', column 0, PowerTransformer: a model has SimpleImputer",
        ),
    ],
)
def test_what_is_not_known_is_refused_by_name(step: Any, message: str) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((30, 2)), rng.standard_normal(30)
    both = ColumnTransformer([("one", step, [0]), ("other", "passthrough", [1])])
    pipeline = Pipeline([("all", both), ("ridge", Ridge())]).fit(X, y)
    with pytest.raises(InvalidData, match=message):
        LinearModel.from_sklearn(pipeline, X, y)


def test_features_that_are_multiplied_are_refused() -> None:
    X, y = table()
    weighted = transformers().set_params(transformer_weights={"town": 2.0})
    with pytest.raises(
        InvalidData, match=r": transformer_weights=\{'town': 2\.0\} multiplies what"
    ):
        LinearModel.from_sklearn(make_pipeline(weighted, Ridge()).fit(X, y), X, y)


def numbers(n: int = 40) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    X = 3 + rng.standard_normal((n, 2))
    return X, X @ np.array([1.0, 2.0]) + rng.standard_normal(n)


def test_a_transformer_that_asks_for_row_weights_is_refused() -> None:
    X, y = numbers()
    with config_context(enable_metadata_routing=True):
        scaler = StandardScaler().set_fit_request(sample_weight=True)
        ridge = Ridge().set_fit_request(sample_weight=True)
        weight = np.arange(1.0, 41.0)
        asks = make_pipeline(scaler, ridge).fit(X, y, sample_weight=weight)
        other = StandardScaler().set_fit_request(sample_weight=False)
        for_ridge = make_pipeline(other, clone(ridge))
        for_ridge.fit(X, y, sample_weight=weight)
        with pytest.raises(InvalidData, match="StandardScaler: it asks for sample_weight"):
            LinearModel.from_sklearn(asks, X, y, sample_weight=weight)
        model = LinearModel.from_sklearn(for_ridge, X, y, sample_weight=weight)
    np.testing.assert_allclose(model.predict(X), for_ridge.predict(X), rtol=1e-10)


def test_a_transformer_that_has_learnt_from_other_rows_is_refused() -> None:
    X, y = numbers()
    weighted = make_pipeline(StandardScaler(), Ridge())
    weighted.fit(X, y, standardscaler__sample_weight=np.arange(40.0))
    message = r"feature '0': the Pipeline makes .* of row 0, and the model of these rows"
    with pytest.raises(InvalidData, match=message):
        LinearModel.from_sklearn(weighted, X, y)
    further = make_pipeline(StandardScaler(), Ridge()).fit(X, y)
    further[0].partial_fit(X[:5] + 1)
    with pytest.raises(InvalidData, match=message):
        LinearModel.from_sklearn(further, X, y)


def test_a_table_that_the_pipeline_would_overwrite_stays_as_it_is() -> None:
    X, y = numbers()
    pipeline = make_pipeline(StandardScaler(copy=False), Ridge()).fit(X.copy(), y)
    before = X.copy()
    model = LinearModel.from_sklearn(pipeline, X, y)
    np.testing.assert_array_equal(X, before)
    np.testing.assert_allclose(model.predict(X), pipeline.predict(X.copy()), rtol=1e-10)


@pytest.mark.parametrize("nothing", ["passthrough", None, FunctionTransformer()])
def test_steps_that_do_nothing_are_as_if_they_were_not_there(nothing: Any) -> None:
    X, y = numbers()
    alone = Pipeline([("s", nothing), ("ridge", Ridge())]).fit(X, y)
    assert LinearModel.from_sklearn(alone, X, y).preprocess is None
    before = Pipeline([("s", nothing), ("scale", StandardScaler()), ("ridge", Ridge())]).fit(X, y)
    assert LinearModel.from_sklearn(before, X, y).preprocess == {
        0: Numeric(impute=None),
        1: Numeric(impute=None),
    }


def test_pipelines_in_a_pipeline_are_read_through() -> None:
    X, y = numbers()
    columns = ColumnTransformer([("one", SimpleImputer(), [1]), ("rest", "passthrough", [0])])
    inner = make_pipeline(columns, make_pipeline(StandardScaler()))
    pipeline = make_pipeline(inner, make_pipeline("passthrough", Ridge())).fit(X, y)
    model = LinearModel.from_sklearn(pipeline, X, y)
    assert model.preprocess == {1: Numeric(), 0: Numeric(impute=None)}
    np.testing.assert_allclose(model.predict(X), pipeline.predict(X), rtol=1e-10)


@pytest.mark.parametrize("steps", [[], [("a", StandardScaler()), ("b", "passthrough")]])
def test_a_pipeline_without_an_estimator_at_its_end_is_refused(steps: Any) -> None:
    X, y = numbers()
    with pytest.raises(InvalidData, match="Pipeline: it "):
        LinearModel.from_sklearn(Pipeline(steps), X, y)


def test_a_transformer_that_is_not_fitted_is_refused() -> None:
    X, y = numbers()
    pipeline = make_pipeline(StandardScaler(), Ridge().fit(X, y))
    with pytest.raises(NotFittedError, match="step 'standardscaler', this StandardScaler is not"):
        LinearModel.from_sklearn(pipeline, X, y)


def test_columns_that_a_pipeline_drops_may_be_in_the_table() -> None:
    X, y = numbers()
    frame = pd.DataFrame({"a": X[:, 0], "name": ["x"] * 40, "b": X[:, 1]})
    columns = ColumnTransformer([("scaled", StandardScaler(), ["b", "a"])])
    pipeline = make_pipeline(columns, Ridge()).fit(frame, y)
    model = LinearModel.from_sklearn(pipeline, frame, y)
    for part in (frame, frame[["a", "b"]]):
        np.testing.assert_allclose(model.predict(part), pipeline.predict(frame))
    with pytest.raises(InvalidData, match="what is done to column 'more'"):
        model.predict(frame.assign(more=1.0))


def test_the_way_out_keeps_the_transformers_as_they_are() -> None:
    X, y = numbers()
    pipeline = make_pipeline(PowerTransformer(), Ridge()).fit(X, y)
    with pytest.raises(InvalidData, match=r"as they are \(`preprocess=pipeline\[:-1\]`"):
        LinearModel.from_sklearn(pipeline, X, y)
    model = LinearModel(preprocess=pipeline[:-1]).fit(X, y)
    np.testing.assert_allclose(model.predict(X), pipeline.predict(X), rtol=1e-10)


def test_a_last_step_that_preprocessing_has_no_place_for_is_refused_by_name() -> None:
    X, y = numbers()
    bare = make_pipeline(StandardScaler(), Ridge(fit_intercept=False)).fit(X, y)
    with pytest.raises(
        InvalidData, match="step 'ridge', column 0, Ridge: with fit_intercept=False"
    ):
        LinearModel.from_sklearn(bare, X, y)


def test_categories_that_a_model_cannot_tell_apart_are_refused_by_column() -> None:
    X = np.array([["a"], ["b"], [None], [np.nan]] * 5, dtype=object)
    y = np.arange(20.0)
    hot = make_pipeline(OneHotEncoder(), Ridge()).fit(X, y)
    with pytest.raises(InvalidData, match=r"column 0, OneHotEncoder: .*None and NaN"):
        LinearModel.from_sklearn(hot, X, y)
    places = make_pipeline(OrdinalEncoder(encoded_missing_value=-1), Ridge()).fit(X[:15], y[:15])
    with pytest.raises(InvalidData, match="0, OrdinalEncoder: encoded_missing_value=-1"):
        LinearModel.from_sklearn(places, X[:15], y[:15])


def test_a_pipeline_of_other_rows_is_refused() -> None:
    X, y = table()
    pipeline = make_pipeline(transformers(), Ridge()).fit(X, y)
    few = X[:, 2] != "c"
    with pytest.raises(InvalidData, match="give the rows that it was fitted on"):
        LinearModel.from_sklearn(pipeline, X[few], y[few])


def test_a_model_is_cloned_with_its_columns_and_says_which_it_was_fitted_on() -> None:
    columns: Columns = {"x": Numeric(), "town": OneHot()}
    model = clone(LinearModel(preprocess=columns))
    assert model.get_params()["preprocess"] == columns
    model.fit({"x": [1.0, 2.0, 4.0], "town": ["a", "b", "a"]}, [1.0, 2.0, 3.0])
    assert model.n_features_in_ == 2
    assert model.feature_names_in_.tolist() == ["x", "town"]
    assert model.coef_.shape == (3,)
    assert model.prepared is not None
    assert model.prepared.feature_names == ("x", "town_a", "town_b")
    with pytest.raises(InvalidData, match="diagnostics are of models without preprocessing"):
        model.leverage()


def test_a_column_whose_last_value_was_deleted_keeps_its_place_in_a_plain_pipeline() -> None:
    rows = {"a": [1.0, 2.0, *[None] * 8], "b": np.arange(10.0) % 4}
    columns: Columns = {"a": Numeric(standardise=False), "b": passthrough()}
    model = LinearModel(preprocess=columns).fit(rows, np.arange(10.0))
    model.delete(["0", "1"], method="exact")
    left = pd.DataFrame(rows).iloc[2:]
    np.testing.assert_allclose(model.to_sklearn().predict(left), model.predict(left), rtol=1e-9)


def test_dates_have_no_plain_pipeline() -> None:
    model = LinearModel(preprocess={"d": Date()}).fit({"d": ["2020-01-01", "2020-01-05"]}, [0, 1])
    with pytest.raises(InvalidData, match="holds dates; give days as numbers"):
        model.to_sklearn()
