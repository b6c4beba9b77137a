"""A member of a Kafka consumer group, with confluent-kafka.

librdkafka calls back within its own ``poll``, so everything here runs on the worker's thread;
librdkafka sends heartbeats by itself. This module handles three cases that librdkafka does not:

- A recreated topic: librdkafka continues at the old offset in the new topic. Here no record is
  delivered until the cluster has confirmed, after the fetch, that its topic is still the same.
- A partition that was not sought: librdkafka starts to read at once, from any position. Here the
  client gets a new partition only when it is sought, with our position. Starting elsewhere and
  then moving would lose records: what was fetched there may still arrive, and would be taken for
  what follows our position.
- Seeking a partition that librdkafka has not begun to read, or has stopped reading, is an error.
  In the first case the seek is retried; in the second the partition is reassigned.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from threading import Thread
from typing import Any

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from lethe.consumers.log.base import Bounds, Partition, Position, Record
from lethe.consumers.log.confluent.questions import Questions
from lethe.consumers.log.confluent.records import OUT_OF_RANGE, reading_settings, to_record
from lethe.consumers.log.confluent.server import CLOSE_SECONDS, SLICE_SECONDS, Heard, opened
from lethe.consumers.log.confluent.watch import Watch
from lethe.consumers.log.membership import Membership
from lethe.consumers.log.reset import PartitionReset

log = logging.getLogger(__name__)

# A worker that computes for longer than this without a poll loses its partitions.
MAX_POLL_SECONDS = 300.0
_HINT_SECONDS = 0.5
# Records kept while the worker has no room; beyond that the client is told to pause.
HELD_BACK = 64
# Time until a seek is retried.
BEHIND_SECONDS = 0.005

_Place = tuple[str, int]
"""The client's identity of a partition, which has no topic id."""

_HARMLESS = (  # delivered among the records, and handled elsewhere
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.UNKNOWN_TOPIC_ID,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._MAX_POLL_EXCEEDED,
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError._ALL_BROKERS_DOWN,
)


class ConfluentGroupConsumer:
    """A member of a consumer group; the cooperative protocol leaves kept partitions undisturbed."""

    def __init__(
        self, questions: Questions, group: str, topics: Sequence[str], session_seconds: float
    ) -> None:
        self._questions = questions
        self._server = questions.server
        self._group = group
        self._topics = list(topics)
        self._session_seconds = session_seconds
        self._membership = Membership()
        self._watch = Watch(questions, self._topics)
        self._positions: dict[Partition, int] = {}
        self._outside: list[Partition] = []  # their position is not in the log
        self._hints: dict[Partition, Position] = {}
        self._next_hint = 0.0
        self._closed = False
        self._questions.partitions(self._topics)  # fails if there is no broker
        self._join()

    def poll(self, timeout: float, limit: int) -> Sequence[Record]:
        """Return at most ``limit`` records; early and empty if the assignment changes."""
        if self._closed:
            raise RuntimeError("poll of a closed consumer")
        deadline = time.monotonic() + timeout
        changes = self._membership.changes
        with self._server.reaching(self._heard):
            while True:
                self._raise_reset()
                remaining = max(deadline - time.monotonic(), 0.0)
                self._fetch(min(remaining, SLICE_SECONDS), limit)
                self._name_new_partitions()
                if (present := self._watch.look(self._heard)) is not None:
                    self._compare(present)
                records = self._deliver(limit)
                self._send_hints()
                if not records:
                    self._watch.check(self._heard)
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
        self._drop(partition)
        self._resume_at(partition)

    def bounds(self, partition: Partition) -> Bounds:
        """Return the partition's bounds."""
        return self._questions.bounds(partition)

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
        self._next_hint = 0.0
        self._send_hints()
        self._leave()

    def _join(self) -> None:
        self._heard = Heard(self._server.signing_on, reached=True)
        self._new: set[_Place] = set()
        self._behind: set[Partition] = set()  # sought, but the client was not ready
        # Not read by the client: its position was not in the log, or reading has not begun yet.
        self._stopped: set[Partition] = set()
        self._paused: set[Partition] = set()  # sought, but the worker had no room
        self._fetched: deque[Message] = deque()
        heartbeat = min(1.0, self._session_seconds / 4)
        settings = reading_settings(self._server, self._heard) | {
            "group.id": self._group,
            "group.protocol": "classic",
            "partition.assignment.strategy": "cooperative-sticky",
            "session.timeout.ms": int(self._session_seconds * 1000),
            "heartbeat.interval.ms": int(heartbeat * 1000),
            "max.poll.interval.ms": int(max(MAX_POLL_SECONDS, self._session_seconds) * 1000),
            "on_commit": _hint_answered,
        }
        self._consumer: Consumer = opened(Consumer, settings)
        self._consumer.subscribe(
            self._topics,
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_revoke,
        )

    def _leave(self) -> None:
        """Close the client; without a broker that takes long and ends in the background."""
        closing = Thread(target=self._consumer.close, name="leave-group", daemon=True)
        closing.start()
        closing.join(CLOSE_SECONDS)
        self._membership.lose(self._membership.held())

    # Callbacks of librdkafka, within its poll or close.

    def _on_assign(self, consumer: Consumer, assigned: Sequence[TopicPartition]) -> None:
        """Note new partitions. The client does not start to read them yet: see `_resume_at`."""
        consumer.incremental_assign([])
        self._new |= {_place(partition) for partition in assigned}

    def _on_revoke(self, consumer: Consumer, revoked: Sequence[TopicPartition]) -> None:
        revoked_places = {_place(partition) for partition in revoked}
        if consumer is self._consumer:  # else it is a client that we have left, on its own thread
            self._new -= revoked_places
            lost = [p for p in self._membership.held() if (p.topic, p.index) in revoked_places]
            self._membership.lose(lost)
            for partition in lost:
                self._drop(partition)
                self._stopped.discard(partition)
        with contextlib.suppress(KafkaException):
            assigned = {_place(partition) for partition in consumer.assignment()}
            consumer.incremental_unassign([p for p in revoked if _place(p) in assigned])

    # Reading.

    def _fetch(self, timeout: float, limit: int) -> None:
        """Poll and run the callbacks. With a limit of 0, read and keep one record at most."""
        if limit > 0:
            self._resume()
        elif len(self._fetched) >= HELD_BACK:
            self._pause()
        for partition in list(self._behind):
            self._resume_at(partition)
        # The client's `consume` waits until it has as many messages as requested.
        wait = min(timeout, BEHIND_SECONDS) if self._behind else timeout
        message = self._consumer.poll(0.0 if self._fetched and limit else wait)
        if message is not None:
            self._fetched.append(message)
        if len(self._fetched) < limit and self._fetched:
            self._fetched.extend(self._consumer.consume(limit - len(self._fetched), 0.0))

    def _deliver(self, limit: int) -> list[Record]:
        """Take records from the fetched messages, once it is certain which topic they are from."""
        sought = {(p.topic, p.index): p for p in self._membership.sought()}
        if limit == 0 or not self._fetched:
            return []
        present = self._questions.leaders(self._topics)
        self._compare(present)
        records: list[Record] = []
        after = dict(self._positions)
        while self._fetched and len(records) < limit:
            message = self._fetched[0]
            partition = sought.get((str(message.topic()), message.partition() or 0))
            if (error := message.error()) is not None:
                if records:
                    break  # the error must not lose them
                self._fetched.popleft()
                self._note(error, partition if partition in present else None)
                continue
            if partition is not None and partition not in self._behind:
                record = to_record(partition, message)
                if record.offset >= after[partition]:
                    records.append(record)
                    after[partition] = record.offset + 1
            self._fetched.popleft()
        self._positions = after
        return records

    def _note(self, error: KafkaError, partition: Partition | None) -> None:
        """Handle an error that was delivered instead of a record."""
        if error.code() in OUT_OF_RANGE:
            if partition is not None and partition not in self._behind:
                self._membership.silence(partition)
                self._stopped.add(partition)
                self._outside.append(partition)
        elif error.code() not in _HARMLESS:
            raise self._server.failed(error, self._heard)

    def _raise_reset(self) -> None:
        """Raise a reset of a partition that is still held; the other resets stay queued."""
        while self._outside:
            partition = self._outside[-1]
            if partition in self._membership.held():
                bounds = self._questions.bounds(partition)
                self._outside.pop()
                raise PartitionReset(partition, self._positions[partition], bounds)
            self._outside.pop()

    def _compare(self, present: Iterable[Partition]) -> None:
        """Rejoin if a topic was deleted and recreated; only a new client forgets its offsets.

        A topic that is gone is left to the client, which gives up its partitions.
        """
        ids = {partition.topic: partition.topic_id for partition in present}
        for partition in self._membership.held():
            if ids.get(partition.topic, partition.topic_id) != partition.topic_id:
                self._leave()
                self._join()
                return

    def _name_new_partitions(self) -> None:
        """Look up the topic ids of newly assigned partitions."""
        if not self._new:
            return
        leaders = self._questions.leaders(sorted({topic for topic, _ in self._new}))
        named = [
            partition for partition in leaders if (partition.topic, partition.index) in self._new
        ]
        self._new -= {(partition.topic, partition.index) for partition in named}
        self._stopped |= set(named)
        self._membership.gain(named)

    # The client's positions.

    def _resume_at(self, partition: Partition) -> None:
        """Make the client read from our position; retry later if it has not begun to read."""
        position = TopicPartition(partition.topic, partition.index, self._positions[partition])
        self._behind.discard(partition)
        if partition not in self._membership.sought():
            return
        try:
            if partition in self._stopped:
                with contextlib.suppress(KafkaException):  # the client does not have it
                    self._consumer.incremental_unassign([position])
                self._consumer.incremental_assign([position])
                self._stopped.discard(partition)
            else:
                self._consumer.resume([position])
                self._consumer.seek(position)
        except KafkaException:
            self._behind.add(partition)

    def _silence(self, partition: Partition) -> None:
        with contextlib.suppress(KafkaException):
            self._consumer.pause([TopicPartition(partition.topic, partition.index)])

    def _pause(self) -> None:
        for partition in self._membership.sought() - self._paused:
            self._silence(partition)
            self._paused.add(partition)

    def _resume(self) -> None:
        paused, self._paused = self._paused, set()
        for partition in paused & self._membership.sought():
            self._drop(partition)
            self._resume_at(partition)

    def _drop(self, partition: Partition) -> None:
        """Discard the fetched messages of a partition."""
        place = (partition.topic, partition.index)
        others = [m for m in self._fetched if (m.topic(), m.partition()) != place]
        self._fetched = deque(others)
        self._paused.discard(partition)
        self._behind.discard(partition)

    # Hints.

    def _send_hints(self) -> None:
        now = time.monotonic()
        if not self._hints or now < self._next_hint:
            return
        self._next_hint = now + _HINT_SECONDS
        hints, self._hints = self._hints, {}
        held = self._membership.held()
        offsets = [
            TopicPartition(
                partition.topic,
                partition.index,
                position.next_offset,
                leader_epoch=-1 if position.leader_epoch is None else position.leader_epoch,
            )
            for partition, position in hints.items()
            if partition in held
        ]
        try:
            if offsets:
                self._consumer.commit(offsets=offsets, asynchronous=True)
        except Exception as error:
            _hint_failed(offsets, error)


def _place(partition: TopicPartition) -> _Place:
    return partition.topic, partition.partition


def _hint_answered(error: KafkaError | None, offsets: object) -> None:
    if error is not None:
        _hint_failed(offsets, error)


def _hint_failed(offsets: object, error: Any) -> None:
    log.debug(
        "offsets %s were not committed (a hint, nothing depends on it): %s",
        offsets,
        error,
        extra={"action": "commit_hint"},
    )
