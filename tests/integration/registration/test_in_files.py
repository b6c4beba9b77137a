"""Models whose rows are in files: what they do as others do, and what happens to their files.

Workers that die, stores that go back and refreshes that are lost: `tests.integration.commits`.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lethe.consumers.audit.verify import verify
from lethe.consumers.erasures.models import every_subject, read_models, rows_of_subjects
from lethe.consumers.refresh.age_limit import past_age_limit
from lethe.consumers.refresh.job import run_job
from lethe.consumers.registration.checks import MOST_FILE_AGE
from lethe.consumers.service.telemetry.steps import Step
from lethe.consumers.workers import halts
from lethe.engine.errors import InvalidData, ModelExists, RowsMissing, StoreUnavailable
from lethe.engine.refresh.size import RefreshSize
from lethe.engine.rowstore import writer
from lethe.engine.store.layout.config import LimitsRecord
from lethe.engine.store.membership import every_live_row, live_members, never_members
from lethe.engine.store.offline.snapshot import take_snapshot
from lethe.engine.store.store import ModelStore
from tests.support.events import succeed
from tests.support.families import make
from tests.support.invariants import check_model, check_row_files, keys_of, ledger_of
from tests.support.platform import Platform, row_ids
from tests.support.stores import backup, restore


@pytest.fixture(autouse=True)
def small_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several buckets and parts of the index of a hundred rows."""
    monkeypatch.setattr(writer, "BUCKET_BYTES", 2048)
    monkeypatch.setattr(writer, "INDEX_ROWS", 16)


@pytest.fixture
def url(memory: Platform) -> Path:
    """A registered model ``m``, and where its files lie."""
    url = memory.folder()
    memory.register("m", exact_sums=True, rows_url=url)
    return Path(url)


def files_in(url: Path) -> list[Path]:
    return sorted(path for path in url.rglob("*") if path.is_file())


def delete_subject(platform: Platform, subject: str) -> str:
    body = {"request_id": f"of-{subject}", "model_id": "m", "subject_id": subject}
    platform.send_raw(json.dumps(body).encode())
    platform.drain()
    return f"of-{subject}"


@pytest.mark.parametrize("family", ["benign", "badly_scaled", "several_outputs", "no_intercept"])
@pytest.mark.parametrize("method", ["exact", "pru"])
def test_every_version_has_the_bits_of_one_whose_rows_are_in_the_store(
    memory: Platform, family: str, method: str
) -> None:
    memory.register("m", family, method=method, exact_sums=True, rows_url=memory.folder())
    memory.register("other", family, method=method, exact_sums=True)
    for rows in ((1, 2), (7,), (0, 9, 11)):
        for model in ("m", "other"):
            memory.send_index(model, *rows)
        memory.drain()
        ours, theirs = memory.load("m"), memory.load("other")
        assert np.array_equal(ours.stream.theta_exact, theirs.stream.theta_exact)
        assert np.array_equal(ours.published, theirs.published)
        assert ours.meta.error == theirs.meta.error
    for model in ("m", "other"):
        memory.refresh(model, RefreshSize.REBUILD)
    assert np.array_equal(memory.load("m").published, memory.load("other").published)
    check_model(memory)
    check_row_files(memory)


def test_the_rows_of_a_subject_are_found_and_deleted(memory: Platform, url: Path) -> None:
    assert len(files_in(url)) > 10
    receipt = memory.final(delete_subject(memory, "subject-4"))
    assert (receipt.status, receipt.rows_deleted) == ("APPLIED", 3)
    assert ledger_of(memory).keys() == {"row-12", "row-13", "row-14"}
    again = memory.final(delete_subject(memory, "nobody"))
    assert again.code == "UNKNOWN_ROWS"
    memory.delete("m", 12, 15)
    check_model(memory)


def test_whose_rows_were_deleted_is_known_once_the_files_are_without_them(
    memory: Platform, url: Path
) -> None:
    assert url.exists()
    delete_subject(memory, "subject-4")
    for number in range(2):
        memory.refresh("m", RefreshSize.REBUILD)
        memory.send_raw(
            b'{"request_id": "again-%d", "model_id": "m", "subject_id": "subject-4"}' % number
        )
        memory.delete("m", 20 + number)
        assert memory.final(f"again-{number}").status == "ALREADY_APPLIED"
        [model] = read_models(memory.store).registered
        [found] = rows_of_subjects(memory.store, [model], [["subject-4"]])
        assert set(found["subject-4"]) == {"row-12", "row-13", "row-14"}
        known = {name for some in every_subject(memory.store, model) for name in some}
        assert known == {f"subject-{i // 3}" for i in range(len(memory.data["m"].X))}
    check_row_files(memory)


@pytest.mark.usefixtures("url")
def test_who_asks_the_store_for_rows_is_told_of_those_in_files(memory: Platform) -> None:
    memory.delete("m", 3, 4)
    names, raw = row_ids(memory.data["m"]), memory.raw()
    live = frozenset(names) - {"row-3", "row-4"}
    assert every_live_row(raw, "m") == live
    assert live_members(raw, "m", ["row-2", "row-3", "nobody"]) == {"row-2"}
    assert never_members(raw, "m", ["row-2", "row-3", "nobody"]) == ["nobody"]
    assert frozenset(take_snapshot(memory.store, "m").ids) == live
    assert memory.store.row_ids(memory.load()) == frozenset(names)


# -- erasure ---------------------------------------------------------------------------------------


def bytes_of(platform: Platform, rows: Sequence[int]) -> list[bytes]:
    """Return the numbers of rows, as files hold them."""
    return [np.asarray(platform.data["m"].X[i]).tobytes() for i in rows]


def test_a_refresh_writes_files_without_what_was_deleted(memory: Platform, url: Path) -> None:
    held = b"".join(path.read_bytes() for path in files_in(url))
    assert all(row in held for row in bytes_of(memory, (5, 6)))
    memory.delete("m", 5, 6)
    before = set(files_in(url))
    memory.refresh("m", RefreshSize.REBUILD)
    after = set(files_in(url))
    assert 1 < len(before - after) < len(before)
    held = b"".join(path.read_bytes() for path in after)
    assert not any(row in held for row in bytes_of(memory, (5, 6)))
    check_row_files(memory)
    check_model(memory)


def test_the_refresh_is_ordered_within_half_of_the_time_that_is_promised(
    memory: Platform, url: Path
) -> None:
    assert memory.load().meta.config.limits.age_seconds == MOST_FILE_AGE
    memory.delete("m", 5)
    deleted_at = memory.load().meta.first_deletion_at
    assert deleted_at is not None
    due = deleted_at + timedelta(seconds=MOST_FILE_AGE)
    assert past_age_limit(memory.store, due - timedelta(seconds=1)) == []
    later = due + timedelta(seconds=1)
    [job] = past_age_limit(memory.store, later)
    result = run_job(memory.store, job, now=later)
    assert result.size is RefreshSize.REBUILD
    memory.delete("m", 6)  # too late for this one
    memory.tell_refreshed(job)
    memory.drain()
    held = b"".join(path.read_bytes() for path in files_in(url))
    assert [row in held for row in bytes_of(memory, (5, 6))] == [False, True]
    check_row_files(memory)
    check_model(memory)
    [job] = past_age_limit(memory.store, later + timedelta(seconds=MOST_FILE_AGE + 1))
    run_job(memory.store, job, now=later)
    memory.tell_refreshed(job)
    memory.drain()
    assert bytes_of(memory, (6,))[0] not in b"".join(path.read_bytes() for path in files_in(url))
    assert memory.load().meta.first_deletion_at is None
    with pytest.raises(InvalidData, match="at most 43200"):
        memory.register(
            "n",
            exact_sums=True,
            rows_url=str(url),
            limits=LimitsRecord(age_seconds=2 * MOST_FILE_AGE),
        )


def test_a_row_that_is_deleted_as_a_refresh_begins_leaves_the_sums_once(
    memory: Platform, url: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert url.exists()
    memory.delete("m", 5)
    read, turns = ModelStore.deleted_after, iter(range(1))

    def late(store: ModelStore, *arguments: Any, **options: Any) -> list[str]:
        for _turn in turns:  # after the sums were read, and before the ledger
            memory.delete("m", 6)
        return read(store, *arguments, **options)

    monkeypatch.setattr(ModelStore, "deleted_after", late)
    order_refresh_of(memory)
    check_row_files(memory)
    check_model(memory)
    assert verify(memory.store, "m").holds


def order_refresh_of(platform: Platform) -> None:
    """Do the refresh of model ``m`` that its age orders."""
    later = platform.load().meta.refreshed_at + timedelta(seconds=2 * MOST_FILE_AGE)
    [job] = past_age_limit(platform.store, later)
    run_job(platform.store, job, now=later)
    platform.tell_refreshed(job)
    platform.drain()


def test_files_of_a_refresh_that_never_became_live_are_removed(memory: Platform, url: Path) -> None:
    memory.delete("m", 5)
    memory.compute_refresh(memory.ordered("m", RefreshSize.REBUILD))
    orphans = set(files_in(url)) - live_files(memory, url)
    assert orphans
    succeed(memory)  # a worker looks as it starts
    memory.delete("m", 6)
    assert orphans <= set(files_in(url))  # they may still become live
    for path in orphans:
        os.utime(path, (0, time.time() - 24 * 3600))
    succeed(memory)
    memory.delete("m", 7)
    assert set(files_in(url)) == live_files(memory, url)
    check_model(memory)


def test_a_store_that_goes_back_past_a_refresh_does_without_the_former_files(
    memory: Platform, url: Path
) -> None:
    """They are gone for good; whoever folds has not read them before."""
    early = backup(memory, "m")
    memory.delete("m", 5)
    before = set(files_in(url))
    memory.refresh("m", RefreshSize.REBUILD)
    assert before - set(files_in(url))
    memory.delete("m", 6)
    twin = memory.load()
    restore(memory, early, "m")
    succeed(memory)
    memory.delete("m", 7)
    assert memory.load().version > twin.version
    memory.refresh("m", RefreshSize.REBUILD)
    check_row_files(memory)
    check_model(memory)


def test_erasures_read_the_newest_files_and_wait_where_the_store_went_back(
    memory: Platform, url: Path
) -> None:
    assert url.exists()
    early = backup(memory, "m")
    [known] = read_models(memory.store).registered
    memory.delete("m", 5)
    memory.refresh("m", RefreshSize.REBUILD)
    store = memory.new_store()
    [found] = rows_of_subjects(store, [known], [["subject-2"]])  # by what was read before
    assert set(found["subject-2"]) == {"row-6", "row-7", "row-8"}
    restore(memory, early, "m")
    again = memory.new_store()
    assert read_models(again).damaged == {"m"}
    with pytest.raises(StoreUnavailable, match="is missing"):
        rows_of_subjects(again, [known], [["subject-2"]])
    for one in (store, again):
        one.close()
    succeed(memory)
    memory.delete("m", 9)
    assert read_models(memory.store).damaged == frozenset()


def live_files(platform: Platform, url: Path) -> set[Path]:
    """Return the files that the live root names."""
    found = platform.store.row_files.of(platform.load().meta)
    names = frozenset() if found is None else found.files()
    return {path for path in files_in(url) if path.name in names}


@pytest.mark.parametrize("end", ["unregistered", "emptied", "replaced"])
def test_nothing_is_left_of_the_files_of_a_model_that_ends(
    memory: Platform, url: Path, end: str
) -> None:
    memory.delete("m", 5)
    delete_subject(memory, "subject-4")
    memory.refresh("m", RefreshSize.REBUILD)
    if end == "unregistered":
        memory.registrar().unregister("m")
    elif end == "emptied":
        memory.delete("m", *range(len(memory.data["m"].X)))
        assert memory.load().meta.status == "EMPTY"
        check_model(memory)
    else:
        with pytest.raises(ModelExists):
            memory.register("m", exact_sums=True, rows_url=str(url))
        memory.register("m", exact_sums=True, replace_model=True, keep=range(20, 120))
        again = {"request_id": "again", "model_id": "m", "subject_id": "subject-4"}
        memory.send_raw(json.dumps(again).encode())
        check = memory.send_index("m", 5, 30)
        only_old = memory.send_index("m", 6)
        memory.drain()
        assert (memory.final(check).rows_deleted, memory.final(check).rows_unknown) == (1, 0)
        assert memory.final(only_old).status == "ALREADY_APPLIED"
        assert memory.final("again").status == "ALREADY_APPLIED"  # whose rows the files had
    assert files_in(url) == []
    if end == "unregistered":
        done = memory.register("m", exact_sums=True, rows_url=str(url))
        assert done.in_ledger == 4
        memory.delete("m", 8)
        check_model(memory)


@pytest.mark.parametrize("to", ["the store", "files"])
def test_a_model_whose_files_are_lost_is_registered_again(
    memory: Platform, url: Path, to: str
) -> None:
    memory.delete("m", 3)
    for path in files_in(url):
        path.unlink()
    place = str(url) if to == "files" else None
    with pytest.raises(RowsMissing, match="--replace --accept-forgotten"):
        memory.register("m", exact_sums=True, rows_url=place, replace_model=True)
    done = memory.register(
        "m", exact_sums=True, rows_url=place, replace_model=True, accept_forgotten=True
    )
    assert done.in_ledger == 1
    memory.delete("m", 4)
    check_model(memory)
    check_row_files(memory)


def test_more_rows_of_a_subject_than_a_generation_takes_wait_for_a_refresh(
    memory: Platform,
) -> None:
    limits = LimitsRecord(fraction_of_d=0.01, floor_rows=1)
    memory.register("m", exact_sums=True, rows_url=memory.folder(), limits=limits)
    request = memory.send_index("m", *range(20))
    memory.drain()
    assert memory.statuses(request) == ["DEFERRED", "APPLIED"]
    check_model(memory)
    check_row_files(memory)


@pytest.mark.parametrize("first", ["in the store", "in files"])
def test_files_take_the_place_of_another_registration(memory: Platform, first: str) -> None:
    url = Path(memory.folder())
    memory.register("m", exact_sums=True, rows_url=str(url) if first == "in files" else None)
    delete_subject(memory, "subject-1")
    if first == "in files":
        memory.refresh("m", RefreshSize.REBUILD)
    memory.delete("m", 20)
    turns = iter(range(2))

    def at_step(step: str) -> None:
        turn = next(turns, None) if step == Step.REGISTER_APPEND else None
        if turn == 0:  # others commit first, twice
            memory.delete("m", 40)
        elif turn == 1:
            delete_subject(memory, "subject-15")

    done = memory.register(
        "m",
        exact_sums=True,
        rows_url=str(url),
        replace_model=True,
        keep=range(18, 120),
        at_step=at_step,
    )
    assert done.in_ledger == 1
    gone = {"row-3", "row-4", "row-5", "row-20", "row-40", "row-45", "row-46", "row-47"}
    assert ledger_of(memory).keys() == gone
    names = row_ids(memory.data["m"])
    assert every_live_row(memory.raw(), "m") == set(names[18:]) - gone
    assert memory.load().meta.rows_live == 97
    assert memory.load().meta.rows_in_store == 0
    twin = Platform.register(memory, "n", exact_sums=True, keep=[
        i for i in range(18, 120) if names[i] not in gone
    ])  # fmt: skip
    assert np.array_equal(memory.load().stream.theta_exact, twin.state.stream.theta_exact)
    # Retired rows, deleted ones and their subjects are known
    answers = {
        memory.send_index("m", 6): "ALREADY_APPLIED",
        memory.send_index("m", 3): "ALREADY_APPLIED",
        delete_subject(memory, "subject-2"): "ALREADY_APPLIED",
        memory.send_index("m", 40): "ALREADY_APPLIED",
        memory.send_index("m", 50): "APPLIED",
        delete_subject(memory, "subject-20"): "APPLIED",
    }
    memory.drain()
    assert {request: memory.final(request).status for request in answers} == answers
    again = {"request_id": "again", "model_id": "m", "subject_id": "subject-1"}
    memory.send_raw(json.dumps(again).encode())
    memory.drain()
    assert memory.final("again").status == "ALREADY_APPLIED"
    order_refresh_of(memory)
    assert set(files_in(url)) == live_files(memory, url)
    held = b"".join(path.read_bytes() for path in files_in(url))
    assert not any(row in held for row in bytes_of(memory, (3, 6, 40, 46, 50, 60)))
    check_row_files(memory)
    assert verify(memory.store, "m").holds


def test_another_shape_takes_no_place_unless_told(memory: Platform, url: Path) -> None:
    with pytest.raises(InvalidData, match="--allow-change"):
        memory.register(
            "m", "wide", exact_sums=True, rows_url=str(url), replace_model=True, allow_change=False
        )
    memory.delete("m", 5)
    check_model(memory)


# -- registration that fails -----------------------------------------------------------------------


def test_a_registration_that_fails_leaves_nothing_behind(
    memory: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, data = memory.folder(), make("benign", "linear")
    monkeypatch.setattr("tests.support.platform.row_ids", lambda data: ["twice"] * len(data.X))
    with pytest.raises(InvalidData, match="'twice'"):
        memory.register("m", data, exact_sums=True, rows_url=url)
    assert files_in(Path(url)) == []
    assert keys_of(memory, "m") == []


def test_a_registration_without_room_says_so_and_leaves_nothing_behind(
    memory: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, written, there_is_room = memory.folder(), list[int](), os.fsync

    def full(file: int) -> None:
        written.append(file)
        if len(written) > 5 and threading.current_thread() is not threading.main_thread():
            raise OSError(28, "No space left on device")
        there_is_room(file)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreUnavailable, match=r"No space left on device"):
        memory.register("m", exact_sums=True, rows_url=url)
    assert files_in(Path(url)) == []
    assert keys_of(memory, "m") == []


# -- damage ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["altered", "cut", "missing"])
def test_a_damaged_file_halts_its_model_alone_until_it_is_back(
    memory: Platform, url: Path, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(halts, "HALT_SECONDS", 0.05)
    memory.register("other")
    kept = {path: path.read_bytes() for path in files_in(url)}
    for path, content in kept.items():
        if damage == "missing":
            path.unlink()
        else:
            path.write_bytes(content[:-1] + b"?" * (damage == "altered"))
    request, other = memory.send_index("m", 5), memory.send_index("other", 5)
    worker = memory.deletion_worker()
    for _ in range(30):
        memory.turn(worker)
    assert memory.final(other, "other").status == "APPLIED"
    [reason] = worker._halts._reasons.values()
    assert "model 'm': " in reason
    assert str(url) in reason
    assert "\n" not in reason
    assert request not in memory.finals()
    for path, content in kept.items():
        path.write_bytes(content)
    time.sleep(0.06)
    memory.drain(worker)
    assert memory.final(request).status == "APPLIED"
    check_model(memory)
