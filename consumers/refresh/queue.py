"""The refresh jobs that were read and are not done, and how often a model's jobs are begun.

Anybody who may write to ``lethe.refresh-jobs`` can request rebuilds, and anybody who may request
deletions can choose rows that need one. So that neither keeps the refresh worker from other models,
a model's refreshes are limited: some in a row, then one every so many seconds. The model's own
pending job is never dropped: it waits for its turn, and the requests that need it share it. Of
other jobs, one per model may wait; more are refused.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import datetime

from lethe.consumers.contract import cloudevents
from lethe.consumers.contract.events import RefreshRequested
from lethe.consumers.log.base import Partition, Record
from lethe.consumers.service.telemetry.logs import Logger
from lethe.consumers.service.telemetry.metrics import Metrics
from lethe.consumers.versions.refresh_schedule import choose_size
from lethe.engine.errors import Unavailable, UnknownModel
from lethe.engine.refresh.size import RefreshSize
from lethe.engine.store.layout.state import ModelState
from lethe.engine.store.offline.jobs import read_pace, write_pace, write_refusal
from lethe.engine.store.store import ModelStore

JOBS = 64
"""The most jobs that are read ahead; there are few."""


@dataclass(frozen=True, slots=True)
class RefreshLimit:
    """How often refreshes of one model are begun.

    One point in time is kept per model, its pace: when the model will count as if it had never been
    refreshed. Each refresh moves it by ``seconds``, and none is begun that would move it more than
    ``burst`` times that ahead of now.

    Attributes
    ----------
    seconds
        Between two refreshes in the long run; 0 for no limit.
    burst
        How many may follow one another at once.
    """

    seconds: float = 0.0
    burst: int = 5

    def wait(self, pace: float, now: float) -> float:
        """Return for how many seconds another refresh has to wait."""
        limit = self.burst * self.seconds  # never more than that, even if clocks were changed
        return max(0.0, min(pace - now, limit) - (limit - self.seconds))

    def after(self, pace: float, now: float) -> float:
        """Return the pace after a refresh that is begun now."""
        return now + max(0.0, min(pace - now, self.burst * self.seconds)) + self.seconds


@dataclass(slots=True)
class _Job:
    record: Record
    event: RefreshRequested | None
    due: float = 0.0
    own: bool = True


class JobQueue:
    """Jobs in log order, each handed out when its model's limit allows; one thread uses it.

    A job that a server broke off goes behind the others.

    Parameters
    ----------
    store
        Where the models and their paces are.
    limit
        How often refreshes of one model are begun.
    now
        The clock.
    logger, metrics
        Where jobs that wait or are refused are logged and counted.
    """

    def __init__(
        self,
        store: ModelStore,
        limit: RefreshLimit,
        now: Callable[[], datetime],
        logger: Logger,
        metrics: Metrics,
    ) -> None:
        self._store = store
        self._limit = limit
        self._now = now
        self._logger = logger
        self._metrics = metrics
        self._jobs: deque[_Job] = deque()
        self._interrupted: dict[str, int] = {}

    def __len__(self) -> int:
        """Return how many jobs are not done."""
        return len(self._jobs)

    def room(self) -> int:
        """Return how many more jobs may be read."""
        return max(0, JOBS - len(self._jobs))

    def add(self, records: Iterable[Record]) -> None:
        """Add the jobs of records that were read."""
        self._jobs.extend(_Job(record, self._parse(record)) for record in records)

    def drop(self, partitions: Collection[Partition]) -> None:
        """Forget the jobs of these partitions: they are lost, or will be read again."""
        self._jobs = deque(job for job in self._jobs if job.record.partition not in partitions)

    def first(self, partition: Partition) -> int | None:
        """Return the offset of the first job of a partition that is not done."""
        offsets = (job.record.offset for job in self._jobs if job.record.partition == partition)
        return min(offsets, default=None)

    def take(self) -> tuple[Record, RefreshRequested | None] | None:
        """Remove and return the first job that may be begun now; None if there is none.

        Jobs that were interrupted come behind the others.

        Without an event there is nothing to do: the record is not a job, or the job is refused.
        """
        for job in sorted(self._jobs, key=self._times_interrupted):
            if job.due <= self._now().timestamp():
                event = None if job.event is None else self._event_to_begin(job, job.event)
                if job.due <= self._now().timestamp():
                    self._jobs.remove(job)
                    return job.record, event
        return None

    def let_pass(self, job_id: str) -> None:
        """Note that a job was interrupted: when it is read again, it goes behind all others."""
        times = self._interrupted.pop(job_id, 0)
        while len(self._interrupted) >= JOBS:
            del self._interrupted[next(iter(self._interrupted))]
        self._interrupted[job_id] = times + 1

    def _times_interrupted(self, job: _Job) -> int:
        return 0 if job.event is None else self._interrupted.get(job.event.job_id, 0)

    def _event_to_begin(self, job: _Job, event: RefreshRequested) -> RefreshRequested | None:
        """Return a job's event if it may begin now; else set when it is due, or refuse it."""
        refusal = None
        try:
            if self._limit.seconds:
                state = self._store.load_model(event.model_id)
                refusal = self._begin_or_refuse(job, event, state)
                if refusal is not None:
                    write_refusal(self._store.client, state.keys, event.job_id, refusal)
        except Unavailable:
            raise
        except UnknownModel as error:
            refusal = str(error)
        except Exception:
            refusal = None  # whatever it is, the job itself meets it and reports it
        if refusal is None:
            return event
        self._metrics.refreshes_refused.inc()
        self._warn(event, "refresh request refused", "refresh_refused", reason=refusal)
        return None

    def _begin_or_refuse(self, job: _Job, event: RefreshRequested, state: ModelState) -> str | None:
        """Begin a job, which moves the model's pace, or set when it is due.

        Returns why it is refused, or None if it is not.
        """
        pending = state.meta.pending_job
        job.own = pending is not None and pending.job_id == event.job_id
        if not job.own and state.meta.generation > event.generation:
            # A later generation than the store's is no reason: the store has lost it, and a fold
            # brings it back.
            return "another refresh was faster; order again if it is still needed"
        if job.own and choose_size(state, event, self._now()).size is RefreshSize.COMPLETE:
            return None  # it reads no rows, and a commit of the model itself has scheduled it
        now = self._now().timestamp()
        pace = read_pace(self._store.client, state.keys)
        wait = self._limit.wait(pace, now)
        if wait <= 0:
            write_pace(self._store.client, state.keys, self._limit.after(pace, now))
            return None
        if not job.own and self._another_waits(job, event):
            return self._limit_message()
        job.due = now + wait
        self._warn(event, "refresh waits for its turn", "refresh_wait", seconds=round(wait, 1))
        return None

    def _another_waits(self, job: _Job, event: RefreshRequested) -> bool:
        return any(
            other is not job
            and other.due > 0
            and not other.own
            and other.event is not None
            and other.event.model_id == event.model_id
            for other in self._jobs
        )

    def _limit_message(self) -> str:
        return (
            f"after {self._limit.burst} refreshes in a row a model gets one every "
            f"{self._limit.seconds:g} s (LETHE_REFRESH_MIN_INTERVAL), and another request "
            "waits already: order again when that one is done"
        )

    def _warn(self, event: RefreshRequested, message: str, action: str, **more: object) -> None:
        self._logger.warning(message, action=action, model=event.model_id, job=event.job_id, **more)

    def _parse(self, record: Record) -> RefreshRequested | None:
        try:
            return RefreshRequested.model_validate(cloudevents.parse(record).data)
        except (ValueError, RecursionError) as error:
            self._logger.error(
                "a record that is not a refresh job is skipped",
                action="skip",
                offset=record.offset,
                reason=str(error).splitlines()[0],
            )
            return None
