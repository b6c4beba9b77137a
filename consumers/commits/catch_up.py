"""V and Q of commits that are read from the log: the store computes them again from its own rows.

The state is a function of the *set* of rows that were left out (`engine.deletion.stream`), so the
steps come to the same arrays, up to rounding. What is published is never computed again: thetas,
errors and receipts are the commit's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lethe.consumers.commits.apply import NOTHING, Arrays, Live, arrays_of
from lethe.consumers.commits.commit import Commit
from lethe.engine.deletion.methods import method_named
from lethe.engine.deletion.stream import Generation, Stream, delete
from lethe.engine.errors import IllConditioned
from lethe.engine.fit.objective import Rows
from lethe.engine.store import codec
from lethe.engine.store.head import Meta, with_meta
from lethe.engine.store.staged import read_live
from lethe.engine.store.state import ModelState
from lethe.engine.store.store import ModelStore


def left_out(state: ModelState, commit: Commit, records: Mapping[str, bytes]) -> Stream | None:
    """Return the stream without the rows that a commit deleted, by their stored records.

    None: some record is not there any more, or a guard refuses this time. The model then waits for
    a rebuild.
    """
    if state.awaiting_rebuild:
        return None
    return _delete(state.generation, state.stream, state.meta, commit.erased, records)


def _delete(
    generation: Generation,
    stream: Stream,
    meta: Meta,
    row_ids: Sequence[str],
    records: Mapping[str, bytes],
) -> Stream | None:
    if not records.keys() >= set(row_ids):
        return None
    config = meta.config
    what = f"model {config.model_id!r}, rows that were deleted"
    found = [records[row] for row in row_ids]
    rows = codec.unpack_rows(found, config.d, config.m, what, config.blocks)
    try:
        return delete(
            generation,
            stream,
            Rows(rows.X, rows.y, rows.weight),
            rows.W,
            method_named(config.method),
        ).stream
    except IllConditioned:
        return None


def swapped(store: ModelStore, commit: Commit, live: Live) -> Arrays | None:
    """Return what a commit appends to V and Q of the generation that it makes live.

    That is what the swap left out of it: rows that were deleted while it was made. None: they are
    not there, a guard refuses, or V is not the commit's.
    """
    if commit.empties:
        return NOTHING
    if commit.staged is None:
        return None
    before = read_live(store, live.keys, commit.meta, commit.thetas)
    if before is None:
        return None
    generation, staged = before
    rows = commit.staged.caught_up
    records = store.row_records(live.keys, rows) if rows else {}
    stream = _delete(generation, staged, commit.meta, rows, records) if rows else staged
    if stream is None or len(stream.V) != commit.meta.K:
        return None
    v, q = len(staged.V), len(staged.Q)
    return Arrays(stream.V.array[v:], stream.Q.array[q:], v, q, None)


def larger_of_both(meta: Meta, stream: Stream) -> Meta:
    """Return a commit's meta with the scalars that bound V as it is stored here."""
    if stream.v_trace <= meta.v_trace and stream.least_pivot >= meta.least_pivot:
        return meta
    return with_meta(
        meta,
        v_trace=max(meta.v_trace, stream.v_trace),
        least_pivot=min(meta.least_pivot, stream.least_pivot),
    )


def unchanged(state: ModelState) -> Arrays | None:
    """Return what a refresh that keeps the generation does to V and Q: it renews their id."""
    return None if state.awaiting_rebuild else arrays_of(state, state.stream)
