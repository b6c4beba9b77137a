"""Reading events, and plain records, of a topic's newest part, as a takeover does."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from typing import TypeVar

from consumers.events import Parameters, Receipt, Version
from consumers.log.base import Partition, Reader, Record
from consumers.reach import Reach
from consumers.signed_log import signed_type
from consumers.signing import TrustedKeys
from consumers.telemetry import logger
from engine.errors import LogReset, LogUnavailable, Unauthenticated

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
        if _model_of(record) in models and record.value is not None:
            found = _parsed(record, event, trusted)
            if found is None:
                _report(record)
            else:
                yield found


def newest_event_of_each(
    reader: Reader,
    partition: Partition,
    offsets: range,
    models: Container[str],
    event: type[EventType],
    rank: Callable[[Record], int],
) -> Iterator[EventType]:
    """Yield each model's event of the highest rank, the last of equals; no other one is parsed.

    Where one is foreign, `events_of` reports it, and yields all that are not. ``rank`` may raise
    ValueError on what is.
    """
    best: dict[str, tuple[int, Record]] = {}
    foreign = False
    for record in records_of(reader, partition, offsets):
        model = _model_of(record)
        if model not in models or record.value is None:
            continue
        try:
            ranked = rank(record)
        except ValueError:
            foreign = True
            continue
        if model not in best or ranked >= best[model][0]:
            best[model] = (ranked, record)
    found = [parsed for _, record in best.values() if (parsed := _parsed(record, event))]
    if foreign or len(found) < len(best):
        yield from events_of(reader, partition, offsets, models, event)
    else:
        yield from found


def _model_of(record: Record) -> str:
    return (record.key or b"").decode("utf-8", errors="replace")


def _parsed(
    record: Record, event: type[EventType], trusted: TrustedKeys | None = None
) -> EventType | None:
    """Return the event in a record; None where that is foreign."""
    try:
        found = event.read(record.value or b"")
    except ValueError:
        found = None
    believed = trusted is None or _is_signed(record, trusted)
    ours = found is not None and found.model_id == _model_of(record) and believed
    return found if ours else None


def _report(record: Record) -> None:
    logger("takeover").error(
        "a record under a model's key is not ours, or not signed by a trusted key; subscribers "
        "will refuse it",
        action="foreign_record",
        topic=record.partition.topic,
        partition=record.partition.index,
        offset=record.offset,
    )


def _is_signed(record: Record, trusted: TrustedKeys) -> bool:
    event_type = signed_type(record.partition.topic) or ""
    try:
        return trusted.vouches(event_type, record.value or b"", record.headers)
    except Unauthenticated:
        return False


def records_of(reader: Reader, partition: Partition, offsets: range) -> Iterator[Record]:
    """Yield the records of a partition in a range of offsets, all of which the log has.

    Raises
    ------
    LogUnavailable
        It does not send them: a takeover must not take what is missing here for what is not there.
    """
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
            raise LogUnavailable(
                f"{partition} has records from offset {offset} on, and none came in "
                f"{_READ_SECONDS:g} s"
            )
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
