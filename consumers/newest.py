"""Reading events, and plain records, of a topic's newest part, as a takeover does."""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import TypeVar

from consumers.events import Parameters, Receipt, Version
from consumers.log.base import Partition, Reader, Record
from consumers.reach import Reach
from consumers.signed_log import signed_type
from consumers.signing import TrustedKeys
from consumers.telemetry import logger
from engine.errors import LogReset, Unauthenticated

_READ_RECORDS = 1000
_READ_SECONDS = 5.0

EventType = TypeVar("EventType", Version, Parameters, Receipt)


def events_of(
    reader: Reader,
    partition: Partition,
    offsets: range,
    models: Container[str],
    event: type[EventType],
    trusted: TrustedKeys | None = None,
) -> Iterator[EventType]:
    """Yield the events under these models' keys; foreign records are reported and skipped.

    With keys to trust, so are events that none of them signed.
    """
    for record in records_of(reader, partition, offsets):
        key = (record.key or b"").decode("utf-8", errors="replace")
        if key not in models or record.value is None:
            continue
        try:
            found = event.read(record.value)
        except ValueError:
            found = None
        believed = trusted is None or _is_signed(record, trusted)
        if found is None or found.model_id != key or not believed:
            logger("takeover").error(
                "a record under a model's key is not ours, or not signed by a trusted key; "
                "subscribers will refuse it",
                action="foreign_record",
                topic=partition.topic,
                partition=partition.index,
                offset=record.offset,
            )
            continue
        yield found


def _is_signed(record: Record, trusted: TrustedKeys) -> bool:
    event_type = signed_type(record.partition.topic) or ""
    try:
        return trusted.vouches(event_type, record.value or b"", record.headers)
    except Unauthenticated:
        return False


def records_of(reader: Reader, partition: Partition, offsets: range) -> Iterator[Record]:
    """Yield the records of a partition in a range of offsets."""
    offset = offsets.start
    while offset < offsets.stop:
        try:
            records, onward = reader.read(partition, offset, _READ_SECONDS, _READ_RECORDS)
        except LogReset:
            begin = reader.bounds(partition).begin
            if begin <= offset:
                raise
            offset = begin  # retention removed old records since the bounds were read
            continue
        for record in records:
            if record.offset < offsets.stop:
                yield record
        if onward == offset:
            return
        offset = onward


def newest_events(
    reader: Reader,
    topic: str,
    models: Container[str],
    event: type[EventType],
    reach: Reach,
    trusted: TrustedKeys | None = None,
) -> Iterator[EventType]:
    """Yield these models' events within ``reach``."""
    for partition in reader.partitions(topic):
        bounds = reader.bounds(partition)
        offsets = range(reach.first(partition, bounds), bounds.end)
        yield from events_of(reader, partition, offsets, models, event, trusted)
