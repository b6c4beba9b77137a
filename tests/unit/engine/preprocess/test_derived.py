"""Expressions: their text, their values, and what is refused."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
from sklearn.preprocessing import SplineTransformer

from lethe import LinearModel
from lethe.engine.errors import InvalidData
from lethe.engine.fit.objective import Array
from lethe.engine.preprocess.input.by_name import named_by
from lethe.engine.preprocess.input.columns import Date, Dropped, Numeric, OneHot
from lethe.engine.preprocess.input.derived import (
    FUNCTIONS,
    Above,
    Applied,
    Expression,
    Extrapolation,
    Filled,
    Missing,
    Normalised,
    Product,
    Same,
    Scaled,
    Spline,
    Sum,
    splines,
)
from lethe.engine.preprocess.input.evaluating import evaluated
from lethe.engine.preprocess.input.expression_text import parsed
from lethe.engine.preprocess.input.sources import renamed, sources

EXPRESSIONS: dict[str, Expression] = {
    "age": Same("age"),
    "'monthly income'": Same("monthly income"),
    "'if'": Same("if"),
    "'größe'": Same("größe"),
    "log1p(age)": Applied("age", "log1p"),
    "age**2 * income": Product({"age": 2, "income": 1}),
    "age**0": Product({"age": 0}),
    "exp(age) * income**2": Product({Applied("age", "exp"): 1, "income": 2}),
    "(-2.0 * age)**3": Product({Scaled("age", -2.0): 3}),
    "(2.0 * age) * income": Product({Scaled("age", 2.0): 1, "income": 1}),
    "2.5 * (age * income)": Scaled(Product({"age": 1, "income": 1}), 2.5),
    "3.0 * (0.1 * age)": Scaled(Scaled("age", 0.1), 3),
    "filled(age, -1.0)": Filled("age", -1.0),
    "filled(town, 'it\\'s \"none\"')": Filled("town", 'it\'s "none"'),
    "0.5 * age + -2.0 * income + 3.0": Sum((Scaled("age", 0.5), Scaled("income", -2.0)), 3),
    "age + 1.0": Sum(("age",), 1),
    "(age + income)**2": Product({Sum(("age", "income")): 2}),
    "2.0 * (age + income)": Scaled(Sum(("age", "income")), 2),
    "0.25 * cos(0.1 * age + 6.0)": Scaled(Applied(Sum((Scaled("age", 0.1),), 6), "cos"), 0.25),
    "spline(2, 1, log(age), 0.0, 0.5, 2.0)": Spline(Applied("age", "log"), (0, 0.5, 2), 2, 1),
    "spline('periodic', 2, 1, 'the hour', 0.0, 6.0, 24.0)": Spline(
        "the hour", (0, 6, 24), 2, 1, "periodic"
    ),
    "missing(age)": Missing("age"),
    "above(age, 1e-05)": Above("age", 1e-5),
    "normalised('l2', 1, age, log(income))": Normalised(
        ("age", Applied("income", "log")),
        "l2",
        1,
    ),
}


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_an_expression_is_its_text(text: str) -> None:
    assert str(EXPRESSIONS[text]) == text
    assert parsed(text) == EXPRESSIONS[text]


def test_products_of_products_are_products() -> None:
    nested = Product({Product({"a": 1, "b": 2}): 2, "a": 1})
    assert nested == Product({"a": 3, "b": 4}) == parsed("(a * b**2)**2 * a")
    assert sources(nested) == ("a", "b")


def test_columns_of_an_array_are_given_names() -> None:
    of = Product({Normalised((0, Scaled(2, 2.0)), "l1", 0): 1, Filled(1, 0.0): 2})
    assert str(renamed(of, ["a", "b c", "d"])) == (
        "normalised('l1', 0, a, 2.0 * d) * filled('b c', 0.0)**2"
    )
    columns = {0: Numeric(), "x0 * x1": Numeric(of=Product({0: 1, 1: 1}))}
    assert named_by(columns, ["a", "b"]) == {"a": Numeric(), "a * b": Numeric(of=parsed("a * b"))}


def test_the_values_are_those_of_numpy_and_gaps_stay_gaps() -> None:
    numbers: dict[str, Array] = {"a": np.array([1.0, np.nan, -2.0]), "b": np.array([0.5, 3.0, 4.0])}
    for text, truth in {
        "a**2 * b": [0.5, np.nan, 16.0],
        "log(b)": [-0.6931471805599453, 1.0986122886681098, 1.3862943611198906],
        "filled(a, 7)": [1.0, 7.0, -2.0],
        "missing(a)": [0.0, 1.0, 0.0],
        "above(a, 0)": [1.0, np.nan, 0.0],
        "normalised('max', 0, a, b)": [1.0, np.nan, -0.5],
        "a**0": [1.0, 1.0, 1.0],
        "a + b + 1.0": [2.5, np.nan, 3.0],
        "spline(1, 1, a, -2.0, 0.0, 4.0)": [0.75, np.nan, 0.0],
        "spline('periodic', 1, 0, b, 1.0, 2.0, 3.0)": [0.5, 1.0, 0.0],
    }.items():
        np.testing.assert_array_equal(
            evaluated(parsed(text), lambda name: numbers[str(name)]), truth
        )


def test_sums_of_sums_are_sums() -> None:
    nested = Sum((Sum(("a", "b"), 1.0), "c"), 2.0)
    assert nested == Sum(("a", "b", "c"), 3.0) == parsed("1 + (a + b) + c + 2")
    assert str(renamed(Sum((0, Scaled(1, 2.0)), 1.0), ["a", "b c"])) == "a + 2.0 * 'b c' + 1.0"


SPLINES = [
    (extrapolation, degree)
    for extrapolation in get_args(Extrapolation)
    for degree in (1, 2, 3, 4, 5)
    if (extrapolation, degree) != ("periodic", 5)  # the degree is below the number of knots
]


@pytest.mark.parametrize(("extrapolation", "degree"), SPLINES)
@pytest.mark.parametrize("include_bias", [True, False])
def test_a_spline_is_that_of_scipy(
    extrapolation: Extrapolation, degree: int, include_bias: bool
) -> None:
    knots = np.array([-3.0, -1.0, -0.9, 0.5, 7.0])
    basis = SplineTransformer(
        knots=knots[:, None], degree=degree, extrapolation=extrapolation, include_bias=include_bias
    )
    x = np.r_[
        np.linspace(-9.0, 12.0, 400), knots, np.nextafter(knots, -9), np.nextafter(knots, 9),
        -13.0, 17.0, -1e3, 1e9, -1e12,
    ]  # fmt: skip
    truth = basis.fit(knots[:, None]).transform(x[:, None])
    found = [
        evaluated(Spline("x", tuple(knots), degree, place, extrapolation), lambda _: x)
        for place in range(splines(len(knots), degree, extrapolation) - (not include_bias))
    ]
    scale = np.maximum(np.abs(truth).max(axis=1, keepdims=True), 1.0)  # of a row's values
    np.testing.assert_allclose(np.transpose(found) / scale, truth / scale, atol=1e-14)


@pytest.mark.parametrize("extrapolation", get_args(Extrapolation))
def test_where_nothing_is_given_a_spline_has_no_value(extrapolation: Extrapolation) -> None:
    of = Spline("x", (0.0, 1.0, 3.0), 2, 0, extrapolation)
    assert np.isnan(evaluated(of, lambda _: np.array([np.nan]))).all()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_is_correctly_rounded_and_so_the_same_on_every_machine(name: str) -> None:
    """Against 64 bits: at most half a unit in the last place away, but for what those leave."""
    x = np.random.default_rng(3).normal(0.0, 3.0, 500)
    found = evaluated(Applied("x", name), lambda _: x)
    finite = np.isfinite(found)
    with np.errstate(invalid="ignore"):
        truth = FUNCTIONS[name](x.astype(np.longdouble))[finite]
    ulps = np.abs((found[finite] - truth) / np.spacing(np.abs(found[finite])).astype(np.longdouble))
    assert float(ulps.max(initial=0.0)) <= 0.5 + 2.0**-9


@pytest.mark.parametrize(
    "text",
    [
        "", "1", "a +", "a + True", "1 + 2", "a + 0", "a - b", "a**-1",
        "spline(1, 0, a, 0)", "spline(0, 0, a, 0, 1)", "spline(1, 0, a, 1, 0)",
        "spline(1, 2, a, 0, 1)", "spline(99, 0, a, 0, 1)",
        "spline('error', 1, 0, a, 0, 1)", "spline('periodic', 2, 0, a, 0, 1)",
        "spline('periodic', 1, 1, a, 0, 1)", "spline('periodic')", "spline(a, 1, 0, a, 0, 1)",
        f"spline('periodic', 33, 0, a, {', '.join(map(str, range(50)))})",
        "spline(1, 0, a, b, c)", " + ".join(["a"] * 100_000),
        "a**0.5", "a**99", "__import__('os')", "eval(a, b)",
        "a.b", "lambda: 1", "[a]", "filled(a)", "filled(a, b)", "filled(a, 1e999)",
        "above(a, True)",
        "normalised('l3', 0, a)", "normalised('l2', 2, a)", "log(a, b)", "log(to=a)", "open(a)",
        "a" * 30_000, " * ".join(["a"] * 5_000), "log(" * 50 + "a" + ")" * 50, "'\\z'(a)",
        "a\0", "True",
    ],
)  # fmt: skip
def test_text_that_is_no_expression_is_refused_and_never_run(text: str) -> None:
    with pytest.raises(InvalidData):
        parsed(text)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"a": Numeric(of=Filled("a", "none"))}, "fills in text"),
        ({"a": Numeric(of="log(a)")}, "no expression"),  # type: ignore[arg-type]
        ({"a": OneHot(of=Missing("a"))}, "OneHot takes a column of the table"),
        ({"a": Date(of=Filled("a", 1.0))}, "computed from numbers, not from dates"),
        ({"a": Dropped()}, "every column is Dropped"),
    ],
)
def test_columns_that_cannot_be_computed_so_are_refused(columns: object, message: str) -> None:
    with pytest.raises(InvalidData, match=message):
        LinearModel(preprocess=columns).fit({"a": [1.0, 2.0]}, [1.0, 2.0])  # type: ignore[arg-type]
