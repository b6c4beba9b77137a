"""What the logs do when their server dies or loses data, and what foreign clients may send."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest
import redis

from lethe.consumers.log.base import (
    Bounds,
    Consumer,
    Log,
    Message,
    Partition,
    PartitionReset,
    Producer,
    Record,
    TopicSpec,
)
from lethe.consumers.log.kafka import settings
from lethe.consumers.log.streams.format import stream_key, topic_key
from lethe.consumers.log.streams.log import StreamsLog
from lethe.engine.errors import LogUnavailable
from lethe.engine.store.server.barrier import Barrier
from tests.support.kafka_log import kafka_log
from tests.support.servers import KafkaProcess, ValkeyProcess

WAIT = 60.0


def _go_on(consumer: Consumer, seconds: float, done: dict[Partition, int]) -> list[Record]:
    """Poll for ``seconds``, as a worker does; errors pass."""
    records: list[Record] = []
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for record in consumer.poll(0.05, 100):
            records.append(record)
            done[record.partition] = record.offset + 1
        consumer.take_lost()
        for partition in consumer.take_assigned():
            consumer.seek(partition, done.get(partition, 0))
        if records:
            return records
    return records


def _server_dies_and_comes_back(
    log: Log, kill: Callable[[], None], start: Callable[[], None]
) -> None:
    with ExitStack() as stack:
        log.ensure_topics([TopicSpec("t")])
        consumer, producer = log.consumer("g", ["t"]), log.producer()
        stack.callback(consumer.close)
        stack.callback(producer.close)
        _dies_and_comes_back(log, consumer, producer, kill, start)


def _dies_and_comes_back(
    log: Log,
    consumer: Consumer,
    producer: Producer,
    kill: Callable[[], None],
    start: Callable[[], None],
) -> None:
    done = dict[Partition, int]()
    producer.publish([Message("t", b"k", b"before")])
    assert [record.value for record in _go_on(consumer, 60.0, done)] == [b"before"]

    kill()
    for call in (
        lambda: _go_on(consumer, 15.0, done),
        lambda: producer.publish([Message("t", b"k", b"lost?")], timeout=1.0),
        log.ping,
    ):
        started = time.monotonic()
        with pytest.raises(LogUnavailable, match=r"cannot be reached") as caught:
            call()
        assert time.monotonic() - started < 30.0
        assert "\n" not in str(caught.value)

    start()
    producer.publish([Message("t", b"k", b"after")])
    found: list[bytes | None] = []
    deadline = time.monotonic() + 60.0
    while b"after" not in found and time.monotonic() < deadline:
        try:
            found += [record.value for record in _go_on(consumer, 1.0, done)]
        except LogUnavailable:
            time.sleep(0.1)
    assert b"before" not in found
    assert found[-1] == b"after"


@pytest.mark.redis
def test_streams_survive_their_server(private_valkey: Callable[..., ValkeyProcess]) -> None:
    server = private_valkey()
    with redis.Redis.from_url(server.url) as client:
        log = StreamsLog(client, lease_seconds=1.0)
        _server_dies_and_comes_back(log, server.kill, server.start)
        log.close()


@pytest.mark.kafka
@pytest.mark.xdist_group("kafka")
def test_kafka_survives_its_broker(
    private_kafka: Callable[[], KafkaProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = private_kafka()
    log = kafka_log(broker.bootstrap, session_seconds=3.0)
    monkeypatch.setattr(settings, "UNREACHABLE_SECONDS", 1.0)
    _server_dies_and_comes_back(log, broker.kill, broker.start)
    log.close()


@pytest.mark.redis
def test_streams_on_a_server_that_syncs_later_are_waited_for(
    private_valkey: Callable[..., ValkeyProcess],
) -> None:
    """What is acknowledged to a producer survives a crash of the server."""
    server = private_valkey(appendfsync="everysec")
    with redis.Redis.from_url(server.url) as client:
        log = StreamsLog(client, barrier=partial(Barrier, required=True))
        log.ensure_topics([TopicSpec("t")])
        producer = log.producer()
        before: Any = client.info("commandstats")["cmdstat_waitaof"]["calls"]
        producer.publish([Message("t", b"k", b"v")])
        after: Any = client.info("commandstats")["cmdstat_waitaof"]["calls"]
        assert after == before + 1
        producer.close()
        log.close()


@pytest.mark.redis
@pytest.mark.parametrize("appendfsync", ["always", "everysec"])
def test_a_closed_producer_has_no_connection(
    private_valkey: Callable[..., ValkeyProcess], appendfsync: str
) -> None:
    """One that waits for the disk kept its connection for as long as anybody knew of it."""
    server = private_valkey(appendfsync=appendfsync)
    with redis.Redis.from_url(server.url) as client:
        log = StreamsLog(client, barrier=partial(Barrier, required=True))
        log.ensure_topics([TopicSpec("t")])
        before = len(client.client_list())
        producer = log.producer()
        producer.publish([Message("t", b"k", b"v")])
        assert len(client.client_list()) == before + 1
        producer.close()
        deadline = time.monotonic() + 5.0  # the server may notice a little later
        while len(client.client_list()) > before and time.monotonic() < deadline:
            time.sleep(0.01)
        assert len(client.client_list()) == before
        log.close()


@pytest.mark.redis
def test_a_stream_that_lost_writes_is_noticed(redis_client: redis.Redis) -> None:
    log = StreamsLog(redis_client, lease_seconds=1.0)
    log.ensure_topics([TopicSpec("t")])
    producer, consumer, done = log.producer(), log.consumer("g", ["t"]), dict[Partition, int]()
    producer.publish([Message("t", b"k", b"%d" % number) for number in range(5)])
    assert len(_go_on(consumer, 5.0, done)) == 5
    [partition] = done
    # What a failover to a replica that lags does.
    redis_client.xtrim(stream_key(partition), minid="99-0")
    redis_client.hset(topic_key("t"), "next:0", "3")
    with pytest.raises(PartitionReset, match=r"position 5 .* holds 0 to 3"):
        _go_on(consumer, 5.0, done)
    consumer.close()
    producer.close()
    log.close()


@pytest.mark.redis
def test_nothing_behind_a_hole_in_a_stream_is_delivered(redis_client: redis.Redis) -> None:
    log = StreamsLog(redis_client, lease_seconds=5.0)
    log.ensure_topics([TopicSpec("t")])
    producer, consumer = log.producer(), log.consumer("g", ["t"])
    producer.publish([Message("t", b"k", b"%d" % number) for number in range(5)])
    [partition] = consumer.take_assigned()
    redis_client.xdel(stream_key(partition), "3-0")  # offset 2
    consumer.seek(partition, 0)
    assert [record.offset for record in consumer.poll(5.0, 100)] == [0, 1]
    with pytest.raises(PartitionReset, match=r"position 2"):
        consumer.poll(5.0, 100)
    assert consumer.poll(0.1, 100) == []
    consumer.close()
    producer.close()
    log.close()


@pytest.mark.kafka
@pytest.mark.xdist_group("kafka")
def test_aborted_records_and_markers_are_passed_over(
    kafka_bootstrap: str, topic_prefix: str
) -> None:
    from kafka import KafkaProducer

    topic = topic_prefix + "t"
    log = kafka_log(kafka_bootstrap)
    log.ensure_topics([TopicSpec(topic)])
    foreign = KafkaProducer(
        bootstrap_servers=kafka_bootstrap, transactional_id=topic, compression_type="gzip"
    )
    foreign.init_transactions()
    for value, end in ((b"kept", foreign.commit_transaction), (b"gone", foreign.abort_transaction)):
        foreign.begin_transaction()
        foreign.send(topic, value)
        foreign.flush()
        end()
    foreign.close()

    reader = log.reader()
    [partition] = reader.partitions(topic)
    deadline = time.monotonic() + WAIT  # the coordinator writes markers after it has answered
    while reader.bounds(partition) != Bounds(0, 4):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    found: list[Record] = []
    offset = 0
    started = time.monotonic()
    while offset < 4:
        records, offset = reader.read(partition, offset, WAIT, 10)
        found += records
    assert time.monotonic() - started < WAIT  # passing a marker is no waiting for news
    assert [(r.offset, r.key, r.value) for r in found] == [(0, None, b"kept")]
    reader.close()


@pytest.mark.kafka
@pytest.mark.xdist_group("kafka")
def test_a_join_that_finishes_between_two_polls_is_completed(
    kafka_bootstrap: str, topic_prefix: str
) -> None:
    topic = topic_prefix + "t"
    log = kafka_log(kafka_bootstrap)
    consumer = log.consumer(topic, [topic])
    consumer.poll(1.0, 10)  # a member, of a topic that is not there yet
    log.ensure_topics([TopicSpec(topic)])
    time.sleep(settings.METADATA_SECONDS + 0.2)
    deadline = time.monotonic() + 60.0
    while not consumer.assignment() and time.monotonic() < deadline:
        consumer.poll(0.0, 10)  # too short for any answer to arrive within it
        time.sleep(0.05)
    assert [partition.topic for partition in consumer.take_assigned()] == [topic]
    consumer.close()


class _OddName(str):
    """A header name that its producer writes as bytes which are no text."""

    def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        del encoding, errors
        return b"ce_\xff\xfetype"


@pytest.mark.kafka
@pytest.mark.xdist_group("kafka")
def test_a_header_name_that_is_no_text_harms_nobody(
    kafka_bootstrap: str, topic_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kafka import KafkaProducer
    from kafka.record.default_records import DefaultRecordBatchBuilder

    append = DefaultRecordBatchBuilder.append

    def odd_append(builder: Any, *args: Any) -> Any:
        *others, headers = args
        names = [(_OddName(name) if name == "odd" else name, value) for name, value in headers]
        return append(builder, *others, names)

    topic = topic_prefix + "t"
    log = kafka_log(kafka_bootstrap, session_seconds=3.0)
    log.ensure_topics([TopicSpec(topic)])
    # Other clients take such names as they are; this one's encoding has to be taught.
    monkeypatch.setattr(DefaultRecordBatchBuilder, "append", odd_append)
    foreign = KafkaProducer(bootstrap_servers=kafka_bootstrap)
    odd = [("fine", b"1"), ("odd", b"2"), ("\u00fc", b"")]
    many = 40  # Python optimizes a call that it has made some times
    for headers in ([], *[odd] * many, [("last", b"3")]):
        foreign.send(topic, b"value", key=b"k", headers=headers)  # one batch
    foreign.flush()
    foreign.close()

    consumer, done = log.consumer(topic, [topic]), dict[Partition, int]()
    found: list[Record] = []
    deadline = time.monotonic() + 20.0
    while len(found) < many + 2 and time.monotonic() < deadline:
        found += _go_on(consumer, 1.0, done)
    consumer.close()
    assert [record.offset for record in found] == list(range(many + 2))
    mended = (("fine", b"1"), ("ce_??type", b"2"), ("\u00fc", b""))
    for record in found[1:-1]:
        assert record.headers == mended
    assert found[-1].headers == (("last", b"3"),)


@pytest.mark.kafka
@pytest.mark.xdist_group("kafka")
def test_a_flush_wakes_the_client_once(
    kafka_bootstrap: str, topic_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many batches its messages begin: the thread that sends does not interrupt us."""
    from kafka.net.compat import KafkaNetClient

    topic = topic_prefix + "t"
    log = kafka_log(kafka_bootstrap)
    log.ensure_topics([TopicSpec(topic, 4)])
    producer = log.producer()
    messages = [Message(topic, b"k", b"v" * 200, (), i % 4) for i in range(400)]
    producer.publish(messages)  # connects
    woken: list[int] = []
    wakeup = KafkaNetClient.wakeup

    def counted(self: Any) -> None:
        if threading.current_thread() is threading.main_thread():
            woken.append(1)
        wakeup(self)

    monkeypatch.setattr(KafkaNetClient, "wakeup", counted)
    for flushes in range(1, 4):
        assert len(producer.begin(messages).wait(WAIT)) == 400
        assert len(woken) == flushes
    producer.close()


@pytest.mark.kafka
@pytest.mark.xdist_group("kafka")
def test_records_that_come_while_a_partition_is_taken_over_are_all_read(
    kafka_bootstrap: str, topic_prefix: str
) -> None:
    """A client that begins somewhere else before it is told where skips what lies between."""
    topic = topic_prefix + "t"
    log = kafka_log(kafka_bootstrap)
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
            deadline = time.monotonic() + 60.0
            while len(found) < 300 and time.monotonic() < deadline:
                found += _go_on(consumer, 0.05, done)
            consumer.close()
            for partition in done:
                read = [record.offset for record in found if record.partition == partition]
                assert read == list(range(len(read)))
    finally:
        over.set()
        publishing.join()
        producer.close()
        log.close()
