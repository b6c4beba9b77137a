"""Reading live rows: all of them, for refreshes and checks, or a new sample, for the estimate.

The worker keeps committing while a `Snapshot` is read. Rows are read first and the state
afterwards, with all rows that were ever changed in its generation: the other records are constant.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lethe.engine.error.sentinels import SENTINELS, Sentinels, choose_sentinels, possible_parts
from lethe.engine.errors import CorruptState, RowsMissing
from lethe.engine.fit.factor import Factor
from lethe.engine.fit.objective import Array, Kind, Rows
from lethe.engine.preprocess.input.table import Table
from lethe.engine.store.generation import Sampled, read_factor
from lethe.engine.store.layout.keys import SHARDS
from lethe.engine.store.layout.state import ModelState
from lethe.engine.store.layout.stored_rows import read_rows
from lethe.engine.store.offline.touched import rows_touched_now
from lethe.engine.store.row_files import as_stored, packed
from lethe.engine.store.server.connection import reachable, text
from lethe.engine.store.server.pipeline import read_list
from lethe.engine.store.store import ModelStore

_TRIES = 5
_POOL = 4 * SENTINELS
"""Rows that new sentinels are chosen from: what a row can add is known only from its record."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A model's state with its live rows, in the order of registration.

    Attributes
    ----------
    state
        The state that the rows belong to.
    ids
        Live row ids.
    rows, W
        The rows and their dual rows relative to A_b, n x d (with h blocks, n x (h d)).
    table
        The rows as they were given, of a model with preprocessing.
    in_files
        How many live rows are in files, and not among these.
    """

    state: ModelState
    ids: tuple[str, ...]
    rows: Rows
    W: Array
    table: Table | None = None
    in_files: int = 0

    def without(self, row_ids: frozenset[str]) -> Snapshot:
        """Return the snapshot with some rows left out (the state stays)."""
        keep = np.array([row not in row_ids for row in self.ids], dtype=np.bool_)
        ids = tuple(row for row in self.ids if row not in row_ids)
        table = None if self.table is None else self.table.take(keep)
        return Snapshot(self.state, ids, self.rows.take(keep), self.W[keep], table)


def take_snapshot(
    store: ModelStore, model_id: str, on_rows: Callable[[int], None] = lambda _: None
) -> Snapshot:
    """Read a model and its live rows. Cost O(n d) bytes.

    Raises
    ------
    UnknownModel
        It is not registered.
    CorruptState
        Rows that should be live have no record.
    """
    records: dict[str, bytes] = {}
    for _ in range(_TRIES):
        before = store.load_model(model_id)
        try:
            records = _read_records(store, before, on_rows)
        except RowsMissing:  # unless a refresh has written its files anew meanwhile
            if store.load_model(model_id).meta.row_files == before.meta.row_files:
                raise
            continue
        state = _brought_up_to_date(store, before, records)
        if state is not None and len(records) == state.meta.rows_live:
            return _decode(state, records)
    raise CorruptState(
        f"model {model_id!r}: {len(records)} rows have records and {before.meta.rows_live} should; "
        "run `lethe check`, then register it again with --replace"
    )


def _read_records(
    store: ModelStore, state: ModelState, on_rows: Callable[[int], None]
) -> dict[str, bytes]:
    records: dict[str, bytes] = {}
    config, duals, done = state.meta.config, None, 0
    for chunk in read_list(store.client, state.keys.dataset(state.meta.dataset_key).ids):
        records |= store.row_records(state.generation_keys, chunk)
        done += len(chunk)
        on_rows(done)
    for bucket in store.row_files.every(state.meta):
        deleted = store.rows_in_ledger(state.keys, bucket.ids)
        rows = as_stored(config, bucket)
        if duals is None and config.blocks:
            duals = store.factors.dual_rows_of(state)
        W = rows.X[:, :0] if duals is None else duals(rows.X)
        for i, row in enumerate(bucket.ids):
            if row not in deleted:
                records[row] = packed(rows, W, i)
        done += len(bucket)
        on_rows(done)
    return records


def _brought_up_to_date(
    store: ModelStore, before: ModelState, records: dict[str, bytes]
) -> ModelState | None:
    """Make records that were read after a state those of a newer one, and return that.

    Rows that were never changed have the same record as long as their generation is live. All
    others, and deleted ones, are read together with the head, however the store was when the
    records were read: it may have gone back meanwhile, and come up to date again.

    None: another generation or data set is live by now, or commits come too fast.
    """
    now = rows_touched_now(store, before)
    if now is None:
        return None
    state, found = now
    records |= found.changed
    for row in found.deleted:
        records.pop(row, None)
    return state


def _decode(state: ModelState, records: dict[str, bytes]) -> Snapshot:
    config = state.meta.config
    ids = tuple(records)
    what = f"model {config.model_id!r}, rows"
    packed = [records[row] for row in ids]
    decoded = read_rows(config, state.pipeline, packed, what)
    return Snapshot(state, ids, decoded.rows, decoded.W, decoded.table)


def load_factor(store: ModelStore, state: ModelState) -> Factor:
    """Read the factored Hessian of the live generation, stacked. Cost O(h d^2) bytes."""
    return read_factor(store.client, state.generation_keys, state.generation)


# -- new sentinels, when deletions have taken half of them: the estimate needs a sample ------------


def with_enough_sentinels(store: ModelStore, state: ModelState) -> ModelState:
    """Return the state with a new sample of live rows if it has lost half of the old one.

    Or if the sample has become twice as large, by rows that were inserted or corrected.

    Two phases: a pool of live rows is drawn uniformly, and the sentinels from the pool, by what
    each can add; the chance of a row is the product. Rows that were sentinels for certain stay so,
    as long as they are live: they are few, can add most, and the pool may miss them.

    The sample is the worker's own and is not stored: it only serves the estimate. Cost O(m' d)
    for m' sentinels, once in a while.
    """
    wanted, there = min(SENTINELS, state.meta.rows_live), len(state.sentinels.ids)
    if state.generation.objective.kind is Kind.LINEAR or state.awaiting_rebuild:
        return state
    if state.pipeline is not None:  # its error is a bound, from sums
        return state
    if wanted <= 2 * there <= 4 * SENTINELS:
        return state
    certain = _certain(state.sentinels)
    certain_ids = frozenset(certain.ids)
    copies = _drawn_from_files(store, state, certain_ids)
    ids = sorted(row for row in {*_drawn(store, state), *copies} if row not in certain_ids)
    pool = store.sentinels(state.generation_keys, state.meta, Sampled(tuple(ids), records=copies))
    others = max(state.meta.rows_live - len(certain_ids), 1)
    pool_chance = min(1.0, len(pool.ids) / others)
    parts = possible_parts(state.generation, pool.rows, pool.W)
    places, pi = choose_sentinels(parts, state.head.commit, most=SENTINELS - len(certain_ids))
    chosen = Sentinels(
        tuple(pool.ids[i] for i in places), pool.rows.take(places), pool.W[places], pool_chance * pi
    )
    return replace(state, sentinels=_together(certain, chosen))


def _certain(sentinels: Sentinels) -> Sentinels:
    """Return the sentinels that were taken for certain, or none if all were, or too many."""
    pi = sentinels.pi
    if pi is None or (pi >= 1.0).all() or np.count_nonzero(pi >= 1.0) > SENTINELS // 2:
        return Sentinels((), sentinels.rows.take(slice(0, 0)), sentinels.W[:0])
    return sentinels.without(frozenset(np.array(sentinels.ids)[pi < 1.0]))


def _drawn(store: ModelStore, state: ModelState) -> list[str]:
    """Return live rows, about as many from each shard: ids fall into shards at random."""
    live, share = state.generation_keys, state.meta.rows_in_store / max(state.meta.rows_live, 1)
    with reachable(store.client):
        pipeline = store.client.pipeline(transaction=False)
        for shard in range(SHARDS):
            pipeline.hrandfield(live.rows(shard), math.ceil(share * _POOL / SHARDS))
        answers: list[Any] = pipeline.execute()
    drawn = [text(row) for shard in answers for row in shard or ()]
    # A row that was just deleted may still have its record.
    gone = store.rows_in_ledger(state.keys, drawn)
    return sorted(set(drawn) - gone)


def _drawn_from_files(
    store: ModelStore, state: ModelState, certain: frozenset[str]
) -> dict[str, bytes]:
    """Return the records of rows of files, drawn uniformly; some may not be live any more."""
    buckets = store.row_files.of(state.meta)
    if buckets is None:
        return {}
    there = buckets.manifest.rows
    count = min(there, math.ceil(_POOL * (1 - state.meta.rows_in_store / state.meta.rows_live)))
    rng = np.random.default_rng(state.head.commit)
    drawn = buckets.at(np.sort(rng.choice(there, count, replace=False)))
    rows = as_stored(state.meta.config, drawn)
    W = store.factors.dual_rows_of(state)(rows.X)
    return {row: packed(rows, W, i) for i, row in enumerate(drawn.ids) if row not in certain}


def _together(certain: Sentinels, others: Sentinels) -> Sentinels:
    pi = np.concatenate([np.ones(len(certain.ids)), others.chances(0)])
    first, second = certain.rows, others.rows
    rows = Rows(
        np.vstack([first.X, second.X]),
        np.vstack([first.y, second.y]),
        np.concatenate([first.weight, second.weight]),
    )
    return Sentinels(certain.ids + others.ids, rows, np.vstack([certain.W, others.W]), pi)
