"""New sentinels, when deletions have taken half of them: the estimate needs a sample."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from lethe.engine.error.estimate import SENTINELS, Sentinels, choose_sentinels, possible_parts
from lethe.engine.fit.objective import Kind, Rows
from lethe.engine.store.connection import reachable, text
from lethe.engine.store.generation import Sampled
from lethe.engine.store.keys import SHARDS
from lethe.engine.store.state import ModelState
from lethe.engine.store.store import ModelStore

_POOL = 4 * SENTINELS
"""Rows that are read: what a row can add is known only from its record."""


def with_enough_sentinels(store: ModelStore, state: ModelState) -> ModelState:
    """Return the state with a new sample of live rows if it has lost half of the old one.

    Two phases: a pool of live rows is drawn uniformly, and the sentinels from the pool, by what
    each can add; the chance of a row is the product. Rows that were sentinels for certain stay so,
    as long as they are live: they are few, can add most, and the pool may miss them.

    The sample is the worker's own and is not stored: it only serves the estimate. Cost O(m' d)
    for m' sentinels, once in a while.
    """
    wanted = min(SENTINELS, state.meta.rows_live)
    if state.generation.objective.kind is Kind.LINEAR or 2 * len(state.sentinels.ids) >= wanted:
        return state
    certain = _certain(state.sentinels)
    certain_ids = frozenset(certain.ids)
    ids = sorted(row for row in _drawn(store, state) if row not in certain_ids)
    pool = store.sentinels(state.generation_keys, state.meta, Sampled(tuple(ids)))
    others = max(state.meta.rows_live - len(certain_ids), 1)
    pool_chance = min(1.0, len(pool.ids) / others)
    parts = possible_parts(state.generation, pool.rows, pool.W)
    places, pi = choose_sentinels(parts, state.head.commit, most=SENTINELS - len(certain_ids))
    chosen = Sentinels(
        tuple(pool.ids[i] for i in places), pool.rows.take(places), pool.W[places], pool_chance * pi
    )
    return replace(state, sentinels=_together(certain, chosen))


def _certain(sentinels: Sentinels) -> Sentinels:
    """Return the sentinels that were taken for certain, or none if all were."""
    pi = sentinels.pi
    if pi is None or (pi >= 1.0).all():
        return Sentinels((), sentinels.rows.take(slice(0, 0)), sentinels.W[:0])
    return sentinels.without(frozenset(np.array(sentinels.ids)[pi < 1.0]))


def _drawn(store: ModelStore, state: ModelState) -> list[str]:
    """Return live rows, about as many from each shard: ids fall into shards at random."""
    live = state.generation_keys
    with reachable(store.client):
        pipeline = store.client.pipeline(transaction=False)
        for shard in range(SHARDS):
            pipeline.hrandfield(live.rows(shard), _POOL // SHARDS)
        answers: list[Any] = pipeline.execute()
    drawn = [text(row) for shard in answers for row in shard or ()]
    # A row that was just deleted may still have its record.
    gone = store.ledgered(state.keys, drawn)
    return sorted(set(drawn) - gone)


def _together(certain: Sentinels, others: Sentinels) -> Sentinels:
    pi = np.concatenate([np.ones(len(certain.ids)), others.chances(0)])
    first, second = certain.rows, others.rows
    rows = Rows(
        np.vstack([first.X, second.X]),
        np.vstack([first.y, second.y]),
        np.concatenate([first.weight, second.weight]),
    )
    return Sentinels(certain.ids + others.ids, rows, np.vstack([certain.W, others.W]), pi)
