"""Reading all records between two offsets: all of them, or an error."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping

from lethe.consumers.log.base import Bounds, Partition, Reader, Record
from lethe.engine.errors import LogUnavailable

Extent = Mapping[Partition, Bounds]
"""How far partitions reached at one moment, so that they can be read again to the same place."""

_RECORDS = 500
_SECONDS = 5.0


def _no_progress(_what: str, _done: int, _all: int) -> None: ...


def extent_of(reader: Reader, *topics: str) -> Extent:
    """Return the extent of all partitions of some topics now."""
    partitions = (partition for topic in topics for partition in reader.partitions(topic))
    return {partition: reader.bounds(partition) for partition in partitions}


def read_at(reader: Reader, topic: str, index: int, offset: int) -> Record | None:
    """Return the record at a place that somebody noted; None if the log has none there.

    In a topic that was made again since it is another record: compare what it says.
    """
    for partition in reader.partitions(topic):
        if partition.index == index:
            return reader.record_at(partition, offset)
    return None


def scan(
    reader: Reader,
    partition: Partition,
    start: int,
    end: int,
    progress: Callable[[str, int, int], None] = _no_progress,
) -> Iterator[Record]:
    """Yield the records of a partition from ``start`` up to ``end``.

    Raises
    ------
    LogUnavailable
        The log does not return them in time.
    """
    offset, deadline = start, time.monotonic() + _SECONDS
    while offset < end:
        progress(f"reading {partition.topic}", offset - start, end - start)
        records, after = reader.read(partition, offset, _SECONDS, min(_RECORDS, end - offset))
        if after == offset:
            if time.monotonic() > deadline:
                raise LogUnavailable(
                    f"{partition.topic}/{partition.index} ends at {end}, but reading from "
                    f"{offset} on returned nothing within {_SECONDS:g} s"
                )
            continue
        deadline = time.monotonic() + _SECONDS
        for record in records:
            if record.offset < end:
                yield record
        offset = after


def scan_extent(
    reader: Reader, extent: Extent, progress: Callable[[str, int, int], None] = _no_progress
) -> Iterator[Record]:
    """Yield all records of an extent, partition by partition.

    Raises
    ------
    LogUnavailable
        As `scan`.
    """
    for partition, bounds in extent.items():
        yield from scan(reader, partition, bounds.begin, bounds.end, progress)


def scan_topic(
    reader: Reader, topic: str, progress: Callable[[str, int, int], None] = _no_progress
) -> Iterator[Record]:
    """Yield all records of a topic up to its end now, partition by partition.

    Raises
    ------
    LogUnavailable
        As `scan`.
    """
    for partition in reader.partitions(topic):
        bounds = reader.bounds(partition)
        yield from scan(reader, partition, bounds.begin, bounds.end, progress)


def tail(reader: Reader, topic: str, count: int) -> Iterator[Record]:
    """Yield the last records of each partition of a topic, at most ``count``, the oldest first.

    Raises
    ------
    LogUnavailable
        As `scan`.
    """
    for partition in reader.partitions(topic):
        bounds = reader.bounds(partition)
        yield from scan(reader, partition, max(bounds.begin, bounds.end - count), bounds.end)
