"""Reading what an audit judges: a model's records in the log, and what the state has kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from lethe.consumers.audit.bundle import STORED
from lethe.consumers.audit.history import History
from lethe.consumers.commits.receipt_index import kept_receipts
from lethe.consumers.contract import topics
from lethe.consumers.contract.events import Parameters
from lethe.consumers.log.base import Bounds, Partition, Reader, Record
from lethe.consumers.service.progress import Progress, no_progress
from lethe.consumers.subscriber.published import published_of
from lethe.engine.errors import BrokenChain, CorruptState
from lethe.engine.merkle import leaf_hash
from lethe.engine.store.keys import commit_partition
from lethe.engine.store.state import ModelState
from lethe.engine.store.store import ModelStore

_READ_SECONDS = 5.0
_READ_RECORDS = 1000


@dataclass
class Extent:
    """How far the log was read, so that it can be read again to the same place."""

    bounds: dict[Partition, Bounds] = field(default_factory=dict)

    @property
    def receipts_begin(self) -> dict[int, int]:
        """First offsets of the receipts topic."""
        return {p.index: b.begin for p, b in self.bounds.items() if p.topic == topics.RECEIPTS}


def extent_of(reader: Reader, names: Sequence[str] = ()) -> Extent:
    """Return the current extent of some topics; without names, of those that hold a history."""
    extent = Extent()
    for topic in names or (topics.VERSIONS, topics.RECEIPTS, topics.MODELS):
        for partition in reader.partitions(topic):
            extent.bounds[partition] = reader.bounds(partition)
    return extent


def home_of(reader: Reader, model_id: str) -> Extent:
    """Return the current extent of the partition that holds a model's commits."""
    index, extent = commit_partition(model_id), Extent()
    for partition in reader.partitions(topics.COMMITS):
        if partition.index == index:
            extent.bounds[partition] = reader.bounds(partition)
    return extent


def records_of_model(
    reader: Reader, model_id: str, extent: Extent, progress: Progress = no_progress
) -> Iterator[Record]:
    """Yield a model's records, topic by topic, in the order of the log. Cost O(all records)."""
    key = model_id.encode()
    return (record for record in records_in(reader, extent, progress) if record.key == key)


def records_in(
    reader: Reader, extent: Extent, progress: Progress = no_progress
) -> Iterator[Record]:
    """Yield all records, partition by partition."""
    for partition, bounds in extent.bounds.items():
        offset = bounds.begin
        while offset < bounds.end:
            progress(f"reading {partition.topic}", offset - bounds.begin, bounds.end - bounds.begin)
            records, onward = reader.read(partition, offset, _READ_SECONDS, _READ_RECORDS)
            for record in records:
                if record.offset < bounds.end:
                    yield record
            if onward == offset:
                raise BrokenChain(
                    f"{partition.topic}/{partition.index} returns nothing at offset {offset}, "
                    f"although it ends at {bounds.end}; it cannot be audited"
                )
            offset = onward


def for_export(
    reader: Reader, store: ModelStore, state: ModelState | None, history: History, extent: Extent
) -> Iterator[Record]:
    """Yield the records of a bundle: versions, receipts, the newest parameters.

    Receipts that have expired from the log come from the state, and so do parameters that the topic
    does not hold.
    """
    newest = None
    for record in records_of_model(reader, history.model_id, extent):
        if record.partition.topic == topics.MODELS:
            newest = record if _is_newest(record, history) else newest
        else:
            yield record
    if state is not None:
        yield from stored_receipts(store, state, history)
        newest = newest or stored_parameters(state)
    if newest is not None:
        yield newest


def _is_newest(record: Record, history: History) -> bool:
    tip = history.tip
    try:
        event = Parameters.model_validate_json(record.value or b"")
    except ValueError:
        return False
    return tip is not None and event.digest == tip.event.digest


def stored_receipts(store: ModelStore, state: ModelState, history: History) -> Iterator[Record]:
    """Yield the final receipts that the state keeps and the log lacks, as records without a place.

    A stored receipt that cannot be read ends them; the check `state: receipts` reports it.
    """
    try:
        for _, indexed in kept_receipts(store, state.keys):
            value = indexed.receipt.value()
            known = history.receipts.get(leaf_hash(value))
            if indexed.final and (known is None or known.partition == STORED):
                yield _stored_record(topics.RECEIPTS, state.model_id, value)
    except CorruptState:
        return


def stored_parameters(state: ModelState) -> Record | None:
    """Return the newest parameters event of the state; None if it has none that can be trusted."""
    try:
        event, _ = published_of(state)
    except CorruptState:
        return None
    return _stored_record(topics.MODELS, state.model_id, event.value())


def _stored_record(topic: str, model_id: str, value: bytes) -> Record:
    return Record(Partition(topic, "", STORED), STORED, model_id.encode(), value)
