"""The rebuild of a model whose rows are in files: these are written anew.

Rows that were deleted leave them, and those that were inserted or corrected join them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

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
from lethe.engine.exact.sums import RunningSums, Sums, largest_of
from lethe.engine.fit.objective import Array, Objective, ridge_penalty
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
from lethe.engine.store.offline.in_files import OfFiles, fit_files, no_sentinels, nobody
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
    include every change. A model without exact sums is fitted anew, from where it is. Cost: of the
    files concerned; or a pass over all rows, O(n d^2), and of a fit some more.
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
    number = state.generation.number + 1
    if config.exact_sums:
        made, choice = _with_sums(
            job, state, choice, kept, number, added=adds_up, named=bool(named)
        )
    else:
        made = fit_files(
            config,
            kept,
            number,
            None if state.awaiting_rebuild else state.stream.theta_exact,
            on_pass=lambda passes: job.progress("fitting: passes over the rows", passes, 0),
        )
    return stage_generation(
        job,
        Snapshot(state, (), nobody(config), np.empty((0, 0)), in_files=kept.manifest.rows),
        made.new,
        choice,
        status=made.status,
        resolved=resolved,
        ledger=made.ledger,
        pipeline=made.pipeline,
        row_files=RowFiles(
            folder=before.folder,
            root=kept.root,
            rows=kept.manifest.rows,
            version=state.version,
        ),
        of_files=made,
    )


def _with_sums(
    job: Job,
    state: ModelState,
    choice: Choice,
    kept: Buckets,
    number: int,
    *,
    added: bool,
    named: bool,
) -> tuple[OfFiles, Choice]:
    """Begin with exact sums: with those of the state, or ``added`` up anew from the files.

    ``named``: rows of waiting requests leave with this refresh, so that the sums differ.
    """
    config, solution = state.meta.config, state.stream.solution
    penalty = ridge_penalty(
        config.ridge, config.d, intercept=config.fit_intercept, penalise_intercept=False
    )
    if solution is None or added:
        anew = _added_up(
            job, config, kept, None if solution is None else solution.sums.unit, penalty
        )
        if solution is not None and not named and not anew.same_sums(solution):
            choice = replace(choice, reason=f"{choice.reason}; {SUMS_FAULT}")
        solution = anew
    new = begin_with_sums(number, Objective(config.kind, penalty), solution, 0)
    return OfFiles(new, no_sentinels(config)), choice


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
    done, every = 0, buckets.manifest.rows
    if config.preprocess:
        return _raw_added_up(job, config, buckets, unit, penalty)
    if unit is None:
        largest = np.zeros(config.d + config.m)
        for _, part in buckets.each(largest_of, intercept=config.fit_intercept):
            largest = np.maximum(largest, part)
        unit = units_of(largest)
    sums = RunningSums(unit, config.m)
    kernel = partial(Sums.of, unit=unit)
    for rows, part_sums in buckets.each(kernel, intercept=config.fit_intercept):
        sums.add_sums(part_sums)
        done += rows
        job.progress("adding up rows", done, every)
    return Solution.of(sums.sums(), penalty)


def _raw_added_up(
    job: Job, config: ModelConfig, buckets: Buckets, unit: NDArray[np.int_] | None, penalty: Array
) -> Solution:
    """Return the solution of a model with preprocessing: of raw rows, in this process."""
    raw, done = raw_columns(config), 0
    if unit is None:
        largest = np.zeros(config.m + raw.width)
        for bucket in buckets.scan():
            largest = np.maximum(largest, largest_of(as_model_has(config, bucket)))
        unit = units_of(largest)
    running = SolutionInBlocks(unit, config.m, penalty, raw)
    for bucket in buckets.scan():
        running.add(as_model_has(config, bucket))
        done += len(bucket)
        job.progress("adding up rows", done, buckets.manifest.rows)
    return running.solution()
