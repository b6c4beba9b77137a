"""Taking over a partition (docs/commit.md): where to go on, and whether history agrees.

The rebalance listener only sets a flag; the polling thread runs this before it seeks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from consumers import cloudevents, topics
from consumers.events import MODEL_PARAMETERS, Parameters, Version
from consumers.log.base import Bounds, Message, Partition, Reader
from consumers.publisher import Publisher
from consumers.telemetry import logger
from engine.errors import LetheError, LogReset, VersionFork
from engine.store.keys import ModelKeys
from engine.store.store import ModelStore
from engine.store.survey import Surveyed, survey

TAIL = 1000
"""Newest records of a versions partition that a takeover reads at least."""

FARTHEST = 100_000
"""How far it goes back for a model that it has not met by then: about five seconds."""

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
    """Return the newest published version of each model.

    The tail of each partition first; then further back, until every model was met or `FARTHEST`
    records were read. A model that is in none of them is left out.
    """
    wanted = set(models)
    newest: dict[str, Version] = {}
    end: dict[Partition, int] = {}
    reach = TAIL
    while wanted - newest.keys():
        more = False
        for partition in reader.partitions(topics.VERSIONS):
            bounds = reader.bounds(partition)
            stop = end.get(partition, bounds.end)
            start = max(bounds.begin, bounds.end - reach)
            if start >= stop:
                continue
            more = True
            end[partition] = start
            for version in _events(reader, partition, range(start, stop), wanted, Version):
                known = newest.get(version.model_id)
                if known is None or version.version > known.version:
                    newest[version.model_id] = version
        if not more or reach >= FARTHEST:
            break
        reach = min(FARTHEST, 10 * reach)
    return newest


def parameter_tails(reader: Reader, models: Iterable[str]) -> dict[str, int]:
    """Return the version of each model's *last* parameters event, which compaction keeps."""
    wanted = set(models)
    last: dict[str, int] = {}
    for partition in reader.partitions(topics.MODELS) if wanted else ():
        bounds = reader.bounds(partition)
        offsets = range(max(bounds.begin, bounds.end - TAIL), bounds.end)
        for parameters in _events(reader, partition, offsets, wanted, Parameters):
            last[parameters.model_id] = parameters.version
    return last


def _events(
    reader: Reader,
    partition: Partition,
    offsets: range,
    models: set[str],
    event: type[EventType],
) -> Iterator[EventType]:
    """Yield the events under these models' keys; foreign records are reported and skipped."""
    offset = offsets.start
    while offset < offsets.stop:
        records, onward = reader.read(partition, offset, _READ_SECONDS, TAIL)
        for record in records:
            key = (record.key or b"").decode("utf-8", errors="replace")
            if key not in models or record.value is None or record.offset >= offsets.stop:
                continue
            try:
                found = event.model_validate_json(record.value)
            except ValueError:
                found = None
            if found is None or found.model_id != key:
                logger("takeover").error(
                    "a record under a model's key is not ours; subscribers will refuse it",
                    action="foreign_record",
                    topic=partition.topic,
                    partition=partition.index,
                    offset=record.offset,
                )
                continue
            yield found
        if onward == offset:
            return
        offset = onward


def settle_models(
    store: ModelStore, reader: Reader, publisher: Publisher, partitions: Iterable[Partition]
) -> tuple[list[Message], dict[ModelKeys, LetheError]]:
    """Finish what a former owner left, and compare state with history.

    Publishes what is committed and erases what is deleted, for the models whose requests
    normally lie in these partitions. No state is loaded: a takeover takes a few round trips,
    however many models there are, and must not outlast a lease.

    Returns
    -------
    list of Message
        Parameters to publish again, where an older event was the last.
    dict
        The models that must halt, and why.
    """
    models = models_of(reader, store.announced(), partitions)
    store.settle()  # a former owner may have ended between its steps 5 and 6
    found = survey(store.client, models)
    halted = dict(publisher.publish(one.keys for one in found if one.unpublished))
    versions, parameters = version_tails(reader, models), parameter_tails(reader, models)
    again = []
    for one in found:
        if one.unerased:
            store.erase(one.keys)
        try:
            check_history(one, versions.get(one.model_id))
        except VersionFork as error:
            halted[one.keys] = error
            continue
        last = parameters.get(one.model_id)
        if last is not None and last < one.version and one.keys not in halted:
            newest = newest_parameters(store.newest_parameters(one.keys))
            again += [] if newest is None else [newest]
    return again, halted


def newest_parameters(stored: bytes | None) -> Message | None:
    """Return the stored parameters event as a message to publish again.

    A publisher that was stopped between reading the outbox and sending may send late, and then
    the last event of the topic, the one that compaction keeps, is an older one.
    """
    if stored is None:
        return None
    parameters = Parameters.model_validate_json(stored)
    headers = cloudevents.headers(
        MODEL_PARAMETERS, parameters.digest[:32], parameters.created_at, parameters.model_id
    )
    return Message(topics.MODELS, parameters.model_id.encode(), stored, headers)


def check_history(stored: Surveyed, published: Version | None) -> None:
    """Compare stored state with published history.

    Raises
    ------
    VersionFork
        The store is behind what was published, or says otherwise.
    """
    if published is None or published.version < stored.version:
        return
    if published.version == stored.version and published.digest == stored.digest:
        return
    raise VersionFork(
        f"model {stored.model_id!r}: version {published.version} was published and the store "
        f"holds version {stored.version}"
        f"{' with another digest' * (published.version == stored.version)}: it has lost writes. "
        "Restore the store, or register the model again with --replace"
    )
