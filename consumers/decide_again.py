"""Deciding lost records again, as they were decided the first time (docs/commit.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from consumers.decide import Accepted, compute, decide, rows_named, source_of
from consumers.deletion_transition import deletion_transition
from consumers.log.base import Reader
from consumers.lost_batches import Batch
from consumers.lost_history import Lost, items_of, request_of
from consumers.transition import Transition
from consumers.validate import Refused, Valid
from engine.store.state import ModelState
from engine.store.store import ModelStore


def decide_again(
    store: ModelStore, reader: Reader, lost: Lost, state: ModelState, batch: Batch
) -> Transition:
    """Return what the records of one commit come to, by the functions that decided them first.

    A request that had to wait for a rebuild then waits now, although it perhaps need not: what came
    after it went on without its rows, and may have another number for the version without them.
    """
    there = items_of(reader, batch.partition, batch.offsets, state.model_id)
    items = [_as_refused(lost, item) for item in lost.answered(there)]
    named = [item.request.subject_id for item in items if isinstance(item, Valid)]
    subjects = store.subjects(state, [name for name in named if name is not None])
    requests = [name for item in items if (name := request_of(item)[1]) is not None]
    lookup = store.look_up(state, requests, rows_named(items, subjects))
    decided = compute(state, decide(state, items, lookup, subjects), lookup)
    told = _had_to_wait(lost, items)
    if any(isinstance(d, Accepted) and d.request_id in told for d in decided.decisions):
        decided = compute(state, decide(state, items, lookup, subjects, told), lookup)
    return deletion_transition(
        state,
        decided,
        [item for item in items if isinstance(item, Refused)],
        replace(batch.origin, published=lost.same_decision),
        now=batch.at,
    )


def _had_to_wait(lost: Lost, items: Sequence[Valid | Refused]) -> frozenset[str]:
    """Return the requests that had to wait for a rebuild."""
    return frozenset(
        item.request.request_id
        for item in items
        if isinstance(item, Valid)
        and lost.had_to_wait(item.request.request_id, source_of(item.record))
    )


def _as_refused(lost: Lost, item: Valid | Refused) -> Valid | Refused:
    """Return a request that was refused for what the model was then as one that is refused.

    It was not registered yet, or had other rows: the answer stands, whatever it is now.
    """
    if isinstance(item, Refused):
        return item
    code = lost.refusal(item.request.request_id, source_of(item.record))
    if code is None:
        return item
    request = item.request
    return Refused(
        item.record,
        code,
        "",
        request.model_id,
        request.request_id,
        item.body,
        dead_letter=False,
    )
