"""A member of a group with confluent-kafka, without a server: errors at the wrong moment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from lethe.consumers.log.base import Bounds, PartitionReset
from lethe.consumers.log.kafka.reading import KafkaConsumer
from lethe.consumers.log.kafka.server import Server
from lethe.engine.errors import LogUnavailable
from tests.conftest import need_confluent
from tests.unit.log.test_kafka_reading import ONE, TWO, FakeCluster


class Cluster(FakeCluster):
    """Stands in for the queries; metadata are never new."""

    server = Server(("h:1",), "tests", {}, 1.0)

    def describe(self, topics: Sequence[str]) -> Mapping[str, Any]:
        del topics
        return {}

    def leaders(self, topics: Sequence[str]) -> Any:
        return super().leaders(list(topics))


class FakeClient:
    """Gives out messages; like librdkafka, it cannot seek a partition that it does not read."""

    def __init__(self) -> None:
        self.messages: list[Any] = []
        self.reading: dict[int, int] = {}
        self.callback: Callable[[], object] = lambda: None

    def poll(self, _wait: float) -> Any:
        self.callback()
        return self.messages.pop(0) if self.messages else None

    def consume(self, limit: int, _wait: float) -> list[Any]:
        taken, self.messages = self.messages[:limit], self.messages[limit:]
        return taken

    def incremental_assign(self, positions: Sequence[Any]) -> None:
        self.reading |= {position.partition: position.offset for position in positions}

    def incremental_unassign(self, positions: Sequence[Any]) -> None:
        for position in positions:
            self.reading.pop(position.partition, None)

    def assignment(self) -> Sequence[Any]:
        return []

    def seek(self, position: Any) -> None:
        from confluent_kafka import KafkaError, KafkaException

        if position.partition not in self.reading:
            raise KafkaException(KafkaError(KafkaError._STATE))
        self.reading[position.partition] = position.offset

    def subscribe(self, *_: object, **__: object) -> None: ...
    def pause(self, *_: object) -> None: ...
    def resume(self, *_: object) -> None: ...


def message(**values: object) -> Any:
    values = {"topic": "t", "partition": 0, "error": None, **values}
    return SimpleNamespace(**{name: lambda value=value: value for name, value in values.items()})


@dataclass
class Bench:
    """A member that has read the offsets 0 and 1 of one partition, and what it rests on."""

    member: KafkaConsumer
    client: FakeClient
    cluster: Cluster

    def poll(self, limit: int = 10) -> list[int]:
        return [record.offset for record in self.member.poll(0.0, limit)]

    def poll_twice(self) -> list[int]:
        return [*self.poll(), *self.poll()]

    def fetch(self, *offsets: int) -> None:
        same = {"key": b"k", "value": b"v", "headers": None, "timestamp": (0, 0), "leader_epoch": 0}
        self.client.messages += [message(offset=offset, **same) for offset in offsets]

    def stop(self, *, truncated: bool) -> None:
        """Have the client stop reading and say why, as it does under auto.offset.reset=error."""
        from confluent_kafka import KafkaError

        kind = KafkaError._LOG_TRUNCATION if truncated else KafkaError.OFFSET_OUT_OF_RANGE
        said = f"what happened: {KafkaError(kind).str()} (broker 1)"
        self.client.reading.clear()
        error = KafkaError(KafkaError._AUTO_OFFSET_RESET, said)
        self.client.messages.append(message(offset=-1001, error=error))

    def fail(self) -> None:
        """Have a query of a poll fail; a worker seeks its watermark then."""
        self.cluster.fails = True
        with pytest.raises(LogUnavailable):
            self.poll()
        self.cluster.fails = False
        self.member.seek(ONE, 1)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    need_confluent()
    from lethe.consumers.log.kafka.confluent import reading

    client, cluster = FakeClient(), Cluster()
    monkeypatch.setattr(reading, "_open", lambda *_: client)
    member = reading.ConfluentConsumer(cluster, "g", ["t"], 10.0)  # type: ignore[arg-type]
    made = Bench(member, client, cluster)
    member._on_assigned(client, [(ONE.topic, ONE.index)])
    assert made.poll() == []
    assert member.take_assigned() == {ONE}
    member.seek(ONE, 0)
    made.fetch(0, 1)
    assert made.poll() == [0, 1]
    return made


def check_reported(bench: Bench, *, truncated: bool) -> None:
    """Check that a truncation, and nothing else, is reported once; and that reading goes on."""
    if truncated:
        with pytest.raises(PartitionReset, match="truncated") as caught:
            bench.poll_twice()
        assert (caught.value.partition, caught.value.bounds) == (ONE, Bounds(0, 3))
        bench.member.seek(ONE, 1)
    assert bench.poll_twice() == []
    assert bench.client.reading == {0: 1}
    bench.fetch(1, 2)
    assert bench.poll() == [1, 2]


@pytest.mark.parametrize("truncated", [False, True])
@pytest.mark.parametrize("asked", ["the topic", "the bounds"])
def test_a_truncation_is_reported_although_brokers_change(
    bench: Bench, asked: str, *, truncated: bool
) -> None:
    """The worker waits for a broker and seeks before the member could say what is wrong."""
    bench.stop(truncated=truncated)
    if asked == "the bounds":
        assert bench.poll() == []
    bench.fail()
    check_reported(bench, truncated=truncated)


@pytest.mark.parametrize("truncated", [False, True])
def test_an_error_that_the_client_says_after_a_seek_does_not_end_reading(
    bench: Bench, *, truncated: bool
) -> None:
    bench.stop(truncated=truncated)
    bench.member.seek(ONE, 1)  # which the client refuses, for it has stopped
    check_reported(bench, truncated=truncated)


@pytest.mark.parametrize("truncated", [False, True])
def test_an_error_that_comes_while_there_is_no_room_is_not_lost(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, *, truncated: bool
) -> None:
    from lethe.consumers.log.kafka.confluent import reading

    monkeypatch.setattr(reading, "HELD_BACK", 1)
    bench.stop(truncated=truncated)
    for _ in range(2):
        assert bench.poll(limit=0) == []
    if not truncated:
        bench.member.seek(ONE, 1)
    check_reported(bench, truncated=truncated)


def test_a_truncation_is_reported_even_if_the_partition_is_lost(bench: Bench) -> None:
    from confluent_kafka import TopicPartition

    bench.stop(truncated=True)
    bench.fail()
    consumer: Any = bench.member
    consumer._revoke(bench.client, [TopicPartition("t", 0)])
    with pytest.raises(PartitionReset, match="truncated"):
        bench.poll_twice()
    assert bench.poll() == []


def test_records_that_come_with_a_revocation_of_others_are_delivered(bench: Bench) -> None:
    """One poll of the client calls back first, and then returns a record."""
    from confluent_kafka import TopicPartition

    consumer: Any = bench.member
    consumer._on_assigned(bench.client, [("t", 1)])
    assert bench.poll() == []
    consumer.seek(TWO, 0)
    revoked = [[TopicPartition("t", 1)]]
    bench.client.callback = lambda: consumer._revoke(bench.client, revoked.pop() if revoked else [])
    bench.fetch(2, 3)
    assert bench.poll_twice() == [2, 3]
    assert consumer.take_lost() == {TWO}
