"""Marks: where the topics ended while the store was known to hold all that was published.

A store that fails over to a lagging replica, or restarts without its last writes, loses a suffix
of what it was told. A mark is written after the topics' ends were read, so as long as the store
has the mark, whatever commits it has lost came later, and what they published lies behind it.
That holds if nothing was lost before the mark is written that is not mended by then: a worker
writes marks of those partitions alone that it has taken over, on the connection that it has used
since then, whose break is said to it (`engine.store.connection.surface_breaks`). Models that it
could not mend are noted as halted. What it knows of models that are not registered is in its
memory alone: it waits until those records are passed that have their answers, by it or by whom
their partition belongs to.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

from consumers import topics
from consumers.events import Source
from consumers.log.base import Bounds, Partition, Reader
from engine.errors import LogReset
from engine.store.handover import Handover

PERIOD_SECONDS = 5.0
"""Between two marks: a takeover reads what was published in this time, and while nobody worked."""


class Marks:
    """Leaves marks for whoever takes over the partitions of one worker.

    Parameters
    ----------
    handover
        Where they are left.
    bounds
        Returns what a partition holds now.
    period
        Seconds between two marks.
    """

    def __init__(
        self,
        handover: Handover,
        bounds: Callable[[Partition], Bounds],
        period: float = PERIOD_SECONDS,
    ) -> None:
        self._handover = handover
        self._bounds = bounds
        self._period = period
        self._published: list[Partition] = []
        self._met: dict[Partition, int] = {}
        self._answered: dict[tuple[str, int], int] = {}
        self._homes: dict[tuple[str, int], tuple[Partition, int]] = {}
        self._left: dict[Partition, Mapping[str, int]] = {}
        self._due = 0.0

    def look_up(self, reader: Reader) -> None:
        """Learn which partitions there are to be published to, and where answered records lie."""
        published = (topics.VERSIONS, topics.MODELS, topics.RECEIPTS)
        self._published = [p for topic in published for p in reader.partitions(topic)]
        for partition in reader.partitions(topics.DELETIONS):
            place = (partition.topic, partition.index)
            if place in self._answered:
                self._homes[place] = (partition, reader.bounds(partition).end)

    def wait_for(self, answered: Iterable[Source]) -> None:
        """Leave no mark before these records are decided (again), whoever decides them."""
        for source in answered:
            place = (source.topic, source.partition)
            self._answered[place] = max(source.offset + 1, self._answered.get(place, 0))

    def taken_over(self, partition: Partition, end: int) -> None:
        """Begin with a partition that was taken over, and that ended there then."""
        self._met[partition] = end

    def drop(self, partition: Partition) -> None:
        """Leave no marks of a partition any more: another worker has it."""
        self._met.pop(partition, None)
        self._left.pop(partition, None)

    def forget(self) -> None:
        """Leave none at all until the next takeover: the store may have lost writes."""
        self._met.clear()
        self._left.clear()
        self._answered.clear()
        self._homes.clear()

    def look(self, positions: Mapping[Partition, int]) -> None:
        """Leave marks if it is time, where everything below ``positions`` is decided or held.

        Raises
        ------
        StoreUnavailable, LogUnavailable
            A server is away.
        """
        now = time.monotonic()
        if now < self._due:
            return
        self._due = now + self._period
        again = [p for p in self._met if positions.get(p, 0) >= self._first(p)]
        if not again or self._waits(positions):
            return
        try:
            ends = {str(partition): self._bounds(partition).end for partition in self._published}
        except LogReset:
            self._published = []  # a topic was made again: the next takeover learns which there are
            return
        moved = [partition for partition in again if self._left.get(partition) != ends]
        if moved:
            self._handover.set_marks(map(str, moved), ends)
            self._left |= dict.fromkeys(moved, ends)

    def caught_up(self, positions: Mapping[Partition, int]) -> bool:
        """Return whether all is passed that the partitions had when they were taken over."""
        return all(positions.get(partition, 0) >= end for partition, end in self._met.items())

    def _waits(self, positions: Mapping[Partition, int]) -> bool:
        """Return whether something that has a known answer is not yet decided (again).

        By another worker, or by this one: who gets one of its partitions alone goes by that mark.
        """
        for place, (partition, end) in list(self._homes.items()):
            passed = positions.get(partition, 0)
            if partition not in self._met:
                passed = self._handover.watermark(str(partition)) or 0
            if passed < min(self._answered.get(place, 0), end):
                return True
            del self._homes[place]
        return False

    def _first(self, partition: Partition) -> int:
        """Return from which position on a mark of this partition may be left.

        Answers may name a topic of this name that ended elsewhere, before it was made again.
        """
        answered = self._answered.get((partition.topic, partition.index), 0)
        return min(answered, self._met[partition])
