"""A pipeline of encoded categories beside the model that is made from it, as rows come and go."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from lethe import LinearModel, LogisticModel

KINDS = ("rounded", "bounds", "logistic")


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
    """A model made from a pipeline, and the pipeline on the rows that are live.

    Parameters
    ----------
    encoder
        Of the columns of categories; not fitted.
    kind
        Of `KINDS`: a linear model to the last bit or with bounds, or a logistic one.
    """

    def __init__(self, encoder: Any, kind: str) -> None:
        self.kind = kind
        self.X, self.y = self._rows(150, 0)
        final: Any = Ridge(alpha=2.0)
        if kind == "logistic":
            final = LogisticRegression(tol=1e-12, solver="newton-cholesky", max_iter=1000)
        columns = ColumnTransformer(
            [("hot", encoder, ["town", "kind"]), ("scaled", StandardScaler(), ["age"])]
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
        """Insert rows into both."""
        self.model.insert(frame, y, names, method="exact")
        self._add(frame, y, names)

    def correct(self, n: int, seed: int) -> None:
        """Correct the first n live rows."""
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
        """Delete rows from both."""
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
        truth = np.append(np.ravel(refit[-1].coef_), refit[-1].intercept_)
        if self.kind == "logistic":
            self._check_bound(truth)
            self.model.refresh("rebuild")
        theta, kept = self._published()
        assert not theta[~kept].any()
        np.testing.assert_allclose(theta[kept], truth, rtol=1e-9, atol=1e-9)
        if self.kind == "bounds":
            distance = float(np.linalg.norm(theta[kept] - truth))
            assert distance <= self.model.error.bound + 1e-12 * float(np.linalg.norm(truth))
        margin = "decision_function" if self.kind == "logistic" else "predict"
        ours, theirs = getattr(self.model, margin)(X), getattr(refit, margin)(X)
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)
        plain = self.model.to_sklearn()
        np.testing.assert_allclose(getattr(plain, margin)(X), theirs, rtol=1e-9, atol=1e-9)
        assert len(np.ravel(plain[-1].coef_)) == len(truth) - 1

    def check_unknown(self) -> None:
        """Compare predictions of a row whose categories no row has."""
        places = list(self.live.values())
        refit = clone(self.pipeline).fit(self.X.iloc[places], self.y[places])
        strange = self.X.iloc[places[:1]].assign(town="?", kind="?")
        margin = "decision_function" if self.kind == "logistic" else "predict"
        with warnings.catch_warnings():  # scikit-learn says of each that it is unknown
            warnings.simplefilter("ignore", UserWarning)
            theirs, *ours = (
                getattr(one, margin)(strange)
                for one in (refit, self.model, self.model.to_sklearn())
            )
        np.testing.assert_allclose(ours, [theirs] * 2, rtol=1e-9, atol=1e-9)

    def _published(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the parameters, and which of them the pipeline has."""
        state: Any = self.model.prepared
        kept = state.present > 0
        for hot in state.layout.one_hot:
            kept[hot.features] |= hot.column.categories is not None
        return state.published[:, 0], np.append(kept & ~state.left_out, True)

    def _check_bound(self, truth: np.ndarray) -> None:
        """Check the bound of what is published between two rebuilds, if there is one."""
        theta, kept = self._published()
        if (bound := self.model.error.bound) is not None:
            distance = float(np.linalg.norm(theta[kept] - truth))
            assert distance <= bound + 1e-9 * float(np.linalg.norm(truth)), (distance, bound)
