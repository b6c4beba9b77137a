"""Taking over a partition (docs/commit.md): where to go on, and whether history agrees.

The rebalance listener only sets a flag; the polling thread runs this before it seeks.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from consumers import cloudevents, topics
from consumers.adopt import adopt
from consumers.branches import Answered, Place, check_branch, check_history
from consumers.events import MODEL_PARAMETERS, Parameters, Receipt, Version
from consumers.log.base import Bounds, Message, Partition, Reader, Record
from consumers.log.partitioner import partition_index
from consumers.loop import TRANSIENT
from consumers.newest import newest_event_of_each, newest_events, records_of
from consumers.publisher import Publisher
from consumers.reach import FARTHEST, TAIL, Reach
from consumers.signing import TrustedKeys
from engine.errors import CorruptState, LetheError, LogReset, LogUnavailable, VersionFork
from engine.store.keys import ModelKeys
from engine.store.outbox import Outbox
from engine.store.reading import record
from engine.store.store import ModelStore
from engine.store.survey import Surveyed, survey


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


def homes_of(reader: Reader, models: Iterable[str]) -> dict[str, Partition]:
    """Return, by model, the partition of ``deletions`` in which its requests normally lie."""
    partitions = reader.partitions(topics.DELETIONS)
    if not partitions:
        raise LogUnavailable(f"topic {topics.DELETIONS} does not exist: `lethe work` creates it")
    return {m: partitions[partition_index(m.encode(), len(partitions))] for m in models}


def models_of(reader: Reader, models: Iterable[str], partitions: Iterable[Partition]) -> list[str]:
    """Return the models whose requests normally lie in these partitions of ``deletions``."""
    held = {partition.index for partition in partitions}
    return [model for model, home in homes_of(reader, models).items() if home.index in held]


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
            tail = range(start, stop)
            found = newest_event_of_each(reader, partition, tail, wanted, Version, _number)
            for version in found:
                known = newest.get(version.model_id)
                if known is None or version.version > known.version:
                    newest[version.model_id] = version
        if not more or reach >= FARTHEST:
            break
        reach = min(FARTHEST, 10 * reach)
    return newest


def _number(record: Record) -> int:
    """Return the number of the version in a record, without a look at the rest."""
    try:
        return int(json.loads(record.value or b"")["version"])
    except (KeyError, TypeError, RecursionError, OverflowError):
        raise ValueError("it is no version") from None


def parameter_tails(reader: Reader, models: Iterable[str]) -> dict[str, tuple[int, str]]:
    """Return version and digest of each model's *last* parameters event: compaction keeps it."""
    last: dict[str, tuple[int, str]] = {}
    for partition in reader.partitions(topics.MODELS):
        bounds = reader.bounds(partition)
        tail = range(Reach(TAIL).first(partition, bounds), bounds.end)
        events = newest_event_of_each(
            reader, partition, tail, set(models), Parameters, lambda record: record.offset
        )
        last |= {event.model_id: (event.version, event.digest) for event in events}
    return last


def marks_of(
    store: ModelStore, reader: Reader, models: Iterable[str]
) -> dict[str, Mapping[str, int]]:
    """Return, by model, the mark of its `homes_of`; empty where there is none."""
    homes = homes_of(reader, models)
    held = sorted({str(home) for home in homes.values()})
    marks = dict(zip(held, store.handover.marks(held), strict=True))
    return {name: marks[str(home)] for name, home in homes.items()}


def receipt_tails(reader: Reader, models: Iterable[str], reach: Reach) -> dict[str, Answered]:
    """Return, by model, what has receipts within ``reach``.

    A receipt names no incarnation of a topic. One of a record that the topic does not have is of
    an earlier one, which nobody has to decide any more.
    """
    found: dict[str, Answered] = {}
    offsets: dict[tuple[str, Place], set[int]] = {}
    for receipt in newest_events(reader, topics.RECEIPTS, set(models), Receipt, reach):
        found.setdefault(receipt.model_id, Answered()).add(receipt)
        place = (receipt.source.topic, receipt.source.partition)
        offsets.setdefault((receipt.model_id, place), set()).add(receipt.source.offset)
    # After the receipts: each of them was published when its record was there.
    held = {(p.topic, p.index): reader.bounds(p).end for p in reader.partitions(topics.DELETIONS)}
    for (model, place), answered in offsets.items():
        there = (offset for offset in answered if offset < held.get(place, 0))
        found[model].last[place] = max(there, default=-1)
    return found


def stranger_answers(
    store: ModelStore,
    reader: Reader,
    announced: Collection[str],
    partitions: Iterable[Partition],
    trusted: TrustedKeys | None = None,
) -> dict[str, list[Receipt]]:
    """Return, by model, what a store may lose of the receipts of models never registered.

    Their record in the store is small and is not compared with history: where a failover has lost
    it, the decider of these ``partitions`` takes these answers again (`consumers.decider`).
    """
    reach = Reach.behind(store.handover.marks([str(one) for one in partitions]))
    answers: dict[str, list[Receipt]] = {}
    others = _Others(announced)
    for receipt in newest_events(reader, topics.RECEIPTS, others, Receipt, reach, trusted):
        if receipt.code != "REQUEST_ID_CONFLICT":
            answers.setdefault(receipt.model_id, []).append(receipt)
    return answers


@dataclass(frozen=True)
class _Others:
    """All models but these."""

    known: Collection[str]

    def __contains__(self, model_id: object) -> bool:
        return model_id not in self.known


def lost_registrations(store: ModelStore, reader: Reader) -> dict[ModelKeys, LetheError]:
    """Return the models that were published and that the store has lost altogether.

    Looked at are the versions that a store with these marks can have lost, and models that an
    earlier takeover noted as halted.

    Their requests must not be answered UNKNOWN_MODEL. One that was registered a moment ago is no
    such model: what is published is read first.
    """
    noted = store.handover.halted()
    names = set(noted)
    homes = [str(home) for home in reader.partitions(topics.DELETIONS)]
    reach = Reach.behind(store.handover.marks(homes))
    reach = replace(reach, least=max(TAIL, reach.least))
    for partition in reader.partitions(topics.VERSIONS):
        bounds = reader.bounds(partition)
        tail = range(reach.first(partition, bounds), bounds.end)
        keys = {record.key for record in records_of(reader, partition, tail)}
        names |= {key.decode("utf-8", errors="replace") for key in keys if key}
    absent = [one for one in survey(store.client, sorted(names)) if one.version < 0]
    published = version_tails(reader, {one.model_id for one in absent} - noted)
    lost = [one for one in absent if one.model_id in published or one.model_id in noted]
    store.handover.note_halts([one.model_id for one in lost], ())
    return {
        one.keys: VersionFork(
            f"model {one.model_id!r}: it was published, and the store has lost it. Restore the "
            "store, or register the model again with --replace"
        )
        for one in lost
    }


def settle_models(
    store: ModelStore,
    reader: Reader,
    publisher: Publisher,
    models: Iterable[str],
    trusted: TrustedKeys | None = None,
) -> tuple[list[Message], dict[ModelKeys, Exception]]:
    """Finish what a former owner left, and compare state with history.

    Publishes what is committed and erases what is deleted; a state that lost writes is brought to
    where the log says that it was, with ``trusted`` keys to what these have signed. Else no state
    is loaded: a takeover takes a few round trips, however many models there are. One that reads
    for longer than a lease needs a reader that is attended (`consumers.attended`).

    Returns
    -------
    list of Message
        Parameters to publish again, where an older event was the last.
    dict
        The models that must halt, and why: also for a defect of ours, as where records are decided.
    """
    names = set(models)
    store.settle()  # a former owner may have ended between its steps 5 and 6
    # Before the store is read: else a version that is committed in between looks like a lost one.
    versions, parameters = version_tails(reader, names), parameter_tails(reader, names)
    # What halted a model may lie before any mark by now.
    known_halts = store.handover.halted().intersection(names)
    marks = marks_of(store, reader, names - known_halts)
    answered = receipt_tails(reader, marks, Reach.behind(marks.values()))
    if known_halts:
        answered |= receipt_tails(reader, known_halts, Reach(FARTHEST))
    found = survey(store.client, sorted(names))
    halted: dict[ModelKeys, Exception] = {}
    adopted: set[ModelKeys] = set()
    for one in found:
        published = versions.get(one.model_id)
        if one.fault is not None:
            halted[one.keys] = one.fault
            continue
        try:
            check_history(one, published, halted=one.model_id in known_halts)
            check_branch(one, published, answered.get(one.model_id), Outbox(store.client))
            if is_behind(one, published, answered.get(one.model_id), reader):
                reach = Reach.behind([marks.get(one.model_id, {})])
                adopt(store, reader, one.model_id, reach, trusted)
                adopted.add(one.keys)
        except TRANSIENT:
            raise
        except Exception as error:
            halted[one.keys] = error
    halts = {one.model_id for one in found if one.keys in halted}
    absent = {one.model_id for one in found if one.version < 0}  # see `lost_registrations`
    if halts - known_halts or known_halts - halts - absent:
        store.handover.note_halts(halts - known_halts, known_halts - halts - absent)
        store.settle()
    # Not before: the outbox of a state that forked from history must not reach the log.
    sound = [one for one in found if one.keys not in halted]
    halted |= publisher.publish(one.keys for one in sound if one.unpublished or one.keys in adopted)
    again = []
    for one in (one for one in sound if one.keys not in halted):
        try:
            if one.unerased or one.keys in adopted:
                store.eraser.erase(one.keys)
            last = parameters.get(one.model_id)
            stands = last is None or last[0] > one.version or last == (one.version, one.digest)
            if not stands:
                newest = newest_parameters(store.newest_parameters(one.keys))
                again += [] if newest is None else [newest]
        except CorruptState as error:
            halted[one.keys] = error
    if again:
        store.settle()  # what was read may be another's commit, which is not on disk yet
    return again, halted


def newest_parameters(stored: bytes | None) -> Message | None:
    """Return the stored parameters event as a message to publish again.

    A publisher that was stopped between reading the outbox and sending may send late, and then
    the last event of the topic, the one that compaction keeps, is an older one.
    """
    if stored is None:
        return None
    parameters = record(Parameters, stored, "the newest parameters event")
    headers = cloudevents.headers(
        MODEL_PARAMETERS, parameters.digest[:32], parameters.created_at, parameters.model_id
    )
    return Message(topics.MODELS, parameters.model_id.encode(), stored, headers)


def is_behind(
    stored: Surveyed, published: Version | None, answered: Answered | None, reader: Reader
) -> bool:
    """Return whether the log seems to have decisions of a model that the store has not."""
    if stored.version < 0:
        return False
    if published is not None and published.version > stored.version:
        return True
    if answered is None:
        return False
    return bool(stored.deferred & answered.finals.keys()) or any(
        answered.last.get((partition.topic, partition.index), -1)
        >= stored.offsets.get(str(partition), 0)
        for partition in reader.partitions(topics.DELETIONS)
    )
