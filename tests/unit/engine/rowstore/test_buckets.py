"""Rows in buckets beside a plain dict of the same rows."""

from __future__ import annotations

import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from lethe.engine.fit.objective import Rows
from lethe.engine.rowstore import buckets as module, keys
from lethe.engine.rowstore.bucket import pack_bucket
from lethe.engine.rowstore.buckets import Buckets
from lethe.engine.rowstore.files import Directory, Files
from lethe.engine.rowstore.manifest import digest_of
from tests.support.row_files import Table, drawn, got, opened, scanned, write

pytestmark = pytest.mark.usefixtures("small")

UNKNOWN = ["", "not a row", "0", "\N{ADULT}" * 128]

SHAPES = [
    pytest.param({"p": 0}, id="no features"),
    pytest.param({"p": 1}, id="one feature"),
    pytest.param({"p": 3, "m": 2}, id="two targets"),
    pytest.param({"p": 3, "narrow": True}, id="float32"),
    pytest.param({"p": 2, "owners": 6}, id="subjects"),
    pytest.param({"p": 0, "m": 2, "owners": 1}, id="one subject"),
    pytest.param({"p": 2, "owners": 0}, id="subjects of nobody"),
    pytest.param({"p": 2, "owners": 3, "letters": 125}, id="long ids"),
]


@pytest.mark.parametrize("shape", SHAPES)
def test_every_row_comes_back_bit_by_bit(files: Files, shape: dict[str, Any]) -> None:
    table = drawn(0, 60, **shape)
    buckets = opened(files, table, [1, 0, 40])
    manifest = buckets.manifest
    assert (manifest.rows, manifest.p, manifest.m) == (60, table.rows.X.shape[1], shape.get("m", 1))
    assert len(manifest.buckets) > 5
    assert scanned(buckets) == got(buckets.get([*table.ids, *UNKNOWN])) == table.as_dict()
    assert buckets.get([]) == buckets.get(UNKNOWN) == {}


def test_the_digest_of_a_bucket_confirms_no_guess_of_its_rows(files: Files) -> None:
    [bucket, *_] = opened(files, drawn(0, 60, p=3)).scan()
    assert digest_of(pack_bucket(bucket)) != digest_of(pack_bucket(bucket))


@pytest.mark.parametrize("shape", SHAPES)
def test_erased_rows_go_and_no_other(files: Files, shape: dict[str, Any]) -> None:
    table = drawn(1, 30, **shape)
    buckets = opened(files, table)
    gone: set[str] = set()
    for start in range(0, 30, 11):  # until all have gone
        erased = table.ids[start : start + 11]
        gone.update(erased)
        rewritten = buckets.rewritten([*erased, *UNKNOWN])
        assert rewritten.rewritten([*gone, *UNKNOWN]).root == rewritten.root
        assert scanned(rewritten) == got(rewritten.get(table.ids)) == table.without(gone)
        assert rewritten.manifest.rows == len(table.ids) - len(gone)
        assert scanned(buckets, erased) == scanned(rewritten)
        buckets = rewritten
    assert (buckets.manifest.buckets, buckets.manifest.index or ()) == ((), ())
    buckets.remove_orphans(0.0)
    assert set(files.names()) == {buckets.root, *(part.digest for part in buckets.manifest.former)}
    assert {row for bucket in buckets.former() for row in bucket.ids} == {
        row for rows in table.of_subjects().values() for row in rows
    }
    assert Buckets(files, buckets.root, "model 'm'").get(table.ids) == {}


def test_the_old_root_stays_until_it_is_removed(files: Files) -> None:
    table = drawn(2, 60, owners=4)
    old = opened(files, table)
    before = set(files.names())
    new = old.rewritten(table.ids[:9])
    assert before < set(files.names())
    assert scanned(Buckets(files, old.root, "old")) == table.as_dict()
    gone = old.files() - new.files()
    assert old.remove_all_but(new) == len(gone) > 0
    assert set(files.names()) == {new.root, *new.manifest.files()}
    assert scanned(Buckets(files, new.root, "new")) == table.without(table.ids[:9])
    assert new.remove_orphans(0.0) == 0


def test_a_bucket_without_erased_rows_is_not_written_again(tmp_path: Path) -> None:
    """Two versions of pyarrow write the same rows as other bytes: none is written for nothing."""
    table = drawn(3, 60)
    buckets = opened(Directory(tmp_path / "rows"), table)
    progress: list[tuple[int, int]] = []
    names = [path.name for path in (tmp_path / "rows").iterdir()]
    for name in names:
        (tmp_path / "rows" / name).chmod(0o400)
    written = {name: (tmp_path / "rows" / name).stat().st_ino for name in names}
    buckets.rewritten(UNKNOWN, progress=lambda done, of: progress.append((done, of)))
    again = {path.name: path.stat().st_ino for path in (tmp_path / "rows").iterdir()}
    del written[buckets.root], again[buckets.root]
    assert again == written
    assert [done for done, _ in progress] == list(range(1, progress[-1][1] + 1))


@pytest.mark.parametrize("shape", [{"owners": 3}, {}, {"narrow": True}])
def test_no_file_holds_what_was_erased(tmp_path: Path, shape: dict[str, Any]) -> None:
    rng = np.random.default_rng(4)
    table = drawn(4, 60, **shape)
    values = rng.random((60, 2)).astype(np.float32 if "narrow" in shape else float).astype(float)
    table = Table(table.ids, table.subjects, Rows(values, rng.random((60, 1)), rng.random(60) + 1))
    files = Directory(tmp_path / "rows")
    buckets = opened(files, table)
    erased = range(7, 60, 3)
    gone = {table.ids[i] for i in erased}
    rewritten = buckets.rewritten(gone)
    rewritten.remove_orphans(0.0)
    everything = b""
    for name in files.names():
        data = (tmp_path / "rows" / name).read_bytes()
        everything += data
        if data.startswith(b"PAR1"):  # what is compressed in it, too
            columns = pq.read_table(tmp_path / "rows" / name).to_pydict()
            for column in columns.values():
                everything += b"".join(
                    value
                    if isinstance(value, bytes)
                    else np.float64(value).tobytes()
                    if isinstance(value, float)
                    else str(value).encode()
                    for value in column
                )

    def traces(i: int) -> list[bool]:
        rows, key = table.rows, keys.key_of(buckets.manifest.salt, table.ids[i])
        x = rows.X[i].astype("<f4") if "narrow" in shape else rows.X[i]
        sought = [x[0], x[1], rows.y[i], rows.weight[i], key]
        texts = [table.ids[i].encode(), key.hex().encode()]
        return [np.asarray(s).tobytes() in everything for s in sought[:4]] + [
            s in everything for s in (key, *texts[:1])
        ]

    owners = table.subjects or (None,) * 60
    for i in range(60):
        assert traces(i)[:4] == [i not in erased] * 4
        # Of a subject's rows it is known forever whose they were.
        assert traces(i)[4:] == [i not in erased or owners[i] is not None] * 2


@given(
    seed=st.integers(0, 2**32),
    n=st.integers(1, 70),
    p=st.integers(0, 3),
    m=st.integers(1, 2),
    owners=st.none() | st.integers(0, 5),
    narrow=st.booleans(),
    data=st.data(),
)
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_is_done_the_rows_are_those_of_a_dict(
    seed: int, n: int, p: int, m: int, owners: int | None, narrow: bool, data: st.DataObject
) -> None:
    table = drawn(seed, n, p=p, m=m, owners=owners, narrow=narrow)
    sizes = data.draw(st.lists(st.integers(0, 30), max_size=4))
    other = drawn(seed + 1, 40, p=p, m=m, owners=owners)  # some of whose ids the table has, too
    names = [*table.ids[:10], *other.ids[10:]][: len(other.ids)]
    some = st.lists(st.sampled_from([*table.ids, *UNKNOWN]), max_size=20)
    with tempfile.TemporaryDirectory() as folder:
        files = Directory(Path(folder) / "rows")
        buckets, left = opened(files, table, sizes), table.as_dict()
        owned = table.of_subjects()
        for erased in data.draw(st.lists(some, max_size=3)):
            first = data.draw(st.integers(0, len(names) - 1))
            part = slice(first, data.draw(st.integers(first, len(names))))
            added = other.named(names)[part]
            gone = {*erased, *added.ids}
            buckets = buckets.rewritten(
                gone, buckets.ordered(added.ids, added.rows, added.subjects) if added.ids else None
            )
            for row in added.ids:  # unlike with a model, it may become another one's
                for rows in owned.values() if row in left else ():
                    rows.discard(row)
            left = {row: value for row, value in left.items() if row not in gone}
            left |= added.as_dict()
            for owner, rows in added.of_subjects().items():
                owned.setdefault(owner, set()).update(rows)
            buckets.remove_orphans(0.0)
            manifest = buckets.manifest
            assert max((part.rows for part in manifest.buckets), default=0) <= 24
            assert max((part.rows for part in manifest.index or ()), default=0) <= 14
        assert scanned(buckets) == left
        asked = data.draw(some | st.lists(st.sampled_from(names), max_size=20))
        assert got(buckets.get(asked)) == {row: left[row] for row in asked if row in left}
        owned = {owner: rows for owner, rows in owned.items() if rows}
        found = buckets.rows_of_subjects([*owned, "nobody"])
        assert {owner: set(rows) for owner, rows in found.items()} == owned
        assert sum(len(rows) for rows in found.values()) == sum(map(len, owned.values()))


def test_blocks_in_any_order_give_the_same_rows(files: Files) -> None:
    table = drawn(5, 50, owners=3)
    order = np.random.default_rng(5).permutation(50)
    names = table.subjects or ()
    shuffled = Table(
        tuple(table.ids[i] for i in order),
        tuple(names[i] for i in order),
        table.rows.take(order),
    )
    first, second = opened(files, table, [3]), opened(files, shuffled, [30, 1])
    assert scanned(first) == scanned(second) == table.as_dict()
    assert first.root != second.root  # each registration has a salt of its own
    assert scanned(first) == scanned(second)


def test_rows_of_one_subject_lie_in_buckets_side_by_side(files: Files) -> None:
    table = drawn(6, 120, owners=40)
    names = tuple("prolific" if i % 2 else name for i, name in enumerate(table.subjects or ()))
    table = Table(table.ids, names, table.rows)
    buckets = opened(files, table, [7, 40])
    group = keys.group_of_subject(buckets.manifest.salt, "prolific")
    assert 8 < len(buckets.manifest.buckets_of_group(group)) < len(buckets.manifest.buckets)
    found = buckets.rows_of_subjects(list(table.of_subjects()))
    assert {owner: set(rows) for owner, rows in found.items()} == table.of_subjects()
    assert got(buckets.get(table.ids)) == table.as_dict()
    prolific = buckets.rows_of_subjects(["prolific", "nobody"])
    rewritten = buckets.rewritten(prolific["prolific"])
    former = rewritten.rows_of_subjects(["prolific"])["prolific"]
    assert set(former) == set(prolific["prolific"])  # a model never forgets whose its rows were
    assert rewritten.get(former) == {}
    assert scanned(rewritten) == table.without(prolific["prolific"])


def test_subjects_and_rows_whose_hashes_agree_are_told_apart(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some 2^32 subjects have two that share a group: here all do, and the rows of nobody."""
    group = b"together"
    monkeypatch.setattr(keys, "group_of_subject", lambda _, __: group)
    monkeypatch.setattr(keys, "group_of_key", lambda _: group)
    monkeypatch.setattr(module, "group_of_subject", lambda _, __: group)
    table = drawn(7, 60, owners=4)
    buckets = opened(files, table)
    found = buckets.rows_of_subjects([*table.of_subjects(), "nobody"])
    assert {owner: set(rows) for owner, rows in found.items()} == table.of_subjects()
    assert got(buckets.get(table.ids)) == table.as_dict()
    left = scanned(buckets.rewritten(table.ids[::2]))
    assert left == table.without(table.ids[::2])


def test_without_subjects_nobody_has_rows(files: Files) -> None:
    assert opened(files, drawn(8, 9)).rows_of_subjects(["a"]) == {}


def itself(rows: Rows) -> Rows:
    return rows


def test_blocks_have_the_column_of_the_intercept(files: Files) -> None:
    table = drawn(9, 30, p=2)
    buckets = opened(files, table)
    for intercept in (False, True):
        found = list(buckets.each(itself, intercept=intercept, without_rows=table.ids[:10]))
        blocks = [block for _, block in found]
        assert [rows for rows, _ in found] == [len(block) for block in blocks]
        assert sum(len(block) for block in blocks) == 20
        assert {block.X.shape[1] for block in blocks} == {2 + intercept}
        assert all((block.X[:, 2:] == 1).all() for block in blocks)


def test_many_threads_read_and_rewrite_one_root(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = drawn(10, 80, owners=5)
    root = write(files, table)
    pair = [Buckets(files, root, "model 'm'") for _ in range(2)]
    monkeypatch.setattr(module, "_CACHED_BYTES", 2_000)

    def work(i: int) -> None:
        buckets = pair[i % 2]
        asked = table.ids[i : i + 30]
        assert set(buckets.get(asked)) == set(asked)
        assert scanned(buckets.rewritten(asked)) == table.without(asked)
        assert set(buckets.rows_of_subjects(["owner 0 \N{ADULT}"])["owner 0 \N{ADULT}"])

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(8)))
    for buckets in pair:
        kept = buckets._cache.values()
        assert buckets._cached == sum(size for _, size in kept) <= 2_000
    assert scanned(pair[0]) == table.as_dict()


@pytest.mark.parametrize("shape", [{"letters": 125}, {"letters": 1}, {"p": 200}])
def test_what_is_kept_in_memory_is_counted_as_it_is(tmp_path: Path, shape: dict[str, Any]) -> None:
    table = drawn(11, 60, owners=2, **shape)
    buckets = opened(Directory(tmp_path), table)
    buckets.get(table.ids)
    text = sum(len(row.encode()) for row in table.ids)
    assert buckets._cached > text + table.rows.X.nbytes + table.rows.y.nbytes
    assert buckets._cached < 2 * (text + table.rows.X.nbytes) + 60 * 150


def test_a_pass_that_is_given_up_ends_its_readers(files: Files) -> None:
    table = drawn(12, 60)
    passing = opened(files, table).scan()
    next(passing)
    passing.close()  # type: ignore[attr-defined]
    assert list(passing) == []
