"""Tables of several files, and URLs: read as one table, or refused in one line that names files."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from lethe.consumers.registration.table import foreseen as limits, parquet as parquet_files
from lethe.consumers.registration.table.file import Opened
from lethe.consumers.registration.table.reader import Columns, foresee, read_ids, read_table
from lethe.consumers.registration.table.source import find
from lethe.engine.errors import InvalidData
from lethe.engine.fit.objective import Kind

COLUMNS = Columns(id="id", targets=("y",))


def written(path: Path, columns: Mapping[str, Any]) -> None:
    """Write a file of the kind that its name says."""
    table = pa.table(dict(columns))
    if path.suffix == ".parquet":
        pq.write_table(table, path)
    else:
        rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
        lines = [",".join(map(str, row)) for row in [table.column_names, *rows]]
        path.write_text("\n".join(lines) + "\n")


def part(first: int, last: int, **others: Any) -> dict[str, Any]:
    """Return the columns of some rows."""
    n = range(first, last)
    return {"id": [f"u{i}" for i in n], "a": [i / 2 for i in n], "y": [i * 1.0 for i in n]} | others


def refusal(data: Path | str, columns: Columns = COLUMNS) -> str:
    with pytest.raises(InvalidData) as caught:
        read_table(data, columns, Kind.LINEAR)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_the_files_of_a_directory_are_one_table_in_the_order_of_their_names(
    kind: str, tmp_path: Path
) -> None:
    written(tmp_path / f"b.{kind}", part(3, 5))
    written(tmp_path / f"a.{kind}", part(0, 3))
    for ignored in ("_SUCCESS", "_metadata", f".a.{kind}.crc", "_common_metadata"):
        (tmp_path / ignored).write_bytes(b"other")

    data = read_table(tmp_path, COLUMNS, Kind.LINEAR).data

    assert data.ids == ("u0", "u1", "u2", "u3", "u4")
    assert np.array_equal(data.X[:, 0], np.arange(5) / 2)
    assert np.array_equal(data.y[:, 0], np.arange(5))
    assert np.array_equal(data.with_intercept(), np.column_stack([data.X, np.ones(5)]))
    assert read_ids(tmp_path, ["id"]) == tuple((one,) for one in data.ids)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_columns_may_be_in_another_order_in_each_file(kind: str, tmp_path: Path) -> None:
    written(tmp_path / f"a.{kind}", part(0, 3))
    written(tmp_path / f"b.{kind}", dict(reversed(part(3, 5).items())))

    data = read_table(tmp_path, COLUMNS, Kind.LINEAR).data

    assert data.ids == ("u0", "u1", "u2", "u3", "u4")
    assert np.array_equal(data.X[:, 0], np.arange(5) / 2)


def test_a_url_is_read_as_its_path_is(tmp_path: Path) -> None:
    for kind in ("csv", "parquet"):
        path = tmp_path / f"rows.{kind}"
        written(path, part(0, 4))
        data = read_table(path.as_uri(), COLUMNS, Kind.LINEAR).data
        assert data.ids == ("u0", "u1", "u2", "u3")
        assert data.X[:, 0].tolist() == [0.0, 0.5, 1.0, 1.5]
    (tmp_path / "rows.csv").unlink()
    assert read_table(tmp_path.as_uri(), COLUMNS, Kind.LINEAR).data.ids == data.ids


def test_a_bad_line_of_a_url_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,a,y\n1,1,1\n")
    (tmp_path / "b.csv").write_text("id,a,y\n\n2,x,1\n")
    url = tmp_path.as_uri()

    assert f"{url}, b.csv, line 3, column 'a': holds text" in refusal(url)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("file:///nowhere/rows.csv", "file:///nowhere/rows.csv: cannot be read"),
        ("ftp2://me:secret@host/rows.csv?token=1", "ftp2://host/rows.csv: URLs of file, s3, gs"),
    ],
)
def test_a_url_that_cannot_be_read_is_one_line_without_credentials(
    url: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "fsspec.core", None)  # extras may have brought it
    message = refusal(url)

    assert expected in message
    assert "secret" not in message
    assert "token" not in message


def test_other_urls_are_read_by_fsspec_if_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not a dependency; Arrow's adapter of it is replaced together with it."""
    written(tmp_path / "rows.csv", part(0, 2))
    core = ModuleType("fsspec.core")
    core.url_to_fs = lambda url: ("theirs", url.replace("mine://", str(tmp_path) + "/"))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "fsspec", ModuleType("fsspec"))
    monkeypatch.setitem(sys.modules, "fsspec.core", core)
    monkeypatch.setattr(fs, "FSSpecHandler", lambda theirs: theirs)
    monkeypatch.setattr(fs, "PyFileSystem", lambda _: fs.LocalFileSystem())

    assert read_table("mine://rows.csv", COLUMNS, Kind.LINEAR).data.ids == ("u0", "u1")


class TestRefusals:
    def test_of_files_with_other_columns(self, tmp_path: Path) -> None:
        written(tmp_path / "a.csv", part(0, 3))
        written(tmp_path / "b.csv", part(3, 5, extra=[1, 2]))

        message = refusal(tmp_path)

        assert f"{tmp_path}/a.csv and {tmp_path}/b.csv differ: only one of them has" in message
        assert "'extra'" in message

    def test_of_files_with_other_types(self, tmp_path: Path) -> None:
        written(tmp_path / "a.parquet", part(0, 3))
        written(tmp_path / "b.parquet", part(3, 5, id=[3, 4]))

        message = refusal(tmp_path)

        assert "a.parquet and" in message
        assert "column 'id' is string in the first and int64 in the second" in message

    def test_of_a_column_that_one_parquet_file_lacks(self, tmp_path: Path) -> None:
        written(tmp_path / "a.parquet", part(0, 3, extra=[1, 2, 3]))
        written(tmp_path / "b.parquet", part(3, 5))

        assert "'extra' is int64 in the first and missing in the second" in refusal(tmp_path)

    @pytest.mark.parametrize("kind", ["csv", "parquet"])
    def test_of_an_id_in_two_files(self, kind: str, tmp_path: Path) -> None:
        written(tmp_path / f"a.{kind}", part(0, 3))
        written(tmp_path / f"b.{kind}", part(2, 4))

        message = refusal(tmp_path)

        places = {"csv": ("line 4", "line 2"), "parquet": ("row 3", "row 1")}[kind]
        expected = f"{tmp_path}: a.{kind}, {places[0]} and b.{kind}, {places[1]} have the same id"
        assert expected in message
        assert "u2" not in message

    @pytest.mark.parametrize("kind", ["csv", "parquet"])
    def test_of_a_file_without_rows(self, kind: str, tmp_path: Path) -> None:
        written(tmp_path / f"a.{kind}", part(0, 3))
        empty = {name: pa.array([], pa.array(values).type) for name, values in part(0, 1).items()}
        written(tmp_path / f"b.{kind}", empty)

        assert f"{tmp_path}/b.{kind}: the file has no rows; remove it" in refusal(tmp_path)

    def test_of_a_file_without_a_byte(self, tmp_path: Path) -> None:
        written(tmp_path / "a.csv", part(0, 3))
        (tmp_path / "b.csv").touch()

        assert f"{tmp_path}/b.csv: the file is empty" in refusal(tmp_path)

    def test_of_a_damaged_file(self, tmp_path: Path) -> None:
        written(tmp_path / "a.parquet", part(0, 3))
        (tmp_path / "b.parquet").write_bytes(b"PAR1")

        assert f"{tmp_path}/b.parquet: is not readable as Parquet" in refusal(tmp_path)

    def test_of_two_kinds_of_files(self, tmp_path: Path) -> None:
        written(tmp_path / "a.csv", part(0, 3))
        written(tmp_path / "b.parquet", part(3, 5))

        assert "holds files of two kinds, a.csv and b.parquet" in refusal(tmp_path)

    def test_of_something_else_in_the_directory(self, tmp_path: Path) -> None:
        written(tmp_path / "a.csv", part(0, 3))
        (tmp_path / "b.csv").mkdir()
        assert "is a directory that holds b.csv, which is a directory, too" in refusal(tmp_path)
        (tmp_path / "a.csv.gz").touch()
        assert "a.csv.gz, which is no .parquet or .csv file" in refusal(tmp_path)

    def test_of_too_many_files(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("lethe.consumers.registration.table.source.MAX_FILES", 1)
        written(tmp_path / "a.csv", part(0, 3))
        written(tmp_path / "b.csv", part(3, 5))

        assert "holds 2 files, more than 1" in refusal(tmp_path)

    @pytest.mark.parametrize("kind", ["csv", "parquet"])
    def test_of_a_value_far_down(self, kind: str, tmp_path: Path) -> None:
        written(tmp_path / f"a.{kind}", part(0, 3, b=[0.5, 1.5, 2.5]))
        written(tmp_path / f"b.{kind}", part(3, 5, b=[3.5, float("nan")]))

        place = {"csv": "line 3", "parquet": "row 2"}[kind]
        assert f"{tmp_path}, b.{kind}, {place}, column 'b': the value is not finite" in (
            refusal(tmp_path)
        )

    def test_of_whole_numbers_that_would_be_rounded(self, tmp_path: Path) -> None:
        written(tmp_path / "a.parquet", part(0, 2, b=[1, 2]))
        written(tmp_path / "b.parquet", part(2, 4, b=[3, 2**53 + 1]))

        assert "column 'b': a whole number is beyond 2^53" in refusal(tmp_path)

    @pytest.mark.parametrize("kind", ["csv", "parquet"])
    def test_of_a_file_that_vanishes(self, kind: str, tmp_path: Path) -> None:
        written(tmp_path / f"a.{kind}", part(0, 3))
        written(tmp_path / f"b.{kind}", part(3, 5))
        foreseen = foresee(tmp_path, COLUMNS, Kind.LINEAR)
        (tmp_path / f"b.{kind}").unlink()

        with pytest.raises(InvalidData, match=rf"b\.{kind}: cannot be read"):
            read_table(foreseen, COLUMNS, Kind.LINEAR)

    @pytest.mark.parametrize("kind", ["csv", "parquet"])
    def test_of_a_file_that_grows_meanwhile(self, kind: str, tmp_path: Path) -> None:
        written(tmp_path / f"a.{kind}", part(0, 3))
        foreseen = foresee(tmp_path, COLUMNS, Kind.LINEAR)
        written(tmp_path / f"a.{kind}", part(0, 4))

        with pytest.raises(InvalidData, match=rf"a\.{kind}: was changed while it was read"):
            read_table(foreseen, COLUMNS, Kind.LINEAR)


class TestLimits:
    """They are judged before a row is read."""

    @pytest.fixture(autouse=True)
    def unread(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def blocks(*_: object) -> None:
            raise AssertionError("rows were read")

        monkeypatch.setattr(Opened, "blocks", blocks)
        monkeypatch.setattr(Opened, "as_text", blocks)

    @pytest.mark.parametrize(("kind", "least"), [("csv", "at least "), ("parquet", "")])
    def test_of_numbers(
        self, kind: str, least: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(limits, "MAX_NUMBERS", 9)
        written(tmp_path / f"a.{kind}", part(0, 3, b=[0.5, 1.5, 2.5]))
        written(tmp_path / f"b.{kind}", part(3, 5, b=[0.5, 1.5]))

        assert f"{tmp_path}: {least}5 rows of 2 features are more than 9 numbers" in (
            refusal(tmp_path)
        )
        features = Columns("id", ("y",), ("a",))
        assert foresee(tmp_path, features, Kind.LINEAR).rows == 5

    def test_of_values_over_all_files(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(parquet_files, "MAX_VALUES", 14)
        written(tmp_path / "a.parquet", part(0, 3))
        written(tmp_path / "b.parquet", part(3, 5))

        assert "claims 5 rows of 3 columns, more than 14 values" in refusal(tmp_path)

    def test_counting_lines_ends_at_the_limit(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(limits, "MAX_NUMBERS", 1000)
        monkeypatch.setattr("lethe.consumers.registration.table.delimited._COUNTED_BYTES", 10_000)
        (tmp_path / "a.csv").write_text("id,a,y\n" + "u,1,1\n" * 100_000)

        message = refusal(tmp_path)

        assert "at least 1" in message
        assert int(message.split("at least ")[1].split()[0]) < 5_000


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("last", [True, False])
def test_lines_are_counted_however_they_end(
    end: str, last: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for size in (1, 2, 3, 1 << 20):
        monkeypatch.setattr("lethe.consumers.registration.table.delimited._COUNTED_BYTES", size)
        lines = ["id,a,y", "1,1,1", "2,2,2", "3,3,3"]
        (tmp_path / "a.csv").write_bytes((end.join(lines) + end * last).encode())
        assert Opened(tmp_path).rows(100) == 3


def test_features_that_a_csv_file_has_as_text_take_their_place(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("id,flag,a,y,b\n1,true,1,1,5\n2,false,2,2,6\n")

    data = read_table(path, COLUMNS, Kind.LINEAR).data

    assert data.feature_names == ("flag", "a", "b")
    assert data.X.tolist() == [[1.0, 1.0, 5.0], [0.0, 2.0, 6.0]]


def test_rows_that_are_left_out_leave_the_constant_column(tmp_path: Path) -> None:
    written(tmp_path / "a.csv", part(0, 4))
    data = read_table(tmp_path, COLUMNS, Kind.LINEAR).data.without(frozenset({"u1"}))

    assert data.with_intercept().tolist() == [[0.0, 1.0], [1.0, 1.0], [1.5, 1.0]]
    assert data.X.base is data.design or data.X.base is data.with_intercept().base


def test_files_are_found_by_name(tmp_path: Path) -> None:
    for name in ("part-10.csv", "part-2.csv", "part-1.CSV"):
        written(tmp_path / name, part(0, 1))

    assert [file.within for file in find(tmp_path).files] == [
        "part-1.CSV, ", "part-10.csv, ", "part-2.csv, "
    ]  # fmt: skip
