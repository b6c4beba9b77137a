"""The refresh jobs that were read and are not done, and which of them is begun next.

Anybody who may write to ``lethe.refresh-jobs`` can request rebuilds, and anybody who may request
deletions can choose rows that need one. So that neither keeps the refresh worker from other models,
a model's refreshes are limited: some in a row, then one every so many seconds. The model's own
pending job is never dropped: it waits for its turn, and the requests that need it share it. Of
other jobs, one per model may wait; more are refused.

Several jobs may run at once, of different models. Next comes a job of the model whose last one was
begun longest ago; of models that had none yet, the oldest.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from lethe.consumers.contract import cloudevents
from lethe.consumers.contract.events import RefreshRequested
from lethe.consumers.log.base import Partition, Record
from lethe.consumers.service.telemetry.logs import Logger
from lethe.consumers.service.telemetry.metrics import Metrics
from lethe.consumers.versions.refresh_schedule import choose_size
from lethe.engine.errors import CorruptState, Unavailable, UnknownModel
from lethe.engine.fit.objective import Kind
from lethe.engine.refresh.size import RefreshSize
from lethe.engine.store.layout.state import ModelState
from lethe.engine.store.offline.jobs import read_pace, write_pace, write_refusal
from lethe.engine.store.store import ModelStore

T = TypeVar("T")

JOBS = 1024
"""The most jobs that are read ahead. A job behind so many that are large waits for them."""

_PER_ROW, _COPIES = 300, 4
"""A job that reads a row needs so many bytes for its id and its objects, and so many copies of the
float64 of its record. Rebuilds were measured at 2.8 to 3.4 copies (docs/operations.md)."""

_IN_FILES = 256 << 20
"""The most that rows in files are taken to need: they are read block by block. It is more than a
small job needs (`workers.refresh_worker`), because a pass over many files takes long."""

_FASTER = "another refresh was faster; order again if it is still needed"


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


@dataclass(slots=True, eq=False)
class Job:
    """A record that was read, and is not done.

    Attributes
    ----------
    record, event
        The record, and the job in it; None if it is none.
    refused
        Whether it is refused: there is nothing to do.
    due
        When it may begin.
    own
        Whether it is the job that its model waits for.
    bytes
        Memory that it will need; 0 if it reads no rows, or if nobody has looked yet.
    since
        When it was begun, in seconds since 1970; 0 if it was not.
    """

    record: Record
    event: RefreshRequested | None
    refused: bool = False
    due: float = 0.0
    own: bool = True
    bytes: float = 0.0
    since: float = 0.0

    @property
    def name(self) -> tuple[Partition, int, str]:
        """What it is known by when it is read again: other records may come to its place."""
        job_id = "" if self.event is None else self.event.job_id
        return self.record.partition, self.record.offset, job_id

    @property
    def ordered_at(self) -> datetime:
        """When it came into the log."""
        return self.record.logged_at

    @property
    def model(self) -> str:
        """Its model; empty if there is none."""
        return "" if self.event is None else self.event.model_id


def memory_of(state: ModelState) -> float:
    """Return how many bytes a job that reads a model's rows needs at most, roughly."""
    config = state.meta.config
    numbers = config.row_width + config.d * config.blocks + config.m + 1
    rows = state.meta.rows_live * (_PER_ROW + _COPIES * 8 * numbers)
    if state.meta.row_files is not None:
        per_row = 0 if config.kind is Kind.LINEAR else 8  # what its sentinels are chosen by
        rows = min(rows, _IN_FILES + per_row * state.meta.rows_live)
    hessians, size = config.hessian
    return rows + 3 * 8 * hessians * size**2


class JobQueue:
    """Jobs in fair order, each handed out when its model's limit allows; one thread uses it.

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

    Attributes
    ----------
    running
        The jobs that were taken and are not finished. They hold their places while partitions are
        lost, or read again.
    """

    def __init__(
        self,
        store: ModelStore,
        limit: RefreshLimit,
        now: Callable[[], datetime],
        logger: Logger,
        metrics: Metrics,
    ) -> None:
        self.running: list[Job] = []
        self._store = store
        self._limit = limit
        self._now = now
        self._logger = logger
        self._metrics = metrics
        self._waiting: list[Job] = []
        self._finished: set[tuple[Partition, int, str]] = set()  # and not below the watermark
        self._interrupted: dict[str, int] = {}
        self._begun: dict[str, float] = {}

    def __len__(self) -> int:
        """Return how many jobs are not done."""
        return len(self._waiting) + len(self.running)

    def __iter__(self) -> Iterator[Job]:
        """Yield the jobs that are not done: those that run, and then those that wait, by turn."""
        yield from self.running
        yield from sorted(self._waiting, key=self._turn)

    def room(self) -> int:
        """Return how many more jobs may be read."""
        return max(0, JOBS - len(self))

    def add(self, records: Iterable[Record]) -> frozenset[Partition]:
        """Add the jobs of records that were read; those that run or are finished are known.

        Returns the partitions of finished ones. Their watermarks may not be stored, where a server
        was away or another worker had the partition when the job was finished.
        """
        jobs = [Job(record, self._parse(record)) for record in records]
        known = self._finished | {job.name for job in self.running}
        self._waiting += (job for job in jobs if job.name not in known)
        return frozenset(job.record.partition for job in jobs if job.name in self._finished)

    def drop(self, partitions: Collection[Partition]) -> None:
        """Forget the jobs of these partitions: they are lost, or will be read again."""
        self._waiting = [job for job in self._waiting if job.record.partition not in partitions]

    def first(self, partition: Partition) -> int | None:
        """Return the offset of the first job of a partition that is not done."""
        jobs = (*self._waiting, *self.running)
        offsets = (job.record.offset for job in jobs if job.record.partition == partition)
        return min(offsets, default=None)

    def take(self, room: float) -> Job | None:
        """Take the next job that may begin now and needs no more than ``room`` bytes, if any."""
        busy = {job.model for job in self.running}
        for job in sorted(self._waiting, key=self._turn):
            now = self._now().timestamp()
            if job.due > now or job.bytes > room or (job.model and job.model in busy):
                continue
            if job.event is not None:
                job.refused = self._look_at(job, job.event, room) is not None
            if not job.refused and (job.due > now or job.bytes > room):
                continue
            self._waiting.remove(job)
            self.running.append(job)
            job.since = now
            _keep_newest(self._begun, job.model, now)
            return job
        return None

    def put_back(self, job: Job, seconds: float) -> None:
        """Let a job that was taken wait again."""
        job.due, job.since = self._now().timestamp() + seconds, 0.0
        self.running.remove(job)
        self._waiting.insert(0, job)

    def finish(self, job: Job) -> None:
        """Note that a job is done."""
        self.running.remove(job)
        self._finished.add(job.name)

    def settle(self, watermarks: Mapping[Partition, int]) -> None:
        """Forget what is finished below watermarks that are stored: it is not read again."""
        self._finished = {name for name in self._finished if name[1] >= watermarks.get(name[0], 0)}

    def release(self, job: Job) -> None:
        """Forget a job that was taken and is not done: it is read again."""
        if job in self.running:
            self.running.remove(job)

    def let_pass(self, job_id: str) -> None:
        """Note that a job was interrupted: when it is read again, it goes behind all others."""
        _keep_newest(self._interrupted, job_id, self._interrupted.get(job_id, 0) + 1)

    def superseded(self, event: RefreshRequested) -> None:
        """Keep for whoever waits that another refresh was faster than a job that was begun.

        If the store has lost a generation, none was, and the fold that brings it back orders again.
        """
        with suppress(UnknownModel, CorruptState):
            state = self._store.load_model(event.model_id)
            if state.meta.generation > event.generation:
                write_refusal(self._store.client, state.keys, event.job_id, _FASTER)

    def _turn(self, job: Job) -> tuple[int, float, int]:
        times = 0 if job.event is None else self._interrupted.get(job.event.job_id, 0)
        return times, self._begun.get(job.model, 0.0), job.record.timestamp_ms

    def _look_at(self, job: Job, event: RefreshRequested, room: float) -> str | None:
        """Look at a job's model: what it needs, and when it is due; return why it is refused."""
        try:
            state = self._store.load_model(event.model_id)
            size = choose_size(state, event, self._now()).size
            job.bytes = 0.0 if size is RefreshSize.COMPLETE else memory_of(state)
            if job.bytes > room or not self._limit.seconds:
                return None
            refusal = self._begin_or_refuse(job, event, state, size)
            if refusal is not None:
                write_refusal(self._store.client, state.keys, event.job_id, refusal)
        except Unavailable:
            raise
        except UnknownModel as error:
            refusal = str(error) if self._limit.seconds else None
        except Exception:
            refusal = None  # whatever it is, the job itself meets it and reports it
        if refusal is not None:
            self._metrics.refreshes_refused.inc()
            self._warn(event, "refresh request refused", "refresh_refused", reason=refusal)
        return refusal

    def _begin_or_refuse(
        self, job: Job, event: RefreshRequested, state: ModelState, size: RefreshSize
    ) -> str | None:
        """Begin a job, which moves the model's pace, or set when it is due.

        Returns why it is refused, or None if it is not.
        """
        pending = state.meta.pending_job
        job.own = pending is not None and pending.job_id == event.job_id
        if not job.own and state.meta.generation > event.generation:
            # A later generation than the store's is no reason: the store has lost it, and a fold
            # brings it back.
            return _FASTER
        if job.own and size is RefreshSize.COMPLETE:
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

    def _another_waits(self, job: Job, event: RefreshRequested) -> bool:
        return any(
            other is not job
            and other.due > 0
            and not other.own
            and other.event is not None
            and other.event.model_id == event.model_id
            for other in self._waiting
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


def _keep_newest(kept: dict[str, T], name: str, value: T) -> None:
    """Keep a value, and of the others the newest."""
    kept.pop(name, None)
    while len(kept) >= JOBS:
        del kept[next(iter(kept))]
    kept[name] = value
