"""Both clients of Kafka at once: one group, one topic, one way to find a key's partition."""

from __future__ import annotations

import threading
import time

import pytest
from kafka import KafkaConsumer

from lethe.consumers.log.base import Consumer, Message, Partition, Record, TopicSpec
from lethe.consumers.log.kafka.kafka_python.connection import Connection
from lethe.consumers.log.kafka.server import Server
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


@pytest.mark.parametrize("client", CLIENTS)
def test_records_that_come_while_a_partition_is_taken_over_are_all_read(
    kafka_bootstrap: str, topic_prefix: str, client: str
) -> None:
    """A client that begins somewhere else before it is told where skips what lies between."""
    topic = topic_prefix + "t"
    log = kafka_log(kafka_bootstrap, client=client)
    log.ensure_topics([TopicSpec(topic, 4)])
    producer, over = log.producer(), threading.Event()

    def publish() -> None:
        while not over.is_set():
            producer.publish([Message(topic, b"%d" % n, b"value") for n in range(20)])

    publishing = threading.Thread(target=publish)
    publishing.start()
    try:
        for turn in range(4):
            consumer = log.consumer(f"{topic_prefix}g{turn}", [topic])
            done, found = dict[Partition, int](), list[Record]()
            deadline = time.monotonic() + SECONDS
            while len(found) < 300 and time.monotonic() < deadline:
                _step(consumer, done, found)
            consumer.close()
            for partition in done:
                read = [record.offset for record in found if record.partition == partition]
                assert read == list(range(len(read)))
    finally:
        over.set()
        publishing.join()
        producer.close()
        log.close()


def test_a_client_that_is_closed_before_it_has_sent_everything_leaves_no_socket(
    kafka_bootstrap: str,
) -> None:
    """kafka-python would leave it to the garbage collector."""
    connection = Connection(Server((kafka_bootstrap,), "test", {}, 30.0))
    consumer, sockets = connection.open(KafkaConsumer), []
    consumer.topics()
    for one in connection._client._manager._conns.values():
        one.transport._write_buffer.append(b"not sent yet")
        sockets.append(one.transport._sock)
    consumer.close()
    assert sockets
    assert all(one.fileno() == -1 for one in sockets)


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
