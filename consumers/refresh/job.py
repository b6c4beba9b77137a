"""One refresh job, from a snapshot to a stored result. It never writes the live state."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import datetime

import numpy as np

from lethe.consumers.contract.events import RefreshRequested
from lethe.consumers.refresh.in_files import rebuild_in_files
from lethe.consumers.refresh.new_generation import stage_generation
from lethe.consumers.refresh.resolved import rows_resolved, to_resolve
from lethe.consumers.refresh.result import Job, result_of, store_result
from lethe.consumers.service.telemetry.progress import Progress, no_progress
from lethe.consumers.service.telemetry.steps import AtStep, Step, no_hook
from lethe.consumers.versions.certificates import first_ledger, leaves_enough_budget, with_new_noise
from lethe.consumers.versions.refresh_schedule import choose_size
from lethe.engine.deletion.generation import Generation
from lethe.engine.error.certified import FAR_UNDER, Reference, measure_polished
from lethe.engine.error.drift import audit, sums_fault
from lethe.engine.error.estimate import scale
from lethe.engine.error.terms import gradient_limit
from lethe.engine.errors import CommitConflict, CorruptState, IllConditioned, LetheError
from lethe.engine.exact.rounding import ROUNDED_FEATURES
from lethe.engine.fit.classes import one_sided
from lethe.engine.fit.objective import Array, Rows
from lethe.engine.preprocess.answer import prepare
from lethe.engine.preprocess.live import LivePipeline
from lethe.engine.refresh.kinds import compact, polish_snapshot, rebuild
from lethe.engine.refresh.policy import Choice
from lethe.engine.refresh.refreshes import NewGeneration, begin_with_sums
from lethe.engine.refresh.size import RefreshSize
from lethe.engine.store.layout.exact_sums import solution_of
from lethe.engine.store.layout.preprocessing import layout_of, raw_columns, settings_of
from lethe.engine.store.layout.records import Status
from lethe.engine.store.layout.state import ModelState
from lethe.engine.store.offline.jobs import JobResult
from lethe.engine.store.offline.snapshot import Snapshot, load_factor, take_snapshot
from lethe.engine.store.store import ModelStore


class Superseded(LetheError):
    """The model has moved to another generation since the job was scheduled."""

    code = "SUPERSEDED"


def run_job(
    store: ModelStore,
    event: RefreshRequested,
    *,
    now: datetime,
    progress: Progress = no_progress,
    at_step: AtStep = no_hook,
) -> JobResult:
    """Do a refresh job and store its result.

    Raises
    ------
    Superseded
        Another job was faster; there is nothing to do.
    UnknownModel, CorruptState, IllConditioned, NotConverged
        From reading the model and fitting it.

    Notes
    -----
    Cost by kind: O(d) complete, O(n d) per pass polish, O(n K d) compact, O(n d^2) rebuild.
    """
    at_step(Step.REFRESH_SNAPSHOT)
    job = Job(store, event, progress, at_step, time.perf_counter())
    state = store.load_model(event.model_id)
    if state.meta.generation != event.generation:
        raise Superseded(
            f"model {event.model_id!r} is at generation {state.meta.generation}, the job is for "
            f"{event.generation}; nothing to do"
        )
    try:
        return _do(job, state, now)
    except (CorruptState, CommitConflict):
        # The keys of a generation are removed when another is swapped in.
        if store.load_model(event.model_id).meta.generation_key == state.meta.generation_key:
            raise
    raise Superseded(f"model {event.model_id!r} moved to another generation meanwhile")


def _do(job: Job, state: ModelState, now: datetime) -> JobResult:
    choice = _available(state, choose_size(state, job.event, now))
    if choice.size is RefreshSize.COMPLETE or (state.meta.rows_live == 0 and not state.deferred):
        return store_result(job, result_of(job, state, Choice(RefreshSize.COMPLETE, choice.reason)))
    if state.meta.row_files is not None:
        return rebuild_in_files(job, state, choice, state.meta.row_files)
    return _with_rows(job, state, now)


def _with_rows(job: Job, state: ModelState, now: datetime) -> JobResult:
    """Do a refresh that reads all rows from the store."""
    rows_live = state.meta.rows_live
    snapshot = take_snapshot(
        job.store, job.event.model_id, lambda done: job.progress("reading rows", done, rows_live)
    )
    choice = _available(snapshot.state, choose_size(snapshot.state, job.event, now))
    fault = _drift(job, snapshot, choice)
    if fault is not None:
        return _doubted(job, snapshot, fault)
    match choice.size:
        case RefreshSize.COMPLETE:
            return store_result(job, result_of(job, snapshot.state, choice))
        case RefreshSize.POLISH:
            return _polish(job, snapshot, choice)
        case RefreshSize.COMPACT:
            return _compact(job, snapshot, choice)
        case RefreshSize.REBUILD:
            return _rebuild(job, snapshot, choice)


def _available(state: ModelState, choice: Choice) -> Choice:
    """Return the choice, or a rebuild if a model with sums has no refresh of that size."""
    config, small = state.meta.config, choice.size in (RefreshSize.POLISH, RefreshSize.COMPACT)
    in_files = config.rows_url is not None
    if not (small and (config.preprocess or config.exact_sums or in_files)):
        return choice
    with_what = "preprocessing" if config.preprocess else "exact sums"
    if in_files and not config.exact_sums:
        with_what = "rows in files"
    return Choice(RefreshSize.REBUILD, f"{choice.reason}; a model with {with_what} is rebuilt")


def _drift(job: Job, snapshot: Snapshot, choice: Choice) -> str | None:
    """Return the fault that the drift audit finds in the generation; None if it will be rebuilt."""
    state = snapshot.state
    if choice.size is RefreshSize.REBUILD or not snapshot.ids:
        return None
    job.progress("auditing for drift", 0, 0)
    factor = load_factor(job.store, state)
    limits, budget = state.meta.config.limits.limits(), state.meta.config.error_budget
    return audit(
        state.generation,
        state.stream,
        factor,
        snapshot.rows,
        snapshot.W,
        tolerated=limits.far_under * budget * scale(state.generation, state.stream),
    ).fault


def _doubted(job: Job, snapshot: Snapshot, fault: str) -> JobResult:
    """Say that the error is unknown, which orders a rebuild; a certified model is rebuilt at once.

    What its certificate rests on may not be published without a bound.
    """
    reason = f"the drift audit failed: {fault}"
    if snapshot.state.meta.config.certify is not None:
        return _rebuild(job, snapshot, Choice(RefreshSize.REBUILD, reason))
    choice = Choice(RefreshSize.COMPLETE, reason)
    return store_result(job, result_of(job, snapshot.state, choice, drifted=True))


def _polish(job: Job, snapshot: Snapshot, choice: Choice) -> JobResult:
    state = snapshot.state
    limits = state.meta.config.limits.limits()
    size = scale(state.generation, state.stream)
    target = limits.far_under * state.meta.config.error_budget
    try:
        polished = polish_snapshot(
            state.generation,
            state.stream,
            load_factor(job.store, state),
            snapshot.rows,
            snapshot.W,
            target=_polish_target(state, target * size),
            on_pass=lambda passes: job.progress("polishing: passes over the rows", passes, 0),
        )
    except IllConditioned as error:  # theta_exact of counts has overflowed: nothing to start from
        return _rebuild(job, snapshot, Choice(RefreshSize.REBUILD, f"{choice.reason}; {error}"))
    certified, budget = polished.certified, state.meta.config.error_budget * size
    if certified is None or not certified <= budget:
        # The stale factor did not reach the budget, or there is no bound to tell: a rebuild does.
        shortfall = "gave no bound" if certified is None else "did not reach the budget"
        reason = f"{choice.reason}; a polish of {polished.passes} passes {shortfall}"
        return _rebuild(job, snapshot, Choice(RefreshSize.REBUILD, reason))
    reference = _reference(snapshot, polished.theta)
    if reference is not None and not leaves_enough_budget(
        state.meta.config, state.generation.objective, reference
    ):
        reason = f"{choice.reason}; a polish of {polished.passes} passes freed too little budget"
        return _rebuild(job, snapshot, Choice(RefreshSize.REBUILD, reason))
    if polished.passes == state.generation.blocks:
        choice = replace(choice, reason=f"{choice.reason}; an audit of one pass was enough")
    result = result_of(
        job,
        state,
        choice,
        passes=polished.passes,
        certified=polished.certified,
        left=polished.left,
        reference=reference,
        residual=polished.residual,
        refuted=polished.refuted,
    )
    arrays = {"theta": polished.theta, "theta_snapshot": polished.theta_snapshot}
    return store_result(job, result, arrays)


def _polish_target(state: ModelState, target: float) -> float:
    """Return the distance to polish to; for a certified model the gradient is limited, too."""
    terms, ledger = state.meta.config.certify, state.meta.ledger
    if terms is None or ledger is None:
        return target
    objective = state.generation.objective
    curvature = ledger.spread / 4 + float(objective.penalty.max())
    return min(target, FAR_UNDER * gradient_limit(terms, objective) / curvature)


def _reference(snapshot: Snapshot, theta: Array) -> Reference | None:
    state = snapshot.state
    ledger = state.meta.ledger
    if ledger is None:
        return None
    return measure_polished(ledger, state.generation, state.stream, theta, snapshot.rows)


def _compact(job: Job, snapshot: Snapshot, choice: Choice) -> JobResult:
    state = snapshot.state
    job.progress("folding deletions into the factor", 0, 0)
    factor = load_factor(job.store, state)
    try:
        compacted = compact(state.generation, state.stream, factor, snapshot.rows, snapshot.W)
    except IllConditioned as error:
        return _rebuild(job, snapshot, Choice(RefreshSize.REBUILD, f"{choice.reason}; {error}"))
    ledger = state.meta.ledger  # nothing is refitted: theta and A_t are as they were
    return stage_generation(
        job, snapshot, compacted, choice, status=state.meta.status, ledger=ledger
    )


def _rebuild(job: Job, snapshot: Snapshot, choice: Choice) -> JobResult:
    state = snapshot.state
    resolved = to_resolve(state)
    remaining = snapshot.without(rows_resolved(job.store, state, resolved))
    if not remaining.ids:
        result = result_of(job, state, choice, status="EMPTY", resolved=resolved)
        return store_result(job, result)
    job.progress("refitting and refactoring", 0, 0)
    config = state.meta.config
    if remaining.table is not None and not config.exact_sums:
        made = prepare(
            settings_of(config),
            remaining.table,
            remaining.rows.y,
            remaining.rows.weight,
            state.generation.number + 1,
            layout=layout_of(config.preprocess),
        )
        return stage_generation(
            job,
            replace(remaining, rows=made.rows),
            NewGeneration(
                made.generation, made.stream, made.factor, made.dual_rows, made.certified
            ),
            choice,
            status=made.status,
            resolved=resolved,
            pipeline=LivePipeline(
                made.base,
                remaining.table.vocabularies,
                made.answer,
                intercept=config.fit_intercept,
            ),
        )
    generation, status = _penalised_if_needed(state, remaining.rows)
    generation = with_new_noise(config, generation)
    if config.exact_sums:
        choice = _compared(choice, state, snapshot.rows)
        raw = raw_columns(config) if config.preprocess else None
        solution = solution_of(remaining.rows, generation.objective.penalty, raw)
        number, objective = generation.number + 1, generation.objective
        rebuilt = begin_with_sums(number, objective, solution, len(remaining.ids))
    else:
        rebuilt = rebuild(
            generation,
            remaining.rows,
            state.stream.theta_exact,
            rounded=config.d <= ROUNDED_FEATURES,
        )
    ledger = first_ledger(config, generation.objective, remaining.rows, rebuilt)
    return stage_generation(
        job, remaining, rebuilt, choice, status=status, resolved=resolved, ledger=ledger
    )


def _compared(choice: Choice, state: ModelState, rows: Rows) -> Choice:
    """Return the choice of a rebuild, which says if the sums that it replaces were damaged."""
    solution = state.stream.solution
    fault = None if solution is None else sums_fault(solution, rows)
    return choice if fault is None else replace(choice, reason=f"{choice.reason}; {fault}")


def _penalised_if_needed(state: ModelState, rows: Rows) -> tuple[Generation, Status]:
    """Return the generation to rebuild from; a class without rows needs penalised intercepts."""
    config, generation = state.meta.config, state.generation
    if not (config.fit_intercept and one_sided(config.kind, rows)):
        return generation, state.meta.status
    penalty = np.full(config.d, config.ridge)
    penalised = replace(generation.objective, penalty=penalty, linear=None)
    return replace(generation, objective=penalised), "INTERCEPT_PENALISED"
