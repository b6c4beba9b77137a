"""Where files lie: what is written is there, and each fault is told in a line."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from lethe.engine.errors import CorruptState, InvalidData, StoreUnavailable
from lethe.engine.rowstore import files
from lethe.engine.rowstore.buckets import Buckets
from lethe.engine.rowstore.files import Directory, Files, ObjectStorage, files_at
from tests.support.row_files import drawn, scanned, where, write

A, B, C = (letter * 64 for letter in "abc")
"""Names of files are digests; nothing else is listed, or removed."""


@pytest.fixture(params=["directory", "local", "mock"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Files:
    return where(request.param, tmp_path)


def test_what_was_put_is_there_until_it_is_deleted(place: Files) -> None:
    assert (place.names(), place.get(A)) == ([], None)
    place.delete([A])
    for _ in range(2):  # what is there already may be put again
        place.put(B, b"")
        place.put(A, b"\0\n" * 100_000)
    assert place.names() == [A, B]
    assert (place.get(A), place.get(B), place.get(C)) == (b"\0\n" * 100_000, b"", None)
    place.delete([A, C])
    assert (place.names(), place.get(A)) == ([B], None)
    place.delete([B])
    assert place.names() == []
    place.put(A, b"1")
    assert place.get(A) == b"1"


def test_rows_lie_in_every_place_as_in_any_other(place: Files) -> None:
    table = drawn(0, 200, owners=4)
    buckets = Buckets(place, write(place, table, [20]), "model 'm'")
    assert scanned(buckets) == table.as_dict()
    left = buckets.rewritten(table.ids[:50])
    assert left.remove_orphans(0.0) >= 3
    assert scanned(left) == table.without(table.ids[:50])


def test_a_directory_is_removed_with_its_last_file(tmp_path: Path) -> None:
    place = Directory(tmp_path / "rows" / "m")
    place.put(A, b"1")
    assert (tmp_path / "rows" / "m").stat().st_mode & 0o777 == 0o700
    place.delete([A])
    assert not (tmp_path / "rows" / "m").exists()
    assert (tmp_path / "rows").exists()


def test_folders_among_the_files_are_left_alone(tmp_path: Path) -> None:
    for place, folder in (
        (Directory(tmp_path), tmp_path),
        (where("local", tmp_path / "2"), tmp_path / "2" / "local" / "rows"),
    ):
        place.put(A, b"1")
        (folder / "lost+found").mkdir()
        assert place.names() == [A]
        place.delete(place.names())
        assert [path.name for path in folder.iterdir()] == ["lost+found"]


@pytest.mark.parametrize("step", ["rename", "fsync"])
def test_a_crash_before_a_file_is_whole_leaves_what_the_next_pass_removes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    place = Directory(tmp_path / "rows")
    buckets = Buckets(place, write(place, drawn(1, 9)), "model 'm'")
    before = place.names()

    class Died(BaseException):
        pass

    def die(*_: object) -> None:
        raise Died

    with monkeypatch.context() as patched:
        patched.setattr(*((Path, "rename", die) if step == "rename" else (os, "fsync", die)))
        with pytest.raises(Died):
            place.put("f" * 64, b"half")
    [half] = set(place.names()) - set(before)
    assert half.startswith("." + "f" * 64)
    assert place.get("f" * 64) is None
    assert buckets.remove_orphans(0.0) == 1
    assert place.names() == before


def test_each_name_is_on_the_disk_after_its_content_and_before_put_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New directories, too: a crash may lose one whose parent was not written."""
    order: list[str] = []
    rename = Path.rename

    def noted(file: int) -> None:
        path = Path(f"/proc/self/fd/{file}").readlink()
        order.append(str(path).removeprefix(str(tmp_path)))

    def renamed(path: Path, to: Path) -> Any:
        order.append(f"to {to.name}")
        return rename(path, to)

    monkeypatch.setattr(os, "fsync", noted)
    monkeypatch.setattr(Path, "rename", renamed)
    place = Directory(tmp_path / "rows" / "m")
    place.put(A, b"1")
    assert set(order[:2]) == {"", "/rows"}
    assert order[2].startswith(f"/rows/m/.{A}.")
    assert order[3:] == [f"to {A}", "/rows/m"]
    order.clear()
    place.put(B, b"1")
    assert len(order) == 3
    order.clear()
    place.delete([B])
    assert order == ["/rows/m"]


def test_threads_may_put_the_same_file(tmp_path: Path) -> None:
    place, data = Directory(tmp_path / "rows"), b"x" * 1_000_000
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _: place.put(A, data), range(32)))
    assert place.names() == [A]


def test_what_a_crash_left_is_in_nobodys_way(tmp_path: Path) -> None:
    """In containers, processes have the same number again and again, and objects the same place."""
    data = b"x" * 100
    place = Directory(tmp_path)
    (tmp_path / f".{A}.{os.getpid()}-{id(data):x}").write_bytes(b"half")
    place.put(A, data)
    assert place.get(A) == data


def _one_line(raised: pytest.ExceptionInfo[StoreUnavailable], url: str, reason: str) -> None:
    assert str(raised.value) == (
        f"rows at {url}: {reason}; check that the place exists, has room, and may be read and "
        "written by this process"
    )


@pytest.mark.parametrize("step", ["write", "fsync", "rename"])
def test_a_full_disk_is_told_and_leaves_no_half_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    place = Directory(tmp_path / "rows")
    place.put(A, b"1")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    class Full:
        def __init__(self, file: Any) -> None:
            self._file = file
            self.write = full

        def __enter__(self) -> Full:
            return self

        def __exit__(self, *_: object) -> None:
            self._file.close()

    with monkeypatch.context() as patched:
        if step == "write":
            patched.setattr(
                files, "open", lambda path, *_, **__: Full(Path.open(path, "xb")), raising=False
            )
        else:
            patched.setattr(*((os, "fsync", full) if step == "fsync" else (Path, "rename", full)))
        with pytest.raises(StoreUnavailable) as raised:
            place.put(B, b"2")
    _one_line(raised, str(tmp_path / "rows"), "No space left on device")
    assert place.names() == [A]


@contextmanager
def _nobody() -> Iterator[None]:
    """Run without root's rights, which no permission stops."""
    if os.geteuid():
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_place_that_may_not_be_written_or_read_is_told(tmp_path: Path) -> None:
    place = Directory(tmp_path / "rows")
    place.put(A, b"1")
    (tmp_path / "rows").chmod(0o500)
    (tmp_path / "rows" / A).chmod(0)
    asks: list[Callable[[], object]] = [
        lambda: place.put(B, b"1"),
        lambda: place.get(A),
        lambda: place.delete([A]),
    ]
    with _nobody():
        for ask in asks:
            with pytest.raises(StoreUnavailable) as raised:
                ask()
            _one_line(raised, str(tmp_path / "rows"), "Permission denied")


@pytest.mark.parametrize("kind", ["directory", "local", "mock"])
def test_a_place_that_is_a_file_is_told(tmp_path: Path, kind: str) -> None:
    place = where(kind, tmp_path)
    if isinstance(place, ObjectStorage):
        at = place._root.rpartition("/")[0]
        if at:
            place._system.create_dir(at)
        with place._system.open_output_stream(place._root) as stream:
            stream.write(b"a file")
    else:
        (tmp_path / "rows").write_bytes(b"a file")
    with pytest.raises(StoreUnavailable) as raised:
        place.put(A, b"1")
    assert str(raised.value).startswith(f"rows at {place.url}: ")
    assert "\n" not in str(raised.value)
    if kind != "mock":  # which says that there is no such file
        with pytest.raises(StoreUnavailable):
            place.get(A)
        with pytest.raises(StoreUnavailable):
            place.names()


def test_storage_that_does_not_answer_is_told_in_one_line() -> None:
    class Down:
        def __getattr__(self, name: str) -> Any:
            def ask(*_: object, **__: object) -> None:
                raise OSError("When reading: AWS Error NETWORK_CONNECTION\nrequest id: 7")

            return ask

    place = ObjectStorage("s3://bucket/rows", Down(), "bucket/rows")
    for ask in (
        lambda: place.put(A, b"1"),
        lambda: place.get(A),
        lambda: place.delete([A]),
        place.names,
    ):
        with pytest.raises(StoreUnavailable) as raised:
            ask()
        _one_line(raised, "s3://bucket/rows", "When reading: AWS Error NETWORK_CONNECTION")
    with pytest.raises(StoreUnavailable, match="NETWORK_CONNECTION; check that"):
        Buckets(place, "0" * 64, "model 'm'")


def test_storage_is_asked_once_to_put_a_file() -> None:
    """A request for the directory would cost as much, and leave an object of that name."""
    asked: list[str] = []
    place = where("mock", Path())
    assert isinstance(place, ObjectStorage)
    place.put(A, b"1")
    system = place._system

    class Counting:
        def __getattr__(self, name: str) -> Any:
            asked.append(name)
            return getattr(system, name)

    ObjectStorage(place.url, Counting(), place._root).put(B, b"2")
    assert asked == ["open_output_stream"]
    assert place.names() == [A, B]


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("/data/rows", "/data/rows/m/1"),
        ("file:///data/my%20rows", "/data/my rows/m/1"),
        ("/data/my%20rows", "/data/my%20rows/m/1"),
        ("/data/a?b#c", "/data/a?b#c/m/1"),
    ],
)
def test_a_path_and_its_url_name_one_directory(url: str, path: str) -> None:
    place = files_at(url, "m", "1")
    assert isinstance(place, Directory)
    assert place.url == path


def test_a_relative_path_stays_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert files_at("rows", "m").url == str(tmp_path / "rows" / "m")


@pytest.mark.parametrize(
    "url", ["ftp://host/rows", "s4://key:secret@b/r", "hdfs://h:1/x", "http://u:secret@[x"]
)
def test_a_url_of_no_storage_names_those_that_there_are(url: str) -> None:
    with pytest.raises(InvalidData, match=r"file://, s3://, gs:// or abfss://$") as raised:
        files_at(url, "m")
    assert "secret" not in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("s3://key:secret@bucket/rows/?region=eu-west-1", "s3://bucket/rows/m"),
        ("s3://bucket/rows?region=eu-west-1&scheme=http", "s3://bucket/rows/m"),
        ("gs://bucket/rows", "gs://bucket/rows/m"),
        ("abfss://box@a.dfs.core.windows.net/rows", "abfss://box@a.dfs.core.windows.net/rows/m"),
    ],
)
def test_messages_name_the_storage_without_secrets(url: str, shown: str) -> None:
    place = files_at(url, "m")
    assert isinstance(place, ObjectStorage)
    assert place.url == shown
    assert place._root == ("box" if "box" in url else "bucket") + "/rows/m"


def test_a_wrong_option_of_a_url_is_named_without_its_secrets() -> None:
    with pytest.raises(InvalidData, match=r"^rows at s3://b/r: .*colour.*; give a dir") as raised:
        files_at("s3://key:secret@b/r?region=eu-west-1&colour=red", "m")
    assert "secret" not in str(raised.value)


def test_storage_that_does_not_tell_its_region_is_unavailable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Unreachable:
        @staticmethod
        def from_uri(_: str) -> None:
            raise OSError("When resolving region for bucket 'b': NETWORK_CONNECTION")

    monkeypatch.setattr(fs, "FileSystem", Unreachable)
    with pytest.raises(StoreUnavailable, match=r"^rows at s3://b/r: When resolving region"):
        files_at("s3://b/r", "m")


def test_a_file_that_is_gone_is_not_an_unavailable_store(place: Files) -> None:
    with pytest.raises(CorruptState, match=f"file {'0' * 64} of its rows is missing at "):
        Buckets(place, "0" * 64, "model 'm'")


@pytest.mark.parametrize("kind", ["directory", "local", "mock"])
def test_folders_are_listed_and_are_no_files(kind: str, tmp_path: Path) -> None:
    place = where(kind, tmp_path)
    assert place.folders() == []
    place.put(A, b"a")
    assert place.folders() == []
    if kind == "directory":
        (tmp_path / "rows" / "more").mkdir()
    elif kind == "local":
        (tmp_path / "local" / "rows" / "more").mkdir()
    else:
        return
    assert (place.folders(), place.names()) == (["more"], [A])
