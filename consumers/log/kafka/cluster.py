"""Queries about topics and offsets with kafka-python: many partitions in one round trip.

kafka-python requests the beginnings and then the ends, and neither answer says whether the topic
was recreated. This module sends all requests at once: one for the description of the topics, and
one to each leader known from the previous description for the offsets of its partitions. A second
round is needed only for partitions whose leader is unknown or has changed.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kafka import errors
from kafka.protocol.consumer import IsolationLevel, ListOffsetsRequest, OffsetSpec
from kafka.protocol.metadata import MetadataRequest

from lethe.consumers.log.base import Bounds, Partition, PartitionReset
from lethe.consumers.log.kafka.connection import Connection
from lethe.consumers.log.kafka.server import Server
from lethe.consumers.log.kafka.settings import REQUEST_SECONDS, RETRY_SECONDS

# Which offset is requested, and at which isolation level.
_Spec = tuple[int, int]
_FIRST: _Spec = (OffsetSpec.EARLIEST, IsolationLevel.READ_COMMITTED)
_LAST_VISIBLE: _Spec = (OffsetSpec.LATEST, IsolationLevel.READ_COMMITTED)
_LAST: _Spec = (OffsetSpec.LATEST, IsolationLevel.READ_UNCOMMITTED)

_OffsetTable = dict[tuple[Partition, _Spec], int]


class Cluster(Connection):
    """A connection that answers queries as well; it remembers each partition's leader."""

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self._leaders: dict[Partition, int] = {}

    def leaders(self, topics: Sequence[str]) -> Mapping[Partition, int]:
        """Return the partitions of ``topics`` with their leaders (-1: currently none).

        Topics that do not exist are omitted.
        """
        deadline = time.monotonic() + REQUEST_SECONDS
        while True:
            try:
                leaders: Mapping[Partition, int] = self.ask(_describe, topics)
            except errors.KafkaError as error:
                self._wait_to_retry(error, deadline)
            else:
                return leaders

    def bounds(self, partition: Partition, position: int = 0) -> Bounds:
        """Return the partition's bounds for a reader of committed records.

        Raises
        ------
        PartitionReset
            Its topic is gone; the error names ``position``.
        """
        offsets = self._offsets([partition], (_FIRST, _LAST_VISIBLE), position)
        return Bounds(offsets[partition, _FIRST], offsets[partition, _LAST_VISIBLE])

    def ends(self, partitions: Iterable[Partition]) -> Mapping[Partition, int]:
        """Return the end of each partition, including uncommitted records."""
        requested = list(partitions)
        offsets = self._offsets(requested, (_LAST,), 0) if requested else {}
        return {partition: offsets[partition, _LAST] for partition in requested}

    def _offsets(
        self, partitions: Sequence[Partition], specs: Sequence[_Spec], position: int
    ) -> _OffsetTable:
        deadline = time.monotonic() + REQUEST_SECONDS
        present: set[Partition]
        offsets: _OffsetTable
        while True:
            try:
                present, offsets = self.ask(self._look_up, partitions, specs)
            except errors.KafkaError as error:
                self._wait_to_retry(error, deadline)
                continue
            for partition in partitions:
                if partition not in present:
                    raise PartitionReset(partition, position, None)
            if len(offsets) == len(set(partitions)) * len(specs):
                return offsets
            missing = f"no offsets of {partitions[0].topic} within {REQUEST_SECONDS:.0f} s"
            self._wait_to_retry(errors.KafkaTimeoutError(missing), deadline)

    @staticmethod
    def _wait_to_retry(error: errors.KafkaError, deadline: float) -> None:
        """Wait a moment; raise an error that no retry can repair, or that has lasted too long."""
        if not isinstance(error, errors.RetriableError) or time.monotonic() > deadline:
            raise error
        time.sleep(RETRY_SECONDS)

    async def _look_up(
        self, manager: Any, partitions: Sequence[Partition], specs: Sequence[_Spec]
    ) -> tuple[set[Partition], _OffsetTable]:
        """Return the existing partitions of the topics, and the offsets from their leaders."""
        topics = sorted({partition.topic for partition in partitions})
        answer = manager.send(_describe_request(topics))
        first = self._send(manager, [p for p in partitions if p in self._leaders], specs)
        leaders = _described(await answer)
        offsets: _OffsetTable = {}
        moved = [p for p in partitions if leaders.get(p, -1) != self._leaders.get(p)]
        for partition in partitions:
            self._leaders[partition] = leaders.get(partition, -1)
        await self._collect(first, set(partitions) - set(moved), offsets)
        led = [p for p in moved if self._leaders[p] >= 0]
        await self._collect(self._send(manager, led, specs), set(led), offsets)
        for partition in partitions:
            if self._leaders[partition] < 0 or (partition, specs[0]) not in offsets:
                del self._leaders[partition]
        return set(leaders), offsets

    def _send(
        self, manager: Any, partitions: Sequence[Partition], specs: Sequence[_Spec]
    ) -> list[tuple[_Spec, Any]]:
        """Send each leader one request for each spec, without waiting."""
        by_leader: dict[int, dict[str, list[int]]] = {}
        for partition in partitions:
            topics = by_leader.setdefault(self._leaders[partition], {})
            topics.setdefault(partition.topic, []).append(partition.index)
        return [
            (spec, manager.send(_offsets_request(topics, spec), node_id=leader))
            for leader, topics in by_leader.items()
            for spec in specs
        ]

    @staticmethod
    async def _collect(
        requests: Sequence[tuple[_Spec, Any]], partitions: set[Partition], offsets: _OffsetTable
    ) -> None:
        """Add the answers about ``partitions`` to ``offsets``."""
        by_name = {(partition.topic, partition.index): partition for partition in partitions}
        for spec, future in requests:
            for topic in (await future).topics:
                for answer in topic.partitions:
                    kind = errors.for_code(answer.error_code)
                    partition = by_name.get((topic.name, answer.partition_index))
                    if kind is errors.NoError and partition is not None:
                        offsets[partition, spec] = int(answer.offset)
                    elif kind is not errors.NoError and not issubclass(kind, errors.RetriableError):
                        raise kind(topic.name)


def by_topic(partitions: Iterable[Partition]) -> dict[str, list[Partition]]:
    """Return the partitions of each topic by index."""
    topics: dict[str, list[Partition]] = {}
    for partition in sorted(partitions):
        topics.setdefault(partition.topic, []).append(partition)
    return topics


async def _describe(manager: Any, topics: Sequence[str]) -> dict[Partition, int]:
    return _described(await manager.send(_describe_request(topics)))


def _describe_request(topics: Sequence[str]) -> Any:
    """Return a request for the metadata of ``topics`` that creates none of them."""
    return MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name=topic) for topic in topics],
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )


def _described(response: Any) -> dict[Partition, int]:
    """Return the partitions in a metadata response, with their leaders (-1: currently none)."""
    leaders: dict[Partition, int] = {}
    for topic in response.topics:
        kind = errors.for_code(topic.error_code)
        if kind is errors.NoError:
            for info in topic.partitions:
                partition = Partition(topic.name, str(topic.topic_id), info.partition_index)
                leaders[partition] = int(info.leader_id)
        elif kind is not errors.UnknownTopicOrPartitionError:
            raise kind(topic.name)
    return leaders


def _offsets_request(topics: Mapping[str, Sequence[int]], spec: _Spec) -> Any:
    timestamp, isolation = spec
    entry = ListOffsetsRequest.ListOffsetsTopic
    return ListOffsetsRequest(
        isolation_level=isolation,
        topics=[
            entry(
                name=name,
                partitions=[
                    entry.ListOffsetsPartition(
                        partition_index=index, current_leader_epoch=-1, timestamp=timestamp
                    )
                    for index in indices
                ],
            )
            for name, indices in topics.items()
        ],
        min_version=2,  # the first version with isolation levels
    )
