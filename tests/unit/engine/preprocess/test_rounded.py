"""Linear pipelines to the last bit, against the pipeline in 500 decimal digits."""

from __future__ import annotations

from copy import deepcopy
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from flint import arb

from lethe import LinearModel
from lethe.engine.error.estimate import ErrorKind
from lethe.engine.errors import InvalidData
from lethe.engine.preprocess.input.columns import (
    Columns,
    Numeric,
    OneHot,
    Ordinal,
    TargetEncode,
    passthrough,
)
from lethe.engine.preprocess.library.rounded import RoundedPipeline
from lethe.engine.preprocess.rounded.minimiser import _Equations, _rounded
from lethe.engine.preprocess.rounded.statistics import Whole
from tests.support.pipeline_in_decimals import minimiser
from tests.support.pipelines import EVERY_KIND, Rows, draw_rows, draw_target, joined


def taken(rows: Any, places: Any) -> Rows:
    return {name: np.asarray(values, dtype=object)[places] for name, values in rows.items()}


class Exact:
    """A model of a table, and the rows that are live."""

    def __init__(
        self, columns: Columns, rows: Any, y: Any, weight: Any = None, **options: Any
    ) -> None:
        self.columns, self.rows, self.y = columns, rows, np.asarray(y, dtype=np.float64)
        self.weight = np.ones(len(self.y)) if weight is None else weight
        self.options = options
        self.model = LinearModel(preprocess=columns, **options)
        self.model.fit(rows, self.y, sample_weight=self.weight)
        self.live = {str(i): i for i in range(len(self.y))}

    def delete(self, *ids: str, method: str = "exact") -> None:
        self.model.delete(ids, method=method)
        for name in ids:
            del self.live[name]

    def change(self, rows: Rows, y: Any, ids: list[str], weight: Any = None) -> None:
        weight = np.ones(len(y)) if weight is None else weight
        change = self.model.correct if ids[0] in self.live else self.model.insert
        change(rows, y, ids, sample_weight=weight, method="exact")
        start = len(self.y)
        self.rows = joined(self.rows, rows)
        self.y, self.weight = np.concatenate([self.y, y]), np.append(self.weight, weight)
        self.live |= {name: start + i for i, name in enumerate(ids)}

    def expected(self) -> np.ndarray:
        places = list(self.live.values())
        options: dict[str, Any] = {"ridge": self.options.get("ridge", 1.0)}
        options["intercept"] = self.options.get("fit_intercept", True)
        options["penalised"] = self.options.get("penalise_intercept", False)
        rows = taken(self.rows, places)
        return minimiser(self.columns, rows, self.y[places], self.weight[places], **options)

    def published(self) -> np.ndarray:
        """Return the parameters without those of categories that no live row has."""
        state: Any = self.model._state
        theta: np.ndarray = state.published
        kept = np.ones(len(theta), dtype=np.bool_)
        kept[: len(state.present)] = (state.present > 0) & ~state.left_out
        return theta[kept]

    def holds(self) -> bool:
        return (
            self.model.error.kind is ErrorKind.ROUNDED
            and self.published().tobytes() == self.expected().tobytes()
        )


def every_kind(n: int, seed: int, **options: Any) -> Exact:
    rng = np.random.default_rng(seed)
    rows = draw_rows(EVERY_KIND, n, rng)
    return Exact(EVERY_KIND, rows, draw_target(EVERY_KIND, rows, rng), **options)


@pytest.mark.parametrize("seed", range(3))
def test_every_kind_of_column_after_deletions_inserts_and_corrections(seed: int) -> None:
    exact, rng = every_kind(60, seed), np.random.default_rng(100 + seed)
    assert exact.holds()
    for number in range(6):
        fresh = draw_rows(EVERY_KIND, 3, rng)
        y = draw_target(EVERY_KIND, fresh, rng)
        if number % 3 == 0:
            exact.delete(*list(exact.live)[:4])
        elif number % 3 == 1:
            exact.change(fresh, y, [f"new{number}-{i}" for i in range(3)])
        else:
            exact.change(fresh, y, list(exact.live)[5:8])
        assert exact.holds()


@pytest.mark.parametrize("ridge", [1e-6, 3.0])
def test_every_kind_of_column_with_a_penalised_intercept(ridge: float) -> None:
    exact, rng = every_kind(60, 9, penalise_intercept=True, ridge=ridge), np.random.default_rng(19)
    assert exact.holds()
    exact.delete(*list(exact.live)[:4])
    assert exact.holds()
    fresh = draw_rows(EVERY_KIND, 3, rng)
    exact.change(fresh, draw_target(EVERY_KIND, fresh, rng), [f"new{i}" for i in range(3)])
    assert exact.holds()


def test_halves_of_a_scaler_and_constant_columns_with_a_penalised_intercept() -> None:
    rng = np.random.default_rng(20)
    columns: Columns = {
        "c": Numeric(standardise="centre"), "s": Numeric(standardise="scale"),
        "h": OneHot(standardise=True), "g": OneHot(standardise="scale"), "one": Numeric(),
        "same": Numeric(standardise="scale"), "mean": Numeric(standardise="centre"),
    }  # fmt: skip
    rows = draw_rows(columns, 40, rng, missing=0.0)
    rows |= {name: np.full(40, 0.1, dtype=object) for name in ("one", "same", "mean")}
    rows["one"][0] = 7.0
    exact = Exact(columns, rows, 5.0 + rng.normal(size=40), penalise_intercept=True, ridge=0.3)
    assert exact.holds()
    exact.delete(*(str(i) for i in range(8)))  # what is left of "one" is constant
    assert exact.holds()
    assert [exact.model.theta[i] == 0 for i in (-3, -2, -1)] == [True, False, True]


def test_the_same_bytes_in_any_order_and_as_from_a_fresh_fit() -> None:
    one, other = every_kind(50, 7), every_kind(50, 7)
    one.delete(*(str(i) for i in range(10)))
    for i in reversed(range(10)):
        other.delete(str(i))
    fresh = Exact(EVERY_KIND, taken(one.rows, slice(10, None)), one.y[10:])
    assert one.published().tobytes() == other.published().tobytes() == fresh.published().tobytes()


def test_weights_enter_the_last_step_alone_also_those_that_come_later() -> None:
    rng = np.random.default_rng(3)
    columns: Columns = {"x": Numeric(), "c": OneHot(), "t": TargetEncode(standardise=True)}
    rows = draw_rows(columns, 40, rng)
    y = draw_target(columns, rows, rng)
    plain = Exact(columns, rows, y)
    fresh = draw_rows(columns, 2, rng)
    plain.change(fresh, draw_target(columns, fresh, rng), ["a", "b"], np.array([0.25, 3e5]))
    assert plain.holds()
    plain.delete("a", "1")
    assert plain.holds()
    weighted = Exact(columns, rows, y, rng.uniform(1e-8, 1e8, 40))
    weighted.delete("0", "5")
    assert weighted.holds()
    some = Exact(columns, rows, y, np.where(np.arange(40) % 5 == 0, 0.0, 1.0))  # 0: still a row
    some.delete("0", "1")
    assert some.holds()


@pytest.mark.parametrize("options", [{"fit_intercept": False}, {"penalise_intercept": True}])
def test_columns_that_are_not_standardised_with_and_without_an_intercept(options: Any) -> None:
    rng = np.random.default_rng(4)
    columns: Columns = {
        "x": Numeric(standardise=False), "o": Ordinal(), "c": TargetEncode(2.0), "h": OneHot()
    }  # fmt: skip
    rows = draw_rows(columns, 40, rng, missing=0.3)
    exact = Exact(columns, rows, draw_target(columns, rows, rng), ridge=0.3, **options)
    exact.delete(*(str(i) for i in range(8)))
    assert exact.holds()


def test_several_targets() -> None:
    rng = np.random.default_rng(5)
    columns: Columns = {"x": Numeric(), "c": OneHot()}
    rows = draw_rows(columns, 30, rng)
    exact = Exact(columns, rows, rng.normal(size=(30, 3)))
    exact.delete("3", "4")
    assert exact.holds()


SIZES = [1e-300, 1e-170, 1e-20, 1e20, 1e160, 1e300]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("standardise", [True, False])
def test_numbers_whose_squares_float64_does_not_have(size: float, standardise: bool) -> None:
    rows = {"a": size * np.sin(np.arange(30)), "b": np.arange(30.0) % 7}
    exact = Exact({"a": Numeric(standardise=standardise), "b": Numeric()}, rows, rows["b"] ** 2)
    exact.delete("0", "1")
    assert exact.holds()


@pytest.mark.parametrize("size", SIZES[1:-1])
def test_encodings_of_targets_whose_squares_float64_does_not_have(size: float) -> None:
    rng = np.random.default_rng(6)
    rows = {"t": np.array(list("uvw") * 10, dtype=object), "b": np.arange(30.0) % 7}
    columns: Columns = {"t": TargetEncode(standardise=True), "b": Numeric()}
    exact = Exact(columns, rows, size * rng.normal(size=30))
    exact.delete("0", "1")
    assert exact.holds()


def test_a_number_a_million_times_too_long_leaves_no_trace() -> None:
    exact = every_kind(50, 8)
    expected = exact.published()
    before = taken(exact.rows, [4])
    wrong = {**before, "age": np.array([5e7]), "weight": np.array([-3e8])}
    for rows in (wrong, before):
        exact.change(rows, exact.y[[4]], ["4"])
        assert exact.holds()
    assert exact.published().tobytes() == expected.tobytes()


def test_a_parameter_of_0_is_0() -> None:
    x = np.array([-1.0, 1.0, -1.0, 1.0, 3.0])
    orthogonal = np.array([-1.0, -1.0, 1.0, 1.0, 0.5])
    exact = Exact({"x": Numeric(), "z": passthrough()}, {"x": x, "z": orthogonal}, 7.0 + 2.0 * x)
    exact.delete("4")
    assert exact.model.theta[1] == 0.0
    assert exact.holds()
    constant = Exact({"x": Numeric()}, {"x": x}, np.full(5, 0.1))
    assert constant.model.theta[0] == 0.0
    assert constant.model.intercept == 0.1


def test_neighbouring_floats_are_standardised_by_all_their_digits() -> None:
    steps = np.random.default_rng(0).integers(0, 3000, 30)
    exact = Exact({"x": Numeric()}, {"x": 1e8 + np.spacing(1e8) * steps}, steps % 11)
    exact.delete("3")
    assert exact.holds()


def test_a_column_that_becomes_constant_or_empty_has_weight_0() -> None:
    rows = {"x": np.array([1.0, 2.0, 4.0, *[None] * 17], dtype=object), "z": np.arange(20.0) % 7}
    exact = Exact({"x": Numeric(), "z": Numeric()}, rows, np.arange(20.0))
    for name in ("0", "1", "2"):
        exact.delete(name)
        assert exact.holds()
    assert exact.model.theta[0] == 0.0
    exact.change(taken(rows, [1, 2]), np.array([1.0, 5.0]), ["a", "b"])
    assert exact.holds()


def test_rows_that_are_all_deleted_may_come_again() -> None:
    exact = every_kind(20, 9)
    rows, y = exact.rows, exact.y
    exact.delete(*list(exact.live))
    assert not exact.model.theta.any()
    exact.change(rows, y, [f"n{i}" for i in range(20)])
    assert exact.holds()


def test_refreshes_leave_the_bytes_as_they_are_and_end_a_projection() -> None:
    exact = every_kind(60, 10)
    exact.delete("1", "2", method="pru")
    assert exact.model.error.kind is not ErrorKind.ROUNDED
    for size in ("complete", "polish", "compact", "rebuild"):
        exact.model.refresh(size)
        assert exact.holds()
    exact.delete("3", method="influence")
    exact.model.refresh("rebuild")
    assert exact.holds()


def test_a_copy_goes_on() -> None:
    exact = every_kind(40, 11)
    exact.delete("0")
    exact.model = deepcopy(exact.model)
    exact.delete("1")
    assert exact.holds()


def test_a_table_in_which_nothing_is_left_to_learn_from_has_parameters_of_0() -> None:
    columns: Columns = {"x": passthrough()}
    exact = Exact(columns, {"x": [0.0, 0.0, 3.0]}, [1.0, 2.0, 3.0], fit_intercept=False)
    exact.delete("2", method="influence")
    exact.model.refresh("compact")
    assert exact.model.theta.tolist() == [0.0]
    exact.delete("1", method="influence")
    assert exact.model.theta.tolist() == [0.0]
    assert exact.holds()


def test_a_half_way_number_is_rounded_to_the_even_one() -> None:
    columns: Columns = {"x": passthrough(), "z": passthrough()}
    rows = {"x": [1.0, 0.0, 1.0], "z": [0.0, 1.0, 1.0]}
    model = LinearModel(1.0, preprocess=columns, fit_intercept=False)
    model.fit(rows, [0.75, 0.25 - 2.0**-54, 3.0 * 2.0**-55])  # 1/4 + 2^-55 and 0
    assert model.error.kind is ErrorKind.ROUNDED
    assert model.theta.tolist() == [0.25, 0.0]
    # the mean of four targets, and coefficients of roots beside it
    draw = np.random.default_rng(16)
    for _ in range(20):
        y = 77.0 + draw.random(4)
        exact = Exact({"x": Numeric(), "t": Ordinal()}, {"x": draw.random(4), "t": list("abab")}, y)
        only = Exact({"x": Numeric()}, {"x": draw.random(4)}, y)
        assert only.model.intercept == float(sum(map(Fraction, y.tolist())) / 4)
        assert only.holds()
        assert exact.holds()


def test_fractions_give_what_balls_give() -> None:
    exact = every_kind(30, 14)
    state = exact.model._state
    assert isinstance(state, RoundedPipeline)
    pipeline = state.pipeline
    equations = _Equations(pipeline.raw, pipeline.live, Whole(pipeline.sums), exact=True)
    assert equations.rounded().tobytes() == state.published.tobytes()


def test_predictions_are_those_of_the_pipeline_of_the_live_rows() -> None:
    exact = every_kind(80, 12)
    exact.delete(*(str(i) for i in range(20)))
    rows = taken(exact.rows, slice(20, None))
    fresh = LinearModel(preprocess=EVERY_KIND).fit(rows, exact.y[20:])
    assert exact.model.predict(rows).tobytes() == fresh.predict(rows).tobytes()


def test_statistics_are_rounded_once() -> None:
    """Means, deviations and encodings: what versions carry, and predictions are made with."""
    draw = np.random.default_rng(13)
    x = [*(1e8 + draw.normal(size=23)).tolist(), None]
    t, y = list("abc" * 8), draw.normal(size=24)
    columns: Columns = {"x": Numeric(), "t": TargetEncode(2.0), "auto": TargetEncode()}
    exact = Exact(columns, {"x": np.array(x, dtype=object), "t": t, "auto": t}, y)
    state = exact.model._state
    assert isinstance(state, RoundedPipeline)
    live = state.pipeline.statistics()
    known = [Fraction(v) for v in x if v is not None]
    mean = sum(known, Fraction(0)) / len(known)
    squares = sum(((v - mean) ** 2 for v in known), Fraction(0)) / len(x)  # one is the mean itself
    with localcontext() as context:
        context.prec = 60
        deviation = (Decimal(squares.numerator) / Decimal(squares.denominator)).sqrt()
    assert (live.mean[0], live.imputed[0]) == (float(mean), float(mean))
    assert live.deviation[0] == float(deviation)
    targets = [Fraction(v) for v in y.tolist()]
    overall, variance = moments(targets)
    for i, category in enumerate("abc"):
        own = [v for v, name in zip(targets, t, strict=True) if name == category]
        own_mean, within = moments(own)
        fixed = (sum(own, Fraction(0)) + 2 * overall) / (len(own) + 2)
        share = variance * 8 / (variance * 8 + within)
        assert live.shift[1 + i] == float(fixed)
        assert live.shift[4 + i] == float(overall + share * (own_mean - overall))


def moments(values: list[Fraction]) -> tuple[Fraction, Fraction]:
    mean = sum(values, Fraction(0)) / len(values)
    return mean, sum(((v - mean) ** 2 for v in values), Fraction(0)) / len(values)


def test_a_ball_that_reaches_beyond_float64_is_not_taken_for_a_number_there() -> None:
    assert _rounded([[arb(1e308, 1e308)]]) is None  # with more bits, it may be smaller
    with pytest.raises(InvalidData, match="too large to compute with"):
        _rounded([[arb(1e308) * 10]])
    found = _rounded([[arb(0.1, 1e-30)]])
    assert found is not None
    assert (found.rounded, found.theta[0, 0]) == (True, 0.1)


def test_a_number_that_cannot_be_summed_is_refused_and_changes_nothing() -> None:
    exact = Exact({"x": Numeric()}, {"x": 1e-10 * np.arange(5.0)}, np.arange(5.0))
    with pytest.raises(InvalidData, match="row 'a': its number differs too much"):
        exact.model.insert({"x": [1e308]}, [1.0], ["a"], method="exact")
    assert exact.holds()
