"""The deletion worker: from an event to a version, exactly once in effect.

The steps have the same numbers here, in docs/commit.md and in the crash tests:

1. poll  2. validate  3. load  4. compute  5. commit  6. durable  7. publish  8. erase  9. advance

An error at any step forgets what memory holds, goes back to the partition's watermark and reads
again: `next_offset` in the state decides what was done. Nothing is retried blindly.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import stamina

from consumers import topics
from consumers.decide import compute, decide, rows_named
from consumers.deletion_transition import (
    deletion_transition,
    origin_of,
    unregistered_transition,
)
from consumers.health import Health
from consumers.log.base import Log, Partition, Position, Record
from consumers.metrics import Metrics
from consumers.publisher import Publisher
from consumers.refresh_swap import swap
from consumers.takeover import check_history, published_tails, start_offset
from consumers.telemetry import logger
from consumers.validate import Refreshed, Refused, Valid, Validated, validate
from engine.errors import (
    CommitConflict,
    CorruptState,
    NotDurable,
    Unavailable,
    VersionFork,
)
from engine.store.keys import ModelKeys
from engine.store.outbox import Outbox
from engine.store.state import ModelState, State, Unregistered
from engine.store.store import Lookup, ModelStore

GROUP = "lethe-deletions"
_CONFLICT_TRIES = 5
_LAG_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """How much one turn of the loop takes: bounds latency and memory."""

    records: int = 256
    rows: int = 10_000
    poll_seconds: float = 0.5


@dataclass(slots=True)
class _Group:
    """The records of one model in one partition, in order."""

    keys: ModelKeys
    model_id: str
    partition: Partition
    items: list[Validated]


class DeletionWorker:
    """Reads deletion requests and keeps the models' state; one thread runs it.

    Parameters
    ----------
    log, store
        Where requests come from, and where the state is.
    metrics, health
        What is measured and reported.
    limits
        Size of a micro-batch.
    now
        The clock of receipts and versions.
    at_step
        Called with the name of each step as it is reached; crash tests stop here.
    """

    def __init__(
        self,
        log: Log,
        store: ModelStore,
        *,
        metrics: Metrics | None = None,
        health: Health | None = None,
        limits: BatchLimits | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        at_step: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._log = log
        self._store = store
        self._metrics = metrics or Metrics()
        self._health = health or Health()
        self._limits = limits or BatchLimits()
        self._now = now
        self._at_step = at_step
        self._logger = logger("deletions")
        self._consumer = log.consumer(GROUP, [topics.DELETIONS])
        self._producer = log.producer()
        self._publisher = Publisher(Outbox(store.client), self._producer)
        self._states: dict[ModelKeys, State] = {}
        self._watermarks: dict[Partition, int] = {}
        self._halted: dict[ModelKeys, str] = {}
        self._held_back: dict[tuple[ModelKeys, Partition], int] = {}
        self._rewind = False
        self._lag_read = 0.0

    # -- the loop -----------------------------------------------------------------------------

    def run(self, stop: threading.Event) -> None:
        """Work until ``stop`` is set. Lost servers are waited for; nothing is lost meanwhile.

        Raises
        ------
        LogReset
            The log lost records: a person must decide.
        """
        transient = (Unavailable, NotDurable, CommitConflict)
        while not stop.is_set():
            for attempt in stamina.retry_context(
                on=transient, attempts=None, timeout=None, wait_initial=0.1, wait_max=5.0
            ):
                with attempt:
                    if stop.is_set():
                        return
                    try:
                        self.run_once()
                    except transient as error:
                        self._recover(error)
                        raise

    def _recover(self, error: Exception) -> None:
        self._health.trouble(str(error))
        self._logger.warning("waiting", action="retry", reason=str(error))
        self._states.clear()
        self._rewind = True

    def run_once(self, timeout: float | None = None) -> int:
        """Take one micro-batch through all steps; return how many records it had."""
        self._take_over()
        self._at_step("poll")
        wait = self._limits.poll_seconds if timeout is None else timeout
        records = self._consumer.poll(wait, self._limits.records)
        if self._drop_lost():
            held = self._consumer.assignment()
            records = [record for record in records if record.partition in held]
        touched = [self._decide(group) for group in self._grouped(records)]
        if records:
            self._finish(touched, records)
            self._health.progress(self._lag())
        else:
            self._measure_lag()
        return len(records)

    def _finish(self, touched: Sequence[ModelKeys], records: Sequence[Record]) -> None:
        self._at_step("publish")
        self._publisher.publish(dict.fromkeys(touched))
        now_ms = time.time() * 1000
        for record in records:
            if record.timestamp_ms:
                seconds = max(0.0, now_ms - record.timestamp_ms) / 1000
                self._metrics.end_to_end_seconds.observe(seconds)
        self._at_step("erase")
        for keys in dict.fromkeys(touched):
            self._store.erase(keys)
        self._at_step("advance")
        self._advance(records)

    def close(self) -> None:
        """Leave the group and release connections; the current batch is done."""
        self._consumer.close()
        self._producer.close()

    def idle(self) -> bool:
        """Return whether every record of the assigned partitions is decided."""
        held = self._consumer.assignment()
        return bool(held) and not self._rewind and self._lag() == 0

    # -- taking over --------------------------------------------------------------------------

    def _take_over(self) -> None:
        self._drop_lost()
        fresh = set(self._consumer.take_assigned())
        if self._rewind:
            fresh |= self._consumer.assignment()
        if not fresh:
            return
        self._states.clear()
        self._halted.clear()
        self._held_back.clear()
        models = self._store.model_ids()
        self._publisher.publish(ModelKeys.of_model(model) for model in models)
        for model in models:
            self._store.erase(ModelKeys.of_model(model))
        self._compare_with_history(models)
        for partition in sorted(fresh):
            stored = self._store.watermark(str(partition))
            offset = start_offset(partition, stored, self._consumer.bounds(partition))
            self._watermarks[partition] = offset
            self._consumer.seek(partition, offset)
            self._logger.info(
                "partition taken over",
                action="take_over",
                partition=f"{partition.topic}/{partition.index}",
                offset=offset,
            )
        self._rewind = False

    def _compare_with_history(self, models: Sequence[str]) -> None:
        reader = self._log.reader()
        try:
            tails = published_tails(reader, models)
        finally:
            reader.close()
        for model in models:
            keys = ModelKeys.of_model(model)
            try:
                state = self._store.load_model(model)
                check_history(state, tails.get(model))
                self._states[keys] = state
                self._report(state)
            except (VersionFork, CorruptState) as error:
                self._halt(keys, error)

    def _drop_lost(self) -> bool:
        lost = self._consumer.take_lost()
        for partition in lost:
            self._watermarks.pop(partition, None)
        if lost:
            self._states.clear()
        return bool(lost)

    # -- deciding -----------------------------------------------------------------------------

    def _grouped(self, records: Sequence[Record]) -> list[_Group]:
        """Validate (step 2) each record alone, and group by model and partition."""
        self._at_step("validate")
        groups: dict[tuple[ModelKeys, Partition], _Group] = {}
        for record in records:
            item = validate(record)
            model_id = _model_of(item)
            keys = (
                ModelKeys.of_partition(str(record.partition))
                if model_id is None
                else ModelKeys.of_model(model_id)
            )
            place = (keys, record.partition)
            if place not in groups:
                groups[place] = _Group(keys, model_id or "", record.partition, [])
            groups[place].items.append(item)
        return list(groups.values())

    def _decide(self, group: _Group) -> ModelKeys:
        """Decide one model's records (steps 3 to 6); after another's commit, read again."""
        if group.keys in self._halted:
            self._hold_back(group)
            return group.keys
        for attempt in range(_CONFLICT_TRIES):
            try:
                self._decide_runs(group)
            except CommitConflict as conflict:
                self._metrics.commits.labels("conflict").inc()
                self._states.pop(group.keys, None)
                if attempt == _CONFLICT_TRIES - 1:
                    raise
                self._logger.warning(
                    "reading again", action="conflict", model=group.model_id, reason=str(conflict)
                )
            except (CorruptState, VersionFork) as error:
                self._halt(group.keys, error)
                self._hold_back(group)
                return group.keys
            else:
                return group.keys
        return group.keys

    def _decide_runs(self, group: _Group) -> None:
        for run in self._runs(group):
            state = self._load(group)
            first = state.offsets.get(str(group.partition), 0)
            undecided = [item for item in run if item.record.offset >= first]
            if not undecided:
                continue
            if isinstance(undecided[0], Refreshed):
                self._decide_refresh(state, undecided[0])
            else:
                requests = [item for item in undecided if not isinstance(item, Refreshed)]
                self._decide_requests(group, state, requests)

    def _runs(self, group: _Group) -> list[list[Validated]]:
        """Return runs of requests of bounded size, and refreshes alone, in order."""
        runs: list[list[Validated]] = []
        rows = 0
        for item in group.items:
            size = len(item.request.row_ids or ()) if isinstance(item, Valid) else 0
            alone = isinstance(item, Refreshed)
            after_refresh = bool(runs) and isinstance(runs[-1][0], Refreshed)
            if not runs or alone or after_refresh or rows + size > self._limits.rows:
                runs.append([])
                rows = 0
            runs[-1].append(item)
            rows += size
        return runs

    def _load(self, group: _Group) -> State:
        """Load (step 3) the state from memory, or from the store."""
        self._at_step("load")
        state = self._states.get(group.keys)
        if state is None:
            state = self._store.load(group.keys, group.model_id)
            self._states[group.keys] = state
        return state

    def _look_up(
        self, group: _Group, state: State, items: Sequence[Valid | Refused]
    ) -> tuple[State, Lookup, Mapping[str, Sequence[str]]]:
        for _ in range(_CONFLICT_TRIES):
            subjects: dict[str, list[str]] = {}
            if isinstance(state, ModelState):
                named = [i.request.subject_id for i in items if isinstance(i, Valid)]
                subjects = self._store.subjects(state, [s for s in named if s is not None])
            requests = [_request_id(item) for item in items]
            lookup = self._store.look_up(
                state, [r for r in requests if r is not None], rows_named(items, subjects)
            )
            if lookup.commit_seq == state.commit_seq:
                return state, lookup, subjects
            self._states.pop(group.keys, None)
            state = self._load(group)
        raise CommitConflict(f"model {group.model_id!r}: its state changes while it is read")

    def _decide_requests(
        self, group: _Group, state: State, items: Sequence[Valid | Refused]
    ) -> None:
        state, lookup, subjects = self._look_up(group, state, items)
        first = state.offsets.get(str(group.partition), 0)
        items = [item for item in items if item.record.offset >= first]
        if not items:
            return
        origin = origin_of([item.record for item in items])
        refused = [item for item in items if isinstance(item, Refused)]
        if isinstance(state, Unregistered):
            decisions = decide(None, items, lookup, subjects)
            commit = unregistered_transition(
                state, group.model_id, decisions, refused, origin, now=self._now()
            )
            self._commit_seconds(lambda: self._store.commit(commit))
            self._states.pop(group.keys, None)
        else:
            self._at_step("compute")
            begin = time.perf_counter()
            batch = compute(state, decide(state, items, lookup, subjects), lookup)
            transition = deletion_transition(state, batch, refused, origin, now=self._now())
            self._metrics.step_seconds.observe(time.perf_counter() - begin)
            self._commit_seconds(lambda: self._store.commit(transition.commit))
            self._states[group.keys] = transition.after
            if batch.deleted:
                self._metrics.batch_rows.observe(len(batch.deleted))
                self._metrics.rows_deleted.labels(group.model_id).inc(len(batch.deleted))
            self._report(transition.after)
        self._metrics.dead_letters.inc(sum(item.dead_letter for item in refused))
        self._metrics.requests.labels("decided").inc(len(items))
        self._log_batch(group, items)

    def _decide_refresh(self, state: State, item: Refreshed) -> None:
        """Decide a refresh event (steps 3 to 6); for an unknown model it changes nothing."""
        if isinstance(state, Unregistered):
            return
        outcome = swap(self._store, state, item.event.job_id, origin_of([item.record]), self._now())
        self._commit_seconds(lambda: self._store.commit(outcome.transition.commit))
        self._states[state.keys] = outcome.transition.after
        self._report(outcome.transition.after)
        self._logger.info(
            outcome.message,
            action="swap" if outcome.swapped else "drop_result",
            model=state.model_id,
            job=item.event.job_id,
            version=outcome.transition.after.version,
        )

    def _commit_seconds(self, commit: Callable[[], int]) -> None:
        self._at_step("commit")
        begin = time.perf_counter()
        commit()
        self._metrics.commit_seconds.observe(time.perf_counter() - begin)
        self._metrics.commits.labels("done").inc()
        self._at_step("durable")

    # -- halting, advancing, reporting --------------------------------------------------------

    def _halt(self, keys: ModelKeys, error: Exception) -> None:
        self._halted[keys] = str(error)
        self._metrics.halted.set(len(self._halted))
        self._logger.error("model halted", action="halt", reason=str(error))

    def _hold_back(self, group: _Group) -> None:
        """Keep the watermark below a halted model's first undecided record."""
        place = (group.keys, group.partition)
        self._held_back.setdefault(place, group.items[0].record.offset)

    def _advance(self, records: Sequence[Record]) -> None:
        """Advance (step 9) the watermark, and the log's own offset as a hint."""
        hints: dict[Partition, Position] = {}
        for record in records:
            hints[record.partition] = Position(record.offset + 1, record.leader_epoch)
        for partition, hint in hints.items():
            held = [o for (_, p), o in self._held_back.items() if p == partition]
            self._watermarks[partition] = min([hint.next_offset, *held])
        self._store.set_watermarks({str(p): self._watermarks[p] for p in hints})
        self._consumer.commit_hint(hints)

    def _lag(self) -> int:
        lag = 0
        for partition in self._consumer.assignment():
            end = self._consumer.bounds(partition).end
            waiting = max(0, end - self._watermarks.get(partition, 0))
            self._metrics.lag.labels(f"{partition.topic}/{partition.index}").set(waiting)
            lag += waiting
        self._lag_read = time.monotonic()
        return lag

    def _measure_lag(self) -> None:
        if time.monotonic() - self._lag_read > _LAG_SECONDS:
            lag = self._lag()
            if lag == 0:
                self._health.progress(0)
            else:
                self._health.waiting(lag)
        else:
            self._health.beat()

    def _report(self, state: ModelState) -> None:
        model = state.model_id
        self._metrics.error.labels(model).set(state.meta.error.relative)
        self._metrics.budget.labels(model).set(state.meta.error.budget)
        self._metrics.version.labels(model).set(state.version)
        self._metrics.rows_live.labels(model).set(state.meta.rows_live)

    def _log_batch(self, group: _Group, items: Sequence[Valid | Refused]) -> None:
        state = self._states.get(group.keys)
        version = state.version if isinstance(state, ModelState) else None
        for item in items:
            self._logger.info(
                "request decided" if isinstance(item, Valid) else "record refused",
                action="decide",
                request_id=_request_id(item),
                model=group.model_id,
                version=version,
                partition=group.partition.index,
                offset=item.record.offset,
            )


def _model_of(item: Validated) -> str | None:
    if isinstance(item, Valid):
        return item.request.model_id
    return item.model_id if isinstance(item, Refused) else item.event.model_id


def _request_id(item: Valid | Refused) -> str | None:
    return item.request.request_id if isinstance(item, Valid) else item.request_id
