"""Reading Kafka, as a member of a group and without one: what its two clients share."""

from __future__ import annotations

import logging
import time
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from threading import Lock
from typing import Any

from lethe.consumers.log.base import Bounds, Partition, PartitionReset, Position, Reader, Record
from lethe.consumers.log.kafka.log import Cluster, Reachable, by_topic
from lethe.consumers.log.kafka.server import Server
from lethe.consumers.log.kafka.settings import HINT_SECONDS, REQUEST_SECONDS, SLICE_SECONDS
from lethe.consumers.log.membership import GroupConsumer

log = logging.getLogger(__name__)

Place = tuple[str, int]
"""A client's identity of a partition, which has no topic id: the topic's name, and the index."""


def place_of(partition: Partition) -> Place:
    """Return how a client identifies ``partition``."""
    return partition.topic, partition.index


class KafkaConsumer(GroupConsumer):
    """A member of a consumer group; a subclass for each client.

    The cooperative protocol leaves kept partitions undisturbed.
    """

    _connection: Reachable
    _cluster: Cluster
    _client: Any

    def __init__(
        self, server: Server, group: str, topics: Sequence[str], session_seconds: float
    ) -> None:
        super().__init__(group, topics)
        self._server = server
        self._session_seconds = session_seconds
        self._lock = Lock()
        self._new: set[Place] = set()  # assigned, and their topic ids not looked up yet
        self._next_hint = 0.0
        self._join()

    @abstractmethod
    def _join(self) -> None:
        """Join the group with a new client."""

    @abstractmethod
    def _close_client(self) -> None:
        """Leave the group, within `CLOSE_SECONDS`."""

    @abstractmethod
    def _fetch(self, timeout: float, limit: int) -> None:
        """Poll the client, which may call back; keep what it returns for `_deliver`.

        With a limit of 0, lose nothing that was fetched.
        """

    @abstractmethod
    def _deliver(self, limit: int) -> list[Record]:
        """Return fetched records of sought partitions, and move the positions past them."""

    @abstractmethod
    def _topic_ids(self) -> Mapping[str, str]:
        """Return the ids of the topics, as far as the newest metadata tell, without waiting."""

    @abstractmethod
    def _check_brokers(self) -> None:
        """Raise `LogUnavailable` if no broker has answered for `UNREACHABLE_SECONDS`."""

    @abstractmethod
    def _commit(self, positions: Mapping[Partition, Position], *, last: bool) -> None:
        """Commit positions; unless they are the ``last`` ones, without waiting."""

    def _poll(self, deadline: float, limit: int) -> Sequence[Record]:
        changes = self.membership.changes
        with self._connection.reaching():
            while True:
                self._raise_reset()
                remaining = max(deadline - time.monotonic(), 0.0)
                self._fetch(min(remaining, SLICE_SECONDS), limit)
                self._rejoin_if_recreated(self._topic_ids())
                self._name_new_partitions()
                records = self._deliver(limit)
                self._send_hints()
                if not records:
                    self._check_brokers()
                changed = changes != self.membership.changes
                if records or changed or time.monotonic() >= deadline:
                    return records

    def bounds(self, partition: Partition) -> Bounds:
        """Return the partition's bounds."""
        with self._connection.reaching():
            return self._cluster.bounds(partition)

    def close(self) -> None:
        """Commit the last hints and leave the group, both within two seconds."""
        if self._closed:
            return
        self._closed = True
        self._send_hints(last=True)
        self._leave()

    def _leave(self) -> None:
        self._close_client()
        self.membership.lose(self.membership.held())

    def _rejoin_if_recreated(self, ids: Mapping[str, str]) -> bool:
        """Rejoin if a topic was deleted and recreated; only a new client forgets its offsets.

        A topic that is gone is left to the client, which gives up its partitions.
        """
        for partition in self.membership.held():
            if ids.get(partition.topic, partition.topic_id) != partition.topic_id:
                self._leave()
                with self._lock:
                    self._new.clear()
                self._join()
                return True
        return False

    # What the client's rebalance listener calls. It may do so on another thread, and may neither
    # block nor commit there. A client that we have left may call once more, and is ignored.

    def _on_assigned(self, client: Any, places: Iterable[Place]) -> None:
        with self._lock:
            if client is self._client:
                self._new.update(places)

    def _on_revoked(self, client: Any, places: Iterable[Place]) -> list[Partition]:
        """Return the partitions that are lost now."""
        revoked = set(places)
        with self._lock:
            if client is not self._client:
                return []
            self._new -= revoked
            lost = [p for p in self.membership.held() if place_of(p) in revoked]
            self.membership.lose(lost)
            return lost

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

    def _send_hints(self, *, last: bool = False) -> None:
        """Commit the newest positions, twice a second; a failure is logged."""
        now = time.monotonic()
        if not self._hints or (now < self._next_hint and not last):
            return
        self._next_hint = now + HINT_SECONDS
        hints, self._hints = self._hints, {}
        held = self.membership.held()
        positions = {partition: hints[partition] for partition in hints if partition in held}
        try:
            if positions:
                self._commit(positions, last=last)
        except Exception as error:
            hint_failed(positions, error)


def hint_failed(offsets: object, error: object) -> None:
    """Log that hints were not committed."""
    log.debug(
        "offsets %s were not committed (a hint, nothing depends on it): %s: %s",
        offsets,
        type(error).__name__,
        error,
        extra={"action": "commit_hint"},
    )


class KafkaReader(Reader):
    """Reads partitions without a group, one at a time; a subclass for each client."""

    _connection: Reachable
    _cluster: Cluster

    def __init__(self, server: Server) -> None:
        self._server = server
        self.place = f"Kafka at {server}"
        self._reading: tuple[Partition, int] | None = None

    @abstractmethod
    def _start(self, partition: Partition, offset: int) -> None:
        """Make the client read from ``offset`` on."""

    @abstractmethod
    def _fetch(
        self, partition: Partition, offset: int, timeout: float, limit: int
    ) -> tuple[Sequence[Record], int]:
        """Return the next records, and the offset to continue from.

        Transaction markers and compacted records move the offset and yield nothing.
        """

    def partitions(self, topic: str) -> Sequence[Partition]:
        """Return the topic's partitions, in order; empty if the topic does not exist."""
        with self._connection.reaching():
            return by_topic(self._cluster.leaders([topic])).get(topic, [])

    def bounds(self, partition: Partition) -> Bounds:
        """Return the partition's current bounds."""
        with self._connection.reaching():
            return self._cluster.bounds(partition)

    def ends(self, partitions: Iterable[Partition]) -> Mapping[Partition, int]:
        """Return the end of each partition, with one request per leader."""
        with self._connection.reaching():
            return self._cluster.ends(partitions)

    def read(
        self, partition: Partition, offset: int, timeout: float, limit: int
    ) -> tuple[Sequence[Record], int]:
        """Return records from ``offset`` on, and the offset to continue from."""
        deadline = time.monotonic() + timeout
        with self._connection.reaching():
            if self._reading != (partition, offset):
                # A new position: query the bounds first, so that a short timeout still reads
                # what is there, and a wrong offset is detected at once.
                bounds = self._cluster.bounds(partition, offset)
                if not bounds.begin <= offset <= bounds.end:
                    raise PartitionReset(partition, offset, bounds)
                self._start(partition, offset)
                if offset < bounds.end:
                    deadline = max(deadline, time.monotonic() + REQUEST_SECONDS)
            self._reading = None
            while True:
                remaining = deadline - time.monotonic()
                wait = min(max(remaining, 0.0), SLICE_SECONDS)
                records, after = self._fetch(partition, offset, wait, limit)
                if records or after != offset or remaining <= 0:
                    self._reading = (partition, after)
                    return records, after

    def _outside(self, partition: Partition, offset: int) -> PartitionReset:
        """Return the error for a position of which the client says that it is not in the log."""
        return PartitionReset(partition, offset, self._cluster.bounds(partition, offset))
