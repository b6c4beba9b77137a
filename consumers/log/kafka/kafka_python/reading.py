"""Reading Kafka with kafka-python, as a member of a group and without one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kafka import ConsumerRebalanceListener, KafkaConsumer as Client, TopicPartition, errors
from kafka.structs import OffsetAndMetadata

from lethe.consumers.log.base import Partition, PartitionReset, Position, Record
from lethe.consumers.log.kafka import reading, settings
from lethe.consumers.log.kafka.kafka_python.assignor import BalancedTopicsAssignor
from lethe.consumers.log.kafka.kafka_python.batches import bound_batches
from lethe.consumers.log.kafka.kafka_python.cluster import KafkaPythonCluster
from lethe.consumers.log.kafka.kafka_python.connection import client_names
from lethe.consumers.log.kafka.kafka_python.repairs import finish_joins, read_odd_header_names
from lethe.consumers.log.kafka.reading import KafkaConsumer, KafkaReader, Place, place_of
from lethe.consumers.log.kafka.server import Server

_CLOSE_MS = int(settings.CLOSE_SECONDS * 1000)
# What the client raises for a partition that its listener has just removed.
_NOT_ASSIGNED = (ValueError, KeyError)


def _open(connection: KafkaPythonCluster, **more: Any) -> Client:
    """Return a consumer; the client's defaults would lose requests."""
    read_odd_header_names()
    consumer = connection.open(
        Client,
        **client_names(settings.READING),
        auto_offset_reset="none",  # we seek ourselves; an offset out of range is an alarm
        allow_auto_create_topics=False,
        metrics_enabled=False,
        fetch_max_wait_ms=settings.FETCH_WAIT_MS,
        metadata_max_age_ms=int(settings.METADATA_SECONDS * 1000),
        **more,
    )
    bound_batches(consumer)
    return consumer


def to_record(partition: Partition, fetched: Any) -> Record:
    """Convert the client's record to a `Record`; a header without a value gets an empty one."""
    return Record(
        partition,
        fetched.offset,
        fetched.key,
        fetched.value,
        tuple((name, value or b"") for name, value in fetched.headers or ()),
        fetched.timestamp,
        None if fetched.leader_epoch == -1 else fetched.leader_epoch,
    )


class KafkaPythonConsumer(KafkaConsumer):
    """A member of a group; the client has a thread of its own, which sends heartbeats."""

    _connection: KafkaPythonCluster

    def _join(self) -> None:
        self._fetched: dict[Place, Sequence[Any]] = {}
        self._connection = self._cluster = KafkaPythonCluster(self._server)
        self._client = _open(
            self._connection,
            **client_names(settings.group_settings(self.group, self._session_seconds)),
            partition_assignment_strategy=[BalancedTopicsAssignor],
        )
        finish_joins(self._client)
        self._client.subscribe(topics=list(self.topics), listener=_Listener(self, self._client))

    def _close_client(self) -> None:
        with contextlib.suppress(errors.KafkaError):
            self._client.close(autocommit=False, timeout_ms=_CLOSE_MS)

    def _move(self, partition: Partition) -> None:
        self._fetched.pop(place_of(partition), None)
        with contextlib.suppress(*_NOT_ASSIGNED):
            self._client.seek(_topic_partition(partition), self._positions[partition])
            self._client.resume(_topic_partition(partition))

    def _fetch(self, timeout: float, limit: int) -> None:
        if limit == 0:
            self._fetch_nothing(timeout)
        elif not self._fetched:  # else an earlier poll failed before it delivered them
            self._fetched = self._poll_client(timeout, limit)

    def _fetch_nothing(self, timeout: float) -> None:
        """Poll for the membership only; fetched records stay in the client, or in `_fetched`.

        The listener's thread may remove a partition at any moment: the client does not know it
        then, and the others are paused all the same.
        """
        paused = self.membership.sought()
        for partition in paused:
            with contextlib.suppress(*_NOT_ASSIGNED):
                self._client.pause(_topic_partition(partition))
        try:
            for place, batch in self._poll_client(timeout, 1).items():
                self._fetched[place] = [*self._fetched.get(place, ()), *batch]
        finally:
            for partition in paused & self.membership.sought():
                with contextlib.suppress(*_NOT_ASSIGNED):
                    self._client.resume(_topic_partition(partition))

    def _poll_client(self, timeout: float, limit: int) -> dict[Place, Sequence[Any]]:
        try:
            batches = self._client.poll(timeout_ms=timeout * 1000, max_records=limit)
        except errors.OffsetOutOfRangeError as error:
            self._out_of_range(set(error.args[0]))
        except errors.LogTruncationError as error:
            self._out_of_range(set(error.divergent_offsets), truncated=True)
        else:
            return dict(batches)
        return {}

    def _out_of_range(self, affected: set[Place], *, truncated: bool = False) -> None:
        """Queue a reset of each affected partition, unless its topic is gone or recreated."""
        candidates = self.membership.held() if truncated else self.membership.sought()
        outside = {partition for partition in candidates if place_of(partition) in affected}
        for partition in outside:
            silence(self._client, _topic_partition(partition))
            self._reset(partition, truncated=truncated)
        # If this fails, the resets stay queued: the client does not report a truncation again.
        present = self._cluster.leaders(sorted({topic for topic, _ in affected}))
        self._resets = [r for r in self._resets if r.partition not in outside - present.keys()]
        self._rejoin_if_recreated({p.topic: p.topic_id for p in present})

    def _deliver(self, limit: int) -> list[Record]:
        sought = {place_of(partition): partition for partition in self.membership.sought()}
        batches, self._fetched = self._fetched, {}
        records: list[Record] = []
        for place, batch in batches.items():
            if place not in sought:
                continue  # it was revoked while the answer was in flight
            room = limit - len(records)
            records += [to_record(sought[place], fetched) for fetched in batch[:room]]
            if batch[:room]:
                self._positions[sought[place]] = batch[:room][-1].offset + 1
            if batch[room:]:
                self._fetched[place] = batch[room:]
        return records

    def _topic_ids(self) -> Mapping[str, str]:
        ids = {topic: self._connection.known_topic_id(topic) for topic in self.topics}
        return {topic: topic_id for topic, topic_id in ids.items() if topic_id is not None}

    def _check_brokers(self) -> None:
        self._connection.check()

    def _commit(self, positions: Mapping[Partition, Position], *, last: bool) -> None:
        offsets = {
            _topic_partition(partition): OffsetAndMetadata(
                position.next_offset,
                "",
                -1 if position.leader_epoch is None else position.leader_epoch,
            )
            for partition, position in positions.items()
        }
        if last:
            self._client.commit(offsets, timeout_ms=_CLOSE_MS)
        else:
            self._client.commit_async(offsets, callback=_hint_answered)


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # kafka-python has no types
    """Called on the client's own thread.

    New partitions are paused before anything is fetched, at offset 0, which is never read: without
    a position the client would look for a committed one and raise.
    """

    def __init__(self, owner: KafkaPythonConsumer, client: Client) -> None:
        self._owner = owner
        self._client = client

    def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        for tp in assigned:
            silence(self._client, tp)
        self._owner._on_assigned(self._client, assigned)

    def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        self._owner._on_revoked(self._client, revoked)


def silence(client: Client, tp: TopicPartition) -> None:
    """Make a client fetch nothing from a partition."""
    with contextlib.suppress(*_NOT_ASSIGNED):
        client.pause(tp)
        client.seek(tp, 0)


def _topic_partition(partition: Partition) -> TopicPartition:
    return TopicPartition(partition.topic, partition.index)


def _hint_answered(offsets: object, answer: object) -> None:
    if isinstance(answer, Exception):
        reading.hint_failed(offsets, answer)


class KafkaPythonReader(KafkaReader):
    """A reader with a connection of its own."""

    _connection: KafkaPythonCluster

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self._connection = self._cluster = KafkaPythonCluster(server)
        self._client = _open(self._connection, group_id=None)

    def close(self) -> None:
        """Release the connection."""
        with contextlib.suppress(errors.KafkaError):
            self._client.close(autocommit=False, timeout_ms=_CLOSE_MS)

    def _start(self, partition: Partition, offset: int) -> None:
        tp = _topic_partition(partition)
        if self._client.assignment() != {tp}:
            self._client.assign([tp])
        self._client.seek(tp, offset)

    def _fetch(
        self, partition: Partition, offset: int, timeout: float, limit: int
    ) -> tuple[Sequence[Record], int]:
        tp = _topic_partition(partition)
        try:
            batches = self._client.poll(timeout_ms=timeout * 1000, max_records=limit)
            if not batches:
                self._connection.check()
            if self._connection.known_topic_id(partition.topic) not in (None, partition.topic_id):
                raise PartitionReset(partition, offset, None)
            after: int = self._client.position(tp, timeout_ms=settings.REQUEST_SECONDS * 1000)
        except (errors.OffsetOutOfRangeError, errors.LogTruncationError):
            raise self._outside(partition, offset) from None
        return [to_record(partition, fetched) for fetched in batches.get(tp, ())], after
