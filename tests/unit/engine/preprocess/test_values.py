"""Reading columns: every kind of value, and one clear error for what is none."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from importlib import import_module
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy.sparse import csr_array

from lethe.engine.errors import InvalidData
from lethe.engine.preprocess.input.columns import (
    Columns,
    Date,
    Numeric,
    OneHot,
    Ordinal,
    TargetEncode,
    passthrough,
)
from lethe.engine.preprocess.input.table import Vocabulary, read_columns, read_table
from lethe.engine.preprocess.input.values import (
    read_categories,
    read_dates,
    read_numbers,
    sorted_categories,
)
from lethe.engine.preprocess.transformation.layout import MAX_ENTRIES, lay_out

pd: Any = import_module("pandas")  # has no types


def objects(*values: object) -> np.ndarray:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def test_numbers_of_any_type_are_read_and_missing_ones_are_nan() -> None:
    read = read_numbers("x", objects(1, 2.5, True, np.float32(3), Decimal("4.5"), None, np.nan))
    np.testing.assert_array_equal(read, [1.0, 2.5, 1.0, 3.0, 4.5, np.nan, np.nan])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (objects("abc", 1.0), "'x' holds 'abc', which is not a number"),
        (np.array(["1", "2"]), "'x' holds text, not numbers"),
        (np.array([1.0, np.inf]), "'x' holds an infinite number"),
        (objects(10**400), "'x' holds an infinite number"),
        (np.array([1j, 2j]), "'x' holds complex numbers, not numbers"),
        (np.array(["2020-01-01"], dtype="datetime64[D]"), "'x' holds dates, not numbers"),
    ],
)
def test_what_is_no_number_is_named(values: np.ndarray, message: str) -> None:
    with pytest.raises(InvalidData, match=message):
        read_numbers("x", values)


def test_a_date_is_the_same_day_in_every_form() -> None:
    noon = datetime(2020, 1, 2, 12)
    in_zone = datetime(2020, 1, 2, 14, tzinfo=timezone(timedelta(hours=2)))
    moments = objects(
        noon, noon.replace(tzinfo=UTC), in_zone, "2020-01-02T12:00:00", np.datetime64(noon)
    )
    np.testing.assert_array_equal(read_dates("d", moments), np.full(5, 18_263.5))
    days = objects(date(1970, 1, 2), "1969-12-31", None, np.datetime64("NaT"))
    np.testing.assert_array_equal(read_dates("d", days), [1.0, -1.0, np.nan, np.nan])
    array = np.array(["1970-01-11", "NaT"], dtype="datetime64[D]")
    np.testing.assert_array_equal(read_dates("d", array), [10.0, np.nan])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (objects("yesterday"), "'d' holds 'yesterday', which is not a date"),
        (objects(5), "'d' holds 5, which is not a date"),
        (objects("10000-01-01"), "which is not a date"),
        (objects("9999-12-31T23:59-01:00"), "holds '9999-12-31T23:59-01:00', which is not a date"),
        (np.array(["12000-01-01"], dtype="datetime64[D]"), "not of the years 1 to 9999"),
        (np.array([2**40], dtype="datetime64[Y]"), "not of the years 1 to 9999"),
        (np.array([1.0]), "'d' holds values of type float64, not dates"),
    ],
)
def test_what_is_no_date_or_out_of_range_is_named(values: np.ndarray, message: str) -> None:
    with pytest.raises(InvalidData, match=message):
        read_dates("d", values)


def test_categories_are_sorted_as_scikit_learn_does_the_missing_one_last() -> None:
    read = read_categories("c", objects("b", None, "a", np.nan, "b"))
    assert read == ["b", None, "a", None, "b"]
    assert sorted_categories("c", read) == ["a", "b", None]
    assert sorted_categories("c", [10, 9, 2]) == [2, 9, 10]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (objects("a", 1), "'c' mixes text and numbers"),
        (objects(("a",)), "which is no category"),
    ],
)
def test_what_is_no_category_is_named(values: np.ndarray, message: str) -> None:
    with pytest.raises(InvalidData, match=message):
        read_categories("c", values)


COLUMNS: Columns = {"x": Numeric(), "c": OneHot()}


@pytest.mark.parametrize(
    "table",
    [
        {"c": ["u", "v"], "x": [1.0, None]},
        pa.table({"c": ["u", "v"], "x": pa.array([1.0, None])}),
    ],
)
def test_a_table_is_read_by_name_whatever_the_order_of_its_columns(table: object) -> None:
    read = read_table(COLUMNS, table)
    np.testing.assert_array_equal(read.numbers[:, 0], [1.0, np.nan])
    assert read.codes[:, 0].tolist() == [0, 1]
    assert read.vocabularies == (Vocabulary(("u", "v")),)


def test_arrays_of_arrow_are_read_with_their_gaps() -> None:
    arrays = {"c": pa.array(["u", None]).dictionary_encode(), "x": pa.array([None, 2])}
    for table in (arrays, pa.RecordBatch.from_pydict(arrays)):
        read = read_table(COLUMNS, table)
        np.testing.assert_array_equal(read.numbers[:, 0], [np.nan, 2.0])
        assert read.vocabularies == (Vocabulary(("u", None)),)
    days = read_table({"d": Date()}, {"d": pa.array([date(1970, 1, 2), None])}).numbers
    np.testing.assert_array_equal(days[:, 0], [1.0, np.nan])


def test_what_is_masked_is_missing() -> None:
    masked = np.ma.array([1.0, 7.0], mask=[False, True])
    read = read_table({"x": Numeric()}, {"x": masked})
    np.testing.assert_array_equal(read.numbers[:, 0], [1.0, np.nan])


def test_no_rows_have_no_dates() -> None:
    assert read_table({"d": Date()}, {"d": []}).numbers.shape == (0, 1)


def test_an_array_is_read_by_place() -> None:
    columns: Columns = {1: OneHot(), 0: Numeric()}
    read = read_table(columns, np.array([[1.0, "u"], [2.0, "v"]], dtype=object))
    assert read.numbers[:, 0].tolist() == [1.0, 2.0]
    assert read.codes[:, 0].tolist() == [0, 1]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"x": [1.0]}, "the table has no column 'c'"),
        ({"x": [1.0], "c": ["u"], "z": [1]}, "does not say what is done to column 'z'"),
        ({"x": [1.0, 2.0], "c": ["u"]}, "not of the same length"),
        (
            pd.DataFrame({"x": [1.0], "c": ["u"], 1.5: [1]}),
            "does not say what is done to column 1.5",
        ),
        ({"x": [[1.0]], "c": ["u"]}, "'x' must have 1 dimension"),
        ({"x": [[1.0], [1.0, 2.0]], "c": ["u", "v"]}, "'x' is no list of single values"),
        (csr_array((2, 2)), "X is a sparse matrix"),
        (np.zeros((2, 2)), "X is an array, and preprocess names column 'x', 'c'"),
        (np.zeros(2), "X must have 2 dimensions"),
    ],
)
def test_a_table_with_other_columns_is_refused(table: object, message: str) -> None:
    with pytest.raises(InvalidData, match=message):
        read_columns(COLUMNS, table)


def test_every_column_of_an_array_needs_a_name() -> None:
    with pytest.raises(InvalidData, match="X has 3 columns, and preprocess names 1"):
        read_columns({0: Numeric()}, np.zeros((2, 3)))


def test_a_column_that_is_not_imputed_has_no_missing_value() -> None:
    with pytest.raises(InvalidData, match="'x' has no value in row 1"):
        read_table({"x": passthrough()}, {"x": [1.0, None]})
    with pytest.raises(InvalidData, match="'d' has no value in row 0"):
        read_table({"d": Date(impute=None)}, {"d": [None]})


def test_codes_of_new_categories_follow_those_that_are_known() -> None:
    first = read_table({"c": OneHot()}, {"c": ["v", "u"]})
    more = read_table({"c": OneHot()}, {"c": ["w", "u"]}, first.vocabularies)
    assert more.codes[:, 0].tolist() == [2, 1]
    assert first.below(more).vocabularies == (Vocabulary(("v", "u", "w")),)


def test_a_data_frame_of_pandas_is_read_whatever_its_types() -> None:
    frame = pd.DataFrame(
        {
            "c": pd.Categorical(["u", None, "v"]),
            "x": pd.array([1, None, 3], dtype="Int64"),
            "d": pd.to_datetime(["1970-01-02", None, "1970-01-04"]).tz_localize("UTC"),
            "s": pd.array(["p", "q", None], dtype="string"),
            "b": [True, False, True],
        }
    )
    columns: Columns = {
        "x": Numeric(), "d": Date(), "c": OneHot(), "s": OneHot(), "b": Numeric()
    }  # fmt: skip
    read = read_table(columns, frame)
    np.testing.assert_array_equal(
        read.numbers, [[1.0, 1.0, 1.0], [np.nan, np.nan, 0.0], [3.0, 3.0, 1.0]]
    )
    assert read.vocabularies == (Vocabulary(("u", None, "v")), Vocabulary(("p", "q", None)))


def test_more_entries_than_a_model_keeps_sums_of_are_refused() -> None:
    """By the number of categories of all columns together, before matrices of them are made."""
    columns: Columns = {"a": TargetEncode(), "b": Ordinal()}
    half = MAX_ENTRIES // 2
    for more, refused in ((0, False), (1, True)):
        names = [f"c{i}" for i in range(half + more)]
        table = read_table(columns, {"a": names, "b": [*names[:half], *names[:more]]})
        if refused:
            with pytest.raises(InvalidData, match=f"have {MAX_ENTRIES + 1} categories"):
                lay_out(columns, table)
        else:
            assert lay_out(columns, table).entries == MAX_ENTRIES
