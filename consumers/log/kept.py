"""Whether a partition still has what was read of it.

A log that has lost its end may have grown again since, so that a position is in it and means
another record. Whoever keeps a position therefore keeps the digest of the record below it, too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

from lethe.consumers.log.base import RECORD_SECONDS, Partition, PartitionReset, Reader, Record
from lethe.engine.errors import LogReset, LogUnavailable


@dataclass(frozen=True, slots=True)
class Kept:
    """A position up to which a partition was read.

    ``digest`` is that of the record just below it; empty if nothing is known of it. ``compacted``:
    the topic may have removed that record since.
    """

    partition: Partition
    offset: int
    digest: str = ""
    compacted: bool = False


def digest_of(record: Record) -> str:
    """Return what a record is known by: when the log took it, its key and its value."""
    digest = hashlib.sha256(f"{record.timestamp_ms} ".encode())
    for part in (record.key, record.value):
        digest.update(b"-" if part is None else b"%d " % len(part))
        digest.update(part or b"")
    return digest.hexdigest()


def check_kept(
    reader: Reader,
    kept: Kept,
    end: int,
    advice: str,
    known_by: Callable[[Record], str] = digest_of,
) -> None:
    """Check that a partition ends no earlier than it was read, and has the same record there.

    Raises
    ------
    LogReset
        It has lost records; ``advice`` says what to do.
    LogUnavailable
        The log does not return the record in time.
    """
    partition, offset = kept.partition, kept.offset - 1
    where = f"{partition.topic}/{partition.index}"
    if end < kept.offset:
        raise LogReset(
            f"{where} ends at offset {end}, but was read up to offset {kept.offset}: {advice}"
        )
    if not kept.digest or offset < reader.bounds(partition).begin:
        return  # nothing is known of the record below, or it has expired
    try:
        records, after = reader.read(partition, offset, RECORD_SECONDS, 1)
    except PartitionReset as reset:
        now = reset.bounds
        if reset.truncated or now is None or now.begin <= offset or now.end < kept.offset:
            raise
        return  # it was there a moment ago: another worker has processed it, and it was removed
    if not records and after == offset:
        raise LogUnavailable(f"{where}: the record at offset {offset} was not returned in time")
    if kept.compacted and not any(record.offset == offset for record in records):
        return
    if not any(record.offset == offset and known_by(record) == kept.digest for record in records):
        raise LogReset(
            f"{where}: another record lies at offset {offset} than the one that was read: {advice}"
        )
