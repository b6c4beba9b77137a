"""The refresh worker: takes refresh jobs, and stores and reports results. Safe to kill at any time.

A job that was begun and not finished is done again from the start; its staged keys expire. A job
that a server broke off goes behind all others. The worker keeps polling while it computes, so that
the log does not take it for dead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Unpack

from lethe.consumers.contract import cloudevents, topics
from lethe.consumers.contract.events import REFRESH_COMPLETED, RefreshCompleted, RefreshRequested
from lethe.consumers.log.base import Log, Partition, Record
from lethe.consumers.refresh.job import Superseded, run_job
from lethe.consumers.refresh.queue import JobQueue, RefreshLimit
from lethe.consumers.service.telemetry.progress import Progress
from lethe.consumers.service.telemetry.steps import Step
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
_BUSY_POLL_SECONDS = 0.2
_ATTEMPTS = 3  # at one job: after three that ended the process, it is given up
_INTERRUPTIONS = 10
"""Attempts at one job that servers broke off. A server that comes and goes does so less often
during one job; more likely the job itself is the cause, because the store lacks memory. It fails
then, and is scheduled again at growing intervals, like every refresh that fails."""


class RefreshWorker(PartitionWorker):
    """Reads refresh jobs one at a time; one thread runs it, and one more computes.

    Beside what `PartitionWorker` has: ``computing`` runs the jobs, by default a thread of the
    worker's own. ``limit`` is how often jobs of one model are begun: by default as often as they
    come. ``lineage`` is told of each job.
    """

    def __init__(
        self,
        log: Log,
        store: ModelStore,
        *,
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
        self._computing = computing or ThreadPoolExecutor(1, thread_name_prefix="refresh")
        self._job: Future[JobResult] | None = None  # the newest
        self._queue = JobQueue(store, limit or RefreshLimit(), now, self._logger, self._metrics)
        self._broken_off: set[str] = set()

    def close(self) -> None:
        """Leave the group; a job in progress is abandoned with the process."""
        job_done = self._job is None or self._job.done()
        self._computing.shutdown(wait=job_done, cancel_futures=True)
        super().close()

    def _room(self) -> int:
        return self._queue.room()

    def _process(self, records: Sequence[Record]) -> int:
        """Do at most one job; return how many were done."""
        self._queue.add(records)
        job = self._queue.take()
        self.poll_seconds = POLL_SECONDS if job is None else 0.0
        if job is None:
            self._health.progress(0)  # jobs that wait for their turn are no stall
            return 0
        record, event = job
        if event is not None and not self._do(event):
            return 0
        self._at_step(Step.REFRESH_ADVANCE)
        self._advance([record.partition])
        self._health.progress(len(self._queue))
        return 1

    def _first_unfinished(self, partition: Partition) -> int | None:
        return self._queue.first(partition)

    def _is_busy(self) -> bool:
        return len(self._queue) > 0

    def _forget(self, partitions: frozenset[Partition]) -> None:
        self._queue.drop(partitions)

    def _do(self, event: RefreshRequested) -> bool:
        """Do a job; return False when stopped before it was done."""
        self._logger.info(
            "refresh begins",
            action="refresh_begin",
            model=event.model_id,
            job=event.job_id,
            reason=event.reason,
        )
        broken_off = int(event.job_id in self._broken_off)
        attempts = begin_attempt(self._store.client, event.model_id, event.job_id, broken_off)
        self._broken_off.discard(event.job_id)
        reason = _give_up_reason(attempts)
        if reason is not None:
            self._fail(event, reason)
            self._complete(event)
            return True
        try:
            result = self._compute_reported(event)
        except Unavailable:
            # Counted when the job is begun again: the server that is away may be the store.
            self._broken_off.add(event.job_id)
            self._queue.let_pass(event.job_id)
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
            end_attempt(self._store.client, event.model_id, event.job_id)
        except Exception as error:
            # Even after a defect of ours, or for lack of memory, other models' jobs go on.
            known = isinstance(error, LetheError)
            self._fail(event, str(error) if known else f"a defect: {type(error).__name__}: {error}")
            end_attempt(self._store.client, event.model_id, event.job_id)
        else:
            if result is None:
                end_attempt(self._store.client, event.model_id, event.job_id)
                return False
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
        self._at_step(Step.REFRESH_COMPLETE)
        self._complete(event)
        return True

    def _compute_reported(self, event: RefreshRequested) -> JobResult | None:
        """Compute a job, and report it as a run, if that is wanted; `_fail` reports failures."""
        if self._lineage is None:
            return self._compute(event)
        self._lineage.begun(event)
        try:
            result = self._compute(event)
        except (Unavailable, Superseded):
            self._lineage.aborted(event)
            raise
        if result is None:
            self._lineage.aborted(event)
        else:
            self._lineage.done(event, result)
        return result

    def _compute(self, event: RefreshRequested) -> JobResult | None:
        """Compute a job on the other thread while polling; return None when stopped."""
        future = self._job = self._computing.submit(
            run_job,
            self._store,
            event,
            now=self._now(),
            progress=self._progress,
            at_step=self._at_step,
        )
        try:
            while not future.done():
                if self._stop.is_set():
                    return None
                # Even when the queue is full: a consumer that stops polling is taken for dead. What
                # is lost meanwhile is dropped in the next turn: this job's watermark moves first.
                self._keepalive.check()
                records = self._consumer.poll(_BUSY_POLL_SECONDS, self._queue.room())
                self._assignment.move(records)
                self._queue.add(records)
                self._health.beat()
            return future.result()
        finally:
            future.cancel()  # it may not have begun, queued behind an abandoned job

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
