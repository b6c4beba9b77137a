"""A StandardScaler after an encoder: from a pipeline, through changes, and back to one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from lethe import LinearModel
from lethe.engine.errors import InvalidData
from lethe.engine.preprocess.input.columns import Columns, Numeric, OneHot
from tests.support.encoded import KINDS, Pair, rows
from tests.unit.engine.preprocess.test_rounded import Exact

SCALERS: dict[Any, StandardScaler] = {
    True: StandardScaler(),
    "centre": StandardScaler(with_std=False),
    "scale": StandardScaler(with_mean=False),
}


def generation_of(model: LinearModel) -> int:
    assert model.prepared is not None
    return model.prepared.generation.number


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("drop", [None, "first", "if_binary"])
@pytest.mark.parametrize("standardise", SCALERS)
def test_means_and_deviations_of_categories_follow_the_live_rows(
    standardise: Any, drop: Any, kind: str
) -> None:
    hot = OneHotEncoder(drop=drop, sparse_output=False, handle_unknown="ignore")
    pair = Pair(make_pipeline(hot, SCALERS[standardise]), kind)
    assert pair.model.preprocess["town"] == OneHot("ignore", drop, standardise)
    pair.check()
    pair.delete(list(pair.live)[:10])
    pair.correct(3, 1)
    pair.check()
    gone = pair.X.iloc[[pair.live[name] for name in (*pair.of("town", "a"), *pair.of("kind", "x"))]]
    pair.delete(sorted({*pair.of("town", "a"), *pair.of("kind", "x")}))  # kind has two now
    pair.check()
    back = gone.iloc[:1].reset_index(drop=True).assign(kind="x", town="a")
    pair.insert(back, np.array([1 if kind == "logistic" else 0.5]), ["back"])
    pair.check()
    pair.insert(back.assign(kind="new", town="0"), pair.y[:1], ["new"])
    pair.check()
    if drop is None:  # scikit-learn does not scale no feature
        pair.delete([name for name in pair.live if name not in pair.of("kind", "y")])  # one is left
        pair.check()


@pytest.mark.parametrize("drop", [None, "first", ("q",)])
@pytest.mark.parametrize("standardise", SCALERS)
def test_every_parameter_is_right_to_the_last_bit(standardise: Any, drop: Any) -> None:
    rng = np.random.default_rng(3)
    columns: Columns = {"x": Numeric(), "h": OneHot(drop=drop, standardise=standardise)}
    table = {"x": rng.standard_normal(30), "h": np.array(list("pqr") * 10, dtype=object)}
    exact = Exact(columns, table, rng.standard_normal(30))
    assert exact.holds()
    exact.delete(*(str(i) for i in range(1, 10, 3)))
    assert exact.holds()
    exact.delete(*(str(i) for i in range(0, 30, 3)))  # every p
    assert exact.holds()


@pytest.mark.parametrize("features", [200, 0])
def test_a_scaler_over_everything_that_a_column_transformer_makes(features: int) -> None:
    X, y = rows(200)
    columns = ColumnTransformer(
        [("hot", OneHotEncoder(sparse_output=False), ["town", "kind"])], remainder="passthrough"
    )
    pipeline = make_pipeline(columns, StandardScaler(), Ridge()).fit(X, y)
    model = LinearModel.from_sklearn(pipeline, X, y)
    if features == 0:
        model = LinearModel(preprocess=model.preprocess, rounded_features=0).fit(X, y)
    model.delete([str(i) for i in range(40)], method="exact")
    refit = clone(pipeline).fit(X[40:], y[40:])
    np.testing.assert_allclose(model.predict(X), refit.predict(X), rtol=1e-10)
    np.testing.assert_allclose(model.to_sklearn().predict(X), refit.predict(X), rtol=1e-10)


def test_a_rare_category_does_not_cost_a_rebuild_before_its_last_row() -> None:
    X, y = rows(2000, 3)
    X["town"] = np.where(np.arange(2000) < 3, "rare", X["town"])
    model = LinearModel(
        preprocess={"age": Numeric(), "town": OneHot(standardise=True), "kind": OneHot()},
        rounded_features=0,
    ).fit(X, y)
    model.delete(["0"], method="exact")
    assert generation_of(model) == 0
    model.delete(["1", "2"], method="exact")
    assert generation_of(model) == 1


def test_what_cannot_be_standardised_is_refused() -> None:
    with pytest.raises(InvalidData, match="standardise must be True, False, 'centre' or 'scale'"):
        OneHot(standardise="mean")  # type: ignore[arg-type]
    model = LinearModel(preprocess={"town": OneHot(standardise=True)}, fit_intercept=False)
    with pytest.raises(InvalidData, match="column 'town' is standardised"):
        model.fit(pd.DataFrame({"town": ["a", "b"]}), [0.0, 1.0])
