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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from consumers import topics
from consumers.decider import Decider, Group, group_records
from consumers.health import Health
from consumers.log.base import Log, Partition, Position, Record
from consumers.loop import TRANSIENT, keep_turning
from consumers.metrics import Metrics
from consumers.publisher import Publisher
from consumers.takeover import settle_models, start_offset
from consumers.telemetry import logger
from engine.errors import CorruptState, LetheError
from engine.store.keys import ModelKeys
from engine.store.outbox import Outbox
from engine.store.store import ModelStore

GROUP = "lethe-deletions"
_LAG_SECONDS = 2.0
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
        self._at_step = at_step
        self._logger = logger("deletions")
        self._consumer = log.consumer(GROUP, [topics.DELETIONS])
        self._producer = log.producer()
        self._outbox = Outbox(store.client)
        self._publisher = Publisher(store, self._producer)
        self._decider = Decider(
            store,
            metrics=self._metrics,
            logger=self._logger,
            rows=self._limits.rows,
            now=now,
            at_step=at_step,
        )
        self._positions: dict[Partition, int] = {}
        self._halted: dict[ModelKeys, str] = {}
        self._halted_at = 0.0
        self._held_back: dict[tuple[ModelKeys, Partition], int] = {}
        self._rewind = False
        self._lag = 0
        self._lag_read = 0.0

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
        if records:
            self._at_step("validate")
            groups = group_records(records)
            for group in groups:
                self._decide(group)
            self._finish(groups, records)
            self._health.progress(self._lag)
        self._measure_lag()
        return len(records)

    def close(self) -> None:
        """Leave the group and release connections; the current batch is done."""
        self._consumer.close()
        self._producer.close()

    def idle(self) -> bool:
        """Return whether every record of the assigned partitions is decided."""
        held = self._consumer.assignment()
        return bool(held) and not self._rewind and self._waiting() == 0

    # -- taking over --------------------------------------------------------------------------

    def _take_over(self) -> None:
        self._drop_lost()
        fresh = set(self._consumer.take_assigned())
        now = time.monotonic()
        if self._halted and now - self._halted_at > _HALT_SECONDS:
            self._rewind = True  # a person may have mended what halted them
        if self._rewind or (fresh and self._halted):
            # What is held back lies in partitions that are held already: look at all of them.
            fresh |= self._consumer.assignment()
        if not fresh:
            return
        self._decider.forget()
        self._forget_halts()
        reader = self._log.reader()
        try:
            again, halted = settle_models(self._store, reader, self._publisher, fresh)
        finally:
            reader.close()
        for keys, error in halted.items():
            self._halt(keys, error)
        self._producer.publish(again)
        for partition in sorted(fresh):
            stored = self._store.watermark(str(partition))
            offset = start_offset(partition, stored, self._consumer.bounds(partition))
            self._positions[partition] = offset
            self._consumer.seek(partition, offset)
            self._logger.info(
                "partition taken over",
                action="take_over",
                partition=f"{partition.topic}/{partition.index}",
                offset=offset,
            )
        self._rewind = False
        self._lag_read = 0.0

    def _forget_halts(self) -> None:
        self._halted.clear()
        self._held_back.clear()
        self._metrics.halted.set(0)

    def _drop_lost(self) -> bool:
        lost = self._consumer.take_lost()
        for partition in lost:
            self._positions.pop(partition, None)
        if lost:
            self._decider.forget()
        return bool(lost)

    # -- one batch ----------------------------------------------------------------------------

    def _decide(self, group: Group) -> None:
        """Take a group through steps 3 to 6; a model that cannot be worked on halts alone.

        Also by a defect of ours: its records stay undecided, and the other models go on.
        """
        if group.keys not in self._halted:
            try:
                self._decider.decide(group)
            except TRANSIENT:
                raise
            except Exception as error:
                self._halt(group.keys, error)
        if group.keys in self._halted:
            # The watermark stays below a halted model's first undecided record.
            place = (group.keys, group.partition)
            self._held_back.setdefault(place, group.items[0].record.offset)

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
        self._at_step("publish")
        touched = dict.fromkeys(group.keys for group in groups)
        failed = self._publisher.publish(touched)
        for keys, error in failed.items():
            self._halt(keys, error)
        now_ms = time.time() * 1000
        for record in records:
            if record.timestamp_ms:
                seconds = max(0.0, now_ms - record.timestamp_ms) / 1000
                self._metrics.end_to_end_seconds.observe(seconds)
        self._at_step("erase")
        for keys in touched:
            try:
                self._store.erase(keys)
            except CorruptState as error:
                self._halt(keys, error)
        self._at_step("advance")
        self._advance(records)

    def _advance(self, records: Sequence[Record]) -> None:
        """Advance (step 9) the watermark, and the log's own offset as a hint."""
        hints: dict[Partition, Position] = {}
        for record in records:
            hints[record.partition] = Position(record.offset + 1, record.leader_epoch)
            self._positions[record.partition] = record.offset + 1
        watermarks = {}
        for partition, hint in hints.items():
            held = [offset for (_, p), offset in self._held_back.items() if p == partition]
            watermarks[str(partition)] = min([hint.next_offset, *held])
        self._store.set_watermarks(watermarks)
        self._consumer.commit_hint(hints)
        for partition in hints:
            self._consumer.release(partition, watermarks[str(partition)])

    # -- lag ----------------------------------------------------------------------------------

    def _waiting(self) -> int:
        """Return how many records of the assigned partitions were not read yet."""
        waiting = 0
        for partition in self._consumer.assignment():
            end = self._consumer.bounds(partition).end
            behind = max(0, end - self._positions.get(partition, 0))
            self._metrics.lag.labels(f"{partition.topic}/{partition.index}").set(behind)
            waiting += behind
        return waiting

    def _measure_lag(self) -> None:
        now = time.monotonic()
        if now - self._lag_read < _LAG_SECONDS:
            self._health.beat()
            return
        self._lag_read = now
        self._lag = self._waiting()
        models = (ModelKeys.of_model(model) for model in self._store.model_ids())
        self._metrics.outbox_depth.set(self._outbox.depth(models))
        if self._lag == 0 and self._consumer.assignment():
            self._health.progress(0)
        else:
            self._health.waiting(self._lag)
