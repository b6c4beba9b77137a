"""Reading what an audit judges: a model's records from the log, and what the state has kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from consumers import topics
from consumers.audit.bundle import STORED
from consumers.audit.history import History
from consumers.events import Parameters
from consumers.log.base import Bounds, Partition, Reader, Record
from consumers.progress import Progress, unseen
from engine.errors import BrokenChain
from engine.merkle import leaf_hash
from engine.store.connection import reachable, text
from engine.store.keys import ModelKeys
from engine.store.receipts import open_receipt
from engine.store.store import ModelStore

TOPICS = (topics.VERSIONS, topics.RECEIPTS, topics.MODELS)

_READ_SECONDS = 5.0
_READ_RECORDS = 1000
_SCAN = 1000


@dataclass
class Extent:
    """How far the log was read, so that it can be read again to the same place."""

    bounds: dict[Partition, Bounds] = field(default_factory=dict)

    @property
    def receipts_begin(self) -> dict[int, int]:
        """First offsets of the receipts topic."""
        return {p.index: b.begin for p, b in self.bounds.items() if p.topic == topics.RECEIPTS}


def extent_of(reader: Reader, names: Sequence[str] = TOPICS) -> Extent:
    """Return what the topics of a history hold now."""
    found = Extent()
    for topic in names:
        for partition in reader.partitions(topic):
            found.bounds[partition] = reader.bounds(partition)
    return found


def records_of_model(
    reader: Reader, model_id: str, extent: Extent, progress: Progress = unseen
) -> Iterator[Record]:
    """Yield a model's records, topic by topic, in the order of the log. Cost O(all records)."""
    key = model_id.encode()
    for partition, bounds in extent.bounds.items():
        offset = bounds.begin
        while offset < bounds.end:
            progress(f"reading {partition.topic}", offset - bounds.begin, bounds.end - bounds.begin)
            records, onward = reader.read(partition, offset, _READ_SECONDS, _READ_RECORDS)
            for record in records:
                if record.key == key and record.offset < bounds.end:
                    yield record
            if onward == offset:
                raise BrokenChain(
                    f"{partition.topic}/{partition.index} gives nothing at offset {offset}, and "
                    f"says that it ends at {bounds.end}; it cannot be audited"
                )
            offset = onward


def for_export(
    reader: Reader, store: ModelStore, history: History, extent: Extent
) -> Iterator[Record]:
    """Yield the records of a bundle: versions, receipts, the newest parameters.

    Receipts that the log has removed by their age come from the state, and so do parameters that
    the topic does not hold.
    """
    model_id, newest = history.model_id, None
    for record in records_of_model(reader, model_id, extent):
        if record.partition.topic == topics.MODELS:
            newest = record if _is_newest(record, history) else newest
        else:
            yield record
    yield from stored_receipts(store, model_id, history)
    if newest is None:
        newest = stored_parameters(store, model_id)
    if newest is not None:
        yield newest


def _is_newest(record: Record, history: History) -> bool:
    tip = history.tip
    try:
        event = Parameters.model_validate_json(record.value or b"")
    except ValueError:
        return False
    return tip is not None and event.digest == tip.event.digest


def stored_receipts(store: ModelStore, model_id: str, history: History) -> Iterator[Record]:
    """Yield the final receipts that the state keeps and the log has not, as records of no place."""
    seen: set[bytes] = set()
    for _, (final, value) in requests_of(store, ModelKeys.of_model(model_id)):
        leaf = leaf_hash(value)
        known = history.receipts.get(leaf)
        if final and leaf not in seen and (known is None or known.partition == STORED):
            seen.add(leaf)
            yield _kept(topics.RECEIPTS, model_id, value)


def stored_parameters(store: ModelStore, model_id: str) -> Record | None:
    """Return the newest parameters event of the state."""
    value = store.newest_parameters(ModelKeys.of_model(model_id))
    return None if value is None else _kept(topics.MODELS, model_id, value)


def _kept(topic: str, model_id: str, value: bytes) -> Record:
    return Record(Partition(topic, "", STORED), STORED, model_id.encode(), value)


def requests_of(store: ModelStore, keys: ModelKeys) -> Iterator[tuple[str, tuple[bool, bytes]]]:
    """Yield request ids, whether their receipts are final, and these as they were published.

    Raises
    ------
    CorruptState
        What is stored is no receipt.
    """
    cursor = 0
    while True:
        with reachable(store.client):
            found: Any
            cursor, found = store.client.hscan(keys.requests, cursor, count=_SCAN)
        for request, stored in found.items():
            name = text(request)
            kept = open_receipt(text(stored), f"request {name!r}")
            yield name, (kept.final, kept.receipt.encode())
        if cursor == 0:
            return
