"""The refresh worker: takes refresh jobs, and stores and reports results. Safe to kill at any time.

A job that was begun and not finished is done again from the start; its staged keys expire. A job
that a server broke off goes behind all others. The worker keeps polling while jobs run, so that the
log does not take it for dead.

Jobs run in *lanes*, one at a time in each. The first takes any; the others take small ones only, so
that no large rebuild delays them. Jobs end in another order than they came in: the watermark stays
below the first that is not done, and those behind it that are done are repeated by the next worker,
which is harmless: a result is swapped in only if it continues the model's state.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Unpack

from lethe.consumers.contract import cloudevents, topics
from lethe.consumers.contract.events import REFRESH_COMPLETED, RefreshCompleted, RefreshRequested
from lethe.consumers.log.base import Log, Partition, Record
from lethe.consumers.refresh.job import Superseded, run_job
from lethe.consumers.refresh.queue import Job, JobQueue, RefreshLimit
from lethe.consumers.service.telemetry.progress import Progress
from lethe.consumers.service.telemetry.steps import Step
from lethe.consumers.workers.leases import RefreshShown
from lethe.consumers.workers.partition_worker import POLL_SECONDS, PartitionWorker, Reporting
from lethe.engine.errors import LetheError, Unavailable
from lethe.engine.store.offline.jobs import (
    Attempts,
    JobResult,
    begin_attempt,
    end_attempt,
    write_failure,
)
from lethe.engine.store.store import ModelStore

if TYPE_CHECKING:
    from lethe.consumers.service.telemetry.lineage import RefreshLineage

GROUP = "lethe-refresh"
_BUSY_POLL_SECONDS = 0.1
_ELSEWHERE_SECONDS = 2.0  # until a model whose refresh another worker does is looked at again
_SHOWN = 20  # the most jobs that a worker says it has: lines for people

SMALL_BYTES = 128 << 20
"""The most memory that a small job needs: a rebuild of 75,000 rows of 20 features takes 2 s."""

_ATTEMPTS = 3  # at one job: after three that ended the process, it is given up
_INTERRUPTIONS = 10
"""Attempts at one job that servers broke off. A server that comes and goes does so less often
during one job; more likely the job itself is the cause, because the store lacks memory. It fails
then, and is scheduled again at growing intervals, like every refresh that fails."""


@dataclass(slots=True)
class _Lane:
    """Runs one job at a time, of at most ``most`` bytes, with a store of its own."""

    store: ModelStore
    most: float
    job: Job | None = None
    result: Future[JobResult] | None = None


class RefreshWorker(PartitionWorker):
    """Reads refresh jobs; one thread runs it, and one computes in each lane.

    Beside what `PartitionWorker` has: ``lanes`` are the stores of the lanes; by default there is
    one, with the worker's own. ``memory`` is how many bytes their jobs may need together.
    ``computing`` runs the jobs, by default threads of the worker's own. ``limit`` is how often jobs
    of one model are begun: by default as often as they come. ``lineage`` is told of each job.
    """

    def __init__(
        self,
        log: Log,
        store: ModelStore,
        *,
        lanes: Sequence[ModelStore] = (),
        memory: float = math.inf,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        progress: Progress = lambda _what, _done, _all: None,
        computing: Executor | None = None,
        limit: RefreshLimit | None = None,
        lineage: RefreshLineage | None = None,
        **reporting: Unpack[Reporting],
    ) -> None:
        reads, watches = [topics.REFRESH_JOBS], [topics.REFRESH_JOBS, topics.DELETIONS]
        super().__init__(log, store, "refresh", GROUP, reads, reporting, watches=watches)
        self._now = now
        self._progress = progress
        self._lineage = lineage
        first, *others = lanes or [store]
        self._most = memory - SMALL_BYTES * len(others)
        self._lanes = [_Lane(one, SMALL_BYTES) for one in others] + [_Lane(first, math.inf)]
        self._computing = computing or ThreadPoolExecutor(
            len(self._lanes), thread_name_prefix="refresh"
        )
        self._queue = JobQueue(store, limit or RefreshLimit(), now, self._logger, self._metrics)
        self._broken_off: set[str] = set()
        self._done_now = 0  # in this turn

    def close(self) -> None:
        """Leave the group; jobs in progress are abandoned with the process."""
        running = [lane.job for lane in self._lanes if lane.result and not lane.result.done()]
        for job in running:
            if job is not None and job.event is not None:
                with suppress(LetheError):
                    end_attempt(self._store.client, job.model, job.event.job_id)
                self._aborted(job.event)
        self._computing.shutdown(wait=not running, cancel_futures=True)
        super().close()

    def _room(self) -> int:
        return self._queue.room()

    def _process(self, records: Sequence[Record]) -> int:
        """Begin at most one job, and finish those that have ended; return how many were done."""
        if finished := self._queue.add(records):
            self._move_past(finished)
        begun = self._begin_one()
        ended = [lane for lane in self._lanes if lane.result is not None and lane.result.done()]
        for lane in ended:
            self._end(lane)
        done, self._done_now = self._done_now, 0
        if begun or done:
            self.poll_seconds = 0.0
        else:
            self.poll_seconds = _BUSY_POLL_SECONDS if self._queue.running else POLL_SECONDS
        self._health.progress(0)  # jobs that run, or wait for their turn, are no stall
        self._show()
        return done

    def _first_unfinished(self, partition: Partition) -> int | None:
        return self._queue.first(partition)

    def _is_busy(self) -> bool:
        return len(self._queue) > 0

    def _forget(self, partitions: frozenset[Partition]) -> None:
        self._queue.drop(partitions)

    def _show(self) -> None:
        """Say in metrics and in the store which jobs there are."""
        for state, count in (
            ("running", len(self._queue.running)),
            ("waiting", len(self._queue) - len(self._queue.running)),
        ):
            self._metrics.refresh_jobs.labels(state).set(count)
        self._metrics.refresh_memory.set(sum(job.bytes for job in self._queue.running))
        if self._lease is not None:
            self._lease.refreshes = tuple(
                RefreshShown(
                    model_id=job.event.model_id,
                    job_id=job.event.job_id,
                    reason=job.event.reason,
                    running=job.since > 0,
                    bytes=job.bytes,
                    since=datetime.fromtimestamp(job.since, UTC) if job.since else job.ordered_at,
                )
                for job in islice(self._queue, _SHOWN)
                if job.event is not None
            )

    def _begin_one(self) -> bool:
        """Begin the next job that a free lane may take; return whether there was one."""
        for lane in self._lanes:
            if lane.job is None and (job := self._queue.take(lane.most)) is not None:
                try:
                    self._begin(lane, job)
                except Exception:
                    self._queue.release(job)  # it is read again
                    raise
                return True
        return False

    def _begin(self, lane: _Lane, job: Job) -> None:
        event = job.event
        if event is None or job.refused:
            self._finish(job)
            return
        if job.bytes and self._lease is not None and job.model in self._lease.running_elsewhere():
            self._queue.put_back(job, _ELSEWHERE_SECONDS)
            return
        self._logger.info(
            "refresh begins",
            action="refresh_begin",
            model=event.model_id,
            job=event.job_id,
            reason=event.reason,
            megabytes=round(job.bytes / 1e6),
        )
        broken_off = int(event.job_id in self._broken_off)
        attempts = begin_attempt(self._store.client, event.model_id, event.job_id, broken_off)
        self._broken_off.discard(event.job_id)
        reason = _give_up_reason(attempts) or self._too_large(job)
        if reason is not None:
            self._fail(event, reason)
            self._complete(event)
            self._finish(job)
            return
        self._metrics.refresh_wait_seconds.observe(max(job.since - job.ordered_at.timestamp(), 0.0))
        if self._lineage is not None:
            self._lineage.begun(event)
        lane.result = self._computing.submit(
            run_job,
            lane.store,
            event,
            now=self._now(),
            progress=self._progress,
            at_step=self._at_step,
        )
        lane.job = job

    def _too_large(self, job: Job) -> str | None:
        """Return why a job may not run here, or None."""
        if job.bytes <= self._most:
            return None
        return (
            f"it needs about {job.bytes / 1e6:,.0f} MB, and LETHE_REFRESH_MEMORY leaves "
            f"{self._most / 1e6:,.0f} MB for one job: raise it, on a machine that has the memory"
        )

    def _end(self, lane: _Lane) -> None:
        """Report a job that has ended, and free its lane."""
        job, result = lane.job, lane.result
        lane.job = lane.result = None
        if job is None or job.event is None or result is None:
            return
        try:
            self._report(job.event, result)
            self._finish(job)
        except Exception:
            self._queue.release(job)  # it is read again
            raise

    def _finish(self, job: Job) -> None:
        """Move past a job that is done."""
        self._at_step(Step.REFRESH_ADVANCE)
        self._queue.finish(job)
        self._done_now += 1
        partition = job.record.partition
        if partition in self._assignment.positions:  # else another worker has it by now
            self._move_past([partition])

    def _move_past(self, partitions: Collection[Partition]) -> None:
        """Move the watermarks of partitions with finished jobs."""
        self._advance(partitions)
        self._queue.settle(self._watermarks(partitions))

    def _report(self, event: RefreshRequested, ended: Future[JobResult]) -> None:
        """Say what became of a job; raise `Unavailable` if a server broke it off."""
        try:
            result = ended.result()
        except Unavailable:
            # Counted when the job is begun again: the server that is away may be the store.
            self._broken_off.add(event.job_id)
            self._queue.let_pass(event.job_id)
            self._aborted(event)
            raise
        except Superseded as error:
            # Not a failure: if this is the pending job, its completed event schedules another.
            self._logger.info(
                "refresh is not needed",
                action="refresh_superseded",
                model=event.model_id,
                job=event.job_id,
                reason=str(error),
            )
            self._queue.superseded(event)
            self._aborted(event)
        except Exception as error:
            # Even after a defect of ours, or for lack of memory, other models' jobs go on.
            known = isinstance(error, LetheError)
            self._fail(event, str(error) if known else f"a defect: {type(error).__name__}: {error}")
        else:
            self._done(event, result)
        end_attempt(self._store.client, event.model_id, event.job_id)
        self._at_step(Step.REFRESH_COMPLETE)
        self._complete(event)

    def _done(self, event: RefreshRequested, result: JobResult) -> None:
        self._metrics.refreshes.labels(result.size.value).inc()
        self._metrics.refresh_seconds.observe(result.seconds)
        if result.drifted:
            self._metrics.drift_audits_failed.inc()
            self._logger.warning(
                "the live rows contradict the model's state; it is rebuilt",
                action="drift_audit_failed",
                model=event.model_id,
                job=event.job_id,
                fault=result.reason,
            )
        self._logger.info(
            "refresh done",
            action="refresh_done",
            model=event.model_id,
            job=event.job_id,
            size=result.size.value,
            reason=result.reason,
            seconds=round(result.seconds, 4),
        )
        if self._lineage is not None:
            self._lineage.done(event, result)

    def _aborted(self, event: RefreshRequested) -> None:
        if self._lineage is not None:
            self._lineage.aborted(event)

    def _fail(self, event: RefreshRequested, reason: str) -> None:
        self._logger.error(
            "refresh failed",
            action="refresh_failed",
            model=event.model_id,
            job=event.job_id,
            reason=reason,
        )
        self._metrics.refreshes_failed.inc()
        write_failure(self._store.client, event.model_id, event.job_id, reason)
        if self._lineage is not None:
            self._lineage.failed(event, reason)

    def _complete(self, event: RefreshRequested) -> None:
        """Send the event that names the job, through the model's own partition."""
        done = RefreshCompleted(job_id=event.job_id, model_id=event.model_id)
        job_id, model_id, value = event.job_id, event.model_id, done.value()
        message = cloudevents.message(
            topics.DELETIONS, REFRESH_COMPLETED, job_id, self._now(), model_id, value
        )
        self._producer.publish([message])


def _give_up_reason(attempts: Attempts) -> str | None:
    """Return why a job is not tried again, or None."""
    if attempts.open > _ATTEMPTS:
        return f"{_ATTEMPTS} attempts ended the worker; it may need more memory"
    if attempts.interrupted >= _INTERRUPTIONS:
        return (
            f"servers broke off {attempts.interrupted} attempts (action=retry in the log says how)"
            "; the store may need more memory"
        )
    return None
