#!/usr/bin/env python3
"""Reproduce the defects of kafka-python that Lethe works round, with kafka-python alone.

    scripts/kafka_python_defects.py [NAME ...] [--data DIR]

Each function is one reproduction, as short as it can be, and returns whether the defect is there.
It starts a broker of its own (scripts/kafka), which some of them stop for a while. Nothing of
Lethe's is imported: docs/kafka-clients.md says what Lethe does about each.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import tracemalloc
import uuid
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition, __version__
from kafka.errors import KafkaError
from kafka.net.transport import KafkaTCPTransport
from kafka.record.default_records import DefaultRecordBatchBuilder

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = [sys.executable, str(ROOT / "scripts" / "kafka")]
READING: dict[str, Any] = {
    "enable_auto_commit": False,
    "auto_offset_reset": "none",
    "allow_auto_create_topics": False,
}


class Broker:
    """A broker, and what a reproduction needs of it."""

    def __init__(self, data: str) -> None:
        self.data = Path(data)
        command = [*SCRIPT, "start", "--port", "0", "--data", data]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        self.address = done.stdout.strip()

    def topic(self, name: str | None = None) -> str:
        """Make a topic of one partition."""
        name = name or f"t{uuid.uuid4().hex}"
        with contextlib.closing(KafkaAdminClient(bootstrap_servers=self.address)) as admin:
            admin.create_topics({name: {"num_partitions": 1}})
            admin.wait_for_topics([name], timeout_ms=10_000)
        return name

    def delete(self, name: str) -> None:
        """Delete a topic, and return when it is gone."""
        with contextlib.closing(KafkaAdminClient(bootstrap_servers=self.address)) as admin:
            admin.delete_topics([name])
            while name in admin.list_topics():
                time.sleep(0.05)

    def send(self, topic: str, *values: bytes, **settings: Any) -> None:
        """Send with a producer of its own."""
        with contextlib.closing(
            KafkaProducer(bootstrap_servers=self.address, **settings)
        ) as producer:
            for value in values:
                producer.send(topic, value)
            producer.flush()

    def consumer(self, topic: str, **settings: Any) -> KafkaConsumer:
        """Return a consumer of the topic's only partition, at offset 0."""
        consumer = KafkaConsumer(bootstrap_servers=self.address, **READING, **settings)
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek(TopicPartition(topic, 0), 0)
        return consumer

    def signal(self, number: signal.Signals) -> None:
        """Send its process a signal."""
        os.kill(int((self.data / "broker.pid").read_text()), number)


def metadata_requests_create_topics(broker: Broker) -> bool:
    """Show that allow_auto_create_topics=False does not reach requests for metadata."""
    with contextlib.closing(KafkaConsumer(bootstrap_servers=broker.address, **READING)) as consumer:
        request = consumer._client.cluster.metadata_request()
    return bool(request.allow_auto_topic_creation)


def last_words_are_lost(_: Broker) -> bool:
    """Show that bytes which arrive together with the end of a connection are dropped."""
    here, there = socket.socketpair()
    here.setblocking(False)
    heard: list[bytes] = []

    class Protocol:
        _sensors = None

        def data_received(self, data: bytes) -> None:
            heard.append(data)

        def connection_lost(self, _: object) -> None: ...

    class Net:
        def __getattr__(self, _: str) -> Any:
            async def nothing(*_: object) -> None: ...

            return nothing

    transport = KafkaTCPTransport.__new__(KafkaTCPTransport)
    transport.__dict__ |= {
        "_net": Net(), "_sock": here, "_protocol": Protocol(), "_read": True, "_closed": False,
        "abort": lambda **_: None,
    }  # fmt: skip
    there.send(b"the password is wrong")
    there.close()
    reading = transport._read_from_sock()
    with contextlib.suppress(StopIteration):
        reading.send(None)
    here.close()
    return not heard


def a_topic_made_again_is_read_on(broker: Broker) -> bool:
    """Show that a consumer goes on at its old offset in a new topic of the same name."""
    topic = broker.topic()
    broker.send(topic, b"old 0", b"old 1", b"old 2")
    consumer = broker.consumer(topic)
    read: list[bytes] = []
    while len(read) < 3:
        read += [one.value for found in consumer.poll(500).values() for one in found]
    broker.delete(topic)
    broker.topic(topic)
    broker.send(topic, *(b"new %d" % number for number in range(5)))
    end = time.monotonic() + 15
    with contextlib.suppress(KafkaError):  # an error would be right
        while len(read) == 3 and time.monotonic() < end:
            read += [one.value for found in consumer.poll(500).values() for one in found]
    consumer.close()
    return read[3:4] == [b"new 3"]  # "new 0" to "new 2" are missed


class _OddName(str):
    def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        del encoding, errors
        return b"\xff\xfe"


def an_odd_header_name_stops_a_partition(broker: Broker) -> bool:
    """Show that a header name which is no UTF-8, as brokers take it, stops a partition."""
    topic = broker.topic()
    append = DefaultRecordBatchBuilder.append

    def odd(builder: Any, *record: Any) -> Any:
        *others, value, _ = record
        headers = [(_OddName("odd"), b"")] if value == b"odd" else []
        return append(builder, *others, value, headers)

    DefaultRecordBatchBuilder.append = odd  # as any producer in another language may
    try:
        broker.send(topic, b"fine", b"odd", linger_ms=100)
    finally:
        DefaultRecordBatchBuilder.append = append
    consumer = broker.consumer(topic)
    failures: list[KafkaError] = []

    def poll() -> None:
        for _ in range(20):
            try:
                consumer.poll(200)
            except KafkaError as error:
                failures.append(error)
        consumer.close()

    polling = threading.Thread(target=poll, daemon=True)
    polling.start()
    polling.join(10.0)
    # It raises with every poll, or (when the name is in the first record) does not return at all.
    return len(failures) > 1 or polling.is_alive()


def a_join_between_two_polls_is_forgotten(broker: Broker) -> bool:
    """Show that a member whose join is answered between two polls never gets partitions.

    On a busy machine the answer may arrive within a poll: several members try.
    """
    return any(_a_join_is_forgotten(broker) for _ in range(5))


def _a_join_is_forgotten(broker: Broker) -> bool:
    topic = f"t{uuid.uuid4().hex}"
    consumer = KafkaConsumer(
        bootstrap_servers=broker.address, group_id=topic, metadata_max_age_ms=2_000, **READING
    )
    consumer.subscribe([topic])
    consumer.poll(1_000)  # a member, of a topic that is not there yet
    broker.topic(topic)
    time.sleep(2.2)
    end = time.monotonic() + 20
    while not consumer.assignment() and time.monotonic() < end:
        consumer.poll(0)
        time.sleep(0.05)
    forgotten = not consumer.assignment()
    consumer.close(autocommit=False)
    return forgotten


def a_closed_producer_sends_on(broker: Broker) -> bool:
    """Show that a close() which raises, not done in time, sends what was given up after it."""
    topic = broker.topic()
    producer = KafkaProducer(bootstrap_servers=broker.address)
    producer.send(topic, b"first").get(10)
    broker.signal(signal.SIGSTOP)
    raised = False
    try:
        producer.send(topic, b"given up")
        producer.close(timeout=0.5)
    except KafkaError:
        raised = True
    finally:
        broker.signal(signal.SIGCONT)
    consumer, read = broker.consumer(topic), list[bytes]()
    end = time.monotonic() + 10
    while b"given up" not in read and time.monotonic() < end:
        read += [one.value for found in consumer.poll(500).values() for one in found]
    sends_on = producer._sender.is_alive() and b"given up" in read
    consumer.close()
    producer.close(timeout=5)
    return raised and sends_on


def a_refused_connection_leaks_its_socket(_: Broker) -> bool:
    """Show that a socket that cannot connect is left to the garbage collector."""
    gc.collect()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", ResourceWarning)
        with contextlib.suppress(KafkaError):
            KafkaConsumer(bootstrap_servers="127.0.0.1:1", bootstrap_timeout_ms=300)
        gc.collect()
    return any("unclosed <socket" in str(one.message) for one in told)


def a_closed_client_leaks_a_socket(broker: Broker) -> bool:
    """Show that a connection with bytes to send is left to the garbage collector."""
    consumer = KafkaConsumer(bootstrap_servers=broker.address, **READING)
    consumer.topics()
    connection = next(iter(consumer._client._manager._conns.values()))
    transport = connection.transport
    transport._write_buffer.append(b"not sent yet")
    opened = transport._sock
    consumer.close()
    leaked = bool(opened.fileno() != -1)
    opened.close()
    return leaked


def each_batch_wakes_the_sender(broker: Broker) -> bool:
    """Show that a producer wakes its thread for each message that begins a batch."""
    topic, woken = broker.topic(), list[int]()
    with contextlib.closing(
        KafkaProducer(bootstrap_servers=broker.address, batch_size=256, linger_ms=1_000)
    ) as producer:
        producer.send(topic, b"first").get(10)
        wakeup = producer._sender.wakeup

        def counted() -> None:
            woken.append(1)
            wakeup()

        producer._sender.wakeup = counted
        for _ in range(20):
            producer.send(topic, bytes(200))
        producer._sender.wakeup = wakeup
    return len(woken) > 1


def the_reason_of_a_refusal_is_not_told(_: Broker) -> bool:
    """Show that a client does not say why it could not connect."""
    try:
        KafkaConsumer(bootstrap_servers="127.0.0.1:1", bootstrap_timeout_ms=300)
    except KafkaError as error:
        return "refused" not in f"{error} {error.__cause__}".lower()
    return False


def a_failed_constructor_leaves_its_thread(_: Broker) -> bool:
    """Show that a constructor that raises leaves the thread running that it started."""
    before = set(threading.enumerate())
    with contextlib.suppress(KafkaError):
        KafkaConsumer(bootstrap_servers="127.0.0.1:1", bootstrap_timeout_ms=300)
    time.sleep(1.0)
    return bool(set(threading.enumerate()) - before)


def a_small_batch_unpacks_to_a_huge_one(broker: Broker) -> bool:
    """Show that nothing limits what a batch unpacks to: here, 65 KB become 64 MiB."""
    topic = broker.topic()
    with contextlib.closing(KafkaAdminClient(bootstrap_servers=broker.address)):
        broker.send(topic, bytes(64 << 20), compression_type="gzip", max_request_size=128 << 20)
    consumer = broker.consumer(topic)
    tracemalloc.start()
    while not consumer.poll(500):
        pass
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    consumer.close()
    return peak > 64 << 20


DEFECTS = (
    metadata_requests_create_topics,
    last_words_are_lost,
    a_topic_made_again_is_read_on,
    an_odd_header_name_stops_a_partition,
    a_join_between_two_polls_is_forgotten,
    a_closed_producer_sends_on,
    a_refused_connection_leaks_its_socket,
    a_closed_client_leaks_a_socket,
    each_batch_wakes_the_sender,
    the_reason_of_a_refusal_is_not_told,
    a_failed_constructor_leaves_its_thread,
    a_small_batch_unpacks_to_a_huge_one,
)


@contextlib.contextmanager
def own_broker() -> Iterator[Broker]:
    """Run a broker for as long as the block lasts."""
    with tempfile.TemporaryDirectory() as data:
        broker = Broker(data)
        try:
            yield broker
        finally:
            subprocess.run([*SCRIPT, "stop", "--data", data], check=True, capture_output=True)


def main() -> None:
    """Try what is named, else all, and say what is there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument(
        "--data", help="use the broker that scripts/kafka started on this directory"
    )
    given = parser.parse_args()
    logging.getLogger("kafka").setLevel(logging.CRITICAL + 1)
    print(f"kafka-python {__version__}, Python {sys.version.split()[0]}")
    with contextlib.nullcontext(Broker(given.data)) if given.data else own_broker() as broker:
        for defect in DEFECTS:
            if not given.names or defect.__name__ in given.names:
                there = defect(broker)
                print(f"{'there' if there else 'gone ':6} {defect.__name__}", flush=True)


if __name__ == "__main__":
    main()
