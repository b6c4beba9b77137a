"""The deletion worker: from a request to a version, exactly once in effect.

The steps have the same numbers here, in docs/commit.md and in the crash tests:

1. poll  2. validate  3. load  4. decide  5. compute  6. append  7. apply  8. publish  9. advance

`DeletionWorker._process` is these steps after the first, which the loop of `PartitionWorker` calls.
The log is the truth: once step 6 is acknowledged, a fold (`consumers.commits.recovery`) finishes
what fails; what fails before that never happened. After an error at any step, the worker forgets
what is in memory, folds, and resumes at the watermarks.

Readers are told (step 8) what the store has (step 7), since some of them look there next. The
messages are acknowledged during the next turn.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Unpack

from lethe.consumers.commits.journal import Journal
from lethe.consumers.commits.newest import NewestParameters
from lethe.consumers.commits.publisher import Publisher
from lethe.consumers.commits.recovery.fold import Fold
from lethe.consumers.commits.recovery.follower import Follower
from lethe.consumers.commits.state_cache import StateCache
from lethe.consumers.contract import topics
from lethe.consumers.contract.receipt import Receipt
from lethe.consumers.contract.sealing import SealKeys
from lethe.consumers.contract.signatures import Signer, TrustedKeys
from lethe.consumers.deletions.authenticate import RequestKeys
from lethe.consumers.deletions.batch_processor import BatchProcessor
from lethe.consumers.deletions.batching import Batching, BatchWindow
from lethe.consumers.deletions.load import BatchLoader
from lethe.consumers.deletions.rounds import Round
from lethe.consumers.deletions.validate import Group, Invalid, group_records
from lethe.consumers.log.base import Log, Partition, Record
from lethe.consumers.service.loop import TRANSIENT
from lethe.consumers.service.telemetry.steps import Step
from lethe.consumers.workers.commit_steps import CommitSteps
from lethe.consumers.workers.halts import Halts
from lethe.consumers.workers.housekeeping import Housekeeper
from lethe.consumers.workers.lag import LagGauge
from lethe.consumers.workers.model_gauges import ModelGauges
from lethe.consumers.workers.partition_worker import PartitionWorker, Reporting
from lethe.consumers.workers.partitioner import PartitionerWatch
from lethe.engine.errors import CommitConflict
from lethe.engine.store.layout.keys import commit_partition
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


@dataclass(slots=True)
class _Poll:
    """The records of one poll, and the work that they leave."""

    records: Sequence[Record]
    groups: list[Group]
    letters: list[Invalid]
    partitions: frozenset[Partition] = frozenset()
    unknown: list[Receipt] = field(default_factory=list)


class DeletionWorker(PartitionWorker):
    """Reads deletion requests and maintains the models' state; one thread runs it.

    Parameters
    ----------
    log, store, reporting
        As `PartitionWorker` has them.
    seals, signer, trusted
        What commits are sealed and signed with, and whose signatures are accepted on commits that
        are read; None: signatures are not checked.
    limits
        The size of a micro-batch.
    batching
        How long requests wait to be batched; by default not at all.
    request_keys
        Whose requests are accepted; None: everybody's.
    now
        The clock of receipts and versions.
    received
        Called with the records of each poll that returned some, for traces; None: nobody asks.
    """

    releases = True

    def __init__(
        self,
        log: Log,
        store: ModelStore,
        seals: SealKeys,
        *,
        signer: Callable[[], Signer | None] = lambda: None,
        trusted: TrustedKeys | None = None,
        limits: BatchLimits | None = None,
        batching: Batching | None = None,
        request_keys: RequestKeys | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        received: Callable[[Sequence[Record]], None] | None = None,
        **reporting: Unpack[Reporting],
    ) -> None:
        reads = (topics.DELETIONS, topics.ROW_CHANGES)
        writes = (topics.RECEIPTS, topics.VERSIONS, topics.MODELS, topics.REFRESH_JOBS)
        watched = (*reads, *writes, topics.DEAD_LETTERS)  # lethe.commits is watched by the fold
        super().__init__(log, store, "deletions", GROUP, reads, reporting, watches=watched)
        self._limits = limits or BatchLimits()
        self.poll_seconds = self._limits.poll_seconds
        self._checked = None if request_keys is None else request_keys.checked
        self._now = now
        self._received = received
        self._window = BatchWindow(batching or Batching())
        self._states = StateCache()
        self._journal = Journal(self._producer, seals, signer)
        fold = Fold(
            store,
            self._reader,
            self._producer,
            seals,
            trusted=trusted,
            progress=lambda _what, _done, _all: self._keepalive(),
            at_step=self._at_step,
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
            progress=self._keepalive.now_and_then,
            at_step=self._at_step,
        )
        self._processor = BatchProcessor(
            store,
            self._reader,
            follower=self._follower,
            batching=batching or Batching(),
            now=now,
            progress=self._keepalive.now_and_then,
            at_step=self._at_step,
        )
        self._partitioner = PartitionerWatch(self._reader, self._logger)
        self._housekeeper = Housekeeper(store, self._producer, now=now, logger=self._logger)
        self._lag = LagGauge(self._consumer, self._metrics, self._health)
        self._gauges = ModelGauges(self._metrics, store)
        self._halts = Halts(self._metrics, self._logger)
        self._publisher = Publisher(self._producer, store, self._newest, self._at_step)
        self._commits = CommitSteps(
            store,
            self._journal,
            self._follower,
            self._publisher,
            self._states,
            self._halts,
            self._gauges,
            self._metrics,
            self._logger,
            self._at_step,
        )

    # -- the turn -----------------------------------------------------------------------------

    def _poll(self, timeout: float) -> Sequence[Record]:
        """Poll (step 1) a bounded micro-batch; step 9 of the turn before may complete meanwhile."""
        self._newest.send_due()
        self._keepalive.check()
        self._at_step(Step.POLL)
        outstanding = self._publisher.outstanding
        records = self._consumer.poll(0.0 if outstanding else timeout, self._room())
        if not records and outstanding:
            self._publisher.advance()
            records = self._consumer.poll(timeout, self._room())
        return records

    def _process(self, records: Sequence[Record]) -> int:
        """Take one micro-batch through all other steps; return how many records it had."""
        began = time.monotonic()
        poll = self._validate(records)  # 2
        for _ in range(_ROUNDS):
            result = Round()
            loaded = self._loader.load(poll.groups, result)  # 3
            self._processor.process(loaded, result)  # 4 and 5
            won = self._commits.append(result.prepared)  # 6
            self._commits.apply(won)  # 7
            self._keepalive.now_and_then()
            if not self._more_to_do(poll, result):
                break
            self._follower.follow(commit_partition(model_id) for model_id in result.stale)
        else:
            raise CommitConflict(f"others keep committing: {_ROUNDS} rounds were not enough")
        self._publish(poll, began)  # 8; it is acknowledged during the next turn's steps 1 to 6
        # 9 follows in the next turn: with its step 7, or while polling if nothing follows.
        if self._lag.measure_if_due(self._assignment.positions, self._window):
            self._follower.check()
        self._housekeeper.run_due()
        return len(records)

    def recover(self) -> None:
        """Forget what is in memory: the next turn folds, and goes back to the watermarks."""
        super().recover()
        self._states.clear()
        self._journal.forget()
        self._window.clear()
        self._commits.forget()

    def close(self) -> None:
        """Leave the group and release connections, between batches."""
        with suppress(*TRANSIENT):  # the next worker publishes it again
            self._publisher.advance()
        with suppress(*TRANSIENT):  # else it is done within the hour
            for state in filter(has_rows_beside, self._states):
                rewrite_sums(self._store.client, state)
        self._housekeeper.finish()
        super().close()

    def _room(self) -> int:
        return min(self._limits.records, self._window.room())

    def _is_busy(self) -> bool:
        """Whether something is unpublished, unnoted, unread or waits to be batched."""
        return (
            self._publisher.outstanding
            or len(self._window) > 0
            or self._lag.waiting(self._assignment.positions) > 0
        )

    # -- 2 ------------------------------------------------------------------------------------

    def _validate(self, records: Sequence[Record]) -> _Poll:
        """Validate (step 2) each record alone, and group them by model."""
        if records:
            if self._received is not None:
                self._received(records)
            self._at_step(Step.VALIDATE)
        self._follower.new_poll()
        groups, dead_letters = group_records(records, self._checked)
        self._partitioner.look(groups)
        ready = []
        for group in self._window.join(groups, self._now()):
            if group.model_id in self._halts:
                self._halts.hold_back(group)
            else:
                ready.append(group)
        return _Poll(records, ready, dead_letters, frozenset(group.partition for group in ready))

    def _more_to_do(self, poll: _Poll, result: Round) -> bool:
        """Act on what a round did not commit; return whether another round is needed."""
        poll.unknown += result.unknown
        for model, version, message in result.dropped:
            self._logger.info(message, action="drop_result", model=model, version=version)
        for group, rows in result.rest:
            self._logger.info(
                "requests wait to be batched",
                action="hold",
                model=group.model_id,
                records=len(group.items),
                rows=rows,
            )
            self._window.keep(group, rows)
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
        partitions = poll.partitions | {record.partition for record in poll.records}
        watermarks = self._watermarks(sorted(partitions & self._assignment.positions.keys()))
        self._commits.publish(
            poll.unknown,
            poll.letters,
            self._assignment.watermarks(watermarks),
            partial(self._advanced, poll.records, watermarks),
            since,
        )

    def _advanced(self, records: Sequence[Record], watermarks: Mapping[Partition, int]) -> None:
        """Step 9 is done: commit the watermarks to the log too, as a hint for people and tools."""
        now_ms = time.time() * 1000
        for record in records:
            if record.timestamp_ms:
                seconds = max(0.0, now_ms - record.timestamp_ms) / 1000
                self._metrics.end_to_end_seconds.observe(seconds)
        self._acknowledge(watermarks)
        self._health.progress(self._lag.last)

    def _first_unfinished(self, partition: Partition) -> int | None:
        """Return the offset of the first record that a halted model holds back, or that waits."""
        offsets = self._halts.first(partition), self._window.first(partition)
        return min((offset for offset in offsets if offset is not None), default=None)

    # -- taking over partitions ---------------------------------------------------------------

    def _starts_anew(self, fresh: frozenset[Partition]) -> bool:
        """Return whether halted models are tried again, whose records may lie in all partitions.

        That is only when everything up to the ends at takeover is read: the first request of such a
        model holds the watermark back, and reading what follows it may take longer than the time
        between two attempts.
        """
        due = self._halts.due and self._assignment.caught_up()
        return due or bool(fresh and len(self._halts))

    def _forget(self, partitions: frozenset[Partition]) -> None:
        self._window.drop(partitions)
        self._states.clear()

    def _resume(self) -> None:
        """Fold the partitions of all models whose requests are read here."""
        if len(self._halts):
            self._journal.forget()
        self._publisher.advance()
        self._halts.clear()
        self._at_step(Step.TAKE_OVER)
        homes = self._follower.assigned_partitions()
        self._follower.follow(homes)
        self._gauges.take_over(homes)
        self._lag.measure_next()

    def _lose(self, partitions: frozenset[Partition]) -> None:
        super()._lose(partitions)
        self._gauges.keep(self._follower.assigned_partitions())
        self._journal.forget()
        self._publisher.forget()

    def _halt(self, model_id: str, error: Exception) -> None:
        self._halts.halt(model_id, error)
        self._states.drop(model_id)
