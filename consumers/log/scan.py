"""Reading all records between two offsets: all of them, or an error."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from lethe.consumers.log.base import Partition, Reader, Record
from lethe.engine.errors import LogUnavailable

_RECORDS = 500
_SECONDS = 5.0


def scan(reader: Reader, partition: Partition, start: int, end: int) -> Iterator[Record]:
    """Yield the records of a partition from ``start`` up to ``end``.

    Raises
    ------
    LogUnavailable
        The log does not return them in time.
    """
    offset, deadline = start, time.monotonic() + _SECONDS
    while offset < end:
        records, after = reader.read(partition, offset, _SECONDS, _RECORDS)
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


def scan_topic(
    reader: Reader, topic: str, progress: Callable[[str, int, int], None] = lambda *_: None
) -> Iterator[Record]:
    """Yield all records of a topic, partition by partition.

    Raises
    ------
    LogUnavailable
        As `scan`.
    """
    for partition in reader.partitions(topic):
        bounds = reader.bounds(partition)
        for record in scan(reader, partition, bounds.begin, bounds.end):
            yield record
            progress(f"reading {topic}", record.offset, bounds.end)
