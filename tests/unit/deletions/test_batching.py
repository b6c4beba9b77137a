"""Which requests wait, for how long, and in which order they come back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from lethe.consumers.deletions import batching
from lethe.consumers.deletions.batching import Batching, BatchWindow, waits_since
from lethe.consumers.deletions.validate import Group, group_records
from lethe.consumers.log.base import Headers, Partition, Record

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HERE, THERE = Partition("lethe.deletions", "id", 0), Partition("lethe.deletions", "id", 1)
REFRESHED: Headers = (("ce_type", b"lethe.refresh.completed.v1"),)


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def request(offset: int, *rows: str, model: str = "m", sent: float = 0.0) -> Record:
    body = {"request_id": f"r{offset}", "model_id": model, "row_ids": rows}
    ms = int(at(sent).timestamp() * 1000)
    return Record(HERE, offset, model.encode(), json.dumps(body).encode(), timestamp_ms=ms)


def refreshed(offset: int) -> Record:
    body = json.dumps({"job_id": "j", "model_id": "m"}).encode()
    return Record(HERE, offset, b"m", body, REFRESHED, int(NOW.timestamp() * 1000))


def groups_of(records: Sequence[Record]) -> list[Group]:
    groups, letters = group_records(records, None)
    assert letters == []
    return groups


def offsets(groups: list[Group]) -> list[list[int]]:
    return [[item.record.offset for item in group.items] for group in groups]


def holding(rows: int, *records: Record, deletes: int = 1) -> BatchWindow:
    """Return what holds these records, whose first batch would delete so many rows."""
    held = BatchWindow(Batching(rows, 60.0))
    [group] = held.join(groups_of(records), NOW)
    held.keep(group, deletes)
    return held


@pytest.mark.parametrize(
    ("deleted", "waited", "held"),
    [(0, 0, False), (1, 0, True), (2, 59.9, True), (3, 0, False), (1, 60, False)],
)
def test_a_batch_waits_if_it_deletes_too_few_rows_and_not_for_ever(
    deleted: int, waited: float, held: bool
) -> None:
    assert Batching(3, 60.0).must_wait(deleted, NOW, at(waited)) is held


def test_by_default_nothing_waits() -> None:
    assert not Batching().must_wait(1, NOW, NOW)


def test_what_is_new_is_looked_at_once_and_then_waits() -> None:
    held = holding(3, request(0, "a"))
    assert offsets(held.join([], at(1))) == []
    assert offsets(held.join(groups_of([request(1, "b")]), at(2))) == []
    assert (len(held), held.first(HERE)) == (2, 0)


def test_enough_rows_are_looked_at_together_and_in_order() -> None:
    held = holding(3, request(0, "a"))
    assert offsets(held.join(groups_of([request(1, "b"), request(2, "c")]), NOW)) == [[0, 1, 2]]
    assert len(held) == 0


def test_the_same_row_again_is_no_company() -> None:
    held = holding(3, request(0, "a"))
    assert offsets(held.join(groups_of([request(1, "b"), request(2, "b")]), NOW)) == []


def test_a_subject_may_have_any_number_of_rows_and_is_looked_at() -> None:
    held = holding(9, request(0, "a"))
    body = {"request_id": "s", "model_id": "m", "subject_id": "person"}
    record = Record(HERE, 1, b"m", json.dumps(body).encode())
    assert offsets(held.join(groups_of([record]), NOW)) == [[0, 1]]


def test_the_oldest_counts_and_takes_the_others_along() -> None:
    held = holding(9, request(0, "a", sent=-30))
    assert offsets(held.join(groups_of([request(1, "b")]), at(29.9))) == []
    assert offsets(held.join([], at(30))) == [[0, 1]]


def test_a_refresh_waits_behind_what_came_before_it() -> None:
    held = holding(2, request(0, "a"))
    later = groups_of([refreshed(1), request(2, "b"), request(3, "c")])
    assert offsets(held.join(later, NOW)) == [], "rows behind it are no company for the first batch"
    assert offsets(held.join([], at(60))) == [[0, 1, 2, 3]]


def test_models_wait_apart_and_partitions_are_dropped_apart() -> None:
    held = BatchWindow(Batching(2, 60.0))
    records = [request(0, "a"), request(1, "a", model="n")]
    for group in held.join(groups_of(records), NOW):
        held.keep(group, 1)
    assert offsets(held.join(groups_of([request(2, "b", model="n")]), NOW)) == [[1, 2]]
    held.drop({THERE})
    assert held.first(HERE) == 0
    held.drop({HERE})
    assert (held.first(HERE), len(held)) == (None, 0)


def test_only_what_was_left_undecided_is_kept() -> None:
    held = BatchWindow(Batching(2, 60.0))
    [group] = held.join(groups_of([request(0, "a"), request(1, "b")]), NOW)
    group.items = group.items[1:]
    held.keep(group, 1)
    assert (held.first(HERE), len(held)) == (1, 1)


def test_a_full_worker_has_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    held = holding(9, request(0, "a"), request(1, "b"))
    monkeypatch.setattr(batching, "HELD_RECORDS", 5)
    assert held.room() == 3
    monkeypatch.setattr(batching, "HELD_BYTES", 10)
    assert held.room() == 0
    held.clear()
    assert held.room() == 5


@pytest.mark.parametrize("stamp", [0, -1, 2**62, int(at(5).timestamp() * 1000)])
def test_a_time_that_cannot_be_is_no_reason_to_wait_longer_or_to_fail(stamp: int) -> None:
    assert waits_since(Record(HERE, 0, b"m", b"", timestamp_ms=stamp), NOW) == NOW
