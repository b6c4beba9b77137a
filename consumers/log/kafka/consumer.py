"""Reading Kafka as a member of a group."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from threading import Lock
from typing import Any

from kafka import ConsumerRebalanceListener, KafkaConsumer as Client, TopicPartition, errors
from kafka.structs import OffsetAndMetadata

from lethe.consumers.log.base import Bounds, Partition, Record
from lethe.consumers.log.kafka import settings
from lethe.consumers.log.kafka.assignor import BalancedTopicsAssignor
from lethe.consumers.log.kafka.cluster import Cluster
from lethe.consumers.log.kafka.reader import CLOSE_MS, open_client, place_of, to_record
from lethe.consumers.log.kafka.repairs import finish_joins
from lethe.consumers.log.kafka.server import Server
from lethe.consumers.log.membership import GroupConsumer

log = logging.getLogger(__name__)

# What the client raises for a partition that its listener has just removed.
_NOT_ASSIGNED = (ValueError, KeyError)


class KafkaConsumer(GroupConsumer):
    """A member of a consumer group; the client has a thread of its own, which sends heartbeats.

    The cooperative protocol leaves kept partitions undisturbed.
    """

    def __init__(
        self, server: Server, group: str, topics: Sequence[str], session_seconds: float
    ) -> None:
        super().__init__(group, topics)
        self._server = server
        self._session_seconds = session_seconds
        self._lock = Lock()
        # Assigned, and their topic ids not looked up yet.
        self._new: set[TopicPartition] = set()
        self._next_hint = 0.0
        self._join()

    def _join(self) -> None:
        """Join the group with a new client."""
        self._fetched: dict[TopicPartition, Sequence[Any]] = {}
        self._cluster = Cluster(self._server)
        self._client = open_client(
            self._cluster,
            **settings.group_settings(self.group, self._session_seconds),
            partition_assignment_strategy=[BalancedTopicsAssignor],
        )
        finish_joins(self._client)
        self._client.subscribe(topics=list(self.topics), listener=_Listener(self, self._client))

    def _leave(self) -> None:
        with contextlib.suppress(errors.KafkaError):
            self._client.close(autocommit=False, timeout_ms=CLOSE_MS)
        self.membership.lose(self.membership.held())

    def bounds(self, partition: Partition) -> Bounds:
        """Return the partition's bounds."""
        with self._cluster.reaching():
            return self._cluster.bounds(partition)

    def close(self) -> None:
        """Commit the last hints and leave the group, both within two seconds."""
        if self._closed:
            return
        self._closed = True
        self._send_hints(last=True)
        self._leave()

    # Reading.

    def _poll(self, deadline: float, limit: int) -> Sequence[Record]:
        changes = self.membership.changes
        with self._cluster.reaching():
            while True:
                self._raise_reset()
                remaining = max(deadline - time.monotonic(), 0.0)
                self._fetch(min(remaining, settings.SLICE_SECONDS), limit)
                self._rejoin_if_recreated(
                    {topic: self._cluster.known_topic_id(topic) for topic in self.topics}
                )
                self._name_new_partitions()
                records = self._deliver(limit)
                self._send_hints()
                if not records:
                    self._cluster.check()
                changed = changes != self.membership.changes
                if records or changed or time.monotonic() >= deadline:
                    return records

    def _fetch(self, timeout: float, limit: int) -> None:
        """Poll the client, which may call back; keep what it returns for `_deliver`."""
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
                self._client.pause(place_of(partition))
        try:
            for place, batch in self._poll_client(timeout, 1).items():
                self._fetched[place] = [*self._fetched.get(place, ()), *batch]
        finally:
            for partition in paused & self.membership.sought():
                with contextlib.suppress(*_NOT_ASSIGNED):
                    self._client.resume(place_of(partition))

    def _poll_client(self, timeout: float, limit: int) -> dict[TopicPartition, Sequence[Any]]:
        try:
            batches = self._client.poll(timeout_ms=timeout * 1000, max_records=limit)
        except errors.OffsetOutOfRangeError as error:
            self._out_of_range(set(error.args[0]))
        except errors.LogTruncationError as error:
            self._out_of_range(set(error.divergent_offsets), truncated=True)
        else:
            return dict(batches)
        return {}

    def _out_of_range(self, affected: set[TopicPartition], *, truncated: bool = False) -> None:
        """Queue a reset of each affected partition, unless its topic is gone or recreated."""
        candidates = self.membership.held() if truncated else self.membership.sought()
        outside = {partition for partition in candidates if place_of(partition) in affected}
        for partition in outside:
            _silence(self._client, place_of(partition))
            self._reset(partition, truncated=truncated)
        # If this fails, the resets stay queued: the client does not report a truncation again.
        present = self._cluster.leaders(sorted({topic for topic, _ in affected}))
        self._resets = [r for r in self._resets if r.partition not in outside - present.keys()]
        self._rejoin_if_recreated({p.topic: p.topic_id for p in present})

    def _deliver(self, limit: int) -> list[Record]:
        """Return fetched records of sought partitions, and move the positions past them."""
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

    def _move(self, partition: Partition) -> None:
        self._fetched.pop(place_of(partition), None)
        with contextlib.suppress(*_NOT_ASSIGNED):
            self._client.seek(place_of(partition), self._positions[partition])
            self._client.resume(place_of(partition))

    # Membership.

    def _rejoin_if_recreated(self, ids: Mapping[str, str | None]) -> None:
        """Rejoin if a topic was deleted and recreated; only a new client forgets its offsets.

        A topic that is gone is left to the client, which gives up its partitions.
        """
        for partition in self.membership.held():
            if ids.get(partition.topic) not in (None, partition.topic_id):
                self._leave()
                with self._lock:
                    self._new.clear()
                self._join()
                return

    # What the client's rebalance listener calls. It may do so on another thread, and may neither
    # block nor commit there. A client that we have left may call once more, and is ignored.

    def _on_assigned(self, client: Any, places: Iterable[TopicPartition]) -> None:
        with self._lock:
            if client is self._client:
                self._new.update(places)

    def _on_revoked(self, client: Any, places: Iterable[TopicPartition]) -> None:
        revoked = set(places)
        with self._lock:
            if client is self._client:
                self._new -= revoked
                self.membership.lose(p for p in self.membership.held() if place_of(p) in revoked)

    def _name_new_partitions(self) -> None:
        """Look up the topic ids of newly assigned partitions; only then are they held."""
        with self._lock:
            topics = sorted({topic for topic, _ in self._new})
        if not topics:
            return
        leaders = self._cluster.leaders(topics)
        with self._lock:  # some may have been revoked meanwhile
            named = [partition for partition in leaders if place_of(partition) in self._new]
            self._new -= {place_of(partition) for partition in named}
            self.membership.gain(named)

    # Hints.

    def _send_hints(self, *, last: bool = False) -> None:
        """Commit the newest positions, twice a second; a failure is logged."""
        now = time.monotonic()
        if not self._hints or (now < self._next_hint and not last):
            return
        self._next_hint = now + settings.HINT_SECONDS
        hints, self._hints = self._hints, {}
        held = self.membership.held()
        offsets = {
            place_of(partition): OffsetAndMetadata(
                position.next_offset,
                "",
                -1 if position.leader_epoch is None else position.leader_epoch,
            )
            for partition, position in hints.items()
            if partition in held
        }
        try:
            if offsets and last:
                self._client.commit(offsets, timeout_ms=CLOSE_MS)
            elif offsets:
                self._client.commit_async(offsets, callback=_hint_answered)
        except Exception as error:
            _hint_answered(offsets, error)


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # kafka-python has no types
    """Called on the client's own thread.

    New partitions are paused before anything is fetched, at offset 0, which is never read: without
    a position the client would look for a committed one and raise.
    """

    def __init__(self, owner: KafkaConsumer, client: Client) -> None:
        self._owner = owner
        self._client = client

    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        for place in assigned:
            _silence(self._client, place)
        self._owner._on_assigned(self._client, assigned)

    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        self._owner._on_revoked(self._client, revoked)


def _silence(client: Client, place: TopicPartition) -> None:
    """Make a client fetch nothing from a partition."""
    with contextlib.suppress(*_NOT_ASSIGNED):
        client.pause(place)
        client.seek(place, 0)


def _hint_answered(offsets: object, answer: object) -> None:
    """Log that hints were not committed, if that is the answer."""
    if isinstance(answer, Exception):
        log.debug(
            "offsets %s were not committed (a hint, nothing depends on it): %s: %s",
            offsets,
            type(answer).__name__,
            answer,
            extra={"action": "commit_hint"},
        )
