"""The one way back: a fold brings the store to what the log says, and publishes what was not.

After a crash, a failover, a restored backup, a lost answer, a refused apply, or another worker's
append, a fold reads the commits partition from the lower of its two cursors to its end, and applies
and publishes every record that counts; doing so twice changes nothing. A fold decides nothing.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from contextlib import suppress

from lethe.consumers.commits.journal import Followed, Tail, check_tail, commit_partitions
from lethe.consumers.commits.recovery.fold_lease import FoldLease
from lethe.consumers.commits.recovery.model_lists import restore_lists
from lethe.consumers.commits.recovery.partition_fold import (
    RUN_LENGTH,
    FoldAgain,
    Folded,
    FoldParts,
    PartitionFold,
)
from lethe.consumers.commits.state_cache import StateCache
from lethe.consumers.contract import topics
from lethe.consumers.contract.published_versions import versioned_models
from lethe.consumers.contract.sealing import SealKeys
from lethe.consumers.contract.signatures import TrustedKeys
from lethe.consumers.log.base import Partition, Producer, Reader
from lethe.consumers.service.telemetry.progress import Progress, no_progress
from lethe.consumers.service.telemetry.steps import AtStep, no_hook
from lethe.engine.errors import CommitConflict, LetheError, LogReset, Unavailable
from lethe.engine.store.counts import lost_keys
from lethe.engine.store.cursors import PartitionCursors
from lethe.engine.store.layout.keys import PartitionKeys, commit_partition
from lethe.engine.store.membership import listed_models, models_in
from lethe.engine.store.store import ModelStore

_TRIES = 5  # for a store that keeps going back
_LONG_FOLD = 2 * RUN_LENGTH
"""More commits than this are folded by one worker at a time."""
_RESTORE_SECONDS = 300.0
"""Between two folds of all that the log has of a model that lost keys, and between two passes over
the versions for a list of models that lacks some."""

_WAITING = "waiting for another worker to bring the store up to date"


class Fold:
    """Folds commits partitions into a store; one thread uses it.

    Parameters
    ----------
    store, reader, producer
        What is brought up to date, what reads commits, and what publishes them.
    seals, trusted
        What opens commits, and who must have signed them; None if signatures are not checked.
    progress
        Called with how far a fold has come.
    at_step
        Called between two writes, for crash tests.
    """

    def __init__(
        self,
        store: ModelStore,
        reader: Reader,
        producer: Producer,
        seals: SealKeys,
        *,
        trusted: TrustedKeys | None = None,
        progress: Progress = no_progress,
        at_step: AtStep = no_hook,
    ) -> None:
        self.states = StateCache()
        """States, after the fold, of the models that it met.

        It is emptied when a fold begins: the store may have gone back since the last one.
        """
        self._parts = FoldParts(
            store, reader, producer, seals, trusted, progress, at_step, self.states
        )
        self._store = store
        self._reader = reader
        self._progress = progress
        self._versioned: frozenset[str] | None = None
        self._restored: dict[str, float] = {}

    def run(self, index: int) -> Folded:
        """Fold one commits partition.

        Raises
        ------
        LogReset
            The log has lost commits that the store holds.
        StoreUnavailable, LogUnavailable
            A server cannot be reached: try again.
        """
        keys = PartitionKeys(index)
        lease = FoldLease(self._store.client, keys, lambda: self._progress(_WAITING, 0, 0))
        try:
            return self._run(keys, lease)
        finally:
            with suppress(Unavailable):
                lease.give_up()

    def empty(self, indexes: Collection[int]) -> dict[int, Folded]:
        """Return those of these partitions in which there is nothing to fold, as a fold finds them.

        A worker that starts takes over most of its partitions without a model and without a record.
        Cost for all of them: two round trips to the store and one to the log; for a store without
        cursors, one more and a pass over the published versions.

        Raises
        ------
        StoreUnavailable, LogUnavailable
            As `run`.
        """
        partitions = [commit_partitions(self._reader)[index] for index in indexes]
        keys = [PartitionKeys(index) for index in indexes]
        stored = self._store.cursors.read_all(keys)
        named, lacking = listed_models(self._store.client, keys)
        if any(cursors.topic_id == "" for cursors in stored):
            named += self._published()
        used = {commit_partition(name) for name in named} | {each.index for each in lacking}
        ends = self._reader.ends(partitions)
        new: dict[PartitionKeys, str] = {}
        empty: dict[int, Folded] = {}
        for each, partition, cursors in zip(keys, partitions, stored, strict=True):
            if ends[partition] > 0 or each.index in used:
                continue
            if cursors.topic_id == "":
                new[each] = partition.topic_id
            elif cursors != PartitionCursors(partition.topic_id):
                continue
            empty[each.index] = Folded(Followed(Tail(partition, 0)))
        self._store.cursors.begin_all(new)
        return empty

    def _run(self, keys: PartitionKeys, lease: FoldLease) -> Folded:
        halted: Mapping[str, LetheError] = {}
        for tries in range(_TRIES, 0, -1):
            self.states.clear()
            partition = commit_partitions(self._reader)[keys.index]
            self._restore_keys(keys, partition)
            cursors, end = self._extent(keys, partition)
            if end - cursors.lowest > _LONG_FOLD and lease.take():
                cursors, end = self._extent(keys, partition)  # another worker folded meanwhile
            applied_tail = Tail(partition, cursors.pair.apply, cursors.last_digest, cursors.epoch)
            check_tail(self._reader, applied_tail, end)
            partition_fold = PartitionFold(
                self._parts, keys, partition, cursors, end, halted, lease, last_try=tries == 1
            )
            try:
                return partition_fold.run()
            except FoldAgain as went_back:
                halted = went_back.halted
        raise CommitConflict(
            f"{topics.COMMITS}/{keys.index}: the store went back {_TRIES} times while it was folded"
        )

    def _restore_keys(self, keys: PartitionKeys, partition: Partition) -> None:
        """Have the models that lost keys folded again from where the log begins.

        If the log does not reach back far enough, they halt and are tried again only now and then:
        others may fold at the same time, and a person may restore the log.
        """
        if self._store.cursors.read(keys).topic_id != partition.topic_id:
            return
        if time.monotonic() >= self._restored.get(keys.tag, 0.0) and restore_lists(
            self._store, self._reader, [keys]
        ):
            self._restored[keys.tag] = time.monotonic() + _RESTORE_SECONDS
        for model in lost_keys(self._store.client, models_in(self._store.client, keys)):
            if time.monotonic() >= self._restored.get(model, 0.0):
                self._restored[model] = time.monotonic() + _RESTORE_SECONDS
                begin = self._reader.bounds(partition).begin
                self._store.cursors.read_again(keys, model, begin)

    def _extent(self, keys: PartitionKeys, partition: Partition) -> tuple[PartitionCursors, int]:
        """Return the cursors at which a fold begins, and the offset at which it ends."""
        return self._cursors(keys, partition), self._reader.ends([partition])[partition]

    def _cursors(self, keys: PartitionKeys, partition: Partition) -> PartitionCursors:
        """Return the cursors of a partition; create them if there are none.

        A store without cursors is new, or was emptied: published versions name the former models.
        """
        cursors = self._store.cursors.read(keys)
        if cursors.topic_id == "":
            models = [name for name in self._published() if commit_partition(name) == keys.index]
            begin = self._reader.bounds(partition).begin
            self._store.cursors.begin(keys, partition.topic_id, begin, models)
            return self._store.cursors.read(keys)
        if cursors.topic_id != partition.topic_id:
            raise LogReset(
                f"{partition.topic} was made again: the store holds commits of an earlier topic "
                "of that name. Restore the log, or run `lethe recover` for each model"
            )
        return cursors

    def _published(self) -> frozenset[str]:
        """Return the models that have published versions: those of a store that was emptied."""
        if self._versioned is None:
            self._versioned = versioned_models(self._reader)
        return self._versioned
