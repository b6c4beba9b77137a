"""StandardScaler with either half off: from a pipeline, through changes, and back to one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OrdinalEncoder, StandardScaler

from lethe import LinearModel, LogisticModel
from lethe.engine.errors import InvalidData
from lethe.engine.preprocess.input.columns import Columns, Numeric, Ordinal, TargetEncode
from tests.unit.engine.preprocess.test_rounded import Exact

SCALERS = {
    "scale": StandardScaler(with_mean=False),
    "centre": StandardScaler(with_std=False),
    "neither": StandardScaler(with_mean=False, with_std=False),
}
KINDS = ("rounded", "bounds", "logistic")


def rows(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return years, numbers with gaps, one value, and a category; and a target."""
    rng = np.random.default_rng(seed)
    X = np.empty((n, 4), dtype=object)
    X[:, 0], X[:, 1] = 2000.0 + 10.0 * rng.standard_normal(n), 3.0 * rng.standard_normal(n)
    X[rng.random(n) < 0.2, 1] = np.nan
    X[:, 2], X[:, 3] = 7.0, rng.choice(["a", "b", "c"], n)
    noise = 5.0 * rng.standard_normal(n)
    return X, X[:, 0].astype(float) - 2000.0 + (X[:, 3] == "a") + noise


def pipeline(scaler: StandardScaler, final: Any) -> Pipeline:
    columns = ColumnTransformer(
        [
            ("scaled", clone(scaler), [0, 2]),
            ("filled", make_pipeline(SimpleImputer(), clone(scaler)), [1]),
            ("coded", make_pipeline(OrdinalEncoder(), clone(scaler)), [3]),
        ]
    )
    return Pipeline([("columns", columns), ("final", final)])


class Pair:
    """A model made from a pipeline, and the pipeline on the rows that are live."""

    def __init__(self, scaler: StandardScaler, kind: str) -> None:
        self.kind = kind
        self.X, y = rows(200)
        self.y = (y > 0).astype(int) if kind == "logistic" else y
        final = (
            LogisticRegression(tol=1e-12, solver="newton-cholesky", max_iter=1000)
            if kind == "logistic"
            else Ridge(alpha=2.0)
        )
        self.pipeline = pipeline(scaler, final).fit(self.X, self.y)
        make: Any = LogisticModel if kind == "logistic" else LinearModel
        self.model = make.from_sklearn(self.pipeline, self.X, self.y)
        if kind == "bounds":
            self.model = make(ridge=2.0, preprocess=self.model.preprocess, rounded_features=0)
            self.model.fit(self.X, self.y)
        self.live = {str(i): i for i in range(200)}

    def change(self, seed: int) -> None:
        """Delete five rows, correct two, insert three."""
        self.delete(list(self.live)[:5])
        X, y = rows(5, seed)
        y = (y > 0).astype(int) if self.kind == "logistic" else y
        old, new = list(self.live)[:2], [f"{seed}-{i}" for i in range(3)]
        self.model.correct(X[:2], y[:2], old, method="exact")
        self.model.insert(X[2:], y[2:], new, method="exact")
        places = range(len(self.y), len(self.y) + 5)
        self.X, self.y = np.vstack([self.X, X]), np.append(self.y, y)
        self.live |= dict(zip([*old, *new], places, strict=True))

    def delete(self, names: list[str]) -> None:
        self.model.delete(names, method="exact")
        self.live = {name: place for name, place in self.live.items() if name not in names}

    def check(self) -> None:
        """Compare with a refit of the pipeline: within the bound, or after a rebuild."""
        places = list(self.live.values())
        refit = clone(self.pipeline).fit(self.X[places], self.y[places])
        if self.kind == "logistic":
            self.model.refresh("rebuild")
        theta = np.append(np.ravel(self.model.theta), self.model.intercept)
        truth = np.append(np.ravel(refit[-1].coef_), refit[-1].intercept_)
        np.testing.assert_allclose(theta, truth, rtol=1e-9, atol=1e-9)
        apart = np.linalg.norm(theta - truth)
        bound = self.model.error.bound
        assert bound is None or apart <= bound + 1e-8 * np.linalg.norm(truth)
        margin = "decision_function" if self.kind == "logistic" else "predict"
        ours, theirs = getattr(self.model, margin)(self.X), getattr(refit, margin)(self.X)
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)
        plain = getattr(self.model.to_sklearn(), margin)(self.X)
        np.testing.assert_allclose(plain, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("half", SCALERS)
def test_a_pipeline_with_half_a_scaler_forgets_as_its_refit_would(half: str, kind: str) -> None:
    pair = Pair(SCALERS[half], kind)
    pair.check()
    for seed in range(1, 4):
        pair.change(seed)
        pair.check()


@pytest.mark.parametrize("standardise", ["scale", "centre"])
def test_half_a_scaler_is_right_to_the_last_bit(standardise: Any) -> None:
    rng = np.random.default_rng(3)
    columns: Columns = {
        "x": Numeric(standardise=standardise),
        "same": Numeric(standardise=standardise),
        "o": Ordinal(standardise=standardise),
        "t": TargetEncode(standardise=standardise),
    }
    table = {
        "x": (50.0 + rng.standard_normal(40)).astype(object),
        "same": np.full(40, 7.0),
        "o": np.array(list("pqrs") * 10, dtype=object),
        "t": np.array(list("uvwxy") * 8, dtype=object),
    }
    table["x"][rng.random(40) < 0.2] = None
    exact = Exact(columns, table, rng.standard_normal(40))
    assert exact.holds()
    exact.delete(*(str(i) for i in range(0, 20, 2)))
    assert exact.holds()


@pytest.mark.parametrize("half", ["scale", "centre"])
def test_a_class_that_loses_its_last_row_leaves_a_model_that_can_be_stated(half: str) -> None:
    pair = Pair(SCALERS[half], "logistic")
    ones = [name for name, place in pair.live.items() if pair.y[place] == 1]
    pair.delete(ones)
    assert np.isfinite(pair.model.theta).all()
    assert pair.model.error.relative is None or pair.model.error.relative < 1e-6
    assert (pair.model.predict(pair.X) == 0).all()


@pytest.mark.parametrize("standardise", ["scale", "centre"])
def test_half_a_scaler_without_an_intercept_is_refused(standardise: Any) -> None:
    X, y = rows(20)
    model = LinearModel(fit_intercept=False, preprocess={0: Numeric(standardise=standardise)})
    with pytest.raises(InvalidData, match="column 0 is standardised, and only an intercept"):
        model.fit(X[:, :1], y)


def test_another_way_to_standardise_is_refused() -> None:
    with pytest.raises(InvalidData, match="True, False, 'centre' or 'scale', not 'center'"):
        Numeric(standardise="center")  # type: ignore[arg-type]
