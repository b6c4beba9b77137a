"""``lethe refresh``: orders refreshes, of one model or of those that are due."""

from __future__ import annotations

import hashlib
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import click

from lethe.consumers.cli.options import WaitSeconds, global_options
from lethe.consumers.cli.output import Output, error_number, number, prepare
from lethe.consumers.contract import cloudevents, topics
from lethe.consumers.contract.events import REFRESH_REQUESTED, RefreshRequested, Version
from lethe.consumers.log.base import Message, Partition, Reader
from lethe.consumers.service.connect import Runtime, open_runtime
from lethe.consumers.versions.refresh_schedule import ORDERED, SCHEDULED, refresh_reason
from lethe.consumers.workers.drained import lags
from lethe.engine.errors import InvalidData, RefreshFailed, Unavailable
from lethe.engine.refresh.kind import RefreshKind
from lethe.engine.store.jobs import JobResult, read_refusal, read_result
from lethe.engine.store.rewrite import rewrite_append_only_file
from lethe.engine.store.state import ModelState
from lethe.engine.store.store import ModelStore

_DEFAULT_WAIT = "600"
_READ_SECONDS = 0.5
_READ_RECORDS = 500
_LOST_SECONDS = 3600.0  # a pending job as old as this is sent again
_SUPERSEDED_SECONDS = 5.0  # from the commit of a swap to its version on the topic


class NoRefresh(Unavailable):
    """A refresh that was waited for has not happened in time."""

    code = "NO_REFRESH"
    exit_code = 1


@click.command(short_help="Order a refresh of a model, or of those due.")
@click.argument("model", required=False)
@click.option(
    "--due", is_flag=True,
    help="Order what every model needs by now: a rebuild where --refresh-every has passed, where "
    "what derives from deleted rows has reached its age limit, or where deferred requests wait and "
    "none is pending. Pending jobs over an hour old are sent again.",
)  # fmt: skip
@click.option(
    "--size", type=click.Choice([size.value for size in RefreshKind]),
    help="complete: publish the exact answer. polish: back to the optimum of the live rows. "
    "compact: fold deletions into the factor. rebuild: refit and precompute anew. Default: the "
    "policy's choice (with --due: rebuild).",
)  # fmt: skip
@click.option(
    "--wait", type=WaitSeconds(), is_flag=False, flag_value=_DEFAULT_WAIT, metavar="[S]",
    help=f"Wait for the version that the refresh makes, at most S seconds ({_DEFAULT_WAIT}).",
)  # fmt: skip
@global_options
@click.pass_context
def refresh(
    ctx: click.Context, /, *, model: str | None, due: bool, size: str | None, wait: float | None
) -> int:
    """Order a refresh of MODEL; a refresh worker (`lethe work`) does it.

    Deletions go on meanwhile. A generation that is used up is compacted or rebuilt whatever
    smaller size was named. Exit code 1 with --wait: the refresh failed, or none came in time.

    \b
    Examples:
      lethe refresh churn --size rebuild --wait
      lethe refresh --due            from cron, a systemd timer or a Kubernetes CronJob
    """  # noqa: D301 - click looks for the character
    if due == (model is not None):
        raise click.UsageError("give a MODEL, or --due")
    if due and wait is not None:
        raise click.UsageError("--wait goes with a MODEL")
    settings, out = prepare(ctx)
    chosen = None if size is None else RefreshKind(size)
    with open_runtime(settings) as runtime:
        store, reader = runtime.store(), runtime.log.reader()
        try:
            if not reader.partitions(topics.REFRESH_JOBS):
                raise InvalidData(
                    f"the topic {topics.REFRESH_JOBS} does not exist; `lethe register` and "
                    "`lethe work` create it. Nothing was ordered"
                )
            if model is None:
                return _order_due(out, runtime, store, reader, chosen or RefreshKind.REBUILD)
            return _order(out, runtime, store, reader, model, chosen, wait)
        finally:
            reader.close()


def _order(
    out: Output,
    runtime: Runtime,
    store: ModelStore,
    reader: Reader,
    model: str,
    size: RefreshKind | None,
    wait: float | None,
) -> int:
    job = _job(store.load_model(model), uuid.uuid4().hex, ORDERED, size)
    partition = reader.partition_for(topics.VERSIONS, model.encode())
    begin = reader.bounds(partition).end
    _send(runtime, [job])
    if wait is None:
        out.document({"job_id": job.job_id, "model_id": model, "size": size})
        out.line(f"refresh {job.job_id} of {model} ordered")
        return 0
    version = _wait(out, _Waiting(store, reader, partition, job), begin, wait)
    out.document(version.model_dump(mode="json"))
    done = version.refresh
    if done is not None:
        out.line(
            f"{done.size.value} in {done.seconds:.2f} s ({done.reason}): version {version.version}"
            f", error {error_number(version.error.relative)} of a budget of "
            f"{number(version.error.budget)}"
        )
    return 0


def _job(state: ModelState, job_id: str, reason: str, size: RefreshKind | None) -> RefreshRequested:
    return RefreshRequested(
        job_id=job_id,
        model_id=state.model_id,
        generation=state.meta.generation,
        version=state.version,
        reason=reason,
        size=size,
    )


def _send(runtime: Runtime, jobs: Sequence[RefreshRequested]) -> None:
    producer = runtime.log.producer()
    try:
        producer.publish(
            Message(
                topics.REFRESH_JOBS,
                job.model_id.encode(),
                job.value(),
                cloudevents.headers(REFRESH_REQUESTED, job.job_id, datetime.now(UTC), job.model_id),
            )
            for job in jobs
        )
    finally:
        producer.close()


# -- those due ----------------------------------------------------------------------------------


def _order_due(
    out: Output, runtime: Runtime, store: ModelStore, reader: Reader, size: RefreshKind
) -> int:
    queued = set(_queued(reader, store))
    now = datetime.now(UTC)
    jobs = []
    for model in store.model_ids():
        job = _due(store.load_model(model), size, now)
        if job is not None and job.job_id not in queued:
            jobs.append(job)
    _send(runtime, jobs)
    out.document({"ordered": [job.model_dump(mode="json", exclude={"generation"}) for job in jobs]})
    for job in jobs:
        out.line(f"refresh {job.job_id} of {job.model_id} ordered: {job.reason}")
    out.line(f"{len(jobs)} refreshes ordered")
    if not rewrite_append_only_file(store.client):
        out.line("the store was not made to rewrite its append-only file now (docs/state.md)")
    return 0


def _due(state: ModelState, size: RefreshKind, now: datetime) -> RefreshRequested | None:
    """Return the job that a model needs now.

    A scheduled job's id follows from what it is due for, so that asking again before it is done
    does not order it twice.
    """
    meta = state.meta
    pending = meta.pending_job
    if pending is not None:
        age = (now - pending.ordered_at).total_seconds()
        again = _job(state, pending.job_id, pending.reason, None)
        return again if age > _LOST_SECONDS else None
    reason = refresh_reason(state, now)
    if reason is not None:  # of time alone, or after a rebuild that failed: nothing was committed
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
    """Yield the ids of the jobs that wait in the topic or are being done."""
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
                break  # at worst a job is ordered twice, and done once
            offset = after


# -- waiting ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A job that is waited for, and where its version will appear."""

    store: ModelStore
    reader: Reader
    partition: Partition
    job: RefreshRequested


def _wait(out: Output, waiting: _Waiting, offset: int, seconds: float) -> Version:
    """Return the version that the job makes.

    Raises
    ------
    RefreshFailed
        The job failed, or another refresh was faster.
    NoRefresh
        Nothing came in time.
    """
    job = waiting.job
    end = time.monotonic() + seconds
    outdated_since: float | None = None
    with out.progress() as report:
        while time.monotonic() < end:
            report(f"waiting for refresh {job.job_id}", 0, 0)
            pause = min(_READ_SECONDS, max(0.0, end - time.monotonic()))
            records, offset = waiting.reader.read(waiting.partition, offset, pause, _READ_RECORDS)
            for record in records:
                version = _version(record.value)
                if version is not None and _made_by(version, job):
                    return version
            if records or not _outdated(waiting):
                outdated_since = None
            elif outdated_since is None:
                outdated_since = time.monotonic()
            elif time.monotonic() - outdated_since > _SUPERSEDED_SECONDS:
                raise RefreshFailed(
                    f"refresh {job.job_id} of model {job.model_id!r} made no version: another "
                    "refresh was faster. `lethe versions` shows it; order again if it is not enough"
                )
    raise NoRefresh(
        f"refresh {job.job_id} of model {job.model_id!r} has not happened in {seconds:g} s; it "
        "stays ordered. Is a refresh worker running (`lethe work`)?"
    )


def _outdated(waiting: _Waiting) -> bool:
    """Return whether the job has a result that no longer fits the model.

    Raises
    ------
    RefreshFailed
        The job failed.
    """
    job, store = waiting.job, waiting.store
    state = store.load_model(job.model_id)
    refused = read_refusal(store.client, state.keys, job.job_id)
    if refused is not None:
        raise RefreshFailed(f"refresh {job.job_id} of model {job.model_id!r}: {refused}")
    found: Any = read_result(store.client, state.keys, job.job_id)
    if isinstance(found, str):
        raise RefreshFailed(f"refresh {job.job_id} of model {job.model_id!r} failed: {found}")
    if found is None:
        return False
    result: JobResult = found[0]
    made_from = (result.generation_key, result.reference_epoch)
    return made_from != (state.meta.generation_key, state.meta.reference_epoch)


def _version(value: bytes | None) -> Version | None:
    try:
        return Version.read(value or b"")
    except ValueError:
        return None


def _made_by(version: Version, job: RefreshRequested) -> bool:
    done = version.refresh
    return version.model_id == job.model_id and done is not None and done.job_id == job.job_id
