"""Queries to a cluster other than sending and reading: topics, their ids, offsets.

They use clients of their own, which the parts of a log share: while a consumer waits for records,
its connection answers nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, TimeoutError as FutureTimeoutError
from threading import Lock
from typing import Any, TypeVar

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from lethe.consumers.log.base import Bounds, Partition
from lethe.consumers.log.confluent.server import (
    REQUEST_SECONDS,
    SLICE_SECONDS,
    Heard,
    Server,
    opened,
)
from lethe.consumers.log.reset import PartitionReset

T = TypeVar("T")

_RETRY_SECONDS = 0.05
_GONE = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.UNKNOWN_TOPIC_ID, KafkaError._UNKNOWN_TOPIC)
_ELSEWHERE = (  # the leader moved, or is not chosen yet
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError._UNKNOWN_PARTITION,
)


class Questions:
    """Queries a cluster; safe to use from several threads. It connects with the first query."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.heard = Heard(server.signing_on, reached=False)
        self._lock = Lock()
        self._admin: AdminClient | None = None
        self._offsets: Consumer | None = None

    @property
    def admin(self) -> AdminClient:
        """The client for administration."""
        with self._lock:
            if self._admin is None:
                self._admin = opened(AdminClient, self.server.settings(self.heard))
            return self._admin

    def partitions(self, topics: Sequence[str]) -> dict[str, list[Partition]]:
        """Return the partitions of ``topics`` by index, without topics that do not exist."""
        return by_topic(self.leaders(topics))

    def leaders(self, topics: Sequence[str]) -> dict[Partition, int]:
        """Return the partitions of ``topics`` with their leaders (-1: currently none)."""
        return self.described(self.describe(topics))

    def describe(self, topics: Sequence[str]) -> Mapping[str, Future[Any]]:
        """Request the descriptions of ``topics``, without waiting."""
        if not topics:
            return {}
        # librdkafka rejects a topic that is named twice.
        return self.admin.describe_topics(
            TopicCollection(sorted(set(topics))), request_timeout=self._seconds()
        )

    def described(self, answers: Mapping[str, Future[Any]]) -> dict[Partition, int]:
        """Wait for the descriptions that `describe` requested."""
        leaders: dict[Partition, int] = {}
        for name, future in answers.items():
            try:
                topic = self.answer(future)
            except KafkaException as error:
                if error.args[0].code() in _GONE:
                    continue
                raise self.server.failed(error.args[0], self.heard) from error
            for info in topic.partitions:
                partition = Partition(name, _uuid(topic.topic_id), info.id)
                leaders[partition] = -1 if info.leader is None else info.leader.id
        return leaders

    def bounds(self, partition: Partition, position: int = 0) -> Bounds:
        """Return the partition's bounds for a reader of committed records.

        Raises
        ------
        PartitionReset
            Its topic is gone; the error names ``position``.
        """
        target = TopicPartition(partition.topic, partition.index)

        def ask() -> Bounds:
            described = self.describe([partition.topic])
            try:
                # Both ends in one round trip, while the description is in flight.
                ends = self._watermarks().get_watermark_offsets(target, timeout=self._seconds())
            except KafkaException:
                if partition not in self.described(described):
                    raise PartitionReset(partition, position, None) from None
                raise
            if partition not in self.described(described):
                raise PartitionReset(partition, position, None)
            assert ends is not None  # noqa: S101 (mypy: it raises on a timeout)
            return Bounds(*ends)

        return self._until_led(ask)

    def ends(self, partitions: Iterable[Partition]) -> Mapping[Partition, int]:
        """Return the end of each partition, including uncommitted records."""
        requested = list(partitions)
        if not requested:
            return {}
        latest: Any = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # untyped

        def ask() -> Mapping[Partition, int]:
            described = self.describe([partition.topic for partition in requested])
            answers = self.admin.list_offsets(
                {TopicPartition(p.topic, p.index): latest for p in set(requested)},
                isolation_level=IsolationLevel.READ_UNCOMMITTED,
                request_timeout=self._seconds(),
            )
            present = self.described(described)
            for partition in requested:
                if partition not in present:
                    raise PartitionReset(partition, 0, None)
            ends = {(p.topic, p.partition): self.answer(f).offset for p, f in answers.items()}
            return {partition: ends[partition.topic, partition.index] for partition in requested}

        return self._until_led(ask)

    def answer(self, future: Future[Any]) -> Any:
        """Wait for a future; a failure that no retry can repair ends the wait at once.

        Raises
        ------
        KafkaException
            The broker or librdkafka reported an error.
        LogUnavailable
            There was no answer.
        """
        deadline = time.monotonic() + self._seconds() + 1.0  # librdkafka times out earlier
        while True:
            try:
                result = future.result(SLICE_SECONDS)
            except FutureTimeoutError:
                self.admin.poll(0.0)  # which calls `heard`
                if self.heard.lasting is not None or time.monotonic() > deadline:
                    raise self.server.unreachable(self.heard, "no answer") from None
            except KafkaException:
                self.admin.poll(0.0)
                raise
            else:
                self.heard.clear()
                return result

    def _until_led(self, ask: Callable[[], T]) -> T:
        """Retry while a partition has no leader or its leader has moved."""
        deadline = time.monotonic() + REQUEST_SECONDS
        while True:
            try:
                return ask()
            except KafkaException as error:
                failure: KafkaError = error.args[0]
                if failure.code() not in _ELSEWHERE or time.monotonic() > deadline:
                    raise self.server.failed(failure, self.heard) from error
            time.sleep(_RETRY_SECONDS)

    def _seconds(self) -> float:
        return REQUEST_SECONDS if self.heard.reached else self.server.connect_seconds

    def _watermarks(self) -> Consumer:
        with self._lock:
            if self._offsets is None:
                settings = self.server.settings(self.heard) | {
                    "group.id": self.server.client_id,  # required, although it joins no group
                    "enable.auto.commit": False,
                    "isolation.level": "read_committed",
                }
                self._offsets = opened(Consumer, settings)
            return self._offsets

    def close(self) -> None:
        """Release the connections."""
        with self._lock:
            if self._offsets is not None:
                self._offsets.close()
            self._admin = self._offsets = None


def by_topic(partitions: Iterable[Partition]) -> dict[str, list[Partition]]:
    """Return the partitions of each topic by index."""
    topics: dict[str, list[Partition]] = {}
    for partition in sorted(partitions):
        topics.setdefault(partition.topic, []).append(partition)
    return topics


def _uuid(topic_id: Any) -> str:
    """Return a topic's id in the form that kafka-python uses."""
    high = topic_id.get_most_significant_bits() & (1 << 64) - 1
    low = topic_id.get_least_significant_bits() & (1 << 64) - 1
    digits = f"{high:016x}{low:016x}"
    return "-".join(digits[a:b] for a, b in ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32)))
