"""Losses of the store in sequences that an adversary worked out, each of which was wrong once."""

from __future__ import annotations

import json
import time

import pytest

from consumers import reach, refresh_job, takeover, topics
from consumers.deletion_worker import BatchLimits
from consumers.log.base import Message
from consumers.log.memory import MemoryLog, Moment
from consumers.log.partitioner import partition_index
from engine.policy import Size
from engine.store.head import LimitsRecord
from engine.store.keys import shard_of
from tests.integration.test_worker_lost_writes import lose_a_rebuild, values
from tests.integration.test_worker_requests import append_to
from tests.integration.test_worker_takeover import fork_off
from tests.support.invariants import check_model, ledger_of
from tests.support.platform import Platform
from tests.support.stores import put_back, whole
from tests.support.waiting import CROWDED

pytestmark = pytest.mark.redis


def stands_after_a_takeover(platform: Platform, receipts: list[bytes | None]) -> None:
    """Check that a takeover neither halts the model nor answers what was answered."""
    platform.pair[0].recover()
    platform.drain()
    assert not platform.pair[0]._halted
    assert values(platform, topics.RECEIPTS) == receipts
    check_model(platform)


def neighbour_of(model: str) -> str:
    """Return a model whose requests lie in the same of two partitions."""
    home = partition_index(model.encode(), 2)
    return next(m for m in map("o{}".format, range(99)) if partition_index(m.encode(), 2) == home)


def make_topic_again(memory: Platform) -> None:
    assert isinstance(memory.log, MemoryLog)
    memory.log.delete_topic(topics.DELETIONS)
    memory.log.ensure_topics(topics.specs(2))
    memory.drain()


def test_no_other_version_takes_the_number_that_a_published_answer_names(
    memory: Platform,
) -> None:
    request, _ = lose_a_rebuild(memory)
    later = memory.send_index("m", 30)
    memory.drain()
    assert not memory.pair[0]._halted
    assert (memory.final(request).version, memory.final(later).status) == (1, "APPLIED")
    check_model(memory)


def test_a_model_is_released_by_replacing_it_although_a_published_answer_waits(
    memory: Platform,
) -> None:
    lose_a_rebuild(memory)
    for _ in range(2):
        memory.register("m", "benign", "linear", budget=10.0, limits=CROWDED, replace_model=True)
        memory.pair[0].recover()
        memory.drain()
        assert not memory.pair[0]._halted
    assert not memory.load().deferred


def test_a_published_answer_that_is_ahead_of_the_versions_does_not_hide_its_request(
    memory: Platform,
) -> None:
    """Its rows were forgotten: answered APPLIED, and never deleted."""
    memory.register("m", "benign", "linear", method="exact", budget=10.0, limits=CROWDED)
    memory.drain()
    worker, refresher = memory.pair
    before = whole(memory)
    memory.order("m", Size.REBUILD)
    memory.drain()
    request = memory.send_index("m", *range(20))
    memory.turn(worker)
    memory.send_index("m", 30)
    memory.turn(worker)
    assert memory.statuses(request) == ["DEFERRED"]
    assert [version.version for version in memory.versions()] == [0, 1, 2]
    lost: list[bool] = []

    def lose(moment: Moment) -> None:
        answers = [m for m in moment.messages if m.topic == topics.RECEIPTS]
        final = any(b'"APPLIED"' in (m.value or b"") for m in answers)
        if moment.call == "publish" and moment.stage == "after" and final and not lost:
            lost.append(True)
            put_back(memory, before)

    assert isinstance(memory.log, MemoryLog)
    memory.log.hook = lose
    while not lost:
        refresher.run_once(0.0)
        memory.turn(worker)
    put_back(memory, before)
    published = values(memory, topics.RECEIPTS)
    worker.recover()
    refresher.recover()
    memory.drain()
    assert values(memory, topics.RECEIPTS)[: len(published)] == published
    assert {f"row-{i}" for i in (*range(20), 30)} == set(ledger_of(memory))
    check_model(memory)


def test_a_retired_row_is_not_forgotten_by_an_adoption(memory: Platform) -> None:
    """Given a file without the row, it must stay out of the next file that has it again."""
    memory.register("m", "benign", "linear", budget=10.0)
    rest = [row for row in range(len(memory.data["m"].X)) if row != 5]
    memory.register("m", "benign", "linear", budget=10.0, replace_model=True, keep=rest)
    memory.drain()
    before = whole(memory)
    memory.order("m", Size.REBUILD)
    memory.drain()
    request = memory.send_index("m", 5)
    memory.drain()
    put_back(memory, before)
    memory.pair[0].recover()
    memory.drain()
    assert memory.final(request).status == "ALREADY_APPLIED"
    done = memory.register("m", "benign", "linear", budget=10.0, replace_model=True)
    assert done.left_out == 1
    assert "row-5" in ledger_of(memory)


@pytest.mark.parametrize("deletions", [0, 3])
def test_an_answer_is_not_hidden_by_one_of_the_topic_that_ended(
    memory: Platform, deletions: int
) -> None:
    """Both name the same offset; only one of them its request."""
    memory.register("m", budget=10.0)
    memory.send("m", "a stranger")
    for row in range(deletions):
        memory.send_index("m", row)
        memory.drain()
    memory.drain()
    make_topic_again(memory)
    before = whole(memory)
    memory.send("m", "another stranger")
    memory.drain()
    if deletions:
        memory.send_index("m", 10)
        memory.drain()
    published = values(memory, topics.RECEIPTS)
    time.sleep(0.01)
    put_back(memory, before)
    stands_after_a_takeover(memory, published)


def test_a_pending_receipt_that_was_sent_late_does_not_hide_the_final_one(
    memory: Platform,
) -> None:
    one = LimitsRecord(floor_rows=1, fraction_of_d=1e-9)
    memory.register("m", "benign", "linear", method="exact", budget=10.0, limits=one)
    memory.send_index("m", 0)
    memory.drain()
    before = whole(memory)
    memory.order("m", Size.REBUILD)
    memory.drain()
    request = memory.send_index("m", *range(1, 13))
    memory.drain()
    assert memory.statuses(request) == ["DEFERRED", "APPLIED"]
    [pending] = [r for r in memory.records(topics.RECEIPTS) if b'"DEFERRED"' in (r.value or b"")]
    late = Message(topics.RECEIPTS, b"m", pending.value, pending.headers)
    memory.producer.publish([late])
    published = values(memory, topics.RECEIPTS)
    put_back(memory, before)
    stands_after_a_takeover(memory, published)


def test_a_request_that_waits_for_another_reason_this_time_still_waits(memory: Platform) -> None:
    memory.register("m", "benign", "linear", budget=10.0, limits=CROWDED)
    memory.drain()
    before = whole(memory)
    memory.send_index("m", 1)
    memory.drain()
    # Given a loss after which a version cannot be made again, so that requests wait
    put_back(memory, before)
    live = memory.load().generation_keys
    memory.raw().hdel(live.rows(shard_of("row-1")), "row-1")
    worker = memory.pair[0]
    worker.recover()
    memory.turn(worker)
    assert memory.load().meta.awaiting_rebuild
    memory.send_index("m", *range(2, 22))
    memory.turn(worker)
    # and another one, after which it can: the same request waits because there is no room
    put_back(memory, before)
    worker.recover()
    memory.drain()
    assert not worker._halted
    check_model(memory)


def test_a_lost_registration_is_found_behind_many_versions_of_others(
    memory: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(takeover, "TAIL", 3)
    other = neighbour_of("m")
    memory.register(other, budget=10.0)
    memory.drain()
    before = whole(memory)
    memory.register("m", budget=10.0)
    memory.send_index("m", 0)
    memory.drain()
    for row in range(5):
        memory.send_index(other, row)
        memory.drain()
    put_back(memory, before)
    memory.pair[0].recover()
    request = memory.send_index("m", 1)
    memory.drain()
    assert memory.statuses(request) == [], "halted, and not answered UNKNOWN_MODEL"


def test_what_a_registration_left_before_its_commit_hides_no_answer(memory: Platform) -> None:
    memory.register("m", budget=10.0)
    memory.drain()
    memory.store.announce("ghost")
    before = whole(memory)
    request = memory.send("ghost", "row-1")
    memory.drain()
    assert memory.final(request, "ghost").code == "UNKNOWN_MODEL"
    put_back(memory, before)
    worker = memory.pair[0]
    worker.recover()
    worker._take_over()
    memory.register("ghost", budget=10.0)
    memory.drain()
    assert memory.final(request, "ghost").code == "UNKNOWN_MODEL"


def test_a_repeat_elsewhere_finds_the_answer_although_two_workers_died(
    memory: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a request for an unregistered model, and its repeat in another worker's partition."""
    monkeypatch.setattr(reach, "NET", 0)
    ghost = next(m for m in map("g{}".format, range(99)) if partition_index(m.encode(), 2) == 0)
    memory.register("m", budget=10.0)
    slow, _ = memory.pair
    stray = memory.deletion_worker(mark_seconds=0.0, limits=BatchLimits(records=1))
    for worker in (slow, stray):
        worker.run_once(0.0)
    assert [partition.index for partition in slow._consumer.assignment()] == [0]
    before = whole(memory)
    body = json.dumps({"request_id": "r", "model_id": ghost, "row_ids": ["x"]}).encode()
    memory.send_raw(body, ghost.encode())
    slow.run_once(0.0)
    append_to(memory, 1, b"garbage", ghost.encode())
    append_to(memory, 1, body, ghost.encode())
    published = values(memory, topics.RECEIPTS)
    # When all that is lost, who has the repeat takes over, decides one record, and dies,
    put_back(memory, before)
    stray.recover()
    stray.run_once(0.0)
    stray.close()
    # and the next one takes over while the owner of the first record does nothing
    successor = memory.deletion_worker(mark_seconds=0.0)
    for _ in range(5):
        successor.run_once(0.0)
    assert len(published) == 1
    assert values(memory, topics.RECEIPTS) == published


def test_a_repeat_in_another_of_its_partitions_finds_the_answer_although_the_worker_died(
    memory: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a worker of both partitions, which marks neither before it has decided the answered."""
    monkeypatch.setattr(reach, "NET", 0)
    ghost = next(m for m in map("g{}".format, range(99)) if partition_index(m.encode(), 2) == 0)
    memory.register("m", budget=10.0)
    memory.pair[0].close()
    both = memory.deletion_worker(mark_seconds=0.0, limits=BatchLimits(records=1))
    both.run_once(0.0)
    for _ in range(3):
        append_to(memory, 0, b"garbage", b"x")
    before = whole(memory)
    body = json.dumps({"request_id": "r", "model_id": ghost, "row_ids": ["x"]}).encode()
    memory.send_raw(body, ghost.encode())
    for _ in range(6):
        both.run_once(0.0)
    published = values(memory, topics.RECEIPTS)
    assert len(published) == 1
    # When all that is lost, the worker takes over, decides one record, and dies,
    put_back(memory, before)
    both.recover()
    both.run_once(0.0)
    both.close()
    # and of two successors the one that has the repeat is the faster one
    slow = memory.deletion_worker()
    successor = memory.deletion_worker(mark_seconds=0.0)
    assert [partition.index for partition in successor._consumer.assignment()] == [1]
    append_to(memory, 1, body, ghost.encode())
    for _ in range(5):
        successor.run_once(0.0)
    assert values(memory, topics.RECEIPTS) == published
    slow.close()


def crowd(memory: Platform, topic: str, other: str, times: int) -> None:
    """Let a topic have many more records of another model behind it."""
    last = [r for r in memory.records(topic) if r.key == other.encode()][-1]
    message = Message(topic, other.encode(), last.value, last.headers)
    memory.producer.publish([message] * times)


@pytest.mark.parametrize("again", [True, False])
def test_a_loss_of_the_whole_store_does_not_answer_an_idle_model_anew(
    memory: Platform, again: bool
) -> None:
    """There is no mark left either: what it was lies far back."""
    other = neighbour_of("m")
    for name in ("m", other):
        memory.register(name, budget=10.0)
    memory.drain()
    request = memory.send_index("m", 1)
    memory.send(other, "a stranger")
    memory.drain()
    crowd(memory, topics.VERSIONS, other, 1100)
    crowd(memory, topics.RECEIPTS, other, 1100)
    put_back(memory, {})
    memory.pair[0].recover()
    later = memory.send_index("m", 2) if again else ""
    for _ in range(10):
        memory.turn(memory.pair[0])
    assert memory.final(request).status == "APPLIED"
    assert memory.statuses(later) == []


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let takeovers look at 50 records at most."""
    monkeypatch.setattr(takeover, "TAIL", 5)
    for module in (takeover, reach):
        monkeypatch.setattr(module, "FARTHEST", 50)


@pytest.mark.usefixtures("short")
def test_a_halt_ends_only_when_it_is_mended(memory: Platform) -> None:
    """However many versions of others cover what it was compared with."""
    other = neighbour_of("m")
    for name in ("m", other):
        memory.register(name, budget=10.0)
    memory.send_index("m", 1)
    memory.drain()
    fork_off(memory.store, "m")
    worker = memory.pair[0]
    for versions in (0, 60):
        crowd(memory, topics.VERSIONS, other, versions)
        worker.recover()
        memory.turn(worker)
        assert worker._halted
        assert memory.store.handover.halted() == {"m"}
    memory.register("m", budget=10.0, replace_model=True)
    worker.recover()
    memory.drain()
    assert not worker._halted


@pytest.mark.usefixtures("short")
def test_a_lost_registration_is_remembered_until_it_is_mended(memory: Platform) -> None:
    other = neighbour_of("m")
    memory.register(other, budget=10.0)
    memory.drain()
    before = whole(memory)
    memory.register("m", budget=10.0)
    memory.drain()
    put_back(memory, before)
    worker = memory.pair[0]
    worker.recover()
    memory.turn(worker)
    crowd(memory, topics.VERSIONS, other, 60)
    worker.recover()
    request = memory.send("m", "row-1")
    for _ in range(5):
        memory.turn(worker)
    assert memory.statuses(request) == []
    assert memory.store.handover.halted() == {"m"}


def ask_elsewhere(memory: Platform, model: str, request: str, *rows: str) -> None:
    """Send a request as another partitioner would: to the first of two partitions."""
    body = json.dumps({"request_id": request, "model_id": model, "row_ids": rows})
    append_to(memory, 0, body.encode(), model.encode())
    memory.asked[(model, request)] = rows


def test_an_answered_request_has_its_rows_before_one_of_a_lower_partition(
    memory: Platform,
) -> None:
    """The other one was credited the row that both name, and the model halted."""
    model = next(m for m in map("a{}".format, range(99)) if partition_index(m.encode(), 2) == 1)
    request, _ = lose_a_rebuild(memory, model)
    ask_elsewhere(memory, model, "late", "row-0", "row-30")
    memory.drain()
    assert not memory.pair[0]._halted
    assert memory.final(request, model).rows_deleted == 20
    assert memory.final("late", model).rows_deleted == 1
    check_model(memory, model)


def test_an_answered_request_is_resolved_before_many_of_a_lower_partition(
    memory: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others took all the room in the rebuild's version, and every result was dropped."""
    monkeypatch.setattr(refresh_job, "RESOLVED_BYTES", 100)
    model = next(m for m in map("a{}".format, range(99)) if partition_index(m.encode(), 2) == 1)
    request, _ = lose_a_rebuild(memory, model)
    for i in range(20):
        ask_elsewhere(memory, model, f"late-{i}", f"row-{40 + i}")
    memory.drain()
    assert not memory.load(model).deferred
    assert memory.final(request, model).version == 1
    assert {receipt.rows_deleted for receipt in memory.finals(model).values()} == {20, 1}
    check_model(memory, model)
