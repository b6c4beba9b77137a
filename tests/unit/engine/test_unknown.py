"""Where the estimate is not believed, the error is unknown: it counts as over every budget."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lethe.engine import ErrorKind, LogisticModel, PublishedError, RefreshSize
from lethe.engine.error.budget import over_budget
from lethe.engine.fit.objective import Array
from tests.support.oracles import distance, retrain_logistic_wide


def mislabelled(seed: int = 0, n: int = 300, d: int = 6) -> tuple[Array, Array, list[str]]:
    """Return separable rows of which one in fifteen has the wrong label, and their ids."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    y = (X @ rng.standard_normal(d) > 0).astype(np.float64)
    wrong = rng.permutation(n)[: n // 15]
    y[wrong] = 1 - y[wrong]
    return X, y, [str(i) for i in wrong]


def true_error(model: LogisticModel, X: Array, y: Array) -> float:
    live = [int(i) for i in model.live_ids]
    truth = retrain_logistic_wide(X[live], y[live], np.ones(len(live)), np.full(X.shape[1], 1e-6))
    return distance(model.theta[:, None], truth)


@pytest.mark.parametrize("seed", range(5))
def test_cleaning_all_mislabelled_rows_is_unknown_until_the_refresh_proves_it(seed: int) -> None:
    X, y, wrong = mislabelled(seed)
    model = LogisticModel(ridge=1e-6, fit_intercept=False).fit(X, y)
    error = model.delete(wrong, method="exact").error
    assert (error.kind, error.value, error.bound, error.relative) == (
        ErrorKind.UNKNOWN, None, None, None,
    )  # fmt: skip
    assert error.over(model.error_budget)
    assert error.over(1e300)
    model.refresh()
    after = model.error
    assert after.kind is ErrorKind.CERTIFICATE
    assert not after.over(model.error_budget)
    assert after.bound is not None
    assert true_error(model, X, y) <= after.bound


def test_a_feature_that_few_live_rows_have_is_unknown_whether_they_are_in_the_sample_or_not() -> (
    None
):
    """Nothing in the sample tells of them; the deleted rows' leverage does."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2000, 5))
    X[:, 4] = 0.0
    has = rng.permutation(2000)[:40]
    X[has, 4] = 2.0 + rng.standard_normal(40)
    y = (rng.random(2000) < 1 / (1 + np.exp(-X @ np.array([1.0, -1.0, 0.5, 0.0, 1.0])))).astype(
        np.float64
    )
    model = LogisticModel(ridge=1e-6, fit_intercept=False).fit(X, y)
    error = model.delete([str(i) for i in has[:38]], method="exact").error
    assert error.kind is ErrorKind.UNKNOWN
    model.refresh(RefreshSize.POLISH)  # whether it ends with a bound or is followed by a rebuild
    assert model.error.kind is ErrorKind.CERTIFICATE
    # The next deletion is judged from the new reference, not from what was deleted before it.
    error = model.delete(model.live_ids[:1], method="exact").error
    assert error.kind is ErrorKind.ESTIMATE


def test_ordinary_deletions_keep_their_estimate() -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((600, 8))
        y = (rng.random(600) < 1 / (1 + np.exp(-X @ rng.standard_normal(8)))).astype(np.float64)
        model = LogisticModel(ridge=1.0).fit(X, y)
        for at in range(0, 60, 12):
            error = model.delete([str(i) for i in range(at, at + 12)]).error
            assert error.kind is ErrorKind.ESTIMATE


def test_a_polish_without_a_bound_is_followed_by_a_rebuild_also_when_it_was_ordered() -> None:
    for seed in range(40):
        X, y, wrong = mislabelled(seed, n=80, d=10)
        model = LogisticModel(ridge=1e-5).fit(X, y)
        model.delete(wrong, method="exact")
        choice = model.refresh(RefreshSize.POLISH)
        assert model.error.kind is ErrorKind.CERTIFICATE
        if choice.size is RefreshSize.REBUILD:
            assert choice.reason == "a polish ended without a bound"
            return
    pytest.fail("every polish ended with a bound")


@pytest.mark.parametrize(
    ("relative", "over"),
    [(0.0, False), (0.01, False), (0.0100001, True), (None, True), (math.nan, True)],
)
def test_what_is_not_known_to_be_within_a_budget_is_over_it(
    relative: float | None, over: bool
) -> None:
    assert over_budget(relative, 0.01) is over
    assert PublishedError(relative, ErrorKind.ESTIMATE, None, relative).over(0.01) is over


def test_a_budget_that_is_no_number_is_met_by_nothing() -> None:
    assert over_budget(0.0, math.nan)
