"""The checks of an audit that need the store: the state in Redis against what was published."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from lethe.consumers.audit.commit_checks import precedes
from lethe.consumers.audit.commits import CommitChain
from lethe.consumers.audit.published.finding import Faults, Finding, Result
from lethe.consumers.audit.published.history import UNKNOWN_MODEL, History
from lethe.consumers.audit.reading import ledger_of
from lethe.consumers.commits.receipt_index import kept_receipts
from lethe.consumers.contract.codes import REQUEST_ID_CONFLICT
from lethe.consumers.subscriber.published import published_of
from lethe.engine.errors import CorruptState
from lethe.engine.merkle import leaf_hash, root_of
from lethe.engine.store.layout.state import Head, ModelState
from lethe.engine.store.lookup import read_heads
from lethe.engine.store.server.connection import reachable, text
from lethe.engine.store.store import ModelStore


@dataclass(frozen=True, slots=True)
class StateStamp:
    """Shows whether a state stood still while the log was read.

    Attributes
    ----------
    head
        The model's newest commit in the store.
    published
        The offset of its commits partition below which everything is published.
    """

    head: Head
    published: int


def stamp_of(store: ModelStore, state: ModelState) -> StateStamp:
    """Return a state's newest commit, and how far its commits are published, as they are now."""
    heads, cursors = read_heads(store.client, [state.model_id], state.keys.partition)
    head = heads.get(state.model_id, Head())
    if isinstance(head, CorruptState):
        raise head
    return StateStamp(head, cursors.of_model(state.model_id).published)


def state_findings(
    store: ModelStore, state: ModelState, history: History, chain: CommitChain
) -> list[Finding]:
    """Return the findings on a state, which must stand still meanwhile."""
    return [
        _head(state, history, chain),
        _deletions(store, state, history),
        _offsets(state, history),
        _receipts(store, state, history),
    ]


def _head(state: ModelState, history: History, chain: CommitChain) -> Finding:
    """Compare the head with the newest commit and version, and theta with its digest."""
    faults, tip = Faults(), history.tip
    last = chain.last
    if last is not None and (last.number, last.digest) != (state.head.commit, state.head.digest):
        faults.add(
            f"the store holds commit {state.head.commit} ({state.head.digest[:12]}), but the log "
            f"ends with commit {last.number} ({last.digest[:12]})"
        )
    if tip is None or (tip.event.version, tip.event.digest) != (state.version, state.digest):
        end = "is empty"
        if tip is not None:
            end = f"ends with version {tip.event.version} ({tip.event.digest[:12]})"
        faults.add(
            f"the store holds version {state.version} ({state.digest[:12]}), but history {end}"
        )
    elif state.registered:
        counts = state.meta.rows_live, state.meta.rows_deleted, state.meta.generation
        if counts != (tip.event.rows_live, tip.event.rows_deleted, tip.event.generation):
            faults.add(f"its row counts or generation are not those of version {state.version}")
        try:
            event, _ = published_of(state)
            if event.parameters_digest != tip.event.parameters_digest:
                faults.add(f"its parameters are not those of version {state.version}")
        except CorruptState as error:
            faults.add(str(error))
    theta = "its theta match their digests" if state.registered else "no theta: it was unregistered"
    fine = f"commit {state.head.commit}; version {state.version} and {theta}"
    return Finding.of("state: head", faults, fine)


def _deletions(store: ModelStore, state: ModelState, history: History) -> Finding:
    """Check that the ledger holds what versions deleted and what the list of deletions names.

    It holds more where requests named rows that a --replace had left out. The list begins with the
    live generation.
    """
    name, faults = "state: deletions", Faults()
    with reachable(store.client):
        page: Any = store.client.lrange(state.keys.deletions, 0, -1)
    try:
        rows, listed = dict(ledger_of(store, state)), [text(row) for row in page]
    except CorruptState as error:
        return Finding(name, Result.FAILED, str(error))
    versions = Counter(rows.values())
    logged = state.deletions_from + len(listed)
    if not len(rows) == logged == state.meta.deletions_logged:
        faults.add(
            f"{len(rows)} rows in the ledger, {logged} in all lists of deletions, "
            f"{state.meta.deletions_logged} in the head: these must be equal"
        )
    unlisted = set(listed) - rows.keys()
    if unlisted or len(set(listed)) < len(listed):
        faults.add(
            f"the list of deletions has {len(unlisted)} rows that the ledger lacks, or a row twice"
        )
    if versions and max(versions) > state.version:
        faults.add(f"the ledger names version {max(versions)}, which does not exist yet")
    for number, fact in sorted(history.versions.items()):
        before = history.versions.get(number - 1)
        if before is None:
            continue
        gone = fact.event.rows_deleted - before.event.rows_deleted
        if versions[number] < gone:
            faults.add(
                f"version {number} deleted {gone} rows, but the ledger has {versions[number]}"
            )
    left_out = len(rows) - state.meta.rows_deleted
    also = f", {left_out} of them left out by an earlier --replace" if left_out > 0 else ""
    return Finding.of(name, faults, f"{len(rows)} rows in the ledger{also}")


def _offsets(state: ModelState, history: History) -> Finding:
    """Check that no request with a published outcome lies at or beyond the next offset."""
    faults = Faults()
    reached: dict[int, int] = {}
    for name, offset in state.offsets.items():
        index = int(name.rpartition("/")[2])
        reached[index] = max(offset, reached.get(index, 0))
    answered: dict[int, int] = {}
    opening = None if state.opening is None else dict(state.opening)
    for receipt in history.receipts.values():
        if precedes(receipt, opening):
            continue  # the model did not exist: no commit answered it
        index, offset = receipt.source[1:]
        answered[index] = max(offset, answered.get(index, -1))
    for fact in history.versions.values():
        source = fact.event.source
        if source is not None:
            last = max(source.last_offset, answered.get(source.partition, -1))
            answered[source.partition] = last
    for index, last in sorted(answered.items()):
        if reached.get(index, 0) <= last:
            faults.add(
                f"partition {index}: offset {last} was answered, but the state continues at "
                f"{reached.get(index, 0)}"
            )
    shown = ", ".join(f"{index}: {offset}" for index, offset in sorted(reached.items())) or "none"
    return Finding.of("state: offsets", faults, f"next to process, by partition: {shown}")


def _receipts(store: ModelStore, state: ModelState, history: History) -> Finding:
    """Compare the final receipts of the state with those published, and with the receipt log."""
    name, faults = "state: receipts", Faults()
    pending: set[str] = set()
    places: dict[int, bytes] = {}
    try:
        for request, indexed in kept_receipts(store, state.keys):
            if not indexed.final:
                pending.add(request)
                continue
            leaf = leaf_hash(indexed.receipt.value())
            if indexed.place in places:
                faults.add(f"two receipts have place {indexed.place} in the receipt log")
            places[indexed.place] = leaf
            if leaf not in history.receipts:
                faults.add(f"the final receipt of {request!r} was not published as it is stored")
    except CorruptState as error:
        return Finding(name, Result.FAILED, str(error))
    log = state.meta.receipt_log
    size = 0 if log is None else log.size
    leaves = [places[place] for place in range(size) if place in places]
    complete = len(leaves) == size == len(places)
    if log is None or not complete or root_of(leaves) != log.frontier().root:
        faults.add(
            f"the state has {len(places)} final receipts, which do not form the head's receipt "
            f"log of {size}"
        )
    _published(state, history, set(places.values()), faults)
    if pending != state.deferred.keys():
        faults.add(
            f"{len(pending)} requests have a receipt that defers them, {len(state.deferred)} wait "
            "for a rebuild"
        )
    fine = f"{len(places)} final receipts as published, {len(pending)} deferred"
    return Finding.of(name, faults, fine)


def _published(state: ModelState, history: History, stored: set[bytes], faults: Faults) -> None:
    """Report published receipts that are not stored, unless they precede the model."""
    opening = None if state.opening is None else dict(state.opening)
    for receipt in history.finals.values():
        outside = receipt.code in (REQUEST_ID_CONFLICT, UNKNOWN_MODEL) or precedes(receipt, opening)
        if receipt.leaf not in stored and not outside:
            faults.add(f"the receipt of {receipt.request_id!r} was published but is not stored")
