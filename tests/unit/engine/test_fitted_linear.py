"""A library model that keeps exact sums: what it publishes is rounded once, and it says so."""

from __future__ import annotations

import pickle
from copy import deepcopy
from fractions import Fraction

import numpy as np
import pytest

from lethe import LinearModel
from lethe.engine.error.estimate import ErrorKind
from lethe.engine.errors import InvalidData, LetheError
from lethe.engine.fit.objective import Array, Rows
from lethe.engine.fitted_linear import FittedLinear
from tests.support.in_fractions import in_fractions, minimiser, rounded_minimiser, sums


def _state(model: LinearModel) -> FittedLinear:
    state = model._fitted
    assert isinstance(state, FittedLinear)
    return state


def _oracle(
    X: Array, y: Array, weight: Array, ridge: float, intercept: bool, penalised: bool
) -> Array:
    design = np.hstack([X, np.ones((len(X), 1))]) if intercept else X
    penalty = np.full(design.shape[1], ridge)
    if intercept and not penalised:
        penalty[-1] = 0.0
    targets = y if y.ndim == 2 else y[:, np.newaxis]
    return rounded_minimiser(Rows(design, targets, weight), penalty)


def _kind(model: LinearModel) -> ErrorKind:
    return model.error.kind


def _full(model: LinearModel) -> Array:
    return _state(model).stream.published


@pytest.mark.parametrize("method", ["exact", "pru", "influence"])
@pytest.mark.parametrize("targets", [1, 3])
@pytest.mark.parametrize(("intercept", "penalised"), [(True, False), (True, True), (False, False)])
def test_a_stream_of_changes_ends_at_the_rounded_minimiser(
    method: str, targets: int, intercept: bool, penalised: bool
) -> None:
    rng = np.random.default_rng(7)
    n, d, ridge = 25, 3, 0.1
    X = rng.normal(size=(n, d)) * 10.0 ** np.array([-3, 0, 3])
    y = rng.normal(size=(n, targets)) if targets > 1 else rng.normal(size=n)
    weight = 10.0 ** rng.uniform(-3, 3, n)
    weight[4] = 0.0
    model = LinearModel(ridge, fit_intercept=intercept, penalise_intercept=penalised)
    model.fit(X, y, sample_weight=weight)
    live = dict(enumerate(zip(X.copy(), y.copy(), weight.copy(), strict=True)))
    for turn in range(8):
        gone = [int(i) for i in rng.choice(list(live), 2, replace=False)]
        model.delete([str(i) for i in gone], method=method)
        for i in gone:
            del live[i]
        x, t, w = rng.normal(size=(1, d)) * 1e4, y[:1] * 2.0, np.array([0.5])
        model.insert(x, t, [str(n + turn)], w, method=method)
        live[n + turn] = (x[0], t[0], 0.5)
        one = next(iter(live))
        model.correct(x * 1e-4, t, [str(one)], np.array([3.0]), method=method)
        live[one] = (x[0] * 1e-4, t[0], 3.0)
        if method != "exact":
            model.refresh("complete")
        xs, ts, ws = (np.array(part) for part in zip(*live.values(), strict=True))
        expected = _oracle(xs, ts, ws, ridge, intercept, penalised)
        assert _full(model).tobytes() == expected.tobytes()
        assert model.error.kind is ErrorKind.ROUNDED
        assert model.refresh() == model.refresh()
        assert _full(model).tobytes() == expected.tobytes()


def test_the_error_of_a_rounded_version_is_half_a_unit_in_the_last_place() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(12, 2)), rng.normal(size=12)
    model = LinearModel(0.5, fit_intercept=False).fit(X, y)
    rows = Rows(X, y[:, np.newaxis], np.ones(12))
    exact = minimiser(rows, np.full(2, 0.5))
    square = sum((Fraction(float(model.theta[j])) - exact[j][0]) ** 2 for j in range(2))
    assert square <= Fraction(model.error.value or 0.0) ** 2
    assert model.error.value is not None
    assert model.error.value <= 2.0**-52 * float(np.linalg.norm(model.theta))


def test_a_projection_is_not_called_rounded() -> None:
    rng = np.random.default_rng(1)
    model = LinearModel().fit(rng.normal(size=(12, 4)), rng.normal(size=12))
    model.delete(["3"], method="pru")
    assert model.error.kind is ErrorKind.EXACT
    assert model.error.value is not None
    assert model.error.value > 1e-12
    model.refresh("complete")
    assert _kind(model) is ErrorKind.ROUNDED


def test_what_nothing_has_proved_is_not_called_rounded() -> None:
    """Ties, beside more coefficients than rational arithmetic is used for."""
    d = 300
    tie = np.array([[1.0], [1.0]])
    X = np.zeros((d + 1, d))
    X[:2, :1] = tie
    X[np.arange(2, d + 1), np.arange(1, d)] = np.arange(2.0, d + 1)
    y = np.ones(d + 1)
    y[1] = 2.0**-53
    model = LinearModel(2.0, fit_intercept=False, rounded_features=d).fit(X, y)
    assert model.theta[0] == 0.25
    assert model.error.kind is ErrorKind.EXACT
    assert model.error.value is not None
    exact = [
        Fraction(1 + Fraction(2) ** -53, 4),
        *(Fraction(k, k * k + 2) for k in range(2, d + 1)),
    ]
    square = sum((Fraction(float(model.theta[j])) - exact[j]) ** 2 for j in range(d))
    assert 0 < square <= Fraction(model.error.value) ** 2
    model.delete(["0"], method="exact")  # a tie no more
    assert _kind(model) is ErrorKind.ROUNDED


def test_once_every_row_is_deleted_nothing_of_them_is_left() -> None:
    rng = np.random.default_rng(2)
    X, y = rng.normal(size=(6, 2)), rng.normal(size=6)
    model = LinearModel().fit(X, y)
    model.delete(["1", "2", "3", "4", "5"])
    model.delete(["0"])
    for copy in (model, deepcopy(model), pickle.loads(pickle.dumps(model))):  # noqa: S301
        state = _state(copy)
        assert state.solution.live_sums.entries.is_zero()
        assert state.begun.live_sums.entries.is_zero()
        assert not copy.theta.any()
        assert copy.error.value == 0.0
        copy.insert(X[:2], y[:2], ["a", "b"])
        expected = _oracle(X[:2], y[:2], np.ones(2), 1.0, True, False)
        assert _full(copy).tobytes() == expected.tobytes()


def test_copies_hold_the_sums_of_live_rows() -> None:
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(9, 2)), rng.normal(size=9)
    model = LinearModel(fit_intercept=False).fit(X, y)
    model.delete(["0", "4"])
    model.refresh("rebuild")
    rows = Rows(X, y[:, np.newaxis], np.ones(9)).take(np.array([1, 2, 3, 5, 6, 7, 8]))
    for copy in (deepcopy(model), pickle.loads(pickle.dumps(model))):  # noqa: S301
        state = _state(copy)
        assert in_fractions(state.solution.sums) == sums(rows)
        assert in_fractions(state.begun.sums) == sums(rows)
        assert _full(copy).tobytes() == _full(model).tobytes()


def test_rows_without_weight_come_and_go_with_others() -> None:
    rng = np.random.default_rng(4)
    X, y, weight = rng.normal(size=(9, 2)), rng.normal(size=9), np.ones(9)
    weight[3] = 0.0
    model = LinearModel().fit(X, y, sample_weight=weight)
    model.delete(["3", "4"], method="exact")
    model.insert(X[:2], y[:2], ["a", "b"], np.array([0.0, 2.0]), method="exact")
    model.correct(X[2:4], y[2:4], ["a", "b"], np.array([3.0, 0.0]), method="exact")
    live = [0, 1, 2, 5, 6, 7, 8]
    expected = _oracle(
        np.vstack([X[live], X[2:3]]),
        np.append(y[live], y[2]),
        np.append(np.ones(7), 3.0),
        1.0,
        True,
        False,
    )
    assert _full(model).tobytes() == expected.tobytes()


def test_a_model_with_more_coefficients_than_it_rounds_is_another() -> None:
    rng = np.random.default_rng(5)
    X, y = rng.normal(size=(9, 3)), rng.normal(size=9)
    assert isinstance(LinearModel(rounded_features=4).fit(X, y)._fitted, FittedLinear)
    model = LinearModel(rounded_features=3).fit(X, y)  # the intercept counts
    assert not isinstance(model._fitted, FittedLinear)
    assert model.error.kind is ErrorKind.EXACT


@pytest.mark.parametrize(
    ("X", "weight", "which"),
    [
        ([[1e-300], [1.0], [1e30], [1.0]], None, "row 'a': its number in column '0' differs"),
        ([[1.0], [2.0], [3.0], [4.0]], [1.0, 1.0, 1e-300, 1e30], "row 'c': its weight differs"),
        ([[1.0], [1.0], [3.0], [5e-324]], None, "row 'd': its number in column '0' differs"),
    ],
)
def test_numbers_that_cannot_be_summed_are_refused_by_row_and_column(
    X: list[list[float]], weight: list[float] | None, which: str
) -> None:
    with pytest.raises(InvalidData, match=which) as caught:
        LinearModel().fit(X, np.ones(4), ids=list("abcd"), sample_weight=weight)
    assert "\n" not in str(caught.value)
    assert "2^1003" in str(caught.value)


def test_a_new_row_is_refused_by_its_name_also_after_rows_without_a_weight() -> None:
    model = LinearModel().fit(np.full((4, 2), 1e-155), 1e-100 * np.arange(4.0))
    new = np.array([[1e150, 1e-170], [1.0, 1.0], [1e-170, 1e150]])
    with pytest.raises(InvalidData, match="row 'z': its number in column '1' differs"):
        model.insert(new, np.ones(3), ["x", "y", "z"], sample_weight=[0.0, 1.0, 1.0])
    assert model.live_ids == ("0", "1", "2", "3")


def test_a_refused_change_changes_nothing() -> None:
    rng = np.random.default_rng(6)
    X, y = rng.normal(size=(9, 2)), rng.normal(size=9)
    model = LinearModel().fit(X, y)
    before = _full(model).tobytes()
    for row in ([1e154, 1.0], [1e-320, 1.0]):
        with pytest.raises(LetheError) as caught:
            model.insert(np.array([row]), np.ones(1), ["new"], method="exact")
        assert "\n" not in str(caught.value)
        assert _full(model).tobytes() == before
        assert len(_state(model).members) == 9
