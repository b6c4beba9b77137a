"""How registration and recovery commit: append, apply and publish, each waited for."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from lethe.consumers.commits.apply import change_of
from lethe.consumers.commits.commit import CommitKind, LoggedCommit
from lethe.consumers.commits.journal import Journal, read_opening
from lethe.consumers.commits.publish import messages_of, newest_parameters
from lethe.consumers.commits.recovery.fold import Fold
from lethe.consumers.commits.recovery.partition_fold import Folded
from lethe.consumers.commits.shred import shred
from lethe.consumers.contract.sealing import SealKeys
from lethe.consumers.contract.signatures import Signer, TrustedKeys
from lethe.consumers.log.base import Producer, Reader
from lethe.consumers.service.telemetry.progress import Progress, no_progress
from lethe.consumers.service.telemetry.steps import AtStep, no_hook
from lethe.consumers.versions.draft import Transition, opening_transition
from lethe.engine.errors import StoreUnavailable
from lethe.engine.store.layout.keys import ModelKeys, PartitionKeys, commit_partition
from lethe.engine.store.layout.state import ModelState
from lethe.engine.store.membership import models_in
from lethe.engine.store.store import ModelStore

_TRIES = 5


class Committer:
    """Commits for one model at a time; one thread uses it.

    Parameters
    ----------
    store, producer, reader
        Where models live, and the log.
    seals, signer, trusted
        What commits are sealed and signed with, and whose signatures are accepted on commits that
        are read.
    progress
        Called as the work proceeds.
    at_step
        Called with the name of each step as it is reached.
    """

    def __init__(
        self,
        store: ModelStore,
        producer: Producer,
        reader: Reader,
        seals: SealKeys,
        *,
        signer: Callable[[], Signer | None] = lambda: None,
        trusted: TrustedKeys | None = None,
        progress: Progress = no_progress,
        at_step: AtStep = no_hook,
    ) -> None:
        self._store = store
        self._producer = producer
        self._reader = reader
        self._seals = seals
        self._trusted = trusted
        self._progress = progress
        self._at_step = at_step
        self._journal = Journal(producer, seals, signer)
        self._fold = Fold(
            store, reader, producer, seals, trusted=trusted, progress=progress, at_step=at_step
        )

    def fold(self, model_id: str) -> Folded:
        """Fold the model's commits partition to its present end.

        What it publishes may land after what a worker has committed and published meanwhile, and
        compaction keeps what lands last: then the newest parameters are sent again.
        """
        index = commit_partition(model_id)
        folded = self._follow(index)
        if folded.published and self._others_committed(index):
            return self._send_newest(index)
        return folded

    def _follow(self, index: int) -> Folded:
        folded = self._fold.run(index)
        self._journal.follow(index, folded.followed)
        return folded

    def append(self, transition: Transition) -> LoggedCommit | None:
        """Append a commit; None: somebody else has written, and everything is to be read again."""
        won = self._journal.append([transition.commit])
        return won[0] if won else None

    def apply(
        self, logged: LoggedCommit, before: ModelState | None, transition: Transition
    ) -> None:
        """Apply a commit that won; if the store is not what it continues, a fold applies it."""
        gone = logged.commit.kind is CommitKind.UNREGISTRATION
        change = change_of(
            logged, before, arrays=transition.arrays, live=transition.live, drops_arrays=gone
        )
        former = "" if before is None else before.rows_generation
        if logged.commit.leaves_no_row:
            shred(self._store, logged.commit, former, change.live.name, self._at_step)
        [answer], _ = self._store.apply([change])
        if not answer.done:
            folded = self.fold(logged.commit.model_id)
            if logged.commit.model_id in folded.halted:
                raise folded.halted[logged.commit.model_id]
        elif not logged.commit.leaves_no_row:
            shred(self._store, logged.commit, former, change.live.name, self._at_step)

    def open(self, model_id: str) -> list[LoggedCommit]:
        """Commit the opening, which says where the model's requests begin, unless a worker has."""
        state = self._store.load_model(model_id)
        if state.opening is not None:
            return []
        transition = opening_transition(state, read_opening(self._reader))
        logged = self.append(transition)
        if logged is None:
            self.fold(model_id)
            return []
        self.apply(logged, state, transition)
        return [logged]

    def publish(self, logged: Sequence[LoggedCommit]) -> None:
        """Publish what was committed for a model; the published cursor moves past it, no further.

        If others have committed since, the newest parameters are sent again, as by `fold`.
        """
        self._producer.publish(messages_of([each.commit for each in logged]))
        overtaken = False
        for each in logged:
            partition = ModelKeys(each.commit.model_id).partition
            low, end = each.place.previous_end, each.place.offset + 1
            try:
                before = self._store.cursors.move_published(partition, low, end)
            except StoreUnavailable:  # once more, for only the answer says who was overtaken
                before = self._store.cursors.move_published(partition, low, end)
            overtaken |= before.published > end
        for index in {commit_partition(each.commit.model_id) for each in logged}:
            if overtaken or self._others_committed(index):
                self._send_newest(index)

    def _send_newest(self, index: int) -> Folded:
        """Send the newest parameters of a partition until nobody commits meanwhile.

        It gives up where others never stop: whatever they commit next is published later.
        """
        keys = PartitionKeys(index)
        for tries in itertools.count(1):
            folded = self._follow(index)  # the newest may not be in the store yet
            models = models_in(self._store.client, keys)
            self._producer.publish(newest_parameters(self._store, models))
            if tries == _TRIES or not self._others_committed(index):
                break
        return folded

    def _others_committed(self, index: int) -> bool:
        """Return whether a partition goes on beyond what is known of it here."""
        followed = self._journal.followed(index)
        if followed is None:
            return True
        partition = followed.tail.partition
        return self._reader.ends([partition])[partition] > followed.tail.offset
