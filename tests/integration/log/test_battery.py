"""One battery that every log passes: memory, Redis Streams and Kafka keep the same promises."""

from __future__ import annotations

import contextlib
import hashlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
import redis

from lethe.consumers.log.base import (
    Appended,
    Bounds,
    Consumer,
    Log,
    Message,
    Partition,
    PartitionReset,
    Position,
    Record,
    TopicSpec,
)
from lethe.consumers.log.streams.log import StreamsLog
from lethe.engine.errors import InvalidData, LogReset, LogUnavailable
from tests.support.kafka_log import kafka_log
from tests.support.memory_log import MemoryConsumer, MemoryLog
from tests.support.servers import ROOT

KAFKA = pytest.param("kafka", marks=[pytest.mark.kafka, pytest.mark.xdist_group("kafka")])
STREAMS = pytest.param("streams", marks=pytest.mark.redis)
EVERY_LOG = ["memory", STREAMS, KAFKA]
WAIT = 60.0  # for what happens at once; the slowest is a rebalance in Kafka, about 1 s
SESSION = 6.0  # how long a member that died keeps its partitions; no test may stall for longer
SHORT = 1.5  # where a test waits until it is over

# Joins a group, says so, and is killed while it holds its partitions.
DOOMED = """
import sys, time, warnings
warnings.simplefilter("ignore", DeprecationWarning)
kind, where, group, topic, session = sys.argv[1:]
if kind == "streams":
    import redis
    from lethe.consumers.log.streams.log import StreamsLog
    log = StreamsLog(redis.Redis.from_url(where), lease_seconds=float(session))
else:
    from tests.support.kafka_log import kafka_log
    log = kafka_log(where, "doomed", float(session))
member = log.consumer(group, [topic])
told = False
while True:
    member.poll(0.1, 10)
    if member.assignment() and not told:
        told = True
        print(len(member.assignment()), flush=True)
"""


@dataclass
class Bench:
    """A log and what a test may do to it from outside."""

    kind: str
    log: Log
    where: str
    prefix: str
    delete: Callable[[str], None]
    nowhere: Callable[[], Log]
    session: float = SESSION

    def topic(self, name: str = "topic", partitions: int = 1, compacted: bool = False) -> str:
        spec = TopicSpec(self.prefix + name, partitions, compacted)
        assert self.log.ensure_topics([spec]) == [spec.name]
        return spec.name

    def publish(self, topic: str, *values: bytes, key: bytes = b"key") -> None:
        producer = self.log.producer()
        producer.publish([Message(topic, key, value) for value in values])
        producer.close()


@pytest.fixture(params=EVERY_LOG)
def bench(request: pytest.FixtureRequest, topic_prefix: str) -> Iterator[Bench]:
    if request.param == "memory":
        memory = MemoryLog()
        yield Bench("memory", memory, "", topic_prefix, memory.delete_topic, MemoryLog, 0.5)
    elif request.param == "streams":
        yield from _streams(request.getfixturevalue("redis_url"), topic_prefix)
    else:
        bootstrap = request.getfixturevalue("kafka_bootstrap")
        yield from _kafka(bootstrap, topic_prefix)


def _streams(url: str, prefix: str) -> Iterator[Bench]:
    with redis.Redis.from_url(url) as client, redis.Redis(port=1) as nothing:
        log = StreamsLog(client, lease_seconds=SESSION)
        yield Bench("streams", log, url, prefix, log.delete_topic, lambda: StreamsLog(nothing))
        log.close()


def _kafka(bootstrap: str, prefix: str) -> Iterator[Bench]:
    log = kafka_log(bootstrap, "battery", SESSION)

    def nowhere() -> Log:
        return kafka_log("127.0.0.1:1", "battery", connect_seconds=0.4)

    yield Bench("kafka", log, bootstrap, prefix, log.delete_topic, nowhere)
    log.close()


class Member:
    """A consumer with the worker's habits: lost first, then assigned, then poll."""

    def __init__(self, bench: Bench, topic: str, done: dict[Partition, int] | None = None) -> None:
        self.consumer: Consumer = bench.log.consumer(f"{bench.prefix}group", [topic])
        self.done = {} if done is None else done
        self.records: list[Record] = []
        self.lost: set[Partition] = set()
        self.sought: set[Partition] = set()

    def step(self, timeout: float = 0.05) -> None:
        records = self.consumer.poll(timeout, 100)
        for record in records:
            assert record.partition in self.consumer.assignment()
            self.done[record.partition] = record.offset + 1
        self.records += records
        self.lost |= self.consumer.take_lost()
        for partition in self.consumer.take_assigned():
            self.consumer.seek(partition, self.done.get(partition, 0))
            self.sought.add(partition)
        self.sought &= self.consumer.assignment()

    def values(self) -> list[bytes | None]:
        return [record.value for record in self.records]


def until(condition: Callable[[], bool], *members: Member, wait: float = WAIT) -> None:
    deadline = time.monotonic() + wait
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        for member in members:
            member.step()
        if not members:
            time.sleep(0.01)


def shortest(true: Callable[[], bool]) -> float:
    """Return the least seconds that a call took of three: a machine stalls now and then."""
    found = []
    for _ in range(3):
        started = time.monotonic()
        assert true()
        found.append(time.monotonic() - started)
    return min(found)


def numbers(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(start, start + count)]


# --- Order, offsets and contents --------------------------------------------------------------


def test_one_key_stays_in_one_partition_in_the_order_of_sending(bench: Bench) -> None:
    topic = bench.topic(partitions=3)
    keys = [b"churn", b"fraud", b"price", b"a-longer-model-name", b""]
    producer = bench.log.producer()
    for round_ in range(4):  # several publishes, each with every key
        producer.publish(
            [Message(topic, key, b"%d" % (10 * round_ + n)) for n in range(10) for key in keys]
        )
    producer.close()
    reader = bench.log.reader()
    found: dict[bytes | None, list[tuple[int, bytes | None]]] = {}
    for partition in reader.partitions(topic):
        offset, end = 0, reader.bounds(partition).end
        while offset < end:
            records, offset = reader.read(partition, offset, WAIT, 7)
            for record in records:
                assert reader.partition_for(topic, record.key or b"") == partition
                found.setdefault(record.key, []).append((record.partition.index, record.value))
    reader.close()
    assert set(found) == set(keys)
    for sent in found.values():
        assert len({index for index, _ in sent}) == 1
        assert [value for _, value in sent] == numbers(40)


def test_offsets_are_dense_from_zero_and_published_means_readable(bench: Bench) -> None:
    topic = bench.topic()
    producer, reader = bench.log.producer(), bench.log.reader()
    partition = reader.partitions(topic)[0]
    assert reader.bounds(partition) == Bounds(0, 0)
    for count in range(1, 4):
        before = time.time() * 1000
        producer.publish([Message(topic, b"key", b"value")])
        assert reader.bounds(partition) == Bounds(0, count)
        records, after = reader.read(partition, count - 1, WAIT, 10)
        assert [(r.offset, r.value) for r in records] == [(count - 1, b"value")]
        assert after == count
        assert before - 5 <= records[0].timestamp_ms <= time.time() * 1000 + 5
    producer.close()
    reader.close()


def test_bytes_come_back_as_they_were_sent(bench: Bench) -> None:
    topic = bench.topic()
    large = hashlib.shake_256(b"seed").digest(900_000)
    headers = (("ce_type", b"lethe.x.v1"), ("raw", bytes(range(256))), ("raw", b""), ("ü", b"1"))
    sent = [
        Message(topic, b"k", large, headers),
        Message(topic, b"k", None),
        Message(topic, b"\xff\x00k", b"", (("empty", b""),)),
    ]
    producer, reader = bench.log.producer(), bench.log.reader()
    producer.publish(sent)
    offset = 0
    found: list[Record] = []
    while len(found) < len(sent):
        records, offset = reader.read(reader.partitions(topic)[0], offset, WAIT, 10)
        found += records
    assert [Message(topic, r.key or b"", r.value, r.headers) for r in found] == sent
    producer.close()
    reader.close()


def test_a_large_publish_keeps_its_order(bench: Bench) -> None:
    topic = bench.topic()
    member = Member(bench, topic)
    bench.publish(topic, *numbers(1000))
    until(lambda: len(member.records) >= 1000, member)
    assert member.values() == numbers(1000)
    assert [record.offset for record in member.records] == list(range(1000))
    member.consumer.close()


@pytest.mark.parametrize("bench", [STREAMS, KAFKA], indirect=True)
def test_a_message_that_is_too_large_is_refused_and_harms_nothing(bench: Bench) -> None:
    topic = bench.topic()
    producer = bench.log.producer()
    with pytest.raises(InvalidData, match="bytes"):
        producer.publish([Message(topic, b"k", bytes(1_500_000))])
    producer.publish([Message(topic, b"k", b"small")])
    reader = bench.log.reader()
    records, _ = reader.read(reader.partitions(topic)[0], 0, WAIT, 10)
    assert [record.value for record in records] == [b"small"]
    producer.close()
    reader.close()


@pytest.mark.parametrize("bench", [STREAMS, KAFKA], indirect=True)
def test_a_topic_sets_its_own_limit_up_to_the_largest_message(bench: Bench) -> None:
    """8 MiB and 64 KiB go through where the topic takes it, and not where it does not."""
    largest = 8 * 1_048_576 + 60_000
    wide = TopicSpec(bench.prefix + "wide", max_message_bytes=largest + 4096)
    narrow = TopicSpec(bench.prefix + "narrow", max_message_bytes=200_000)
    bench.log.ensure_topics([wide, narrow])
    producer, reader = bench.log.producer(), bench.log.reader()
    value = bytes(largest)
    [placed] = producer.append([Message(wide.name, b"k", value)])
    assert placed.offset == 0
    records, _ = reader.read(placed.partition, 0, WAIT, 1)
    assert [record.value == value for record in records] == [True]
    for _ in range(2):  # the second time on a client that is new
        with pytest.raises(InvalidData, match=rf"20000\d bytes for topic {narrow.name}"):
            producer.append([Message(narrow.name, b"k", bytes(200_001))])
    assert [one.offset for one in producer.append([Message(narrow.name, b"k", b"v")])] == [0]
    # many that are small enough each are no large one together
    many = [Message(narrow.name, b"k", bytes(50_000)) for _ in range(20)]
    assert [one.offset for one in producer.append(many)] == list(range(1, 21))
    producer.close()
    reader.close()


# --- Where what was sent lies -----------------------------------------------------------------


def test_append_returns_where_each_message_lies(bench: Bench) -> None:
    one, two = bench.topic("one", partitions=3), bench.topic("two")
    producer, reader = bench.log.producer(), bench.log.reader()
    sent = [
        Message(topic, key, b"%d" % number, partition=index)
        for number, (topic, key, index) in enumerate(
            [(one, b"churn", None), (two, b"k", None), (one, b"churn", 0), (one, b"fraud", None)]
            * 100  # more than one call of the script of Redis Streams
            + [(one, b"churn", 1), (one, b"churn", 2), (two, b"other", 0)]
        )
    ]
    placed = producer.append(sent)
    placed = [*placed, *producer.append(sent)]
    found: dict[tuple[Partition, int | None], Record] = {}
    for topic in (one, two):
        for partition in reader.partitions(topic):
            offset, end = 0, reader.bounds(partition).end
            while offset < end:
                records, offset = reader.read(partition, offset, WAIT, 100)
                found |= {(partition, record.offset): record for record in records}
    assert len(found) == len(placed) == 2 * len(sent)
    for message, place in zip([*sent, *sent], placed, strict=True):
        record = found[place.partition, place.offset]
        assert (record.key, record.value) == (message.key, message.value)
        assert place.leader_epoch in (None, record.leader_epoch)
        if message.partition is None:
            assert place.partition == reader.partition_for(message.topic, message.key)
        else:
            assert place.partition.index == message.partition
    assert producer.append([]) == []
    producer.close()
    reader.close()


def test_a_partition_that_is_not_there_is_said_so(bench: Bench) -> None:
    topic = bench.topic(partitions=2)
    producer = bench.log.producer()
    with pytest.raises(LogUnavailable, match=r"partition 2 of topic .* does not exist: it has 2"):
        producer.append([Message(topic, b"k", b"v", partition=2)])
    [place] = producer.append([Message(topic, b"k", b"v", partition=1)])
    assert (place.partition.index, place.offset) == (1, 0)
    producer.close()


def test_sends_that_are_begun_are_acknowledged_in_any_order(bench: Bench) -> None:
    topic = bench.topic()
    producer, reader = bench.log.producer(), bench.log.reader()
    flushes = [
        producer.begin([Message(topic, b"k", b"%d" % (3 * turn + n)) for n in range(3)])
        for turn in range(4)
    ]
    offsets = [[place.offset for place in flushes[turn].wait(WAIT)] for turn in (2, 0, 3, 1)]
    assert offsets == [[6, 7, 8], [0, 1, 2], [9, 10, 11], [3, 4, 5]]
    producer.publish([Message(topic, b"k", b"12")])
    [partition] = reader.partitions(topic)
    assert [r.value for r in reader.read(partition, 0, WAIT, 100)[0]] == numbers(13)
    producer.begin([Message(topic, b"k", b"nobody waits for this")])
    producer.close()
    reader.close()


def test_after_a_failed_send_no_other_that_was_begun_is_acknowledged(bench: Bench) -> None:
    """Given a send in flight, when another one fails, whoever waits for it must send again."""
    topic = bench.topic()
    producer = bench.log.producer()
    before = producer.begin([Message(topic, b"k", b"0")])
    with pytest.raises(LogUnavailable, match="missing does not exist"):
        producer.begin([Message(bench.prefix + "missing", b"k", b"1")])
    if bench.kind == "streams":  # one at a time: it was acknowledged before the other one failed
        assert [place.offset for place in before.wait(WAIT)] == [0]
    else:
        with pytest.raises(LogUnavailable, match="send this again"):
            before.wait(WAIT)
    again = producer.begin([Message(topic, b"k", b"0"), Message(topic, b"k", b"1")])
    assert len(again.wait(WAIT)) == 2
    producer.close()


def test_the_ends_of_many_partitions_are_one_question(bench: Bench) -> None:
    one, two = bench.topic("one", partitions=3), bench.topic("two", partitions=2)
    producer, reader = bench.log.producer(), bench.log.reader()
    partitions = [*reader.partitions(two), *reader.partitions(one)]
    assert reader.ends(partitions) == dict.fromkeys(partitions, 0)
    producer.publish([Message(one, b"k", b"v", partition=1)] * 3 + [Message(two, b"k", b"v")])
    ends = reader.ends(partitions)
    assert list(ends) == partitions
    assert [ends[partition] for partition in reader.partitions(one)] == [0, 3, 0]
    assert sum(ends[partition] for partition in reader.partitions(two)) == 1
    assert reader.ends([]) == {}
    bench.delete(two)
    until(lambda: not reader.partitions(two))
    bench.topic("two", partitions=2)
    with pytest.raises(PartitionReset) as caught:
        reader.ends(partitions)
    assert caught.value.bounds is None
    assert caught.value.partition.topic == two
    producer.close()
    reader.close()


def test_a_producer_goes_on_in_a_topic_that_was_made_again(bench: Bench) -> None:
    topic = bench.topic()
    producer, reader = bench.log.producer(), bench.log.reader()
    [before] = producer.append([Message(topic, b"k", b"old")] * 3)[:1]
    bench.delete(topic)
    until(lambda: not reader.partitions(topic))
    bench.topic()
    [new] = reader.partitions(topic)
    placed: list[Appended] = []

    def lies_in_the_new_one() -> bool:
        """Send again, as callers do after a failure, until the place is that of the new topic."""
        with contextlib.suppress(LogUnavailable):
            placed.extend(producer.append([Message(topic, b"k", b"%d" % len(placed))], 5.0))
        return bool(placed) and placed[-1].partition == new

    until(lies_in_the_new_one)
    assert before.partition != new
    assert placed[-1].offset is not None
    records, _ = reader.read(new, placed[-1].offset, WAIT, 1)
    assert [record.value for record in records] == [b"%d" % (len(placed) - 1)]
    producer.close()
    reader.close()


@pytest.mark.parametrize("bench", [KAFKA], indirect=True)
def test_records_tell_the_epoch_of_their_leader(bench: Bench) -> None:
    topic = bench.topic()
    bench.publish(topic, b"v")
    member, reader = Member(bench, topic), bench.log.reader()
    until(lambda: len(member.records) == 1, member)
    [partition] = reader.partitions(topic)
    [record] = reader.read(partition, 0, WAIT, 1)[0]
    assert [record.leader_epoch, member.records[0].leader_epoch] == [0, 0]
    member.consumer.commit_hint({partition: Position(1, record.leader_epoch)})
    member.consumer.close()
    reader.close()


# --- Topics -----------------------------------------------------------------------------------


def test_topics_are_created_once_and_left_as_they_are(bench: Bench) -> None:
    topic = bench.topic(partitions=2)
    reader = bench.log.reader()
    before = reader.partitions(topic)
    assert [partition.index for partition in before] == [0, 1]
    assert bench.log.ensure_topics([TopicSpec(topic, 5)]) == []
    assert reader.partitions(topic) == before
    assert reader.partitions(bench.prefix + "missing") == []
    reader.close()


def test_a_topic_made_again_is_another_topic(bench: Bench) -> None:
    topic = bench.topic()
    member, reader = Member(bench, topic), bench.log.reader()
    bench.publish(topic, b"old-0", b"old-1", b"old-2")
    until(lambda: len(member.records) == 3, member)
    [old] = reader.partitions(topic)

    bench.delete(topic)
    until(lambda: not reader.partitions(topic))
    bench.topic()
    bench.publish(topic, *numbers(5))
    [new] = reader.partitions(topic)
    assert new.topic == old.topic
    assert new.topic_id != old.topic_id

    member.records.clear()
    until(lambda: len(member.records) >= 5, member)
    assert old in member.lost
    assert member.consumer.assignment() == {new}
    assert [(r.partition, r.offset, r.value) for r in member.records] == [
        (new, number, b"%d" % number) for number in range(5)
    ]
    with pytest.raises(PartitionReset) as caught:
        reader.read(old, 3, 0.1, 10)
    assert caught.value.bounds is None
    member.consumer.close()
    reader.close()


@pytest.mark.parametrize("others", [0, 3, 5])
def test_a_reader_that_waits_notices_that_its_topic_was_made_again(
    bench: Bench, others: int
) -> None:
    """Whether the new topic ends before, at or behind the place where it waits."""
    topic = bench.topic()
    bench.publish(topic, *numbers(3))
    reader, other = bench.log.reader(), bench.log.reader()
    [old] = reader.partitions(topic)
    assert reader.read(old, 0, WAIT, 10)[1] == 3
    assert reader.read(old, 3, 0.0, 10) == ([], 3)
    bench.delete(topic)
    until(lambda: not other.partitions(topic))
    bench.topic()
    if others:
        bench.publish(topic, *numbers(others))

    def noticed() -> bool:
        try:
            assert reader.read(old, 3, 0.2, 10) == ([], 3)
        except PartitionReset as reset:
            return reset.bounds is None
        return False

    until(noticed)
    other.close()
    reader.close()


# --- Groups -----------------------------------------------------------------------------------


def test_nothing_is_delivered_before_seek(bench: Bench) -> None:
    topic = bench.topic()
    bench.publish(topic, *numbers(3))
    consumer = bench.log.consumer(f"{bench.prefix}group", [topic])
    assigned: set[Partition] = set()
    deadline = time.monotonic() + WAIT
    while not assigned and time.monotonic() < deadline:
        assert consumer.poll(0.1, 10) == []
        assigned |= consumer.take_assigned()
    [partition] = assigned
    for _ in range(3):
        assert consumer.poll(0.1, 10) == []
    consumer.seek(partition, 1)
    assert _values(consumer, 2) == [b"1", b"2"]
    consumer.close()


def test_seek_back_delivers_again(bench: Bench) -> None:
    topic = bench.topic()
    member = Member(bench, topic)
    bench.publish(topic, *numbers(5))
    until(lambda: len(member.records) == 5, member)
    [partition] = member.consumer.assignment()
    member.consumer.seek(partition, 2)
    assert _values(member.consumer, 3) == numbers(3, 2)
    member.consumer.close()


def test_poll_keeps_to_its_limit_and_its_timeout(bench: Bench) -> None:
    topic = bench.topic(partitions=2)
    member = Member(bench, topic)
    until(lambda: len(member.sought) == 2, member)
    for key in (b"churn", b"fraud", b"price", b"c"):
        bench.publish(topic, *numbers(10), key=key)
    seen = 0
    deadline = time.monotonic() + WAIT
    while seen < 40 and time.monotonic() < deadline:
        records = member.consumer.poll(0.1, 3)
        assert len(records) <= 3
        seen += len(records)
    assert seen == 40
    assert 0.25 <= shortest(lambda: member.consumer.poll(0.3, 10) == []) <= 1.0
    member.consumer.close()


def test_a_poll_with_no_room_stays_a_member_and_loses_nothing(bench: Bench) -> None:
    """Given a member in the middle of its records, when it has no room, they wait for it."""
    topic = bench.topic()
    member = Member(bench, topic)
    until(lambda: len(member.sought) == 1, member)
    bench.publish(topic, *numbers(10))
    seen: list[Record] = []
    deadline = time.monotonic() + WAIT
    while len(seen) < 10 and time.monotonic() < deadline:
        assert member.consumer.poll(0.05, 0) == []
        seen += member.consumer.poll(0.05, 3)
    assert [record.value for record in seen] == numbers(10)
    started = time.monotonic()
    while time.monotonic() - started < 1.2 * bench.session:
        assert member.consumer.poll(0.2, 0) == []
    assert len(member.consumer.assignment()) == 1
    assert member.consumer.take_lost() == frozenset()
    member.consumer.close()


def _values(consumer: Consumer, count: int) -> list[bytes | None]:
    values: list[bytes | None] = []
    deadline = time.monotonic() + WAIT
    while len(values) < count and time.monotonic() < deadline:
        values += [record.value for record in consumer.poll(0.1, 100)]
    return values


def test_two_members_split_the_partitions_and_one_that_leaves_hands_over(bench: Bench) -> None:
    topic = bench.topic(partitions=4)
    done: dict[Partition, int] = {}
    first = Member(bench, topic, done)
    until(lambda: len(first.consumer.assignment()) == 4, first)
    second = Member(bench, topic, done)

    def split() -> bool:
        shares = (first.sought, second.sought)
        return [len(share) for share in shares] == [2, 2] and not shares[0] & shares[1]

    until(split, first, second)
    assert first.lost >= second.consumer.assignment()
    for number in range(8):
        bench.publish(topic, b"1", key=b"model-%d" % number)
    until(lambda: len(first.records + second.records) == 8, first, second)
    moved = second.consumer.assignment()

    second.consumer.close()
    until(lambda: len(first.consumer.assignment()) == 4, first)
    assert moved <= first.consumer.assignment()
    for number in range(8):
        bench.publish(topic, b"2", key=b"model-%d" % number)
    until(lambda: first.values().count(b"2") == 8, first)
    keys = sorted((r.key, r.value) for r in first.records + second.records)
    assert len(keys) == len(set(keys)) == 16  # each once: positions were handed over
    first.consumer.close()


@pytest.mark.parametrize("bench", [STREAMS, KAFKA], indirect=True)
def test_a_member_that_is_killed_hands_over(bench: Bench) -> None:
    topic = bench.topic(partitions=2)
    group = f"{bench.prefix}group"
    doomed = subprocess.Popen(
        [sys.executable, "-c", DOOMED, bench.kind, bench.where, group, topic, str(SHORT)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    try:
        assert doomed.stdout is not None
        assert doomed.stdout.readline() == "2\n"
        heir = Member(bench, topic)
        until(lambda: len(heir.consumer.assignment()) == 1, heir)
    finally:
        doomed.kill()
        doomed.communicate()
    until(lambda: len(heir.consumer.assignment()) == 2, heir)
    heir.consumer.close()


@pytest.mark.parametrize("bench", ["memory", STREAMS], indirect=True)
def test_a_lost_lease_is_noticed_before_anything_more_is_delivered(bench: Bench) -> None:
    topic = bench.topic()
    if bench.kind == "streams":
        bench.log = StreamsLog(redis.Redis.from_url(bench.where), lease_seconds=SHORT)
    slow = Member(bench, topic)
    until(lambda: len(slow.sought) == 1, slow)
    bench.publish(topic, *numbers(3))
    other = Member(bench, topic)
    if isinstance(slow.consumer, MemoryConsumer):
        assert isinstance(bench.log, MemoryLog)
        bench.log.evict(slow.consumer)
    # The slow one does not poll, as if it computed for longer than its lease lasts.
    until(lambda: len(other.values()) == 3, other)

    assert slow.consumer.assignment() == frozenset()
    [partition] = slow.consumer.take_lost()
    slow.consumer.seek(partition, 0)  # too late, and without effect
    assert slow.consumer.poll(0.2, 10) == []
    other.consumer.close()
    slow.consumer.close()
    bench.log.close()


def test_hints_never_raise(bench: Bench) -> None:
    topic = bench.topic()
    member = Member(bench, topic)
    bench.publish(topic, *numbers(3))
    until(lambda: len(member.records) == 3, member)
    [partition] = member.consumer.assignment()

    def hint() -> bool:
        for offset in range(1, 4):
            member.consumer.commit_hint({partition: Position(offset)})
        return True

    assert shortest(hint) < 0.05
    stranger = Partition(topic, "00000000-0000-0000-0000-000000000000", 7)
    member.consumer.commit_hint({stranger: Position(1)})
    member.step()
    member.consumer.close()


# --- Bounds -----------------------------------------------------------------------------------


def test_a_position_outside_the_log_raises_and_the_others_go_on(bench: Bench) -> None:
    topic = bench.topic(partitions=2)
    member, reader = Member(bench, topic), bench.log.reader()
    until(lambda: len(member.sought) == 2, member)
    lost, kept = reader.partition_for(topic, b"churn"), reader.partition_for(topic, b"fraud")
    assert lost != kept
    bench.publish(topic, *numbers(3), key=b"churn")
    until(lambda: len(member.records) == 3, member)

    member.consumer.seek(lost, 9)
    with pytest.raises(LogReset, match=r"position 9 .* holds 0 to 3") as caught:
        until(lambda: False, member)
    assert isinstance(caught.value, PartitionReset)
    assert (caught.value.partition, caught.value.position) == (lost, 9)
    assert caught.value.bounds == member.consumer.bounds(lost) == Bounds(0, 3)

    bench.publish(topic, b"after", key=b"fraud")
    until(lambda: b"after" in member.values(), member)
    member.consumer.seek(lost, 2)
    assert _values(member.consumer, 1) == [b"2"]

    for offset in (9, 4):
        with pytest.raises(PartitionReset):
            reader.read(lost, offset, WAIT, 10)
    member.consumer.close()
    reader.close()


def test_a_reader_waits_for_news_and_gives_up_in_time(bench: Bench) -> None:
    topic = bench.topic()
    reader, producer = bench.log.reader(), bench.log.producer()
    [partition] = reader.partitions(topic)
    assert 0.25 <= shortest(lambda: reader.read(partition, 0, 0.3, 10) == ([], 0)) <= 1.0
    producer.publish([Message(topic, b"k", value) for value in numbers(6)])
    assert [r.value for r in reader.read(partition, 4, WAIT, 10)[0]] == [b"4", b"5"]
    records, after = reader.read(partition, 1, WAIT, 2)
    assert ([r.value for r in records], after) == ([b"1", b"2"], 3)
    assert shortest(lambda: len(reader.read(partition, 0, WAIT, 100)[0]) == 6) < 1.0
    assert shortest(lambda: reader.read(partition, 6, 0.0, 100) == ([], 6)) < 1.0
    producer.close()
    reader.close()


# Memory does not compact, and Kafka does it when it likes.
@pytest.mark.parametrize("bench", [STREAMS], indirect=True)
def test_a_compacted_topic_keeps_the_newest_value_of_each_key(bench: Bench) -> None:
    topic = bench.topic(compacted=True)
    bench.publish(topic, *numbers(300), key=b"churn")  # two calls of the script
    bench.publish(topic, b"x", b"y", key=b"fraud")
    bench.publish(topic, b"300", key=b"churn")
    reader = bench.log.reader()
    [partition] = reader.partitions(topic)
    assert reader.bounds(partition) == Bounds(0, 303)
    records, after = reader.read(partition, 0, 0.1, 100)
    assert [(r.offset, r.key, r.value) for r in records] == [
        (301, b"fraud", b"y"),
        (302, b"churn", b"300"),
    ]
    assert after == 303
    bench.publish(topic, b"z", key=b"fraud")
    bench.publish(topic, b"301", key=b"churn")
    bench.publish(topic, b"last", key=b"churn")
    records, _ = reader.read(partition, 302, 0.1, 1)  # 302 is a hole now
    assert [(r.offset, r.value) for r in records] == [(303, b"z")]
    assert reader.record_at(partition, 302) is None
    assert reader.record_at(partition, 303) == records[0]
    reader.close()


@pytest.mark.parametrize("bench", ["memory", STREAMS], indirect=True)
def test_trimming_moves_the_beginning(bench: Bench) -> None:
    assert isinstance(bench.log, MemoryLog | StreamsLog)
    topic = bench.topic()
    bench.publish(topic, *numbers(10))
    member, reader = Member(bench, topic), bench.log.reader()
    [partition] = reader.partitions(topic)
    bench.log.trim(partition, 4)
    assert reader.bounds(partition) == Bounds(4, 10)
    bench.log.trim(partition, 2)  # never moves back
    assert reader.bounds(partition) == Bounds(4, 10)
    there = [
        record and record.value for record in (reader.record_at(partition, i) for i in range(11))
    ]
    assert there == [None] * 4 + list(numbers(6, 4)) + [None]
    with pytest.raises(PartitionReset, match=r"position 0 .* holds 4 to 10"):
        until(lambda: len(member.records) > 0, member)
    with pytest.raises(PartitionReset):
        reader.read(partition, 3, WAIT, 10)
    member.consumer.seek(partition, 4)
    assert _values(member.consumer, 6) == numbers(6, 4)
    bench.log.trim(partition, 99)
    assert reader.bounds(partition) == Bounds(10, 10)
    bench.publish(topic, b"next")
    assert [(r.offset, r.value) for r in reader.read(partition, 10, WAIT, 10)[0]] == [(10, b"next")]
    member.consumer.close()
    reader.close()


# --- Failures ---------------------------------------------------------------------------------


@pytest.mark.parametrize("bench", [STREAMS, KAFKA], indirect=True)
def test_a_log_that_is_not_there_is_one_clear_line_in_bounded_time(
    bench: Bench, capfd: pytest.CaptureFixture[str]
) -> None:
    nowhere = bench.nowhere()
    calls: list[Callable[[], object]] = [
        nowhere.ping,
        lambda: nowhere.ensure_topics([TopicSpec("t")]),
        lambda: nowhere.consumer("g", ["t"]),
        lambda: nowhere.reader().partitions("t"),
        lambda: nowhere.producer().publish([Message("t", b"k", b"v")]),
    ]
    for call in calls:
        started = time.monotonic()
        with pytest.raises(LogUnavailable, match=r":1 cannot be reached") as caught:
            call()
        assert time.monotonic() - started < 20.0
        assert "\n" not in str(caught.value)
    nowhere.close()
    assert capfd.readouterr().err == ""


def test_a_topic_that_is_not_there_is_said_so(bench: Bench) -> None:
    topic = bench.prefix + "missing"
    producer, reader = bench.log.producer(), bench.log.reader()
    with pytest.raises(LogUnavailable, match=r"missing does not exist"):
        producer.publish([Message(topic, b"k", b"v")], timeout=1.0)
    with pytest.raises(LogUnavailable, match=r"missing does not exist"):
        reader.partition_for(topic, b"k")
    # A consumer waits for it.
    member = Member(bench, topic)
    member.step()
    bench.topic("missing")
    bench.publish(topic, b"at last")
    until(lambda: member.values() == [b"at last"], member)
    member.consumer.close()
    producer.close()
    reader.close()


@pytest.mark.parametrize("bench", [KAFKA], indirect=True)
def test_no_metadata_request_creates_topics(bench: Bench) -> None:
    from lethe.consumers.log.kafka.reader import KafkaReader

    reader = bench.log.reader()
    assert isinstance(reader, KafkaReader)
    request = reader._cluster._client.cluster.metadata_request()
    reader.close()
    assert request.allow_auto_topic_creation is False
