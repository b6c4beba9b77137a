"""The most frequent category in the place of missing ones, as SimpleImputer fills them in."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from lethe import LinearModel, LogisticModel
from lethe.engine.errors import InvalidData
from lethe.engine.preprocess.input.columns import Numeric, OneHot

ENCODERS: dict[str, Any] = {
    "plain": OneHotEncoder(handle_unknown="ignore", sparse_output=False),
    "first dropped": OneHotEncoder(drop="first", sparse_output=False),
    "rare together": OneHotEncoder(
        min_frequency=12, handle_unknown="infrequent_if_exist", sparse_output=False
    ),
}


def table(n: int, rng: np.random.Generator) -> pd.DataFrame:
    """Return towns and kinds with gaps: b is the most frequent town, a is next; few are d."""
    town = rng.choice(list("abcd"), n, p=[0.35, 0.4, 0.2, 0.05]).astype(object)
    kind = rng.choice([1.0, 2.0, 3.0], n).astype(object)
    town[rng.random(n) < 0.2] = np.nan
    kind[rng.random(n) < 0.1] = np.nan
    return pd.DataFrame({"town": town, "kind": kind, "age": 40.0 + 9.0 * rng.normal(size=n)})


class Pair:
    """A model made from a pipeline, and the pipeline on the rows that are live."""

    def __init__(self, encoder: Any, final: Any, n: int = 160) -> None:
        self.rng, self.logistic = np.random.default_rng(4), isinstance(final, LogisticRegression)
        self.X, self.y = self.rows(n)
        filled = make_pipeline(SimpleImputer(strategy="most_frequent"), encoder)
        columns = make_column_transformer((filled, ["town", "kind"]), (StandardScaler(), ["age"]))
        self.pipeline = make_pipeline(columns, final).fit(self.X, self.y)
        make: Any = LogisticModel if self.logistic else LinearModel
        self.model = make.from_sklearn(self.pipeline, self.X, self.y)
        self.live = {str(i): i for i in range(n)}

    def rows(self, n: int) -> tuple[pd.DataFrame, np.ndarray]:
        X = table(n, self.rng)
        y = (X["town"] == "a") * 1.5 + X["age"] / 10.0 - 4.5 + self.rng.normal(size=n)
        return X, (y > 0).to_numpy().astype(int) if self.logistic else y.to_numpy()

    def delete(self, names: list[str]) -> None:
        self.model.delete(names, method="exact")
        self.live = {name: place for name, place in self.live.items() if name not in names}

    def add(self, op: str, names: list[str]) -> None:
        X, y = self.rows(len(names))
        getattr(self.model, op)(X, y, names, method="exact")
        places = range(len(self.y), len(self.y) + len(y))
        self.X, self.y = pd.concat([self.X, X], ignore_index=True), np.append(self.y, y)
        self.live |= dict(zip(names, places, strict=True))

    def of(self, town: str) -> list[str]:
        return [name for name, place in self.live.items() if self.X["town"][place] == town]

    def check(self) -> Pipeline:
        places = list(self.live.values())
        X = self.X.iloc[places]
        refit = clone(self.pipeline).fit(X, self.y[places])
        if self.logistic:
            self.model.refresh("rebuild")
        state: Any = self.model.prepared
        kept = np.append((state.present > 0) & ~state.left_out, True)
        theta, truth = (
            state.published[:, 0],
            np.append(np.ravel(refit[-1].coef_), refit[-1].intercept_),
        )
        assert not theta[~kept].any()
        np.testing.assert_allclose(theta[kept], truth, rtol=1e-8, atol=1e-9)
        margin = "decision_function" if self.logistic else "predict"
        ours, plain = self.model, self.model.to_sklearn()
        for model in (ours, plain):
            np.testing.assert_allclose(
                getattr(model, margin)(X), getattr(refit, margin)(X), rtol=1e-8, atol=1e-9
            )
        return refit


def _final(kind: str) -> Any:
    if kind == "linear":
        return Ridge(alpha=2.0, solver="cholesky")
    return LogisticRegression(tol=1e-12, solver="newton-cholesky", max_iter=1000)


@pytest.mark.parametrize("kind", ["linear", "logistic"])
@pytest.mark.parametrize("encoder", ENCODERS)
def test_what_stands_in_for_a_missing_category_follows_the_live_rows(
    encoder: str, kind: str
) -> None:
    pair = Pair(ENCODERS[encoder], _final(kind))
    pair.check()
    pair.delete(list(pair.live)[:6])
    pair.add("insert", [f"new-{i}" for i in range(4)])
    pair.add("correct", list(pair.live)[:4])
    pair.check()
    number = pair.model.prepared.generation.number
    pair.delete(pair.of("b")[:-2])  # a is the most frequent one now
    assert pair.model.prepared.generation.number > number
    pair.check()
    pair.delete(list(pair.live)[:5])
    pair.check()


def test_of_several_that_are_as_frequent_the_least_stands_in() -> None:
    X = pd.DataFrame({"town": ["b", "a", "b", "a", np.nan, "c", np.nan]})
    y = np.arange(7.0)
    pipeline = make_pipeline(
        SimpleImputer(strategy="most_frequent"),
        OneHotEncoder(sparse_output=False),
        Ridge(solver="cholesky"),
    ).fit(X, y)
    model = LinearModel.from_sklearn(pipeline, X, y)
    np.testing.assert_allclose(model.predict(X), pipeline.predict(X), rtol=1e-12)
    model.delete(["1"], method="exact")
    rest = [0, 2, 3, 4, 5, 6]
    refit = clone(pipeline).fit(X.iloc[rest], y[rest])
    np.testing.assert_allclose(model.predict(X), refit.predict(X), rtol=1e-12)


def test_a_gap_that_no_row_had_is_filled_in() -> None:
    X = pd.DataFrame({"town": list("abbbcab")})
    model = LinearModel(preprocess={"town": OneHot(impute="most_frequent")}).fit(X, np.arange(7.0))
    assert model.predict({"town": [None]}) == model.predict({"town": ["b"]})
    model.insert({"town": [None]}, [3.0], ["new"], method="exact")
    assert model.predict({"town": [None]}) == model.predict({"town": ["b"]})


@pytest.mark.parametrize("dtype", ["float64", "Int64", "boolean"])
def test_the_plain_pipeline_takes_numbers_of_any_type_and_can_be_fitted_again(dtype: str) -> None:
    few = pd.Series([1.0, 0.0, 1.0, np.nan, 0.0, 1.0, np.nan, 1.0])
    X, y = few.astype(dtype).to_frame("few"), np.arange(8.0)
    encoder = OneHotEncoder(drop="if_binary", sparse_output=False)
    filled = make_pipeline(SimpleImputer(strategy="most_frequent"), encoder)
    pipeline = make_pipeline(filled, Ridge(solver="cholesky")).fit(X, y)
    model = LinearModel.from_sklearn(pipeline, X, y)
    model.delete(["0"], method="exact")
    refit, plain = clone(pipeline).fit(X[1:], y[1:]), model.to_sklearn()
    for one in (plain, clone(plain).fit(X[1:], y[1:])):
        np.testing.assert_allclose(one.predict(X), refit.predict(X), rtol=1e-12)


def test_none_beside_nan_is_left_by_the_imputer_and_refused() -> None:
    X = np.array([["a"], ["b"], [None], ["b"], [np.nan]], dtype=object)
    y = np.arange(5.0)
    encoder = OneHotEncoder(sparse_output=False)
    pipeline = make_pipeline(SimpleImputer(strategy="most_frequent"), encoder, Ridge()).fit(X, y)
    with pytest.raises(InvalidData, match="SimpleImputer: it leaves None as it is"):
        LinearModel.from_sklearn(pipeline, X, y)


def test_settings_that_are_not_there_are_refused() -> None:
    with pytest.raises(InvalidData, match="impute must be 'most_frequent' or None, not 'mean'"):
        OneHot(impute="mean")  # type: ignore[arg-type]
    with pytest.raises(InvalidData, match="not there beside categories or standardise"):
        OneHot(impute="most_frequent", standardise=True)
    assert Numeric("most_frequent").impute == "most_frequent"
