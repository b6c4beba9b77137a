"""Rows that are inserted into models whose rows are in files, and corrected there."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from lethe.consumers.audit.health.models import check_model
from lethe.consumers.audit.verify import verify
from lethe.consumers.erasures.models import read_models, rows_of_subjects
from lethe.consumers.refresh import new_generation
from lethe.consumers.refresh.age_limit import past_age_limit
from lethe.consumers.refresh.job import run_job
from lethe.consumers.registration.checks import MOST_FILE_AGE
from lethe.engine.refresh.size import RefreshSize
from lethe.engine.rowstore import writer
from lethe.engine.store.layout.keys import SHARDS, ModelKeys
from lethe.engine.store.membership import every_live_row, live_members, models_that_lack_rows
from lethe.engine.store.offline.snapshot import take_snapshot
from tests.support.events import settle
from tests.support.invariants import check_row_files, stored_rows
from tests.support.platform import Platform
from tests.support.stores import wipe
from tests.support.tables import Table
from tests.support.workloads import ChangesInFiles, minimiser


@pytest.fixture(autouse=True)
def small_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several buckets and parts of the index of a hundred rows."""
    monkeypatch.setattr(writer, "BUCKET_BYTES", 2048)
    monkeypatch.setattr(writer, "INDEX_ROWS", 16)


@pytest.fixture
def load(memory: Platform) -> ChangesInFiles:
    """A registered model ``m`` whose rows are in files."""
    made = ChangesInFiles(memory, method="exact")
    made.register()
    return made


def held(platform: Platform) -> bytes:
    """Return what all files hold."""
    url = Path(platform.load().meta.config.rows_url or "")
    return b"".join(path.read_bytes() for path in sorted(url.rglob("*")) if path.is_file())


def numbers(table: Table, row: str) -> bytes:
    return np.asarray(table.rows[row][0]).tobytes()


def insert(table: Table, name: str, subject: str) -> str:
    row = {**table.row(name), "subject": subject}
    return table.change("insert", row)


def test_a_refresh_moves_rows_of_the_store_into_the_files(load: ChangesInFiles) -> None:
    platform, table = load.platform, load.table
    old = numbers(table, "row-5")
    assert old in held(platform)
    table.change("correct", table.row("row-5"))
    table.change("insert", table.row("new-1", weight=3.0), table.row("new-2"))
    platform.drain()
    assert stored_rows(platform, "m") == {"row-5", "new-1", "new-2"}
    assert platform.load().meta.rows_in_store == 3
    table.delete("new-2")
    platform.drain()
    load.check()
    new = numbers(table, "row-5"), numbers(table, "new-1")
    assert not any(row in held(platform) for row in new)
    platform.refresh("m", RefreshSize.REBUILD)
    assert stored_rows(platform, "m") == set()
    assert all(row in held(platform) for row in new)
    assert old not in held(platform)
    load.check()
    table.change("correct", table.row("new-1"), table.row("row-5"), table.row("row-6"))
    table.delete("row-7")
    platform.drain()
    load.check()
    snapshot = take_snapshot(platform.store, "m")
    assert frozenset(snapshot.ids) == table.rows.keys()
    for i, row in enumerate(snapshot.ids):
        assert np.array_equal(snapshot.rows.X[i][: len(table.rows[row][0])], table.rows[row][0])
        assert snapshot.rows.weight[i] == table.rows[row][2]


def test_changes_alone_are_written_to_the_files_in_time(load: ChangesInFiles) -> None:
    platform, table = load.platform, load.table
    table.change("insert", table.row("new"))
    platform.drain()
    changed_at = platform.load().meta.first_deletion_at
    assert changed_at is not None
    later = changed_at + timedelta(seconds=MOST_FILE_AGE + 1)
    [job] = past_age_limit(platform.store, later)
    run_job(platform.store, job, now=later)
    platform.tell_refreshed(job)
    platform.drain()
    assert stored_rows(platform, "m") == set()
    load.check()


def test_what_changes_while_files_are_written_stays_in_the_store(load: ChangesInFiles) -> None:
    platform, table = load.platform, load.table
    table.change("correct", *(table.row(f"row-{i}") for i in (1, 2, 3)))
    table.change("insert", *(table.row(f"new-{i}") for i in (1, 2, 3)))
    platform.drain()
    job = platform.ordered("m", RefreshSize.REBUILD)
    run_job(platform.store, job, now=datetime.now(UTC))
    table.change("correct", table.row("row-2"), table.row("new-2"), table.row("row-9"))
    table.change("insert", table.row("new-4"))
    table.delete("row-3", "new-3", "row-10")
    platform.drain()
    platform.tell_refreshed(job)
    platform.drain()
    assert platform.load().meta.generation == 1
    assert stored_rows(platform, "m") == {"row-2", "new-2", "row-9", "new-4"}
    load.check()
    platform.refresh("m", RefreshSize.REBUILD)
    assert stored_rows(platform, "m") == set()
    load.check()


def test_a_refresh_stages_what_changes_while_it_runs(
    load: ChangesInFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(new_generation, "CATCH_UP_LIMIT", 0)
    platform, table = load.platform, load.table
    table.change("insert", table.row("new-0"))
    platform.drain()
    job, turns = platform.ordered("m", RefreshSize.REBUILD), iter(range(1))

    def change(*_: object) -> None:
        for _turn in turns:
            table.change("correct", *(table.row(f"row-{i}") for i in (1, 2, 3)))
            table.change("insert", table.row("new-1"), table.row("new-2"))
            table.delete("row-4")
            platform.drain()
            table.change("correct", table.row("new-2"), table.row("new-0"))
            table.delete("row-3", "new-1")
            platform.drain()

    run_job(platform.store, job, now=datetime.now(UTC), progress=change)
    platform.tell_refreshed(job)
    platform.drain()
    assert platform.load().meta.generation == 1
    assert stored_rows(platform, "m") == {"row-1", "row-2", "new-0", "new-2"}
    load.check()
    assert verify(platform.store, "m").holds
    table.change("correct", table.row("row-2"), table.row("row-8"))
    table.delete("row-1", "row-9")
    platform.drain()
    load.check()
    assert verify(platform.store, "m").holds
    assert all(check.ok for check in check_model(platform.store, None, "m"))
    platform.refresh("m", RefreshSize.REBUILD)
    assert stored_rows(platform, "m") == set()
    load.check()
    assert verify(platform.store, "m").holds


def test_inserted_rows_are_found_by_their_subject_wherever_they_are(load: ChangesInFiles) -> None:
    platform, table = load.platform, load.table
    insert(table, "new-1", "subject-4")
    insert(table, "new-2", "ann")
    platform.drain()
    for _ in range(2):
        [found] = platform.store.subjects([(platform.load(), ["subject-4", "ann", "bob"])])
        assert {name: set(rows) for name, rows in found.items()} == {
            "subject-4": {"row-12", "row-13", "row-14", "new-1"},
            "ann": {"new-2"},
        }
        [model] = read_models(platform.store).registered
        assert rows_of_subjects(platform.store, [model], [["ann"]]) == [{"ann": ("new-2",)}]
        platform.refresh("m", RefreshSize.REBUILD)
    table.change("correct", table.row("new-2"))  # a corrected row stays whose it was
    platform.drain()
    wipe(platform)  # whose rows are whose is in the files, too
    settle(platform)
    platform.refresh("m", RefreshSize.REBUILD)
    [found] = platform.store.subjects([(platform.load(), ["ann"])])
    assert found == {"ann": ("new-2",)}
    assert platform.store.row_files.subjects(platform.load().meta, ["ann"]) == found
    platform.send_raw(b'{"request_id": "of-ann", "model_id": "m", "subject_id": "ann"}')
    platform.drain()
    assert platform.final("of-ann").rows_deleted == 1
    del table.rows["new-2"]
    load.check()


def test_a_model_without_subjects_gets_no_row_of_one(memory: Platform) -> None:
    memory.register("m", exact_sums=True, rows_url=memory.folder(), subjects=False)
    table = Table(memory)
    request = insert(table, "new", "ann")
    memory.drain()
    assert memory.final(request).code == "UNSUPPORTED"
    assert "without subjects" in (memory.final(request).detail or "")
    del table.rows["new"]
    table.change("insert", *(table.row(f"new-{i}") for i in range(200)))
    table.change("correct", table.row("row-0"))
    memory.drain()
    memory.refresh("m", RefreshSize.REBUILD)
    found = memory.store.row_files.of(memory.load().meta)
    assert found is not None
    most = 2 * max(1, 2048 // 100)
    assert max(part.rows for part in found.manifest.buckets) <= most
    assert found.manifest.rows == len(table.rows)
    table.check()
    check_row_files(memory)


def test_who_asks_the_store_for_rows_is_told_of_those_beside_the_files(
    load: ChangesInFiles,
) -> None:
    platform, table = load.platform, load.table
    table.change("insert", table.row("new"))
    table.change("correct", table.row("row-1"))
    table.delete("row-2")
    platform.drain()
    assert every_live_row(platform.raw(), "m") == table.rows.keys()
    asked = ["row-1", "row-2", "row-3", "new", "nobody"]
    assert live_members(platform.raw(), "m", asked) == {"row-1", "row-3", "new"}


def test_rows_of_the_store_that_are_lost_are_missed(load: ChangesInFiles) -> None:
    """The files have the row as it was before it was corrected, which counts for nothing."""
    platform, table = load.platform, load.table
    table.change("correct", table.row("row-1"))
    platform.drain()
    live = platform.load().generation_keys
    platform.raw().delete(*(live.rows(shard) for shard in range(SHARDS)))
    assert models_that_lack_rows(platform.raw(), ["m"]) == {"m"}
    request = platform.send("m", "row-1")
    platform.drain()
    assert platform.statuses(request) == ["DEFERRED"]
    assert [one.code for one in platform.receipts() if one.request_id == request] == ["DATA_LOST"]


def test_the_last_rows_may_be_those_of_the_store(load: ChangesInFiles) -> None:
    platform, table = load.platform, load.table
    table.change("insert", table.row("new-1"), table.row("new-2"))
    platform.drain()
    table.delete(*(row for row in list(table.rows) if row.startswith("row-")))
    platform.drain()
    platform.refresh("m", RefreshSize.REBUILD)
    load.check()
    assert np.array_equal(platform.load().stream.theta_exact, minimiser(table))
    table.delete("new-1", "new-2")
    platform.drain()
    assert platform.load().meta.status == "EMPTY"
    assert held(platform) == b""


def test_folders_that_the_store_knows_nothing_of_are_said(memory: Platform) -> None:
    url = Path(memory.folder())
    memory.register("m", exact_sums=True, rows_url=str(url))
    memory.delete("m", 1)

    def said() -> str:
        checks = {one.subject: one for one in check_model(memory.store, None, "m")}
        assert checks["model m, rows"].ok
        return checks["model m, rows"].detail

    assert "knows nothing" not in said()
    stranger, under_way = url / "m" / ("a" * 32), url / "m" / ("b" * 32)
    stranger.mkdir()
    under_way.mkdir()
    memory.raw().hset(ModelKeys("m").stagings, under_way.name, "9 0")
    assert f"knows nothing ({stranger.name}):" in said()
