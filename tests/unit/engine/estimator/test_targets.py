"""Models of a function of the target, against a TransformedTargetRegressor that is refitted."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor, make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Lasso, Ridge
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    OneHotEncoder,
    PolynomialFeatures,
    QuantileTransformer,
    StandardScaler,
)
from sklearn.utils.validation import check_is_fitted

from lethe import LinearModel, LogisticModel
from lethe.engine.errors import InvalidData
from lethe.engine.estimator.targets import INVERSES
from lethe.engine.inference import Summary
from lethe.engine.preprocess.input.columns import Numeric
from lethe.engine.preprocess.input.derived import FUNCTIONS

N = 80
_RNG = np.random.default_rng(3)
FRAME = pd.DataFrame(
    {
        "rooms": _RNG.uniform(1.0, 6.0, N),
        "area": 1e4 * _RNG.uniform(0.2, 2.0, N),  # badly scaled
        "age": np.where(_RNG.random(N) < 0.2, np.nan, _RNG.uniform(0.0, 90.0, N)),
        "town": _RNG.choice(["Ulm", "Bonn"], N),
        "constant": 1.0,
    }
)
X = FRAME[["rooms", "area", "constant"]].to_numpy()
PRICE = np.exp(0.3 * X[:, 0] + 5e-5 * X[:, 1] + 0.2 * _RNG.standard_normal(N))
OTHER = np.sqrt(PRICE) + 1.0
EACH = pytest.mark.parametrize("function", INVERSES)


def around(regressor: Any, function: str = "log1p", **given: Any) -> TransformedTargetRegressor:
    """Return scikit-learn's estimator of a function of the target."""
    func, inverse = FUNCTIONS[function], FUNCTIONS[INVERSES[function]]
    return TransformedTargetRegressor(regressor, func=func, inverse_func=inverse, **given)


def of_mixed() -> Any:
    """Return transformers of all columns."""
    return make_column_transformer(
        (make_pipeline(SimpleImputer(add_indicator=True), StandardScaler()), ["area", "age"]),
        (OneHotEncoder(), ["town"]),
        (PolynomialFeatures(2), ["rooms"]),
    )


ESTIMATORS: dict[str, tuple[Any, Any]] = {
    "around Ridge": (around(Ridge(0.7)), X),
    "around Ridge, of a frame": (around(Ridge(0.7), "sqrt"), FRAME[["rooms", "area"]]),
    "no intercept": (around(Ridge(2.0, fit_intercept=False), "log"), X),
    "around a pipeline": (around(make_pipeline(of_mixed(), Ridge())), FRAME),
    "at the end": (make_pipeline(of_mixed(), around(Ridge(), "log", check_inverse=False)), FRAME),
    "a pipeline at the end": (
        make_pipeline(PolynomialFeatures(2), around(make_pipeline(StandardScaler(), Ridge()))),
        FRAME[["rooms", "area"]],
    ),
    "nothing before it": (make_pipeline("passthrough", around(Ridge())), X),
}


def rows_of(table: Any, rows: Any) -> Any:
    """Return rows of a table or an array."""
    return table.iloc[rows] if isinstance(table, pd.DataFrame) else table[rows]


@pytest.mark.parametrize("name", ESTIMATORS)
def test_mixed_changes_leave_what_a_refit_is_in_the_units_of_the_target(name: str) -> None:
    estimator, table = ESTIMATORS[name]
    given = clone(estimator).fit(table, PRICE)
    model = LinearModel.from_sklearn(given, table, PRICE)
    assert model.converted_from_ is not None
    assert model.converted_from_.largest < 1e-9
    model.delete([str(i) for i in range(9)], method="exact")
    model.insert(rows_of(table, [0, 1]), 2.0 * PRICE[:2], ids=["n0", "n1"], method="exact")
    model.correct(rows_of(table, [2]), 3.0 * PRICE[[2]], ids=["20"], method="exact")
    kept = np.setdiff1d(np.arange(9, N), [20])
    rows = np.concatenate([kept, [0, 1, 2]])
    y = np.concatenate([PRICE[kept], 2.0 * PRICE[:2], 3.0 * PRICE[[2]]])
    refit = clone(given).fit(rows_of(table, rows), y)
    truth = refit.predict(table)
    np.testing.assert_allclose(model.predict(table), truth, rtol=1e-9)
    assert model.score(table, PRICE) == pytest.approx(refit.score(table, PRICE), rel=1e-9)
    plain = model.to_sklearn()
    check_is_fitted(plain)
    assert isinstance(plain, TransformedTargetRegressor)
    np.testing.assert_allclose(plain.predict(table), truth, rtol=1e-9)
    own = table[[*plain.feature_names_in_]] if isinstance(table, pd.DataFrame) else table
    again = clone(plain).fit(rows_of(own, rows), y)
    np.testing.assert_allclose(again.predict(own), truth, rtol=1e-9)
    for copied in (copy.deepcopy(model), model.fit(table, PRICE)):
        assert copied.fitted_target == model.target


@EACH
def test_each_function_is_learnt_and_taken_back(function: str) -> None:
    y = 1.0 + 0.1 * PRICE
    given = around(Ridge(), function).fit(X, y)
    model = LinearModel(target=function).fit(X, y)
    np.testing.assert_allclose(model.predict(X), given.predict(X), rtol=1e-9)
    np.testing.assert_allclose(model.coef_, given.regressor_.coef_, rtol=1e-7, atol=1e-12)
    assert LinearModel.from_sklearn(given, X, y).target == function


def test_several_targets_are_learnt_by_the_same_function() -> None:
    y = np.stack([PRICE, OTHER], axis=1)
    given = around(Ridge()).fit(X, y)
    model = LinearModel.from_sklearn(given, X, y)
    model.delete(["3"], method="exact")
    kept = np.delete(np.arange(N), 3)
    truth = clone(given).fit(X[kept], y[kept]).predict(X)
    np.testing.assert_allclose(model.predict(X), truth, rtol=1e-9)
    np.testing.assert_allclose(model.to_sklearn().predict(X), truth, rtol=1e-9)


def test_columns_are_prepared_beside_a_function_of_the_target() -> None:
    columns = {"rooms": Numeric(), "age": Numeric()}
    model = LinearModel(preprocess=columns, target="log").fit(FRAME[["rooms", "age"]], PRICE)
    own = around(make_pipeline(SimpleImputer(), StandardScaler(), Ridge()), "log")
    truth = own.fit(FRAME[["rooms", "age"]], PRICE).predict(FRAME[["rooms", "age"]])
    np.testing.assert_allclose(model.predict(FRAME[["rooms", "age"]]), truth, rtol=1e-9)


def test_weights_are_of_rows_and_validation_splits_them() -> None:
    weight = np.random.default_rng(1).uniform(0.2, 3.0, N)
    given = around(Ridge()).fit(X, PRICE, sample_weight=weight)
    model = LinearModel.from_sklearn(given, X, PRICE, sample_weight=weight)
    np.testing.assert_allclose(model.predict(X), given.predict(X), rtol=1e-9)
    found = cross_val_score(LinearModel(target="log1p"), X, PRICE)
    np.testing.assert_allclose(found, cross_val_score(around(Ridge()), X, PRICE), rtol=1e-9)


def test_rows_that_are_left_out_are_predicted_in_the_units_of_the_target() -> None:
    model = LinearModel(target="log").fit(X, PRICE)
    left = model.leave_one_out(["7"])
    kept = np.delete(np.arange(N), 7)
    truth = around(Ridge(), "log").fit(X[kept], PRICE[kept]).predict(X[[7]])
    np.testing.assert_allclose(left.predictions, truth, rtol=1e-9)
    np.testing.assert_allclose(left.residuals, PRICE[[7]] - truth, rtol=1e-7)
    logarithm = LinearModel().fit(X, np.log(PRICE))
    np.testing.assert_allclose(model.cooks_distance(), logarithm.cooks_distance(), rtol=1e-9)
    np.testing.assert_allclose(model.leverage(), logarithm.leverage(), rtol=1e-9)
    ours, theirs = model.summary(), logarithm.summary()
    assert isinstance(ours, Summary)
    assert isinstance(theirs, Summary)
    np.testing.assert_array_equal(ours.standard_errors, theirs.standard_errors)
    assert ours.r_squared == theirs.r_squared


def test_another_function_is_of_the_next_fit() -> None:
    model = LinearModel(target="log").fit(X, PRICE)
    before = model.predict(X)
    assert clone(model).get_params() == model.get_params()
    model.set_params(target="sqrt")
    np.testing.assert_array_equal(model.predict(X), before)
    assert model.fitted_target == "log"
    with pytest.raises(InvalidData, match=r"the target of row 0 is 0, of which log is not"):
        model.insert(X[:1], [0.0], ids=["n0"])
    model.fit(X, PRICE).insert(X[:1], [0.0], ids=["n0"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.fit(X, PRICE - 30.0), r"the target of row \d+ is -\S+, of which log is not"),
        (lambda m: m.fit(X, np.where(PRICE < 4.0, np.nan, PRICE)), "a target of row .*NaN"),
        (lambda m: m.fit(X, ["a"] * N), "y is not an array of numbers"),
        (lambda m: m.fit(X, None), "requires y to be passed"),
        (lambda m: m.insert(X[:2], [1.0, -1.0], ids=["n", "o"]), "row 1 is -1, of which log is"),
        (lambda m: m.correct(X[:1], [0.0], ids=["4"]), "the target of row 0 is 0, of which log"),
        (lambda m: m.predict(1e9 * X), "prediction of row 0 is not .* no target has the log"),
        (lambda m: m.set_params(target="tan").fit(X, PRICE), "target must be None or one of arcs"),
        (lambda m: m.set_params(target=["log"]).fit(X, PRICE), "target must be None or one of"),
        (lambda m: m.set_params(class_weight={1: 2.0}).fit(X, PRICE), "class_weight is of targets"),
    ],
)  # fmt: skip
def test_what_has_no_such_function_is_refused_in_a_line_and_nothing_changes(
    change: Any, message: str
) -> None:
    model = LinearModel(target="log").fit(X, PRICE)
    before = model.predict(X)
    with pytest.raises(InvalidData, match=message) as refused:
        change(model)
    assert "\n" not in str(refused.value)
    np.testing.assert_array_equal(model.predict(X), before)
    assert len(model.live_ids) == N


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (TransformedTargetRegressor(Ridge()), "Regressor: it has no func, .* give its regressor_"),
        (
            TransformedTargetRegressor(Ridge(), transformer=QuantileTransformer(n_quantiles=5)),
            r"TransformedTargetRegressor: transformer=Quantile.* learns from targets.*; fit it",
        ),
        (
            TransformedTargetRegressor(
                Ridge(), func=lambda y: y, inverse_func=lambda y: y, check_inverse=False
            ),
            "TransformedTargetRegressor: func=<function .* is no function of a target .*log1p",
        ),
        (
            TransformedTargetRegressor(
                Ridge(), func=np.log1p, inverse_func=np.exp, check_inverse=False
            ),
            "TransformedTargetRegressor: inverse_func=<ufunc 'exp'> is not the inverse",
        ),
        (around(Lasso()), "TransformedTargetRegressor: its regressor is a Lasso, .* from Ridge"),
        (around(None), "its regressor is a LinearRegression, .* from Ridge"),
        (around(Ridge(positive=True)), "step 'regressor', Ridge: positive=True constrains"),
        (
            make_pipeline(StandardScaler(), PolynomialFeatures(2), around(Ridge())),
            "PolynomialFeatures: it comes after StandardScaler",
        ),
        (
            make_pipeline(StandardScaler(), around(Lasso())),
            "step 'transformedtargetregressor', TransformedTargetRegressor: its regressor is",
        ),
    ],
)
def test_what_does_something_else_to_its_target_is_refused_by_name(
    estimator: Any, message: str
) -> None:
    given = clone(estimator).fit(X, PRICE)
    with pytest.raises(InvalidData, match=message):
        LinearModel.from_sklearn(given, X, PRICE)


def test_other_models_take_no_function_of_a_target() -> None:
    given = around(Ridge()).fit(X, PRICE)
    with pytest.raises(InvalidData, match=r"Ridge: use LinearModel\.from_sklearn"):
        LogisticModel.from_sklearn(given, X, np.sign(PRICE))
    assert "target" not in LogisticModel().get_params()


def test_what_is_not_fitted_is_refused() -> None:
    with pytest.raises(ValueError, match="this TransformedTargetRegressor is not fitted"):
        LinearModel.from_sklearn(around(Ridge()), X, PRICE)
