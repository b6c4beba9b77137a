"""The checks of an audit that ask the store: the state in Redis against what was published."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from consumers.audit.finding import Faults, Finding, Result
from consumers.audit.history import CONFLICT, UNKNOWN_MODEL, History
from consumers.audit.reading import requests_of
from consumers.published import published
from consumers.verify import verify
from engine.errors import CorruptState, LetheError, NotConverged, Unavailable
from engine.merkle import leaf_hash
from engine.store.connection import reachable
from engine.store.outbox import Outbox
from engine.store.state import ModelState
from engine.store.store import ModelStore

_SCAN = 1000
_STATE_CHECKS = ("state: head", "state: deletions", "state: offsets", "state: receipts")


@dataclass(frozen=True, slots=True)
class Moment:
    """What says whether a state stood still while the log was read."""

    commit_seq: int
    waiting: int


def moment_of(store: ModelStore, state: ModelState) -> Moment:
    """Return the state's commit, and how many of its messages are not yet published."""
    with reachable(store.client):
        seq = store.client.hget(state.keys.head, "commit_seq")
    return Moment(int(seq or 0), Outbox(store.client).depth([state.keys]))


def state_findings(
    store: ModelStore, state: ModelState, history: History, disturbed: str | None
) -> Iterator[Finding]:
    """Yield what there is to say of the state; ``disturbed`` says why it cannot be compared."""
    if disturbed is not None:
        for name in _STATE_CHECKS:
            yield Finding.passed_over(name, disturbed)
        return
    yield _head(store, state, history)
    yield _deletions(store, state, history)
    yield _offsets(state, history)
    yield _receipts(store, state, history)


def _head(store: ModelStore, state: ModelState, history: History) -> Finding:
    """Compare the head with the newest published version, and theta with its digest."""
    faults, tip = Faults(), history.tip
    if tip is None or (tip.event.version, tip.event.digest) != (state.version, state.digest):
        there = "nothing" if tip is None else f"version {tip.event.version}"
        faults.add(
            f"the store holds version {state.version} ({state.digest[:12]}), history ends with "
            f"{there}" + ("" if tip is None else f" ({tip.event.digest[:12]})")
        )
    else:
        counts = state.meta.rows_live, state.meta.rows_deleted, state.meta.generation
        if counts != (tip.event.rows_live, tip.event.rows_deleted, tip.event.generation):
            faults.add(f"rows or generation are not those of version {state.version}")
        try:
            event, _ = published(store, state.model_id)
            if event.parameters_digest != tip.event.parameters_digest:
                faults.add(f"its parameters are not those of version {state.version}")
        except CorruptState as error:
            faults.add(str(error))
    fine = f"version {state.version} with its digest, and theta with the digest it names"
    return Finding.of("state: head", faults, fine)


def _deletions(store: ModelStore, state: ModelState, history: History) -> Finding:
    """Check that ledger and list of deletions hold the same rows, and what versions deleted.

    They hold more where requests named rows that a --replace had left out.
    """
    faults = Faults()
    versions: Counter[int] = Counter()
    cursor, rows = 0, set()
    while True:
        found: Any
        with reachable(store.client):
            cursor, found = store.client.hscan(state.keys.ledger, cursor, count=_SCAN)
        for row, version in found.items():
            if row not in rows:
                rows.add(row)
                versions[int(version)] += 1
        if cursor == 0:
            break
    with reachable(store.client):
        listed = store.client.lrange(state.keys.deletions, 0, -1)
    if not len(rows) == len(listed) == state.meta.deletions_logged or rows != set(listed):
        faults.add(
            f"{len(rows)} rows in the ledger, {len(listed)} in the list of deletions, "
            f"{state.meta.deletions_logged} in the head: they must be the same"
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


def _offsets(state: ModelState, history: History) -> Finding:
    """Check that nothing published as decided lies at or beyond the next offset to decide."""
    faults = Faults()
    reached: dict[int, int] = {}
    for name, offset in state.offsets.items():
        index = int(name.rpartition("/")[2])
        reached[index] = max(offset, reached.get(index, 0))
    decided: dict[int, int] = {}
    for receipt in history.receipts.values():
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
    """Compare the final receipts of the state with those published, byte for byte."""
    faults, kept, pending = Faults(), set(), set()
    for request, (final, value) in requests_of(store, state.keys):
        if not final:
            pending.add(request)
            continue
        leaf = leaf_hash(value)
        kept.add(leaf)
        if leaf not in history.receipts:
            faults.add(f"the final receipt of {request!r} is not in the log")
    for receipt in history.finals.values():
        missing = receipt.leaf not in kept and receipt.code not in (CONFLICT, UNKNOWN_MODEL)
        if missing and not _before(receipt.completed_at, history):
            faults.add(f"the receipt of {receipt.request_id!r} was published and is not kept")
    waiting = state.deferred.keys() - state.answered
    if pending != waiting:
        faults.add(f"{len(pending)} requests are deferred, {len(waiting)} of them wait")
    fine = f"{len(kept)} final ones as published, {len(pending)} deferred"
    return Finding.of("state: receipts", faults, fine)


def _before(moment: datetime, history: History) -> bool:
    """Return whether it was before the model: receipts of then are not kept for ever."""
    first = history.versions.get(0)
    return first is not None and moment < first.event.created_at


def bound_finding(store: ModelStore, model_id: str) -> Finding:
    """Refit on the live rows by other code: theta lies within the bound (`consumers.verify`)."""
    try:
        found = verify(store, model_id)
    except NotConverged as error:
        return Finding.passed_over("bound", str(error))
    except Unavailable:
        raise
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
