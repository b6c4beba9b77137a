"""Steps 8 and 9: sending what was committed, and noting that it is out, one poll behind.

What one poll commits is sent without waiting. It is acknowledged while the next poll goes through
its steps 1 to 6; then the published cursors and the watermarks move, in the same round trip that
applies the next commits. There is never more than one flush under way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lethe.consumers.commits.commit import Sealed
from lethe.consumers.commits.publish import messages_of, newest_parameters
from lethe.consumers.log.base import Flush, Message, Producer
from lethe.consumers.service.steps import AtStep, Step
from lethe.engine.store.cursors import Cursors
from lethe.engine.store.keys import PartitionKeys
from lethe.engine.store.partition import commit_partition
from lethe.engine.store.store import ModelStore

_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Notes:
    """What may be noted once a flush is acknowledged.

    Attributes
    ----------
    ranges
        Commits partition, and from where to where all of it is published by then.
    watermarks
        By partition of ``lethe.deletions``: below which offset every record is answered for good.
    then
        Called when it is noted.
    """

    ranges: Sequence[tuple[int, int, int]]
    watermarks: Mapping[str, int]
    then: Callable[[], None]

    def queue(self, pipeline: Any) -> None:
        """Add what is to be noted to a pipeline."""
        for index, low, high in self.ranges:
            Cursors.queue_published(pipeline, PartitionKeys(index), low, high)
        Cursors.queue_watermarks(pipeline, self.watermarks)


class Publisher:
    """Publishes commits for a worker; one thread uses it."""

    def __init__(self, producer: Producer, store: ModelStore, at_step: AtStep) -> None:
        self._producer = producer
        self._store = store
        self._at_step = at_step
        self._sent: tuple[Flush, Notes] | None = None
        self._open: list[tuple[int, int, int]] = []

    @property
    def outstanding(self) -> bool:
        """Whether something was sent and not noted yet."""
        return self._sent is not None

    def forget(self) -> None:
        """Forget what was sent: a fold sends it again. `see_to_late` sees whether it came late."""
        self._sent = None

    def begin(
        self,
        sealed: Sequence[Sealed],
        others: Sequence[Message],
        watermarks: Mapping[str, int],
        then: Callable[[], None],
    ) -> None:
        """Publish (step 8) commits, and messages that are no commits, in one flush."""
        self.advance()
        messages = [*messages_of([one.commit for one in sealed]), *others]
        if messages:
            self._at_step(Step.PUBLISH)
        ranges = _ranges(sealed)
        self._open += ranges
        flush = self._producer.begin(messages)
        self._sent = flush, Notes(ranges, watermarks, then)

    def acknowledged(self) -> Notes | None:
        """Wait for what was sent, and return what is to be noted; None: nothing was.

        Raises
        ------
        LogUnavailable
            It was not acknowledged: fold.
        """
        sent, self._sent = self._sent, None
        if sent is None:
            return None
        flush, notes = sent
        flush.wait(_SECONDS)
        self._at_step(Step.ADVANCE)
        return notes

    def advance(self) -> None:
        """Advance (step 9) cursors and watermarks past what was sent, in one round trip."""
        notes = self.acknowledged()
        if notes is None:
            return
        _, answers = self._store.apply((), notes.queue)
        self.noted(notes, answers)

    def noted(self, notes: Notes, answers: Sequence[Any]) -> None:
        """See to what follows from what was noted.

        Who was overtaken sends the newest parameters once more: compaction may have kept the older
        ones that it sent.
        """
        self.send_again(
            [
                index
                for (index, _, high), answer in zip(notes.ranges, answers, strict=False)
                if Cursors.noted(answer).published > high
            ]
        )
        self._open = []
        notes.then()

    def see_to_late(self) -> None:
        """See whether somebody else had published more than what was sent and never noted.

        So it is where the partition was lost meanwhile, or nobody knows whether the log has it.
        """
        if self._sent is not None or not self._open:
            return
        stored = self._store.cursors.read_all([PartitionKeys(index) for index, _, _ in self._open])
        self.send_again(
            sorted(
                {
                    index
                    for (index, _, high), found in zip(self._open, stored, strict=True)
                    if found.cursors.published > high
                }
            )
        )
        self._open = []

    def send_again(self, indexes: Sequence[int]) -> None:
        """Send the newest parameters of the models of these partitions once more."""
        for index in indexes:
            models = self._store.models_in(PartitionKeys(index))
            again = newest_parameters(self._store, models)
            if again:
                self._producer.publish(again)


def _ranges(sealed: Sequence[Sealed]) -> list[tuple[int, int, int]]:
    """Return, for each commits partition, from where to where all of it is published by these."""
    found: dict[int, tuple[int, int]] = {}
    for one in sealed:
        index, place = commit_partition(one.commit.model_id), one.place
        low, high = found.get(index, (place.low, 0))
        found[index] = min(low, place.low), max(high, place.offset + 1)
    return [(index, low, high) for index, (low, high) in found.items()]
