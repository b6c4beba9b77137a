"""New sentinels, when deletions have taken half of them: the estimate needs a sample."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from engine.error import SENTINELS
from engine.objective import Kind
from engine.store.connection import reachable, text
from engine.store.keys import SHARDS
from engine.store.state import ModelState
from engine.store.store import ModelStore


def with_enough_sentinels(store: ModelStore, state: ModelState) -> ModelState:
    """Return the state with a new sample of live rows if it has lost half of the old one.

    The sample is the worker's own and is not stored: it only serves the estimate. Cost O(m' d)
    for m' sentinels, once in a while.
    """
    wanted = min(SENTINELS, state.meta.rows_live)
    if state.generation.objective.kind is Kind.LINEAR or 2 * len(state.sentinels.ids) >= wanted:
        return state
    live = state.generation_keys
    with reachable(store.client):
        pipeline = store.client.pipeline(transaction=False)
        for shard in range(SHARDS):
            pipeline.hrandfield(live.rows(shard), SENTINELS // SHARDS)
        answers: list[Any] = pipeline.execute()
    drawn = [text(row) for shard in answers for row in shard or ()]
    # A row that was deleted a moment ago may still have its record.
    gone = store.ledgered(state.keys, drawn)
    ids = sorted(set(drawn) - gone)
    return replace(state, sentinels=store.sentinels(live, state.meta, ids))
