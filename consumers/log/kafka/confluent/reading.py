"""Reading Kafka with confluent-kafka, as a member of a group and without one.

librdkafka calls back within its own ``poll``, so everything here runs on the worker's thread;
librdkafka sends heartbeats by itself. `ConfluentConsumer` handles four cases that it does not:

- A recreated topic: librdkafka continues at the old offset in the new topic. Here no record is
  delivered until the cluster has confirmed, after the fetch, that its topic is still the same.
- A partition that was not sought: librdkafka starts to read at once, from any position. Here the
  client gets a new partition only when it is sought, with our position. Starting elsewhere and
  then moving would lose records: what was fetched there may still arrive, and would be taken for
  what follows our position.
- Seeking a partition that librdkafka has not begun to read, or has stopped reading, is an error.
  In the first case the seek is retried; in the second the partition is reassigned.
- A truncated log: librdkafka says so once, among the records. That survives a seek, which discards
  them.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Mapping, Sequence
from threading import Thread
from typing import Any

from confluent_kafka import Consumer as Client, KafkaError, KafkaException, Message, TopicPartition

from lethe.consumers.log.base import Partition, PartitionReset, Position, Record
from lethe.consumers.log.kafka import reading, settings
from lethe.consumers.log.kafka.confluent.cluster import ConfluentCluster, Watch
from lethe.consumers.log.kafka.confluent.connection import Connection
from lethe.consumers.log.kafka.confluent.messages import to_record
from lethe.consumers.log.kafka.reading import KafkaConsumer, KafkaReader, place_of

# How much librdkafka reads ahead of us, whichever is less.
READ_AHEAD_RECORDS = 20_000
READ_AHEAD_KIB = 16 * 1_024
# Records kept while the worker has no room; beyond that the client is told to pause.
HELD_BACK = 64
# Time until a seek is retried.
BEHIND_SECONDS = 0.005

_OUT_OF_RANGE = (  # the position is not in the log
    KafkaError._AUTO_OFFSET_RESET,  # reported under "auto.offset.reset=error"
    KafkaError._LOG_TRUNCATION,
    KafkaError.OFFSET_OUT_OF_RANGE,
)
_TRUNCATED = KafkaError(KafkaError._LOG_TRUNCATION).str()
"""What an error says that has the code `KafkaError._AUTO_OFFSET_RESET` because of a truncation."""

_GONE = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.UNKNOWN_TOPIC_ID,
    KafkaError._UNKNOWN_PARTITION,
)
_HARMLESS = (  # delivered among a member's records, and handled elsewhere
    *_GONE,
    KafkaError._MAX_POLL_EXCEEDED,
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError._ALL_BROKERS_DOWN,
)


def _open(connection: Connection, more: Mapping[str, Any]) -> Client:
    """Return a consumer; the client's defaults would lose requests."""
    common = {
        **settings.READING,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",  # we seek ourselves; an offset out of range is an alarm
        "fetch.wait.max.ms": settings.FETCH_WAIT_MS,
        "receive.message.max.bytes": 2 * settings.MAX_FETCH_BYTES,
        "fetch.error.backoff.ms": 50,
        "fetch.queue.backoff.ms": settings.FETCH_WAIT_MS,
        "queued.min.messages": READ_AHEAD_RECORDS,
        "queued.max.messages.kbytes": READ_AHEAD_KIB,
    }
    consumer: Client = connection.open(Client, common | dict(more))
    return consumer


def _take_more(client: Client, fetched: deque[Message], wait: float, limit: int) -> None:
    """Add messages until there are ``limit``; wait only for the first of them.

    The client's `consume` waits until it has as many messages as requested.
    """
    if (message := client.poll(wait)) is not None:
        fetched.append(message)
    if fetched and len(fetched) < limit:
        fetched.extend(client.consume(limit - len(fetched), 0.0))


class ConfluentConsumer(KafkaConsumer):
    """A member of a group; it asks about topics on the connections that a log's parts share."""

    _connection: Connection
    _client: Client

    def __init__(
        self, cluster: ConfluentCluster, group: str, topics: Sequence[str], session_seconds: float
    ) -> None:
        self._cluster = cluster
        self._watch = Watch(cluster, topics)
        cluster.leaders(topics)  # fails if there is no broker
        super().__init__(cluster.server, group, topics, session_seconds)

    def _join(self) -> None:
        self._started: set[Partition] = set()  # the client reads them
        self._behind: set[Partition] = set()  # sought, but the client was not ready
        self._paused: set[Partition] = set()  # sought, but the worker had no room
        self._fetched: deque[Message] = deque()
        self._connection = Connection(self._server)
        more = {
            "group.protocol": "classic",
            "partition.assignment.strategy": "cooperative-sticky",
            "on_commit": _hint_answered,
        }
        group = settings.group_settings(self.group, self._session_seconds)
        self._client = _open(self._connection, group | more)
        self._client.subscribe(
            list(self.topics),
            on_assign=self._assign,
            on_revoke=self._revoke,
            on_lost=self._revoke,
        )

    def _close_client(self) -> None:
        """Close the client; without a broker that takes long and ends in the background."""
        closing = Thread(target=self._client.close, name="leave-group", daemon=True)
        closing.start()
        closing.join(settings.CLOSE_SECONDS)

    # Callbacks of librdkafka, within its poll or close.

    def _assign(self, client: Client, assigned: Sequence[TopicPartition]) -> None:
        """Note new partitions. The client does not start to read them yet: see `_resume_at`."""
        client.incremental_assign([])
        self._on_assigned(client, map(_place, assigned))

    def _revoke(self, client: Client, revoked: Sequence[TopicPartition]) -> None:
        for partition in self._on_revoked(client, map(_place, revoked)):
            self._drop(partition)
            self._started.discard(partition)
        with contextlib.suppress(KafkaException):
            assigned = {_place(partition) for partition in client.assignment()}
            client.incremental_unassign([p for p in revoked if _place(p) in assigned])

    # Reading.

    def _fetch(self, timeout: float, limit: int) -> None:
        """Poll and run the callbacks. With a limit of 0, read and keep one record at most."""
        if limit > 0:
            self._resume()
        elif len(self._fetched) >= HELD_BACK:
            self._pause()
        for partition in list(self._behind):
            self._resume_at(partition)
        wait = min(timeout, BEHIND_SECONDS) if self._behind else timeout
        _take_more(self._client, self._fetched, 0.0 if self._fetched and limit else wait, limit)

    def _deliver(self, limit: int) -> list[Record]:
        """Take records from the fetched messages, once it is certain which topic they are from."""
        if limit == 0 or not self._fetched:
            return []
        present = self._cluster.leaders(self.topics)
        self._rejoin_if_recreated({p.topic: p.topic_id for p in present})
        known = {place_of(p): p for p in present}
        sought = {place_of(p): p for p in self.membership.sought()}
        records: list[Record] = []
        after = dict(self._positions)
        while self._fetched and len(records) < limit:
            message = self._fetched[0]
            place = str(message.topic()), message.partition() or 0
            partition = sought.get(place)
            if (error := message.error()) is not None:
                if records:
                    break  # the error must not lose them
                self._fetched.popleft()
                self._note(error, known.get(place))
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
        if error.code() in _OUT_OF_RANGE:
            if partition is not None:
                self._started.discard(partition)
                truncated = _tells_truncation(error)
                if truncated or partition in self.membership.sought() - self._behind:
                    self._reset(partition, truncated=truncated)
        elif error.code() not in _HARMLESS:
            raise self._connection.failed(error)

    def _topic_ids(self) -> Mapping[str, str]:
        present = self._watch.look(self._connection)
        return {partition.topic: partition.topic_id for partition in present}

    def _check_brokers(self) -> None:
        self._watch.check(self._connection)

    def _commit(self, positions: Mapping[Partition, Position], *, last: bool) -> None:
        del last  # closing waits for it
        offsets = [
            TopicPartition(
                partition.topic,
                partition.index,
                position.next_offset,
                leader_epoch=-1 if position.leader_epoch is None else position.leader_epoch,
            )
            for partition, position in positions.items()
        ]
        self._client.commit(offsets=offsets, asynchronous=True)

    # The client's positions.

    def _move(self, partition: Partition) -> None:
        self._drop(partition)
        self._resume_at(partition)

    def _resume_at(self, partition: Partition) -> None:
        """Make the client read from our position; retry later if it has not begun to read."""
        position = TopicPartition(partition.topic, partition.index, self._positions[partition])
        self._behind.discard(partition)
        if partition not in self.membership.sought():
            return
        try:
            if partition in self._started:
                self._client.resume([position])
                self._client.seek(position)
            else:
                with contextlib.suppress(KafkaException):  # the client does not have it
                    self._client.incremental_unassign([position])
                self._client.incremental_assign([position])
                self._started.add(partition)
        except KafkaException:
            self._behind.add(partition)

    def _pause(self) -> None:
        for partition in self.membership.sought() - self._paused:
            with contextlib.suppress(KafkaException):
                self._client.pause([TopicPartition(partition.topic, partition.index)])
            self._paused.add(partition)

    def _resume(self) -> None:
        paused, self._paused = self._paused, set()
        for partition in paused & self.membership.sought():
            self._drop(partition)
            self._resume_at(partition)

    def _drop(self, partition: Partition) -> None:
        """Discard the fetched messages of a partition, except that its log was truncated.

        The deque stays the same: a poll that calls back may be about to add a message to it.
        """
        place = place_of(partition)
        kept: list[Message] = []
        for message in self._fetched:
            error = message.error()
            if (message.topic(), message.partition()) != place:
                kept.append(message)
            elif error is not None and error.code() in _OUT_OF_RANGE:
                self._started.discard(partition)
                if _tells_truncation(error):
                    kept.append(message)
        self._fetched.clear()
        self._fetched.extend(kept)
        self._paused.discard(partition)
        self._behind.discard(partition)


def _tells_truncation(error: KafkaError) -> bool:
    return error.code() == KafkaError._LOG_TRUNCATION or _TRUNCATED in error.str()


def _place(partition: TopicPartition) -> reading.Place:
    return partition.topic, partition.partition


def _hint_answered(error: KafkaError | None, offsets: object) -> None:
    if error is not None:
        reading.hint_failed(offsets, error)


class ConfluentReader(KafkaReader):
    """A reader with a client of its own, which connects on first use."""

    _connection: Connection

    def __init__(self, cluster: ConfluentCluster) -> None:
        super().__init__(cluster.server)
        self._cluster = cluster
        self._connection = Connection(self._server)
        self._client: Client | None = None
        self._fetched: deque[Message] = deque()
        self._checked = 0.0

    def close(self) -> None:
        """Release the connection."""
        self._fetched.clear()
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _start(self, partition: Partition, offset: int) -> None:
        if self._client is None:
            self._connection = Connection(self._server)
            more = {
                "group.id": self._server.client_id,  # required, although it joins no group
                "enable.partition.eof": True,
            }
            self._client = _open(self._connection, more)
        self._fetched.clear()
        self._client.assign([TopicPartition(partition.topic, partition.index, offset)])

    def _fetch(
        self, partition: Partition, offset: int, timeout: float, limit: int
    ) -> tuple[Sequence[Record], int]:
        client = self._client
        assert client is not None  # noqa: S101 (mypy: `_start` made it)
        if not self._fetched:
            _take_more(client, self._fetched, timeout, limit)
        records: list[Record] = []
        after = offset
        for _ in range(min(limit, len(self._fetched))):
            message = self._fetched.popleft()
            if (error := message.error()) is None:
                records.append(to_record(partition, message))
                after = records[-1].offset + 1
            elif error.code() == KafkaError._PARTITION_EOF:
                after = max(after, message.offset() or 0)
            else:
                self._note(error, partition, after)
        self._check_topic(partition, offset, moved=after != offset)
        if not records and after == offset and self._connection.lasting is not None:
            self.close()  # the next read begins anew
            raise self._connection.unreachable("no answer")
        return records, after

    def _note(self, error: KafkaError, partition: Partition, offset: int) -> None:
        """Handle an error that was delivered instead of a record."""
        if error.code() in _OUT_OF_RANGE:
            raise self._outside(partition, offset)
        if error.code() in _GONE:
            raise PartitionReset(partition, offset, None)
        if error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED:  # it joins no group
            raise self._connection.failed(error)

    def _check_topic(self, partition: Partition, offset: int, *, moved: bool) -> None:
        """Raise when the topic was made again: at every move, and now and then while it waits.

        The client fetches by topic id, but goes on at the old offset once it hears of a new id.
        What it gave out before the cluster was asked is certainly of the old topic.
        """
        now = time.monotonic()
        if moved or now > self._checked + settings.METADATA_SECONDS:
            self._checked = now
            if partition not in self._cluster.leaders([partition.topic]):
                raise PartitionReset(partition, offset, None)
