"""The deletion worker: from an event to a version, exactly once in effect.

The steps have the same numbers here, in docs/commit.md and in the crash tests:

1. poll  2. validate  3. load  4. decide  5. compute  6. append  7. apply  8. publish  9. advance

`DeletionWorker.run_once` is these nine lines. The log is the truth: whatever happens after step 6,
a fold finishes it (`consumers.commits.fold`), and whatever happens before it did not happen. An
error at any step forgets what memory holds, folds, and reads on from the partition's watermark.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial

from lethe.consumers.commits.apply import change_of
from lethe.consumers.commits.commit import Sealed
from lethe.consumers.commits.fold import Fold
from lethe.consumers.commits.follower import Follower
from lethe.consumers.commits.journal import CommitTooLarge, Journal
from lethe.consumers.commits.publish import receipt_message
from lethe.consumers.commits.publisher import Publisher
from lethe.consumers.commits.shred import shred
from lethe.consumers.commits.state_cache import StateCache
from lethe.consumers.contract import topics
from lethe.consumers.contract.events import Receipt
from lethe.consumers.contract.sealing import SealKeys
from lethe.consumers.contract.signatures import Signer, TrustedKeys
from lethe.consumers.deletions.authenticate import RequestKeys
from lethe.consumers.deletions.batch_processor import BatchProcessor, Processed, Round
from lethe.consumers.deletions.batching import Batching, BatchWindow
from lethe.consumers.deletions.grouping import Group, group_records
from lethe.consumers.deletions.report import report_decisions, report_state, report_strangers
from lethe.consumers.deletions.transition import dead_letter
from lethe.consumers.deletions.validate import Refused
from lethe.consumers.log.base import Log, Partition, Position, Record
from lethe.consumers.service.health import Health
from lethe.consumers.service.keepalive import Keepalive
from lethe.consumers.service.logs import logger
from lethe.consumers.service.loop import TRANSIENT, keep_turning
from lethe.consumers.service.metrics import Metrics
from lethe.consumers.service.steps import AtStep, Step, no_hook
from lethe.consumers.versions.transition import committed
from lethe.consumers.workers.halts import Halts
from lethe.consumers.workers.housekeeping import Housekeeper
from lethe.consumers.workers.lag import LagGauge
from lethe.consumers.workers.start_offset import start_offset
from lethe.engine.errors import CommitConflict
from lethe.engine.store.apply import Applied, Change
from lethe.engine.store.partition import commit_partition
from lethe.engine.store.resample import with_enough_sentinels
from lethe.engine.store.store import ModelStore

GROUP = "lethe-deletions"
_ROUNDS = 2_000  # of one poll: each decides at least one record of a model, or loses to a rival


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """How much one turn of the loop takes: bounds latency and memory."""

    records: int = 256
    rows: int = 10_000
    poll_seconds: float = 0.5


@dataclass(slots=True)
class _Poll:
    """The records of one poll, and what became of them."""

    records: Sequence[Record]
    groups: list[Group]
    letters: list[Refused]
    partitions: frozenset[Partition] = frozenset()
    unknown: list[Receipt] = field(default_factory=list)


class DeletionWorker:
    """Reads deletion requests and keeps the models' state; one thread runs it.

    Parameters
    ----------
    log, store
        Where requests and commits come from, and where the state is.
    seals, signer, trusted
        What commits are sealed and signed with, and who must have signed those that are read;
        None: it is not asked.
    metrics, health
        What is measured and reported.
    limits
        Size of a micro-batch.
    batching
        How long requests wait to be batched; by default not at all.
    request_keys
        Whose requests count; None: everybody's.
    now
        The clock of receipts and versions.
    at_step
        Called with the name of each step (`consumers.service.steps`) as it is reached; crash tests
        stop here.
    """

    def __init__(
        self,
        log: Log,
        store: ModelStore,
        seals: SealKeys,
        *,
        signer: Callable[[], Signer | None] = lambda: None,
        trusted: TrustedKeys | None = None,
        metrics: Metrics | None = None,
        health: Health | None = None,
        limits: BatchLimits | None = None,
        batching: Batching | None = None,
        request_keys: RequestKeys | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        at_step: AtStep = no_hook,
    ) -> None:
        self._store = store
        self._metrics = metrics or Metrics()
        self._health = health or Health()
        self._limits = limits or BatchLimits()
        self._request_keys = request_keys
        self._now = now
        self._at_step = at_step
        self._logger = logger("deletions")
        self._consumer = log.consumer(GROUP, [topics.DELETIONS])
        self._producer = log.producer()
        self._reader = log.reader()
        self._held = BatchWindow(batching or Batching())
        self._states = StateCache()
        self._attendance = Keepalive(self._consumer, self._health)
        self._journal = Journal(self._producer, seals, signer)
        fold = Fold(
            store,
            self._reader,
            self._producer,
            seals,
            trusted=trusted,
            progress=lambda _what, _done, _all: self._attendance(),
            at_step=at_step,
        )
        self._follower = Follower(
            self._journal,
            fold,
            store=store,
            reader=self._reader,
            consumer=self._consumer,
            states=self._states,
            metrics=self._metrics,
            logger=self._logger,
            halt=self._halt,
        )
        self._processor = BatchProcessor(
            store,
            self._states,
            self._reader,
            metrics=self._metrics,
            logger=self._logger,
            rows=self._limits.rows,
            now=now,
            at_step=at_step,
            batching=batching or Batching(),
            follower=self._follower,
            seals=seals,
        )
        self._housekeeper = Housekeeper(store, self._producer, now=now, logger=self._logger)
        self._lag = LagGauge(self._consumer, self._metrics, self._health)
        self._positions: dict[Partition, int] = {}
        self._ends: dict[Partition, int] = {}
        self._halts = Halts(self._metrics, self._logger)
        self._publisher = Publisher(self._producer, store, at_step)
        self._to_publish: list[Sealed] = []
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
        """Forget what memory holds: the next turn folds, and goes back to the watermarks."""
        self._states.clear()
        self._journal.forget()
        self._held.clear()
        self._publisher.forget()
        self._to_publish = []
        self._rewind = True

    def run_once(self, timeout: float | None = None) -> int:
        """Take one micro-batch through all steps; return how many records it had."""
        self._take_over()
        self._publisher.see_to_late()
        records = self._poll(timeout)  # 1
        poll = self._validate(records)  # 2
        for _ in range(_ROUNDS):
            turn = Round()
            loaded = self._processor.load(poll.groups, turn)  # 3
            self._processor.process(loaded, turn)  # 4 and 5
            won = self._append(turn.processed)  # 6
            self._apply(won)  # 7
            if not self._left(poll, turn):
                break
        else:
            raise CommitConflict(f"others keep committing: {_ROUNDS} rounds were not enough")
        self._publish(poll)  # 8; it is acknowledged during the next turn's steps 1 to 6
        self._look_around()
        return len(records)

    def close(self) -> None:
        """Leave the group and release connections; the current batch is done."""
        with suppress(*TRANSIENT):  # the next worker publishes it again
            self._publisher.advance()
            self._publisher.see_to_late()
        self._housekeeper.finish()
        self._consumer.close()
        self._producer.close()
        self._reader.close()

    def idle(self) -> bool:
        """Return whether every record of the assigned partitions is decided."""
        held = self._consumer.assignment()
        return (
            bool(held)
            and not self._rewind
            and not self._publisher.outstanding
            and not len(self._held)
            and self._lag.waiting(self._positions) == 0
        )

    # -- 1 and 2 ------------------------------------------------------------------------------

    def _poll(self, timeout: float | None) -> list[Record]:
        """Poll (step 1) a bounded micro-batch; what was published before is noted meanwhile."""
        self._attendance.check()
        self._at_step(Step.POLL)
        wait = self._limits.poll_seconds if timeout is None else timeout
        room = min(self._limits.records, self._held.room())
        records = self._consumer.poll(0.0 if self._publisher.outstanding else wait, room)
        if not records and self._publisher.outstanding:
            self._publisher.advance()
            records = self._consumer.poll(wait, room)
        lost = self._drop_lost()
        # Also of a partition that was lost and is back: it is read again from its watermark.
        return [record for record in records if record.partition not in lost]

    def _validate(self, records: Sequence[Record]) -> _Poll:
        """Validate (step 2) each record alone, and group them by model."""
        if records:
            self._at_step(Step.VALIDATE)
        self._follower.new_poll()
        groups, letters = group_records(records, self._request_keys)
        ready = []
        for group in self._held.join(groups, self._now()):
            if group.model_id in self._halts:
                self._halts.hold_back(group)
            else:
                ready.append(group)
        return _Poll(records, ready, letters, frozenset(group.partition for group in ready))

    # -- 6 ------------------------------------------------------------------------------------

    def _append(self, processed: Sequence[Processed]) -> list[tuple[Processed, Sealed]]:
        """Append (step 6) commits, one a model, all at once; return those that count.

        The partitions of the others were written to by somebody else: they are folded, and their
        records are decided again.
        """
        if not processed:
            return []
        by_model = {one.group.model_id: one for one in processed}
        self._at_step(Step.APPEND)
        begin = time.perf_counter()
        try:
            sealed = self._journal.append([one.transition.commit for one in processed])
        except CommitTooLarge as error:
            self._halt(error.model_id, error)
            return []  # the others are decided again
        self._metrics.append_seconds.observe(time.perf_counter() - begin)
        won = [(by_model.pop(one.commit.model_id), one) for one in sealed]
        self._metrics.commits.labels("won").inc(len(won))
        for model_id in by_model:
            self._metrics.commits.labels("contested").inc()
            self._states.drop(model_id)
            self._follower.follow([commit_partition(model_id)])
            self._journal.reconcile(model_id)
        return won

    # -- 7 ------------------------------------------------------------------------------------

    def _apply(self, won: Sequence[tuple[Processed, Sealed]]) -> None:
        """Apply (step 7) commits, all in one round trip, with the cursors of the last publish."""
        if not won:
            return
        self._at_step(Step.APPLY)
        changes: list[Change] = []
        for one, sealed in won:
            transition = one.transition
            changes.append(
                change_of(sealed, one.before, arrays=transition.arrays, live=transition.live)
            )
        notes = self._publisher.acknowledged()
        answers, noted = self._store.apply(changes, None if notes is None else notes.queue)
        if notes is not None:
            self._publisher.noted(notes, noted)
        for (one, sealed), change, answer in zip(won, changes, answers, strict=True):
            if answer.applied is Applied.APPLIED:
                self._keep(one, sealed, change)
            else:
                # The store has gone back, or another worker was faster: the log knows.
                self._logger.warning(
                    "the store is not what the commit continues; folding",
                    action="refused",
                    model=one.group.model_id,
                    reason=f"{answer.applied}: {answer.found}",
                )
                self._follower.forget(one.group.model_id)
            self._decided(one, sealed)
        self._follower.follow({commit_partition(one.group.model_id) for one, _ in won})

    def _keep(self, one: Processed, sealed: Sealed, change: Change) -> None:
        arrays = one.before.arrays if change.arrays is None else change.arrays.renewed
        after = committed(one.transition, sealed, arrays)
        self._states.put(with_enough_sentinels(self._store, after))
        self._to_publish.append(sealed)
        report_state(self._metrics, after)
        shred(self._store, sealed.commit, one.before.rows, change.live.name, self._at_step)

    def _decided(self, one: Processed, sealed: Sealed) -> None:
        """Take what a commit decided out of its group, and say so."""
        records = one.group.items[: one.records]
        one.group.items = one.group.items[one.records :]
        report_decisions(self._metrics, self._logger, one, sealed, records)

    def _left(self, poll: _Poll, turn: Round) -> bool:
        """Sort out what a round left over; return whether there is more to do."""
        poll.unknown += turn.unknown
        for group, rest in turn.rest:
            self._held.keep(group, rest)
            self._logger.info(
                "requests wait to be batched",
                action="hold",
                model=group.model_id,
                records=len(rest.items),
                rows=rest.rows,
            )
        for model_id, error in turn.failed.items():
            self._halt(model_id, error)
        for model_id in turn.stale:
            self._follower.forget(model_id)
            self._follower.follow([commit_partition(model_id)])
        left = []
        for group in poll.groups:
            if group.items and group.model_id in self._halts:
                self._halts.hold_back(group)
            elif group.items:
                left.append(group)
        poll.groups = left
        return bool(left)

    # -- 8 and 9 ------------------------------------------------------------------------------

    def _publish(self, poll: _Poll) -> None:
        """Publish (step 8) what was committed, and answers that are no commits, in one flush."""
        sealed, self._to_publish = self._to_publish, []
        others = [receipt_message(receipt, receipt.value()) for receipt in poll.unknown]
        others += [dead_letter(item) for item in poll.letters]
        if not sealed and not others and not poll.records:
            return
        report_strangers(self._metrics, self._logger, poll.unknown, poll.letters)
        hints = {}
        for record in poll.records:
            hints[record.partition] = Position(record.offset + 1, record.leader_epoch)
            self._positions[record.partition] = record.offset + 1
        moved = {p for p in poll.partitions | hints.keys() if p in self._positions}
        watermarks = {p: self._decided_below(p) for p in sorted(moved)}
        self._publisher.begin(
            sealed,
            others,
            {str(p): offset for p, offset in watermarks.items()},
            partial(self._advanced, poll.records, watermarks, hints),
        )

    def _advanced(
        self,
        records: Sequence[Record],
        watermarks: Mapping[Partition, int],
        hints: Mapping[Partition, Position],
    ) -> None:
        """Tell the log, for people and tools, how far it is (step 9 is done)."""
        now_ms = time.time() * 1000
        for record in records:
            if record.timestamp_ms:
                seconds = max(0.0, now_ms - record.timestamp_ms) / 1000
                self._metrics.end_to_end_seconds.observe(seconds)
        self._consumer.commit_hint(hints)
        for partition, offset in watermarks.items():
            self._consumer.release(partition, offset)
        self._health.progress(self._lag.last)

    def _decided_below(self, partition: Partition) -> int:
        """Return the offset below which every record is decided: neither held back nor waiting."""
        found = (
            self._positions[partition],
            self._halts.first(partition),
            self._held.first(partition),
        )
        return min(offset for offset in found if offset is not None)

    # -- taking over, and looking around ------------------------------------------------------

    def _take_over(self) -> None:
        self._drop_lost()
        fresh = set(self._consumer.take_assigned())
        # Not before all is read that there was: a halted model's first request holds the watermark
        # down, and what lies behind it may take longer to read than the time between two looks.
        read = all(self._positions[p] >= end for p, end in self._ends.items())
        if self._rewind or (self._halts.due and read) or (fresh and len(self._halts)):
            # What is held back lies in partitions that are held already: look at all of them.
            fresh |= self._consumer.assignment()
            self._journal.forget()
        if not fresh:
            return
        self._publisher.advance()
        self._states.clear()
        self._held.drop(fresh)
        self._halts.clear()
        self._at_step(Step.TAKE_OVER)
        self._follower.follow(self._follower.homes())
        for partition in sorted(fresh):
            stored = self._store.cursors.watermark(str(partition))
            bounds = self._consumer.bounds(partition)
            offset = start_offset(partition, stored, bounds)
            self._positions[partition], self._ends[partition] = offset, bounds.end
            self._consumer.seek(partition, offset)
            self._logger.info(
                "partition taken over",
                action="take_over",
                partition=f"{partition.topic}/{partition.index}",
                offset=offset,
            )
        self._rewind = False
        self._lag.hurry()

    def _look_around(self) -> None:
        """Now and then: measure the lag, keep house, and see whether others have written."""
        if self._lag.look(self._positions, self._held):
            self._follower.look()
            self._publisher.send_again(self._follower.to_send_again())
        self._housekeeper.look()

    def _drop_lost(self) -> frozenset[Partition]:
        lost = self._consumer.take_lost()
        for partition in lost:
            self._positions.pop(partition, None)
            self._ends.pop(partition, None)
        if lost:
            self._held.drop(lost)
            self._states.clear()
            self._journal.forget()
            self._publisher.forget()
        return lost

    def _halt(self, model_id: str, error: Exception) -> None:
        self._halts.halt(model_id, error)
        self._states.drop(model_id)
