"""Recomputing V and Q, from the store's own rows, for commits that are read from the log.

The state is a function of the *set* of rows that were left out (`engine.deletion.stream`), so the
steps arrive at the same arrays, up to rounding. What is published is never recomputed: thetas,
errors and receipts are the commit's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from lethe.consumers.commits.apply import NOTHING, Arrays, LiveGeneration, appended, no_rows
from lethe.consumers.commits.commit import Commit
from lethe.engine.deletion.change import RowMoves
from lethe.engine.deletion.generation import Stream
from lethe.engine.deletion.growing import GrowingRows
from lethe.engine.errors import IllConditioned, InvalidData, RowsMissing
from lethe.engine.preprocess.live import change_model
from lethe.engine.store.apply import RowsWritten
from lethe.engine.store.layout.keys import GenerationKeys
from lethe.engine.store.layout.meta import Meta, with_meta
from lethe.engine.store.layout.pipeline_sums import packed_since
from lethe.engine.store.layout.state import ModelState
from lethe.engine.store.offline.catch_up import CaughtUp, catch_up
from lethe.engine.store.offline.staging import read_live
from lethe.engine.store.store import ModelStore


@np.errstate(over="ignore", invalid="ignore")  # as when it was computed first
def recomputed(state: ModelState, commit: Commit, moved: RowMoves) -> ModelState | None:
    """Return the model once the rows that a commit of requests deletes or brings in have changed.

    If the commit's version was completed, Q is empty. None if a guard refuses this time: the model
    then waits for a rebuild.
    """
    try:
        stream, pipeline = change_model(
            state.generation, state.stream, state.pipeline, moved, commit.meta.config.method, None
        )
    except (IllConditioned, InvalidData):
        return None
    if commit.clears_Q:
        stream = stream._replace(Q=GrowingRows.empty(commit.meta.config.d))
    return replace(state, stream=stream, pipeline=pipeline)


@dataclass(frozen=True, slots=True)
class Swapped:
    """What a commit adds to the generation that it makes live: to V and Q, and row records."""

    arrays: Arrays
    written: RowsWritten | None = None


def swapped(
    store: ModelStore, commit: Commit, live: LiveGeneration, former: GenerationKeys | None
) -> Swapped | None:
    """Return what a commit adds to the generation that it makes live.

    Rows that were deleted while that was made are left out; those that were inserted or corrected
    have their records in the generation that is live before, ``former``. None if something is
    missing, if a guard refuses, or if V is not the commit's.
    """
    if commit.empties:
        return Swapped(NOTHING)
    if commit.staged is None:
        return None
    staged = read_live(store, live.keys, commit.meta, commit.thetas)
    if staged is None:
        return None
    named, deleted = commit.staged.changed, commit.staged.caught_up
    changed = {} if former is None else store.records_if_there(former, named)
    try:
        caught_up = catch_up(store, staged, commit.meta, deleted, changed, again=True)
    except (IllConditioned, RowsMissing):  # a guard refused; or files were written anew since
        return None
    whole = changed.keys() == set(named) and len(caught_up.deleted) == len(deleted)
    if not whole or len(caught_up.staged.stream.V) != commit.meta.K:
        return None
    return added_to(caught_up, clears_Q=commit.clears_Q)


def added_to(caught_up: CaughtUp, *, clears_Q: bool) -> Swapped:
    """Return what catching up adds to a staged generation."""
    before, after = caught_up.before, caught_up.staged.stream
    arrays = appended(before, after, None)
    pipeline = caught_up.staged.pipeline
    if pipeline is not None and not caught_up.same:
        arrays = replace(arrays, sums=packed_since(pipeline.answer.sums))
    written = None
    if caught_up.records:
        names = tuple(caught_up.records)
        written = RowsWritten(records=caught_up.records, changed=names)
    return Swapped(arrays.cleared() if clears_Q else arrays, written)


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
    return None if state.awaiting_rebuild else no_rows(state)
