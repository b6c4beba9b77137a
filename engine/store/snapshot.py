"""A consistent picture of a model and all its live rows, for refreshes and checks.

The worker keeps committing while this reads. Rows are read first and the state afterwards: a row
that was deleted in between is missing or stale, and the state's list of deletions names it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from lethe.engine.errors import CorruptState
from lethe.engine.fit.factor import Factor
from lethe.engine.fit.objective import Array, Rows
from lethe.engine.store import codec
from lethe.engine.store.connection import reachable, text
from lethe.engine.store.state import ModelState
from lethe.engine.store.store import CHUNK, ModelStore

_TRIES = 5


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
    """

    state: ModelState
    ids: tuple[str, ...]
    rows: Rows
    W: Array

    def without(self, row_ids: frozenset[str]) -> Snapshot:
        """Return the snapshot with some rows left out (the state stays)."""
        keep = np.array([row not in row_ids for row in self.ids], dtype=np.bool_)
        ids = tuple(row for row in self.ids if row not in row_ids)
        return Snapshot(self.state, ids, self.rows.take(keep), self.W[keep])


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
    for _ in range(_TRIES):
        before = store.load_model(model_id)
        records = _read_records(store, before, on_rows)
        after = store.load_model(model_id)
        if after.rows != before.rows or after.meta.dataset_key != before.meta.dataset_key:
            continue
        first, last = before.meta.deletions_logged, after.meta.deletions_logged
        for row in store.deletions_since(after, first, last):
            records.pop(row, None)
        if len(records) == after.meta.rows_live:
            return _decode(after, records)
    raise CorruptState(
        f"model {model_id!r}: {len(records)} rows have records and {after.meta.rows_live} should; "
        "run `lethe check`, then register it again with --replace"
    )


def _read_records(
    store: ModelStore, state: ModelState, on_rows: Callable[[int], None]
) -> dict[str, bytes]:
    ids_key = state.keys.dataset(state.meta.dataset_key).ids
    records: dict[str, bytes] = {}
    start = 0
    while True:
        with reachable(store.client):
            chunk = store.client.lrange(ids_key, start, start + CHUNK - 1)
        if not chunk:
            return records
        records |= store.row_records(state.generation_keys, [text(row) for row in chunk])
        start += len(chunk)
        on_rows(start)


def _decode(state: ModelState, records: dict[str, bytes]) -> Snapshot:
    config = state.meta.config
    ids = tuple(records)
    what = f"model {config.model_id!r}, rows"
    packed = [records[row] for row in ids]
    decoded = codec.unpack_rows(packed, config.d, config.m, what, config.blocks)
    return Snapshot(state, ids, Rows(decoded.X, decoded.y, decoded.weight), decoded.W)


def load_factor(store: ModelStore, state: ModelState) -> Factor:
    """Read the factored Hessian of the live generation, stacked. Cost O(h d^2) bytes."""
    d, h = state.meta.config.d, state.meta.config.blocks
    with reachable(store.client):
        data = store.client.get(state.generation_keys.factor)
    raw = data if isinstance(data, bytes) else None
    L = codec.unpack(raw, (h, d, d), f"model {state.model_id!r}, factor")
    return Factor(np.tril(L).reshape(h * d, d), state.generation.smallest, state.generation.largest)
