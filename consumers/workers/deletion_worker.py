"""The deletion worker: from a request to a version, exactly once in effect.

The steps have the same numbers here, in docs/commit.md and in the crash tests:

1. poll  2. validate  3. load  4. decide  5. compute  6. append  7. apply  8. publish  9. advance

`DeletionWorker.run_once` is these nine steps. The log is the truth: once step 6 is acknowledged, a
fold (`consumers.commits.recovery`) finishes what fails; what fails before that never happened.
After an error at any step, the worker forgets what is in memory, folds, and resumes at the
watermarks.

Readers are told (step 8) what the store has (step 7), since some of them look there next. The
messages are made while the log takes the commits, and are acknowledged during the next turn.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial

from lethe.consumers.commits.apply import after_commit, change_of
from lethe.consumers.commits.commit import Sealed
from lethe.consumers.commits.journal import CommitTooLarge, Journal
from lethe.consumers.commits.newest import NewestParameters
from lethe.consumers.commits.publish import messages_of, receipt_message, without_replaced
from lethe.consumers.commits.publisher import Publisher
from lethe.consumers.commits.recovery.fold import Fold
from lethe.consumers.commits.recovery.follower import Follower
from lethe.consumers.commits.shred import keep, shred
from lethe.consumers.commits.state_cache import StateCache
from lethe.consumers.contract import topics
from lethe.consumers.contract.receipt import Receipt
from lethe.consumers.contract.sealing import SealKeys
from lethe.consumers.contract.signatures import Signer, TrustedKeys
from lethe.consumers.deletions.authenticate import RequestKeys
from lethe.consumers.deletions.batch_processor import BatchProcessor
from lethe.consumers.deletions.batching import Batching, BatchWindow
from lethe.consumers.deletions.dead_letters import dead_letter
from lethe.consumers.deletions.grouping import Group, group_records
from lethe.consumers.deletions.load import BatchLoader
from lethe.consumers.deletions.report import (
    report_decisions,
    report_dropped,
    report_without_commit,
)
from lethe.consumers.deletions.rounds import Prepared, Round
from lethe.consumers.deletions.validate import Refused
from lethe.consumers.log.base import Log, Message, Partition, Position, Record
from lethe.consumers.service.keepalive import Keepalive
from lethe.consumers.service.loop import TRANSIENT, keep_turning
from lethe.consumers.service.telemetry.health import Health
from lethe.consumers.service.telemetry.logs import logger
from lethe.consumers.service.telemetry.metrics import Metrics
from lethe.consumers.service.telemetry.steps import AtStep, Step, no_hook
from lethe.consumers.service.topic_watch import TopicWatch
from lethe.consumers.workers.assignment import Assignment
from lethe.consumers.workers.halts import Halts
from lethe.consumers.workers.housekeeping import Housekeeper
from lethe.consumers.workers.lag import LagGauge
from lethe.consumers.workers.model_gauges import ModelGauges
from lethe.consumers.workers.partitioner import PartitionerWatch
from lethe.engine.errors import CommitConflict
from lethe.engine.store.apply import Applied, Change
from lethe.engine.store.layout.keys import commit_partition
from lethe.engine.store.offline.snapshot import with_enough_sentinels
from lethe.engine.store.store import ModelStore
from lethe.engine.store.sums import has_rows_beside, rewrite_sums

GROUP = "lethe-deletions"
_ROUNDS = 2_000  # of one poll: each processes a record of some model, or loses to a rival


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """How much one turn of the loop takes: this bounds latency and memory."""

    records: int = 256
    rows: int = 10_000
    poll_seconds: float = 0.5


def _topics() -> tuple[str, ...]:
    """Return the topics that it reads or writes; of lethe.commits the fold sees to it."""
    return (
        topics.DELETIONS,
        topics.ROW_CHANGES,
        topics.RECEIPTS,
        topics.VERSIONS,
        topics.MODELS,
        topics.REFRESH_JOBS,
        topics.DEAD_LETTERS,
    )


@dataclass(slots=True)
class _Poll:
    """The records of one poll, and the work that they leave."""

    records: Sequence[Record]
    groups: list[Group]
    letters: list[Refused]
    partitions: frozenset[Partition] = frozenset()
    unknown: list[Receipt] = field(default_factory=list)


class DeletionWorker:
    """Reads deletion requests and maintains the models' state; one thread runs it.

    Parameters
    ----------
    log, store
        Where requests and commits come from, and where the state is.
    seals, signer, trusted
        What commits are sealed and signed with, and whose signatures are accepted on commits that
        are read; None: signatures are not checked.
    metrics, health
        Where measurements and liveness are reported.
    limits
        The size of a micro-batch.
    batching
        How long requests wait to be batched; by default not at all.
    request_keys
        Whose requests are accepted; None: everybody's.
    now
        The clock of receipts and versions.
    at_step
        Called with the name of each step (`service.telemetry.steps`) as it is reached; crash tests
        kill the worker here.
    received
        Called with the records of each poll that returned some, for traces; None: nobody asks.
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
        received: Callable[[Sequence[Record]], None] | None = None,
    ) -> None:
        self._store = store
        self._metrics = metrics or Metrics()
        self._health = health or Health()
        self._limits = limits or BatchLimits()
        self._request_keys = request_keys
        self._now = now
        self._at_step = at_step
        self._received = received
        self._logger = logger("deletions")
        self._consumer = log.consumer(GROUP, [topics.DELETIONS, topics.ROW_CHANGES])
        self._producer = log.producer()
        self._reader = log.reader()
        self._window = BatchWindow(batching or Batching())
        self._states = StateCache()
        self._keepalive = Keepalive(self._consumer, self._health)
        self._journal = Journal(self._producer, seals, signer)
        fold = Fold(
            store,
            self._reader,
            self._producer,
            seals,
            trusted=trusted,
            progress=lambda _what, _done, _all: self._keepalive(),
            at_step=at_step,
        )
        self._newest = NewestParameters(self._producer, store, self._reader)
        self._follower = Follower(
            self._journal,
            fold,
            store=store,
            reader=self._reader,
            consumer=self._consumer,
            states=self._states,
            metrics=self._metrics,
            logger=self._logger,
            newest=self._newest,
            halt=self._halt,
        )
        self._loader = BatchLoader(
            store,
            self._states,
            self._reader,
            follower=self._follower,
            seals=seals,
            rows=self._limits.rows,
            at_step=at_step,
        )
        self._processor = BatchProcessor(
            store,
            self._reader,
            follower=self._follower,
            batching=batching or Batching(),
            now=now,
            at_step=at_step,
        )
        self._partitioner = PartitionerWatch(self._reader, self._logger)
        self._housekeeper = Housekeeper(store, self._producer, now=now, logger=self._logger)
        self._lag = LagGauge(self._consumer, self._metrics, self._health)
        self._gauges = ModelGauges(self._metrics, store)
        self._watch = TopicWatch(store.topics, self._reader, _topics())
        self._assignment = Assignment(
            self._consumer, store, self._reader, self._logger, self._watch
        )
        self._halts = Halts(self._metrics, self._logger)
        self._publisher = Publisher(self._producer, store, self._newest, at_step)
        self._to_publish: list[tuple[Sealed, list[Message]]] = []
        self._rewind = False

    # -- the loop -----------------------------------------------------------------------------

    def run(self, stop: threading.Event) -> None:
        """Work until ``stop`` is set; wait for servers that are away, without losing anything.

        Raises
        ------
        LogReset
            A topic of requests lost records. A loss in `lethe.commits` halts models instead.
        """
        keep_turning(
            stop, self.run_once, recover=self.recover, health=self._health, logger=self._logger
        )

    def recover(self) -> None:
        """Forget what is in memory: the next turn folds, and goes back to the watermarks."""
        self._states.clear()
        self._journal.forget()
        self._window.clear()
        self._publisher.forget()
        self._to_publish = []
        self._rewind = True

    def run_once(self, timeout: float | None = None) -> int:
        """Take one micro-batch through all steps; return how many records it had."""
        self._take_over()
        self._newest.send_due()
        records = self._poll(timeout)  # 1
        began = time.monotonic()
        poll = self._validate(records)  # 2
        for _ in range(_ROUNDS):
            result = Round()
            loaded = self._loader.load(poll.groups, result)  # 3
            self._processor.process(loaded, result)  # 4 and 5
            won = self._append(result.prepared)  # 6
            self._apply(won)  # 7
            if not self._more_to_do(poll, result):
                break
            self._follower.follow(commit_partition(model_id) for model_id in result.stale)
        else:
            raise CommitConflict(f"others keep committing: {_ROUNDS} rounds were not enough")
        self._publish(poll, began)  # 8; it is acknowledged during the next turn's steps 1 to 6
        # 9 follows in the next turn: with its step 7, or while polling if nothing follows.
        self._run_periodic_tasks()
        return len(records)

    def close(self) -> None:
        """Leave the group and release connections, between batches."""
        with suppress(*TRANSIENT):  # the next worker publishes it again
            self._publisher.advance()
        with suppress(*TRANSIENT):  # else it is done within the hour
            for state in filter(has_rows_beside, self._states):
                rewrite_sums(self._store.client, state)
        self._housekeeper.finish()
        self._consumer.close()
        self._producer.close()
        self._reader.close()

    def idle(self) -> bool:
        """Return whether every record of the assigned partitions is processed."""
        assigned = self._consumer.assignment()
        return (
            bool(assigned)
            and not self._rewind
            and not self._publisher.outstanding
            and not len(self._window)
            and self._lag.waiting(self._assignment.positions) == 0
        )

    # -- 1 and 2 ------------------------------------------------------------------------------

    def _poll(self, timeout: float | None) -> Sequence[Record]:
        """Poll (step 1) a bounded micro-batch; step 9 of the turn before may complete meanwhile."""
        self._keepalive.check()
        self._at_step(Step.POLL)
        wait = self._limits.poll_seconds if timeout is None else timeout
        room = min(self._limits.records, self._window.room())
        records = self._consumer.poll(0.0 if self._publisher.outstanding else wait, room)
        if not records and self._publisher.outstanding:
            self._publisher.advance()
            records = self._consumer.poll(wait, room)
        if lost := self._drop_lost():
            # A partition that was lost and is assigned again is read from its watermark, too.
            records = [record for record in records if record.partition not in lost]
        if self._received is not None and records:
            self._received(records)
        return records

    def _validate(self, records: Sequence[Record]) -> _Poll:
        """Validate (step 2) each record alone, and group them by model."""
        if records:
            self._at_step(Step.VALIDATE)
        self._follower.new_poll()
        groups, dead_letters = group_records(records, self._request_keys)
        self._partitioner.look(groups)
        ready = []
        for group in self._window.join(groups, self._now()):
            if group.model_id in self._halts:
                self._halts.hold_back(group)
            else:
                ready.append(group)
        return _Poll(records, ready, dead_letters, frozenset(group.partition for group in ready))

    # -- 6 ------------------------------------------------------------------------------------

    def _append(self, prepared: Sequence[Prepared]) -> list[tuple[Prepared, Sealed]]:
        """Append (step 6) commits, one per model, all at once; return those that count.

        Somebody else has written to the partitions of the others: these are folded, and the
        records of those commits are processed again.
        """
        if not prepared:
            return []
        by_model = {each.group.model_id: each for each in prepared}
        self._at_step(Step.APPEND)
        begin = time.perf_counter()
        try:
            appending = self._journal.begin([each.transition.commit for each in prepared])
        except CommitTooLarge as error:
            self._halt(error.model_id, error)
            return []  # the others are processed again
        messages = {commit.model_id: messages_of([commit]) for commit, _ in appending.sent}
        sealed = self._journal.finish(appending)
        self._metrics.append_seconds.observe(time.perf_counter() - begin)
        won = [(by_model.pop(each.commit.model_id), each) for each in sealed]
        self._metrics.commits.labels("won").inc(len(won))
        for model_id in by_model:
            self._metrics.commits.labels("contested").inc()
            self._states.drop(model_id)
            self._follower.follow([commit_partition(model_id)])
            self._journal.reconcile(model_id)
        self._to_publish += [(winner, messages[winner.commit.model_id]) for _, winner in won]
        return won

    # -- 7 ------------------------------------------------------------------------------------

    def _apply(self, won: Sequence[tuple[Prepared, Sealed]]) -> None:
        """Apply (step 7) commits, all in one round trip, with the cursors of the last publish."""
        if not won:
            return
        self._at_step(Step.APPLY)
        changes: list[Change] = []
        for prepared, sealed in won:
            transition = prepared.transition
            changes.append(
                change_of(
                    sealed,
                    prepared.before,
                    arrays=transition.arrays,
                    live=transition.live,
                    written=transition.written,
                )
            )
        for (prepared, sealed), change in zip(won, changes, strict=True):
            if sealed.commit.leaves_no_row:
                self._shred(prepared, sealed, change)
        keep(self._store, (sealed.commit for _, sealed in won))
        notes = self._publisher.to_note
        answers, noted = self._store.apply(changes, None if notes is None else notes.queue)
        if notes is not None:
            self._publisher.noted(noted)
        for (prepared, sealed), change, answer in zip(won, changes, answers, strict=True):
            if answer.applied is Applied.APPLIED:
                self._keep(prepared, sealed, change)
            else:
                # The store went back, or another worker was faster: a fold finds out from the log,
                # applies it and publishes it.
                self._logger.warning(
                    "the store is not what the commit continues; folding",
                    action="refused",
                    model=prepared.group.model_id,
                    reason=f"{answer.applied}: {answer.found}",
                )
                self._to_publish = [each for each in self._to_publish if each[0] is not sealed]
                self._follower.forget(prepared.group.model_id)
        self._follower.follow({commit_partition(prepared.group.model_id) for prepared, _ in won})
        for prepared, sealed in won:
            # Records of a model that the fold has halted stay: the watermark must not pass them.
            if prepared.group.model_id not in self._halts:
                self._remove_processed(prepared, sealed)

    def _keep(self, prepared: Prepared, sealed: Sealed, change: Change) -> None:
        """Keep the state after a commit that was applied."""
        arrays = prepared.before.arrays_id if change.arrays is None else change.arrays.renewed
        after = after_commit(prepared.before, sealed, prepared.transition.after, arrays)
        self._states.put(with_enough_sentinels(self._store, after))
        self._gauges.show(after)
        if not sealed.commit.leaves_no_row:
            self._shred(prepared, sealed, change)

    def _shred(self, prepared: Prepared, sealed: Sealed, change: Change) -> None:
        former, live = prepared.before.rows_generation, change.live.name
        shred(self._store, sealed.commit, former, live, self._at_step)

    def _remove_processed(self, prepared: Prepared, sealed: Sealed) -> None:
        """Remove the records of a commit from their group, and report their outcomes."""
        records = prepared.group.items[: prepared.records]
        prepared.group.items = prepared.group.items[prepared.records :]
        report_decisions(self._metrics, self._logger, prepared, sealed, records)

    def _more_to_do(self, poll: _Poll, result: Round) -> bool:
        """Act on what a round did not commit; return whether another round is needed."""
        poll.unknown += result.unknown
        report_dropped(self._logger, result.dropped)
        for group, rest in result.rest:
            self._window.keep(group, rest)
            self._logger.info(
                "requests wait to be batched",
                action="hold",
                model=group.model_id,
                records=len(rest.items),
                rows=rest.rows,
            )
        for model_id, error in result.failed.items():
            self._halt(model_id, error)
        for model_id in result.stale:
            self._follower.forget(model_id)
        remaining = []
        for group in poll.groups:
            if group.items and group.model_id in self._halts:
                self._halts.hold_back(group)
            elif group.items:
                remaining.append(group)
        poll.groups = remaining
        return bool(remaining)

    # -- 8 and 9 ------------------------------------------------------------------------------

    def _publish(self, poll: _Poll, since: float) -> None:
        """Publish (step 8) what was committed, and answers without a commit, in one flush."""
        ready, self._to_publish = self._to_publish, []
        messages = without_replaced([each for _, of_commit in ready for each in of_commit])
        messages += [receipt_message(receipt, receipt.value()) for receipt in poll.unknown]
        messages += [dead_letter(item) for item in poll.letters]
        if not ready and not messages and not poll.records:
            return
        report_without_commit(self._metrics, self._logger, poll.unknown, poll.letters)
        hints = self._assignment.move(poll.records)
        moved = {p for p in poll.partitions | hints.keys() if p in self._assignment.positions}
        watermarks = {p: self._watermark(p) for p in sorted(moved)}
        self._publisher.begin(
            [sealed for sealed, _ in ready],
            messages,
            self._assignment.watermarks(watermarks),
            partial(self._advanced, poll.records, watermarks, hints),
            since,
        )

    def _advanced(
        self,
        records: Sequence[Record],
        watermarks: Mapping[Partition, int],
        hints: Mapping[Partition, Position],
    ) -> None:
        """Step 9 is done: commit offsets to the log too, as a hint for people and tools."""
        now_ms = time.time() * 1000
        for record in records:
            if record.timestamp_ms:
                seconds = max(0.0, now_ms - record.timestamp_ms) / 1000
                self._metrics.end_to_end_seconds.observe(seconds)
        self._consumer.commit_hint(hints)
        for partition, offset in watermarks.items():
            self._consumer.release(partition, offset)
        self._health.progress(self._lag.last)

    def _watermark(self, partition: Partition) -> int:
        """Return the offset below which every record is processed: none is held back or waits."""
        offsets = (
            self._assignment.positions[partition],
            self._halts.first(partition),
            self._window.first(partition),
        )
        return min(offset for offset in offsets if offset is not None)

    # -- taking over partitions, and periodic tasks -------------------------------------------

    def _take_over(self) -> None:
        self._drop_lost()
        fresh = set(self._consumer.take_assigned())
        # Halted models are tried again only when everything up to the ends at takeover is read: the
        # first request of such a model holds the watermark back, and reading what follows it may
        # take longer than the time between two attempts.
        due = self._halts.due and self._assignment.caught_up()
        if self._rewind or due or (fresh and len(self._halts)):
            # Halted models hold back records of assigned partitions: read all of these again.
            fresh |= self._consumer.assignment()
            self._journal.forget()
        if not fresh:
            return
        self._publisher.advance()
        self._states.clear()
        self._window.drop(fresh)
        self._halts.clear()
        self._at_step(Step.TAKE_OVER)
        homes = self._follower.homes()
        self._follower.follow(homes)
        self._gauges.take_over(homes)
        self._assignment.take_over(fresh)
        self._rewind = False
        self._lag.measure_next()

    def _run_periodic_tasks(self) -> None:
        """Now and then: measure the lag, see what others have done, and do housekeeping."""
        if self._lag.measure_if_due(self._assignment.positions, self._window):
            self._follower.check()
        self._watch.check_if_due()
        self._housekeeper.run_due()

    def _drop_lost(self) -> frozenset[Partition]:
        lost = self._assignment.drop_lost()
        if lost:
            self._window.drop(lost)
            self._states.clear()
            self._gauges.keep(self._follower.homes())
            self._journal.forget()
            self._publisher.forget()
        return lost

    def _halt(self, model_id: str, error: Exception) -> None:
        self._halts.halt(model_id, error)
        self._states.drop(model_id)
