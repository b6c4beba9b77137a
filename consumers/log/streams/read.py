"""Reading Redis Streams: the leased member of a group, and the reader without a group."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import redis

from lethe.consumers.log.base import Bounds, Partition, PartitionReset, Reader, Record
from lethe.consumers.log.membership import GroupConsumer
from lethe.consumers.log.streams.format import (
    MAX_BLOCK,
    MAX_RECORDS_PER_READ,
    after,
    decode_entry,
    group_key,
    offset_of,
    reaching,
    read_topic,
    script,
    stream_key,
    topic_key,
)
from lethe.engine.errors import LogUnavailable
from lethe.engine.store.layout.reading import integer, parse_text

# A dead worker's partitions wait for this long. A shorter lease would take partitions from a worker
# that is merely slow: its longest step between two polls is a few hundred milliseconds.
LEASE_SECONDS = 6.0
_HEARTBEATS_PER_LEASE = 4
TRIM_SECONDS = 60.0
"""How often released records are removed, all at once."""


class StreamsConsumer(GroupConsumer):
    """A member of a group: reads the partitions that it holds a lease on.

    The heartbeat runs within `poll`, four times per lease. Records are delivered only while the
    lease is certainly valid, by this machine's clock counted from before the heartbeat was sent.
    """

    def __init__(
        self, client: redis.Redis, group: str, topics: Sequence[str], lease_seconds: float
    ) -> None:
        super().__init__(group, topics)
        self._client = client
        self._lease_seconds = lease_seconds
        # Tokens sort by age, so a new member leaves most shares unchanged.
        self._token = f"{time.time_ns():020d}-{uuid.uuid4().hex[:8]}"
        self._lease = client.register_script(script("lease"))
        self._tenures: dict[Partition, int] = {}
        self._holes_allowed: dict[Partition, bool] = {}
        self._released: dict[Partition, int] = {}
        self._next_trim = 0.0
        self._trim = client.register_script(script("trim"))
        self._lease_ends = 0.0
        self._next_heartbeat = 0.0
        self._in_order = client.register_script(script("read"))
        self._last: Partition | None = None
        with reaching(client):
            self._heartbeat()

    def _poll(self, deadline: float, limit: int) -> Sequence[Record]:
        changes = self.membership.changes
        try:
            with reaching(self._client):
                while True:
                    if time.monotonic() >= self._next_heartbeat:
                        self._heartbeat()
                    self._raise_reset()
                    if changes != self.membership.changes:
                        return []
                    wait = min(deadline, self._next_heartbeat) - time.monotonic()
                    records = self._deliver(self._read(max(wait, 0.0), limit))
                    if records or time.monotonic() >= deadline:
                        return records
        except LogUnavailable:
            self._released.clear()  # the server may restart with an older state
            raise

    def take_lost(self) -> frozenset[Partition]:
        """Return the partitions given up or expired since the last call."""
        self._notice_expiry()
        return super().take_lost()

    def assignment(self) -> frozenset[Partition]:
        """Return the partitions on which this member has a valid lease."""
        self._notice_expiry()
        return super().assignment()

    def _move(self, partition: Partition) -> None:
        del partition
        self._next_heartbeat = 0.0  # which checks the position against the log's bounds

    def bounds(self, partition: Partition) -> Bounds:
        """Return the partition's bounds."""
        return read_bounds(self._client, partition, 0)

    def release(self, partition: Partition, below_offset: int) -> None:
        """Remove the records below the offset at a later heartbeat (once a minute) or on close.

        A partition of a topic that the group does not read may be released by any member.
        """
        self._released[partition] = below_offset

    def close(self) -> None:
        """Give up the leases, so that other members take them at their next heartbeat."""
        if self._closed:
            return
        self._closed = True
        try:
            self._store_hints()
            self._notice_expiry()
            self._remove_released()
            for topic in self.topics:
                self._lease(keys=self._lease_keys(topic), args=[self._token, 0])
        except redis.RedisError:
            pass  # the leases expire by themselves
        finally:
            self.membership.lose(self.membership.held())
            self._client.close()

    def _lease_keys(self, topic: str) -> list[str]:
        return [
            topic_key(topic),
            group_key(topic, "members", self.group),
            group_key(topic, "leases", self.group),
        ]

    def _heartbeat(self) -> None:
        """Renew, take and give up leases, and check positions against the log's bounds."""
        sent = time.monotonic()
        self._notice_expiry()
        self._store_hints()
        tenures: dict[Partition, int] = {}
        bounds: dict[Partition, Bounds] = {}
        for topic in self.topics:
            topic_id, compacted, *leases = self._lease(
                keys=self._lease_keys(topic), args=[self._token, int(self._lease_seconds * 1000)]
            )
            for at in range(0, len(leases), 4):
                index, tenure, begin, end = leases[at : at + 4]
                partition = Partition(topic, parse_text(topic_id, f"topic {topic}, its id"), index)
                tenures[partition] = tenure
                self._holes_allowed[partition] = bool(compacted)
                bounds[partition] = Bounds(begin, end)
        before = self.membership.held()
        kept = {p for p in before if tenures.get(p) == self._tenures.get(p)}
        self.membership.lose(before - kept)
        self.membership.gain(tenures.keys() - kept)
        self._tenures = tenures
        self._lease_ends = sent + self._lease_seconds
        self._next_heartbeat = sent + self._lease_seconds / _HEARTBEATS_PER_LEASE
        for partition in self.membership.sought():
            position = self._positions[partition]
            if not bounds[partition].begin <= position <= bounds[partition].end:
                self._reset(partition, bounds[partition])

        if sent >= self._next_trim:
            self._next_trim = sent + TRIM_SECONDS
            self._remove_released()

    def _remove_released(self) -> None:
        """Remove released records, except in partitions that were lost since."""
        released, self._released = self._released, {}
        sought = self.membership.sought()
        for partition in released:
            if partition.topic in self.topics and partition not in sought:
                continue
            self._trim(
                keys=[topic_key(partition.topic), stream_key(partition)],
                args=[partition.topic_id, partition.index, released[partition]],
            )

    def _notice_expiry(self) -> None:
        if time.monotonic() >= self._lease_ends:
            self.membership.lose(self.membership.held())

    def _read(self, wait: float, limit: int) -> list[Record]:
        """Read from the sought partitions; wait up to ``wait`` seconds if there is nothing."""
        sought = sorted(self.membership.sought())
        if not sought or limit == 0:
            time.sleep(min(wait, MAX_BLOCK))
            return []
        if (last := self._last) is not None:  # go on with the partition after it
            sought.sort(key=lambda partition: (partition <= last, partition))
        limit = min(limit, MAX_RECORDS_PER_READ)
        streams = {stream_key(partition): partition for partition in sought}
        positions = {key: self._positions[partition] for key, partition in streams.items()}
        answer = self._read_in_order(positions, limit)
        if not answer and wait > 0:
            each = -(-limit // len(sought))
            answer = xread(self._client, positions, each, wait)
        records = [
            decode_entry(streams[key], entry_id, fields)
            for key, entries in answer
            for entry_id, fields in entries
        ][:limit]
        if records:
            self._last = records[-1].partition
        return records

    def _read_in_order(self, positions: Mapping[str, int], limit: int) -> list[tuple[str, Entries]]:
        """Read one stream after the other, up to ``limit`` entries in all, without waiting.

        The more requests of a model are read at once, the fewer commits they take. A full read
        leaves out the streams after it, which the next one begins with.
        """
        found: Any = self._in_order(
            keys=[*positions], args=[limit, *map(after, positions.values())]
        )
        return [
            (key.decode(), [(entry_id, _fields(flat)) for entry_id, flat in entries])
            for key, entries in found
        ]

    def _deliver(self, records: Sequence[Record]) -> Sequence[Record]:
        """Move the positions past ``records``, unless their lease may have expired meanwhile."""
        self._notice_expiry()
        sought = self.membership.sought()
        delivered = [record for record in records if record.partition in sought]
        for at, record in enumerate(delivered):
            partition = record.partition
            if record.offset != self._positions[partition] and not self._holes_allowed[partition]:
                # The stream was trimmed by hand: records before the hole are delivered, records
                # after it never.
                self._reset(partition, self.bounds(partition))
                return delivered[:at]
            self._positions[partition] = record.offset + 1
        return delivered

    def _store_hints(self) -> None:
        """Store the hints: with each heartbeat, and on closing."""
        hints, self._hints = self._hints, {}
        for partition, position in hints.items():
            key = group_key(partition.topic, "hints", self.group)
            self._client.hset(key, str(partition), str(position.next_offset))


class StreamsReader(Reader):
    """Reads partitions without a group."""

    place = "the log"

    def __init__(self, client: redis.Redis) -> None:
        self._client = client

    def partitions(self, topic: str) -> Sequence[Partition]:
        """Return the topic's partitions, in order; empty if the topic does not exist."""
        with reaching(self._client):
            record = read_topic(self._client, topic)
        return [] if record is None else [record.partition(i) for i in range(record.partitions)]

    def bounds(self, partition: Partition) -> Bounds:
        """Return the partition's current bounds."""
        return read_bounds(self._client, partition, 0)

    def ends(self, partitions: Iterable[Partition]) -> Mapping[Partition, int]:
        """Return the end of each partition, in one round trip."""
        requested = list(partitions)
        topics: dict[str, list[Partition]] = {}
        for partition in requested:
            topics.setdefault(partition.topic, []).append(partition)
        with reaching(self._client), self._client.pipeline(transaction=False) as pipeline:
            for topic, members in topics.items():
                pipeline.hmget(topic_key(topic), "id", *(f"next:{p.index}" for p in members))
            answers: Any = pipeline.execute()
        ends: dict[Partition, int] = {}
        for members, (topic_id, *values) in zip(topics.values(), answers, strict=True):
            for partition, end in zip(members, values, strict=True):
                if topic_id is None or topic_id != partition.topic_id.encode():
                    raise PartitionReset(partition, 0, None)
                ends[partition] = integer(end or b"0", f"{partition}, its end")
        return {partition: ends[partition] for partition in requested}

    def read(
        self, partition: Partition, offset: int, timeout: float, limit: int
    ) -> tuple[Sequence[Record], int]:
        """Return records from ``offset`` on, and the offset to continue from."""
        bounds = read_bounds(self._client, partition, offset)
        if not bounds.begin <= offset <= bounds.end:
            raise PartitionReset(partition, offset, bounds)
        deadline = time.monotonic() + timeout
        key = stream_key(partition)
        limit = min(limit, MAX_RECORDS_PER_READ)
        with reaching(self._client):
            while True:
                # Existing records are read at once. A hole up to `end` (compaction) is skipped
                # only if this read, begun after `end` was known, finds nothing.
                wait = deadline - time.monotonic() if offset >= bounds.end else 0.0
                for _, entries in xread(self._client, {key: offset}, limit, max(wait, 0.0)):
                    records = [decode_entry(partition, *entry) for entry in entries]
                    return records, records[-1].offset + 1
                offset = max(offset, bounds.end)
                if time.monotonic() >= deadline:
                    return [], offset

    def close(self) -> None:
        """Release the connection."""
        self._client.close()


Entries = Sequence[tuple[bytes, Mapping[bytes, bytes]]]


def xread(
    client: redis.Redis, positions: Mapping[str, int], count: int, wait: float
) -> list[tuple[str, Entries]]:
    """Read up to ``count`` entries of each stream; wait at most `MAX_BLOCK` of ``wait`` s."""
    block = int(min(wait, MAX_BLOCK) * 1000)
    answer: Any = client.xread(
        {key: after(offset) for key, offset in positions.items()},
        count=count,
        block=block or None,  # 0 would wait for ever
    )
    return [(key.decode(), entries) for key, entries in answer or []]


def _fields(flat: Sequence[bytes]) -> dict[bytes, bytes]:
    """Return the fields of an entry, whose names and values follow each other."""
    return dict(zip(flat[::2], flat[1::2], strict=True))


def read_bounds(client: redis.Redis, partition: Partition, position: int) -> Bounds:
    """Return the partition's bounds; raise `PartitionReset` if its topic is gone."""
    index = partition.index
    with reaching(client), client.pipeline(transaction=True) as pipeline:
        names = ("id", "compacted", f"begin:{index}", f"next:{index}")
        pipeline.hmget(topic_key(partition.topic), *names)
        pipeline.xrange(stream_key(partition), count=1)
        (topic_id, compacted, begin, end), first = pipeline.execute()
    if topic_id is None or topic_id != partition.topic_id.encode():
        raise PartitionReset(partition, position, None)
    what = f"{partition}, its bounds"
    bounds = Bounds(integer(begin or b"0", what), integer(end or b"0", what))
    if compacted == b"1":
        return bounds  # compaction leaves holes, which do not move the bounds
    # If the stream was trimmed by hand, its first entry is right and the topic's record is not.
    return Bounds(max(bounds.begin, offset_of(first[0][0]) if first else bounds.end), bounds.end)
