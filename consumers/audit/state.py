"""The checks of an audit that ask the store: the state in Redis against what was published."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from lethe.consumers.audit.commit_checks import precedes
from lethe.consumers.audit.commits import CommitChain
from lethe.consumers.audit.finding import Faults, Finding, Result
from lethe.consumers.audit.history import CONFLICT, UNKNOWN_MODEL, History
from lethe.consumers.audit.verify import verify
from lethe.consumers.commits.receipt_index import kept_receipts
from lethe.consumers.subscriber.published import published_of
from lethe.engine.errors import CorruptState, LetheError, NotConverged, Unavailable, UnknownModel
from lethe.engine.merkle import leaf_hash, root_of
from lethe.engine.store.connection import reachable, text
from lethe.engine.store.state import Head, ModelState
from lethe.engine.store.store import ModelStore

_SCAN = 1000
_STATE_CHECKS = ("state: head", "state: deletions", "state: offsets", "state: receipts")


@dataclass(frozen=True, slots=True)
class StateStamp:
    """What says whether a state stood still while the log was read.

    Attributes
    ----------
    head
        The model's newest commit in the store.
    published
        The offset of its commits partition below which all of it is published.
    """

    head: Head
    published: int


def stamp_of(store: ModelStore, state: ModelState) -> StateStamp:
    """Return a state's newest commit, and how far its commits are published, as they are now."""
    heads, cursors = store.heads([state.model_id], state.keys.partition)
    head = heads.get(state.model_id, Head())
    if isinstance(head, CorruptState):
        raise head
    return StateStamp(head, cursors.of_model(state.model_id).published)


def state_findings(
    store: ModelStore,
    state: ModelState,
    history: History,
    chain: CommitChain,
    disturbed: str | None,
) -> Iterator[Finding]:
    """Yield what there is to say of the state; ``disturbed`` says why it cannot be compared."""
    if disturbed is not None:
        for name in _STATE_CHECKS:
            yield Finding.passed_over(name, disturbed)
        return
    yield _head(state, history, chain)
    yield _deletions(store, state, history)
    yield _offsets(state, history)
    yield _receipts(store, state, history)


def _head(state: ModelState, history: History, chain: CommitChain) -> Finding:
    """Compare the head with the newest commit and version, and theta with its digest."""
    faults, tip = Faults(), history.tip
    last = chain.last
    if last is not None and (last.number, last.digest) != (state.head.commit, state.head.digest):
        faults.add(
            f"the store holds commit {state.head.commit} ({state.head.digest[:12]}), the log ends "
            f"with commit {last.number} ({last.digest[:12]})"
        )
    if tip is None or (tip.event.version, tip.event.digest) != (state.version, state.digest):
        there = "nothing" if tip is None else f"version {tip.event.version}"
        faults.add(
            f"the store holds version {state.version} ({state.digest[:12]}), history ends with "
            f"{there}" + ("" if tip is None else f" ({tip.event.digest[:12]})")
        )
    elif state.registered:
        counts = state.meta.rows_live, state.meta.rows_deleted, state.meta.generation
        if counts != (tip.event.rows_live, tip.event.rows_deleted, tip.event.generation):
            faults.add(f"rows or generation are not those of version {state.version}")
        try:
            event, _ = published_of(state)
            if event.parameters_digest != tip.event.parameters_digest:
                faults.add(f"its parameters are not those of version {state.version}")
        except CorruptState as error:
            faults.add(str(error))
    kept = "theta with the digest it names" if state.registered else "no theta: it was unregistered"
    fine = f"commit {state.head.commit}; version {state.version} with its digest, and {kept}"
    return Finding.of("state: head", faults, fine)


def _deletions(store: ModelStore, state: ModelState, history: History) -> Finding:
    """Check that the ledger holds what versions deleted, and all that the list of deletions names.

    It holds more where requests named rows that a --replace had left out. The list begins with the
    live generation.
    """
    faults, rows = Faults(), _ledger(store, state)
    versions = Counter(rows.values())
    with reachable(store.client):
        listed: Any = store.client.lrange(state.keys.deletions, 0, -1)
    logged = state.deletions_from + len(listed)
    if not len(rows) == logged == state.meta.deletions_logged:
        faults.add(
            f"{len(rows)} rows in the ledger, {logged} in all lists of deletions, "
            f"{state.meta.deletions_logged} in the head: they must be the same"
        )
    strangers = {text(row) for row in listed} - rows.keys()
    if strangers or len(set(listed)) < len(listed):
        faults.add(
            f"the list of deletions has {len(strangers)} rows that the ledger lacks, or one twice"
        )
    if versions and max(versions) > state.version:
        faults.add(f"the ledger names version {max(versions)}, which is not there yet")
    for number, fact in sorted(history.versions.items()):
        before = history.versions.get(number - 1)
        if before is None:
            continue
        gone = fact.event.rows_deleted - before.event.rows_deleted
        if versions[number] < gone:
            faults.add(f"version {number} deleted {gone} rows, the ledger has {versions[number]}")
    left_out = len(rows) - state.meta.rows_deleted
    also = f", {left_out} of them left out by a --replace before" if left_out > 0 else ""
    return Finding.of("state: deletions", faults, f"{len(rows)} rows in the ledger{also}")


def _ledger(store: ModelStore, state: ModelState) -> dict[str, int]:
    """Return the ledger: row id to the version that deleted it. Cost O(deleted rows)."""
    found: dict[str, int] = {}
    cursor, page = 0, dict[bytes, bytes]()
    while True:
        with reachable(store.client):
            answer: Any = store.client.hscan(state.keys.ledger, cursor, count=_SCAN)
        cursor, page = answer
        found |= {text(row): int(version) for row, version in page.items()}
        if cursor == 0:
            return found


def _offsets(state: ModelState, history: History) -> Finding:
    """Check that nothing published as decided lies at or beyond the next offset to decide."""
    faults = Faults()
    reached: dict[int, int] = {}
    for name, offset in state.offsets.items():
        index = int(name.rpartition("/")[2])
        reached[index] = max(offset, reached.get(index, 0))
    decided: dict[int, int] = {}
    opening = None if state.opening is None else dict(state.opening)
    for receipt in history.receipts.values():
        if precedes(receipt, opening):
            continue  # the model was not there: its answer is no commit
        decided[receipt.source[1]] = max(receipt.source[2], decided.get(receipt.source[1], -1))
    for fact in history.versions.values():
        source = fact.event.source
        if source is not None:
            decided[source.partition] = max(source.last_offset, decided.get(source.partition, -1))
    for index, last in sorted(decided.items()):
        if reached.get(index, 0) <= last:
            faults.add(
                f"partition {index}: offset {last} was decided, the state goes on at "
                f"{reached.get(index, 0)}"
            )
    shown = ", ".join(f"{index}: {offset}" for index, offset in sorted(reached.items())) or "none"
    return Finding.of("state: offsets", faults, f"next to decide, by partition: {shown}")


def _receipts(store: ModelStore, state: ModelState, history: History) -> Finding:
    """Compare the final receipts of the state with those published, and with their own log."""
    name, faults = "state: receipts", Faults()
    pending: set[str] = set()
    places: dict[int, bytes] = {}
    try:
        for request, kept in kept_receipts(store, state.keys):
            if not kept.final:
                pending.add(request)
                continue
            leaf = leaf_hash(kept.receipt.value())
            if kept.place in places:
                faults.add(f"two receipts have place {kept.place} in the log of receipts")
            places[kept.place] = leaf
            if leaf not in history.receipts:
                faults.add(f"the final receipt of {request!r} is not in the log as it is kept")
    except CorruptState as error:
        return Finding(name, Result.FAILED, str(error))
    log = state.meta.receipt_log
    size = 0 if log is None else log.size
    leaves = [places[place] for place in range(size) if place in places]
    whole = len(leaves) == size == len(places)
    if log is None or not whole or root_of(leaves) != log.frontier().root:
        faults.add(f"{len(places)} final ones are not the {size} of the head's log of receipts")
    _published(state, history, set(places.values()), faults)
    if pending != state.deferred.keys():
        faults.add(f"{len(pending)} requests are deferred, {len(state.deferred)} of them wait")
    fine = f"{len(places)} final ones as published, {len(pending)} deferred"
    return Finding.of(name, faults, fine)


def _published(state: ModelState, history: History, kept: set[bytes], faults: Faults) -> None:
    """Note receipts that were published and are not kept: only those from before the model are."""
    opening = None if state.opening is None else dict(state.opening)
    for receipt in history.finals.values():
        outside = receipt.code in (CONFLICT, UNKNOWN_MODEL) or precedes(receipt, opening)
        if receipt.leaf not in kept and not outside:
            faults.add(f"the receipt of {receipt.request_id!r} was published and is not kept")


def bound_finding(store: ModelStore, model_id: str) -> Finding:
    """Refit on the live rows by other code: theta lies within the bound (`audit.verify`)."""
    try:
        found = verify(store, model_id)
    except NotConverged as error:
        return Finding.passed_over("bound", str(error))
    except Unavailable:
        raise
    except UnknownModel:
        return Finding.passed_over("bound", "the model was unregistered: it has no rows")
    except LetheError as error:
        return Finding("bound", Result.FAILED, str(error))
    origin = "published" if found.bound_from == "version" else "audited now"
    detail = (
        f"version {found.version} is {found.distance:.3g} from retraining on {found.rows_live} "
        f"rows, within {found.bound:.3g} ({origin}: {found.argument})"
    )
    if found.holds and found.certified:
        return Finding("bound", Result.OK, detail)
    return Finding("bound", Result.FAILED, detail.replace(", within", ", NOT within"))
