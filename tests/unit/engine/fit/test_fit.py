from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression, Ridge

import lethe.engine.fit.fit
from lethe.engine.errors import InvalidData, NotConverged
from lethe.engine.fit.fit import fit
from lethe.engine.fit.objective import Kind, Objective, Rows
from tests.support.families import Data, families, make
from tests.support.oracles import distance, relative, retrain
from tests.support.states import as_double, started


def _parts(data: Data) -> tuple[Objective, Rows]:
    rows = Rows(data.design, data.y, data.weight)
    return Objective(Kind(data.kind), data.penalty), rows


@pytest.mark.parametrize("kind", ["linear", "logistic"])
def test_every_family_is_fitted_within_its_own_bound(kind: str) -> None:
    for name in families(kind):
        for seed in range(3):
            state = started(name, kind, seed)
            true = distance(state.made.theta, state.retrained(0))
            bound = state.made.certificate.bound
            assert bound is not None
            assert true <= bound, (name, seed)
            assert bound <= 1e-6 * np.linalg.norm(state.made.theta), (name, seed)


@pytest.mark.parametrize("arrangement", ["as drawn", "sorted"])
def test_the_bound_holds_when_targets_dwarf_theta_in_many_rows(arrangement: str) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((20000, 3)), 1e8 * rng.standard_normal((20000, 1))
    if arrangement == "sorted":  # partial sums of the gradient become large
        order = np.argsort(X.sum(axis=1) * y[:, 0])
        X, y = X[order], y[order]
    objective, rows = Objective(Kind.LINEAR, np.ones(3)), Rows(X, y, np.ones(20000))
    fitted = fit(objective, rows)
    truth = retrain("linear", X, y, rows.weight, objective.penalty)
    scale = objective.gradient_scale(rows, fitted.theta)
    allowed = 4 * 2.2e-16 * (scale / fitted.factor.smallest + np.linalg.norm(truth))
    assert np.linalg.norm(fitted.theta - truth) <= allowed + 2.2e-16 * np.linalg.norm(truth)


def test_linear_agrees_with_scikit_learn() -> None:
    data = make("weighted", "linear")
    theirs = Ridge(alpha=data.ridge).fit(data.X, data.y[:, 0], sample_weight=data.weight)
    ours = fit(*_parts(data)).theta[:, 0]
    np.testing.assert_allclose(ours[:-1], theirs.coef_, rtol=1e-10)
    assert ours[-1] == pytest.approx(theirs.intercept_, rel=1e-10)


def test_logistic_agrees_with_scikit_learn() -> None:
    data = make("weighted", "logistic")
    theirs = LogisticRegression(
        C=1 / data.ridge, tol=1e-12, max_iter=1000, solver="newton-cholesky"
    )
    theirs.fit(data.X, data.y[:, 0], sample_weight=data.weight)
    ours = fit(*_parts(data)).theta[:, 0]
    np.testing.assert_allclose(ours[:-1], theirs.coef_[0], rtol=1e-7)
    assert ours[-1] == pytest.approx(theirs.intercept_[0], rel=1e-6)


@pytest.mark.parametrize("name", ["benign", "sparse", "wide", "constant"])
def test_logistic_agrees_with_a_trust_region_method(name: str) -> None:
    objective, rows = _parts(make(name, "logistic"))
    found = minimize(
        lambda t: objective.value(rows, t[:, None]),
        np.zeros(objective.d),
        jac=lambda t: objective.gradient(rows, t[:, None])[:, 0],
        hess=lambda t: objective.hessian(rows, t[:, None]),
        method="trust-exact",
        options={"gtol": 1e-9},
    )
    assert relative(fit(objective, rows).theta[:, 0], found.x) < 1e-7


def test_a_warm_start_reaches_the_same_point() -> None:
    objective, rows = _parts(make("near_separable", "logistic"))
    far = 5.0 * np.random.default_rng(0).standard_normal((objective.d, 1))
    assert relative(fit(objective, rows, far).theta, fit(objective, rows).theta) < 1e-9


def test_the_factor_is_that_of_the_hessian_at_the_answer() -> None:
    objective, rows = _parts(make("near_separable", "logistic"))
    fitted = fit(objective, rows)
    A = objective.hessian(rows, fitted.theta)
    np.testing.assert_allclose(fitted.factor.L @ fitted.factor.L.T, A, rtol=1e-10, atol=1e-12)


def test_separable_data_are_fitted_for_a_tiny_ridge() -> None:
    x = np.linspace(-1, 1, 40)
    X = np.column_stack([x, np.ones(40)])
    y = (x > 0).astype(np.float64)[:, None]
    objective = Objective(Kind.LOGISTIC, np.array([1e-8, 0.0]))
    fitted = fit(objective, Rows(X, y, np.ones(40)))
    truth = retrain("logistic", X, y, np.ones(40), objective.penalty)
    assert relative(fitted.theta, truth) < 1e-9


def test_nothing_to_fit_and_numbers_that_are_not_finite_are_refused() -> None:
    objective = Objective(Kind.LINEAR, np.ones(2))
    with pytest.raises(InvalidData, match="no row to fit"):
        fit(objective, Rows(np.ones((0, 2)), np.ones((0, 1)), np.ones(0)))
    with pytest.raises(InvalidData, match="not a finite number"):
        fit(objective, Rows(np.array([[1.0, np.nan]]), np.ones((1, 1)), np.ones(1)))


def test_a_fit_that_does_not_converge_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lethe.engine.fit.fit, "_NEWTON_LIMIT", 2)
    with pytest.raises(NotConverged, match="raise the ridge"):
        fit(*_parts(make("near_separable", "logistic")))


def test_the_oracles_agree_with_each_other() -> None:
    data = make("benign", "linear")
    truth = as_double(started("benign", "linear").retrained(0))
    dense = np.linalg.lstsq(
        np.vstack([data.design, np.diag(np.sqrt(data.penalty))]),
        np.vstack([data.y, np.zeros((len(data.penalty), 1))]),
        rcond=None,
    )[0]
    np.testing.assert_allclose(truth, dense, rtol=1e-11, atol=1e-13)


def test_refinement_gives_back_the_digits_that_the_normal_equations_lose() -> None:
    for name in ("badly_scaled", "high_leverage"):
        for seed in range(3):
            state = started(name, "linear", seed)
            assert relative(state.made.theta, as_double(state.retrained(0))) < 1e-12, name
