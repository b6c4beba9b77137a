"""Keeps a view in the store up to date with its topic, which has one partition."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lethe.consumers.log.base import Bounds, Partition, Reader, Record, missing_topic
from lethe.consumers.log.kept import Kept, check_kept, digest_of
from lethe.engine.errors import CommitConflict, LogReset
from lethe.engine.store.log_view import Added, LogView, Reached

_READ_SECONDS = 5.0
_READ_RECORDS = 1_000
_TRIES = 1_000
"""Reads of one catch-up: each adds records, or somebody else has added them."""

_ADVICE = "Restore it; docs/erasures.md says what to do if it is lost"

Read = Callable[[Sequence[Record]], Added]


class TopicView:
    """A view and what it is a view of; one thread uses it.

    Parameters
    ----------
    view, reader
        The hash in the store, and the log.
    topic
        Returns the topic's name, which tests change.
    added
        Returns what records add to the view.
    expires
        Whether the topic removes its oldest records after a time: a view that was behind goes on
        without them. Else it has lost them.
    """

    def __init__(
        self,
        view: LogView,
        reader: Reader,
        topic: Callable[[], str],
        added: Read,
        *,
        expires: bool = False,
    ) -> None:
        self._view = view
        self._reader = reader
        self._topic = topic
        self._added = added
        self._expires = expires
        self._partition: Partition | None = None
        self._checked = False

    def partition(self) -> Partition:
        """Return the topic's partition.

        Raises
        ------
        LogUnavailable
            The topic does not exist.
        """
        if self._partition is None:
            partitions = self._reader.partitions(self._topic())
            if not partitions:
                raise missing_topic(self._topic(), self._reader.place)
            self._partition = partitions[0]
        return self._partition

    def catch_up(self) -> None:
        """Read to the present end of the topic. Cost: two round trips if there is nothing new.

        Raises
        ------
        LogReset
            The topic has lost records, or was recreated.
        """
        partition = self.partition()
        bounds = self._reader.bounds(partition)
        self._check_kept(partition, bounds)
        for _ in range(_TRIES):
            reached = self._view.reached()
            if reached.offset > bounds.end:  # or others have read what was added since
                bounds = self._reader.bounds(partition)
            end = bounds.end
            if reached.topic_id not in ("", partition.topic_id) or reached.offset > end:
                raise LogReset(
                    f"{partition.topic} ends at offset {end} (topic id {partition.topic_id}), but "
                    f"the store has read up to {reached.offset} of topic id "
                    f"{reached.topic_id or 'none'}: the topic was recreated or has lost records. "
                    f"{_ADVICE}"
                )
            if reached.lost:
                self._view.restart(keep=True)
                continue
            if reached.offset >= end:
                return
            records, high = self._read(partition, reached.offset, bounds)
            newest = records[-1] if records and records[-1].offset == high - 1 else None
            digest = "" if newest is None else digest_of(newest)
            read = Reached(partition.topic_id, high, digest)
            self._view.advance(reached.offset, read, self._added(records), begin=bounds.begin)
        raise CommitConflict(f"{partition.topic}: it grows faster than it can be read")

    def _check_kept(self, partition: Partition, bounds: Bounds) -> None:
        """Check, once, that the topic still has the record up to which the view has read it."""
        reached = self._view.reached()
        if self._checked or reached.topic_id != partition.topic_id or reached.offset > bounds.end:
            return
        kept = Kept(partition, reached.offset, reached.digest, compacted=not self._expires)
        check_kept(self._reader, kept, bounds.end, f"it has lost its end. {_ADVICE}")
        self._checked = True

    def _read(
        self, partition: Partition, reached: int, bounds: Bounds
    ) -> tuple[Sequence[Record], int]:
        """Return records from an offset on, and up to where the view has then read the topic."""
        begin = max(reached, bounds.begin) if self._expires else reached
        if begin >= bounds.end:
            return (), bounds.end
        records, after = self._reader.read(partition, begin, _READ_SECONDS, _READ_RECORDS)
        return records, after if records else min(after, bounds.end)
