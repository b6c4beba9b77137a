"""Steps 8 and 9: publishing what was committed, and noting that one poll later.

What one poll commits is sent without waiting. It is acknowledged while the next poll goes through
its steps 1 to 6; then the published cursors and the watermarks move, in the same round trip that
applies the next commits. At most one flush is in flight: the one before is acknowledged first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lethe.consumers.commits.commit import LoggedCommit
from lethe.consumers.commits.newest import NewestParameters
from lethe.consumers.log.base import Flush, Message, Producer
from lethe.consumers.service.telemetry.steps import AtStep, Step
from lethe.engine.errors import LogUnavailable
from lethe.engine.store.apply import ApplyAnswer, StoreChange
from lethe.engine.store.cursors import Cursors, Watermark
from lethe.engine.store.layout.keys import PartitionKeys, commit_partition
from lethe.engine.store.store import ModelStore

_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Notes:
    """What to note once a flush is acknowledged.

    Attributes
    ----------
    ranges
        Commits partition, and the offsets from which and to which it is published by then.
    watermarks
        By partition of requests, the offset below which every record is answered for good.
    then
        Called once this is noted.
    since
        A time before the first of these commits was appended; on the monotonic clock.
    """

    ranges: Sequence[tuple[int, int, int]]
    watermarks: Mapping[str, Watermark]
    then: Callable[[], None]
    since: float

    def queue(self, pipeline: Any) -> None:
        """Add the writes to a pipeline."""
        for index, low, high in self.ranges:
            Cursors.queue_published(pipeline, PartitionKeys(index), low, high)
        Cursors.queue_watermarks(pipeline, self.watermarks)


class Publisher:
    """Publishes commits for a worker; one thread uses it.

    ``newest`` sends the newest parameters again where those that were sent here may be older than
    what another worker has published since. ``_to_note`` is what is acknowledged and must be noted,
    in the next round trip to the store.
    """

    def __init__(
        self, producer: Producer, store: ModelStore, newest: NewestParameters, at_step: AtStep
    ) -> None:
        self._producer = producer
        self._store = store
        self._newest = newest
        self._at_step = at_step
        self._in_flight: tuple[Flush, Notes] | None = None
        self._to_note: Notes | None = None

    @property
    def outstanding(self) -> bool:
        """Whether something was sent but is not noted yet."""
        return self._in_flight is not None or self._to_note is not None

    def forget(self) -> None:
        """Forget what was sent: a fold sends it again, and this may land later than that."""
        if self._to_note is not None:
            self._newest.note_doubtful(self._to_note.ranges)
        if self._in_flight is not None:
            self._newest.note_doubtful(self._in_flight[1].ranges)
        self._in_flight = self._to_note = None

    def begin(
        self,
        logged: Sequence[LoggedCommit],
        messages: Sequence[Message],
        watermarks: Mapping[str, Watermark],
        then: Callable[[], None],
        since: float,
    ) -> None:
        """Publish (step 8) in one flush: the messages of commits, and others that belong to none.

        What was sent before is waited for; `apply` notes it.

        Raises
        ------
        LogUnavailable
            It was not acknowledged: fold.
        """
        self._note()
        self._acknowledge()
        if messages:
            self._at_step(Step.PUBLISH)
        notes = Notes(_ranges(logged), watermarks, then, since)
        try:
            self._in_flight = self._producer.begin(messages), notes
        except LogUnavailable:
            self._newest.note_doubtful(notes.ranges)  # some may have been sent
            raise

    def advance(self) -> None:
        """Advance (step 9) cursors and watermarks past all that was sent, as soon as possible.

        Raises
        ------
        LogUnavailable
            It was not acknowledged: fold.
        """
        self._note()
        self._acknowledge()
        self._note()

    def _acknowledge(self) -> None:
        """Wait for what is in flight, if anything is."""
        if self._in_flight is None:
            return
        flush, notes = self._in_flight
        flush.wait(_SECONDS)
        self._in_flight, self._to_note = None, notes
        self._newest.acknowledged(notes.ranges, notes.since)
        self._at_step(Step.ADVANCE)

    def _note(self) -> None:
        """Note what is acknowledged, in a round trip of its own."""
        if self._to_note is not None:
            self.apply(())

    def apply(self, changes: Sequence[StoreChange]) -> list[ApplyAnswer]:
        """Apply commits (step 7); note in the same round trip what is acknowledged (step 9).

        If another worker has already published beyond a range, the parameters that were sent for it
        here may be the older ones and have landed last.
        """
        notes = self._to_note
        if notes is None:
            return self._store.apply(changes)[0]
        answers, noted = self._store.apply(changes, notes.queue)
        self._newest.note_doubtful(
            each
            for each, answer in zip(notes.ranges, noted, strict=False)
            if Cursors.noted(answer).published > each[2]
        )
        self._to_note = None
        notes.then()
        return answers


def _ranges(logged: Sequence[LoggedCommit]) -> list[tuple[int, int, int]]:
    """Return (index, low, high) for each commits partition: all of it that these publish."""
    bounds: dict[int, tuple[int, int]] = {}
    for winner in logged:
        index, place = commit_partition(winner.commit.model_id), winner.place
        low, high = bounds.get(index, (place.previous_end, 0))
        bounds[index] = min(low, place.previous_end), max(high, place.offset + 1)
    return [(index, low, high) for index, (low, high) in bounds.items()]
