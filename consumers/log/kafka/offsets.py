"""First and last offsets of many partitions, in one round trip.

kafka-python asks for the beginnings and then for the ends, and neither says whether the topic is
still the one that was meant. Here all of it is asked at once: the description of the topics, and
each leader that is known from the last one for its partitions' offsets. Only where a leader is not
known, or is another by now, there is a second round.
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

# What is asked for: which offset, and which records count.
_Place = tuple[int, int]
_FIRST: _Place = (OffsetSpec.EARLIEST, IsolationLevel.READ_COMMITTED)
_LAST_VISIBLE: _Place = (OffsetSpec.LATEST, IsolationLevel.READ_COMMITTED)
_LAST: _Place = (OffsetSpec.LATEST, IsolationLevel.READ_UNCOMMITTED)

_Found = dict[tuple[Partition, _Place], int]


class Offsets:
    """Asks for offsets on one connection, and remembers who leads which partition."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._leaders: dict[Partition, int] = {}

    def bounds(self, partition: Partition, position: int = 0) -> Bounds:
        """Return what the partition holds for a reader of committed records.

        Raises
        ------
        PartitionReset
            Its topic is gone; ``position`` is named in it.
        """
        found = self._ask([partition], (_FIRST, _LAST_VISIBLE), position)
        return Bounds(found[partition, _FIRST], found[partition, _LAST_VISIBLE])

    def ends(self, partitions: Iterable[Partition]) -> Mapping[Partition, int]:
        """Return the end of each partition, of committed and other records."""
        asked = list(partitions)
        found = self._ask(asked, (_LAST,), 0) if asked else {}
        return {partition: found[partition, _LAST] for partition in asked}

    def _ask(self, asked: Sequence[Partition], places: Sequence[_Place], position: int) -> _Found:
        deadline = time.monotonic() + REQUEST_SECONDS
        present: set[Partition]
        found: _Found
        while True:
            try:
                present, found = self._connection.ask(self._look, asked, places)
            except errors.KafkaError as error:
                if not isinstance(error, errors.RetriableError) or time.monotonic() > deadline:
                    raise
            else:
                for partition in asked:
                    if partition not in present:
                        raise PartitionReset(partition, position, None)
                if len(found) == len(set(asked)) * len(places):
                    return found
                if time.monotonic() > deadline:
                    raise errors.KafkaTimeoutError(
                        f"no offsets of {asked[0].topic} within {REQUEST_SECONDS:.0f} s"
                    )
            time.sleep(_RETRY_SECONDS)

    async def _look(
        self, manager: Any, asked: Sequence[Partition], places: Sequence[_Place]
    ) -> tuple[set[Partition], _Found]:
        """Return which partitions there are, and the offsets that the leaders told."""
        topics = sorted({partition.topic for partition in asked})
        answer = manager.send(describe_request(topics))
        first = self._send(manager, [p for p in asked if p in self._leaders], places)
        leaders = described(await answer)
        found: _Found = {}
        moved = [p for p in asked if leaders.get(p, -1) != self._leaders.get(p)]
        for partition in asked:
            self._leaders[partition] = leaders.get(partition, -1)
        await self._collect(first, set(asked) - set(moved), found)
        known = [p for p in moved if self._leaders[p] >= 0]
        await self._collect(self._send(manager, known, places), set(known), found)
        for partition in asked:
            if self._leaders[partition] < 0 or (partition, places[0]) not in found:
                del self._leaders[partition]
        return set(leaders), found

    def _send(
        self, manager: Any, asked: Sequence[Partition], places: Sequence[_Place]
    ) -> list[tuple[_Place, Any]]:
        """Send each leader one request for each place, without waiting."""
        by_leader: dict[int, dict[str, list[int]]] = {}
        for partition in asked:
            topics = by_leader.setdefault(self._leaders[partition], {})
            topics.setdefault(partition.topic, []).append(partition.index)
        return [
            (place, manager.send(_request(topics, place), node_id=leader))
            for leader, topics in by_leader.items()
            for place in places
        ]

    @staticmethod
    async def _collect(
        sent: Sequence[tuple[_Place, Any]], wanted: set[Partition], found: _Found
    ) -> None:
        names = {(partition.topic, partition.index): partition for partition in wanted}
        for place, future in sent:
            for topic in (await future).topics:
                for one in topic.partitions:
                    kind = errors.for_code(one.error_code)
                    partition = names.get((topic.name, one.partition_index))
                    if kind is errors.NoError and partition is not None:
                        found[partition, place] = int(one.offset)
                    elif kind is not errors.NoError and not issubclass(kind, errors.RetriableError):
                        raise kind(topic.name)


def _request(topics: Mapping[str, Sequence[int]], place: _Place) -> Any:
    spec, isolation = place
    entry = ListOffsetsRequest.ListOffsetsTopic
    return ListOffsetsRequest(
        isolation_level=isolation,
        topics=[
            entry(
                name=name,
                partitions=[
                    entry.ListOffsetsPartition(
                        partition_index=index, current_leader_epoch=-1, timestamp=spec
                    )
                    for index in indices
                ],
            )
            for name, indices in topics.items()
        ],
        min_version=2,  # the first that knows of isolation
    )
