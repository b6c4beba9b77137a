"""The partitions that a deletion worker reads, and how far it has come in each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from lethe.consumers.contract import topics
from lethe.consumers.log.base import Bounds, Consumer, Partition, Position, Record
from lethe.consumers.service.telemetry.logs import Logger
from lethe.engine.errors import LogReset
from lethe.engine.store.store import ModelStore


class Assignment:
    """The positions of one worker in its partitions; one thread uses it.

    Attributes
    ----------
    positions
        By partition, the offset that is read next.
    """

    def __init__(self, consumer: Consumer, store: ModelStore, logger: Logger) -> None:
        self.positions: dict[Partition, int] = {}
        self._ends: dict[Partition, int] = {}
        self._consumer = consumer
        self._store = store
        self._logger = logger

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
            The log has lost records in one of them.
        """
        fresh = sorted(partitions)
        for partition in fresh:
            self.start(partition)
        log_taken_over(self._logger, {partition: self.positions[partition] for partition in fresh})

    def start(self, partition: Partition) -> None:
        """Resume a partition at its watermark.

        Raises
        ------
        LogReset
            The log has lost records there.
        """
        # In this order: a worker that still has the partition may move the watermark with the end.
        watermark = self._store.cursors.watermark(str(partition))
        bounds = self._consumer.bounds(partition)
        offset = start_offset(partition, watermark, bounds)
        self.positions[partition], self._ends[partition] = offset, bounds.end
        self._consumer.seek(partition, offset)

    def move(self, records: Iterable[Record]) -> Mapping[Partition, Position]:
        """Move past records that were polled, in order; return the positions that are new."""
        last = {record.partition: record for record in records}
        self.positions |= {partition: record.offset + 1 for partition, record in last.items()}
        return {
            partition: Position(record.offset + 1, record.leader_epoch)
            for partition, record in last.items()
        }


def log_taken_over(logger: Logger, offsets: Mapping[Partition, int]) -> None:
    """Say which partitions a worker reads from now on; from which offsets, to who debugs."""
    if not offsets:
        return
    logger.info("partitions taken over", action="take_over", partitions=ranges_of(offsets))
    for partition, offset in offsets.items():
        logger.debug("a partition is read", action="seek", partition=str(partition), offset=offset)


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


def start_offset(partition: Partition, watermark: int | None, bounds: Bounds) -> int:
    """Return the offset at which to resume reading a partition.

    Raises
    ------
    LogReset
        The log ends before the watermark, or begins after it: records were lost.
    """
    if watermark is None:
        return bounds.begin
    name = f"{partition.topic}/{partition.index}"
    if watermark > bounds.end:
        raise LogReset(
            f"{name} ends at offset {bounds.end}, but everything below {watermark} was processed: "
            "the log was reset or has lost its end. Restore it, or recreate the topic"
        )
    if watermark < bounds.begin and partition.topic == topics.ROW_CHANGES:
        return bounds.begin  # values expire within T, processed or not (docs/erased-data.md)
    if watermark < bounds.begin:
        raise LogReset(
            f"{name} begins at offset {bounds.begin}, but {watermark} is the next to process: "
            f"{bounds.begin - watermark} records were removed before they were processed. Find "
            "their requests and send them again, then delete the key of the watermark"
        )
    return watermark
