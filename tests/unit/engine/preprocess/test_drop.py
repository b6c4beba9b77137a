"""OneHotEncoder(drop=...): from a pipeline, through changes, and back to one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from lethe import LinearModel, LogisticModel
from lethe.engine.errors import InvalidData
from lethe.engine.preprocess.input.columns import Columns, Numeric, OneHot
from tests.unit.engine.preprocess.test_rounded import Exact

KINDS = ("rounded", "bounds", "logistic")
DROPS: dict[str, Any] = {
    "first": "first",
    "if_binary": "if_binary",
    "named": np.array(["c", "y"], dtype=object),
}


def rows(n: int, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    """Return numbers, a category of four, and one of three, of which x and a are rare."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": 40.0 + 10.0 * rng.standard_normal(n),
            "town": rng.choice(list("abcd"), n, p=[0.05, 0.35, 0.3, 0.3]),
            "kind": rng.choice(list("xyz"), n, p=[0.05, 0.5, 0.45]),
        }
    )
    noise = 2.0 * rng.standard_normal(n)
    return frame, frame["age"].to_numpy() / 10 - 4.0 + (frame["town"] == "c").to_numpy() + noise


class Pair:
    """A model made from a pipeline, and the pipeline on the rows that are live."""

    def __init__(self, drop: Any, kind: str) -> None:
        self.kind = kind
        self.X, self.y = self._rows(150, 0)
        final: Any = Ridge(alpha=2.0)
        if kind == "logistic":
            final = LogisticRegression(tol=1e-12, solver="newton-cholesky", max_iter=1000)
        columns = ColumnTransformer(
            [
                ("hot", OneHotEncoder(drop=drop, sparse_output=False), ["town", "kind"]),
                ("scaled", StandardScaler(), ["age"]),
            ]
        )
        self.pipeline = Pipeline([("columns", columns), ("final", final)]).fit(self.X, self.y)
        make: Any = LogisticModel if kind == "logistic" else LinearModel
        self.model = make.from_sklearn(self.pipeline, self.X, self.y)
        if kind == "bounds":
            self.model = make(ridge=2.0, preprocess=self.model.preprocess, rounded_features=0)
            self.model.fit(self.X, self.y)
        self.live = {str(i): i for i in range(150)}

    def _rows(self, n: int, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
        X, y = rows(n, seed)
        return X, (y > 0).astype(int) if self.kind == "logistic" else y

    def insert(self, frame: pd.DataFrame, y: np.ndarray, names: list[str]) -> None:
        self.model.insert(frame, y, names, method="exact")
        self._add(frame, y, names)

    def correct(self, n: int, seed: int) -> None:
        frame, y = self._rows(n, seed)
        names = list(self.live)[:n]
        self.model.correct(frame, y, names, method="exact")
        self._add(frame, y, names)

    def _add(self, frame: pd.DataFrame, y: np.ndarray, names: list[str]) -> None:
        places = range(len(self.y), len(self.y) + len(y))
        self.X = pd.concat([self.X, frame], ignore_index=True)
        self.y = np.append(self.y, y)
        self.live |= dict(zip(names, places, strict=True))

    def delete(self, names: list[str]) -> None:
        self.model.delete(names, method="exact")
        self.live = {name: place for name, place in self.live.items() if name not in names}

    def of(self, column: str, category: str) -> list[str]:
        """Return the live rows of a category."""
        return [n for n, place in self.live.items() if self.X[column][place] == category]

    def check(self) -> None:
        """Compare with a refit of the pipeline: of a logistic one, after a rebuild."""
        places = list(self.live.values())
        X, y = self.X.iloc[places], self.y[places]
        refit = clone(self.pipeline).fit(X, y)
        if self.kind == "logistic":
            self.model.refresh("rebuild")
        state: Any = self.model.prepared
        kept = np.append((state.present > 0) & ~state.left_out, True)
        theta = state.published[:, 0]
        truth = np.append(np.ravel(refit[-1].coef_), refit[-1].intercept_)
        assert not theta[~kept].any()
        np.testing.assert_allclose(theta[kept], truth, rtol=1e-9, atol=1e-9)
        margin = "decision_function" if self.kind == "logistic" else "predict"
        ours, theirs = getattr(self.model, margin)(X), getattr(refit, margin)(X)
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)
        plain = self.model.to_sklearn()
        np.testing.assert_allclose(getattr(plain, margin)(X), theirs, rtol=1e-9, atol=1e-9)
        assert len(np.ravel(plain[-1].coef_)) == len(truth) - 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("drop", DROPS)
def test_which_category_is_left_out_follows_the_live_rows(drop: str, kind: str) -> None:
    pair = Pair(DROPS[drop], kind)
    pair.check()
    pair.delete(list(pair.live)[:10])
    pair.correct(3, 1)
    pair.check()
    gone = pair.X.iloc[[pair.live[name] for name in (*pair.of("town", "a"), *pair.of("kind", "x"))]]
    pair.delete(sorted({*pair.of("town", "a"), *pair.of("kind", "x")}))  # kind has two now
    pair.check()
    pair.delete(list(pair.live)[:3])
    pair.check()
    back = gone.iloc[:1].reset_index(drop=True).assign(kind="x", town="a")
    pair.insert(back, np.array([1 if kind == "logistic" else 0.5]), ["back"])
    pair.check()
    pair.insert(back.assign(kind="new", town="0"), pair.y[:1], ["new"])
    pair.check()


@pytest.mark.parametrize("drop", ["first", "if_binary", ("q",)])
def test_with_a_category_left_out_every_parameter_is_right_to_the_last_bit(drop: Any) -> None:
    rng = np.random.default_rng(3)
    columns: Columns = {"x": Numeric(), "h": OneHot(drop=drop)}
    table = {"x": rng.standard_normal(30), "h": np.array(list("pqr") * 10, dtype=object)}
    for options in ({}, {"fit_intercept": False}):
        given: Columns = columns if not options else {"h": columns["h"]}
        named = {name: table[str(name)] for name in given}
        exact = Exact(given, named, rng.standard_normal(30), **options)
        assert exact.holds()
        exact.delete(*(str(i) for i in range(0, 30, 3)))  # every p
        assert exact.holds()


def test_a_category_that_is_left_out_is_known_and_its_weight_0() -> None:
    X, y = rows(60)
    for features in (200, 0):
        columns: Columns = {"age": Numeric(), "town": OneHot(drop="first"), "kind": OneHot()}
        model = LinearModel(preprocess=columns, rounded_features=features).fit(X, y)
        assert model.theta[1] == 0.0
        assert np.isfinite(model.predict(X)).all()
        with pytest.raises(InvalidData, match="'town' holds 'e'"):
            model.predict(X.assign(town="e"))


def test_what_cannot_be_left_out_is_refused() -> None:
    with pytest.raises(InvalidData, match="drop must be None, 'first', 'if_binary' or one"):
        OneHot(drop="last")  # type: ignore[arg-type]
    X, y = rows(60)
    model = LinearModel(preprocess={"town": OneHot(drop=("e",))})
    with pytest.raises(InvalidData, match="column 'town' leaves out 'e', which no row has"):
        model.fit(X[["town"]], y)
