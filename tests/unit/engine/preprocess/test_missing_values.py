"""A missing value is one and the same, whatever stands for it and whatever the column's type.

scikit-learn takes None and NaN for two categories, and has no place for pandas' NA. So the truth is
its pipeline fitted to the same rows with a plain category, sorted last, where a value is missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any

import numpy as np
import pytest

from lethe import LinearModel
from lethe.engine.errors import InvalidData
from lethe.engine.preprocess.input.columns import (
    Column,
    Date,
    Numeric,
    OneHot,
    Ordinal,
    TargetEncode,
)
from tests.support.missing_values import (
    DAYS,
    KINDS,
    WHOLE,
    Form,
    frame_of,
    is_refused_by_scikit_learn,
    objects,
)
from tests.support.pipelines import Array, parameters, pipeline

FORMS = [(kind, form) for kind, (forms, *_) in KINDS.items() for form in forms]
ENCODED: tuple[Column, ...] = (OneHot(), OneHot(unknown="ignore"), TargetEncode())

N = 24
Y = np.sin(np.arange(float(N))) + np.arange(N) % 3
Y[2::3] += 4.0  # where the value is missing


def drawn(values: Sequence[Any]) -> list[Any]:
    return [values[i % 3] for i in range(N)]


def truth_of(column: Column, X: Sequence[Any], y: Array) -> tuple[Array, Array]:
    """Return scikit-learn's parameters and its predictions of the rows that it was fitted to."""
    rows = np.array(X, dtype=object)[:, None]
    fitted = pipeline({"c": column}).fit(rows, y)
    return parameters(fitted), fitted.predict(rows)


def check(model: LinearModel, expected: Array) -> None:
    theta = np.append(model.theta, model.intercept)
    np.testing.assert_allclose(theta, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("column", ENCODED, ids=str)
@pytest.mark.parametrize(("kind", "form"), FORMS)
def test_a_missing_category_is_the_same_in_training_and_prediction(
    kind: str, form: str, column: Column
) -> None:
    forms, known, last = KINDS[kind]
    expected, predictions = truth_of(column, drawn((*known, last)), Y)
    values = drawn((*known, None))
    model = LinearModel(preprocess={"c": column})
    model.fit(frame_of(forms[form](values)), Y)
    check(model, expected)
    plain = model.to_sklearn()
    for name, other in forms.items():
        frame = frame_of(other(values))
        np.testing.assert_allclose(model.predict(frame), predictions, rtol=1e-9, err_msg=name)
        if is_refused_by_scikit_learn(frame["c"]):
            with pytest.raises(TypeError, match="NA"):  # as by its own encoders
                plain.predict(frame)
        else:
            np.testing.assert_allclose(plain.predict(frame), predictions, rtol=1e-9, err_msg=name)


@pytest.mark.parametrize("column", ENCODED, ids=str)
@pytest.mark.parametrize(("kind", "form"), FORMS)
def test_a_missing_category_is_the_same_in_rows_that_come_and_go(
    kind: str, form: str, column: Column
) -> None:
    """Rows are inserted and corrected in one form, of a model that was fitted in another."""
    forms, known, last = KINDS[kind]
    first, new = drawn((*known, None)), [None, known[0], known[1], None]
    model = LinearModel(preprocess={"c": column}).fit(frame_of(forms["None"](first)), Y)
    model.insert(frame_of(forms[form](new)), Y[:4], list("abcd"), method="exact")
    model.correct(frame_of(forms[form](new)), Y[4:8], ["0", "1", "2", "c"], method="exact")
    model.delete(["5", "b"], method="exact")
    values = [*new[:3], first[3], first[4], *first[6:], new[0], new[3], new[3]]
    y = np.array([*Y[4:7], *Y[3:5], *Y[6:], Y[0], Y[7], Y[3]])
    expected, predictions = truth_of(column, [last if v is None else v for v in values], y)
    check(model, expected)
    np.testing.assert_allclose(
        model.to_sklearn().predict(frame_of(forms["None"](values))),
        predictions,
        rtol=1e-9,
    )


@pytest.mark.parametrize("column", ENCODED, ids=str)
@pytest.mark.parametrize(("kind", "form"), FORMS)
def test_a_column_of_which_every_live_row_lacks_the_category(
    kind: str, form: str, column: Column
) -> None:
    forms, known, _ = KINDS[kind]
    values = drawn((known[0], None, None))
    model = LinearModel(preprocess={"c": column}).fit(frame_of(forms[form](values)), Y)
    model.delete([str(i) for i in range(0, N, 3)], method="exact")
    frame = frame_of(objects(None, np.nan)(values[1:3]))
    np.testing.assert_allclose(model.predict(frame), np.mean(np.delete(Y, np.s_[::3])), rtol=1e-9)
    np.testing.assert_allclose(model.to_sklearn().predict(frame), model.predict(frame), rtol=1e-9)


@pytest.mark.parametrize(("kind", "form"), FORMS)
def test_an_ordinal_refuses_a_missing_category_whatever_stands_for_it(kind: str, form: str) -> None:
    forms, known, _ = KINDS[kind]
    frame = frame_of(forms[form](drawn((*known, None))))
    with pytest.raises(InvalidData, match="'c' has missing values, and Ordinal has no number"):
        LinearModel(preprocess={"c": Ordinal()}).fit(frame, Y)


@pytest.mark.parametrize(("kind", "form"), FORMS)
def test_a_missing_category_that_no_live_row_has_is_an_unknown_one(kind: str, form: str) -> None:
    forms, known, _ = KINDS[kind]
    model = LinearModel(preprocess={"c": OneHot(unknown="ignore")})
    model.fit(frame_of(forms[form](drawn((*known, None)))), Y)
    model.delete([str(i) for i in range(2, N, 3)], method="exact")
    frame = frame_of(forms[form]([None, known[0]]))
    plain = model.to_sklearn()
    np.testing.assert_allclose(model.predict(frame)[0], model.intercept, rtol=1e-9)
    np.testing.assert_allclose(plain.predict(frame), model.predict(frame), rtol=1e-9)


@pytest.mark.parametrize(
    ("column", "form"),
    [(Numeric(), form) for form in WHOLE.items()] + [(Date(), form) for form in DAYS.items()],
    ids=lambda part: part[0] if isinstance(part, tuple) else type(part).__name__,
)
def test_a_missing_number_or_date_is_the_same_everywhere(
    column: Column, form: tuple[str, Form]
) -> None:
    one, two = (date(2020, 1, 1), date(2021, 1, 1)) if isinstance(column, Date) else (1, 2)
    first, new = drawn((one, two, None)), [None, one]
    model = LinearModel(preprocess={"c": column}).fit(frame_of(form[1](first)), Y)
    model.insert(frame_of(form[1](new)), Y[:2], ["a", "b"], method="exact")
    model.correct(frame_of(form[1](new)), Y[3:5], ["0", "b"], method="exact")
    values, y = [None, *first[1:], None, one], np.array([Y[3], *Y[1:], Y[0], Y[4]])
    expected, predictions = truth_of(column, values, y)
    check(model, expected)
    frame = frame_of(form[1](values))
    np.testing.assert_allclose(model.predict(frame), predictions, rtol=1e-9)
    if not isinstance(column, Date) and not is_refused_by_scikit_learn(frame["c"]):
        np.testing.assert_allclose(model.to_sklearn().predict(frame), predictions, rtol=1e-9)
