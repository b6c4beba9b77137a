"""The file of --preprocess, and columns read as it says; what cannot be used is named."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lethe.consumers.registration.table import values as table_values
from lethe.consumers.registration.table.file import open_file
from lethe.consumers.registration.table.preprocess_file import proposal, read_preprocess_file
from lethe.consumers.registration.table.reader import (
    Columns,
    TableRead,
    proposed_steps,
    read_prepared_table,
    read_table,
)
from lethe.consumers.registration.table.typed import json_values, typed_columns
from lethe.engine.errors import InvalidData
from lethe.engine.fit.objective import Kind
from lethe.engine.preprocess.input.columns import Column, Date, Numeric, OneHot, TargetEncode

COLUMNS = Columns(id="id", targets=("y",))


def parsed(tmp_path: Path, text: str) -> dict[str, Column]:
    path = tmp_path / "columns.toml"
    path.write_text(text, encoding="utf-8")
    return read_preprocess_file(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "names no column"),
        ("[column.age]\nstep = 'numeric'", r"has \[column\]"),
        ("columns = 3", "names no column"),
        ("[columns]\nage = 'numeric'", "'age': write a table with step"),
        ("[columns.age]\n", "'age': step is one of numeric"),
        ("[columns.age]\nstep = 'onehot'", "did you mean 'one-hot'"),
        ("[columns.age]\nstep = 'numeric'\nsmooth = 3", "numeric has no setting 'smooth'"),
        (
            "[columns.age]\nstep = 'numeric'\nstandardise = 1",
            "standardise is true, false, text or a list of two numbers, not 1",
        ),
        ("[columns.age]\nstep = 'numeric'\nimpute = 'max'", "impute must be 'mean', 'median'"),
        ("[columns.age]\nstep = 'target-encode'\nsmooth = true", 'a number or "auto"'),
        ("[columns.age]\nstep = 'target-encode'\nsmooth = -1", "smooth must be"),
        ("[columns.age]\nstep = 'one-hot'\nunknown = 'drop'", "unknown must be"),
        ("[columns.age]\nstep = 'ordinal'\ncategories = ['a', 'a']", "distinct"),
        ("[columns.age]\nstep = 'ordinal'\ncategories = [1.5]", "categories are text"),
        ("[columns.age\n", "is not TOML"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_in_a_line(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(InvalidData, match=message) as caught:
        parsed(tmp_path, text)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_or_not_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidData, match="cannot be read"):
        read_preprocess_file(tmp_path / "none.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    (tmp_path / "deep.toml").write_text("a = " + "[" * 3000 + "]" * 3000)
    for name in ("bytes.toml", "deep.toml"):
        with pytest.raises(InvalidData, match="is not TOML in UTF-8"):
            read_preprocess_file(tmp_path / name)


# -- the table ------------------------------------------------------------------------------------

STEPS = "".join(
    f"[columns.{name}]\nstep = '{step}'\n"
    for name, step in {"age": "numeric", "town": "one-hot", "day": "date"}.items()
)


def read(tmp_path: Path, text: str, steps: str = STEPS) -> TableRead:
    path = tmp_path / "rows.csv"
    path.write_text(text, encoding="utf-8")
    return read_prepared_table(path, COLUMNS, Kind.LINEAR, parsed(tmp_path, steps))


def test_gaps_dates_and_categories_are_read_from_csv(tmp_path: Path) -> None:
    text = "id,age,town,day,note,y\n1, +34 ,07,2021-03-01,x,1\n2,,8,,x,2\n3,nan,,1970-01-03,x,3\n"
    made = read(tmp_path, text)
    table = made.data.table
    assert table is not None
    np.testing.assert_array_equal(table.numbers[:, 0], [34.0, np.nan, np.nan])
    np.testing.assert_array_equal(table.numbers[:, 1], [18687.0, np.nan, 2.0])
    assert table.vocabularies[0].categories == ("07", "8", None)  # text, whatever it looks like
    assert table.codes[:, 0].tolist() == [0, 1, 2]
    assert made.left_out == {"note": "text"}
    assert made.data.feature_names == ("age", "town_07", "town_8", "town_None", "day")


def test_parquet_gives_the_same(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    day = pa.array([18687, None, 2], type=pa.date32())
    columns = {"id": [1, 2, 3], "age": [34.0, None, np.nan], "town": ["07", "8", None]}
    pq.write_table(pa.table({**columns, "day": day, "y": [1.0, 2.0, 3.0]}), path)
    table = read_prepared_table(path, COLUMNS, Kind.LINEAR, parsed(tmp_path, STEPS)).data.table
    assert table is not None
    np.testing.assert_array_equal(table.numbers, [[34.0, 18687.0], [np.nan, np.nan], [np.nan, 2.0]])
    assert table.codes[:, 0].tolist() == [0, 1, 2]


def test_the_days_of_a_csv_file_need_no_hyphens(tmp_path: Path) -> None:
    text = "id,age,town,day,y\n1,3,a,20210301,1\n2,4,b,20210302,2\n"
    table = read(tmp_path, text).data.table
    assert table is not None
    assert table.numbers[:, 1].tolist() == [18687.0, 18688.0]


def of_days(tmp_path: Path, days: pa.Array) -> TableRead:
    """Read a Parquet file with these days."""
    path = tmp_path / "days.parquet"
    pq.write_table(pa.table({"id": ["a", "b"], "day": days, "y": [1.0, 2.0]}), path)
    return read_prepared_table(path, COLUMNS, Kind.LINEAR, {"day": Date()})


@pytest.mark.parametrize("zone", [None, "Asia/Tokyo", "+05:30", "Not/AZone"])
def test_moments_of_parquet_are_in_utc_to_the_first_and_last_year(
    tmp_path: Path, zone: str | None
) -> None:
    last = pa.array([-62135596800, 253402300799], pa.timestamp("s", zone))
    table = of_days(tmp_path, last).data.table
    assert table is not None
    assert table.numbers[:, 0].tolist() == [-719162.0, 253402300799 / 86400]


@pytest.mark.parametrize(
    ("days", "row"),
    [
        (pa.array([0, 2932897], pa.date32()), 2),
        (pa.array([-719163, 0], pa.date32()), 1),
        (pa.array([0, 253402300800_000], pa.timestamp("ms", "UTC")), 2),
    ],
)
def test_a_day_of_parquet_that_no_calendar_has_is_named(
    tmp_path: Path, days: pa.Array, row: int
) -> None:
    with pytest.raises(InvalidData, match=f"row {row}, column 'day'.*of the years 1 to 9999"):
        of_days(tmp_path, days)


def test_a_column_of_parquet_without_a_value_or_a_type_is_missing_throughout(
    tmp_path: Path,
) -> None:
    path = tmp_path / "rows.parquet"
    nothing = {"age": pa.nulls(2), "town": pa.nulls(2), "day": pa.nulls(2)}
    pq.write_table(pa.table({"id": ["a", "b"], **nothing, "y": [1.0, 2.0]}), path)
    columns = parsed(tmp_path, STEPS)
    typed = typed_columns(open_file(path), columns, complete=False)
    assert [json_values(values) for values in typed.values()] == [[None, None]] * 3
    with pytest.raises(InvalidData, match="'age': no row has a value"):
        read_prepared_table(path, COLUMNS, Kind.LINEAR, columns)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id,age,town,day,y\n1,3,a,,1\n2,old,a,2021-03-01,2\n", "line 3, column 'age'.*number"),
        ("id,age,town,day,y\n1,inf,a,2021-03-01,1\n", "line 2, column 'age': the value is inf"),
        ("id,age,town,day,y\n1,3,a,2021-13-01,1\n", "line 2, column 'day'.*not a date"),
        ("id,age,town,day,y\n1,,a,2021-03-01,1\n2,,a,,2\n", "'age': no row has a value"),
        ("id,age,town,y\n1,3,a,1\n", "has no column 'day'"),
        (f"id,age,town,day,y\n1,3,{'a' * 129},2021-03-01,1\n", "longer than 128 characters"),
        ("id,age,town,day,y\n", "has no rows"),
    ],
)
def test_a_value_of_another_kind_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InvalidData, match=message) as caught:
        read(tmp_path, text)
    assert "\n" not in str(caught.value)


def test_a_missing_value_is_refused_where_nothing_is_imputed(tmp_path: Path) -> None:
    steps = "[columns.age]\nstep = 'numeric'\nimpute = 'none'\n"
    with pytest.raises(InvalidData, match="line 3, column 'age': the value is missing"):
        read(tmp_path, "id,age,y\n1,3,1\n2,,2\n", steps)


def test_two_features_cannot_have_one_name(tmp_path: Path) -> None:
    steps = "[columns.a]\nstep = 'one-hot'\n[columns.a_b]\nstep = 'numeric'\n"
    with pytest.raises(InvalidData, match="two features would be called 'a_b'"):
        read(tmp_path, "id,a,a_b,y\n1,b,3,1\n2,c,4,2\n", steps)


def test_what_is_proposed_can_be_read_and_fits_the_table(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    header = 'id,age,town,"a ""b"".\\c",day,paid,who,y\n'
    many = "".join(
        f"{i},{i},t{i % 3},p{i % 55},2021-03-01,{i % 2 > 0},ann{i},{i}\n" for i in range(120)
    )
    path.write_text(header + many, encoding="utf-8")
    proposed = proposal(proposed_steps(path, COLUMNS))
    assert '# [columns.who]\n# step = "target-encode"' in proposed
    columns = parsed(tmp_path, proposed)
    assert columns == {
        "age": Numeric(),
        "town": OneHot(),
        'a "b".\\c': TargetEncode(),
        "day": Date(),
        "paid": OneHot(),
    }
    assert read_prepared_table(path, COLUMNS, Kind.LINEAR, columns).left_out == {"who": "text"}


HELD: dict[str, tuple[pa.Array, str]] = {
    "whole": (pa.array([3, None]), "numbers"),
    "number": (pa.array([1.5, 2.0]), "numbers"),
    "decimal": (pa.array([Decimal(1), None]), "numbers"),
    "flag": (pa.array([True, None]), "true and false"),
    "day": (pa.array([0, 1], pa.date32()), "dates"),
    "moment": (pa.array([0, None], pa.timestamp("us", "UTC")), "dates"),
    "day_text": (pa.array(["2021-03-01", None]), "dates"),
    "note": (pa.array(["a", "7"]), "text"),
    "large": (pa.array(["a", None], pa.large_string()), "text"),
    "view": (pa.array(["a", None]).cast(pa.string_view()), "text"),
    "coded": (pa.array(["a", None]).dictionary_encode(), "text"),
    "coded_whole": (pa.array([3, None]).dictionary_encode(), "numbers"),
    "nothing": (pa.nulls(2), "nothing"),
    "blank": (pa.array(["", None]), "nothing"),
    "listed": (pa.array([[1], None]), "list<element: int64>"),
    "parts": (pa.array([{"a": 1}, None]), "struct<a: int64>"),
    "bytes": (pa.array([b"a", None]), "binary"),
    "hour": (pa.array([0, 1], pa.time32("s")), "time32[ms]"),
    "length": (pa.array([0, 1], pa.duration("s")), "duration[s]"),
}
"""Columns of Parquet, and what they are said to hold."""


def test_every_column_that_is_left_out_is_said_to_hold_what_it_does(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    held = {name: values for name, (values, _) in HELD.items()}
    pq.write_table(pa.table({"id": [1, 2], "age": [34.0, 35.0], **held, "y": [1.0, 2.0]}), path)
    columns: dict[str, Column] = {"age": Numeric()}
    made = read_prepared_table(path, COLUMNS, Kind.LINEAR, columns)
    assert made.left_out == {name: what for name, (_, what) in HELD.items()}
    proposed = parsed(tmp_path, proposal(proposed_steps(path, COLUMNS)))
    learnt = [name for name, (_, what) in HELD.items() if what in table_values.HELD]
    assert list(proposed) == ["age", *learnt]
    full = [name for name in learnt if what_is_there(held[name])]
    read_prepared_table(path, COLUMNS, Kind.LINEAR, {name: proposed[name] for name in full})


def what_is_there(values: pa.Array) -> bool:
    return any(value for value in values.to_pylist())


def test_a_csv_file_says_the_same_of_what_it_can_hold(tmp_path: Path) -> None:
    """Whether its columns are read with types, or all as text because one line is not a number."""
    spelled = {
        "whole": ("3", "", "numbers"),
        "number": ("1.5", "2", "numbers"),
        "flag": ("True", "", "true and false"),
        "day": ("2021-03-01", "", "dates"),
        "note": ("a", "7", "text"),
        "nothing": ("", "", "nothing"),
        "comma": ('"1,5"', "", "numbers with commas"),
    }
    for age in ("35", "36 years"):
        first, second = (",".join(cells[i] for cells in spelled.values()) for i in (0, 1))
        path = tmp_path / "rows.csv"
        lines = [f"id,age,{','.join(spelled)},y", f"1,34,{first},1", f"2,{age},{second},2"]
        path.write_text("\n".join([*lines, ""]))
        columns: dict[str, Column] = {"age": OneHot()}
        made = read_prepared_table(path, COLUMNS, Kind.LINEAR, columns)
        assert made.left_out == {name: what for name, (*_, what) in spelled.items()}


@pytest.mark.parametrize("fee", ["9,50", "1.009,50", "1,009.50", "1,000,009"])
def test_numbers_with_commas_are_proposed_as_numbers_and_refused_as_such(
    tmp_path: Path, fee: str
) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(f'id,a,fee,y\n1,3,"{fee}",1\n2,4,"-2,5",2\n', encoding="utf-8")
    assert read_table(path, COLUMNS, Kind.LINEAR).left_out == {"fee": "numbers with commas"}
    columns = parsed(tmp_path, proposal(proposed_steps(path, COLUMNS)))
    assert columns == {"a": Numeric(), "fee": Numeric()}
    with pytest.raises(InvalidData, match=r"line 2, column 'fee'.*with a decimal point"):
        read_prepared_table(path, COLUMNS, Kind.LINEAR, columns)


def test_the_target_of_a_logistic_model_is_read_as_two_classes_or_more(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    columns = parsed(tmp_path, "[columns.age]\nstep = 'numeric'")
    lines = ["id,age,y", *(f"u{i},{i}.5,{'yes' if i % 3 else 'no'}" for i in range(9))]
    path.write_text("\n".join(lines), encoding="utf-8")
    data = read_prepared_table(path, COLUMNS, Kind.LOGISTIC, columns).data
    assert data.class_names == ("no", "yes")
    assert data.y[:, 0].tolist() == [float(i % 3 > 0) for i in range(9)]
    path.write_text("\n".join([*lines, "u9,1.5,perhaps"]), encoding="utf-8")
    data = read_prepared_table(path, COLUMNS, Kind.LOGISTIC, columns).data
    assert data.class_names == ("no", "perhaps", "yes")
    assert data.y[-1].tolist() == [0.0, 1.0, 0.0]
    columns = parsed(tmp_path, "[columns.age]\nstep = 'target-encode'")
    with pytest.raises(InvalidData, match="'age' is encoded by the target, and there are 3"):
        read_prepared_table(path, COLUMNS, Kind.LOGISTIC, columns)
