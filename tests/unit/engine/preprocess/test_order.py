"""Medians, modes, extremes and quartiles: windows, and models that are made of these."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler

from lethe import LinearModel, LogisticModel
from lethe.engine.errors import InvalidData, LetheError, StatisticsMoved
from lethe.engine.fit.objective import Kind
from lethe.engine.preprocess.error import proved_error
from lethe.engine.preprocess.input.columns import Numeric
from lethe.engine.preprocess.transformation import order
from lethe.engine.preprocess.transformation.order import Filled, Order, Window
from tests.proof.bounds.pipelines import Truth

QUANTILES = (0.0, 0.25, 0.5, 0.75, 1.0)

numbers = st.lists(st.integers(-6, 6).map(float), min_size=1, max_size=40)


@given(numbers, numbers, st.data())
@settings(max_examples=200, deadline=None)
def test_a_window_gives_the_quantiles_of_what_came_and_went(
    first: list[float], more: list[float], data: st.DataObject
) -> None:
    q = data.draw(st.sampled_from(QUANTILES))
    fill, times = data.draw(st.integers(-7, 7)), data.draw(st.integers(0, 5))
    reach = data.draw(st.integers(1, 4))
    middle = float(np.quantile(first, q))
    window = Window.of(np.array(first)).narrowed(middle, middle, reach)
    assert len(window) == len(first)
    live = [*first, *more]
    gone = data.draw(st.lists(st.sampled_from(range(len(live))), unique=True, max_size=20))
    window = window.changed(np.array(more), 1).changed(np.array([live[i] for i in gone]), -1)
    live = [value for i, value in enumerate(live) if i not in gone]
    assert len(window) == len(live)
    filled = [*live, *[fill] * times]
    if not filled:
        return
    try:
        found = window.quantile(q, Filled(float(fill), times))
    except StatisticsMoved:  # as long as it is in the window it is found
        low, high = window.interval
        ends = np.sort(filled)[[int((len(filled) - 1) * q), -(int(-(len(filled) - 1) * q // 1))]]
        assert ends.min() < low or ends.max() > high
        return
    assert found == pytest.approx(np.quantile(filled, q), rel=1e-15, abs=1e-15)


def test_changes_of_a_window_may_come_in_any_order() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=3000)
    window = Window.of(values).narrowed(0.0, 0.0, 16)
    parts = [(rng.normal(size=50), 1), (values[:700], -1), (rng.normal(size=80), 1)]
    one, two = window, window
    for part in parts:
        one = one.changed(*part)
    for part in reversed(parts):
        two = two.changed(*part)
    np.testing.assert_array_equal(one.values, two.values)
    np.testing.assert_array_equal(one.counts, two.counts)
    assert (one.below, one.above) == (two.below, two.above)


def test_a_median_that_is_left_is_said_to_be() -> None:
    values = np.arange(1000.0)
    window = Window.of(values).narrowed(500.0, 500.0, 20)
    assert window.changed(values[:38], -1).quantile(0.5) == 518.5
    with pytest.raises(StatisticsMoved):
        window.changed(values[:60], -1).quantile(0.5)


def test_the_most_frequent_of_too_many_values_is_refused() -> None:
    values = np.arange(float(order.MOST_VALUES + 1))
    with pytest.raises(InvalidData, match="1025 values or more, and the most frequent one"):
        Order(Numeric("most_frequent"), [Window.of(values)]).narrowed(0, 0.0)
    rows = {"x": [*values, None]}
    with pytest.raises(InvalidData, match="column 'x' has 1025 values or more"):
        LogisticModel(preprocess={"x": Numeric("most_frequent")}).fit(
            rows, np.arange(len(values) + 1) % 2
        )


SCALERS: dict[str, Any] = {
    "deviation": StandardScaler(),
    "range": MinMaxScaler(),
    "other range": MinMaxScaler((-1, 3)),
    "largest": MaxAbsScaler(),
    "quartiles": RobustScaler(),
    "none": None,
}
CASES = [
    (strategy, scaler)
    for strategy in ("mean", "median", "most_frequent", None)
    for scaler in SCALERS
    if (strategy, scaler) not in {(None, "none"), (None, "deviation"), ("mean", "none")}
]


def table(n: int, rng: np.random.Generator, *, gaps: bool) -> pd.DataFrame:
    """Return numbers of three kinds: far from 0, heavy-tailed, and few that repeat."""
    frame = pd.DataFrame(
        {
            "far": 1000.0 + rng.normal(size=n),
            "tail": rng.exponential(size=n) ** 2,
            "few": rng.integers(0, 6, n).astype(float),
        }
    )
    return frame.mask(rng.random(frame.shape) < 0.15) if gaps else frame


class Pair:
    """A model made from a pipeline, and the pipeline on the rows that are live."""

    def __init__(
        self,
        strategy: str | None,
        scaler: Any,
        final: Any,
        n: int = 200,
        *,
        scaler_first: bool = False,
    ) -> None:
        self.rng, self.gaps = np.random.default_rng(3), strategy is not None
        self.logistic = isinstance(final, LogisticRegression)
        self.X, self.y = self.rows(n)
        others = {"most_frequent": "median"}.get(str(strategy), strategy)  # of too many values
        each = {"far": others, "tail": others, "few": strategy}
        turn = -1 if scaler_first else 1
        parts = [
            (make_pipeline(*[*_imputer(one), *([scaler] if scaler else [])][::turn]), [name])
            for name, one in each.items()
        ]
        self.pipeline = make_pipeline(make_column_transformer(*parts), final)
        self.pipeline.fit(self.X, self.y)
        make: Any = LogisticModel if self.logistic else LinearModel
        self.model = make.from_sklearn(self.pipeline, self.X, self.y)
        self.live = {str(i): i for i in range(n)}

    def rows(self, n: int) -> tuple[pd.DataFrame, np.ndarray]:
        X = table(n, self.rng, gaps=self.gaps)
        y = (X.fillna(1.0).to_numpy() @ [1.0, 0.5, -1.0]) - 998.0 + self.rng.normal(size=n)
        return X, (y > 0).astype(int) if self.logistic else y

    def delete(self, names: list[str]) -> None:
        self.model.delete(names, method="exact")
        self.live = {name: place for name, place in self.live.items() if name not in names}

    def add(self, op: str, names: list[str]) -> None:
        X, y = self.rows(len(names))
        getattr(self.model, op)(X, y, names, method="exact")
        places = range(len(self.y), len(self.y) + len(y))
        self.X, self.y = pd.concat([self.X, X], ignore_index=True), np.append(self.y, y)
        self.live |= dict(zip(names, places, strict=True))

    def check_changes(self) -> None:
        """Delete the ends of columns, insert, correct, and move what is most frequent; compare."""
        self.check()
        self.delete(self.extreme("tail", 3, largest=True))  # the largest value of all
        self.delete(self.extreme("far", 4, largest=False))
        self.add("insert", [f"new-{i}" for i in range(5)])
        self.add("correct", list(self.live)[:4])
        self.check()
        for _ in range(6):
            self.delete(self.extreme("few", 9, largest=False))  # the mode and the median move
        self.check()

    def extreme(self, column: str, n: int, *, largest: bool) -> list[str]:
        """Return the live rows with the least or the largest values of a column."""
        values = self.X[column].to_numpy()[list(self.live.values())]
        order_of = np.argsort(np.where(np.isnan(values), np.inf, values * (1 - 2 * largest)))
        return [list(self.live)[i] for i in order_of[:n]]

    def refit(self) -> Pipeline:
        places = list(self.live.values())
        return clone(self.pipeline).fit(self.X.iloc[places], self.y[places])

    def proved(self) -> float | None:
        """Return the bound of the error, which the service publishes."""
        state = self.model.prepared
        return proved_error(
            state.base, state.generation, state.stream, state.answer, state.units
        ).bound

    def check(self) -> None:
        refit, places = self.refit(), list(self.live.values())
        X = self.X.iloc[places]
        truth = np.append(np.ravel(refit[-1].coef_), refit[-1].intercept_)
        ours = np.append(np.ravel(self.model.theta), np.ravel(self.model.intercept))
        np.testing.assert_allclose(
            self.model.prepared.features(X), refit[:-1].transform(X), rtol=1e-9, atol=1e-9
        )
        off = np.linalg.norm(ours - truth)
        if self.logistic:
            bound = self.proved()
            assert bound is None or off <= bound + 1e-9 * np.linalg.norm(truth)  # as it is fitted
            self.model.refresh("rebuild")
            ours = np.append(np.ravel(self.model.theta), np.ravel(self.model.intercept))
        else:
            assert off <= self.model.error.bound + 1e-12 * np.linalg.norm(truth)
        np.testing.assert_allclose(ours, truth, rtol=1e-8, atol=1e-9 * np.abs(truth).max())
        there = refit.predict(X)
        np.testing.assert_allclose(self.model.to_sklearn().predict(X), there, rtol=1e-9)


def _imputer(strategy: str | None) -> list[Any]:
    return [] if strategy is None else [SimpleImputer(strategy=strategy)]


def _final(kind: str) -> Any:
    if kind == "linear":
        return Ridge(alpha=2.0, solver="cholesky")
    return LogisticRegression(C=0.5, tol=1e-12, solver="newton-cholesky", max_iter=1000)


@pytest.mark.parametrize("kind", ["linear", "logistic"])
@pytest.mark.parametrize(("strategy", "scaler"), CASES)
def test_a_pipeline_of_order_statistics_forgets_rows(
    strategy: str | None, scaler: str, kind: str
) -> None:
    pair = Pair(strategy, SCALERS[scaler], _final(kind))
    pair.check_changes()


@pytest.mark.parametrize("scaler", ["deviation", "range", "quartiles"])
def test_the_error_of_a_logistic_model_is_bounded(scaler: str) -> None:
    pair = Pair("median", SCALERS[scaler], _final("logistic"), 1500)
    pair.delete(pair.extreme("far", 2, largest=False))
    pair.add("insert", ["new-0", "new-1"])
    assert pair.proved() is not None
    pair.check()


@pytest.mark.parametrize("scaler", ["range", "largest", "quartiles"])
def test_a_window_that_is_left_is_made_again_by_a_rebuild(
    scaler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(order, "REACH", 4)
    pair = Pair("median", SCALERS[scaler], _final("linear"))
    number = pair.model.prepared.generation.number
    for _ in range(12):
        pair.delete(pair.extreme("tail", 2, largest=False))
        pair.delete(pair.extreme("far", 2, largest=True))
    assert pair.model.prepared.generation.number > number
    pair.check()


def test_a_quarter_of_equal_values_is_a_scale_of_one() -> None:
    """RobustScaler divides by 1 where the quartiles are equal: the column is no constant for it."""
    n = 100
    X = pd.DataFrame({"x": np.where(np.arange(n) < 90, 0.0, np.arange(n)), "z": np.arange(n) % 7.0})
    y = X["x"].to_numpy() * 0.1 + np.sin(np.arange(n))
    pipeline = make_pipeline(RobustScaler(), Ridge(solver="cholesky")).fit(X, y)
    model = LinearModel.from_sklearn(pipeline, X, y)
    out = [str(i) for i in range(0, 89, 3)]
    model.delete(out, method="exact")
    rest = np.setdiff1d(np.arange(n), np.arange(0, 89, 3))
    refit = clone(pipeline).fit(X.iloc[rest], y[rest])
    np.testing.assert_allclose(np.ravel(model.theta), refit[-1].coef_, rtol=1e-9)
    model.delete([str(i) for i in range(1, 80) if str(i) not in out], method="exact")
    rest = np.setdiff1d(rest, np.arange(1, 80))
    refit = clone(pipeline).fit(X.iloc[rest], y[rest])
    np.testing.assert_allclose(np.ravel(model.theta), refit[-1].coef_, rtol=1e-9)


@pytest.mark.parametrize(
    ("scaler", "message"),
    [
        (RobustScaler(quantile_range=(10, 90)), r"quantile_range=\(10, 90\) is not"),
        (RobustScaler(with_centering=False), "with_centering=False leaves out a half"),
        (MinMaxScaler(clip=True), "clip=True cuts off"),
    ],
)
def test_settings_that_no_column_has_are_refused(scaler: Any, message: str) -> None:
    X = table(30, np.random.default_rng(0), gaps=False)
    pipeline = make_pipeline(scaler, Ridge()).fit(X, X["far"])
    with pytest.raises(InvalidData, match=message):
        LinearModel.from_sklearn(pipeline, X, X["far"].to_numpy())


@pytest.mark.parametrize("given_range", [(1, 0), (0,), (0, "1"), (0.0, float("nan"))])
def test_a_range_is_two_numbers(given_range: Any) -> None:
    with pytest.raises(InvalidData, match="must be two numbers, the lower one first"):
        Numeric(standardise=given_range)


@pytest.mark.parametrize("strategy", ["mean", "median", "most_frequent"])
def test_a_plain_pipeline_takes_the_missing_values_that_the_given_one_takes(strategy: str) -> None:
    rng = np.random.default_rng(4)
    X = pd.DataFrame({"whole": pd.array(rng.integers(0, 9, 60), dtype="Int64")})
    X.loc[::7, "whole"] = pd.NA
    y = rng.normal(size=60)
    fitted = make_pipeline(SimpleImputer(strategy=strategy), RobustScaler(), Ridge()).fit(X, y)
    model = LinearModel.from_sklearn(fitted, X, y)
    plain = model.to_sklearn()
    assert LinearModel.from_sklearn(plain, X, y).preprocess == model.preprocess
    listed = [None if one is pd.NA else float(one) for one in X["whole"]]
    for table in (X, pd.DataFrame({"whole": np.array(listed, dtype=object)})):
        np.testing.assert_allclose(plain.predict(table), fitted.predict(X), rtol=1e-12)


@pytest.mark.parametrize("near", [7.0, 1000.0])
def test_a_mean_that_is_a_quartile_up_to_rounding_has_a_bound_above_the_truth(near: float) -> None:
    """RobustScaler then divides by what rounding leaves of 0, or by 1, and nothing tells which."""
    judged = 0
    columns = {"x": Numeric(standardise="robust"), "z": Numeric()}
    for seed in range(40):
        rng = np.random.default_rng(seed)
        far = near * rng.normal(size=3)
        x = [*[near] * 7, *(near + far), *(near - far), *[None] * 12]
        z = rng.normal(size=len(x))
        rows = {"x": np.array(x, dtype=object), "z": z.astype(object)}
        y = z + rng.normal(size=len(x))
        truth = Truth(columns, 1.0, rows, y, kind=Kind.LINEAR)
        try:
            model = LinearModel(preprocess=columns, rounded_features=0).fit(rows, y)
        except LetheError:  # what is as large as that cannot be computed with
            continue
        with np.errstate(all="ignore"):
            states = list(truth.judge(model, list(range(len(x))), seed, 0, "fit"))
        assert [state for state in states if not state.excess <= 0.0] == []
        judged += len(states)
    assert judged > 10
