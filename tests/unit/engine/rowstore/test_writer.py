"""Sorting rows into buckets: in bounded memory, with nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np
import pytest

from lethe.engine.errors import InvalidData, StoreUnavailable
from lethe.engine.fit.objective import Rows
from lethe.engine.rowstore import writer as module
from lethe.engine.rowstore.bucket import Bucket
from lethe.engine.rowstore.buckets import Buckets
from lethe.engine.rowstore.files import Directory, Files
from lethe.engine.rowstore.writer import BucketWriter
from tests.support.row_files import Table, drawn, got, opened, scanned, write

pytestmark = pytest.mark.usefixtures("small")


def _rows(n: int, value: float = 1.0) -> Rows:
    return Rows(np.full((n, 2), value), np.ones((n, 1)), np.ones(n))


@pytest.mark.parametrize("owners", [None, ("one", "one"), ("one", "two"), ("one", None)])
@pytest.mark.parametrize("blocks", [1, 2])
def test_a_row_id_that_occurs_twice_is_named(
    files: Files, owners: tuple[str | None, ...] | None, blocks: int
) -> None:
    table = drawn(0, 60, owners=None if owners is None else 3)
    names = table.subjects
    twice = "again \N{ADULT}"
    if owners is not None and names is not None:
        names = (owners[0], *names[1:-1], owners[1])
    table = Table((twice, *table.ids[1:-1], twice), names, table.rows)
    with pytest.raises(InvalidData, match=f"^row id '{twice}' occurs twice; give .* own$"):
        write(files, table, [59][: blocks - 1])


@pytest.mark.parametrize("owners", [None, 0])
def test_one_id_for_all_rows_is_no_endless_split(tmp_path: Path, owners: int | None) -> None:
    table = drawn(0, 300, owners=owners)
    table = Table(("one",) * 300, table.subjects, table.rows)
    with pytest.raises(InvalidData, match="row id 'one' occurs twice"):
        write(Directory(tmp_path), table, [40] * 7)


@pytest.mark.parametrize("subjects", [False, True])
def test_no_rows_are_refused(files: Files, subjects: bool) -> None:
    with BucketWriter(files, 2, 1, subjects=subjects) as writer:
        writer.add([], _rows(0), None)
        with pytest.raises(InvalidData, match=r"^there are no rows$"):
            writer.finish()
    assert files.names() == []


@pytest.mark.parametrize("p", [0, 2])
def test_it_tells_how_many_rows_there_are_and_how_large_they_get(tmp_path: Path, p: int) -> None:
    table = drawn(1, 40, p=p, m=2)
    seen: list[Bucket] = []
    with BucketWriter(Directory(tmp_path), p, 2, subjects=False) as writer:
        for ids, rows, _ in table.blocks([5, 0, 9]):
            writer.add(ids, rows)
        assert writer.count == 40
        z = np.hstack([table.rows.X, table.rows.y])
        assert writer.largest.tolist() == abs(z).max(axis=0).tolist()
        writer.finish(seen.append)
    assert sum(len(rows) for rows in seen) == 40


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_refused_when_they_come(bad: float, files: Files) -> None:
    with BucketWriter(files, 2, 1, subjects=False) as writer:
        with pytest.raises(InvalidData, match="feature of row 0 is not a finite number"):
            writer.add(["a"], _rows(1, bad))
        with pytest.raises(InvalidData, match="weight of row 0"):
            writer.add(["a"], Rows(np.ones((1, 2)), np.ones((1, 1)), np.full(1, bad)))


@pytest.mark.parametrize("owners", [None, 0, 3])
@pytest.mark.parametrize("layout", ["C", "F", "strided"])
def test_arrays_may_lie_in_memory_as_they_like(
    tmp_path: Path, layout: str, owners: int | None
) -> None:
    table = drawn(2, 60, p=3, m=2, owners=owners)
    x, y = table.rows.X, table.rows.y
    if layout == "F":
        x, y = np.asfortranarray(x), np.asfortranarray(y)
    elif layout == "strided":
        x, y = np.repeat(x, 2, axis=1)[:, ::2], np.repeat(y, 2, axis=0)[::2]
    rows = Rows(x, y, table.rows.weight)
    buckets = opened(Directory(tmp_path), Table(table.ids, table.subjects, rows), [30])
    assert scanned(buckets) == table.as_dict()


def test_many_features_and_float32_take_the_room_they_need(tmp_path: Path) -> None:
    sizes = {}
    for narrow in (False, True):
        table = drawn(3, 3, p=20_000, narrow=narrow)
        files = Directory(tmp_path / str(narrow))
        assert scanned(opened(files, table)) == table.as_dict()
        sizes[narrow] = sum(p.stat().st_size for p in (tmp_path / str(narrow)).iterdir())
    assert 1.9 < sizes[False] / sizes[True] < 2.1


@pytest.mark.parametrize("announced", [None, 1, 40])
@pytest.mark.parametrize("owners", [None, 0])
def test_more_rows_than_announced_are_split_into_more_piles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, announced: int | None, owners: int | None
) -> None:
    monkeypatch.setattr(module, "_UNKNOWN_ROWS", 1)
    table = drawn(4, 300, owners=owners)
    held = _sizes_of_tables(monkeypatch)
    with BucketWriter(
        Directory(tmp_path), 2, 1, subjects=owners is not None, rows=announced
    ) as writer:
        for ids, rows, names in table.blocks([40] * 7):
            writer.add(ids, rows, names)
        root = writer.finish()
    assert max(held) < 3 * module.PILE_BYTES
    buckets = Buckets(Directory(tmp_path), root, "model 'm'")
    assert scanned(buckets) == got(buckets.get(table.ids)) == table.as_dict()


def test_very_many_rows_of_one_subject_are_sorted_in_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their places all begin with the same bytes, so they fall into one pile."""
    table = drawn(5, 300)
    names = tuple("prolific" if i % 10 else None for i in range(300))
    table = Table(table.ids, names, table.rows)
    held = _sizes_of_tables(monkeypatch)
    buckets = opened(Directory(tmp_path), table, [40] * 7)
    assert max(held) < 3 * module.PILE_BYTES
    firsts = [part.first for part in buckets.manifest.buckets]
    assert firsts == sorted(set(firsts))
    assert scanned(buckets) == got(buckets.get(table.ids)) == table.as_dict()
    assert set(buckets.rows_of_subjects(["prolific"])["prolific"]) == set(
        table.of_subjects()["prolific"]
    )


def _sizes_of_tables(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the bytes of each table that is read from a pile, to be filled in."""
    sizes: list[int] = []
    read = module._Pile.table

    def noted(pile: Any) -> Any:
        table = read(pile)
        sizes.append(0 if table is None else table.nbytes)
        return table

    monkeypatch.setattr(module._Pile, "table", noted)
    return sizes


def _raise_oserror(*_: object, **__: object) -> None:
    raise OSError(28, "No space left on device")


def _full(dir: object) -> IO[bytes]:  # noqa: ARG001 - as tempfile calls it
    return Path("/dev/full").open("w+b")


def _full_pile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "TemporaryFile", _full)


def _no_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "TemporaryFile", _raise_oserror)


@pytest.mark.parametrize("fault", [_full_pile, _no_files])
@pytest.mark.parametrize("owners", [None, 2])
def test_no_room_for_piles_is_told_in_a_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fault: Callable[[pytest.MonkeyPatch], None],
    owners: int | None,
) -> None:
    fault(monkeypatch)
    table, scratch = drawn(6, 300, owners=owners), tmp_path / "scratch"
    with pytest.raises(StoreUnavailable) as raised:
        write(Directory(tmp_path / "rows"), table, [40] * 7, scratch=scratch)
    assert str(raised.value) == (
        f"rows that are being sorted, at {scratch}: No space left on device; check that the place "
        "exists, has room for all rows, and may be written by this process"
    )


def test_a_scratch_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match=r"at \S*/none: No such file or directory; "):
        write(Directory(tmp_path / "rows"), drawn(7, 9), scratch=tmp_path / "none")


def test_a_failed_write_ends_the_registration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, scratch = Directory(tmp_path / "rows"), tmp_path / "scratch"
    scratch.mkdir()
    put, left = files.put, [3]

    def failing(name: str, data: bytes) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise StoreUnavailable("the disk is full")
        put(name, data)

    monkeypatch.setattr(files, "put", failing)
    with pytest.raises(StoreUnavailable, match="the disk is full"):
        write(files, drawn(8, 300, owners=3), scratch=scratch)
    assert list(scratch.iterdir()) == []
    files.delete(files.names())
    assert not (tmp_path / "rows").exists()


def test_nothing_stays_in_scratch_when_a_reader_fails(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    before = _open_files()
    writer = BucketWriter(
        Directory(tmp_path / "rows"), 2, 1, subjects=True, rows=300, scratch=scratch
    )

    def fail(_: Bucket) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), writer:
        _add_and_finish(writer, fail)
    assert list(scratch.iterdir()) == []
    assert _open_files() == before


def _add_and_finish(writer: BucketWriter, on_bucket: Callable[[Bucket], None]) -> None:
    before = _open_files()
    for ids, rows, names in drawn(9, 300, owners=3).blocks([40] * 7):
        writer.add(ids, rows, names)
    assert _open_files() > before
    writer.finish(on_bucket)


def _open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


_KILLED = """
import sys
from pathlib import Path
from lethe.engine.rowstore import writer
from lethe.engine.rowstore.files import Directory
from tests.support.row_files import drawn

writer._HELD_BYTES = writer.PILE_BYTES = 2_000
table = drawn(0, 300, owners=3)
files = Directory(Path(sys.argv[1]))
options = {"subjects": True, "rows": 300, "scratch": Path(sys.argv[2])}
with writer.BucketWriter(files, 2, 1, **options) as rows:
    for block in table.blocks([40] * 7):
        rows.add(*block)
    print("dealt out", flush=True)
    sys.stdin.read()
"""


def test_kill_leaves_nothing_in_scratch(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    command = [sys.executable, "-c", _KILLED, str(tmp_path / "rows"), str(scratch)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"dealt out\n"
        there = [path.readlink() for path in Path(f"/proc/{process.pid}/fd").iterdir()]
        process.send_signal(signal.SIGKILL)
    assert sum(path.is_relative_to(scratch) for path in there) > 5
    assert list(scratch.iterdir()) == []


def test_sorting_the_rows_of_one_subject_holds_a_few_piles_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BUCKET_BYTES", 20_000)
    monkeypatch.setattr(module, "PILE_BYTES", 200_000)
    monkeypatch.setattr(module, "_HELD_BYTES", 200_000)
    table = drawn(10, 600, p=1_000)  # 4.8 MB
    table = Table(table.ids, ("prolific",) * 600, table.rows)
    write(Directory(tmp_path / "first"), drawn(0, 1))  # what is imported late
    tracemalloc.start()
    write(Directory(tmp_path / "rows"), table, [20] * 30)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 15 * module.PILE_BYTES
