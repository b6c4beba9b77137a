"""The rebuild of a model whose rows are in files: these are written anew.

Rows that were deleted leave them, and those that were inserted or corrected join them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from lethe.consumers.refresh.new_generation import stage_generation
from lethe.consumers.refresh.resolved import rows_resolved, to_resolve
from lethe.consumers.refresh.result import Job, result_of, store_result
from lethe.consumers.versions.refresh_schedule import AT_LEAST
from lethe.engine.error.drift import SUMS_FAULT
from lethe.engine.errors import CommitConflict
from lethe.engine.exact.digits import units_of
from lethe.engine.exact.running import Solution
from lethe.engine.fit.objective import Array, Objective, Rows, ridge_penalty
from lethe.engine.refresh.policy import Choice
from lethe.engine.refresh.refreshes import begin_with_sums
from lethe.engine.rowstore.bucket import Bucket
from lethe.engine.rowstore.buckets import Buckets
from lethe.engine.store.layout.config import ModelConfig
from lethe.engine.store.layout.exact_sums import SolutionInBlocks
from lethe.engine.store.layout.meta import RowFiles
from lethe.engine.store.layout.preprocessing import raw_columns
from lethe.engine.store.layout.state import ModelState
from lethe.engine.store.layout.stored_rows import read_rows
from lethe.engine.store.offline.jobs import JobResult
from lethe.engine.store.offline.snapshot import Snapshot
from lethe.engine.store.offline.touched import RowsTouched, rows_touched_now
from lethe.engine.store.row_files import as_model_has, width_of
from lethe.engine.store.store import ModelStore


def rebuild_in_files(job: Job, state: ModelState, choice: Choice, before: RowFiles) -> JobResult:
    """Write the files again, and begin a new generation.

    Rows that were deleted leave them, and those that were inserted or corrected join them. The
    sums are added up anew where they are lost, where rows of waiting requests leave, or where a
    person asks: they are compared then. Otherwise those of the state are taken over, for they
    include every change. Cost: of the files concerned; or a pass over all rows, O(n d^2).
    """
    store = job.store
    state, touched = _touched(store, state)
    meta, config = state.meta, state.meta.config
    resolved = to_resolve(state)
    named = rows_resolved(store, state, resolved)
    buckets, solution = store.row_files.of(meta), state.stream.solution
    if buckets is None:
        raise AssertionError("the rows are in files")
    # What is deleted from now on stays, for the sums have it, too, and loses it with the others.
    deleted = store.deleted_after(state.keys, before.version, until=state.version)
    adds_up = solution is None or bool(named) or job.event.reason in AT_LEAST
    if adds_up:  # nothing that was deleted may be added, whatever the store had lost
        for bucket in buckets.scan(deleted):
            deleted += store.rows_in_ledger(state.keys, bucket.ids)
    changed = {row: one for row, one in touched.changed.items() if row not in named}
    kept = buckets.rewritten(
        {*named, *deleted, *touched.changed},
        _in_order(store, state, buckets, changed),
        lambda done, total: job.progress("writing files anew", done, total),
    )
    if not kept.manifest.rows:
        result = result_of(job, state, choice, status="EMPTY", resolved=resolved)
        return store_result(job, result)
    penalty = ridge_penalty(
        config.ridge, config.d, intercept=config.fit_intercept, penalise_intercept=False
    )
    if solution is None or adds_up:
        unit = None if solution is None else solution.sums.unit
        added = _added_up(job, config, kept, unit, penalty)
        if solution is not None and not named and not added.same_sums(solution):
            choice = replace(choice, reason=f"{choice.reason}; {SUMS_FAULT}")
        solution = added
    number, objective = state.generation.number + 1, Objective(config.kind, penalty)
    nothing = Rows(np.empty((0, config.d)), np.empty((0, config.m)), np.empty(0))
    return stage_generation(
        job,
        Snapshot(state, (), nothing, np.empty((0, 0)), in_files=kept.manifest.rows),
        begin_with_sums(number, objective, solution, 0),
        choice,
        status=meta.status,
        resolved=resolved,
        row_files=RowFiles(
            folder=before.folder,
            root=kept.root,
            rows=kept.manifest.rows,
            version=state.version,
        ),
    )


def _touched(store: ModelStore, before: ModelState) -> tuple[ModelState, RowsTouched]:
    """Return the newest state of a generation, with the rows that the store has beside the files.

    Raises
    ------
    CommitConflict
        Another generation is live, or commits come too fast.
    CorruptState
        The store has lost some of these rows.
    """
    now = rows_touched_now(store, before)
    if now is None:
        raise CommitConflict(
            f"model {before.model_id!r}: commits were made while it was read; try again in a moment"
        )
    return now


def _in_order(
    store: ModelStore, state: ModelState, buckets: Buckets, records: Mapping[str, bytes]
) -> Bucket | None:
    """Return rows of the store as those that are added to files."""
    if not records:
        return None
    config, ids = state.meta.config, tuple(records)
    decoded = read_rows(config, None, [*records.values()], f"model {state.model_id!r}, rows")
    rows = replace(decoded.rows, X=decoded.given[:, : width_of(config)])
    owners: dict[str, str | None] = dict[str, str | None](store.owners(state))
    for row, there in buckets.get(ids).items():
        owners[row] = (there.subjects or (None,))[0]
    return buckets.ordered(ids, rows, [owners.get(row) for row in ids])


def _added_up(
    job: Job, config: ModelConfig, buckets: Buckets, unit: NDArray[np.int_] | None, penalty: Array
) -> Solution:
    """Return the solution for all rows in files, in these units or in those that suit them."""
    raw = raw_columns(config) if config.preprocess else None
    if unit is None:
        largest = np.zeros(config.m + (raw.width if raw is not None else config.d))
        for bucket in buckets.scan():
            rows = as_model_has(config, bucket)
            largest = np.maximum(largest, np.abs(np.hstack([rows.X, rows.y])).max(axis=0))
        unit = units_of(largest)
    running, done = SolutionInBlocks(unit, config.m, penalty, raw), 0
    for bucket in buckets.scan():
        running.add(as_model_has(config, bucket))
        done += len(bucket)
        job.progress("adding up rows", done, buckets.manifest.rows)
    return running.solution()
