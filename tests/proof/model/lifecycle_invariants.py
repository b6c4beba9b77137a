"""What must be true of every state of the lifecycle model."""

from __future__ import annotations

from tests.proof.model.checker import Broken
from tests.proof.model.lifecycle_decide import decidable, decide
from tests.proof.model.lifecycle_state import (
    Bounds,
    History,
    Refresh,
    Result,
    State,
    Store,
    Worker,
    row_of,
)
from tests.proof.model.lifecycle_store import fold

_TURNS = 60


def check(history: History, bounds: Bounds, state: State) -> None:
    """Raise `Broken` if a promise does not hold."""
    head, _ = history.accepted(state.log)
    meaning = history.meaning(head)
    deleted = {row_of(request) for request, kind in meaning.outcomes if kind == "delete"}
    for row in sorted(meaning.live):
        if row.id in deleted:
            raise Broken(f"row {row.id} was deleted and is live after {history.name(head)}")
    for digest in history.chain(head):
        record = history[digest]
        if record.kind == "delete" and history.of_others(history.meaning(record.prev)):
            raise Broken(f"{history.name(digest)} deletes another person's row")
    requests = [request for request, _ in meaning.outcomes]
    if len(requests) != len(set(requests)):
        raise Broken(f"two outcomes: {meaning.outcomes}")
    _check_folded(history, state, "store", state.store)
    if state.backup is not None:
        _check_folded(history, state, "backup", state.backup)
    if bounds.store_intact and (state.store.awaiting or state.store.lost):
        raise Broken("the store lost nothing, and says that rows are missing")
    _check_settles(history, bounds, state)


def _check_folded(history: History, state: State, who: str, store: Store) -> None:
    """If everybody died now: what would a fold make of this store?"""
    head, _ = history.accepted(state.log)
    meaning = history.meaning(head)
    live = meaning.live
    folded = fold(history, state.log, store, state.expired)
    where = f"after a fold of the {who}"
    if folded.head != head:
        raise Broken(f"{where} the head is {history.name(folded.head)}, not {history.name(head)}")
    if folded.ledger != meaning.ledger:
        raise Broken(f"{where} the ledger is {sorted(folded.ledger)}, not {sorted(meaning.ledger)}")
    missing = {request for request, _ in meaning.outcomes} - folded.decided
    if missing:
        raise Broken(f"{where} the index lacks {sorted(map(str, missing))}")
    if folded.lost:
        if live <= folded.records:
            raise Broken(f"{where} DATA_LOST stays although every live row is there")
        return
    if not live <= folded.records:
        raise Broken(f"{where} a live row is lost in silence")
    if folded.records - live:
        raise Broken(f"{where} features of dead rows stay: {sorted(folded.records - live)}")
    if meaning.registered and not folded.awaiting and folded.arrays != live:
        raise Broken(
            f"{where} the arrays are of {sorted(folded.arrays or ())}, live is {sorted(live)}, "
            "and nothing says so"
        )


def _check_settles(history: History, bounds: Bounds, state: State) -> None:
    """Without more faults, one worker and a refresh worker decide everything."""
    log, store, refresh, completed = state.log, state.store, state.refresh, state.completed
    for turn in range(_TURNS):
        store = fold(history, log, store, state.expired)
        if store.lost:
            return
        if refresh is not None:
            store = store._replace(staged=store.staged | {refresh.result})
            completed, refresh = completed | {refresh.result}, None
        worker = Worker(store.head, store.awaiting, store.lost, store.staged)
        now = state._replace(completed=completed)
        appended = _first_decision(history, bounds, now, worker, 1000 + turn)
        if appended is not None:
            log = (*log, appended)
            continue
        meaning = history.meaning(store.head)
        job, settled = meaning.job, dict(meaning.outcomes)
        if job is not None and meaning.registered:
            if any(result.job == job for result in completed):
                raise Broken(f"job J{job} stays pending for ever")
            refresh = Refresh(staged=True, result=Result(job, store.head, meaning.live))
            continue
        open_requests = [request for request in bounds.requests if request not in settled]
        if open_requests:
            raise Broken(
                f"never decided: {open_requests}; awaiting={store.awaiting}, "
                f"deferred {sorted(map(str, meaning.deferred))}"
            )
        return
    raise Broken("does not settle")


def _first_decision(
    history: History, bounds: Bounds, state: State, worker: Worker, attempt: int
) -> int | None:
    for request in decidable(bounds, state):
        digest = decide(history, worker, request, attempt)
        if digest is not None:
            return digest
    return None
