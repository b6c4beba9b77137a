"""Stores that go back twice: what came of the first loss stands when there is another one."""

from __future__ import annotations

from datetime import timedelta

import pytest

from consumers import topics
from consumers.events import Receipt
from consumers.log.base import Message
from engine.store.keys import shard_of
from tests.integration.test_worker_lost_writes import lose_at_receipts, values
from tests.integration.test_worker_takeover import dump
from tests.support.invariants import check_model, ledger_of
from tests.support.platform import Platform
from tests.support.stores import put_back, whole
from tests.support.waiting import CROWDED

pytestmark = pytest.mark.redis

Whole = dict[bytes, bytes]


def lose_a_row(memory: Platform, before: Whole) -> None:
    """Bring the store back to before a version that cannot be made again: all requests wait."""
    put_back(memory, before)
    live = memory.load().generation_keys
    assert memory.raw().hdel(live.rows(shard_of("row-1")), "row-1") == 1
    worker = memory.pair[0]
    worker.recover()
    memory.turn(worker)
    assert memory.load().meta.awaiting_rebuild


def lose_the_next_rebuild(memory: Platform, before: Whole, request: str) -> None:
    """Lose the swap of a rebuild after the final receipt of this request is published."""
    worker, refresher = memory.pair
    versions = memory.versions()
    lose_at_receipts(memory, dump(memory.store, "m"))
    for _ in range(20):
        refresher.run_once(0.0)
        memory.turn(worker)
        if "APPLIED" in memory.statuses(request):
            break
    assert memory.statuses(request) == ["DEFERRED", "APPLIED"]
    assert memory.versions() == versions
    put_back(memory, before)


def stands_when_all_is_lost(memory: Platform, before: Whole) -> None:
    """Check that what was published so far is neither changed nor made a second time."""
    published = {t: values(memory, t) for t in (topics.VERSIONS, topics.RECEIPTS)}
    put_back(memory, before)
    memory.pair[0].recover()
    memory.drain()
    assert not memory.pair[0]._halted
    assert {t: values(memory, t)[: len(published[t])] for t in published} == published
    check_model(memory)


@pytest.fixture
def wide(memory: Platform) -> Whole:
    """Register a model with row-1 to lose, delete that row, and return the store before."""
    memory.register("m", "benign", "linear", budget=10.0, limits=CROWDED)
    memory.drain()
    before = whole(memory)
    memory.send_index("m", 1)
    memory.drain()
    return before


def test_a_request_that_had_to_wait_waits_again_although_it_need_not(
    memory: Platform, wide: Whole
) -> None:
    """Else it makes a version of its own, with the number of the rebuild's, which is published."""
    lose_a_row(memory, wide)
    request = memory.send_index("m", 2)
    memory.drain()
    assert memory.statuses(request) == ["DEFERRED", "APPLIED"]
    stands_when_all_is_lost(memory, wide)


def test_requests_that_a_lost_rebuild_answered_have_one_version_again(
    memory: Platform, wide: Whole
) -> None:
    lose_a_row(memory, wide)
    first = memory.send_index("m", 2)
    memory.turn(memory.pair[0])
    second = memory.send_index("m", 3)
    memory.turn(memory.pair[0])
    lose_the_next_rebuild(memory, wide, second)
    assert memory.statuses(first) == ["DEFERRED", "APPLIED"]
    stands_when_all_is_lost(memory, wide)
    assert [ledger_of(memory)[f"row-{i}"] for i in (1, 2, 3)] == [1, 2, 2]


def answer_one_that_must_wait(memory: Platform, before: Whole) -> str:
    """Let a request wait whose final receipt is published; it was never told to wait."""
    lose_at_receipts(memory, dump(memory.store, "m"))
    request = memory.send_index("m", 2)
    memory.pair[0].run_once(0.0)
    assert memory.statuses(request) == ["APPLIED"]
    lose_a_row(memory, before)
    assert memory.load().answered == {request}
    return request


def test_no_request_takes_the_number_of_a_published_rebuild(memory: Platform, wide: Whole) -> None:
    request = answer_one_that_must_wait(memory, wide)
    memory.drain()
    assert memory.versions()[2].refresh is not None
    stands_when_all_is_lost(memory, wide)
    assert memory.statuses(request) == ["APPLIED"]


def test_no_request_takes_the_number_in_which_a_lost_rebuild_answered_it(
    memory: Platform, wide: Whole
) -> None:
    request = answer_one_that_must_wait(memory, wide)
    later = memory.send_index("m", 3)
    memory.turn(memory.pair[0])
    lose_the_next_rebuild(memory, wide, later)
    stands_when_all_is_lost(memory, wide)
    assert memory.statuses(request) == ["APPLIED"]
    assert [ledger_of(memory)[f"row-{i}"] for i in (1, 2, 3)] == [1, 2, 2]


@pytest.fixture
def crowded(memory: Platform) -> tuple[Whole, Whole]:
    """Register a model, and let a request wait; return the store before it and after it."""
    memory.register("m", "benign", "linear", budget=10.0, limits=CROWDED)
    memory.drain()
    registered = whole(memory)
    memory.send_index("m", *range(20))
    memory.turn(memory.pair[0])
    assert memory.load().deferred
    return registered, whole(memory)


def answer_and_wait(memory: Platform, before: Whole) -> str:
    """Lose the rebuild that answered the one who waits; return another one, who waits for it."""
    [request] = memory.load().deferred
    lose_the_next_rebuild(memory, before, request)
    worker = memory.pair[0]
    worker.recover()
    memory.turn(worker)
    assert memory.load().answered == {request}
    later = memory.send_index("m", 30)
    memory.turn(worker)
    assert memory.statuses(later) == ["DEFERRED"]
    return later


def test_a_rebuild_that_was_done_again_is_not_made_a_third_time(
    memory: Platform, crowded: tuple[Whole, Whole]
) -> None:
    later = answer_and_wait(memory, crowded[1])
    memory.drain()
    assert memory.statuses(later) == ["DEFERRED", "APPLIED"]
    stands_when_all_is_lost(memory, crowded[1])
    assert [version.version for version in memory.versions()] == [0, 1, 2]


@pytest.mark.parametrize("to", [0, 1], ids=["before it was asked", "where it waits"])
def test_no_final_receipt_names_a_version_that_has_its_rows(
    memory: Platform, crowded: tuple[Whole, Whole], to: int
) -> None:
    later = answer_and_wait(memory, crowded[1])
    lose_the_next_rebuild(memory, crowded[to], later)
    stands_when_all_is_lost(memory, crowded[to])
    assert [version.version for version in memory.versions()] == [0, 1]
    assert set(ledger_of(memory).values()) == {1}


@pytest.mark.parametrize("lost", ["receipts", "version"])
def test_the_log_of_receipts_has_their_order_although_a_rebuild_was_lost(
    memory: Platform, crowded: tuple[Whole, Whole], lost: str
) -> None:
    """Given an answer of a rebuild that was lost, and behind it one that needs none."""
    later = answer_and_wait(memory, crowded[1])
    refused = memory.send("m", "a stranger")
    memory.turn(memory.pair[0])
    assert memory.statuses(refused) == ["REJECTED"]
    if lost == "receipts":
        lose_the_next_rebuild(memory, crowded[1], later)
        memory.pair[0].recover()
    memory.drain()
    stands_when_all_is_lost(memory, crowded[0])


def test_a_number_that_two_lost_versions_had_is_given_to_none_of_them(memory: Platform) -> None:
    """Given a worker that sent the receipt of its own version late, beside another one's."""
    memory.register("m", budget=10.0)
    memory.drain()
    lose_at_receipts(memory, dump(memory.store, "m"))
    memory.send_index("m", 1)
    memory.pair[0].run_once(0.0)
    [record] = memory.records(topics.RECEIPTS)
    other = memory.send_index("m", 2)
    mine = Receipt.model_validate_json(record.value or b"")
    source = mine.source.model_copy(update={"offset": mine.source.offset + 1})
    at = mine.completed_at + timedelta(seconds=1)
    late = mine.model_copy(update={"request_id": other, "source": source, "completed_at": at})
    memory.producer.publish([Message(topics.RECEIPTS, b"m", late.value(), record.headers)])
    for _ in range(2):
        memory.pair[0].recover()
        memory.drain()
        [reason] = memory.pair[0]._halted.values()
        assert "comes out again without it" in reason
        assert memory.load().version == 0
    assert [version.version for version in memory.versions()] == [0]
