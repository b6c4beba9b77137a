"""Every topic, made again, gone, truncated, short of partitions, expired: who notices, what stops.

docs/guarantees.md has the table; each of its lines names a test of this file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from lethe.consumers.commits.recovery.fold import Fold
from lethe.consumers.contract import topics
from lethe.consumers.contract.receipt import Receipt
from lethe.consumers.contract.signatures import Signer, TrustedKeys
from lethe.consumers.erasures.known import KnownErasures
from lethe.consumers.erasures.receipts import PublishedReceipts
from lethe.consumers.log.base import Message
from lethe.consumers.service import topic_watch
from lethe.consumers.service.telemetry.steps import Step
from lethe.consumers.suppression.marks import DEFAULT_NAMESPACE
from lethe.consumers.suppression.suppressions import Suppressions
from lethe.consumers.workers.erasure_worker import ErasureWorker
from lethe.engine.errors import InvalidData, LogReset
from lethe.engine.store.layout.config import LimitsRecord
from lethe.engine.store.layout.keys import ERASED, commit_partition
from tests.support import erasures
from tests.support.invariants import check_model
from tests.support.lost_topics import delete, go_on_without, know, make_again, plan_of
from tests.support.memory_log import MemoryLog
from tests.support.platform import Platform
from tests.support.stores import wipe

pytestmark = pytest.mark.redis

NAMES = [name for name in vars(topics) if isinstance(getattr(topics, name), str) and name.isupper()]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing topic is looked for again without a pause, and workers look at every turn."""
    monkeypatch.setattr(topic_watch, "_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(topic_watch, "WATCH_SECONDS", 0.0)


def log_of(platform: Platform) -> MemoryLog:
    assert isinstance(platform.log, MemoryLog)
    return platform.log


def stop(platform: Platform) -> None:
    """End the platform's workers; the next drain makes others."""
    for worker in platform.pair:
        worker.close()
    platform._pair = None


@pytest.fixture
def worker(memory: Platform) -> Iterator[ErasureWorker]:
    one = erasures.erasure_worker(memory)
    yield one
    one.close()


def truncate(platform: Platform, topic: str, records: int) -> int:
    """Take the newest records from the partition that has any; return its index."""
    for partition in platform.reader.partitions(topic):
        end = platform.reader.bounds(partition).end
        if end:
            log_of(platform).truncate(partition, end - records)
            return partition.index
    raise AssertionError(f"{topic} is empty")


# -- every topic, whoever starts -------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_nobody_starts_on_a_topic_that_was_made_again(memory: Platform, name: str) -> None:
    topic = getattr(topics, name)
    know(memory)
    make_again(memory, topic)
    if topic == topics.REFRESH_JOBS:  # what a lost job was to do is ordered again
        know(memory)
        assert [loss.topic for loss in memory.store.topics.losses()] == [topic]
        return
    for _ in range(2):
        with pytest.raises(LogReset, match=f"{topic} was made again.*lethe recover"):
            know(memory)


@pytest.mark.parametrize("name", NAMES)
def test_a_topic_that_the_store_knows_is_never_created_again(memory: Platform, name: str) -> None:
    topic = getattr(topics, name)
    know(memory)
    delete(memory, topic)
    with pytest.raises(LogReset, match=f"{topic} is gone.*lethe recover"):
        know(memory)
    assert not memory.reader.partitions(topic)


@pytest.mark.parametrize("name", sorted({*NAMES} - {"REFRESH_JOBS"}))
def test_nobody_starts_on_a_topic_with_fewer_partitions(memory: Platform, name: str) -> None:
    topic = getattr(topics, name)
    log_of(memory).add_partitions(topic, 17)
    know(memory)
    log_of(memory)._topics[topic].pop()
    with pytest.raises(LogReset, match=f"{topic} has 16 partitions, but had 17"):
        know(memory)


def test_added_partitions_are_taken_as_they_are(memory: Platform) -> None:
    know(memory)
    log_of(memory).add_partitions(topics.DELETIONS, 7)
    know(memory)
    assert memory.store.topics.read()[topics.DELETIONS].partitions == 7


@pytest.mark.parametrize("name", sorted({*NAMES} - {"COMMITS"}))
def test_a_person_goes_on_without_any_topic(memory: Platform, name: str) -> None:
    """Gone, or made again by somebody: the new one is the topic, and the loss stays known."""
    topic = getattr(topics, name)
    know(memory)
    before = memory.store.topics.read()[topic]
    delete(memory, topic)
    loss = go_on_without(memory, topic)
    know(memory)
    after = memory.store.topics.read()[topic]
    assert after.topic_id != before.topic_id
    assert after.partitions == before.partitions
    assert memory.store.topics.losses() == [loss]
    assert "Send it again" in loss.statement
    with pytest.raises(InvalidData, match="nothing is lost"):
        plan_of(memory, topic)


def test_commits_are_recovered_by_model(memory: Platform) -> None:
    """Whoever starts refuses; `lethe recover MODEL` takes the topic, and its cursors still halt."""
    memory.register("m", budget=10.0)
    memory.drain()
    know(memory)
    make_again(memory, topics.COMMITS)
    with pytest.raises(InvalidData, match="lethe recover MODEL"):
        plan_of(memory, topics.COMMITS)
    know(memory, topics.COMMITS)
    know(memory)
    fold = Fold(memory.store, memory.reader, memory.producer, memory.seals)
    with pytest.raises(LogReset, match="made again"):
        fold.run(commit_partition("m"))


def test_a_store_that_was_wiped_knows_no_topic_and_takes_those_that_are_there(
    memory: Platform,
) -> None:
    know(memory)
    wipe(memory)
    make_again(memory, topics.DELETIONS)
    know(memory)


# -- workers that run ------------------------------------------------------------------------------


def test_requests_of_a_topic_that_was_made_again_are_not_passed_over(platform: Platform) -> None:
    """On every log: nobody had read them; the worker stops, also if started again."""
    platform.register("m")
    platform.send_index("m", 1)
    platform.drain()
    stop(platform)
    lost = platform.send_index("m", 2)
    make_again(platform, topics.DELETIONS)
    with pytest.raises(LogReset, match=r"made again.*lethe recover --topic"):
        platform.drain()
    stop(platform)
    plan = plan_of(platform, topics.DELETIONS)
    assert plan.since_ms > 0  # when the log took the last request that was answered
    assert not plan.remake
    go_on_without(platform, topics.DELETIONS)
    platform.send_index("m", 2, request_id=lost)
    platform.drain()
    assert platform.final(lost).status == "APPLIED"
    check_model(platform)


@pytest.mark.parametrize("name", ["DELETIONS", "REFRESH_JOBS"])
def test_a_rebuild_that_was_lost_with_its_topic_is_done_again(memory: Platform, name: str) -> None:
    """Given its job, or the event that it is done: requests do not wait until it has expired."""
    few = LimitsRecord(floor_rows=1, fraction_of_d=0.0)
    memory.register("m", "benign", "logistic", budget=10.0, limits=few)
    waiting = memory.send_index("m", *range(20))
    memory.drain(memory.pair[0])
    if name == "DELETIONS":
        assert memory.pair[1].run_once(0.0) == 1
    stop(memory)
    know(memory)
    if name == "DELETIONS":
        make_again(memory, topics.DELETIONS)
    else:
        delete(memory, topics.REFRESH_JOBS)
    go_on_without(memory, getattr(topics, name))
    memory.drain()
    assert memory.final(waiting).status == "APPLIED"
    check_model(memory)


def test_first_receipts_stay_in_order_when_repeats_are_of_a_former_topic(memory: Platform) -> None:
    """Given one batch: a repeat that lay far behind, a conflict, and new requests, one twice."""
    memory.register("m", budget=10.0)
    former = [memory.send_index("m", row) for row in range(9)]
    memory.drain()
    stop(memory)
    make_again(memory, topics.DELETIONS)
    go_on_without(memory, topics.DELETIONS)
    memory.send_index("m", 8, request_id=former[8])
    memory.send_index("m", 20, request_id=former[0])
    memory.send_index("m", 9)
    twice = memory.send_index("m", 10)
    memory.send_index("m", 10, request_id=twice)
    before = len(memory.records(topics.RECEIPTS))
    memory.drain()
    values = [record.value or b"" for record in memory.records(topics.RECEIPTS)[before:]]
    answers = [receipt for value in values if (receipt := Receipt.read(value)).source.offset < 4]
    assert [receipt.source.offset for receipt in answers] == [1, 2, 3, 3]
    assert answers[0].conflicts_with is not None


def test_a_worker_notices_while_it_runs(memory: Platform) -> None:
    memory.register("m")
    memory.send_index("m", 1)
    memory.drain()
    make_again(memory, topics.DELETIONS)
    memory.send_index("m", 2)
    with pytest.raises(LogReset, match="made again"):
        memory.drain()


@pytest.mark.parametrize("name", ["RECEIPTS", "VERSIONS", "MODELS", "DEAD_LETTERS", "DELETIONS"])
def test_a_deletion_worker_notices_that_a_topic_is_gone(memory: Platform, name: str) -> None:
    memory.register("m")
    memory.drain()
    delete(memory, getattr(topics, name))
    with pytest.raises(LogReset, match="is gone"):
        memory.drain()


@pytest.mark.parametrize(
    "name", ["ERASURES", "ERASURE_RECEIPTS", "SUPPRESSIONS", "DELETIONS", "ROW_CHANGES"]
)
def test_an_erasure_worker_notices_that_a_topic_was_made_again(
    memory: Platform, worker: ErasureWorker, name: str
) -> None:
    erasures.register(memory, "m")
    erasures.erase(memory, "subject-1", "e-1")
    erasures.drain(memory, worker)
    make_again(memory, getattr(topics, name))
    with pytest.raises(LogReset, match=r"made again|recreated"):
        erasures.turn(worker)


def test_what_an_erasure_had_asked_is_asked_again_after_the_requests_were_lost(
    memory: Platform, worker: ErasureWorker
) -> None:
    """The worker runs on while a person accepts the loss: it must not wait for what is gone."""
    erasures.register(memory, "m")
    erasures.erase(memory, "subject-1", "e-1")
    for _ in range(3):
        erasures.turn(worker)  # its request is sent, and no deletion worker runs
    make_again(memory, topics.DELETIONS)
    go_on_without(memory, topics.DELETIONS)
    erasures.drain(memory, worker)
    receipt = erasures.finals(memory)["e-1"]
    assert erasures.outcomes(receipt) == {"m": ("APPLIED", 3)}


def test_an_erasure_of_a_topic_that_was_made_again_is_not_passed_over(memory: Platform) -> None:
    erasures.register(memory, "m")
    know(memory)
    erasures.erase(memory, "subject-1", "e-1")
    make_again(memory, topics.ERASURES)
    worker = erasures.erasure_worker(memory)
    with pytest.raises(LogReset, match=r"lethe.erasures was made again"):
        erasures.turn(worker)
    worker.close()
    assert plan_of(memory, topics.ERASURES).unread == [0]
    go_on_without(memory, topics.ERASURES)
    erasures.erase(memory, "subject-1", "e-1")
    worker = erasures.erasure_worker(memory)
    erasures.drain(memory, worker)
    worker.close()
    assert erasures.finals(memory)["e-1"].status == "COMPLETE"


def test_an_erasure_that_is_sent_again_behind_its_lift_puts_the_subject_back(
    memory: Platform,
) -> None:
    """Given a topic that was lost once it was on the list; one poll reads the lift and it."""

    def die(step: str) -> None:
        if step == Step.ERASE_ASK:
            raise KeyboardInterrupt

    erasures.register(memory, "m")
    know(memory)
    worker = erasures.erasure_worker(memory, at_step=die)
    erasures.erase(memory, "subject-1", "e")
    with pytest.raises(KeyboardInterrupt):
        erasures.drain(memory, worker)
    worker.close()
    stop(memory)
    make_again(memory, topics.ERASURES)
    go_on_without(memory, topics.ERASURES)
    erasures.erase(memory, "subject-1", "l", lift=True)
    erasures.erase(memory, "subject-1", "e")
    worker = erasures.erasure_worker(memory)
    erasures.drain(memory, worker)
    worker.close()
    assert {one.status for one in erasures.finals(memory).values()} == {"COMPLETE"}
    suppressed = Suppressions(memory.store, memory.reader, memory.seals)
    suppressed.catch_up()
    assert suppressed.of(DEFAULT_NAMESPACE, ["subject-1"]) == {"subject-1": "e"}


def test_a_place_in_a_former_topic_does_not_show_what_another_person_asked(
    memory: Platform, worker: ErasureWorker
) -> None:
    erasures.register(memory, "m")
    know(memory)
    erasures.erase(memory, "subject-1", "first", reason="the first one's")
    erasures.drain(memory, worker)
    stop(memory)
    make_again(memory, topics.ERASURES)
    go_on_without(memory, topics.ERASURES)
    erasures.erase(memory, "subject-2", "other", reason="the other one's")
    found = KnownErasures(memory.raw(), memory.reader, None).find("first")
    assert found is not None
    assert found.status == "COMPLETE"
    assert found.request is None  # the log no longer has it


# -- offsets that went back ------------------------------------------------------------------------


def ask(platform: Platform, topic: str, number: int) -> str:
    """Send one request to a topic; return its id."""
    request = f"asked-{number}"
    if topic == topics.ERASURES:
        erasures.erase(platform, f"subject-{number}", request)
    elif topic == topics.DELETIONS:
        platform.send_index("m", 90 + number, request_id=request)
    else:
        row = {"id": f"new-{number}", "features": [1.0] * 3, "target": [0.0]}
        platform.send_change("m", "insert", row, request_id=request)
    return request


@pytest.mark.parametrize("grown", [False, True])
@pytest.mark.parametrize("name", ["DELETIONS", "ERASURES", "ROW_CHANGES"])
def test_a_topic_that_lost_its_end_is_made_again_with_what_is_open(
    memory: Platform, name: str, grown: bool
) -> None:
    """Others may have taken the lost offsets: it shows by the record below the watermark."""
    topic = getattr(topics, name)
    erasures.register(memory, "m")
    worker = erasures.erasure_worker(memory)
    first = [ask(memory, topic, number) for number in range(3)]
    erasures.drain(memory, worker)
    worker.close()
    stop(memory)
    truncate(memory, topic, 2)
    newer = [ask(memory, topic, number) for number in range(3, 8 if grown else 4)]

    said = "another record lies at offset 2" if grown else "was read up to offset 3"
    for _ in range(2):  # those who are started again, too
        worker = erasures.erasure_worker(memory)
        with pytest.raises(LogReset, match=said):
            erasures.drain(memory, worker)
        worker.close()
        stop(memory)

    plan = plan_of(memory, topic)
    assert plan.remake
    assert said in plan.faults[0]
    go_on_without(memory, topic)
    worker = erasures.erasure_worker(memory)
    erasures.drain(memory, worker)
    worker.close()
    if topic == topics.ERASURES:
        done = erasures.finals(memory)
        assert {done[one].status for one in [*first, *newer]} == {"COMPLETE"}
    else:
        assert {memory.final(one).final for one in [*first, *newer]} == {True}
    check_model(memory)


def test_what_was_answered_long_before_a_loss_is_not_sent_again(
    memory: Platform,
) -> None:
    memory.register("m")
    moment = [1_000_000.0]
    log_of(memory).clock = lambda: moment[0]
    for number in range(3):
        ask(memory, topics.DELETIONS, number)
        memory.drain()
        moment[0] += 7_200
    stop(memory)
    truncate(memory, topics.DELETIONS, 1)
    go_on_without(memory, topics.DELETIONS)
    left = [json.loads(record.value or b"") for record in memory.records(topics.DELETIONS)]
    assert [one["request_id"] for one in left] == []


def test_jobs_that_lost_their_end_are_ordered_again(memory: Platform) -> None:
    memory.register("m")
    memory.store.cursors.set_watermarks({str(memory.reader.partitions(topics.REFRESH_JOBS)[0]): 7})
    memory.drain()
    memory.drain()
    assert [loss.topic for loss in memory.store.topics.losses()] == [topics.REFRESH_JOBS]


def test_a_list_of_suppressions_is_published_again_from_the_store(
    memory: Platform, worker: ErasureWorker
) -> None:
    erasures.register(memory, "m")
    erasures.erase(memory, "subject-1", "e-1")
    erasures.drain(memory, worker)
    worker.close()
    delete(memory, topics.SUPPRESSIONS)
    go_on_without(memory, topics.SUPPRESSIONS)
    memory.store.client.delete(ERASED)  # a store that is wiped later reads it from the topic
    memory.store.client.hdel("lethe:{erased}:cursors", "subjects")
    assert erasures.register(memory, "later").erased == 3


@pytest.mark.parametrize("name", ["SUPPRESSIONS", "ERASURE_RECEIPTS"])
def test_a_view_of_a_topic_that_lost_its_end_and_grew_stops_and_goes_on(
    memory: Platform, worker: ErasureWorker, name: str
) -> None:
    topic = getattr(topics, name)
    erasures.register(memory, "m")
    for number in range(3):
        erasures.erase(memory, f"subject-{number}", f"e-{number}")
    erasures.drain(memory, worker)
    worker.close()
    PublishedReceipts(memory.store.client, memory.reader, None).catch_up()
    truncate(memory, topic, 1)
    for number in range(3):
        memory.producer.publish([Message(topic, b"k", b"another %d" % number)])
    again = erasures.erasure_worker(memory)
    erasures.erase(memory, "subject-7", "e-7")
    with pytest.raises(LogReset, match="another record lies"):
        erasures.drain(memory, again)
    again.close()
    assert plan_of(memory, topic).remake
    go_on_without(memory, topic)
    again = erasures.erasure_worker(memory)
    erasures.drain(memory, again)
    again.close()
    receipts = PublishedReceipts(memory.store.client, memory.reader, None)
    receipts.catch_up()
    assert receipts.find(["e-7"]).keys() == {"e-7"}
    assert erasures.register(memory, "later").erased == 12


def test_combined_receipts_that_are_lost_are_made_anew(
    memory: Platform, worker: ErasureWorker
) -> None:
    erasures.register(memory, "m")
    erasures.erase(memory, "subject-1", "e-1")
    erasures.drain(memory, worker)
    worker.close()
    trusted = TrustedKeys.of([Signer(Ed25519PrivateKey.generate()).public])
    PublishedReceipts(memory.store.client, memory.reader, trusted).catch_up()
    make_again(memory, topics.ERASURE_RECEIPTS)
    go_on_without(memory, topics.ERASURE_RECEIPTS)
    PublishedReceipts(memory.store.client, memory.reader, trusted).catch_up()
    erasures.erase(memory, "subject-1", "e-1")
    again = erasures.erasure_worker(memory)
    erasures.drain(memory, again)
    again.close()
    assert erasures.finals(memory)["e-1"].status == "COMPLETE"


# -- retention that is shorter than the lag --------------------------------------------------------


@pytest.mark.parametrize("name", ["DELETIONS", "ERASURES"])
def test_requests_that_expired_unread_stop_the_worker(memory: Platform, name: str) -> None:
    topic = getattr(topics, name)
    erasures.register(memory, "m")
    worker = erasures.erasure_worker(memory)
    ask(memory, topic, 0)
    erasures.drain(memory, worker)
    worker.close()
    stop(memory)
    partition = next(p for p in memory.reader.partitions(topic) if memory.reader.bounds(p).end)
    for number in range(1, 4):
        ask(memory, topic, number)
    log_of(memory).trim(partition, 3)
    worker = erasures.erasure_worker(memory)
    with pytest.raises(LogReset, match="2 records were removed before they were processed"):
        erasures.drain(memory, worker)
    worker.close()
    stop(memory)
    plan = plan_of(memory, topic)
    assert not plan.remake
    go_on_without(memory, topic)
    worker = erasures.erasure_worker(memory)
    erasures.drain(memory, worker)
    worker.close()
    if topic == topics.ERASURES:
        assert erasures.finals(memory)["asked-3"].status == "COMPLETE"
    else:
        assert memory.final("asked-3").status == "APPLIED"


def test_changes_of_rows_that_expired_unread_are_named(memory: Platform) -> None:
    """Their values may be kept for a day only: work goes on, and says what it lacks."""
    erasures.register(memory, "m")
    ask(memory, topics.ROW_CHANGES, 0)
    memory.drain()
    stop(memory)
    for number in range(1, 4):
        ask(memory, topics.ROW_CHANGES, number)
    partition = next(
        p for p in memory.reader.partitions(topics.ROW_CHANGES) if memory.reader.bounds(p).end
    )
    log_of(memory).trim(partition, 3)
    for _ in range(2):
        memory.drain()
        stop(memory)
    [loss] = memory.store.topics.losses()
    assert "2 records expired before they were processed" in loss.statement
