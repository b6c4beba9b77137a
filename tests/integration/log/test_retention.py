"""Single-node mode: what leaves Redis Streams, and what never does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from lethe.consumers.contract import topics
from lethe.consumers.log.base import Bounds, Message, Partition, TopicSpec
from lethe.consumers.log.streams import producer as streams_producer, read as streams_read
from lethe.consumers.log.streams.format import stream_key, topic_key
from lethe.consumers.log.streams.log import StreamsLog
from lethe.engine.store.layout.keys import watermark
from tests.support.platform import Platform

HOUR_MS = 3_600_000


@pytest.fixture
def log(redis_client: redis.Redis) -> Iterator[StreamsLog]:
    log = StreamsLog(redis_client)
    yield log
    log.close()


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look for what may leave at every opportunity."""
    monkeypatch.setattr(streams_producer, "EXPIRY_SECONDS", 0.0)
    monkeypatch.setattr(streams_read, "TRIM_SECONDS", 0.0)


def fill(log: StreamsLog, name: str, values: int) -> Partition:
    producer = log.producer()
    producer.publish(Message(name, b"k", str(i).encode()) for i in range(values))
    producer.close()
    reader = log.reader()
    [partition] = reader.partitions(name)
    reader.close()
    return partition


def age(client: redis.Redis, partition: Partition, hours: list[float]) -> None:
    """Write a partition's records again, each as old as this."""
    key = stream_key(partition)
    entries: Any = client.xrange(key)
    client.delete(key)
    for (entry_id, fields), old in zip(entries, hours, strict=True):
        written = int(fields[b"t"]) - int(old * HOUR_MS)
        client.xadd(key, {**fields, b"t": str(written)}, id=entry_id)


def bounds(log: StreamsLog, partition: Partition) -> Bounds:
    reader = log.reader()
    found = reader.bounds(partition)
    reader.close()
    return found


@pytest.mark.usefixtures("often")
@pytest.mark.parametrize("old", range(6))
def test_records_older_than_their_topic_keeps_them_leave(
    log: StreamsLog, redis_client: redis.Redis, old: int
) -> None:
    log.ensure_topics([TopicSpec("t", retention_ms=HOUR_MS)])
    partition = fill(log, "t", 5)
    assert bounds(log, partition) == Bounds(0, 5)
    age(redis_client, partition, [1.5] * old + [0.5] * (5 - old))
    fill(log, "t", 1)
    assert bounds(log, partition) == Bounds(old, 6)
    assert redis_client.xlen(stream_key(partition)) == 6 - old


@pytest.mark.usefixtures("often")
@pytest.mark.parametrize(
    "spec",
    [
        TopicSpec("t"),
        TopicSpec("t", retention_ms=topics.FOR_EVER),
        TopicSpec("t", retention_ms=HOUR_MS, until_released=True),
        TopicSpec("t", retention_ms=HOUR_MS, compacted=True),
    ],
    ids=["no retention", "for ever", "until released", "compacted"],
)
def test_other_records_stay_whatever_their_age(
    log: StreamsLog, redis_client: redis.Redis, spec: TopicSpec
) -> None:
    log.ensure_topics([spec])
    partition = fill(log, "t", 1)
    age(redis_client, partition, [10_000.0])
    producer = log.producer()
    producer.publish([Message("t", b"another", b"x")])
    producer.close()
    assert redis_client.xlen(stream_key(partition)) == 2


@pytest.mark.usefixtures("often")
def test_a_topic_of_a_former_lethe_keeps_everything(
    log: StreamsLog, redis_client: redis.Redis
) -> None:
    log.ensure_topics([TopicSpec("t", retention_ms=HOUR_MS)])
    partition = fill(log, "t", 2)
    redis_client.hdel(topic_key("t"), "retention_ms")
    age(redis_client, partition, [2.0, 2.0])
    fill(log, "t", 1)
    assert bounds(log, partition) == Bounds(0, 3)


def test_old_records_are_looked_for_once_a_minute(
    log: StreamsLog, redis_client: redis.Redis
) -> None:
    log.ensure_topics([TopicSpec("t", retention_ms=HOUR_MS)])
    producer = log.producer()
    producer.publish([Message("t", b"k", b"old")])
    reader = log.reader()
    [partition] = reader.partitions("t")
    reader.close()
    age(redis_client, partition, [2.0])
    producer.publish([Message("t", b"k", b"new")])
    producer.close()
    assert bounds(log, partition) == Bounds(0, 2)
    fill(log, "t", 1)  # another producer, which has not looked yet
    assert bounds(log, partition) == Bounds(1, 3)


@pytest.mark.usefixtures("often")
def test_decided_requests_leave_and_versions_stay(platform_on: Callable[..., Platform]) -> None:
    platform = platform_on("streams", 1)
    platform.register("m")
    for row in range(4):
        platform.send_index("m", row)
        platform.drain()
    platform.send_raw(b"not json")
    platform.drain()
    for worker in platform.pair:
        worker.close()
    reader = platform.log.reader()
    [requests] = reader.partitions(topics.DELETIONS)
    held = reader.bounds(requests)
    assert held.begin == held.end >= 5
    assert platform.raw().xlen(stream_key(requests)) == 0
    assert [v.version for v in platform.versions()] == [0, 1, 2, 3, 4]
    assert len(platform.receipts()) == 4
    assert len(platform.dead_letters()) == 1
    # The next worker goes on from the watermark, and finds nothing missing.
    platform.send_index("m", 9, request_id="after")
    platform.drain(platform.deletion_worker())
    assert platform.final("after").status == "APPLIED"


@pytest.mark.usefixtures("often")
def test_requests_of_a_halted_model_stay_until_they_are_decided(
    platform_on: Callable[..., Platform],
) -> None:
    platform = platform_on("streams", 1)
    platform.register("m")
    platform.register("sick")
    state = platform.load("sick")
    right = platform.raw().hget(state.keys.head, "meta")
    platform.raw().hset(state.keys.head, "meta", "{")
    platform.send_index("m", 0)
    platform.send_index("sick", 1, request_id="held back")
    platform.send_index("m", 2)
    worker = platform.deletion_worker()
    for _ in range(5):
        platform.turn(worker, 0.5)
    worker.close()
    kept = platform.records(topics.DELETIONS)
    assert [record.key for record in kept] == [b"sick", b"m"]
    platform.raw().hset(state.keys.head, "meta", right)
    platform.drain()
    assert platform.final("held back", "sick").status == "APPLIED"


def test_a_watermark_never_goes_back(memory: Platform) -> None:
    """Below it the log may be empty: a late worker's would look like lost records."""
    store = memory.store
    store.cursors.set_watermarks({"topic/0": 0, "topic/1": 7})
    assert (store.cursors.watermark("topic/0"), store.cursors.watermark("topic/1")) == (0, 7)
    store.cursors.set_watermarks({"topic/0": 10, "topic/1": 6})
    assert (store.cursors.watermark("topic/0"), store.cursors.watermark("topic/1")) == (10, 7)
    memory.raw().delete(watermark("topic/1"))
    store.cursors.set_watermarks({"topic/1": 3})
    assert store.cursors.watermark("topic/1") == 3
