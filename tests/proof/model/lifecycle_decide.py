"""What a worker decides about a request of one model (3.2 step 4), from what its fold saw."""

from __future__ import annotations

from tests.proof.model.lifecycle_state import (
    Bounds,
    History,
    Meaning,
    Result,
    State,
    Worker,
    row_of,
)

_KINDS = {"d": "delete", "i": "insert", "c": "correct"}


def decidable(bounds: Bounds, state: State) -> list[str | Result]:
    """Return every request there is: those of the bounds, and completed events."""
    events = sorted(state.completed, key=lambda result: (result.job, result.base))
    return [*bounds.requests, *events]


def decide(history: History, worker: Worker, request: str | Result, attempt: int) -> int | None:
    """Make the record that decides a request, at the worker's head; None: nothing to do."""
    head = worker.head
    meaning = history.meaning(head)
    if request in dict(meaning.outcomes):
        return None
    if isinstance(request, Result):
        return _decide_result(history, worker, request, attempt)
    if worker.lost:
        return None
    kind, orders = _kind(worker, meaning, request), None
    if history.of_others(meaning) and request not in meaning.deferred:
        kind = "reject"
    if kind == "defer":
        orders = attempt if meaning.job is None and history.rules.deferral_orders else None
        if request in meaning.deferred and orders is None:
            return None
    return history.append(head, kind, request=request, orders=orders, attempt=attempt)


def _kind(worker: Worker, meaning: Meaning, request: str) -> str:
    """Return what becomes of a request for a model whose data are there."""
    row = row_of(request)
    known = any(each.id == row for each in meaning.live)
    refused = {
        "d": False,
        "u": False,
        "i": known or row in meaning.ledger,
        "c": not known or row in meaning.ledger,
    }
    if not meaning.registered or refused[request[0]]:
        return "reject"
    if request[0] == "u":
        return "unregister"
    return "defer" if worker.awaiting else _KINDS[request[0]]


def _decide_result(history: History, worker: Worker, result: Result, attempt: int) -> int | None:
    """Swap a result in, drop it, or end its job and order another."""
    rules, head = history.rules, worker.head
    meaning = history.meaning(head)
    if not meaning.registered:
        return history.append(head, "reject", request=result, attempt=attempt)
    pending = meaning.job == result.job
    if rules.result_of_registration and result.base not in history.since_registration(head):
        if pending and rules.missing_result_ends_job:
            return history.append(head, "gone", orders=attempt, request=result, attempt=attempt)
        return history.append(head, "reject", request=result, attempt=attempt)
    if result in worker.staged:
        return history.append(head, "swap", request=result, attempt=attempt)
    if rules.missing_result_ends_job:
        orders = attempt if pending or meaning.job is None else meaning.job
        return history.append(head, "gone", orders=orders, request=result, attempt=attempt)
    return history.append(head, "reject", request=result, attempt=attempt)
