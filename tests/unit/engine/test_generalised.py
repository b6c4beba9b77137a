"""`PoissonModel` and `SoftmaxModel`: scikit-learn's estimators, and input that cannot be used."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression, PoissonRegressor

import lethe
from lethe import PoissonModel, SoftmaxModel
from lethe.engine.errors import InvalidData, LetheError

Array = NDArray[np.float64]

RNG = np.random.default_rng(0)
N, P, C = 120, 3, 3
X = RNG.standard_normal((N, P))
COUNTS = RNG.poisson(np.exp(X @ [0.5, -0.3, 0.2] + 1.0)).astype(np.float64)
LABELS = np.array(["ash", "elm", "oak"])[
    np.argmax(X @ RNG.standard_normal((P, C)) + RNG.gumbel(size=(N, C)), axis=1)
]
WEIGHT = RNG.uniform(0.5, 2.0, size=N)


def _poisson(rows: slice, ridge: float, weight: Array | None = None) -> Array:
    """Return scikit-learn's coefficients and intercept, with the alpha of these rows."""
    used = np.ones(N) if weight is None else weight
    other = PoissonRegressor(
        alpha=ridge / used[rows].sum(), tol=1e-12, max_iter=1000, solver="newton-cholesky"
    )
    other.fit(X[rows], COUNTS[rows], sample_weight=used[rows])
    return np.append(other.coef_, other.intercept_)


def _softmax(rows: slice, ridge: float) -> Array:
    other = LogisticRegression(C=1 / ridge, tol=1e-12, max_iter=1000, solver="newton-cg")
    other.fit(X[rows], LABELS[rows])
    return np.vstack([other.coef_.T, other.intercept_])


def test_both_models_are_exported() -> None:
    assert {"PoissonModel", "SoftmaxModel"} <= set(lethe.__all__) & set(dir(lethe))


@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["plain", "weighted"])
def test_poisson_is_scikit_learns_with_alpha_ridge_over_the_sum_of_weights(
    weight: Array | None,
) -> None:
    model = PoissonModel(ridge=2.0).fit(X, COUNTS, sample_weight=weight)
    theirs = _poisson(slice(None), 2.0, weight)
    np.testing.assert_allclose(np.append(model.theta, model.intercept), theirs, atol=1e-10)
    model.delete([str(i) for i in range(10)], method="exact")
    model.refresh("rebuild")
    theirs = _poisson(slice(10, None), 2.0, weight)
    np.testing.assert_allclose(np.append(model.theta, model.intercept), theirs, atol=1e-10)


def test_softmax_is_scikit_learns_before_and_after_a_deletion() -> None:
    model = SoftmaxModel(ridge=0.5).fit(X, LABELS)
    assert model.classes == ("ash", "elm", "oak")
    ours = np.vstack([model.theta, model.intercept])
    np.testing.assert_allclose(ours, _softmax(slice(None), 0.5), atol=1e-8)
    model.delete([str(i) for i in range(10)], method="exact")
    away = np.linalg.norm(
        np.vstack([model.theta, model.intercept]) - _softmax(slice(10, None), 0.5)
    )
    bound = model.error.bound
    assert bound is not None
    assert away <= bound


def test_one_softmax_is_not_each_class_against_the_rest() -> None:
    softmax = SoftmaxModel().fit(X, LABELS)
    rest = lethe.LogisticModel().fit(X, LABELS)
    assert np.linalg.norm(softmax.theta - rest.theta) > 0.1


def test_deleting_every_count_above_zero_penalises_the_intercept() -> None:
    y = np.zeros(N)
    y[:2] = 3.0
    model = PoissonModel(ridge=1.0).fit(X, y)
    free = not model.intercept_penalised
    model.delete(["0", "1"])
    assert free
    assert model.intercept_penalised
    assert model.intercept < 0
    assert (model.predict(X) < 1).all()


@pytest.mark.parametrize("y", [-1.0, np.nan, np.inf])
def test_a_count_below_zero_or_not_finite_is_refused(y: float) -> None:
    with pytest.raises(InvalidData):
        PoissonModel().fit(X, np.where(np.arange(N) == 5, y, COUNTS))
    model = PoissonModel().fit(X, COUNTS)
    before = model.theta
    with pytest.raises(InvalidData):
        model.insert(X[:1], [y], ["new"])
    np.testing.assert_array_equal(model.theta, before)
    assert "new" not in model.live_ids


def test_two_targets_of_counts_are_refused() -> None:
    with pytest.raises(InvalidData, match="one target"):
        PoissonModel().fit(X, np.column_stack([COUNTS, COUNTS]))


@pytest.mark.parametrize("size", [1e3, 1e200])
def test_a_row_whose_predicted_mean_overflows_is_refused_with_one_line(size: float) -> None:
    model = PoissonModel().fit(X, COUNTS)
    far = size * model.theta[None, :]
    before, error = model.theta, model.error
    with pytest.raises(InvalidData, match="rescale its features") as refused:
        model.insert(far, [1.0], ["new"])
    assert "\n" not in str(refused.value)
    with pytest.raises(InvalidData, match="prediction"):
        model.predict(1e4 * far)
    np.testing.assert_array_equal(model.theta, before)
    assert model.error == error


def test_counts_past_what_can_be_computed_with_are_refused_with_one_line() -> None:
    model = PoissonModel().fit(X, np.full(N, 1e10))
    np.testing.assert_allclose(model.intercept, np.log(1e10), rtol=1e-12)
    for size in (1e30, 1e300):
        with pytest.raises(LetheError) as refused:
            PoissonModel().fit(X, np.full(N, size))
        assert "\n" not in str(refused.value)


def test_two_classes_or_labels_that_the_model_does_not_know_are_refused() -> None:
    with pytest.raises(InvalidData, match="at least 3 classes"):
        SoftmaxModel().fit(X, LABELS == "ash")
    model = SoftmaxModel().fit(X, LABELS)
    with pytest.raises(InvalidData, match="none of the classes"):
        model.insert(X[:1], ["fir"], ["new"])
    assert len(model.live_ids) == N


def test_deleted_rows_are_overwritten() -> None:
    for model in (SoftmaxModel().fit(X, LABELS), PoissonModel().fit(X, COUNTS)):
        model.delete(["7"])
        members = model._fitted.members
        assert not members.rows.X[7].any()
        assert not members.rows.y[7].any()


@pytest.mark.parametrize("size", ["polish", None])
def test_an_answer_whose_predictions_overflow_is_unknown_and_a_refresh_rebuilds(
    size: str | None,
) -> None:
    """A thousand rows without a count hold the mean at 0.1; the one that stays counts 100."""
    ones, y = np.ones((1001, 1)), np.append(np.zeros(1000), 100.0)
    model = PoissonModel(ridge=1e-6, fit_intercept=False).fit(ones, y)
    model.delete([str(i) for i in range(1000)], method="exact")
    assert model.theta[0] > 709
    assert model.error.value is None
    with pytest.raises(InvalidData, match="prediction"):
        model.predict([[1.0]])
    assert model.refresh(size).size == "rebuild"
    np.testing.assert_allclose(model.theta, np.log(100.0), rtol=1e-6)
    assert model.error.bound is not None
