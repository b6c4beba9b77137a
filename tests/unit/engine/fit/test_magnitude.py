"""Numbers at the edge of float64: a right answer within its bound, or an error that says why."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from lethe.engine import ErrorKind, LinearModel, LogisticModel, RefreshSize
from lethe.engine.deletion.span import extend_basis
from lethe.engine.error.certificate import Certificate, HessianFloor
from lethe.engine.errors import IllConditioned, InvalidData, LetheError, NotConverged
from lethe.engine.fit.factor import factorise
from lethe.engine.fit.magnitude import check_data
from lethe.engine.fit.objective import Array, Kind, Objective, Rows, lengths, norm
from lethe.engine.refresh.policy import Limits, choose, facts_of
from tests.support.oracles import Wide
from tests.support.states import started

Model = LinearModel | LogisticModel

ROWS = 40
STEPS: tuple[tuple[str, list[int]], ...] = (
    ("exact", [0]),
    ("polish", []),
    ("pru", [1, 2]),
    ("complete", []),
    ("influence", [3]),
    ("compact", []),
    ("exact", [4, 5]),
    ("rebuild", []),
)
RNG = np.random.default_rng(5)
X = RNG.standard_normal((ROWS, 3))
VALUES = X @ [1.0, -2.0, 0.5] + 0.3 * RNG.standard_normal(ROWS)
LABELS = (X[:, 0] + RNG.standard_normal(ROWS) > 0).astype(np.float64)


def _solved(A: Wide, b: Wide) -> Wide:
    """Return A^-1 b by Cholesky in extended range and precision, scaled to a diagonal of 1."""
    root, d = np.sqrt(np.diag(A)), len(A)
    scaled, x, L = A / root[:, None] / root, b / root, np.zeros_like(A)
    for i in range(d):
        for j in range(i + 1):
            rest = scaled[i, j] - L[i, :j] @ L[j, :j]
            L[i, j] = np.sqrt(rest) if i == j else rest / L[j, j]
    for i in range(d):
        x[i] = (x[i] - L[i, :i] @ x[:i]) / L[i, i]
    for i in reversed(range(d)):
        x[i] = (x[i] - L[i + 1 :, i] @ x[i + 1 :]) / L[i, i]
    return np.asarray(x / root)


def _retrained(kind: Kind, X: Array, y: Array, weight: Array, penalty: Array) -> Wide:
    """Return the minimiser in long double, whose range no square of a double leaves."""
    D, t, s0, ridge = (np.asarray(v, dtype=np.longdouble) for v in (X, y, weight, penalty))
    theta = np.zeros(D.shape[1], dtype=np.longdouble)

    def value(at: Wide) -> np.longdouble:
        up, down = np.logaddexp(np.longdouble(0), [D @ at, -(D @ at)])
        total: np.longdouble = s0 @ ((1 - t) * up + t * down) + (ridge * at) @ at / 2
        return total

    for _ in range(100):
        margin = D @ theta
        if kind is Kind.LINEAR:
            error, s = margin - t, s0
        else:
            up, down = 1 / (1 + np.exp(-margin)), 1 / (1 + np.exp(margin))
            error, s = (1 - t) * up - t * down, s0 * up * down
        step = _solved((D * s[:, None]).T @ D + np.diag(ridge), D.T @ (s0 * error) + ridge * theta)
        size = np.longdouble(1)
        if kind is Kind.LOGISTIC and _length(step) > 1e-3 * _length(theta):
            here = value(theta)
            while size > 1e-9 and value(theta - size * step) > here:
                size /= 2
        theta = theta - size * step
        if _length(step) <= 1e-12 * _length(theta):  # the next is its square
            break
    return theta


def _length(v: Wide) -> np.longdouble:
    length: np.longdouble = np.sqrt((v * v).sum())
    return length


def _holds(model: Model, X: Array, y: Array, weight: Array, gone: set[int]) -> None:
    """Assert that every figure is finite, and that theta is within its bound of retraining."""
    live = [i for i in range(ROWS) if i not in gone]
    theta, penalty, design = model.theta, np.full(3, model.ridge), X
    if model.fit_intercept:
        theta = np.append(theta, model.intercept)
        penalty = np.append(penalty, model.ridge if model.intercept_penalised else 0.0)
        design = np.hstack([X, np.ones((ROWS, 1))])
    error = model.error
    assert np.isfinite(theta).all()
    if error.value is None or error.relative is None:  # nothing is stated that could be false
        assert (error.kind, model.kind) == (ErrorKind.UNKNOWN, Kind.LOGISTIC)
        return
    assert np.isfinite([error.value, error.relative, error.bound or 0.0]).all()
    truth = _retrained(model.kind, design[live], y[live], weight[live], penalty)
    off = _length(theta.astype(np.longdouble) - truth)
    # An estimate is no bound; these states are mild.
    stated = np.longdouble(10 * error.value if error.bound is None else error.bound)
    assert off <= stated + 1e-18 * _length(truth), (model.ridge, model.fit_intercept, gone)


def _tried(model: Model, X: Array, y: Array, weight: Array) -> str:
    """Fit, delete by each method and refresh to each size; return what became of it."""
    try:
        model.fit(X, y, sample_weight=weight)
    except (InvalidData, IllConditioned) as error:
        return "refused" if "rescale" in str(error) else str(error)
    gone: set[int] = set()
    _holds(model, X, y, weight, gone)
    for what, rows in STEPS:
        with suppress(InvalidData, IllConditioned, NotConverged):
            if rows:
                model.delete([str(i) for i in rows], method=what)
                gone.update(rows)
            else:
                model.refresh(what)
        _holds(model, X, y, weight, gone)
    return "answered"


SCALES = (1e-200, 1e-150, 1e-100, 1.0, 1e100, 1e150, 1e200)
RIDGES = (1e-300, 1e-12, 1.0, 1e12, 1e300)


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("of_y", [1e-200, 1.0, 1e200])
@pytest.mark.parametrize("of_weight", [1e-300, 1.0, 1e300])
def test_a_linear_model_of_any_scale_is_right_or_refused(
    of_y: float, of_weight: float, fit_intercept: bool
) -> None:
    for scale, ridge in product(SCALES, RIDGES):
        model = LinearModel(ridge, fit_intercept=fit_intercept)
        became = _tried(model, X * scale, VALUES * of_y, np.full(ROWS, of_weight))
        assert became == "answered" or (
            became == "refused" and (scale, ridge, of_weight) != (1.0, 1.0, 1.0)
        )


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("of_weight", [1e-300, 1.0, 1e300])
def test_a_logistic_model_of_any_scale_is_right_or_refused(
    of_weight: float, fit_intercept: bool
) -> None:
    for scale, ridge in product(SCALES, RIDGES):
        model = LogisticModel(ridge, fit_intercept=fit_intercept)
        became = _tried(model, X * scale, LABELS, np.full(ROWS, of_weight))
        assert became == "answered" or (
            became == "refused" and (scale, ridge, of_weight) != (1.0, 1.0, 1.0)
        )


@pytest.mark.parametrize("kind", [LinearModel, LogisticModel])
def test_features_and_ridge_scaled_together_are_no_reason_to_refuse(
    kind: type[LinearModel] | type[LogisticModel],
) -> None:
    y = VALUES if kind is LinearModel else LABELS
    model = kind(ridge=1e300, fit_intercept=False).fit(X * 1e150, y)
    plain = kind(ridge=1.0, fit_intercept=False).fit(X, y)
    for one in (model, plain):
        one.delete(["0", "1"], method="exact")
        one.refresh(RefreshSize.REBUILD)
    np.testing.assert_allclose(model.theta * 1e150, plain.theta, rtol=1e-9)
    assert not model.error.over(1e-9)


def test_targets_of_1e200_have_an_error_that_is_a_number() -> None:
    model = LinearModel().fit(X, VALUES * 1e200)
    plain = LinearModel().fit(X, VALUES)
    for one in (model, plain):
        one.delete(["0", "1"], method="pru")
    np.testing.assert_allclose(model.theta / 1e200, plain.theta, rtol=1e-9)
    assert model.error.relative == pytest.approx(plain.error.relative)
    assert model.error.relative is not None
    assert 0.0 < model.error.relative < np.inf


def test_features_of_1e_150_with_a_ridge_as_small_are_refused_in_plain_words() -> None:
    with pytest.raises(InvalidData, match=r"too small to compute with: .*; rescale the features"):
        LinearModel(1e-300, fit_intercept=False, rounded_features=0).fit(X * 1e-150, VALUES)
    with pytest.raises(IllConditioned, match="rescale the features"):
        LinearModel(ridge=1e-300, rounded_features=0).fit(X * 1e-150, VALUES)


def test_exact_sums_take_what_float64_cannot_factor() -> None:
    model = LinearModel(ridge=1e-300, fit_intercept=False).fit(X * 1e-150, VALUES)
    plain = LinearModel(ridge=1.0, fit_intercept=False).fit(X, VALUES)
    np.testing.assert_allclose(model.theta * 1e-150, plain.theta, rtol=1e-9)
    assert model.error.kind is ErrorKind.ROUNDED


@pytest.mark.parametrize(
    ("scale", "targets", "message"),
    [
        (1e160, 1.0, "features, weights and ridge are too large"),
        (1.0, 1e307, "features times targets are too large"),
        (1e-150, 1e-150, "features times targets are too small"),
        (1e-130, 1e200, "parameters are too large"),
    ],
)
def test_what_is_too_large_or_too_small_is_said(scale: float, targets: float, message: str) -> None:
    with pytest.raises(InvalidData, match=message):
        LinearModel(ridge=1e-270, fit_intercept=False).fit(X * scale, VALUES * targets)


def test_what_is_0_is_not_too_small() -> None:
    model = LinearModel(fit_intercept=False).fit(X, np.zeros(ROWS))
    model.delete(["1"])
    assert not model.theta.any()
    nothing = LogisticModel(fit_intercept=False).fit(np.zeros((ROWS, 3)), LABELS)
    assert not nothing.theta.any()


def test_noise_of_certified_removal_pulls_as_targets_do() -> None:
    rows = Rows(X, VALUES[:, None], np.ones(ROWS))
    loud = Objective(Kind.LINEAR, np.ones(3), np.full((3, 1), 1e305))
    with pytest.raises(InvalidData, match="too large"):
        check_data(loud, rows)


@pytest.mark.parametrize("power", [-460, 460])
def test_the_eigenvalue_bound_is_the_same_at_every_scale(power: int) -> None:
    A = X.T @ X
    factor, scaled = factorise(A), factorise(A * 4.0**power)
    assert scaled.smallest == factor.smallest * 4.0**power
    assert scaled.largest == factor.largest * 4.0**power


@pytest.mark.parametrize("kind", [LinearModel, LogisticModel])
def test_predictions_are_of_numbers_and_are_numbers(
    kind: type[LinearModel] | type[LogisticModel],
) -> None:
    model = kind(ridge=1e-3).fit(X, LABELS)
    for bad in (np.nan, np.inf, -np.inf):
        with pytest.raises(InvalidData, match="a feature of row 1 is not a finite number"):
            model.predict([[1.0, 2.0, 3.0], [1.0, bad, 3.0]])
    with pytest.raises(
        InvalidData, match=r"a prediction of row 0 is not a finite number .*; rescale"
    ):
        LinearModel(ridge=1e-3).fit(X, VALUES * 1e200).predict(np.full((1, 3), 1e200))
    for odd in ([["a", "b", "c"]], [[10**400, 0, 0]], np.ones((1, 3)) * 1j):
        with pytest.raises(InvalidData, match="X is not an array of numbers"):
            model.predict(odd)
    with pytest.raises(InvalidData, match="must have 2 dimensions, not 1"):
        model.predict([1.0, 2.0, 3.0])
    assert model.predict(np.empty((0, 3))).shape == (0,)


@pytest.mark.parametrize("ridge", [np.nan, np.inf, 0.0, -1.0])
def test_a_ridge_that_is_no_number_above_0_is_refused(ridge: float) -> None:
    with pytest.raises(InvalidData, match="ridge must be a finite number above 0"):
        LinearModel(ridge=ridge).fit(X, VALUES)


@pytest.mark.parametrize("budget", [np.nan, 0.0, -0.1])
def test_a_budget_that_is_no_number_above_0_is_refused(budget: float) -> None:
    with pytest.raises(InvalidData, match="error_budget must be a number above 0"):
        LinearModel(error_budget=budget).fit(X, VALUES)


def test_a_polish_whose_relative_error_would_overflow_changes_nothing() -> None:
    """Its bound is |g| / ridge, finite, and 1e300 times what it is relative to, 1e-150."""
    model = LogisticModel(ridge=1e-100, fit_intercept=False).fit(X * 1e150, LABELS)
    for rows in (range(6), range(6, 35)):
        try:
            model.delete([str(i) for i in rows], method="exact")
        except IllConditioned:
            model.refresh(RefreshSize.REBUILD, without=[str(i) for i in rows])
    for size in RefreshSize:
        before = model.error
        try:
            model.refresh(size)
        except LetheError:
            assert model.error == before
        assert model.error.relative is None or np.isfinite(model.error.relative)


@pytest.mark.parametrize("linear", [True, False])
def test_an_error_that_cannot_be_stated_refuses_the_step(linear: bool) -> None:
    """Theta is finite; only its allowance for rounding is not."""
    model = (
        LinearModel(fit_intercept=False, rounded_features=0)
        if linear
        else LogisticModel(fit_intercept=False)
    ).fit(X, LABELS)
    state = model._fitted
    before = model.theta
    state.stream, state.certified = state.stream._replace(residual=np.inf), None
    for method in ("pru", "exact", "influence"):
        with pytest.raises(IllConditioned, match="error of the answer would not be a finite"):
            model.delete(["7"], method=method)
    np.testing.assert_array_equal(model.theta, before)
    assert "7" in model.live_ids
    with pytest.raises(IllConditioned, match="error of the answer"):
        _ = model.error


def test_a_certificate_of_no_number_is_none() -> None:
    with pytest.raises(IllConditioned, match="rescale"):
        Certificate(np.inf, "strong-convexity", 1.0, 1.0)
    with pytest.raises(IllConditioned, match="rescale"):
        Certificate(None, "none", np.nan, 1.0)


def test_what_is_not_a_number_is_over_the_budget() -> None:
    state = started("benign", "linear")
    unknown = state.stream._replace(residual=np.nan)
    facts = facts_of(state.generation, unknown, rows_live=120, estimate=0.0, budget_relative=1.0)
    assert choose(facts, Limits()).size is not RefreshSize.COMPLETE
    full = replace(facts, v_seconds=1e9, deleted_in_generation=10)
    assert choose(full, Limits()).size is not RefreshSize.COMPACT


@pytest.mark.parametrize("scale", [1e-150, 1e-100, 1.0, 1e100, 1e150])
def test_the_floor_under_a_hessian_is_the_same_at_every_scale(scale: float) -> None:
    plain = HessianFloor(0.3, 2.0, np.array([0.5, -0.2]), 3.0)
    K = np.diag([0.3, 0.3, 0.0]) + 2.0 * np.outer([0.5, -0.2, 1.0], [0.5, -0.2, 1.0])
    least = float(np.linalg.eigvalsh(K)[0])
    assert 0.99 * least <= plain.smallest <= least
    weighted = HessianFloor(0.3 * scale**2, 2.0 * scale**2, np.array([0.5, -0.2]), 3.0)
    assert weighted.smallest == pytest.approx(plain.smallest * scale**2, rel=1e-12)
    assert weighted.reach == pytest.approx(plain.reach / scale, rel=1e-12)
    # Every curvature has underflowed: nothing is known, which is no error.
    nothing = HessianFloor(0.3, 0.0, np.array([0.5, -0.2]), 3.0)
    assert (nothing.smallest, nothing.reach) == (0.0, np.inf)


@pytest.mark.parametrize("scale", [1e-320, 1e-200, 1.0, 1e200, 1e305])
def test_lengths_do_not_lose_what_their_squares_would(scale: float) -> None:
    assert norm(np.array([[3.0], [4.0]]) * scale) == pytest.approx(5.0 * scale, rel=1e-3)
    rows = np.array([[3.0, 4.0], [0.0, 1.0], [0.0, 0.0]]) * scale
    np.testing.assert_allclose(lengths(rows), np.array([5.0, 1.0, 0.0]) * scale, rtol=1e-3)
    assert lengths(np.empty((0, 2))).shape == (0,)
    assert np.isnan(norm(np.array([np.nan, 1.0])))
    assert norm(np.array([np.inf, 1.0])) == np.inf


def test_a_row_that_is_tiny_is_a_direction_all_the_same() -> None:
    alone = extend_basis(np.empty((0, 3)), np.array([[0.0, 1e-200, 0.0]]))
    np.testing.assert_array_equal(np.abs(alone), [[0.0, 1.0, 0.0]])
