"""Losses of the store in sequences that an adversary worked out, each of which was wrong once."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from consumers import reach, takeover, topics
from consumers.deletion_worker import BatchLimits
from consumers.log.base import Message
from consumers.log.memory import MemoryLog, Moment
from consumers.log.partitioner import partition_index
from consumers.loop import TRANSIENT
from engine.errors import LogUnavailable
from engine.policy import Size
from engine.store.head import LimitsRecord
from engine.store.keys import shard_of
from tests.integration.test_worker_lost_writes import lose_a_rebuild, values
from tests.integration.test_worker_requests import append_to
from tests.support.invariants import check_model, ledger_of
from tests.support.platform import Platform
from tests.support.waiting import CROWDED

pytestmark = pytest.mark.redis


def whole(platform: Platform) -> dict[bytes, bytes]:
    """Return all that the store holds, but for the log."""
    client: Any = platform.store.client
    names = [name for name in client.scan_iter("lethe:*") if not name.startswith(b"lethe:log:")]
    return {name: client.dump(name) for name in names}


def put_back(platform: Platform, kept: dict[bytes, bytes]) -> None:
    """Bring the whole store back to where it was."""
    client: Any = platform.store.client
    for name in whole(platform):
        client.delete(name)
    for name, dumped in kept.items():
        client.restore(name, 0, dumped)


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
    memory.pair[0].recover()
    memory.drain()
    assert not memory.pair[0]._halted
    assert values(memory, topics.RECEIPTS) == published
    check_model(memory)


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
    memory.pair[0].recover()
    memory.drain()
    assert not memory.pair[0]._halted
    assert values(memory, topics.RECEIPTS) == published
    check_model(memory)


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


def test_a_store_that_went_on_by_itself_is_not_published(memory: Platform) -> None:
    """Given a former primary that was cut off with its worker, and is the store again."""
    assert isinstance(memory.log, MemoryLog)
    memory.register("m", budget=10.0)
    memory.drain()
    before = whole(memory)
    memory.send_index("m", 1)
    memory.send_index("m", 2)

    def cut(moment: Moment) -> None:
        if moment.call == "publish" and moment.messages:
            raise LogUnavailable("cut")

    memory.log.hook = cut
    isolated = memory.deletion_worker(limits=BatchLimits(rows=1))
    memory.pair[0].close()
    for _ in range(3):
        try:
            isolated.run_once(0.0)
        except TRANSIENT:
            break
    isolated.close()
    diverged = whole(memory)
    assert memory.load().version == 2
    # Given others, who went on with the other server meanwhile
    memory.log.hook = lambda _: None
    put_back(memory, before)
    worker = memory.deletion_worker()
    time.sleep(0.01)
    memory.drain(worker)
    published = memory.versions()
    worker.close()
    # When the first server is the store again, nothing of its branch gets out
    put_back(memory, diverged)
    worker = memory.deletion_worker()
    memory.drain(worker)
    [reason] = worker._halted.values()
    assert "went on by itself" in reason
    assert memory.versions() == published


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
