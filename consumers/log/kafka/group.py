"""A member of a Kafka consumer group."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import Lock
from typing import Any

from kafka import ConsumerRebalanceListener, KafkaConsumer, errors
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.structs import OffsetAndMetadata

from lethe.consumers.log.base import Bounds, Partition, Position, Record
from lethe.consumers.log.kafka.batches import bound_batches
from lethe.consumers.log.kafka.connection import Connection, Server
from lethe.consumers.log.kafka.offsets import Offsets
from lethe.consumers.log.kafka.records import (
    CLOSE_SECONDS,
    SLICE_SECONDS,
    reading_settings,
    to_record,
    topic_partition,
)
from lethe.consumers.log.kafka.repairs import finish_joins
from lethe.consumers.log.membership import Membership
from lethe.consumers.log.reset import PartitionReset

log = logging.getLogger(__name__)

# A worker that computes for longer than this without a poll loses its partitions.
MAX_POLL_SECONDS = 300.0
_HINT_SECONDS = 0.5


class _Flags(ConsumerRebalanceListener):  # type: ignore[misc]  # kafka-python has no types
    """Called on the client's own thread: it may neither block nor commit, so it only takes notes.

    New partitions are paused before anything is fetched, at offset 0, which is never read: without
    a position the client would look for a committed one and raise.
    """

    def __init__(self, silence: Callable[[Any], None], membership: Membership) -> None:
        self._silence = silence
        self._membership = membership
        self._lock = Lock()
        self._new: set[Any] = set()

    def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        with self._lock:
            for tp in assigned:
                self._silence(tp)
                self._new.add(tp)

    def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        lost = set(revoked)
        with self._lock:
            self._new -= lost
        self._membership.lose(p for p in self._membership.held() if topic_partition(p) in lost)

    def put_back(self, partitions: Iterable[Any]) -> None:
        with self._lock:
            self._new.update(partitions)

    def take_new(self) -> set[Any]:
        with self._lock:
            taken, self._new = self._new, set()
            return taken


class KafkaGroupConsumer:
    """A member of a consumer group; the cooperative protocol leaves kept partitions undisturbed."""

    def __init__(
        self, server: Server, group: str, topics: Sequence[str], session_seconds: float
    ) -> None:
        self._server = server
        self._group = group
        self._topics = list(topics)
        self._session_seconds = session_seconds
        self._membership = Membership()
        self._positions: dict[Partition, int] = {}
        self._resets: list[PartitionReset] = []
        self._hints: dict[Partition, Position] = {}
        self._next_hint = 0.0
        self._closed = False
        self._join()

    def poll(self, timeout: float, limit: int) -> Sequence[Record]:
        """Return at most ``limit`` records; early and empty if the assignment changes."""
        if self._closed:
            raise RuntimeError("poll of a closed consumer")
        deadline = time.monotonic() + timeout
        changes = self._membership.changes
        with self._server.reaching():
            while True:
                self._raise_reset()
                remaining = max(deadline - time.monotonic(), 0.0)
                batches = self._fetch(min(remaining, SLICE_SECONDS), limit)
                self._check_topics()
                self._name_new_partitions()
                records = self._deliver(batches)
                self._send_hints()
                if not records:
                    self._connection.check()
                changed = changes != self._membership.changes
                if records or changed or time.monotonic() >= deadline:
                    return records

    def take_assigned(self) -> frozenset[Partition]:
        """Return the partitions assigned since the last call."""
        return self._membership.take_assigned()

    def take_lost(self) -> frozenset[Partition]:
        """Return the partitions revoked or lost since the last call."""
        return self._membership.take_lost()

    def assignment(self) -> frozenset[Partition]:
        """Return the partitions held now."""
        return self._membership.held()

    def seek(self, partition: Partition, offset: int) -> None:
        """Continue at ``offset``; a partition that was lost meanwhile is ignored."""
        if not self._membership.seek(partition):
            return
        self._positions[partition] = offset
        # The listener may remove the partition between these lines.
        with contextlib.suppress(ValueError, KeyError):
            self._consumer.seek(topic_partition(partition), offset)
            self._consumer.resume(topic_partition(partition))

    def bounds(self, partition: Partition) -> Bounds:
        """Return the partition's bounds."""
        with self._server.reaching():
            return self._offsets.bounds(partition)

    def commit_hint(self, positions: Mapping[Partition, Position]) -> None:
        """Keep the positions; the newest ones are committed twice a second, without waiting."""
        self._hints.update(positions)

    def release(self, partition: Partition, below_offset: int) -> None:
        """Do nothing: the brokers remove records when their retention expires."""

    def close(self) -> None:
        """Commit the last hints and leave the group, both within two seconds."""
        if self._closed:
            return
        self._closed = True
        try:
            if offsets := self._take_hints():
                self._consumer.commit(offsets, timeout_ms=int(CLOSE_SECONDS * 1000))
        except Exception as error:
            _hint_failed(offsets, error)
        self._leave()

    def _join(self) -> None:
        self._connection = Connection(self._server)
        self._offsets = Offsets(self._connection)
        heartbeat = min(1.0, self._session_seconds / 4)
        self._consumer = self._connection.open(
            KafkaConsumer,
            group_id=self._group,
            partition_assignment_strategy=[CooperativeStickyAssignor],
            session_timeout_ms=int(self._session_seconds * 1000),
            heartbeat_interval_ms=int(heartbeat * 1000),
            max_poll_interval_ms=int(MAX_POLL_SECONDS * 1000),
            **reading_settings(self._server),
        )
        finish_joins(self._consumer)
        bound_batches(self._consumer)
        self._listener = _Flags(self._silence, self._membership)
        self._consumer.subscribe(topics=self._topics, listener=self._listener)

    def _leave(self) -> None:
        with contextlib.suppress(errors.KafkaError):
            self._consumer.close(autocommit=False, timeout_ms=int(CLOSE_SECONDS * 1000))
        self._membership.lose(self._membership.held())

    def _silence(self, tp: Any) -> None:
        with contextlib.suppress(ValueError, KeyError):
            self._consumer.pause(tp)
            self._consumer.seek(tp, 0)

    def _fetch(self, timeout: float, limit: int) -> Mapping[Any, Sequence[Any]]:
        if limit == 0:
            return self._fetch_nothing(timeout)
        try:
            batches: Mapping[Any, Sequence[Any]] = self._consumer.poll(
                timeout_ms=timeout * 1000, max_records=limit
            )
        except errors.OffsetOutOfRangeError as error:
            self._out_of_range(set(error.args[0]))
        except errors.LogTruncationError as error:
            self._out_of_range(set(error.divergent_offsets))
        else:
            return batches
        return {}

    def _fetch_nothing(self, timeout: float) -> Mapping[Any, Sequence[Any]]:
        """Poll for the membership only; fetched records stay in the client."""
        paused = self._membership.sought()
        with contextlib.suppress(ValueError, KeyError):
            for partition in paused:
                self._consumer.pause(topic_partition(partition))
        try:
            return self._fetch(timeout, 1)
        finally:
            for partition in paused & self._membership.sought():
                with contextlib.suppress(ValueError, KeyError):
                    self._consumer.resume(topic_partition(partition))

    def _out_of_range(self, affected: set[Any]) -> None:
        """Queue a reset of each affected partition, unless its topic was recreated."""
        for partition in self._membership.sought():
            tp = topic_partition(partition)
            if tp not in affected:
                continue
            self._silence(tp)
            self._membership.silence(partition)
            current = self._connection.partitions([partition.topic]).get(partition.topic, [])
            if partition in current:
                bounds = self._offsets.bounds(partition)
                self._resets.append(PartitionReset(partition, self._positions[partition], bounds))
            elif current:
                self._rejoin()
                return

    def _raise_reset(self) -> None:
        """Raise a reset of a partition that is still held; the other resets stay queued."""
        while self._resets:
            reset = self._resets.pop()
            if reset.partition in self._membership.held():
                raise reset

    def _check_topics(self) -> None:
        """Rejoin if a topic was deleted and recreated without the client noticing.

        The client would continue with its old offsets; only a new client does not have them.
        """
        for partition in self._membership.held():
            topic_id = self._connection.known_topic_id(partition.topic)
            if topic_id is not None and topic_id != partition.topic_id:
                self._rejoin()
                return

    def _rejoin(self) -> None:
        self._leave()
        self._join()

    def _name_new_partitions(self) -> None:
        """Look up the topic ids of the partitions that the listener noted."""
        if not (new := self._listener.take_new()):
            return
        try:
            by_topic = self._connection.partitions(sorted({tp.topic for tp in new}))
        except errors.KafkaError:
            self._listener.put_back(new)
            raise
        named = {topic_partition(p): p for partitions in by_topic.values() for p in partitions}
        self._membership.gain(named[tp] for tp in new if tp in named)

    def _deliver(self, batches: Mapping[Any, Sequence[Any]]) -> list[Record]:
        sought = {topic_partition(partition): partition for partition in self._membership.sought()}
        records: list[Record] = []
        for tp, batch in batches.items():
            if tp in sought:  # else it was revoked while the answer was in flight
                records += [to_record(sought[tp], fetched) for fetched in batch]
                self._positions[sought[tp]] = batch[-1].offset + 1
        return records

    def _take_hints(self) -> dict[Any, OffsetAndMetadata]:
        hints, self._hints = self._hints, {}
        held = self._membership.held()
        return {
            topic_partition(partition): OffsetAndMetadata(
                position.next_offset,
                "",
                -1 if position.leader_epoch is None else position.leader_epoch,
            )
            for partition, position in hints.items()
            if partition in held
        }

    def _send_hints(self) -> None:
        now = time.monotonic()
        if not self._hints or now < self._next_hint:
            return
        self._next_hint = now + _HINT_SECONDS
        try:
            if offsets := self._take_hints():
                self._consumer.commit_async(offsets, callback=_hint_answered)
        except Exception as error:
            _hint_failed(offsets, error)


def _hint_answered(offsets: object, answer: object) -> None:
    if isinstance(answer, Exception):
        _hint_failed(offsets, answer)


def _hint_failed(offsets: object, error: Exception) -> None:
    log.debug(
        "offsets %s were not committed (a hint, nothing depends on it): %s: %s",
        offsets,
        type(error).__name__,
        error,
        extra={"action": "commit_hint"},
    )
