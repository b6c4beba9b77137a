"""Scaled columns beside an intercept that is penalised, as liblinear's: the means count, too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import (
    MaxAbsScaler,
    MinMaxScaler,
    OneHotEncoder,
    RobustScaler,
    StandardScaler,
)

from lethe import LinearModel, LogisticModel, PoissonModel, SoftmaxModel
from lethe.engine.errors import InvalidData
from lethe.engine.fit.objective import Array, Kind, norm
from lethe.engine.preprocess.estimate import moved_rows
from lethe.engine.preprocess.input.columns import Columns, Numeric, OneHot, Standardise
from lethe.engine.preprocess.library.fitted import PreparedFit
from lethe.engine.preprocess.published import hessian_moved
from lethe.engine.preprocess.remainder import _floors
from tests.proof.bounds.pipelines import State, Truth

SCALINGS: list[Standardise] = [True, "centre", "scale", (0, 1), (-1, 3), "max-abs", "robust"]
KINDS = [Kind.LINEAR, Kind.LOGISTIC, Kind.POISSON]


class Streamed:
    """A model with a penalised intercept, its rows, and which of them are live."""

    def __init__(self, columns: Columns, kind: Kind, n: int, ridge: float, seed: int = 0) -> None:
        self.rng, self.kind, self.columns = np.random.default_rng(seed), kind, columns
        rows, y = self.drawn(n)
        self.truth = Truth(columns, ridge, rows, y, kind=kind, held=True)
        classes: Any = {Kind.LOGISTIC: LogisticModel, Kind.POISSON: PoissonModel}
        self.model = classes.get(kind, LinearModel)(
            ridge, preprocess=columns, penalise_intercept=True
        )
        if kind is Kind.LINEAR:
            self.model.rounded_features = 0
        self.model.fit(rows, y)
        self.live = {str(i): i for i in range(n)}

    def drawn(self, n: int, far: float = 0.0) -> tuple[dict[Any, np.ndarray], Array]:
        """Return rows whose numbers are ``far`` from the others, in their deviations."""
        a, b = (far + self.rng.normal(size=n) for _ in "ab")
        towns = self.rng.choice(["Bonn", "Kiel", "Ulm"], n, p=[0.5, 0.3, 0.2]).astype(object)
        margin = 1.0 + 0.6 * (a - far) - 0.4 * (b - far) + 0.5 * (towns == "Ulm")
        if self.kind is Kind.LOGISTIC:
            y = (margin + self.rng.logistic(size=n) > 0).astype(np.float64)
        elif self.kind is Kind.POISSON:
            y = self.rng.poisson(np.exp(margin)).astype(np.float64)
        else:
            y = 5.0 + margin + 0.3 * self.rng.normal(size=n)
        rows: dict[Any, np.ndarray] = {"a": (50.0 + 4.0 * a).astype(object), "town": towns}
        rows["b"] = (20.0 * b - 30.0).astype(object)
        rows["b"][self.rng.random(n) < 0.1] = None
        rows["b"][0] = 1.0
        return {name: rows[name] for name in self.columns}, y

    def delete(self, names: list[str]) -> State | None:
        self.model.delete(names, method="exact")
        self.live = {name: place for name, place in self.live.items() if name not in names}
        return self.judged("delete")

    def add(self, how: str, names: list[str], far: float) -> State | None:
        rows, y = self.drawn(len(names), far)
        getattr(self.model, how)(rows, y, names, method="exact")
        start, truth = len(self.truth.y), self.truth
        truth.rows = {name: np.append(truth.rows[name], rows[name]) for name in truth.rows}
        truth.y = np.append(truth.y, y)
        self.live |= {name: start + i for i, name in enumerate(names)}
        return self.judged(how)

    def judged(self, how: str) -> State | None:
        """Return what is published beside the truth; None if there is no bound."""
        found = list(self.truth.judge(self.model, list(self.live.values()), 0, 0, how))
        return found[0] if found else None

    @property
    def state(self) -> PreparedFit:
        state = self.model.prepared
        assert isinstance(state, PreparedFit)
        return state

    def lowest(self, k: int) -> list[str]:
        """Return the live rows with the least of column a."""
        return sorted(self.live, key=lambda name: self.truth.rows["a"][self.live[name]])[:k]


def columns_of(standardise: Standardise) -> Columns:
    hot: Any = standardise if standardise in (True, "centre", "scale") else False
    return {
        "a": Numeric(standardise=standardise),
        "b": Numeric(standardise=standardise),
        "town": OneHot(standardise=hot),
    }


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("standardise", SCALINGS)
def test_it_is_the_refitted_pipeline_within_its_bound_however_far_the_means_move(
    standardise: Standardise, kind: Kind
) -> None:
    streamed = Streamed(columns_of(standardise), kind, 160, ridge=3.0)
    states = [streamed.judged("fit")]
    for step in range(3):
        states += [
            streamed.delete(streamed.lowest(8)),
            streamed.add("insert", [f"new{step}-{i}" for i in range(6)], far=0.5),
            streamed.add("correct", list(streamed.live)[:4], far=-0.7),
        ]
        streamed.model.refresh("rebuild")
        states.append(streamed.judged("rebuild"))
    found = [state for state in states if state is not None]
    assert [state for state in found if not state.excess <= 0.0] == []
    assert len([state for state in found if state.how in ("fit", "rebuild")]) == 4
    for state in found:
        if kind is Kind.LINEAR or state.how in ("fit", "rebuild"):
            assert state.relative < 1e-12
            assert state.relative_bound < 1e-8


@pytest.mark.parametrize("far", [2.0, 9.0])
def test_means_that_move_far_are_followed_by_steps_of_the_generation(far: float) -> None:
    """Where nothing is known but F, the rows and the sums."""
    streamed = Streamed({"a": Numeric(), "b": Numeric()}, Kind.LINEAR, 60, ridge=4.0)
    state = streamed.add("insert", [f"far{i}" for i in range(40)], far=far)
    assert streamed.state.generation.number == 0
    assert norm(streamed.state.answer.live.mean) > 0.5 * far
    for one in (
        state,
        streamed.delete([str(i) for i in range(20)]),
        streamed.add("correct", ["20"], far=40.0),
    ):
        assert one is not None
        assert one.excess <= 0.0
        assert one.relative < 1e-13
        assert one.relative_bound < 1e-9
    assert streamed.state.generation.number == 0


def moved_logistic(ridge: float = 2.0) -> Streamed:
    """Return a model whose means and deviations have moved since its fit."""
    streamed = Streamed(columns_of(True), Kind.LOGISTIC, 300, ridge)
    streamed.add("insert", [f"far{i}" for i in range(12)], far=3.0)
    streamed.delete(streamed.lowest(10))
    assert streamed.state.generation.number == 0
    assert norm(streamed.state.answer.live.mean) > 0.1
    return streamed


def live_hessian(streamed: Streamed) -> tuple[Array, Array, Array]:
    """Return that of the quadratic model in base units, T, and the live rows there; all dense."""
    state = streamed.state
    live = state.members.live
    rows = state.members.rows.take(live)
    X = moved_rows(state.base.layout, state.answer.live, rows.X, state.entries[live])
    s = state.generation.objective.curvature(rows, state.generation.theta_b)
    T = np.diag(X.std(axis=0))
    T[-1] = X.mean(axis=0)
    return X.T @ (s[:, None] * X) + streamed.model.ridge * T.T @ T, T, X


def test_the_share_in_f_is_that_of_the_dense_hessian() -> None:
    streamed = moved_logistic()
    state = streamed.state
    H, _, X = live_hessian(streamed)
    objective, rows = state.generation.objective, state.members.rows.take(state.members.live)
    s = objective.curvature(rows, state.generation.theta_b)
    A = rows.X.T @ (s[:, None] * rows.X) + np.diag(objective.penalty)
    [moved] = state.answer.moved
    product = np.column_stack([moved.product(e[:, None]) for e in np.eye(len(A))])
    np.testing.assert_allclose(A + product, H, rtol=1e-9, atol=1e-9 * np.abs(H).max())
    assert np.abs(product[-1, :-1]).max() > 0.1
    assert np.linalg.eigvalsh(A + product)[0] > 0
    assert X.shape == rows.X.shape


@pytest.mark.parametrize("ridge", [1e-3, 2.0, 30.0])
def test_every_floor_is_below_the_hessian(ridge: float) -> None:
    streamed = moved_logistic(ridge)
    state = streamed.state
    H, T, X = live_hessian(streamed)
    L = np.linalg.cholesky(H)
    reach = np.linalg.norm(np.linalg.solve(L, X.T), axis=0).max()
    longest = np.linalg.norm(np.linalg.inv(L), 2)
    published = np.linalg.norm(T @ np.linalg.inv(L.T), 2)
    floors = _floors(state.base, state.generation, state.stream, state.answer, state.units)
    assert floors
    for floor in floors:
        assert floor.reach >= reach * (1 - 1e-9)
        assert floor.dual(1.0) >= longest * (1 - 1e-9)
        assert floor.published(1.0) >= published * (1 - 1e-9)
    if ridge > 1:
        assert min(floor.published(1.0) for floor in floors) < 3 * published


def test_a_root_of_the_hessian_has_moved_by_no_more_than_is_said() -> None:
    streamed = moved_logistic()
    state = streamed.state
    _, T, X = live_hessian(streamed)
    rows = state.members.rows.take(state.members.live)
    s = state.generation.objective.curvature(rows, state.generation.theta_b)
    root, base = np.sqrt(streamed.model.ridge), np.eye(len(T))
    moved = np.vstack([np.sqrt(s)[:, None] * (X - rows.X), root * (T - base)[-1:]])
    length = np.linalg.norm(moved, 2)
    assert length * (1 - 1e-9) <= hessian_moved(state.answer) < 10 * length


def test_the_last_row_of_a_class_leaves_by_a_step() -> None:
    """A penalised intercept stays finite, so that nothing else is needed."""
    streamed = Streamed({"a": Numeric(), "b": Numeric()}, Kind.LOGISTIC, 80, ridge=5.0)
    zeros = [name for name, place in streamed.live.items() if streamed.truth.y[place] == 0]
    for name in zeros:
        state = streamed.delete([name])
        assert state is None or state.excess <= 0.0
    assert len(set(streamed.truth.y[[*streamed.live.values()]])) == 1
    assert streamed.model.intercept_penalised
    streamed.model.refresh("rebuild")
    state = streamed.judged("rebuild")
    assert state is not None
    assert state.relative < 1e-12
    streamed.add("insert", ["z0", "z1"], far=0.0)


@pytest.mark.parametrize("standardise", [(-1, 3), (0, 1), True, "robust"])
def test_a_column_without_a_value_left_shares_in_the_intercept_where_it_is_not_0(
    standardise: Standardise,
) -> None:
    """scikit-learn's MinMaxScaler((-1, 3)) makes a constant column -1 throughout."""
    rng = np.random.default_rng(4)
    x, z = np.full(40, np.nan), rng.normal(size=40)
    x[:4], y = [1.0, 2.0, 4.0, 3.0], 3.0 + z + 0.1 * rng.normal(size=40)
    rows = {"x": x.astype(object), "z": z.astype(object)}
    rows["x"][4:] = None
    columns = {"x": Numeric(standardise=standardise), "z": Numeric()}
    model = LinearModel(2.0, preprocess=columns, penalise_intercept=True, rounded_features=0).fit(
        rows, y
    )
    truth = Truth(columns, 2.0, rows, y, kind=Kind.LINEAR, held=True)
    for name in "0123":
        model.delete([name], method="exact")
        live = list(range(int(name) + 1, 40))
        [state] = truth.judge(model, live, 0, 0, "delete")
        assert state.excess <= 0.0
        assert state.relative < 1e-12
    assert (model.theta[0] != 0) == (standardise == (-1, 3))


@pytest.mark.parametrize("offset", [0.0, 1e3, 1e6, 1e9])
@pytest.mark.parametrize("standardise", [True, "centre", (0, 1), "max-abs", "robust"])
def test_a_column_far_from_0_has_a_bound_above_the_truth(
    standardise: Standardise, offset: float
) -> None:
    rng = np.random.default_rng(2)
    x, z = offset + rng.normal(size=50), rng.normal(size=50)
    y = 4.0 + (x - offset) + z
    rows = {"x": x.astype(object), "z": z.astype(object)}
    columns = {"x": Numeric(standardise=standardise), "z": Numeric()}
    truth = Truth(columns, 1.0, rows, y, kind=Kind.LINEAR, held=True)
    model = LinearModel(preprocess=columns, penalise_intercept=True, rounded_features=0)
    model.fit({name: values[:40] for name, values in rows.items()}, y[:40])
    model.insert({name: values[40:] for name, values in rows.items()}, y[40:], [*"abcdefghij"])
    model.delete(["0", "1", "2"], method="exact")
    [state] = truth.judge(model, list(range(3, 50)), 0, 0, "delete")
    assert state.excess <= 0.0
    assert state.relative < 1e-13
    assert state.relative_bound < 1e-10


@pytest.mark.parametrize("offset", [1e3, 1e5, 1e7, 1e9])
def test_a_column_far_from_0_that_is_only_divided_has_a_bound_or_is_refused(offset: float) -> None:
    """Its variance is that of squares about 0."""
    rng = np.random.default_rng(3)
    x = offset + rng.normal(size=50)
    rows, y = {"x": x.astype(object)}, 4.0 + (x - offset) + rng.normal(size=50)
    columns = {"x": Numeric(standardise="scale")}
    truth = Truth(columns, 1.0, rows, y, kind=Kind.LINEAR, held=True)
    model = LinearModel(preprocess=columns, penalise_intercept=True, rounded_features=0)
    if offset > 1e6:
        with pytest.raises(InvalidData, match=r"column 'x' .* 1,000,000 deviations from 0"):
            model.fit(rows, y)
        return
    model.fit(rows, y).delete(["0", "1", "2"], method="exact")
    [state] = truth.judge(model, list(range(3, 50)), 0, 0, "delete")
    assert state.excess <= 0.0
    assert state.relative < 1e-15 * offset**2


@pytest.mark.parametrize("offset", [0.0, 1e6, 1e9])
def test_a_softmax_model_has_it_too(offset: float) -> None:
    rng = np.random.default_rng(5)
    x, z = offset + rng.normal(size=90), rng.normal(size=90)
    y = np.digitize(x - offset + 0.5 * rng.normal(size=90), [-0.5, 0.8]).astype(np.float64)
    rows = {"x": x.astype(object), "z": z.astype(object)}
    columns = {"x": Numeric(), "z": Numeric(standardise=(-1, 3))}
    truth = Truth(columns, 1.0, rows, y, kind=Kind.SOFTMAX, classes=3, held=True)
    model = SoftmaxModel(preprocess=columns, penalise_intercept=True).fit(rows, y)
    model.delete(["0", "1", "2"])
    [state] = truth.judge(model, list(range(3, 90)), 0, 0, "delete")
    assert state.excess <= 0.0
    assert state.bound <= 1e-11 or state.bound <= 3 * state.distance


# -- as scikit-learn fits it ---------------------------------------------------------------------

SCALERS: dict[str, Any] = {
    "standard": StandardScaler(),
    "range": MinMaxScaler((-1, 3)),
    "largest": MaxAbsScaler(),
    "quartiles": RobustScaler(),
}


def table(n: int, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Return numbers far from 0, some missing, a town, and three classes of unequal size."""
    rng = np.random.default_rng(seed)
    age, income = 40.0 + 12.0 * rng.normal(size=n), 3000.0 + 900.0 * rng.normal(size=n)
    town = rng.choice(["Ulm", "Bonn", "Kiel"], n, p=[0.5, 0.3, 0.2])
    score = 0.1 * (age - 40.0) + 1e-3 * (income - 3000.0) + (town == "Ulm")
    y = np.digitize(score + rng.normal(size=n), [0.9, 2.2])
    frame = pd.DataFrame({"age": age, "income": income, "town": town})
    frame.loc[rng.random(n) < 0.1, "income"] = np.nan
    return frame, y


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("scaler", SCALERS)
def test_pipelines_that_end_in_liblinear_forget_rows(scaler: str, classes: int) -> None:
    X, labels = table(400, 0)
    y = labels if classes == 3 else (labels > 0).astype(int)
    final: Any = LogisticRegression(solver="liblinear", C=0.05, tol=1e-12, max_iter=100_000)
    numbers = make_pipeline(SimpleImputer(), SCALERS[scaler])
    one_hot = make_pipeline(OneHotEncoder(sparse_output=False), StandardScaler(with_mean=False))
    columns = make_column_transformer((numbers, ["age", "income"]), (one_hot, ["town"]))
    given = make_pipeline(columns, final if classes == 2 else OneVsRestClassifier(final))
    model = LogisticModel.from_sklearn(given.fit(X[:360], y[:360]), X[:360], y[:360])
    assert model.converted_from_ is not None
    assert model.converted_from_.relative < 1e-6
    model.delete([str(i) for i in np.argsort(X["age"][:360])[:25]])
    model.insert(X[360:], y[360:], [f"new{i}" for i in range(40)])
    live = [*np.setdiff1d(np.arange(360), np.argsort(X["age"][:360])[:25]), *range(360, 400)]
    refit: Pipeline = clone(given).fit(X.iloc[live], y[live])
    truth = parameters(refit)
    away = norm(np.vstack([np.atleast_2d(model.theta.T).T, np.atleast_1d(model.intercept)]) - truth)
    assert model.error.bound is None or away <= model.error.bound + 1e-6
    model.refresh("rebuild")
    theta = np.vstack([np.atleast_2d(model.theta.T).T, np.atleast_1d(model.intercept)])
    np.testing.assert_allclose(theta, truth, atol=1e-6)
    np.testing.assert_allclose(
        model.to_sklearn().predict_proba(X), refit.predict_proba(X), atol=1e-6
    )


def parameters(fitted: Pipeline) -> Array:
    """Return coefficients and intercepts, d x C."""
    last = fitted[-1]
    parts = getattr(last, "estimators_", [last])
    coefficients = np.vstack([part.coef_ for part in parts])
    return np.vstack([coefficients.T, np.hstack([part.intercept_ for part in parts])])
