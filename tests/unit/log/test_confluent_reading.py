"""A member of a group with confluent-kafka, without a server: errors at the wrong moment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from lethe.consumers.log.kafka.reading import KafkaConsumer
from lethe.consumers.log.kafka.server import Server
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

    def fetch(self, *offsets: int) -> None:
        same = {"key": b"k", "value": b"v", "headers": None, "timestamp": (0, 0), "leader_epoch": 0}
        self.client.messages += [message(offset=offset, **same) for offset in offsets]


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
    assert [*bench.poll(), *bench.poll()] == [2, 3]
    assert consumer.take_lost() == {TWO}
