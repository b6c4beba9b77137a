"""Taking over a partition (docs/commit.md): where to go on, and whether history agrees.

The rebalance listener only sets a flag; the polling thread runs this before it seeks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from consumers import cloudevents, topics
from consumers.events import MODEL_PARAMETERS, Parameters, Version
from consumers.log.base import Bounds, Message, Partition, Reader, Record
from consumers.telemetry import logger
from engine.errors import LogReset, VersionFork
from engine.store.state import ModelState

TAIL = 1000
"""Newest records of each versions partition that are read at takeover."""

_READ_SECONDS = 5.0

EventType = TypeVar("EventType", Version, Parameters)


def start_offset(partition: Partition, watermark: int | None, bounds: Bounds) -> int:
    """Return where to go on in a partition.

    Raises
    ------
    LogReset
        The log ends before the watermark, or begins after it: records were lost.
    """
    if watermark is None:
        return bounds.begin
    where = f"{partition.topic}/{partition.index}"
    if watermark > bounds.end:
        raise LogReset(
            f"{where} ends at offset {bounds.end}, but everything below {watermark} was decided: "
            "the log was reset or has lost its end. Restore it, or recreate the topic"
        )
    if watermark < bounds.begin:
        raise LogReset(
            f"{where} begins at offset {bounds.begin}, but {watermark} is the next to decide: "
            f"{bounds.begin - watermark} records were removed before they were decided. Find their "
            "requests and send them again, then delete the key of the watermark"
        )
    return watermark


def models_of(reader: Reader, models: Iterable[str], partitions: Iterable[Partition]) -> list[str]:
    """Return the models whose requests normally lie in these partitions of ``deletions``."""
    held = {partition.index for partition in partitions}
    return [
        model
        for model in models
        if reader.partition_for(topics.DELETIONS, model.encode()).index in held
    ]


def version_tails(reader: Reader, models: Iterable[str]) -> dict[str, Version]:
    """Return the newest published version of each model, as far as the tails hold it."""
    newest: dict[str, Version] = {}
    for version in _tail(reader, topics.VERSIONS, set(models), Version):
        known = newest.get(version.model_id)
        if known is None or version.version > known.version:
            newest[version.model_id] = version
    return newest


def parameter_tails(reader: Reader, models: Iterable[str]) -> dict[str, int]:
    """Return the version of each model's *last* parameters event, which compaction keeps."""
    last: dict[str, int] = {}
    for parameters in _tail(reader, topics.MODELS, set(models), Parameters):
        last[parameters.model_id] = parameters.version
    return last


def _tail(
    reader: Reader, topic: str, models: set[str], event: type[EventType]
) -> Iterator[EventType]:
    """Yield the events under these models' keys; foreign records are reported and skipped."""
    for record in _tail_records(reader, topic, models):
        try:
            found = event.model_validate_json(record.value or b"")
        except ValueError:
            logger("takeover").error(
                "a record under a model's key is not ours; subscribers will refuse it",
                action="foreign_record",
                topic=topic,
                partition=record.partition.index,
                offset=record.offset,
            )
            continue
        yield found


def _tail_records(reader: Reader, topic: str, models: set[str]) -> Iterator[Record]:
    for partition in reader.partitions(topic) if models else ():
        bounds = reader.bounds(partition)
        offset = max(bounds.begin, bounds.end - TAIL)
        while offset < bounds.end:
            records, position = reader.read(partition, offset, _READ_SECONDS, TAIL)
            for record in records:
                key = (record.key or b"").decode("utf-8", errors="replace")
                if key in models and record.value is not None:
                    yield record
            if position == offset:
                break
            offset = position


def stale_parameters(state: ModelState, stored: bytes | None, last: int | None) -> Message | None:
    """Return the newest parameters to publish again, where an older event was the last.

    A publisher that was stopped between reading the outbox and sending may send late.
    """
    if stored is None or last is None or last >= state.version:
        return None
    parameters = Parameters.model_validate_json(stored)
    headers = cloudevents.headers(
        MODEL_PARAMETERS, parameters.digest[:32], parameters.created_at, parameters.model_id
    )
    return Message(topics.MODELS, parameters.model_id.encode(), stored, headers)


def check_history(state: ModelState, published: Version | None) -> None:
    """Compare stored state with published history.

    Raises
    ------
    VersionFork
        The store is behind what was published, or says otherwise.
    """
    if published is None or published.version < state.version:
        return
    if published.version == state.version and published.digest == state.digest:
        return
    raise VersionFork(
        f"model {state.model_id!r}: version {published.version} was published and the store holds "
        f"version {state.version}{' with another digest' * (published.version == state.version)}: "
        "it has lost writes. Restore the store, or register the model again with --replace"
    )
