"""The refresh worker: takes refresh jobs, and stores and reports results. Safe to kill at any time.

A job that was begun and not finished is done again from the start; its staged keys expire. A job
that a server broke off goes behind all others. The worker keeps polling while it computes, so that
the log does not take it for dead.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from lethe.consumers.contract import cloudevents, topics
from lethe.consumers.contract.events import REFRESH_COMPLETED, RefreshCompleted, RefreshRequested
from lethe.consumers.log.base import Log, Message, Partition, Position, Record
from lethe.consumers.refresh.job import Superseded, run_job
from lethe.consumers.refresh.queue import JobQueue, RefreshLimit
from lethe.consumers.service.loop import keep_turning
from lethe.consumers.service.telemetry.health import Health
from lethe.consumers.service.telemetry.logs import logger
from lethe.consumers.service.telemetry.metrics import Metrics
from lethe.consumers.service.telemetry.progress import Progress
from lethe.consumers.service.telemetry.steps import AtStep, Step, no_hook
from lethe.consumers.service.topic_watch import TopicWatch, loss_of
from lethe.consumers.workers.assignment import Assignment
from lethe.engine.errors import LetheError, LogReset, Unavailable
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
_POLL_SECONDS = 0.5
_BUSY_POLL_SECONDS = 0.2
_ATTEMPTS = 3  # at one job: after three that ended the process, it is given up
_INTERRUPTIONS = 10
"""Attempts at one job that servers broke off. A server that comes and goes does so less often
during one job; more likely the job itself is the cause, because the store lacks memory. It fails
then, and is scheduled again at growing intervals, like every refresh that fails."""


class RefreshWorker:
    """Reads refresh jobs one at a time; one thread runs it, and one more computes.

    ``computing`` runs the jobs: by default a thread of the worker's own. ``limit`` is how often
    jobs of one model are begun: by default as often as they come. ``lineage`` is told of each job.
    """

    def __init__(
        self,
        log: Log,
        store: ModelStore,
        *,
        metrics: Metrics | None = None,
        health: Health | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        progress: Progress = lambda _what, _done, _all: None,
        at_step: AtStep = no_hook,
        computing: Executor | None = None,
        limit: RefreshLimit | None = None,
        lineage: RefreshLineage | None = None,
    ) -> None:
        self._log = log
        self._store = store
        self._metrics = metrics or Metrics()
        self._health = health or Health()
        self._now = now
        self._progress = progress
        self._at_step = at_step
        self._lineage = lineage
        self._logger = logger("refresh")
        self._consumer = log.consumer(GROUP, [topics.REFRESH_JOBS])
        self._producer = log.producer()
        self._computing = computing or ThreadPoolExecutor(1, thread_name_prefix="refresh")
        self._job: Future[JobResult] | None = None  # the newest
        self._queue = JobQueue(store, limit or RefreshLimit(), now, self._logger, self._metrics)
        self._reader = log.reader()
        self._watch = TopicWatch(
            store.topics, self._reader, [topics.REFRESH_JOBS, topics.DELETIONS]
        )
        self._assignment = Assignment(
            self._consumer, store, self._reader, self._logger, self._watch, lost=self._jobs_lost
        )
        self._broken_off: set[str] = set()
        self._rewind = False

    def run(self, stop: threading.Event) -> None:
        """Work until ``stop`` is set; a job in progress is left to the next worker."""
        keep_turning(
            stop,
            lambda: self.run_once(stop=stop),
            recover=self.recover,
            health=self._health,
            logger=self._logger,
        )

    def recover(self) -> None:
        """Forget what was read ahead: the next turn goes back to the watermarks."""
        self._queue.clear()
        self._rewind = True

    def run_once(self, timeout: float = _POLL_SECONDS, stop: threading.Event | None = None) -> int:
        """Do at most one job; return how many were done."""
        self._take_over()
        self._watch.check_if_due()
        job = self._queue.take()
        if job is None:
            self._queue.add(self._consumer.poll(timeout, self._queue.room()))
            job = self._queue.take()
        if job is None:
            self._health.progress(0)  # jobs that wait for their turn are no stall
            return 0
        record, event = job
        if event is not None and not self._do(event, stop or threading.Event()):
            return 0
        self._at_step(Step.REFRESH_ADVANCE)
        self._advance(record)
        self._health.progress(len(self._queue))
        return 1

    def _advance(self, record: Record) -> None:
        """Move the watermark past a job, but not past an earlier job that waits for its turn."""
        partition, positions = record.partition, self._assignment.positions
        position = record.offset + 1
        if position > positions.get(partition, 0):
            self._assignment.move([record])
        else:
            position = positions[partition]
        waiting = self._queue.first(partition)
        watermark = position if waiting is None else min(position, waiting)
        self._store.cursors.set_watermarks(self._assignment.watermarks({partition: watermark}))
        self._consumer.commit_hint({partition: Position(watermark, record.leader_epoch)})

    def close(self) -> None:
        """Leave the group; a job in progress is abandoned with the process."""
        job_done = self._job is None or self._job.done()
        self._computing.shutdown(wait=job_done, cancel_futures=True)
        self._consumer.close()
        self._producer.close()
        self._reader.close()

    def idle(self) -> bool:
        """Return whether every job is done."""
        assigned = self._consumer.assignment()
        return (
            bool(assigned)
            and not len(self._queue)
            and all(
                self._consumer.bounds(p).end <= self._assignment.positions.get(p, 0)
                for p in assigned
            )
        )

    def _take_over(self) -> None:
        """Seek the watermarks of new partitions; forget the jobs read of new and lost ones."""
        moved = self._assignment.drop_lost()
        fresh = self._consumer.take_assigned()
        if self._rewind:
            fresh |= self._consumer.assignment()
        self._queue.drop(moved | fresh)
        self._assignment.take_over(fresh)
        self._rewind = False

    def _jobs_lost(self, partition: Partition, error: LogReset) -> None:
        """Go on with the jobs that are there: what the log has lost is ordered again."""
        self._store.topics.record(loss_of(partition.topic, str(error)))
        self._logger.warning("jobs were lost", action="jobs_lost", reason=str(error))

    def _do(self, event: RefreshRequested, stop: threading.Event) -> bool:
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
            result = self._compute_reported(event, stop)
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

    def _compute_reported(self, event: RefreshRequested, stop: threading.Event) -> JobResult | None:
        """Compute a job, and report it as a run, if that is wanted; `_fail` reports failures."""
        if self._lineage is None:
            return self._compute(event, stop)
        self._lineage.begun(event)
        try:
            result = self._compute(event, stop)
        except (Unavailable, Superseded):
            self._lineage.aborted(event)
            raise
        if result is None:
            self._lineage.aborted(event)
        else:
            self._lineage.done(event, result)
        return result

    def _compute(self, event: RefreshRequested, stop: threading.Event) -> JobResult | None:
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
                if stop.is_set():
                    return None
                # Even when the queue is full: a consumer that stops polling is taken for dead.
                self._queue.add(self._consumer.poll(_BUSY_POLL_SECONDS, self._queue.room()))
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
        headers = cloudevents.headers(REFRESH_COMPLETED, event.job_id, self._now(), event.model_id)
        self._producer.publish(
            [Message(topics.DELETIONS, event.model_id.encode(), done.value(), headers)]
        )


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
