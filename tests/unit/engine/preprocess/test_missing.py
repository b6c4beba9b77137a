"""A missing value is one and the same, however a table spells it: in fits, changes and exports."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from lethe import LinearModel, LogisticModel, Numeric, OneHot, TargetEncode
from lethe.engine.preprocess.input.columns import Column

ROWS = 36
TEXT = [("a", "b", None)[i % 3] for i in range(ROWS)]
WHOLE = [(1, 2, None, 3)[i % 4] for i in range(ROWS)]
NUMBERS = [None if i % 5 == 2 else 1.5 * i for i in range(ROWS)]
TRUTH = [(True, False, None)[i % 3] for i in range(ROWS)]


def filled(values: list[Any], missing: Any) -> list[Any]:
    return [missing if value is None else value for value in values]


Spelling = Callable[[list[Any]], Any]
OF_TEXT: dict[str, Spelling] = {
    "None": lambda v: pd.Series(v, dtype=object),
    "NaN": lambda v: pd.Series(filled(v, math.nan), dtype=object),
    "NA": lambda v: pd.Series(filled(v, pd.NA), dtype=object),
    "str": lambda v: pd.Series(v, dtype="str"),
    "string": lambda v: pd.Series(v, dtype="string"),
    "category": lambda v: pd.Series(v, dtype="category"),
    "Arrow": lambda v: pd.Series(v, dtype=pd.ArrowDtype(pa.string())),
    "a list": lambda v: v,
}
OF_NUMBERS: dict[str, Spelling] = {
    "None": lambda v: pd.Series(v, dtype=object),
    "NaN": lambda v: pd.Series(filled(v, math.nan), dtype=float),
    "NaN among objects": lambda v: pd.Series(filled(v, math.nan), dtype=object),
    "Float64": lambda v: pd.Series(v, dtype="Float64"),
    "Arrow": lambda v: pd.Series(v, dtype=pd.ArrowDtype(pa.float64())),
    "masked": lambda v: np.ma.masked_invalid(np.array(filled(v, math.nan), dtype=float)),
    "a list": lambda v: v,
}
OF_WHOLE: dict[str, Spelling] = {
    **{name: OF_NUMBERS[name] for name in ("None", "NaN", "NaN among objects", "a list")},
    "Int64": lambda v: pd.Series(v, dtype="Int64"),
    "Arrow": lambda v: pd.Series(v, dtype=pd.ArrowDtype(pa.int64())),
}
OF_TRUTH: dict[str, Spelling] = {
    "None": lambda v: pd.Series(v, dtype=object),
    "boolean": lambda v: pd.Series(v, dtype="boolean"),
    "Arrow": lambda v: pd.Series(v, dtype=pd.ArrowDtype(pa.bool_())),
    "a list": lambda v: v,
}
COLUMNS: dict[str, tuple[Column, list[Any], dict[str, Spelling]]] = {
    "one-hot text": (OneHot(unknown="ignore"), TEXT, OF_TEXT),
    "one-hot text, strict": (OneHot(), TEXT, OF_TEXT),
    "target-encoded text": (TargetEncode(smooth=2.0), TEXT, OF_TEXT),
    "one-hot whole numbers": (OneHot(), WHOLE, OF_WHOLE),
    "target-encoded whole numbers": (TargetEncode(smooth=2.0), WHOLE, OF_WHOLE),
    "one-hot truth": (OneHot(), TRUTH, OF_TRUTH),
    "imputed numbers": (Numeric(), NUMBERS, OF_NUMBERS),
}
CASES = [(column, name) for column, (_, _, known) in COLUMNS.items() for name in known]


def table(values: Any, other: Any) -> Any:
    if isinstance(values, (list, np.ma.MaskedArray)):
        return {"c": values, "x": other}
    return pd.DataFrame({"c": values.reset_index(drop=True), "x": other})


def fitted(kind: type[Any], column: str, spelling: str) -> tuple[Any, Any, Any]:
    what, values, known = COLUMNS[column]
    x = np.random.default_rng(1).normal(size=ROWS)
    y = x + np.array([5.0 if v is None else 1.0 + (v == values[0]) for v in values])
    if kind is LogisticModel:
        y = (y > np.median(y)).astype(int)
    X = table(known[spelling](values), x)
    return kind(preprocess={"c": what, "x": Numeric()}).fit(X, y), X, y


@pytest.mark.parametrize("kind", [LinearModel, LogisticModel])
@pytest.mark.parametrize(("column", "spelling"), CASES)
def test_a_fit_does_not_depend_on_how_a_missing_value_is_spelt(
    kind: type[Any], column: str, spelling: str
) -> None:
    model, X, _ = fitted(kind, column, spelling)
    plain, of, _ = fitted(kind, column, "None")
    np.testing.assert_allclose(model.published, plain.published, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(model.predict(X), plain.predict(of), rtol=1e-12)


@pytest.mark.parametrize(("column", "spelling"), CASES)
def test_changes_and_predictions_take_any_spelling(column: str, spelling: str) -> None:
    _, values, known = COLUMNS[column]
    model, _, y = fitted(LinearModel, column, "None")
    plain, _, _ = fitted(LinearModel, column, "None")
    rows = slice(1, 7)
    x = np.arange(6.0)
    new, of = table(known[spelling](values)[rows], x), table(known["None"](values)[rows], x)
    ids = [f"n{i}" for i in range(6)]
    for one, given in ((model, new), (plain, of)):
        one.insert(given, y[rows], ids)
        one.correct(given, y[rows] + 1.0, ids)
        one.delete(["0", "2", "n1"])
    np.testing.assert_allclose(model.published, plain.published, rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(model.predict(new), plain.predict(of), rtol=1e-11)


@pytest.mark.parametrize("kind", [LinearModel, LogisticModel])
@pytest.mark.parametrize(("column", "spelling"), CASES)
def test_the_exported_pipeline_predicts_the_same_for_any_spelling(
    kind: type[Any], column: str, spelling: str
) -> None:
    _, values, known = COLUMNS[column]
    model, X, _ = fitted(kind, column, "None")
    model.delete(["0", "1"])
    frame = table(known[spelling](values), np.asarray(X["x"]))
    frame = frame if isinstance(frame, pd.DataFrame) else pd.DataFrame(frame)
    if kind is LogisticModel:
        found, truth = model.to_sklearn().predict_proba(frame), model.predict_proba(X)
    else:
        found, truth = model.to_sklearn().predict(frame), model.predict(X)
    np.testing.assert_allclose(found, truth, rtol=1e-9)


def test_the_smallest_case_of_a_missing_category_in_a_frame() -> None:
    X = pd.DataFrame({"c": pd.Series(["a", "b", None] * 4, dtype="str")})
    y = np.array([1.0, 5.0, 18.0] * 4)
    model = LinearModel(ridge=1e-9, preprocess={"c": OneHot(unknown="ignore")}).fit(X, y)
    np.testing.assert_allclose(model.to_sklearn().predict(X), y, rtol=1e-6)
