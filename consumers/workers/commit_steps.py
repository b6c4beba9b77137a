"""Steps 6 to 8 of a deletion worker: its commits are appended to the log, applied, published."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from lethe.consumers.commits.apply import after_commit, change_of
from lethe.consumers.commits.commit import LoggedCommit
from lethe.consumers.commits.journal import CommitTooLarge, Journal
from lethe.consumers.commits.publish import messages_of, receipt_message, without_replaced
from lethe.consumers.commits.publisher import Publisher
from lethe.consumers.commits.recovery.follower import Follower
from lethe.consumers.commits.shred import keep, shred
from lethe.consumers.commits.state_cache import StateCache
from lethe.consumers.contract.receipt import Receipt
from lethe.consumers.deletions.dead_letters import dead_letter
from lethe.consumers.deletions.report import report_decisions, report_without_commit
from lethe.consumers.deletions.rounds import Prepared
from lethe.consumers.deletions.validate import Invalid
from lethe.consumers.log.base import Message
from lethe.consumers.service.telemetry.logs import Logger
from lethe.consumers.service.telemetry.metrics import Metrics
from lethe.consumers.service.telemetry.steps import AtStep, Step
from lethe.consumers.workers.halts import Halts
from lethe.consumers.workers.model_gauges import ModelGauges
from lethe.engine.store.apply import Applied, StoreChange
from lethe.engine.store.cursors import Watermark
from lethe.engine.store.layout.keys import commit_partition
from lethe.engine.store.offline.snapshot import with_enough_sentinels
from lethe.engine.store.store import ModelStore


@dataclass(slots=True)
class CommitSteps:
    """Appends, applies and publishes the commits of one worker; one thread uses it.

    Not a `Committer`, which waits for each step: here the commits of many models share the round
    trips, their messages are made while the log takes them, and what is published is noted one poll
    later.
    """

    store: ModelStore
    journal: Journal
    follower: Follower
    publisher: Publisher
    states: StateCache
    halts: Halts
    gauges: ModelGauges
    metrics: Metrics
    logger: Logger
    at_step: AtStep
    to_publish: list[tuple[LoggedCommit, list[Message]]] = field(default_factory=list)

    # -- 6 ------------------------------------------------------------------------------------

    def append(self, prepared: Sequence[Prepared]) -> list[tuple[Prepared, LoggedCommit]]:
        """Append (step 6) commits, one per model, all at once; return those that count.

        Somebody else has written to the partitions of the others: these are folded, and the
        records of those commits are processed again.
        """
        if not prepared:
            return []
        by_model = {each.group.model_id: each for each in prepared}
        self.at_step(Step.APPEND)
        begin = time.perf_counter()
        try:
            appending = self.journal.begin([each.transition.commit for each in prepared])
        except CommitTooLarge as error:
            self.halts.halt(error.model_id, error)
            self.states.drop(error.model_id)
            return []  # the others are processed again
        messages = {commit.model_id: messages_of([commit]) for commit, _ in appending.sent}
        logged = self.journal.finish(appending)
        self.metrics.append_seconds.observe(time.perf_counter() - begin)
        won = [(by_model.pop(each.commit.model_id), each) for each in logged]
        self.metrics.commits.labels("won").inc(len(won))
        for model_id in by_model:
            self.metrics.commits.labels("contested").inc()
            self.states.drop(model_id)
            self.follower.follow([commit_partition(model_id)])
            self.journal.note_rival(model_id)
        self.to_publish += [(winner, messages[winner.commit.model_id]) for _, winner in won]
        return won

    # -- 7 ------------------------------------------------------------------------------------

    def apply(self, won: Sequence[tuple[Prepared, LoggedCommit]]) -> None:
        """Apply (step 7) commits, all in one round trip, with the cursors of the last publish."""
        if not won:
            return
        self.at_step(Step.APPLY)
        changes: list[StoreChange] = []
        for prepared, logged in won:
            transition = prepared.transition
            changes.append(
                change_of(
                    logged,
                    prepared.before,
                    arrays=transition.arrays,
                    live=transition.live,
                    written=transition.written,
                )
            )
        for (prepared, logged), change in zip(won, changes, strict=True):
            if logged.commit.leaves_no_row:
                self._shred(prepared, logged, change)
        keep(self.store, (logged.commit for _, logged in won))
        answers = self.publisher.apply(changes)
        for (prepared, logged), change, answer in zip(won, changes, answers, strict=True):
            if answer.applied is Applied.APPLIED:
                self._keep(prepared, logged, change)
            else:
                # The store went back, or another worker was faster: a fold finds out from the log,
                # applies it and publishes it.
                self.logger.warning(
                    "the store is not what the commit continues; folding",
                    action="refused",
                    model=prepared.group.model_id,
                    reason=f"{answer.applied}: {answer.found}",
                )
                self.to_publish = [each for each in self.to_publish if each[0] is not logged]
                self.follower.forget(prepared.group.model_id)
        self.follower.follow({commit_partition(prepared.group.model_id) for prepared, _ in won})
        for prepared, logged in won:
            # Records of a model that the fold has halted stay: the watermark must not pass them.
            if prepared.group.model_id not in self.halts:
                self._remove_processed(prepared, logged)

    def _keep(self, prepared: Prepared, logged: LoggedCommit, change: StoreChange) -> None:
        """Keep the state after a commit that was applied."""
        arrays = prepared.before.arrays_id if change.arrays is None else change.arrays.renewed
        after = after_commit(prepared.before, logged, prepared.transition.after, arrays)
        self.states.put(with_enough_sentinels(self.store, after))
        self.gauges.show(after)
        if not logged.commit.leaves_no_row:
            self._shred(prepared, logged, change)

    def _shred(self, prepared: Prepared, logged: LoggedCommit, change: StoreChange) -> None:
        former, live = prepared.before.rows_generation, change.live.name
        shred(self.store, logged.commit, former, live, self.at_step)

    def _remove_processed(self, prepared: Prepared, logged: LoggedCommit) -> None:
        """Remove the records of a commit from their group, and report their outcomes."""
        records = prepared.group.items[: prepared.records]
        prepared.group.items = prepared.group.items[prepared.records :]
        report_decisions(self.metrics, self.logger, prepared, logged, records)

    # -- 8 ------------------------------------------------------------------------------------

    def publish(
        self,
        unknown: Sequence[Receipt],
        letters: Sequence[Invalid],
        watermarks: Mapping[str, Watermark],
        then: Callable[[], None],
        since: float,
    ) -> None:
        """Publish (step 8) what was committed, and answers without a commit, in one flush.

        ``watermarks``, ``then`` and ``since`` are for step 9 (`Notes`).
        """
        ready, self.to_publish = self.to_publish, []
        messages = without_replaced([each for _, of_commit in ready for each in of_commit])
        messages += [receipt_message(receipt, receipt.value()) for receipt in unknown]
        messages += [dead_letter(item) for item in letters]
        if ready or messages or watermarks:
            report_without_commit(self.metrics, self.logger, unknown, letters)
            commits = [logged for logged, _ in ready]
            self.publisher.begin(commits, messages, watermarks, then, since)

    def forget(self) -> None:
        """Forget what is not published yet: a fold publishes it."""
        self.publisher.forget()
        self.to_publish = []
