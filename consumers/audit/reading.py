"""Reading what an audit judges: a model's records in the log, and what the state has kept."""

from __future__ import annotations

from collections.abc import Iterator

from lethe.consumers.audit.published.bundle import STORED
from lethe.consumers.audit.published.history import History
from lethe.consumers.commits.receipt_index import kept_receipts
from lethe.consumers.contract import topics
from lethe.consumers.contract.events import Parameters
from lethe.consumers.log.base import Partition, Reader, Record
from lethe.consumers.log.scan import Extent, scan_extent
from lethe.consumers.service.telemetry.progress import Progress, no_progress
from lethe.consumers.subscriber.published import published_of
from lethe.engine.errors import CorruptState
from lethe.engine.merkle import leaf_hash
from lethe.engine.store.layout.reading import integer
from lethe.engine.store.layout.state import ModelState
from lethe.engine.store.server.connection import reachable, text
from lethe.engine.store.store import ModelStore

_SCAN = 1000  # rows of the ledger that one round trip asks for


def records_of_model(
    reader: Reader, model_id: str, extent: Extent, progress: Progress = no_progress
) -> Iterator[Record]:
    """Yield a model's records, topic by topic, in the order of the log. Cost O(all records)."""
    key = model_id.encode()
    return (record for record in scan_extent(reader, extent, progress) if record.key == key)


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


def ledger_of(store: ModelStore, state: ModelState) -> Iterator[tuple[str, int]]:
    """Yield the rows of the ledger, each with the version that deleted it. Cost O(deleted rows).

    A row may come twice.

    Raises
    ------
    CorruptState
        A row or a version cannot be read.
    """
    what = f"model {state.model_id}'s ledger"
    with reachable(store.client):
        for row, version in store.client.hscan_iter(state.keys.ledger, count=_SCAN):
            yield text(row), integer(version, what)
