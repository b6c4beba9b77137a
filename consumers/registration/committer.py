"""How registration commits: it appends, applies and publishes as a worker does."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lethe.consumers.commits.apply import change_of
from lethe.consumers.commits.commit import CommitKind, Sealed
from lethe.consumers.commits.journal import Journal, read_opening
from lethe.consumers.commits.publish import messages_of, newest_parameters
from lethe.consumers.commits.recovery.fold import Fold
from lethe.consumers.commits.recovery.partition_fold import Folded
from lethe.consumers.commits.shred import shred
from lethe.consumers.contract.sealing import SealKeys
from lethe.consumers.contract.signatures import Signer, TrustedKeys
from lethe.consumers.log.base import Producer, Reader
from lethe.consumers.service.telemetry.progress import Progress
from lethe.consumers.service.telemetry.steps import AtStep
from lethe.consumers.versions.transition import Transition, opened
from lethe.engine.errors import StoreUnavailable
from lethe.engine.store.layout.keys import ModelKeys, commit_partition
from lethe.engine.store.layout.state import ModelState
from lethe.engine.store.store import ModelStore


class Committer:
    """Commits for one model at a time; one thread uses it.

    The parameters are those of `registration.register.Registrar`.
    """

    def __init__(
        self,
        store: ModelStore,
        producer: Producer,
        reader: Reader,
        seals: SealKeys,
        *,
        signer: Callable[[], Signer | None],
        trusted: TrustedKeys | None,
        progress: Progress,
        at_step: AtStep,
    ) -> None:
        self._store = store
        self._producer = producer
        self._reader = reader
        self._at_step = at_step
        self._journal = Journal(producer, seals, signer)
        self._fold = Fold(
            store, reader, producer, seals, trusted=trusted, progress=progress, at_step=at_step
        )

    def fold(self, model_id: str) -> Folded:
        """Fold the model's commits partition to its present end."""
        index = commit_partition(model_id)
        folded = self._fold.run(index)
        self._journal.follow(index, folded.followed)
        return folded

    def append(self, transition: Transition) -> Sealed | None:
        """Append a commit; None: somebody else has written, and everything is to be read again."""
        won = self._journal.append([transition.commit])
        return won[0] if won else None

    def apply(self, sealed: Sealed, before: ModelState | None, transition: Transition) -> None:
        """Apply a commit that won; if the store is not what it continues, a fold applies it."""
        lost = sealed.commit.kind is CommitKind.UNREGISTRATION
        change = change_of(
            sealed, before, arrays=transition.arrays, live=transition.live, lost=lost
        )
        former = "" if before is None else before.rows_generation
        if sealed.commit.leaves_no_row:
            shred(self._store, sealed.commit, former, change.live.name, self._at_step)
        [answer], _ = self._store.apply([change])
        if not answer.done:
            folded = self.fold(sealed.commit.model_id)
            if sealed.commit.model_id in folded.halted:
                raise folded.halted[sealed.commit.model_id]
        elif not sealed.commit.leaves_no_row:
            shred(self._store, sealed.commit, former, change.live.name, self._at_step)

    def open(self, model_id: str) -> list[Sealed]:
        """Commit the opening, which says where the model's requests begin, unless a worker has."""
        state = self._store.load_model(model_id)
        if state.opening is not None:
            return []
        transition = opened(state, read_opening(self._reader))
        sealed = self.append(transition)
        if sealed is None:
            self.fold(model_id)
            return []
        self.apply(sealed, state, transition)
        return [sealed]

    def publish(self, sealed: Sequence[Sealed]) -> None:
        """Publish what was committed for a model; the published cursor moves past it, no further.

        If others have committed since, compaction may keep the parameters that were sent here,
        though there are newer: then the newest are sent again.
        """
        self._producer.publish(messages_of([each.commit for each in sealed]))
        overtaken = False
        for each in sealed:
            partition = ModelKeys(each.commit.model_id).partition
            low, end = each.place.previous_end, each.place.offset + 1
            try:
                before = self._store.cursors.move_published(partition, low, end)
            except StoreUnavailable:  # once more, for only the answer says who was overtaken
                before = self._store.cursors.move_published(partition, low, end)
            overtaken |= before.published > end
        for model_id in {each.commit.model_id for each in sealed}:
            if overtaken or self._others_committed(model_id):
                self.fold(model_id)
                self._producer.publish(newest_parameters(self._store, [model_id]))

    def _others_committed(self, model_id: str) -> bool:
        """Return whether the model's partition goes on beyond what is known of it here."""
        followed = self._journal.followed(commit_partition(model_id))
        if followed is None:
            return True
        partition = followed.tail.partition
        return self._reader.ends([partition])[partition] > followed.tail.offset
