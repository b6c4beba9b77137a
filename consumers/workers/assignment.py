"""The partitions that a worker reads, and how far it has come in each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from lethe.consumers.log.base import Consumer, Partition, Position, Reader, Record
from lethe.consumers.log.kept import digest_of
from lethe.consumers.service.telemetry.logs import Logger
from lethe.consumers.service.topic_watch import TopicWatch, loss_of, start_offset
from lethe.engine.errors import LogReset
from lethe.engine.store.cursors import Mark, Watermark
from lethe.engine.store.store import ModelStore


class Assignment:
    """The positions of one worker in its partitions; one thread uses it.

    Parameters
    ----------
    consumer, store, reader, logger
        What reads the partitions, what keeps their watermarks, what looks at the topics, and where
        to say which are read.
    watch
        Checks their topics when partitions are taken over; says whether work goes on with what is
        there when records are lost.
    name_of
        Returns the name of a partition's watermark.

    Attributes
    ----------
    positions
        By partition, the offset that is read next.
    """

    def __init__(
        self,
        consumer: Consumer,
        store: ModelStore,
        reader: Reader,
        logger: Logger,
        watch: TopicWatch,
        *,
        name_of: Callable[[Partition], str] = str,
    ) -> None:
        self.positions: dict[Partition, int] = {}
        self._ends: dict[Partition, int] = {}
        self._newest: dict[Partition, Record] = {}
        self._answered_ms: dict[Partition, int] = {}
        self._consumer = consumer
        self._store = store
        self._reader = reader
        self._logger = logger
        self._watch = watch
        self._name_of = name_of

    def drop_lost(self) -> frozenset[Partition]:
        """Forget the partitions that other workers have by now; return them."""
        lost = self._consumer.take_lost()
        for partition in lost:
            self.positions.pop(partition, None)
            self._ends.pop(partition, None)
        return lost

    def caught_up(self) -> bool:
        """Return whether everything that the log had when it was taken over is read."""
        return all(self.positions[partition] >= end for partition, end in self._ends.items())

    def take_over(self, partitions: Iterable[Partition]) -> None:
        """Resume partitions at their watermarks.

        Raises
        ------
        LogReset
            The log has lost records in one of them, or its topic is not the one that the store
            knows.
        """
        fresh = sorted(partitions)
        if not fresh:
            return
        self._watch.check(fresh)
        for partition in fresh:
            self.start(partition)
            place = {"partition": str(partition), "offset": self.positions[partition]}
            self._logger.debug("a partition is read", action="seek", **place)
        self._logger.info("partitions taken over", action="take_over", partitions=ranges_of(fresh))

    def start(self, partition: Partition) -> None:
        """Resume a partition at its watermark.

        Raises
        ------
        LogReset
            The log has lost records there.
        """
        # In this order: a worker that still has the partition may move the watermark with the end.
        watermark = self._store.cursors.marked(self._name_of(partition))
        bounds = self._consumer.bounds(partition)
        try:
            offset = start_offset(partition, watermark, bounds, self._reader)
        except LogReset as error:
            if not self._watch.goes_on(partition.topic, str(error)):
                raise
            self._store.topics.record(loss_of(partition.topic, str(error)))
            self._store.cursors.forget_watermarks([self._name_of(partition)])
            watermark, offset = None, bounds.begin
        if watermark is not None and watermark.offset < offset:
            self._note_expired(partition, watermark, offset)
        mark = None if watermark is None else watermark.mark
        self._newest.pop(partition, None)
        self._answered_ms[partition] = 0 if mark is None else mark.answered_ms
        self.positions[partition], self._ends[partition] = offset, bounds.end
        self._consumer.seek(partition, offset)

    def _note_expired(self, partition: Partition, watermark: Watermark, begin: int) -> None:
        """Say that records expired before they were processed, and go on behind them."""
        where = f"{partition.topic}/{partition.index}"
        reason = f"{where}: {begin - watermark.offset} records expired before they were processed"
        self._logger.warning(reason, action="expired")
        answered = 0 if watermark.mark is None else watermark.mark.answered_ms
        self._store.topics.record(loss_of(partition.topic, reason, answered))
        self._store.cursors.set_watermarks({self._name_of(partition): begin})

    def move(self, records: Iterable[Record]) -> None:
        """Move past records that were polled, in order."""
        last = {record.partition: record for record in records}
        self._newest |= last
        self.positions |= {partition: record.offset + 1 for partition, record in last.items()}

    def hints(self, offsets: Mapping[Partition, int]) -> dict[Partition, Position]:
        """Return offsets as the log takes them, with the epoch of what was read last."""
        epochs = {partition: newest.leader_epoch for partition, newest in self._newest.items()}
        return {p: Position(offset, epochs.get(p)) for p, offset in offsets.items()}

    def watermarks(self, offsets: Mapping[Partition, int]) -> dict[str, Watermark]:
        """Return what to store of partitions of which everything below an offset is processed."""
        watermarks = {}
        for partition, offset in offsets.items():
            newest, mark = self._newest.get(partition), None
            if newest is not None:
                if offset > newest.offset:
                    self._answered_ms[partition] = newest.timestamp_ms
                answered = self._answered_ms.get(partition, 0)
                mark = Mark(newest.offset + 1, digest_of(newest), answered)
            watermarks[self._name_of(partition)] = Watermark(offset, mark)
        return watermarks


def ranges_of(partitions: Iterable[Partition]) -> str:
    """Return partitions for a person, as ``lethe.deletions/0-3,5 lethe.row-changes/0``."""
    by_topic: dict[str, list[int]] = {}
    for partition in sorted(partitions):
        by_topic.setdefault(partition.topic, []).append(partition.index)
    return " ".join(f"{topic}/{_ranges(indexes)}" for topic, indexes in by_topic.items())


def _ranges(indexes: Sequence[int]) -> str:
    """Return ascending numbers with each run of successive ones as its first and last."""
    firsts = [i for i in indexes if i - 1 not in indexes]
    lasts = [i for i in indexes if i + 1 not in indexes]
    pairs = zip(firsts, lasts, strict=True)
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in pairs)
