"""The log in memory can be made to fail where a real one does; the partitioner is Kafka's."""

from __future__ import annotations

import random
import re
import time
from threading import Thread

import pytest

from lethe.consumers.log.base import Message, Partition, TopicSpec
from lethe.consumers.log.membership import Membership
from lethe.engine.errors import LogUnavailable
from lethe.engine.store.layout.keys import murmur2, partition_index
from tests.support.memory_log import HookCall, MemoryLog
from tests.support.servers import ROOT


def test_the_partitioner_is_kafkas() -> None:
    from kafka.partitioner.default import murmur2 as kafkas

    draw = random.Random(7)
    keys = [draw.randbytes(length) for length in range(130)] + [b"churn", "größe".encode()]
    assert [murmur2(key) for key in keys] == [kafkas(key) for key in keys]
    # From the Java client's own tests (UtilsTest.testMurmur2), as signed integers.
    assert murmur2(b"21") == -973932308 % 2**32
    assert murmur2(b"foobar") == -790332482 % 2**32
    assert partition_index(b"21", 1000) == (-973932308 & 0x7FFFFFFF) % 1000


def test_the_test_vector_of_the_docs_is_that_of_the_partitioner() -> None:
    page = (ROOT / "docs" / "events.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([^`]+)` \| `([0-9a-f]{8})` \| (\d+) \| (\d+) \|$", page, re.MULTILINE)
    assert len(rows) >= 5
    for key, digest, of_16, of_6 in rows:
        assert f"{murmur2(key.encode()):08x}" == digest
        assert partition_index(key.encode(), 16) == int(of_16)
        assert partition_index(key.encode(), 6) == int(of_6)


def _filled(log: MemoryLog) -> list[Message]:
    log.ensure_topics([TopicSpec("t")])
    return [Message("t", b"k", b"%d" % number) for number in range(3)]


@pytest.mark.parametrize(("stage", "left"), [("before", 0), ("between", 1), ("after", 3)])
def test_a_publish_can_fail_before_between_and_after(stage: str, left: int) -> None:
    def fail(moment: HookCall) -> None:
        if (moment.call, moment.stage) == ("publish", stage):
            raise LogUnavailable("made to fail")

    log = MemoryLog()
    messages = _filled(log)
    log.hook = fail
    with pytest.raises(LogUnavailable):
        log.producer().publish(messages)
    reader = log.reader()
    assert reader.bounds(reader.partitions("t")[0]).end == left


def test_a_poll_that_fails_moves_nothing() -> None:
    log = MemoryLog()
    log.producer().publish(_filled(log))
    consumer = log.consumer("g", ["t"])
    [partition] = consumer.take_assigned()
    consumer.seek(partition, 0)
    for stage in ("before", "after"):

        def fail(moment: HookCall, stage: str = stage) -> None:
            if (moment.call, moment.stage) == ("poll", stage):
                raise LogUnavailable("made to fail")

        log.hook = fail
        with pytest.raises(LogUnavailable):
            consumer.poll(0, 10)
    log.hook = lambda _moment: None
    assert [record.offset for record in consumer.poll(0, 10)] == [0, 1, 2]


def test_records_of_a_partition_that_moves_during_a_poll_are_not_delivered() -> None:
    log = MemoryLog()
    log.producer().publish(_filled(log))
    consumer = log.consumer("g", ["t"])
    [partition] = consumer.take_assigned()
    consumer.seek(partition, 0)

    def evict(moment: HookCall) -> None:
        if (moment.call, moment.stage) == ("poll", "after"):
            assert len(moment.records) == 3
            log.evict(consumer)

    log.hook = evict
    assert consumer.poll(0, 10) == []
    assert consumer.take_lost() == {partition}


def test_added_partitions_are_assigned_and_keep_the_topic_id() -> None:
    log = MemoryLog()
    _filled(log)
    consumer = log.consumer("g", ["t"])
    [first] = consumer.take_assigned()
    log.add_partitions("t", 3)
    added = consumer.take_assigned()
    assert added == {Partition("t", first.topic_id, 1), Partition("t", first.topic_id, 2)}
    assert consumer.take_lost() == frozenset()


def test_a_partition_lost_and_regained_is_in_both_sets_of_news() -> None:
    membership, partition = Membership(), Partition("t", "id", 0)
    membership.gain([partition])
    membership.seek(partition)
    assert membership.take_assigned() == {partition}
    membership.lose([partition])
    membership.gain([partition])
    assert membership.take_lost() == {partition}
    assert membership.take_assigned() == {partition}
    assert membership.sought() == frozenset()
    membership.lose([partition])
    assert membership.take_assigned() == frozenset()
    assert not membership.seek(partition)


def test_threads_may_share_the_log() -> None:
    log = MemoryLog()
    log.ensure_topics([TopicSpec("t", 2)])
    consumer = log.consumer("g", ["t"])
    for partition in consumer.take_assigned():
        consumer.seek(partition, 0)

    def send(name: int) -> None:
        producer = log.producer()
        for number in range(200):
            producer.publish([Message("t", b"model-%d" % name, b"%d" % number)])

    threads = [Thread(target=send, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    found: dict[bytes | None, list[bytes | None]] = {}
    deadline = time.monotonic() + 10.0
    while sum(map(len, found.values())) < 800 and time.monotonic() < deadline:
        for record in consumer.poll(0.5, 7):
            found.setdefault(record.key, []).append(record.value)
    for thread in threads:
        thread.join()
    assert list(found.values()) == [[b"%d" % number for number in range(200)]] * 4
