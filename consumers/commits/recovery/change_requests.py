"""Requests that insert or correct rows, read again from where a commit says that they lie.

No commit holds the values of rows: they leave the log long before the commits do.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence

from lethe.consumers.commits.commit import RowChange
from lethe.consumers.contract import cloudevents, topics
from lethe.consumers.contract.events import RowsChanged
from lethe.consumers.log.base import Partition, PartitionReset, Reader, Record
from lethe.consumers.log.scan import scan

GivenChanges = Mapping[RowChange, Record]
"""The requests of commits as they lie in the log, without those that the log no longer has."""

_PASSED_OVER = 100  # records between two that are wanted


def read_changes(reader: Reader, changes: Sequence[RowChange]) -> GivenChanges:
    """Read the requests of commits again, without those that the log no longer has.

    A record of other bytes, in a topic that was made again, is none of them. Requests that lie
    close together are read together: each read from a new place costs two requests to the broker,
    which also sends records that nobody wants.
    """
    offsets: dict[str, set[int]] = {}
    for change in changes:
        offsets.setdefault(change.partition, set()).add(change.offset)
    records: dict[tuple[str, int], Record] = {}
    for partition in reader.partitions(topics.ROW_CHANGES) if offsets else ():
        for run in _close_together(sorted(offsets.get(str(partition), ()))):
            for record in _records_at(reader, partition, run):
                records[str(partition), record.offset] = record
    return {
        change: found
        for change in changes
        if (found := records.get((change.partition, change.offset))) is not None
        and digest_of(found) == change.digest
    }


def request_in(record: Record) -> RowsChanged:
    """Return the request in a record that a worker has applied."""
    incoming = cloudevents.parse(record)
    return RowsChanged.model_validate({"request_id": incoming.id, **incoming.data})


def _close_together(offsets: Sequence[int]) -> Iterator[Sequence[int]]:
    """Yield ascending offsets in runs; from one run to the next it is cheaper to seek."""
    begin = 0
    for i in range(1, len(offsets) + 1):
        if i == len(offsets) or offsets[i] - offsets[i - 1] > _PASSED_OVER:
            yield offsets[begin:i]
            begin = i


def _records_at(reader: Reader, partition: Partition, offsets: Sequence[int]) -> list[Record]:
    """Return the records at ascending offsets that a partition still has."""
    try:
        bounds = reader.bounds(partition)
        there = [offset for offset in offsets if bounds.begin <= offset < bounds.end]
        if not there:
            return []
        wanted, passed = set(there), scan(reader, partition, there[0], there[-1] + 1)
        return [record for record in passed if record.offset in wanted]
    except PartitionReset:  # some expired meanwhile; with others it may have been made again
        if len(offsets) == 1:
            return []
        return [record for one in offsets for record in _records_at(reader, partition, [one])]


def digest_of(record: Record) -> str:
    """Return what a commit keeps of a request's values: the SHA-256 of the record's value."""
    return hashlib.sha256(record.value or b"").hexdigest()
