"""Training files: what can be used is read as it is, and an error names the line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lethe.consumers.registration.table import (
    file as table_file,
    foreseen as limits,
    parquet as parquet_file,
)
from lethe.consumers.registration.table.reader import Columns, TableRead, read_ids, read_table
from lethe.engine.errors import InvalidData
from lethe.engine.fit.objective import Kind

COLUMNS = Columns(id="id", targets=("y",))


@pytest.fixture
def csv(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        path = tmp_path / "rows.csv"
        path.write_bytes(text.encode())
        return path

    return write


@pytest.fixture
def parquet(tmp_path: Path) -> Callable[[Mapping[str, Any]], Path]:
    def write(columns: Mapping[str, Any]) -> Path:
        path = tmp_path / "rows.parquet"
        pq.write_table(pa.table(dict(columns)), path)
        return path

    return write


def read(path: Path, columns: Columns = COLUMNS, kind: Kind = Kind.LINEAR) -> TableRead:
    return read_table(path, columns, kind)


def refusal(path: Path, columns: Columns = COLUMNS, kind: Kind = Kind.LINEAR) -> str:
    with pytest.raises(InvalidData) as caught:
        read_table(path, columns, kind)
    message = str(caught.value)
    assert "\n" not in message
    return message


class TestWhatIsRead:
    def test_csv_and_parquet_give_the_same_rows(
        self, csv: Callable[[str], Path], parquet: Callable[[Mapping[str, Any]], Path]
    ) -> None:
        from_csv = read(csv("id,a,flag,y\n7,1.5,true,2\n8,-2e3,False,3\n")).data
        from_parquet = read(
            parquet({"id": [7, 8], "a": [1.5, -2000.0], "flag": [True, False], "y": [2, 3]})
        ).data

        for data in (from_csv, from_parquet):
            assert data.ids == ("7", "8")
            assert data.feature_names == ("a", "flag")
            np.testing.assert_array_equal([[1.5, 1.0], [-2000.0, 0.0]], data.X)
            np.testing.assert_array_equal([[2.0], [3.0]], data.y)

    @pytest.mark.parametrize(
        ("values", "names", "targets"),
        [
            (["b", " a", "c"], ("a", "b", "c"), [[0, 1, 0], [1, 0, 0], [0, 0, 1]]),
            (["10", "9.0", "+1e2"], ("9", "10", "100"), [[0, 1, 0], [1, 0, 0], [0, 0, 1]]),
            (["yes", "no", "no"], ("no", "yes"), [[1], [0], [0]]),
            (["1", "2", "2"], ("1", "2"), [[0], [1], [1]]),
            (["true", "False", "true"], (), [[1], [0], [1]]),
            (["1", "0", "1"], (), [[1], [0], [1]]),
        ],
    )
    def test_a_logistic_target_is_0_and_1_or_classes(
        self,
        csv: Callable[[str], Path],
        values: list[str],
        names: tuple[str, ...],
        targets: list[list[int]],
    ) -> None:
        lines = "".join(f"{i},{i},{value}\n" for i, value in enumerate(values))

        data = read(csv(f"id,a,y\n{lines}"), kind=Kind.LOGISTIC).data

        assert data.class_names == names
        assert data.target_names == ("y",)
        assert data.y.tolist() == targets

    @pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()])
    def test_text_of_a_parquet_file_whatever_its_type(
        self, parquet: Callable[[Mapping[str, Any]], Path], kind: pa.DataType
    ) -> None:
        ids, labels = (pa.array(texts).cast(kind) for texts in (["u1", "u2"], ["yes", "no"]))

        data = read(parquet({"id": ids, "a": [1.0, 2.0], "y": labels}), kind=Kind.LOGISTIC).data

        assert data.ids == ("u1", "u2")
        assert data.class_names == ("no", "yes")

    @pytest.mark.parametrize(
        "column", [pa.array(["b", "a", "c"]).dictionary_encode(), pa.array(["b", "a", "c"])]
    )
    def test_classes_of_a_parquet_file(
        self, parquet: Callable[[Mapping[str, Any]], Path], column: Any
    ) -> None:
        path = parquet({"id": [1, 2, 3], "a": [1.0, 2.0, 3.0], "y": column})

        assert read(path, kind=Kind.LOGISTIC).data.class_names == ("a", "b", "c")

    def test_single_precision_columns_become_double(
        self, parquet: Callable[[Mapping[str, Any]], Path]
    ) -> None:
        single = np.array([0.1, 0.2], dtype=np.float32)
        data = read(parquet({"id": [7, 8], "a": single, "y": [2, 3]})).data
        assert data.X.dtype == np.float64
        np.testing.assert_array_equal(data.X[:, 0], single.astype(np.float64))

    def test_features_default_to_the_other_numeric_columns(
        self, csv: Callable[[str], Path]
    ) -> None:
        path = csv("id,who,b,name,a,y\n1,9,1,ann,2,3\n2,9,4,bob,5,6\n")
        found = read(path, Columns("id", ("y",), subject="who"))

        assert found.data.feature_names == ("b", "a")
        assert found.left_out == {"name": "text"}
        assert found.data.subjects == {"9": ["1", "2"]}

    def test_named_features_keep_their_order(self, csv: Callable[[str], Path]) -> None:
        found = read(csv("id,a,b,y\n1,2,3,4\n"), Columns("id", ("y",), features=("b", "a")))

        assert found.data.feature_names == ("b", "a")
        np.testing.assert_array_equal([[3.0, 2.0]], found.data.X)

    def test_several_targets_of_a_linear_model(self, csv: Callable[[str], Path]) -> None:
        found = read(csv("id,a,y,z\n1,2,3,4\n"), Columns("id", ("y", "z")))

        np.testing.assert_array_equal([[3.0, 4.0]], found.data.y)

    def test_numbers_keep_all_their_digits(self, csv: Callable[[str], Path]) -> None:
        values = [0.1, 1 / 3, 1e-300, 123456789.123456789, 5e-324]
        text = "id,a,y\n" + "".join(f"{i},{v!r},0\n" for i, v in enumerate(values))

        np.testing.assert_array_equal(values, read(csv(text)).data.X[:, 0])

    @pytest.mark.parametrize("written", ["+1.5", " 1.5 ", "1.5e0", "15e-1", "01.5"])
    def test_ways_to_write_a_number(self, csv: Callable[[str], Path], written: str) -> None:
        assert read(csv(f"id,a,y\n1,{written},0\n")).data.X[0, 0] == 1.5

    def test_wide_and_constant_data_are_legal(self, csv: Callable[[str], Path]) -> None:
        found = read(csv("id,a,b,c,y\n1,1,1,5,0\n2,1,1,6,1\n")).data

        assert found.X.shape == (2, 3)

    def test_rows_without_a_subject_are_legal(self, csv: Callable[[str], Path]) -> None:
        found = read(csv("id,s,a,y\n1,x,1,1\n2,,2,2\n"), Columns("id", ("y",), subject="s"))

        assert found.data.subjects == {"x": ["1"]}

    def test_quotes_and_a_byte_order_mark(self, csv: Callable[[str], Path]) -> None:
        found = read(csv('\ufeffid,a,y\n"u,1",2,3\n'))

        assert found.data.ids == ("u,1",)


@pytest.mark.parametrize(
    ("separator", "name"), [(";", "semicolons"), ("\t", "tabs"), ("|", "vertical bars")]
)
def test_another_separator_is_named(csv: Callable[[str], Path], separator: str, name: str) -> None:
    path = csv("id,a,y\n7,1.5,2\n".replace(",", separator))
    assert f"rows.csv: its values are separated by {name}; save it with commas" in refusal(path)


@pytest.mark.parametrize(
    ("encoding", "place", "source"),
    [("cp1252", "rows.csv, line 3", "WINDOWS-1252"), ("utf-16", "rows.csv", "UTF-16")],
)
@pytest.mark.parametrize("header", ["id,town,a,y", "id,st\xe4dte,a,y"])
def test_another_encoding_is_named_with_the_command_that_mends_it(
    csv: Callable[[str], Path], header: str, encoding: str, place: str, source: str
) -> None:
    path = csv("")
    path.write_text(f"{header}\n7,Ulm,1.5,2\n8,M\xfcnchen,2.5,3\n", encoding=encoding)
    said = refusal(path)
    if not header.isascii():
        place = place.replace("3", "1")
    assert f"{place}: is not UTF-8 text" in said
    assert f"`iconv -f {source} -t UTF-8`" in said


def test_a_missing_header_line_is_guessed(csv: Callable[[str], Path]) -> None:
    assert "is its header line missing?" in refusal(csv("7,1.5,2\n8,2.5,3\n"))
    assert "'2'; is its header line missing?" in refusal(csv("7,2,2\n8,2.5,3\n"))


def test_one_bad_line_among_a_hundred_thousand_is_named(csv: Callable[[str], Path]) -> None:
    lines = [f"u{i},{i % 7},{i % 3}" for i in range(100_000)]
    lines[73_210] = "u73210,twelve,1"

    message = refusal(csv("id,a,y\n" + "\n".join(lines) + "\n"))

    assert "line 73212" in message
    assert "'a'" in message
    assert "twelve" not in message  # values are somebody's data


class TestRefusals:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("id,a,y\n1,2,3\n2,,3\n", ("line 3", "column 'a'", "missing")),
            ("id,a,y\n1,2,3\n\n\n2,2,nan\n", ("line 5", "column 'y'", "not finite")),
            ("id,a,y\n1,2,3\n2,inf,3\n", ("line 3", "column 'a'", "not finite")),
            ("id,a,y\n1,2,3\n2,1e999,3\n", ("line 3", "column 'a'", "not finite")),
            ("id,a,y\n1,2,3\n2,2,x\n", ("line 3", "column 'y'", "not a number")),
            ("id,a,y\n1,2,3\n2,2\n", ("line 3", "2 values", "3")),
            ("id,a,y\n1,2,3\n2,2,3,4\n", ("line 3", "4 values", "3")),
            ("id,a,y\n1,2,3\n1,2,3\n", ("line 2 and line 3", "same id", "--subject")),
            ("id,a,y\n1,2,3\n,2,3\n", ("line 3", "id is empty")),
            ("id,a,y\n", ("no rows",)),
            ("", ("empty",)),
            ("id,b,y\n1,x,3\n", ("no numeric column",)),
            ("key,a,y\n1,2,3\n", ("no column 'id'", "'key'")),
            ("idd,a,y\n1,2,3\n", ("no column 'id'", "did you mean 'idd'?")),
            ("id,a,a,y\n1,2,3,4\n", ("more than one column 'a'",)),
            (f"id,a,y\n{'i' * 129},2,3\n", ("line 2", "129 characters")),
        ],
    )
    def test_of_a_csv_file(
        self, csv: Callable[[str], Path], text: str, expected: tuple[str, ...]
    ) -> None:
        message = refusal(csv(text))

        for part in ("rows.csv", *expected):
            assert part in message

    @pytest.mark.parametrize(
        ("columns", "expected"),
        [
            ({"id": [1, 2], "a": [1.0, None], "y": [1, 2]}, ("row 2", "'a'", "missing")),
            ({"id": [1, 2], "a": [1.0, np.nan], "y": [1, 2]}, ("row 2", "'a'", "not finite")),
            ({"id": [1, None], "a": [1.0, 2.0], "y": [1, 2]}, ("row 2", "id is empty")),
            ({"id": [1, 1], "a": [1.0, 2.0], "y": [1, 2]}, ("row 1 and row 2", "same id")),
            ({"id": [1.5, 2.5], "a": [1.0, 2.0], "y": [1, 2]}, ("'id'", "text or whole numbers")),
            ({"id": [1, 2], "a": [1.0, 2.0], "y": ["u", "v"]}, ("'y'", "string", "not numbers")),
            ({"id": [1], "a": [2**53 + 1], "y": [1]}, ("'a'", "2^53")),
        ],
    )
    def test_of_a_parquet_file(
        self,
        parquet: Callable[[Mapping[str, Any]], Path],
        columns: Mapping[str, Any],
        expected: tuple[str, ...],
    ) -> None:
        message = refusal(parquet(columns))

        for part in ("rows.parquet", *expected):
            assert part in message

    def test_of_a_logistic_target_that_is_a_fraction(self, csv: Callable[[str], Path]) -> None:
        message = refusal(csv("id,a,y\n1,2,1\n2,2,2.5\n"), kind=Kind.LOGISTIC)

        assert "line 3" in message
        assert "not 2.5; is it a regression target?" in message

    @pytest.mark.parametrize(
        ("values", "expected"),
        [
            (["0.5", "1.5", "2.5"], "line 2, column 'y': the target of a logistic model must be"),
            (["a", "b", " "], "line 4, column 'y': the value is missing"),
            (["1", "2", "x"], "line 4, column 'y': holds text, other lines hold numbers"),
            (["1", "", "2"], "line 3, column 'y': the value is missing"),
            (["1", "2", "nan"], "line 4, column 'y': the value is not finite"),
            (["a", "a", "a"], "all labels are 'a': there is nothing to tell apart"),
            (
                [str(i) for i in range(101)],
                "101 different values; a logistic model takes at most",
            ),
            (["a", "b" * 129, "c"], "line 3, column 'y': 129 characters"),
        ],
    )
    def test_of_a_column_that_holds_no_classes(
        self, csv: Callable[[str], Path], values: list[str], expected: str
    ) -> None:
        lines = "".join(f"{i},{i % 7},{value}\n" for i, value in enumerate(values))

        message = refusal(csv(f"id,a,y\n{lines}"), kind=Kind.LOGISTIC)

        assert expected in message
        assert "\n" not in message

    @pytest.mark.parametrize(
        ("values", "classes", "expected"),
        [
            ("abxc", ("a", "b", "c"), "is none of the classes that the model was fitted on"),
            ("1121", ("0", "1", "3"), "is none of the classes that the model was fitted on"),
            ("0021", (), "must be 0 or 1, as those that the model knows"),
            ("aaxa", (), "must be 0 or 1, as those that the model knows"),
        ],
    )
    def test_of_a_class_that_the_model_does_not_have(
        self, csv: Callable[[str], Path], values: str, classes: tuple[str, ...], expected: str
    ) -> None:
        lines = "".join(f"{i},{i},{value}\n" for i, value in enumerate(values))
        columns = Columns("id", ("y",), classes=classes)

        message = refusal(csv(f"id,a,y\n\n{lines}"), columns, Kind.LOGISTIC)

        first = "line 3" if values == "aaxa" else "line 5"
        assert f"rows.csv, {first}, column 'y': {expected}" in message

    def test_of_classes_that_are_missing_in_a_parquet_file(
        self, parquet: Callable[[Mapping[str, Any]], Path]
    ) -> None:
        path = parquet({"id": [1, 2, 3], "a": [1.0, 2.0, 3.0], "y": ["a", None, "b"]})

        assert "row 2, column 'y': the value is missing" in refusal(path, kind=Kind.LOGISTIC)

    def test_of_more_numbers_than_fit_with_the_dual_rows_of_each_class(
        self, csv: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(limits, "MAX_NUMBERS", 5)

        message = refusal(csv("id,a,y\n1,1,a\n2,2,b\n3,3,c\n"), kind=Kind.LOGISTIC)

        assert "3 rows of 1 features and 3 classes" in message

    def test_of_two_targets_of_a_logistic_model(self, csv: Callable[[str], Path]) -> None:
        columns = Columns("id", ("y", "a"))

        assert "one target" in refusal(csv("id,a,b,y\n1,1,1,1\n"), columns, Kind.LOGISTIC)

    def test_of_a_column_with_two_roles(self, csv: Callable[[str], Path]) -> None:
        columns = Columns("id", ("y",), features=("a", "y"))

        assert "'y' is named twice" in refusal(csv("id,a,y\n1,2,3\n"), columns)

    def test_of_another_extension(self, tmp_path: Path) -> None:
        assert "must end in .parquet or .csv" in refusal(tmp_path / "rows.xlsx")

    @pytest.mark.parametrize("name", ["none.csv", "none.parquet"])
    def test_of_a_file_that_is_not_there(self, tmp_path: Path, name: str) -> None:
        assert "No such file" in refusal(tmp_path / name)

    def test_of_a_directory(self, tmp_path: Path) -> None:
        (tmp_path / "rows.csv").mkdir()

        assert "is a directory" in refusal(tmp_path / "rows.csv")
        assert "is a directory" in refusal(tmp_path)

    def test_of_bytes_that_are_no_parquet(self, tmp_path: Path) -> None:
        path = tmp_path / "rows.parquet"
        path.write_bytes(b"PAR1 but then something else")

        assert "not readable as Parquet" in refusal(path)

    def test_of_more_features_than_a_factor_can_have(
        self, csv: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(limits, "MAX_FEATURES", 1)

        assert "2 features" in refusal(csv("id,a,b,y\n1,2,3,4\n"))

    def test_of_more_numbers_than_fit(
        self, csv: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(limits, "MAX_NUMBERS", 3)

        assert "2 rows of 2 features" in refusal(csv("id,a,b,y\n1,2,3,4\n2,2,3,4\n"))


def test_a_parquet_file_that_claims_too_much_is_refused_before_it_is_read(
    parquet: Callable[[Mapping[str, Any]], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A column of one value is a few bytes for any number of rows."""
    path = parquet({"id": list(range(5000)), "y": [1] * 5000, "x": [0.5] * 5000})
    assert read_table(path, COLUMNS, Kind.LINEAR).data.X.shape == (5000, 1)
    monkeypatch.setattr(parquet_file, "MAX_VALUES", 14_999)
    with pytest.raises(InvalidData, match="5000 rows of 3 columns, more than 14999 values"):
        read_table(path, COLUMNS, Kind.LINEAR)


def test_a_parquet_file_that_unpacks_to_too_much_is_given_up_early(
    parquet: Callable[[Mapping[str, Any]], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = parquet({"id": list(range(1000)), "y": [1] * 1000, "x": ["a" * 1000] * 1000})
    assert path.stat().st_size < 20_000
    monkeypatch.setattr(parquet_file, "MAX_TABLE_BYTES", 100_000)
    monkeypatch.setattr(parquet_file, "_BATCH_ROWS", 100)
    with pytest.raises(InvalidData, match="unpacks to more than 100000 bytes"):
        read_table(path, COLUMNS, Kind.LINEAR)


def test_text_in_parquet_that_is_no_utf8_is_an_error_that_says_so(
    parquet: Callable[[Mapping[str, Any]], Path],
) -> None:
    raw = pa.array([b"u1", b"\xff"]).view(pa.string())
    path = parquet({"id": raw, "y": [1, 2], "x": [0.5, 1.5]})
    with pytest.raises(InvalidData, match="not readable as Parquet"):
        read_table(path, COLUMNS, Kind.LINEAR)


def test_all_columns_that_cannot_be_used_are_named_at_once(
    csv: Callable[[str], Path],
) -> None:
    path = csv(
        "id,age,city,since,y\n1,,Oslo,2024-01-31,1\n2,7,Rome,2024-02-01,2\n3,,Oslo,2024-03-01,3\n"
    )

    message = refusal(path, Columns("id", ("y",), features=("age", "city", "since")))

    assert "3 columns cannot be used: 'age': 2 values are missing (first: line 2)" in message
    assert "'city': text; 'since': dates. Fill in or remove what is missing" in message


def test_columns_that_are_left_out_are_said_to_hold_text_or_dates(
    csv: Callable[[str], Path], parquet: Callable[[Mapping[str, Any]], Path]
) -> None:
    days = pa.array([0, 1], pa.date32())
    held = {"city": "text", "since": "dates"}

    assert (
        read(csv("id,city,since,a,y\n1,Oslo,2024-01-31,1,1\n2,Rome,2024-02-01,2,2\n")).left_out
        == held
    )
    columns = {"id": [1, 2], "city": ["a", "b"], "since": days, "a": [1.0, 2.0], "y": [1, 2]}
    assert read(parquet(columns)).left_out == held


@pytest.mark.parametrize(
    ("late", "expected"),
    [
        ("x", "line 60002, column 'a': holds text, other lines hold numbers"),
        ("", "line 60002, column 'a': the value is missing"),
        ("nan", "line 60002, column 'a': the value is not finite"),
        ("0x1F", "line 60002, column 'a': holds text, other lines hold numbers"),
    ],
)
def test_a_value_far_down_is_found_and_named(
    csv: Callable[[str], Path], late: str, expected: str
) -> None:
    """What the first block of a file holds decides how it is read, not what is said of it."""
    lines = [f"{i},{i}.{i % 977:021d},{i}" for i in range(60_000)]
    path = csv("\n".join(["id,a,y", *lines, f"last,{late},1"]) + "\n")
    assert path.stat().st_size > 1 << 20  # of which Arrow looks at first

    assert expected in refusal(path)


def test_reading_says_how_far_it_is(csv: Callable[[str], Path]) -> None:
    said: list[tuple[str, int, int]] = []
    path = csv("id,a,b,y\n1,2,3,4\n")

    read_table(path, COLUMNS, Kind.LINEAR, lambda *stage: said.append(stage))

    assert said == [(f"reading {path.name}", done, of) for done, of in ((0, 0), (1, 1))]


def test_ids_are_read_alone_from_either_form(
    csv: Callable[[str], Path], parquet: Callable[[Mapping[str, Any]], Path]
) -> None:
    rows = csv("note,number,region\nbad \N{SNOWMAN},007,north\n,8,south\n")
    assert read_ids(rows, ["region", "number"]) == (("north", "007"), ("south", "8"))
    columns = {"note": [object is None, None], "number": [7, 8], "region": ["north", "south"]}
    assert read_ids(parquet(columns), ["number"]) == (("7",), ("8",))
    assert read_ids(parquet({"id": pa.array([], pa.string())}), ["id"]) == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("other\n1\n", "has no column 'id'"),
        ("id,id\n1,2\n", "more than one column 'id'"),
        ("id,x\n,2\n", "line 2: the id is empty"),
        ("id,x\n1\n", "line 2: has 1 values"),
        (f"id\n{'x' * 129}\n", "at most 128"),
    ],
)
def test_a_table_without_usable_ids_is_refused(
    csv: Callable[[str], Path], text: str, said: str
) -> None:
    with pytest.raises(InvalidData, match=said):
        read_ids(csv(text), ["id"])


def a_constant_column(path: Path) -> None:
    """Write 800 MB of it, a row group at a time."""
    n = 5_000_000
    part = pa.table({"id": pa.array(["u"] * n), "x": np.zeros(n), "y": np.zeros(n)})
    with pq.ParquetWriter(path, part.schema, compression="zstd") as file:
        for _ in range(8):
            file.write_table(part, row_group_size=n)


def a_long_text(path: Path) -> None:
    """Write a dictionary of one text, which 3,000 rows have: 3 GB."""
    texts = pa.DictionaryArray.from_arrays(np.zeros(3_000, np.int32), ["x" * 1_000_000])
    table = pa.table({"id": texts, "x": np.zeros(3_000), "y": np.zeros(3_000)})
    pq.write_table(table, path, compression="zstd")


def a_long_list(path: Path) -> None:
    """Write one row, with a list of 80 million numbers."""
    lists = pa.ListArray.from_arrays([0, 80_000_000], pa.array(np.zeros(80_000_000)))
    pq.write_table(pa.table({"id": ["u1"], "x": lists, "y": [1.0]}), path, compression="zstd")


@pytest.mark.parametrize("make", [a_constant_column, a_long_text, a_long_list])
def test_a_small_parquet_file_that_unpacks_to_a_huge_table_is_refused_before_it_does(
    make: Callable[[Path], None], tmp_path: Path
) -> None:
    path = tmp_path / "rows.parquet"
    make(path)
    assert path.stat().st_size < 500_000
    pool, before = pa.proxy_memory_pool(pa.system_memory_pool()), pa.default_memory_pool()
    pa.set_memory_pool(pool)
    try:
        with pytest.raises(InvalidData, match="unpacks to more than"):
            read_table(path, COLUMNS, Kind.LINEAR)
    finally:
        pa.set_memory_pool(before)
    assert pool.max_memory() < 3 * parquet_file.SMALL_TABLE_BYTES


def test_a_footer_is_limited_where_only_names_are_read(
    monkeypatch: pytest.MonkeyPatch, parquet: Callable[[Mapping[str, Any]], Path]
) -> None:
    path = parquet({"id": ["u1"], "y": [1.0], "x" * 10_000: [0.5]})
    assert table_file.column_names(path)[:2] == ["id", "y"]
    monkeypatch.setattr(parquet_file, "MAX_FOOTER_BYTES", 1_000)
    with pytest.raises(InvalidData, match="cannot be read"):
        table_file.column_names(path)
