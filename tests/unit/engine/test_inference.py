"""Standard errors after deletions, against statsmodels on the remaining rows and formulas."""

from __future__ import annotations

import numpy as np
import pytest
import statsmodels.api as sm

from lethe import LinearModel
from lethe.engine.errors import InvalidData
from lethe.engine.fit.objective import Array
from lethe.engine.inference import Summary

NEGLIGIBLE = 1e-20
"""A ridge that statsmodels, which has none, does not notice."""
N, GONE = 400, 120


def _data(scales: Array) -> tuple[Array, Array, Array]:
    draw = np.random.default_rng(4)
    X = draw.standard_normal((N, len(scales))) * scales
    y = X @ (draw.standard_normal(len(scales)) / scales) + draw.standard_normal(N) + 5.0
    return X, y, draw.uniform(0.5, 2.0, N)


def _changed(model: LinearModel, X: Array, y: Array, weight: Array) -> Summary:
    """Return the summary once rows were fitted, deleted, corrected and inserted again."""
    wrong, weight = X.copy(), np.asarray(weight)
    wrong[200] *= 1e6
    model.fit(wrong[: N - 10], y[: N - 10], sample_weight=weight[: N - 10])
    for i in range(GONE):
        model.delete([str(i)], method="exact")
    model.correct(X[200:201], y[200:201], ["200"], method="exact")
    new = slice(N - 10, N)
    model.insert(X[new], y[new], [f"n{i}" for i in range(10)], weight[new], method="exact")
    found = model.summary()
    assert isinstance(found, Summary)
    return found


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("scales", [np.ones(5), np.logspace(-3, 3, 5)], ids=["even", "uneven"])
def test_after_many_changes_it_is_statsmodels_on_the_remaining_rows(
    scales: Array, weighted: bool, intercept: bool
) -> None:
    X, y, weight = _data(scales)
    weight = weight if weighted else np.ones(N)
    found = _changed(LinearModel(NEGLIGIBLE, fit_intercept=intercept), X, y, weight)
    design = np.hstack([X, np.ones((N, 1))]) if intercept else X

    truth = sm.WLS(y[GONE:], design[GONE:], weights=weight[GONE:]).fit()

    for ours, theirs in (
        (found.coefficients, truth.params),
        (found.standard_errors, truth.bse),
        (found.t, truth.tvalues),
        (found.intervals, truth.conf_int()),
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-10)
    np.testing.assert_allclose(found.p, truth.pvalues, rtol=1e-8)  # of t = 40 it is e^-100
    assert found.r_squared == pytest.approx(truth.rsquared, abs=1e-12)
    assert found.variance == pytest.approx(truth.scale, rel=1e-10)
    assert found.rows == N - GONE
    assert found.freedom == pytest.approx(truth.df_resid)


@pytest.mark.parametrize("ridge", [1e-3, 10.0, 1e6])
def test_with_a_ridge_both_forms_are_their_formulas(ridge: float) -> None:
    X, y, _ = _data(np.ones(4))
    model = LinearModel(ridge, fit_intercept=False).fit(X, y)
    S = X.T @ X
    inverse = np.linalg.inv(S + ridge * np.eye(4))
    freedom = N - np.trace(inverse @ S)
    variance = np.sum((y - X @ model.theta) ** 2) / freedom

    sampling, bayesian = model.summary(), model.summary(covariance="bayesian", level=0.9)

    assert isinstance(sampling, Summary)
    assert isinstance(bayesian, Summary)
    assert sampling.freedom == pytest.approx(freedom)
    sandwich = np.sqrt(variance * np.diag(inverse @ S @ inverse))
    np.testing.assert_allclose(sampling.standard_errors, sandwich, rtol=1e-9)
    posterior = np.sqrt(variance * np.diag(inverse))
    np.testing.assert_allclose(bayesian.standard_errors, posterior, rtol=1e-9)
    assert (bayesian.level, bayesian.covariance) == (0.9, "bayesian")


def test_each_target_has_a_summary_and_wide_models_have_theirs_from_the_rows() -> None:
    X, y, _ = _data(np.ones(3))
    both = LinearModel(1.0).fit(X, np.column_stack([y, -2.0 * y]))
    plain = LinearModel(1.0, rounded_features=0).fit(X, y).summary()

    found = both.summary()

    assert isinstance(found, tuple)
    assert isinstance(plain, Summary)
    np.testing.assert_allclose(found[0].standard_errors, plain.standard_errors, rtol=1e-12)
    np.testing.assert_allclose(found[1].standard_errors, 2.0 * plain.standard_errors, rtol=1e-12)


def test_what_has_no_summary_is_said() -> None:
    X, y, _ = _data(np.ones(3))
    few = LinearModel(NEGLIGIBLE).fit(X[:4], y[:4])
    with pytest.raises(InvalidData, match="leave no degree of freedom"):
        few.summary()
    with pytest.raises(InvalidData, match="level must be between 0 and 1"):
        LinearModel().fit(X, y).summary(level=95.0)
    with pytest.raises(InvalidData, match="there is no covariance 'hc3'"):
        LinearModel().fit(X, y).summary(covariance="hc3")
