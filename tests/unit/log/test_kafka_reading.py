"""A member of a group in Kafka, without a server: failures at the wrong moment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import errors

from lethe.consumers.log.base import Bounds, Partition, PartitionReset
from lethe.consumers.log.kafka.consumer import KafkaConsumer
from lethe.consumers.log.kafka.server import Server
from lethe.engine.errors import LogUnavailable

ONE, TWO = Partition("t", "id", 0), Partition("t", "id", 1)


class FakeCluster:
    """Stands in for the connection and its queries; the next query fails if it is told so."""

    def __init__(self) -> None:
        self.fails = self.gone = False
        self.partitions = [ONE, TWO]
        self.during_query: Callable[[], object] = lambda: None

    def _answer(self) -> None:
        self.during_query()
        if self.fails:
            raise LogUnavailable("no broker")

    def leaders(self, topics: Sequence[str]) -> Mapping[Partition, int]:
        assert topics == ["t"]
        self._answer()
        return dict.fromkeys(self.partitions, 1)

    def bounds(self, partition: Partition, position: int = 0) -> Bounds:
        assert (partition, position) == (ONE, 0)
        self._answer()
        if self.gone:
            raise PartitionReset(partition, position, None)
        return Bounds(0, 3)

    def ends(self, partitions: Iterable[Partition]) -> Mapping[Partition, int]:
        raise NotImplementedError

    @contextmanager
    def reaching(self) -> Iterator[None]:
        yield

    def known_topic_id(self, topic: str) -> str:
        assert topic == "t"
        return "id"

    def check(self) -> None: ...


class FakeClient:
    """Gives out batches and errors that a test puts in it, each once, as kafka-python does."""

    def __init__(self) -> None:
        self.batches: dict[Any, list[Any]] = {}
        self.errors: list[Exception] = []
        self.unknown: set[Any] = set()
        self.paused: set[Any] = set()

    def poll(self, timeout_ms: float, max_records: int) -> dict[Any, list[Any]]:
        del timeout_ms, max_records
        if self.errors:
            raise self.errors.pop()
        batches = {place: self.batches[place] for place in self.batches.keys() - self.paused}
        for place in batches:
            del self.batches[place]
        return batches

    def pause(self, place: Any) -> None:
        if place in self.unknown:
            raise KeyError(place)
        self.paused.add(place)

    def resume(self, place: Any) -> None:
        self.paused.discard(place)

    def seek(self, *_: object) -> None: ...


class Member(KafkaConsumer):
    """A member whose client and cluster are fakes."""

    def _join(self) -> None:
        self._fetched = {}
        self.cluster = FakeCluster()
        self._cluster = self.cluster  # type: ignore[assignment]
        self._client = FakeClient()

    def assign(self, *partitions: Partition) -> None:
        self._on_assigned(self._client, [(p.topic, p.index) for p in partitions])

    def revoke(self, *partitions: Partition) -> None:
        self._on_revoked(self._client, [(p.topic, p.index) for p in partitions])

    def fetch(self, partition: Partition, *offsets: int) -> None:
        self._client.batches[partition.topic, partition.index] = [
            SimpleNamespace(
                offset=offset, key=b"k", value=b"v", headers=(), timestamp=0, leader_epoch=0
            )
            for offset in offsets
        ]


@pytest.fixture
def member() -> Member:
    member = Member(Server(("h:1",), "tests", {}, 1.0), "g", ["t"], 10.0)
    member.assign(ONE)
    assert member.poll(0.0, 10) == []
    assert member.take_assigned() == {ONE}
    member.seek(ONE, 0)
    return member


def test_records_fetched_before_a_failed_query_come_with_the_next_poll(member: Member) -> None:
    """The client has moved on behind them: what is dropped here would be missing for ever."""
    member.fetch(ONE, 0, 1, 2)
    member.assign(TWO)  # whose topic id has to be asked for
    member.cluster.fails = True
    with pytest.raises(LogUnavailable):
        member.poll(0.0, 10)
    member.cluster.fails = False
    assert member.poll(0.0, 0) == []
    assert [record.offset for record in member.poll(0.0, 2)] == [0, 1]
    assert [record.offset for record in member.poll(0.0, 2)] == [2]
    assert member.take_assigned() == {TWO}


def test_records_of_before_a_seek_are_not_delivered_after_it(member: Member) -> None:
    member.fetch(ONE, 0, 1, 2)
    member.assign(TWO)
    member.cluster.fails = True
    with pytest.raises(LogUnavailable):
        member.poll(0.0, 10)
    member.cluster.fails = False
    member.seek(ONE, 7)
    assert member.poll(0.0, 10) == []


def test_a_partition_that_is_revoked_while_its_topic_is_looked_up_is_not_held(
    member: Member,
) -> None:
    member.assign(TWO)
    member.cluster.during_query = lambda: member.revoke(TWO)
    member.poll(0.0, 10)
    assert member.assignment() == {ONE}
    assert member.take_assigned() == frozenset()


def test_a_reset_is_raised_once_its_bounds_are_known(member: Member) -> None:
    member._out_of_range({("t", 0)})
    member.cluster.fails = True
    with pytest.raises(LogUnavailable):
        member.poll(0.0, 10)
    member.cluster.fails = False
    with pytest.raises(PartitionReset) as caught:
        member.poll(0.0, 10)
    assert (caught.value.partition, caught.value.bounds) == (ONE, Bounds(0, 3))
    assert member.poll(0.0, 10) == []


def test_a_partition_that_is_sought_again_is_not_reset(member: Member) -> None:
    member._out_of_range({("t", 0)})
    member.seek(ONE, 1)
    member.fetch(ONE, 1)
    assert [record.offset for record in member.poll(0.0, 10)] == [1]


OUTSIDE, TRUNCATED = errors.OffsetOutOfRangeError, errors.LogTruncationError


def reset_of(member: Member) -> PartitionReset:
    with pytest.raises(PartitionReset) as caught:
        member.poll(0.0, 10)
    assert member.poll(0.0, 10) == []  # once
    return caught.value


@pytest.mark.parametrize("kind", [OUTSIDE, TRUNCATED])
def test_a_position_that_the_client_reports_once_is_reported_whatever_fails(
    member: Member, kind: type[Exception]
) -> None:
    """The client does not say again that a log was truncated."""
    member.fetch(ONE, 0, 1)
    assert len(member.poll(0.0, 10)) == 2
    member._client.errors = [kind({("t", 0): None})]
    member.cluster.fails = True  # asked whether the topic is the same
    with pytest.raises(LogUnavailable):
        member.poll(0.0, 10)
    with pytest.raises(LogUnavailable):  # asked for the bounds
        member.poll(0.0, 10)
    member.cluster.fails = False
    reset = reset_of(member)
    assert (reset.partition, reset.position, reset.bounds) == (ONE, 2, Bounds(0, 3))


@pytest.mark.parametrize("kind", [OUTSIDE, TRUNCATED])
@pytest.mark.parametrize("asked", ["the topic", "the bounds"])
def test_a_truncation_is_reported_even_if_the_partition_is_sought_again(
    member: Member, kind: type[Exception], asked: str
) -> None:
    """A worker that waited for a broker goes back to its watermark: that is in the log again."""
    member.fetch(ONE, 0, 1)
    assert len(member.poll(0.0, 10)) == 2
    member._client.errors = [kind({("t", 0): None})]
    if asked == "the bounds":
        assert member.poll(0.0, 10) == []
    member.cluster.fails = True
    with pytest.raises(LogUnavailable):
        member.poll(0.0, 10)
    member.cluster.fails = False
    member.seek(ONE, 1)
    member.fetch(ONE, 1)
    if kind is TRUNCATED:
        reset = reset_of(member)
        assert (reset.position, reset.bounds) == (2, Bounds(0, 3))
        assert "truncated" in str(reset)
        member.seek(ONE, 1)
        member.fetch(ONE, 1)
    assert [record.offset for record in member.poll(0.0, 10)] == [1]


@pytest.mark.parametrize("gone", [False, True])
def test_a_truncation_is_reported_even_if_the_partition_is_lost(
    member: Member, *, gone: bool
) -> None:
    """Unless the topic is gone: then it is no longer about anything."""
    member._client.errors = [TRUNCATED({("t", 0): None})]
    assert member.poll(0.0, 10) == []
    member.revoke(ONE)
    member.cluster.gone = gone
    if gone:
        assert member.poll(0.0, 10) == []
    else:
        assert reset_of(member).partition == ONE


@pytest.mark.parametrize("kind", [OUTSIDE, TRUNCATED])
def test_a_reset_in_a_topic_that_is_gone_by_then_names_the_position(
    member: Member, kind: type[Exception]
) -> None:
    member.fetch(ONE, 0, 1)
    assert len(member.poll(0.0, 10)) == 2
    member._client.errors = [kind({("t", 0): None})]
    assert member.poll(0.0, 10) == []
    member.cluster.gone = True
    reset = reset_of(member)
    assert (reset.partition, reset.position, reset.bounds) == (ONE, 2, None)


def test_without_room_a_partition_that_was_removed_leaves_the_others_paused(
    member: Member,
) -> None:
    partitions = {("t", index): Partition("t", "id", index) for index in range(8)}
    member.cluster.partitions = list(partitions.values())
    member.assign(*partitions.values())
    assert member.poll(0.0, 10) == []
    for partition in partitions.values():
        member.seek(partition, 0)
        member.fetch(partition, 0)
    removed = ("t", 3)
    member._client.unknown = {removed}
    assert member.poll(0.0, 0) == []
    assert member._client.batches.keys() == partitions.keys() - {removed}
    records = member.poll(0.0, 10)
    records = [*records, *member.poll(0.0, 10)]
    assert sorted(record.partition for record in records) == sorted(partitions.values())
