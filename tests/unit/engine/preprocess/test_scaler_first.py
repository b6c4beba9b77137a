"""A scaler before an imputer: it learns from the known values alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler

from lethe import LinearModel
from lethe.engine.errors import InvalidData
from lethe.engine.fit.factor import EPS
from lethe.engine.preprocess.input.columns import Columns, Date, Numeric
from lethe.engine.preprocess.input.derived import Missing
from lethe.engine.preprocess.transformation import order
from tests.unit.engine.preprocess.test_in_passes import HOSTILE
from tests.unit.engine.preprocess.test_order import Pair, table
from tests.unit.engine.preprocess.test_rounded import Exact, taken

SCALERS: dict[str, Any] = {
    "deviation": StandardScaler(),
    "mean alone": StandardScaler(with_std=False),
    "deviation alone": StandardScaler(with_mean=False),
    "range": MinMaxScaler((-1, 3)),
    "largest": MaxAbsScaler(),
    "quartiles": RobustScaler(),
}
FINALS: dict[str, Any] = {
    "linear": Ridge(alpha=2.0, solver="cholesky"),
    "logistic": LogisticRegression(C=0.5, tol=1e-12, solver="newton-cholesky", max_iter=1000),
}


def columns_of(model: Any) -> list[Numeric]:
    return list(model.preprocess.values())


CASES = [
    (scaler, strategy, kind)
    for scaler in SCALERS
    for strategy in ("mean", "median", "most_frequent")
    for kind in FINALS
    # Far from 0, scikit-learn's Ridge has fewer digits than a model that is correctly rounded.
    if (scaler, strategy, kind) != ("deviation alone", "mean", "linear")
]


@pytest.mark.parametrize(("scaler", "strategy", "kind"), CASES)
def test_a_pipeline_that_scales_first_forgets_rows(scaler: str, strategy: str, kind: str) -> None:
    pair = Pair(strategy, SCALERS[scaler], FINALS[kind], scaler_first=True)
    assert all(column.scaler_first for column in columns_of(pair.model))
    pair.check_changes()


@pytest.mark.parametrize("scaler", ["deviation", "range", "quartiles"])
def test_the_error_of_a_logistic_model_is_bounded(scaler: str) -> None:
    pair = Pair("median", SCALERS[scaler], FINALS["logistic"], 1500, scaler_first=True)
    pair.delete(pair.extreme("far", 2, largest=False))
    pair.add("insert", ["new-0", "new-1"])
    assert pair.proved() is not None
    pair.check()


def test_a_class_that_loses_its_last_row_leaves_a_model_that_can_be_stated() -> None:
    pair = Pair("median", SCALERS["deviation"], FINALS["logistic"], scaler_first=True)
    pair.delete([name for name, place in pair.live.items() if pair.y[place] == 1])
    assert np.isfinite(pair.model.theta).all()
    assert (pair.model.predict(pair.X) == 0).all()
    fill = pair.X.iloc[list(pair.live.values())]
    scaled = make_pipeline(StandardScaler(), SimpleImputer(strategy="median")).fit(fill[["far"]])
    features = pair.model.prepared.features(fill)[:, :1]
    np.testing.assert_allclose(features, scaled.transform(fill[["far"]]), rtol=1e-9, atol=1e-9)


def test_a_linear_model_of_means_by_its_bound() -> None:
    """The same as above without exact sums, which a mean and a deviation otherwise have."""
    X, rng = table(200, np.random.default_rng(3), gaps=True), np.random.default_rng(4)
    y = X.fillna(1.0).to_numpy() @ [1.0, 0.5, -1.0] + rng.normal(size=200)
    columns: Columns = {name: Numeric(scaler_first=True) for name in X.columns}
    model = LinearModel(preprocess=columns, rounded_features=0).fit(X, y)
    pipeline = make_pipeline(StandardScaler(), SimpleImputer(), Ridge(solver="cholesky"))
    for start in range(0, 120, 30):
        model.delete([str(i) for i in range(start, start + 30)], method="exact")
        refit = clone(pipeline).fit(X.iloc[start + 30 :], y[start + 30 :])
        truth = np.append(refit[-1].coef_, refit[-1].intercept_)
        off = np.linalg.norm(np.append(np.ravel(model.theta), model.intercept) - truth)
        assert model.error.bound is not None
        assert off <= model.error.bound + 1e-12 * np.linalg.norm(truth)
        assert model.error.bound < 1e-6 * np.linalg.norm(truth)


# Two have no known value here, or one that scikit-learn squares beyond float64.
_LEFT_OUT = ("without a value", "one value", "constant where it is known")
HARD = {name: values for name, values in HOSTILE.items() if name not in _LEFT_OUT}


@pytest.mark.parametrize("scaler", ["deviation", "range", "quartiles"])
@pytest.mark.parametrize("what", HARD)
def test_columns_that_are_hard_are_scaled_as_by_scikit_learn(what: str, scaler: str) -> None:
    x = np.where(np.arange(200) % 4 == 1, np.nan, HARD[what])
    X, y = pd.DataFrame({"x": x, "z": np.arange(200) % 7.0}), np.sin(np.arange(200))
    pipeline = make_pipeline(SCALERS[scaler], SimpleImputer(strategy="median"), Ridge()).fit(X, y)
    model = LinearModel.from_sklearn(pipeline, X, y)
    for start in (0, 40):
        if start:
            model.delete([str(i) for i in range(start)], method="exact")
        refit = clone(pipeline).fit(X.iloc[start:], y[start:])
        made: Any = model.prepared
        theirs = refit[:-1].transform(X)
        # What rounding leaves of a mean or a quantile is divided, too.
        slope = refit[0].scale_ if scaler == "range" else 1.0 / refit[0].scale_
        rounding = 8.0 * EPS * float((X.abs().max().to_numpy() * slope).max())
        off = np.abs(made.features(X) - theirs).max(axis=0)
        assert (off <= 1e-9 + rounding).all(), (what, off, rounding)


@pytest.mark.parametrize("standardise", [True, "scale", "centre"])
def test_it_is_right_to_the_last_bit(standardise: Any) -> None:
    rng = np.random.default_rng(5)
    columns: Columns = {
        "x": Numeric(standardise=standardise, scaler_first=True),
        "same": Numeric(standardise=standardise, scaler_first=True),
        "once": Numeric(standardise=standardise, scaler_first=True),
        "last": Numeric(standardise=standardise),
    }
    rows = {name: (50.0 + rng.normal(size=40)).astype(object) for name in columns}
    rows["same"][:] = 0.1
    for values in rows.values():
        values[rng.random(40) < 0.3] = None
    rows["once"][3:] = None
    rows["once"][:3] = [1.0, 2.0, 4.0]
    exact = Exact(columns, rows, rng.normal(size=40))
    assert exact.holds()
    exact.delete(*(str(i) for i in range(10, 20)))
    assert exact.holds()
    for name in ("0", "1", "2"):  # then one value is left, and then none
        exact.delete(name)
        assert exact.holds()
    exact.change(taken(rows, [0, 1]), np.array([1.0, 5.0]), ["a", "b"])
    assert exact.holds()


def test_gaps_are_marked_after_a_scaler_as_before_it() -> None:
    X, rng = table(200, np.random.default_rng(6), gaps=True), np.random.default_rng(7)
    y = X.isna().to_numpy() @ [1.0, 2.0, 3.0] + rng.normal(size=200)
    marks = make_union(SimpleImputer(), MissingIndicator())
    for steps in ((SimpleImputer(add_indicator=True),), (marks,)):
        pipeline = make_pipeline(StandardScaler(), *steps, Ridge(solver="cholesky")).fit(X, y)
        model = LinearModel.from_sklearn(pipeline, X, y)
        assert [column.of for column in columns_of(model)[3:]] == [*map(Missing, X.columns)]
        model.delete([str(i) for i in range(50)], method="exact")
        refit = clone(pipeline).fit(X.iloc[50:], y[50:])
        for one in (model, model.to_sklearn()):
            np.testing.assert_allclose(one.predict(X), refit.predict(X), rtol=1e-9)


@pytest.mark.parametrize(
    ("scaler", "impute"),
    [
        (StandardScaler(), "mean"),
        (StandardScaler(with_std=False), "mean"),
        (RobustScaler(), "median"),
    ],
)
def test_a_zero_after_a_scaler_is_what_it_subtracts(scaler: Any, impute: str) -> None:
    X, rng = table(200, np.random.default_rng(8), gaps=True), np.random.default_rng(9)
    y = X.fillna(1.0).to_numpy() @ [1.0, 0.5, -1.0] + rng.normal(size=200)
    zero = SimpleImputer(strategy="constant", fill_value=0)
    pipeline = make_pipeline(scaler, zero, Ridge(solver="cholesky")).fit(X, y)
    model = LinearModel.from_sklearn(pipeline, X, y)
    assert {column.impute for column in columns_of(model)} == {impute}
    model.delete([str(i) for i in range(50)], method="exact")
    refit = clone(pipeline).fit(X.iloc[50:], y[50:])
    np.testing.assert_allclose(model.predict(X), refit.predict(X), rtol=1e-9)


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        (
            (StandardScaler(), SimpleImputer(strategy="constant", fill_value=-1)),
            "SimpleImputer: fill_value=-1 after StandardScaler: of scaled numbers, a model has",
        ),
        ((MinMaxScaler(), SimpleImputer(strategy="constant")), "fill_value=0 after MinMaxScaler"),
        (
            (StandardScaler(with_mean=False), SimpleImputer(strategy="constant")),
            "fill_value=0 after StandardScaler",
        ),
        (
            (
                make_column_transformer((StandardScaler(), ["far"]), remainder="passthrough"),
                SimpleImputer(strategy="constant"),
            ),
            "SimpleImputer: it comes after StandardScaler",
        ),
        (
            (StandardScaler(), SimpleImputer(), MinMaxScaler()),
            "MinMaxScaler: after StandardScaler and SimpleImputer",
        ),
    ],
)
def test_what_no_column_has_is_refused_by_name(steps: Any, message: str) -> None:
    X = table(60, np.random.default_rng(0), gaps=True)
    pipeline = make_pipeline(*steps, Ridge()).fit(X, np.arange(60.0))
    with pytest.raises(InvalidData, match=message):
        LinearModel.from_sklearn(pipeline, X, np.arange(60.0))


def test_a_column_that_becomes_constant_or_empty_is_rebuilt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(order, "REACH", 2)
    n = 60
    for standardise in (True, (0.0, 1.0), "robust", "max-abs"):
        rows = {"x": [1.0, 2.0, 4.0, *[None] * (n - 3)], "z": np.arange(n) % 7.0}
        columns: Columns = {"x": Numeric("median", standardise, scaler_first=True), "z": Numeric()}
        y = np.sin(np.arange(n))
        model = LinearModel(preprocess=columns).fit(rows, y)
        scaler = {True: StandardScaler(), (0.0, 1.0): MinMaxScaler(), "robust": RobustScaler()}
        parts = make_column_transformer(
            (
                make_pipeline(
                    scaler.get(standardise, MaxAbsScaler()), SimpleImputer(strategy="median")
                ),
                ["x"],
            ),
            (StandardScaler(), ["z"]),
        )
        for start in (1, 2):
            model.delete([str(start - 1)], method="exact")
            left = pd.DataFrame(rows).astype(float).iloc[start:]
            refit = make_pipeline(parts, Ridge(solver="cholesky")).fit(left, y[start:])
            np.testing.assert_allclose(np.ravel(model.theta), refit[-1].coef_, atol=1e-12)
            np.testing.assert_allclose(model.predict(left), refit.predict(left), atol=1e-12)
        model.delete(["2"], method="exact")
        assert model.theta[0] == 0.0
        left = pd.DataFrame(rows).iloc[3:]
        np.testing.assert_allclose(model.to_sklearn().predict(left), model.predict(left))


@pytest.mark.parametrize(
    "given",
    [
        {"impute": None, "scaler_first": True},
        {"standardise": False, "scaler_first": True},
        {"scaler_first": "yes"},
    ],
)
def test_settings_that_are_not_there_are_refused(given: Any) -> None:
    for kind in (Numeric, Date):
        with pytest.raises(InvalidData, match=r"^scaler_first "):
            kind(**given)
