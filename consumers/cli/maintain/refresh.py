"""``lethe refresh``: schedules refreshes, of one model or of all that are due."""

from __future__ import annotations

import hashlib
import time
import uuid
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import click

from lethe.consumers.cli.terminal.options import global_options, wait_option
from lethe.consumers.cli.terminal.output import Output, error_number, number, prepare
from lethe.consumers.commits.publish import job_message
from lethe.consumers.contract import cloudevents, topics
from lethe.consumers.contract.events import RefreshRequested, Version
from lethe.consumers.log.base import Reader
from lethe.consumers.service.client import Answers, Client
from lethe.consumers.service.connect import open_runtime
from lethe.consumers.versions.refresh_schedule import ORDERED, SCHEDULED, refresh_reason
from lethe.consumers.workers.drained import lags
from lethe.engine.errors import InvalidData, RefreshFailed, Unavailable
from lethe.engine.refresh.size import RefreshSize
from lethe.engine.store.layout.keys import ModelKeys
from lethe.engine.store.layout.state import ModelState
from lethe.engine.store.lookup import read_summary
from lethe.engine.store.membership import registered_models
from lethe.engine.store.offline.jobs import JobResult, read_refusal, read_result
from lethe.engine.store.server.rewrite import rewrite_append_only_file
from lethe.engine.store.store import ModelStore

_READ_SECONDS = 0.5
_READ_RECORDS = 500
_LOST_SECONDS = 3600.0  # a pending job as old as this is sent again
_SUPERSEDED_SECONDS = 5.0  # from the commit of a swap to its version on the topic


class NoRefresh(Unavailable):
    """The refresh did not finish within the time to wait."""

    code = "NO_REFRESH"
    exit_code = 1


@click.command(short_help="Schedule a refresh of one model, or of all that are due.")
@click.argument("model", required=False)
@click.option(
    "--due", is_flag=True,
    help="Schedule what each model needs: a rebuild if --refresh-every has passed, if data derived "
    "from deleted rows has reached its age limit, or if deferred requests wait and no refresh is "
    "pending. Pending jobs over an hour old are sent again.",
)  # fmt: skip
@click.option(
    "--size", type=click.Choice([size.value for size in RefreshSize]),
    help="complete: publish the exact answer. polish: return to the optimum of the live rows. "
    "compact: fold deletions into the factor. rebuild: refit and precompute again. Default: the "
    "policy chooses (with --due: rebuild).",
)  # fmt: skip
@wait_option("the version that the refresh makes", 600)
@global_options
@click.pass_context
def refresh(
    ctx: click.Context, /, *, model: str | None, due: bool, size: str | None, wait: float | None
) -> int:
    """Schedule a refresh of MODEL; a refresh worker (`lethe work`) does it.

    Deletions continue meanwhile. A generation that is used up is compacted or rebuilt even if a
    smaller size was named. Exit code 1 with --wait: the refresh failed, or none came in time.

    \b
    Examples:
      lethe refresh churn --size rebuild --wait
      lethe refresh --due         from cron, a systemd timer or a CronJob
    """  # noqa: D301 - click looks for the character
    if due == (model is not None):
        raise click.UsageError("give a MODEL, or --due")
    if due and wait is not None:
        raise click.UsageError("--wait requires a MODEL")
    settings, out = prepare(ctx)
    chosen = None if size is None else RefreshSize(size)
    with (
        open_runtime(settings) as runtime,
        Client(runtime.log, trusted=runtime.trusted()) as client,
    ):
        store = runtime.store()
        if not client.reader.partitions(topics.REFRESH_JOBS):
            raise InvalidData(
                f"the topic {topics.REFRESH_JOBS} does not exist; `lethe register` and "
                "`lethe work` create it. Nothing was scheduled"
            )
        if model is None:
            return _schedule_due(out, client, store, chosen or RefreshSize.REBUILD)
        return _schedule(out, client, store, model, chosen, wait)


def _schedule(
    out: Output,
    client: Client,
    store: ModelStore,
    model: str,
    size: RefreshSize | None,
    wait: float | None,
) -> int:
    job = _job(store.load_model(model), uuid.uuid4().hex, ORDERED, size)
    answers = client.answers(topics.REFRESH_JOBS, topics.VERSIONS, model)
    _send(client, [job])
    if wait is None:
        out.document({"job_id": job.job_id, "model_id": model, "size": size})
        out.line(f"refresh {job.job_id} of {model} scheduled")
        return 0
    version = _wait(out, store, answers, job, wait)
    out.document(version.model_dump(mode="json"))
    done = version.refresh
    if done is not None:
        out.line(
            f"{done.size.value} in {done.seconds:.2f} s ({done.reason}): version {version.version}"
            f", error {error_number(version.error.relative)} of a budget of "
            f"{number(version.error.budget)}"
        )
    return 0


def _job(state: ModelState, job_id: str, reason: str, size: RefreshSize | None) -> RefreshRequested:
    return RefreshRequested(
        job_id=job_id,
        model_id=state.model_id,
        generation=state.meta.generation,
        version=state.version,
        reason=reason,
        size=size,
    )


def _send(client: Client, jobs: Sequence[RefreshRequested]) -> None:
    client.append(job_message(job, datetime.now(UTC)) for job in jobs)


# -- those due ----------------------------------------------------------------------------------


def _schedule_due(out: Output, client: Client, store: ModelStore, size: RefreshSize) -> int:
    queued = set(_queued(client.reader, store))
    now = datetime.now(UTC)
    jobs = []
    for model in registered_models(store.client):
        job = _due(store.load_model(model), size, now)
        if job is not None and job.job_id not in queued:
            jobs.append(job)
    _send(client, jobs)
    out.document({"ordered": [job.model_dump(mode="json", exclude={"generation"}) for job in jobs]})
    for job in jobs:
        out.line(f"refresh {job.job_id} of {job.model_id} scheduled: {job.reason}")
    out.line(f"{len(jobs)} refreshes scheduled")
    if not rewrite_append_only_file(store.client):
        out.line("the store did not start to rewrite its append-only file (docs/state.md)")
    return 0


def _due(state: ModelState, size: RefreshSize, now: datetime) -> RefreshRequested | None:
    """Return the job that a model needs now.

    The id of a job that is due by time follows from its reason, so that running the command again
    before the job is done does not schedule it twice.
    """
    meta = state.meta
    pending = meta.pending_job
    if pending is not None:
        age = (now - pending.ordered_at).total_seconds()
        again = _job(state, pending.job_id, pending.reason, None)
        return again if age > _LOST_SECONDS else None
    reason = refresh_reason(state, now)
    if reason is not None:  # due by time, or after a rebuild that failed: no commit
        seed = f"{state.model_id}\n{reason}\n{state.head.commit}"
        return _job(state, hashlib.sha256(seed.encode()).hexdigest()[:32], reason, None)
    every = meta.config.refresh_every_seconds
    if every is None or meta.rows_live == 0:
        return None
    if (now - meta.refreshed_at).total_seconds() < every:
        return None
    seed = f"{state.model_id}\n{SCHEDULED}\n{meta.refreshed_at.isoformat()}"
    return _job(state, hashlib.sha256(seed.encode()).hexdigest()[:32], SCHEDULED, size)


def _queued(reader: Reader, store: ModelStore) -> Iterator[str]:
    """Yield the ids of the jobs that wait in the topic or are under way."""
    for lag in lags(reader, store, topics.REFRESH_JOBS):
        end = lag.next_offset + lag.waiting
        offset = max(lag.next_offset, reader.bounds(lag.partition).begin)
        while offset < end:
            records, after = reader.read(lag.partition, offset, _READ_SECONDS, _READ_RECORDS)
            for record in records:
                try:
                    data = cloudevents.parse(record).data
                    yield RefreshRequested.model_validate(data).job_id
                except ValueError:
                    continue  # the worker skips it too
            if after == offset:
                break  # at worst a job is scheduled twice, and done once
            offset = after


# -- waiting ------------------------------------------------------------------------------------


def _wait(
    out: Output, store: ModelStore, answers: Answers, job: RefreshRequested, seconds: float
) -> Version:
    """Return the version that the job makes.

    Raises
    ------
    RefreshFailed
        The job failed, or another refresh was faster.
    NoRefresh
        No version came in time.
    """
    deadline = time.monotonic() + seconds
    outdated_since: float | None = None
    with out.progress() as report:
        report(f"waiting for refresh {job.job_id}", 0, 0)
        for records in answers.until(deadline):
            for record in records:
                version = _version(record.value)
                if version is not None and _made_by(version, job):
                    return version
            if records or not _outdated(store, job):
                outdated_since = None
            elif outdated_since is None:
                outdated_since = time.monotonic()
            elif time.monotonic() - outdated_since > _SUPERSEDED_SECONDS:
                raise RefreshFailed(
                    f"refresh {job.job_id} of model {job.model_id!r} made no version: another "
                    "refresh was faster. `lethe versions` shows it; schedule another if that is "
                    "not enough"
                )
    raise NoRefresh(
        f"refresh {job.job_id} of model {job.model_id!r} has not finished in {seconds:g} s; it "
        "stays scheduled. Is a refresh worker running (`lethe work`)?"
    )


def _outdated(store: ModelStore, job: RefreshRequested) -> bool:
    """Return whether the job has a result that no longer fits the model.

    Raises
    ------
    RefreshFailed
        The job failed.
    """
    meta, keys = read_summary(store.client, job.model_id).meta, ModelKeys(job.model_id)
    refusal = read_refusal(store.client, keys, job.job_id)
    if refusal is not None:
        raise RefreshFailed(f"refresh {job.job_id} of model {job.model_id!r}: {refusal}")
    outcome: Any = read_result(store.client, keys, job.job_id)
    if isinstance(outcome, str):
        raise RefreshFailed(f"refresh {job.job_id} of model {job.model_id!r} failed: {outcome}")
    if outcome is None:
        return False
    result: JobResult = outcome[0]
    made_from = (result.generation_key, result.reference_epoch)
    return made_from != (meta.generation_key, meta.reference_epoch)


def _version(value: bytes | None) -> Version | None:
    try:
        return Version.read(value or b"")
    except ValueError:
        return None


def _made_by(version: Version, job: RefreshRequested) -> bool:
    done = version.refresh
    return version.model_id == job.model_id and done is not None and done.job_id == job.job_id
