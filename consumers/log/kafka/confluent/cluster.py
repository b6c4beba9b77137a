"""Queries about topics and offsets with confluent-kafka, and administration.

They use clients of their own, which the parts of a log share: while a consumer waits for records,
its connection answers nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, TimeoutError as FutureTimeoutError
from threading import Lock
from typing import Any, TypeVar

import confluent_kafka
from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.cimpl import NewTopic

from lethe.consumers.log.base import Bounds, Partition, PartitionReset, TopicSpec
from lethe.consumers.log.kafka import settings
from lethe.consumers.log.kafka.confluent.connection import Connection
from lethe.consumers.log.kafka.server import Server
from lethe.engine.errors import LogUnavailable

T = TypeVar("T")

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


class ConfluentCluster(Connection):
    """Queries a cluster; safe to use from several threads. It connects with the first query."""

    def __init__(self, server: Server) -> None:
        super().__init__(server, reached=False)
        self._lock = Lock()
        self._admin: AdminClient | None = None
        self._offsets: Consumer | None = None

    @property
    def admin(self) -> AdminClient:
        """The client for administration."""
        with self._lock:
            if self._admin is None:
                self._admin = self.open(AdminClient, {})
            return self._admin

    def leaders(self, topics: Sequence[str]) -> Mapping[Partition, int]:
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
                topic = self._answer(future)
            except KafkaException as error:
                if error.args[0].code() in _GONE:
                    continue
                raise self.failed(error.args[0]) from error
            for info in topic.partitions:
                partition = Partition(name, _uuid(topic.topic_id), info.id)
                leaders[partition] = -1 if info.leader is None else info.leader.id
        return leaders

    def bounds(self, partition: Partition, position: int = 0) -> Bounds:
        """Return the partition's bounds for a reader of committed records."""
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
            return Bounds(*map(_known, ends))

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
            ends = {
                (p.topic, p.partition): _known(self._answer(f).offset) for p, f in answers.items()
            }
            return {partition: ends[partition.topic, partition.index] for partition in requested}

        return self._until_led(ask)

    def create(self, spec: TopicSpec) -> bool:
        """Create a topic; return False if it exists by now."""
        new = NewTopic(spec.name, spec.partitions, config=settings.topic_settings(spec))
        try:
            self._answer(self.admin.create_topics([new])[spec.name])
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return False
            raise self.server.not_created(spec.name, error.args[0].str()) from error
        return True

    def delete(self, topic: str) -> None:
        """Delete a topic."""
        self._answer(self.admin.delete_topics([topic])[topic])

    def settings_of(self, topic: str) -> Mapping[str, str]:
        """Return a topic's settings; empty without such a topic, or the right to describe it."""
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        try:
            entries = self._answer(self.admin.describe_configs([resource])[resource])
        except KafkaException:
            return {}
        return {name: str(entry.value) for name, entry in entries.items()}

    def ping(self) -> str:
        """Return the cluster's size and the client's version."""
        cluster = self._answer(self.admin.describe_cluster())
        client = f"confluent-kafka {confluent_kafka.__version__}"
        brokers = f"{len(cluster.nodes)} brokers, {self.server.protocol}"
        return f"Kafka at {self.server}, {brokers}, by {client}"

    def _answer(self, future: Future[Any]) -> Any:
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
                result = future.result(settings.SLICE_SECONDS)
            except FutureTimeoutError:
                self.admin.poll(0.0)  # which reports failures
                if self.lasting is not None or time.monotonic() > deadline:
                    raise self.unreachable("no answer") from None
            except KafkaException:
                self.admin.poll(0.0)
                raise
            else:
                self.clear()
                return result

    def _until_led(self, ask: Callable[[], T]) -> T:
        """Retry while a partition has no leader or its leader has moved."""
        deadline = time.monotonic() + settings.REQUEST_SECONDS
        while True:
            try:
                return ask()
            except KafkaException as error:
                failure: KafkaError = error.args[0]
                if failure.code() not in _ELSEWHERE or time.monotonic() > deadline:
                    raise self.failed(failure) from error
            time.sleep(settings.RETRY_SECONDS)

    def _seconds(self) -> float:
        return settings.REQUEST_SECONDS if self.reached else self.server.connect_seconds

    def _watermarks(self) -> Consumer:
        with self._lock:
            if self._offsets is None:
                more = {
                    "group.id": self.server.client_id,  # required, although it joins no group
                    "enable.auto.commit": False,
                    "isolation.level": "read_committed",
                }
                self._offsets = self.open(Consumer, more)
            return self._offsets

    def close(self) -> None:
        """Release the connections."""
        with self._lock:
            if self._offsets is not None:
                self._offsets.close()
            self._admin = self._offsets = None


class Watch:
    """Requests the description of some topics every two seconds, without waiting.

    Silence is counted from the first unanswered request: a worker that computed for a minute
    without sending one has not lost its brokers.
    """

    def __init__(self, cluster: ConfluentCluster, topics: Sequence[str]) -> None:
        self._cluster = cluster
        self._topics = topics
        self._pending: Mapping[str, Future[Any]] = {}
        self._next = 0.0
        self._silent_since: float | None = None

    def look(self, connection: Connection) -> Mapping[Partition, int]:
        """Return each answer once, or nothing; send the next request when it is due.

        An answer clears the failures of ``connection``.
        """
        now = time.monotonic()
        leaders: Mapping[Partition, int] = {}
        if self._pending and all(future.done() for future in self._pending.values()):
            answered, self._pending = self._pending, {}
            try:
                leaders = self._cluster.described(answered)
                self._silent_since = None
                connection.clear()
            except LogUnavailable:
                self._next = now  # retry at once
        if not self._pending and now >= self._next:
            self._next = now + settings.METADATA_SECONDS
            self._pending = self._cluster.describe(self._topics)
            if self._silent_since is None:
                self._silent_since = now
        return leaders

    def check(self, connection: Connection) -> None:
        """Raise `LogUnavailable` if no request has been answered for some seconds."""
        if self._silent_since is None or not self._pending:
            return
        silence = time.monotonic() - self._silent_since
        if silence > settings.UNREACHABLE_SECONDS:
            raise connection.unreachable(f"no answer for {silence:.0f} s")


def _uuid(topic_id: Any) -> str:
    """Return a topic's id in the form that kafka-python uses."""
    high = topic_id.get_most_significant_bits() & (1 << 64) - 1
    low = topic_id.get_least_significant_bits() & (1 << 64) - 1
    digits = f"{high:016x}{low:016x}"
    return "-".join(digits[a:b] for a, b in ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32)))


def _known(offset: int) -> int:
    """Return an offset as librdkafka gave it.

    Raises
    ------
    KafkaException
        It is none: librdkafka answers -1001 without an error while a broker restarts.
    """
    if offset < 0:
        none = KafkaError(KafkaError.OFFSET_NOT_AVAILABLE, f"an offset of {offset} was answered")
        raise KafkaException(none)
    return offset
