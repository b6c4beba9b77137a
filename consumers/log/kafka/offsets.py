"""First and last offsets of many partitions, in one round trip.

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

from lethe.consumers.log.base import Bounds, Partition
from lethe.consumers.log.kafka.connection import (
    REQUEST_SECONDS,
    Connection,
    describe_request,
    described,
)
from lethe.consumers.log.reset import PartitionReset

_RETRY_SECONDS = 0.05

# Which offset is requested, and at which isolation level.
_Spec = tuple[int, int]
_FIRST: _Spec = (OffsetSpec.EARLIEST, IsolationLevel.READ_COMMITTED)
_LAST_VISIBLE: _Spec = (OffsetSpec.LATEST, IsolationLevel.READ_COMMITTED)
_LAST: _Spec = (OffsetSpec.LATEST, IsolationLevel.READ_UNCOMMITTED)

_OffsetTable = dict[tuple[Partition, _Spec], int]


class Offsets:
    """Queries offsets on one connection, and remembers each partition's leader."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._leaders: dict[Partition, int] = {}

    def bounds(self, partition: Partition, position: int = 0) -> Bounds:
        """Return the partition's bounds for a reader of committed records.

        Raises
        ------
        PartitionReset
            Its topic is gone; the error names ``position``.
        """
        offsets = self._ask([partition], (_FIRST, _LAST_VISIBLE), position)
        return Bounds(offsets[partition, _FIRST], offsets[partition, _LAST_VISIBLE])

    def ends(self, partitions: Iterable[Partition]) -> Mapping[Partition, int]:
        """Return the end of each partition, including uncommitted records."""
        requested = list(partitions)
        offsets = self._ask(requested, (_LAST,), 0) if requested else {}
        return {partition: offsets[partition, _LAST] for partition in requested}

    def _ask(
        self, partitions: Sequence[Partition], specs: Sequence[_Spec], position: int
    ) -> _OffsetTable:
        deadline = time.monotonic() + REQUEST_SECONDS
        present: set[Partition]
        offsets: _OffsetTable
        while True:
            try:
                present, offsets = self._connection.ask(self._look_up, partitions, specs)
            except errors.KafkaError as error:
                if not isinstance(error, errors.RetriableError) or time.monotonic() > deadline:
                    raise
            else:
                for partition in partitions:
                    if partition not in present:
                        raise PartitionReset(partition, position, None)
                if len(offsets) == len(set(partitions)) * len(specs):
                    return offsets
                if time.monotonic() > deadline:
                    raise errors.KafkaTimeoutError(
                        f"no offsets of {partitions[0].topic} within {REQUEST_SECONDS:.0f} s"
                    )
            time.sleep(_RETRY_SECONDS)

    async def _look_up(
        self, manager: Any, partitions: Sequence[Partition], specs: Sequence[_Spec]
    ) -> tuple[set[Partition], _OffsetTable]:
        """Return the existing partitions of the topics, and the offsets from their leaders."""
        topics = sorted({partition.topic for partition in partitions})
        answer = manager.send(describe_request(topics))
        first = self._send(manager, [p for p in partitions if p in self._leaders], specs)
        leaders = described(await answer)
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
            (spec, manager.send(_request(topics, spec), node_id=leader))
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


def _request(topics: Mapping[str, Sequence[int]], spec: _Spec) -> Any:
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
