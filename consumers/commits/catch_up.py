"""Recomputing V and Q, from the store's own rows, for commits that are read from the log.

The state is a function of the *set* of rows that were left out (`engine.deletion.stream`), so the
steps arrive at the same arrays, up to rounding. What is published is never recomputed: thetas,
errors and receipts are the commit's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from lethe.consumers.commits.apply import NOTHING, Arrays, Live, arrays_of
from lethe.consumers.commits.changed_rows import ChangedRows, changed_stream
from lethe.consumers.commits.commit import Commit
from lethe.engine.deletion.growing import GrowingRows
from lethe.engine.deletion.methods import method_named
from lethe.engine.deletion.stream import Generation, Stream, delete
from lethe.engine.errors import IllConditioned
from lethe.engine.store import codec
from lethe.engine.store.staging import read_live
from lethe.engine.store.state import Meta, ModelState, with_meta
from lethe.engine.store.store import ModelStore


def left_out(state: ModelState, commit: Commit, records: Mapping[str, bytes]) -> Stream | None:
    """Return the stream without the rows that a commit deleted, from their stored records.

    If the commit's version was completed, Q is empty. None if a record is gone, or if a guard
    refuses this time; the model then waits for a rebuild.
    """
    if state.awaiting_rebuild:
        return None
    stream = _delete(state.generation, state.stream, state.meta, commit.erased, records)
    if stream is None or not commit.clears_Q:
        return stream
    return replace(stream, Q=GrowingRows.empty(commit.meta.config.d))


@np.errstate(over="ignore", invalid="ignore")  # as when it was computed first
def changed_again(
    state: ModelState, commit: Commit, changed: ChangedRows, records: Mapping[str, bytes]
) -> Stream | None:
    """Return the stream with the rows that a commit inserted or corrected.

    ``records`` has the corrected rows as they were. None if one is gone, or if a guard refuses this
    time; the model then waits for a rebuild.
    """
    if not records.keys() >= set(commit.corrected):
        return None
    try:
        stream = changed_stream(state, changed, records)
    except IllConditioned:
        return None
    if not commit.clears_Q:
        return stream
    return replace(stream, Q=GrowingRows.empty(commit.meta.config.d))


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
    packed_rows = [records[row_id] for row_id in row_ids]
    decoded = codec.unpack_rows(packed_rows, config.d, config.m, what, config.blocks)
    try:
        return delete(
            generation,
            stream,
            decoded.rows,
            decoded.W,
            method_named(config.method),
        ).stream
    except IllConditioned:
        return None


def swapped(store: ModelStore, commit: Commit, live: Live) -> Arrays | None:
    """Return what a commit appends to V and Q of the generation that it makes live.

    These are rows that were deleted while the generation was made, and that the swap leaves out.
    None if something is missing, if a guard refuses, or if V is not the commit's.
    """
    if commit.empties:
        return NOTHING
    if commit.staged is None:
        return None
    live_generation = read_live(store, live.keys, commit.meta, commit.thetas)
    if live_generation is None:
        return None
    generation, staged = live_generation
    rows = commit.staged.caught_up
    records = store.row_records(live.keys, rows) if rows else {}
    stream = _delete(generation, staged, commit.meta, rows, records) if rows else staged
    if stream is None or len(stream.V) != commit.meta.K:
        return None
    v, q = len(staged.V), len(staged.Q)
    arrays = Arrays(stream.V.array[v:], stream.Q.array[q:], v, q, None)
    return arrays.cleared() if commit.clears_Q else arrays


def larger_of_both(meta: Meta, stream: Stream) -> Meta:
    """Return a commit's meta with scalars that also bound V as it is stored here."""
    fields = {
        "v_trace": max(meta.v_trace, stream.v_trace),
        "least_pivot": min(meta.least_pivot, stream.least_pivot),
        "added": max(meta.added, stream.added),
        "dual_error": max(meta.dual_error, stream.dual_error),
    }
    same = all(getattr(meta, name) == value for name, value in fields.items())
    return meta if same else with_meta(meta, **fields)


def unchanged(state: ModelState) -> Arrays | None:
    """Return the arrays of a refresh that keeps the generation: it only renews their id."""
    return None if state.awaiting_rebuild else arrays_of(state, state.stream)
