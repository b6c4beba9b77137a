"""A transformer that is given fitted: the model keeps a copy of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import QuantileTransformer, StandardScaler

from lethe import LinearModel, LogisticModel
from lethe.engine.errors import InvalidData


def rows() -> tuple[Any, Any]:
    rng = np.random.default_rng(5)
    X = rng.normal(size=(90, 3)) * [1.0, 10.0, 0.1] + 5
    return X, X @ [1.0, 0.1, 3.0] + rng.normal(size=90)


def test_fitting_the_callers_transformer_anew_changes_nothing() -> None:
    X, y = rows()
    scaler = StandardScaler().fit(X)
    model = LinearModel(preprocess=scaler).fit(X, y)
    before, exported = model.predict(X), model.to_sklearn()
    scaler.fit(X * 100 + 7)
    assert model.preprocess is scaler  # a parameter is what was given
    np.testing.assert_array_equal(model.predict(X), before)
    model.insert(X[:1], y[:1], ["new"], method="exact")
    model.delete(["new"], method="exact")
    np.testing.assert_allclose(model.predict(X), before, rtol=1e-10)
    np.testing.assert_allclose(exported.predict(X), before)  # a Pipeline of a copy


@pytest.mark.parametrize("made", [LinearModel, LogisticModel])
def test_clones_keep_the_fitted_transformer(made: Any) -> None:
    X, y = rows()
    y = y if made is LinearModel else (y > np.median(y)).astype(int)
    chosen = make_column_transformer((QuantileTransformer(n_quantiles=20), [0, 1, 2])).fit(X)
    model = made(preprocess=chosen, ridge=2.0)
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    np.testing.assert_allclose(copy.fit(X, y).predict(X), model.fit(X, y).predict(X))
    scores = cross_val_score(model, X, y)
    assert np.isfinite(scores).all()
    search = GridSearchCV(
        make_pipeline(made(preprocess=chosen)), {f"{made.__name__.lower()}__ridge": [0.1, 10.0]}
    )
    assert np.isfinite(search.fit(X, y).best_score_)


def test_a_transformer_that_cannot_be_copied_is_refused() -> None:
    class Stubborn:
        def transform(self, X: Any) -> Any:
            return X

        def __deepcopy__(self, _: Any) -> Any:
            raise TypeError("cannot pickle")

    with pytest.raises(InvalidData, match="cannot be copied: cannot pickle"):
        LinearModel(preprocess=Stubborn()).fit(*rows())


@pytest.mark.parametrize("made", [LinearModel, LogisticModel])
def test_a_column_of_targets_is_one_target(made: Any) -> None:
    X, y = rows()
    y = y if made is LinearModel else (y > np.median(y)).astype(int)
    flat, column = made().fit(X, y), made().fit(X, y[:, None])
    for name in ("theta", "coef_", "intercept"):
        np.testing.assert_array_equal(getattr(column, name), getattr(flat, name))
    np.testing.assert_array_equal(column.predict(X), flat.predict(X))
    assert column.predict(X).shape == (90,)
    column.insert(X[:2], y[:2, None], ["a", "b"])
