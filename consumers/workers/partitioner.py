"""Notices producers that choose partitions otherwise than Kafka's Java client (docs/events.md)."""

from __future__ import annotations

from collections.abc import Sequence

from lethe.consumers.deletions.validate import Group
from lethe.consumers.log.base import Reader
from lethe.consumers.service.telemetry.logs import Logger
from lethe.engine.store.layout.keys import partition_index


class PartitionerWatch:
    """Says once for each topic that a model's requests are in another partition than its own.

    They are processed all the same: requests in two partitions have no order among themselves, and
    two workers may then work for one model, which takes longer. One thread uses it.
    """

    def __init__(self, reader: Reader, logger: Logger) -> None:
        self._reader = reader
        self._logger = logger
        self._counts: dict[str, int] = {}
        self._said: set[str] = set()

    def look(self, groups: Sequence[Group]) -> None:
        """Look where requests were read. Cost: a hash of a model's id, mostly remembered."""
        for group in groups:
            topic = group.partition.topic
            if topic in self._said or self._home(group) == group.partition.index:
                continue
            self._counts.pop(topic, None)  # partitions may have been added
            expected = self._home(group)
            if expected != group.partition.index:
                self._said.add(topic)
                self._logger.warning(
                    "requests are not in their model's partition: their producer does not choose "
                    "it by murmur2 of the key, or partitions were added (docs/events.md)",
                    action="partitioner",
                    topic=topic,
                    model=group.model_id,
                    partition=group.partition.index,
                    expected=expected,
                )

    def _home(self, group: Group) -> int:
        topic = group.partition.topic
        if topic not in self._counts:
            self._counts[topic] = max(len(self._reader.partitions(topic)), 1)
        return partition_index(group.model_id.encode(), self._counts[topic])
