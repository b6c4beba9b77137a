"""PoissonRegressor and LogisticRegression of several classes, to models and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression, PoissonRegressor, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from lethe import LinearModel, LogisticModel, PoissonModel, SoftmaxModel
from lethe.engine.errors import InvalidData

RNG = np.random.default_rng(37)
N = 160
X = RNG.standard_normal((N, 4)) + np.array([0.0, 1.0, -1.0, 2.0])
COUNTS = RNG.poisson(np.exp(X @ [0.4, -0.2, 0.1, 0.2])).astype(np.float64)
LABELS = np.array(["ash", "elm", "oak"])[
    np.argmax(X @ RNG.standard_normal((4, 3)) + RNG.gumbel(size=(N, 3)), axis=1)
]
WEIGHT = RNG.uniform(0.5, 2.0, N)
GONE = np.array([3, 8, 77, 101])
LEFT = np.setdiff1d(np.arange(N), GONE)


@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["plain", "weighted"])
@pytest.mark.parametrize("intercept", [True, False])
def test_a_poisson_regressor_becomes_a_model_and_one_again(
    intercept: bool, weight: np.ndarray[Any, Any] | None
) -> None:
    sharp: Any = PoissonRegressor(
        alpha=0.05, fit_intercept=intercept, tol=1e-12, solver="newton-cholesky", max_iter=1000
    )
    theirs = clone(sharp).fit(X, COUNTS, sample_weight=weight)
    model = PoissonModel.from_sklearn(theirs, X, COUNTS, sample_weight=weight)
    used = np.ones(N) if weight is None else weight
    assert model.ridge == pytest.approx(0.05 * used.sum(), rel=1e-14)
    assert model.converted_from_ is not None
    assert model.converted_from_.relative < 1e-10

    model.delete(map(str, GONE), method="exact")
    model.refresh("rebuild")
    back = model.to_sklearn()
    # The ridge stays, so the alpha of fewer rows is larger: a clone of the first is another model.
    assert back.alpha == pytest.approx(0.05 * used.sum() / used[LEFT].sum(), rel=1e-14)
    kept = None if weight is None else weight[LEFT]
    refit = clone(sharp).set_params(alpha=back.alpha).fit(X[LEFT], COUNTS[LEFT], kept)
    np.testing.assert_allclose(back.predict(X), refit.predict(X), rtol=1e-9)
    np.testing.assert_allclose(back.predict(X), model.predict(X), rtol=1e-12)
    assert vars(back).keys() == vars(refit).keys()
    assert back.score(X, COUNTS) == pytest.approx(model.score(X, COUNTS))
    same_alpha = clone(sharp).fit(X[LEFT], COUNTS[LEFT], kept)
    assert np.abs(same_alpha.coef_ - back.coef_).max() > 1e-6


@pytest.mark.parametrize("intercept", [True, False])
def test_a_multinomial_logistic_regression_becomes_a_model_and_one_again(intercept: bool) -> None:
    sharp: Any = LogisticRegression(
        C=0.7, fit_intercept=intercept, tol=1e-12, solver="newton-cg", max_iter=1000
    )
    frame = pd.DataFrame(X, columns=list("abcd"))
    theirs = clone(sharp).fit(frame, LABELS)
    theirs.intercept_ = theirs.intercept_ + (5.0 if intercept else 0.0)  # predicts the same
    model = SoftmaxModel.from_sklearn(theirs, frame, LABELS)
    assert model.converted_from_ is not None
    assert model.converted_from_.relative < 1e-9

    model.delete(map(str, GONE), method="exact")
    model.refresh("rebuild")
    back = model.to_sklearn()
    refit = clone(sharp).fit(frame.iloc[LEFT], LABELS[LEFT])
    np.testing.assert_allclose(back.coef_, refit.coef_, atol=1e-9)
    np.testing.assert_allclose(back.intercept_, refit.intercept_, atol=1e-9)
    np.testing.assert_allclose(back.predict_proba(frame), model.predict_proba(frame), rtol=1e-12)
    np.testing.assert_array_equal(back.predict(frame), model.predict(frame))
    assert vars(back).keys() == vars(refit).keys()
    np.testing.assert_allclose(back.C, 0.7)


@pytest.mark.parametrize(
    ("model", "estimator", "target", "message"),
    [
        (PoissonModel, PoissonRegressor(alpha=0.0), COUNTS, "alpha=0.0 is not a single ridge"),
        (PoissonModel, Ridge(), COUNTS, "use LinearModel.from_sklearn"),
        (LinearModel, PoissonRegressor(), COUNTS, "use PoissonModel.from_sklearn"),
        (SoftmaxModel, LogisticRegression(), LABELS == "ash", "use LogisticModel.from_sklearn"),
        (LogisticModel, LogisticRegression(), LABELS, "use SoftmaxModel.from_sklearn"),
        (LinearModel, LogisticRegression(), LABELS, "LogisticModel.from_sklearn or SoftmaxModel"),
    ],
    ids=lambda value: type(value).__name__ if hasattr(value, "get_params") else None,
)
def test_another_objective_is_refused_in_a_line_that_says_what_to_use(
    model: Any, estimator: Any, target: np.ndarray[Any, Any], message: str
) -> None:
    with pytest.raises(InvalidData, match=message) as refused:
        model.from_sklearn(clone(estimator).fit(X, target), X, target)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("weights", ["balanced", {"ash": 3.0}])
def test_a_softmax_model_has_the_weights_of_its_classes(weights: Any) -> None:
    given = LogisticRegression(class_weight=weights, tol=1e-10, max_iter=5000).fit(X, LABELS)
    model = SoftmaxModel.from_sklearn(given, X, LABELS)
    model.delete(["3", "5", "8"], method="exact")
    model.refresh("rebuild")
    left = np.setdiff1d(np.arange(N), [3, 5, 8])
    refit = clone(given).fit(X[left], LABELS[left])
    back = model.to_sklearn()
    np.testing.assert_allclose(model.predict_proba(X), refit.predict_proba(X), atol=1e-7)
    np.testing.assert_allclose(back.predict_proba(X), refit.predict_proba(X), atol=1e-7)
    again = clone(back).set_params(tol=1e-10, max_iter=5000).fit(X[left], LABELS[left])
    np.testing.assert_allclose(again.predict_proba(X), refit.predict_proba(X), atol=1e-7)


def test_a_frozen_scaler_before_counts_is_kept_as_it_is() -> None:
    pipeline = make_pipeline(StandardScaler(), PoissonRegressor(alpha=0.1, tol=1e-10)).fit(
        X, COUNTS
    )
    model = PoissonModel(ridge=0.1 * N, preprocess=pipeline[:-1]).fit(X, COUNTS)
    np.testing.assert_allclose(model.predict(X), pipeline.predict(X), rtol=1e-5)


def test_once_every_row_is_deleted_no_alpha_is_known() -> None:
    model = PoissonModel().fit(X, COUNTS)
    model.delete(model.live_ids)
    back = model.to_sklearn()
    assert np.isnan(back.alpha)
    np.testing.assert_array_equal(back.predict(X), np.ones(N))
