"""Single-node mode: a poll reads one partition after the other, and the next one goes on there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from lethe.consumers.log.base import Message, TopicSpec
from lethe.consumers.log.streams.log import StreamsLog
from lethe.consumers.log.streams.read import StreamsConsumer

TOPIC = "t"


@pytest.fixture
def log(redis_client: redis.Redis) -> Iterator[StreamsLog]:
    log = StreamsLog(redis_client)
    log.ensure_topics([TopicSpec(TOPIC, partitions=3)])
    yield log
    log.close()


@pytest.fixture
def consumer(log: StreamsLog) -> Iterator[StreamsConsumer]:
    consumer = log.consumer("group", [TOPIC])
    assert consumer.poll(0.0, 1) == []
    for partition in consumer.take_assigned():
        consumer.seek(partition, 0)
    consumer.poll(0.0, 0)
    yield consumer
    consumer.close()


def send(log: StreamsLog, *counts: int) -> None:
    """Append so many records to each partition."""
    producer = log.producer()
    producer.publish(
        Message(TOPIC, b"k", b"v", partition=index)
        for index, count in enumerate(counts)
        for _ in range(count)
    )
    producer.close()


def polled(consumer: StreamsConsumer, limit: int) -> list[int]:
    """Return the partition of each record of one poll."""
    return [record.partition.index for record in consumer.poll(1.0, limit)]


def test_a_poll_empties_a_partition_before_it_reads_the_next(
    log: StreamsLog, consumer: StreamsConsumer
) -> None:
    send(log, 5, 6, 7)
    assert polled(consumer, 8) == [0] * 5 + [1] * 3
    assert polled(consumer, 8) == [2] * 7 + [1]
    assert polled(consumer, 8) == [1] * 2


def test_a_busy_partition_holds_the_others_back_for_one_poll(
    log: StreamsLog, consumer: StreamsConsumer
) -> None:
    send(log, 0, 100, 0)
    for _ in range(5):
        assert polled(consumer, 8)[-1] == 1
        send(log, 1, 0, 1)
        assert polled(consumer, 8) == [2, 0, *[1] * 6]


def test_partitions_that_are_all_busy_take_turns(
    log: StreamsLog, consumer: StreamsConsumer
) -> None:
    send(log, 20, 20, 20)
    assert [polled(consumer, 8) for _ in range(6)] == [[index] * 8 for index in (0, 1, 2, 0, 1, 2)]
