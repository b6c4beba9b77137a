"""From scikit-learn's pipelines and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.compose import ColumnTransformer, make_column_transformer
from sklearn.datasets import load_diabetes
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import (
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
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
    numbers, labels = X[:, 1:2].astype(float), np.where(y > 0.5, "yes", "no")
    pipeline = make_pipeline(StandardScaler(), LogisticRegression(tol=1e-10)).fit(numbers, labels)
    model = LogisticModel.from_sklearn(pipeline, numbers, labels)
    assert model.preprocess == {0: Numeric(impute=None)}
    np.testing.assert_array_equal(model.predict(numbers), pipeline.predict(numbers))


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
        (TargetEncoder(), "cross-fitting, which is another estimator"),
        (MinMaxScaler(), "MinMaxScaler: known are"),
        (
            StandardScaler(with_std=False),
            "step 'one', column 0, StandardScaler: with_std=False leaves",
        ),
        (SimpleImputer(strategy="median"), "strategy='median' does not impute the mean"),
        (OneHotEncoder(drop="first"), "drop='first' leaves out a feature"),
        (make_pipeline(StandardScaler(), SimpleImputer()), "one after another"),
        ("drop", "drops column 0"),
    ],
)
def test_what_is_not_known_is_refused_by_name(step: Any, message: str) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((30, 2)), rng.standard_normal(30)
    both = ColumnTransformer([("one", step, [0]), ("other", "passthrough", [1])])
    pipeline = make_pipeline(both, Ridge()).fit(X, y)
    with pytest.raises(InvalidData, match=message):
        LinearModel.from_sklearn(pipeline, X, y)


def test_a_pipeline_of_other_rows_or_a_slice_of_columns_is_refused() -> None:
    X, y = table()
    pipeline = make_pipeline(transformers(), Ridge()).fit(X, y)
    few = X[:, 2] != "c"
    with pytest.raises(InvalidData, match="give the rows that it was fitted on"):
        LinearModel.from_sklearn(pipeline, X[few], y[few])
    sliced = ColumnTransformer([("all", StandardScaler(), slice(0, 2))])
    numbers = X[:, [1, 1]].astype(float)
    with pytest.raises(InvalidData, match="are a slice or a mask"):
        LinearModel.from_sklearn(make_pipeline(sliced, Ridge()).fit(numbers, y), numbers, y)


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


def test_dates_have_no_plain_pipeline() -> None:
    model = LinearModel(preprocess={"d": Date()}).fit({"d": ["2020-01-01", "2020-01-05"]}, [0, 1])
    with pytest.raises(InvalidData, match="holds dates; give days as numbers"):
        model.to_sklearn()
