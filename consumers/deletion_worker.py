"""The deletion worker: from an event to a version, exactly once in effect.

The steps have the same numbers here, in docs/commit.md and in the crash tests:

1. poll  2. validate  3. load  4. compute  5. commit  6. durable  7. publish  8. erase  9. advance

Steps 2 to 6 are in `consumers.decider`. An error at any step forgets what memory holds, goes back
to the partition's watermark and reads again: next_offset in the state says what was decided.
Nothing is retried blindly.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from consumers import topics
from consumers.attended import Attendance, AttendedReader
from consumers.batching import Batching, HeldRequests, Rest
from consumers.decider import Decider
from consumers.grouping import Group, group_records
from consumers.health import Health
from consumers.housekeeping import Housekeeper
from consumers.lag import Lag
from consumers.log.base import Log, Partition, Position, Record
from consumers.loop import TRANSIENT, keep_turning
from consumers.marks import PERIOD_SECONDS, Marks
from consumers.metrics import Metrics
from consumers.publisher import Publisher, erase
from consumers.request_keys import RequestKeys
from consumers.signing import TrustedKeys
from consumers.steps import AtStep, Step, unwatched
from consumers.takeover import (
    lost_registrations,
    models_of,
    settle_models,
    start_offset,
    stranger_answers,
)
from consumers.telemetry import logger
from engine.errors import CorruptState, LetheError
from engine.store.keys import ModelKeys
from engine.store.store import ModelStore

GROUP = "lethe-deletions"
_HALT_SECONDS = 30.0  # after this a halted model is looked at again


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """How much one turn of the loop takes: bounds latency and memory."""

    records: int = 256
    rows: int = 10_000
    poll_seconds: float = 0.5


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
    batching
        How long requests wait for company; by default not at all.
    request_keys
        Whose requests count; None: everybody's.
    trusted
        The keys that must have signed what a takeover takes from the log; None: it is believed.
    now
        The clock of receipts and versions.
    at_step
        Called with the name of each step (`consumers.steps`) as it is reached; crash tests stop
        here.
    mark_seconds
        Between two marks for whoever takes over next (`consumers.marks`).
    """

    def __init__(
        self,
        log: Log,
        store: ModelStore,
        *,
        metrics: Metrics | None = None,
        health: Health | None = None,
        limits: BatchLimits | None = None,
        batching: Batching | None = None,
        request_keys: RequestKeys | None = None,
        trusted: TrustedKeys | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        at_step: AtStep = unwatched,
        mark_seconds: float = PERIOD_SECONDS,
    ) -> None:
        self._log = log
        self._store = store
        self._metrics = metrics or Metrics()
        self._health = health or Health()
        self._limits = limits or BatchLimits()
        self._request_keys = request_keys
        self._trusted = trusted
        self._now = now
        self._held = HeldRequests(batching or Batching())
        self._at_step = at_step
        self._logger = logger("deletions")
        self._consumer = log.consumer(GROUP, [topics.DELETIONS])
        self._producer = log.producer()
        self._publisher = Publisher(store, self._producer, at_step)
        self._decider = Decider(
            store,
            metrics=self._metrics,
            logger=self._logger,
            rows=self._limits.rows,
            now=now,
            at_step=at_step,
            batching=batching or Batching(),
            settle=self._settle_stray,
        )
        self._housekeeper = Housekeeper(store, self._producer, now=now, logger=self._logger)
        self._lag = Lag(store, self._consumer, self._metrics, self._health)
        self._attendance = Attendance(self._consumer, self._health)
        self._marks = Marks(store.handover, self._consumer.bounds, mark_seconds)
        self._settled: set[str] = set()
        self._positions: dict[Partition, int] = {}
        self._halted: dict[ModelKeys, str] = {}
        self._halted_at = 0.0
        self._held_back: dict[tuple[ModelKeys, Partition], int] = {}
        self._rewind = False

    # -- the loop -----------------------------------------------------------------------------

    def run(self, stop: threading.Event) -> None:
        """Work until ``stop`` is set. Lost servers are waited for; nothing is lost meanwhile.

        Raises
        ------
        LogReset
            The log lost records: a person must decide.
        """
        keep_turning(
            stop, self.run_once, recover=self.recover, health=self._health, logger=self._logger
        )

    def recover(self) -> None:
        """Forget what memory holds: the next turn goes back to the watermarks."""
        self._decider.forget()
        self._held.clear()
        self._marks.forget()
        self._rewind = True

    def run_once(self, timeout: float | None = None) -> int:
        """Take one micro-batch through all steps; return how many records it had."""
        self._take_over()
        self._attendance.check()
        self._at_step(Step.POLL)
        wait = self._limits.poll_seconds if timeout is None else timeout
        room = min(self._limits.records, self._held.room())
        records = self._consumer.poll(wait, room)
        lost = self._drop_lost()
        # Also of a partition that was lost and is back: it is read again from its watermark.
        records = [record for record in records if record.partition not in lost]
        groups = self._held.join(self._grouped(records), self._now())
        decided = [done for group in groups if (done := self._decide(group)).items]
        if records or decided:
            self._finish(decided, records)
            self._health.progress(self._lag.last)
        self._lag.look(self._positions, self._held)
        self._marks.look(self._positions)
        self._housekeeper.look()
        return len(records)

    def _grouped(self, records: Sequence[Record]) -> list[Group]:
        if records:
            self._at_step(Step.VALIDATE)
        return group_records(records, self._request_keys)

    def close(self) -> None:
        """Leave the group and release connections; the current batch is done."""
        self._housekeeper.finish()
        self._consumer.close()
        self._producer.close()

    def idle(self) -> bool:
        """Return whether every record of the assigned partitions is decided."""
        held = self._consumer.assignment()
        return (
            bool(held)
            and not self._rewind
            and not len(self._held)
            and self._lag.waiting(self._positions) == 0
        )

    # -- taking over --------------------------------------------------------------------------

    def _take_over(self) -> None:
        self._drop_lost()
        fresh = set(self._consumer.take_assigned())
        now = time.monotonic()
        # Not before all is read that there was: a halted model's first request holds the watermark
        # down, and what lies behind it may take longer to read than the time between two looks.
        read = self._marks.caught_up(self._positions)
        if self._halted and read and now - self._halted_at > _HALT_SECONDS:
            self._rewind = True  # a person may have mended what halted them
        if self._rewind or (fresh and self._halted):
            # What is held back lies in partitions that are held already: look at all of them.
            fresh |= self._consumer.assignment()
            self._settled.clear()
        if not fresh:
            return
        if self._rewind:
            self._store.reconnect()
        self._decider.forget()
        self._held.drop(fresh)
        self._forget_halts()
        self._at_step(Step.TAKE_OVER)
        self._settle(fresh)
        self._at_step(Step.TAKEN_OVER)
        for partition in sorted(fresh):
            stored = self._store.handover.watermark(str(partition))
            bounds = self._consumer.bounds(partition)
            offset = start_offset(partition, stored, bounds)
            self._positions[partition] = offset
            self._consumer.seek(partition, offset)
            self._marks.taken_over(partition, bounds.end)
            self._logger.info(
                "partition taken over",
                action="take_over",
                partition=f"{partition.topic}/{partition.index}",
                offset=offset,
            )
        self._rewind = False
        self._lag.hurry()

    def _settle(self, partitions: Collection[Partition]) -> None:
        """Compare the models of these partitions with what was published, and halt what differs."""
        reader = AttendedReader(self._log.reader(), self._attendance)
        try:
            registered = self._store.model_ids()
            models = models_of(reader, registered, partitions)
            lost = lost_registrations(self._store, reader)
            answers = stranger_answers(
                self._store, reader, set(registered), partitions, self._trusted
            )
            others = self._consumer.assignment() - set(partitions)
            self._decider.know_answers(answers, beside=bool(others))
            self._marks.wait_for(receipt.source for found in answers.values() for receipt in found)
            again, halted = settle_models(
                self._store, reader, self._publisher, models, self._trusted
            )
            self._marks.look_up(reader)
        finally:
            reader.close()
        self._settled.update(models)
        for keys, error in (lost | halted).items():
            self._halt(keys, error)
        self._producer.publish(again)

    def _settle_stray(self, model_id: str) -> bool:
        """Compare a model with what was published whose requests normally lie elsewhere.

        Its requests come to this partition by a producer with another partitioner; and the worker
        that takes over its own partition may not have mended it yet.
        """
        if model_id in self._settled:
            return False
        reader = AttendedReader(self._log.reader(), self._attendance)
        try:
            again, halted = settle_models(
                self._store, reader, self._publisher, [model_id], self._trusted
            )
        finally:
            reader.close()
        for error in halted.values():
            raise error
        self._producer.publish(again)
        self._settled.add(model_id)
        return True

    def _forget_halts(self) -> None:
        self._halted.clear()
        self._held_back.clear()
        self._metrics.halted.set(0)

    def _drop_lost(self) -> frozenset[Partition]:
        lost = self._consumer.take_lost()
        for partition in lost:
            self._positions.pop(partition, None)
            self._marks.drop(partition)
        if lost:
            self._held.drop(lost)
            self._decider.forget()
        return lost

    # -- one batch ----------------------------------------------------------------------------

    def _decide(self, group: Group) -> Group:
        """Take a group through steps 3 to 6, and return it without what has to wait.

        A model that cannot be worked on halts alone, also by a defect of ours: its records stay
        undecided, and the other models go on.
        """
        if group.keys in self._halted:
            self._hold_back(group)
            return replace(group, items=[])
        try:
            rest = self._decider.decide(group)
        except TRANSIENT:
            raise
        except Exception as error:
            self._halt(group.keys, error)
            self._hold_back(group)
            return group
        return group if rest is None else self._hold(group, rest)

    def _hold_back(self, group: Group) -> None:
        """Keep the watermark below a halted model's first undecided record."""
        place = (group.keys, group.partition)
        self._held_back.setdefault(place, group.items[0].record.offset)

    def _hold(self, group: Group, rest: Rest) -> Group:
        """Keep what has to wait for company; return the group without it."""
        self._held.keep(group, rest)
        first = rest.items[0].record
        self._logger.info(
            "requests wait for company",
            action="hold",
            model=group.model_id,
            records=len(rest.items),
            rows=rest.rows,
            since=group.since[first.offset].isoformat(timespec="seconds"),
            partition=group.partition.index,
            offset=first.offset,
        )
        return replace(group, items=[i for i in group.items if i.record.offset < first.offset])

    def _halt(self, keys: ModelKeys, error: Exception) -> None:
        self._halted[keys] = str(error)
        self._halted_at = time.monotonic()
        self._metrics.halted.set(len(self._halted))
        known = isinstance(error, LetheError)
        reason = str(error) if known else f"a defect: {type(error).__name__}: {error}"
        self._logger.error("model halted", action="halt", model=keys.tag, reason=reason)
        if not known:
            self._logger.debug("where it was", action="halt", exc_info=error)

    def _finish(self, groups: Sequence[Group], records: Sequence[Record]) -> None:
        """Publish, erase and advance (steps 7 to 9)."""
        self._at_step(Step.PUBLISH)
        touched = dict.fromkeys(group.keys for group in groups)
        failed = self._publisher.publish(touched)
        for keys, error in failed.items():
            self._halt(keys, error)
        now_ms = time.time() * 1000
        for record in (item.record for group in groups for item in group.items):
            if record.timestamp_ms:
                seconds = max(0.0, now_ms - record.timestamp_ms) / 1000
                self._metrics.end_to_end_seconds.observe(seconds)
        self._at_step(Step.ERASE)
        for keys in touched:
            if keys in failed:
                continue  # its receipts are not out
            try:
                erase(self._store, keys, self._at_step)
            except CorruptState as error:
                self._halt(keys, error)
        self._at_step(Step.ADVANCE)
        self._advance(records, {group.partition for group in groups})

    def _advance(self, records: Sequence[Record], moved: set[Partition]) -> None:
        """Advance (step 9) the watermarks, and the log's own offsets as a hint.

        A watermark stays below what is held back, of a halted model or for want of company.
        """
        hints: dict[Partition, Position] = {}
        for record in records:
            hints[record.partition] = Position(record.offset + 1, record.leader_epoch)
            self._positions[record.partition] = record.offset + 1
        watermarks = {
            partition: self._decided_below(partition) for partition in sorted(moved | hints.keys())
        }
        self._store.handover.set_watermarks({str(p): offset for p, offset in watermarks.items()})
        self._at_step(Step.HINT)
        self._consumer.commit_hint(hints)
        for partition, offset in watermarks.items():
            self._consumer.release(partition, offset)

    def _decided_below(self, partition: Partition) -> int:
        held = [offset for (_, p), offset in self._held_back.items() if p == partition]
        waiting = self._held.first(partition)
        held += [] if waiting is None else [waiting]
        return min([self._positions[partition], *held])
