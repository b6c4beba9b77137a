"""Which commits partitions a worker has read to their ends, and when it folds them again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

from lethe.consumers.commits.journal import Followed, Journal
from lethe.consumers.commits.newest import NewestParameters
from lethe.consumers.commits.recovery.fold import Fold
from lethe.consumers.commits.recovery.partition_fold import Folded
from lethe.consumers.commits.state_cache import StateCache
from lethe.consumers.contract import topics
from lethe.consumers.log.base import Consumer, Reader
from lethe.consumers.service.telemetry.logs import Logger
from lethe.consumers.service.telemetry.metrics import Metrics
from lethe.engine.errors import LetheError, LogReset
from lethe.engine.store.layout.keys import COMMIT_PARTITIONS, PartitionKeys, commit_partition
from lethe.engine.store.membership import models_in
from lethe.engine.store.store import ModelStore

Halt = Callable[[str, Exception], None]


class Follower:
    """Folds commits partitions as they are needed; one thread uses it.

    Parameters
    ----------
    journal, fold
        What appends commits, and what folds them.
    store, reader, consumer
        What has the cursors, the ends of partitions, and the assignment.
    states
        States in memory; all are forgotten if the store has gone back.
    metrics, logger
        Where folds are counted and logged.
    newest
        What sends the newest parameters again some time after a fold.
    halt
        Called for each model that a fold halts.
    """

    def __init__(
        self,
        journal: Journal,
        fold: Fold,
        *,
        store: ModelStore,
        reader: Reader,
        consumer: Consumer,
        states: StateCache,
        metrics: Metrics,
        logger: Logger,
        newest: NewestParameters,
        halt: Halt,
    ) -> None:
        self._journal = journal
        self._fold = fold
        self._store = store
        self._reader = reader
        self._consumer = consumer
        self._states = states
        self._metrics = metrics
        self._logger = logger
        self._newest = newest
        self._halt = halt
        self._lacking: dict[int, frozenset[str]] = {}
        self._reset: dict[int, LogReset] = {}
        self._halted: dict[int, Mapping[str, LetheError]] = {}
        self._read_since_poll: set[int] = set()

    @property
    def lacking(self) -> frozenset[str]:
        """Models that have fewer row records than live rows (DATA_LOST)."""
        return frozenset[str]().union(*self._lacking.values())

    def assigned_partitions(self) -> list[int]:
        """Return the commits partitions of the models whose requests are in assigned partitions.

        ``lethe.deletions`` has as many partitions as ``lethe.commits`` unless somebody changed
        that: then the numbers agree, else all are returned. A model of which this worker reads only
        changes of rows is not among them: it is followed when its first change comes.
        """
        if len(self._reader.partitions(topics.DELETIONS)) != COMMIT_PARTITIONS:
            return list(range(COMMIT_PARTITIONS))
        assigned = self._consumer.assignment()
        return sorted(each.index for each in assigned if each.topic == topics.DELETIONS)

    def follow(self, indexes: Iterable[int]) -> None:
        """Fold those of these partitions that have not been read to their ends already.

        A partition that has lost commits is not followed, and its models halt.
        """
        unread = [index for index in indexes if self._journal.followed(index) is None]
        empty = self._fold.empty(unread) if len(unread) > 1 else {}
        for index in unread:
            self._follow(index, empty.get(index))

    def follow_model(self, model_id: str) -> None:
        """Fold the partition of a model, unless it has been read to its end already.

        Raises
        ------
        LogReset
            The partition has lost commits: nobody knows which models there are.
        LetheError
            The fold has halted the model.
        """
        index = commit_partition(model_id)
        self.follow([index])
        if index in self._reset:
            raise self._reset[index]
        if model_id in self._halted[index]:
            raise self._halted[index][model_id]

    def _follow(self, index: int, folded: Folded | None = None) -> None:
        """Fold a partition, unless it is ``folded`` already."""
        begin = time.perf_counter()
        self._reset.pop(index, None)
        try:
            folded = folded or self._fold.run(index)
        except LogReset as error:
            self._reset[index] = error
            for model_id in models_in(self._store.client, PartitionKeys(index)):
                self._halt(model_id, error)
            return
        self._journal.follow(index, folded.followed)
        self._states.renew(index, self._fold.states, folded.followed.heads)
        self._lacking[index], self._halted[index] = folded.lacking, folded.halted
        self._newest.after_fold(index)
        self._metrics.folds.inc()
        for model_id, cause in folded.halted.items():
            self._halt(model_id, cause)
        if folded.applied or folded.published or folded.lacking:
            self._logger.info(
                "commits folded",
                action="fold",
                partition=index,
                applied=folded.applied,
                published=folded.published,
                data_lost=sorted(folded.lacking),
                seconds=round(time.perf_counter() - begin, 3),
            )

    def followed(self, model_id: str) -> Followed | None:
        """Return a model's commits partition as it is followed now, or None if it is not."""
        return self._journal.followed(commit_partition(model_id))

    def reaches(self, model_id: str, applied: int) -> bool:
        """Return whether what was read of a model, with the cursor at ``applied``, is up to date.

        It is not if the store has gone back since the partition was folded.
        """
        followed = self.followed(model_id)
        return followed is not None and applied >= followed.tail.offset

    def forget(self, model_id: str) -> None:
        """Forget a model's state and its partition; they are read again when they are needed."""
        self._states.drop(model_id)
        self._journal.forget(commit_partition(model_id))

    def new_poll(self) -> None:
        """Note that records were polled: whatever is read from now on is read after the poll."""
        self._read_since_poll.clear()

    def read_on(self, model_id: str) -> None:
        """Read the commits partition of an unknown model to an end asked for after the poll.

        Only then may its requests be answered UNKNOWN_MODEL: it may have been registered meanwhile.

        Raises
        ------
        LetheError
            As `follow_model`.
        """
        index = commit_partition(model_id)
        if index not in self._read_since_poll:
            self._read_since_poll.add(index)
            self.follow([index])
            if index not in self._reset:
                self._fold_changed([index])
        self.follow_model(model_id)

    def check(self) -> None:
        """Check whether others have written or the store has gone back, and if so, fold again."""
        self._fold_changed(list(self._journal.tails()))
        tails = dict(self._journal.tails())
        stored = self._store.cursors.read_all([PartitionKeys(index) for index in tails])
        for (index, tail), cursors in zip(tails.items(), stored, strict=True):
            if cursors.pair.apply < tail.offset:
                self._journal.forget(index)
                self._states.clear()
            self._consumer.release(tail.partition, cursors.lowest)
        self.follow(self.assigned_partitions())

    def _fold_changed(self, indexes: Iterable[int]) -> None:
        """Fold those of these partitions that no longer end at their known tail."""
        tails = {index: self._journal.tails()[index] for index in indexes}
        ends = self._reader.ends([tail.partition for tail in tails.values()])
        for index, tail in tails.items():
            if ends[tail.partition] != tail.offset:
                self._journal.forget(index)
                self._follow(index)
