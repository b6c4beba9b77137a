"""Both clients of Kafka at once: one group, one topic, one way to find a key's partition."""

from __future__ import annotations

import time

import pytest

from lethe.consumers.log.base import Consumer, Message, Partition, Record, TopicSpec
from tests.support.kafka_clients import CLIENTS, kafka_log

pytestmark = [pytest.mark.kafka, pytest.mark.xdist_group("kafka")]

SECONDS = 60.0


def _step(consumer: Consumer, done: dict[Partition, int], found: list[Record]) -> None:
    """Do what a worker does between two looks at its partitions."""
    for record in consumer.poll(0.05, 100):
        found.append(record)
        done[record.partition] = record.offset + 1
    consumer.take_lost()
    for partition in consumer.take_assigned():
        consumer.seek(partition, done.get(partition, 0))


@pytest.mark.parametrize("first", CLIENTS)
def test_members_of_both_clients_share_a_group(
    kafka_bootstrap: str, topic_prefix: str, first: str
) -> None:
    """Workers can be switched from one client to the other one after another."""
    topic, group = topic_prefix + "t", topic_prefix + "g"
    [other] = set(CLIENTS) - {first}
    logs = [kafka_log(kafka_bootstrap, client=client) for client in (first, other)]
    logs[0].ensure_topics([TopicSpec(topic, 4)])
    done, found = dict[Partition, int](), list[Record]()
    old = logs[0].consumer(group, [topic])
    deadline = time.monotonic() + SECONDS
    while len(old.assignment()) < 4 and time.monotonic() < deadline:
        _step(old, done, found)
    new = logs[1].consumer(group, [topic])
    deadline = time.monotonic() + SECONDS
    while len(new.assignment()) < 2 and time.monotonic() < deadline:
        _step(old, done, found)
        _step(new, done, found)
    assert len(old.assignment()) == len(new.assignment()) == 2
    assert not old.assignment() & new.assignment()

    producers = [log.producer() for log in logs]
    for turn in range(6):
        for producer in producers:
            producer.publish([Message(topic, b"model-%d" % n, b"%d" % turn) for n in range(9)])
    old.close()
    deadline = time.monotonic() + SECONDS
    while len({(r.partition, r.offset) for r in found}) < 108 and time.monotonic() < deadline:
        _step(new, done, found)
    # Each record once, and those of a key in one partition, whoever sent them.
    assert len({(record.partition, record.offset) for record in found}) == len(found) == 108
    assert new.assignment() == set(done)
    assert len({(record.key, record.partition) for record in found}) == 9
    new.close()
    for log, producer in zip(logs, producers, strict=True):
        producer.close()
        log.close()
