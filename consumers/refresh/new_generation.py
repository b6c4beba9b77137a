"""A new generation of a refresh job: staged, and brought up to date with later commits."""

from __future__ import annotations

import uuid
from contextlib import suppress
from dataclasses import dataclass

from lethe.consumers.refresh.result import Job, result_of, store_result
from lethe.consumers.service.telemetry.steps import Step
from lethe.consumers.versions.disclosures import measured_scale
from lethe.engine.error.certified import Ledger
from lethe.engine.error.sentinels import sample_sentinels
from lethe.engine.errors import IllConditioned, Unavailable
from lethe.engine.fit.classes import class_counts
from lethe.engine.preprocess.live import LivePipeline
from lethe.engine.refresh.policy import Choice
from lethe.engine.refresh.refreshes import NewGeneration
from lethe.engine.store.generation import Sampled
from lethe.engine.store.layout.keys import GenerationKeys
from lethe.engine.store.layout.meta import RowFiles, with_meta
from lethe.engine.store.layout.records import Status
from lethe.engine.store.offline import staging
from lethe.engine.store.offline.catch_up import CaughtUp, catch_up
from lethe.engine.store.offline.in_files import OfFiles
from lethe.engine.store.offline.jobs import JobResult, stream_fields
from lethe.engine.store.offline.snapshot import Snapshot
from lethe.engine.store.offline.staging import StagedGeneration
from lethe.engine.store.offline.touched import rows_touched

CATCH_UP_LIMIT = 64
"""The most rows, deleted or changed, that a result leaves to the deletion worker."""

_CATCH_UP_ROUNDS = 64  # each is short: what came during the one before


@dataclass(frozen=True, slots=True)
class _UpToDate:
    """A staged generation, and how many deletions and changes of rows it includes."""

    staged: StagedGeneration
    deletions: int
    changed: int
    rows: int
    class_counts: tuple[int, ...] | None
    certified: float | None
    row_files: RowFiles | None


def stage_generation(
    job: Job,
    snapshot: Snapshot,
    new: NewGeneration,
    choice: Choice,
    *,
    status: Status,
    resolved: tuple[str, ...] = (),
    ledger: Ledger | None = None,
    pipeline: LivePipeline | None = None,
    row_files: RowFiles | None = None,
    of_files: OfFiles | None = None,
) -> JobResult:
    """Stage the new generation, catch up with deletions made meanwhile, and mark it complete."""
    state = snapshot.state
    # Each attempt has its own name: one that was thought dead must not overwrite the result of
    # another, which may be live by now. What is left behind expires.
    where = state.keys.generation(f"{new.generation.number}-{uuid.uuid4().hex}")
    try:
        staged = _write(job, snapshot, new, where, ledger, pipeline, of_files)
        counts = _class_counts(snapshot) if of_files is None else of_files.class_counts
        up_to_date = _caught_up(job, snapshot, new, staged, row_files, counts)
        mark = staging.mark_complete(job.store.client, where, staging.TIME_TO_LIVE)
    except Exception:
        # It may have filled the store. Not once the result is sent: if only the answer to that was
        # lost, the generation may be live by now.
        with suppress(Unavailable):
            staging.discard(job.store.client, where.everything())
        raise
    scalars, thetas = stream_fields(up_to_date.staged.stream)
    result = result_of(
        job,
        state,
        choice,
        deletions=up_to_date.deletions,
        changed=up_to_date.changed,
        certified=up_to_date.certified,
        staged_key=where.name,
        staged_mark=mark,
        generation=new.generation.number,
        rows=up_to_date.rows,
        class_counts=up_to_date.class_counts,
        stream=scalars,
        status=status,
        resolved=resolved,
        ledger=up_to_date.staged.ledger,
        disclosure=measured_scale(
            state.meta.config, new.generation, new.stream, snapshot.rows, new.dual_rows
        )
        if of_files is None
        else of_files.scale,
        disclosure_then=state.meta.disclosure,
        caught_up=up_to_date.staged is not staged,
        row_files=up_to_date.row_files,
    )
    return store_result(job, result, thetas)


def _write(
    job: Job,
    snapshot: Snapshot,
    new: NewGeneration,
    where: GenerationKeys,
    ledger: Ledger | None,
    pipeline: LivePipeline | None,
    of_files: OfFiles | None,
) -> StagedGeneration:
    """Write a new generation under keys that expire."""
    n = len(snapshot.ids)
    if of_files is None:
        sentinels = sample_sentinels(
            new.generation, snapshot.ids, snapshot.rows, new.dual_rows, new.generation.number
        )
    else:
        sentinels = of_files.sentinels

    def written(done: int) -> None:
        job.progress("writing the new generation", done, n)
        job.at_step(Step.REFRESH_STAGE)

    staging.stage_generation(
        job.store.client,
        where,
        generation=new.generation,
        stream=new.stream,
        L=new.factor.L,
        ids=snapshot.ids,
        rows=snapshot.rows,
        W=new.dual_rows,
        sentinels=Sampled.of(sentinels, copied=of_files is not None),
        pipeline=pipeline,
        table=snapshot.table,
        on_rows=written,
        row_keys=job.store.row_keys,
    )
    return StagedGeneration(where, new.generation, new.stream, sentinels, ledger, pipeline)


def _class_counts(snapshot: Snapshot) -> tuple[int, ...] | None:
    counted = snapshot.state.meta.class_counts is not None
    return class_counts(snapshot.rows.y) if counted else None


def _caught_up(
    job: Job,
    snapshot: Snapshot,
    new: NewGeneration,
    staged: StagedGeneration,
    files: RowFiles | None,
    counts: tuple[int, ...] | None,
) -> _UpToDate:
    """Let a staged generation catch up with requests since the snapshot, except a few rows."""
    meta = snapshot.state.meta
    live = len(snapshot.ids) + snapshot.in_files
    up_to_date = _UpToDate(
        staged, meta.deletions_logged, meta.rows_changed, live, counts, new.certified, files
    )
    for _ in range(_CATCH_UP_ROUNDS):
        latest = job.store.load_model(job.event.model_id)
        deleted, changed = latest.meta.deletions_logged, latest.meta.rows_changed
        if deleted - up_to_date.deletions + changed - up_to_date.changed <= CATCH_UP_LIMIT:
            break
        later = job.store.deletions_since(snapshot.state, up_to_date.deletions, deleted)
        touched = rows_touched(job.store, latest, up_to_date.changed)
        if touched is None:
            continue  # another commit came; the rows are read together with the next
        try:
            meta = with_meta(latest.meta, row_files=files)
            caught_up = catch_up(job.store, up_to_date.staged, meta, later, touched.changed)
        except IllConditioned:
            break  # the deletion worker will drop the result and schedule another job
        _stage_again(job, caught_up)
        up_to_date = _UpToDate(
            caught_up.staged,
            deleted,
            changed,
            caught_up.rows(up_to_date.rows),
            caught_up.class_counts(up_to_date.class_counts),
            up_to_date.certified if caught_up.same else None,
            None if files is None else files.with_in_store(caught_up.in_store),
        )
        files = up_to_date.row_files
    return up_to_date


def _stage_again(job: Job, caught_up: CaughtUp) -> None:
    """Write what catching up has changed in a staged generation."""
    client, where = job.store.client, caught_up.staged.keys
    if not caught_up.same:
        staging.unstage_rows(client, where, caught_up.deleted, job.store.row_keys)
        staging.stage_records(client, where, caught_up.records)
        after = caught_up.staged
        staging.stage_stream(client, where, after.stream, pipeline=after.pipeline)
