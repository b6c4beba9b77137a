"""Sending the newest parameters again, where older ones may have landed after them.

``lethe.models`` is compacted: of each model, the record that was written last stays. A worker
writes a model's parameters in the order of its commits. Only another one can write older parameters
last: one that died with messages on their way, was stalled, was overtaken, or does not know what
became of its messages. Whatever it sent has landed `LATE_SECONDS` later, or never will. So after a
fold, and after it sent something of that kind itself, a worker waits that long and sends the newest
parameters of the partition's models once more.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import NamedTuple

from lethe.consumers.commits.journal import commit_partitions
from lethe.consumers.commits.publish import newest_parameters
from lethe.consumers.log.base import Producer, Reader
from lethe.engine.store.layout.keys import PartitionKeys
from lethe.engine.store.membership import models_in
from lethe.engine.store.store import ModelStore

LATE_SECONDS = 45.0
"""After this, nothing more arrives of what was sent: brokers and clients give up after 30 s."""


class _Due(NamedTuple):
    """When to send again, unless the log of commits still ends at ``end`` then."""

    at: float
    end: int


class NewestParameters:
    """Knows when to send parameters again; one thread uses it."""

    def __init__(self, producer: Producer, store: ModelStore, reader: Reader) -> None:
        self._producer = producer
        self._store = store
        self._reader = reader
        self._due: dict[int, _Due] = {}

    def after_fold(self, index: int) -> None:
        """Note that a partition was folded: what others sent before may still be on its way."""
        self._note(index, -1)

    def note_doubtful(self, ranges: Iterable[tuple[int, int, int]]) -> None:
        """Note what this worker sent late, or without learning what became of it.

        It matters if somebody else has committed since. ``ranges`` are those of `publisher.Notes`.
        """
        for index, _, end in ranges:
            self._note(index, end)

    def acknowledged(self, ranges: Iterable[tuple[int, int, int]], since: float) -> None:
        """Note messages that were acknowledged later than `LATE_SECONDS` after ``since``.

        Another worker that folded these commits may have sent the newest parameters before these
        messages landed.
        """
        if time.monotonic() - since > LATE_SECONDS:
            self.note_doubtful(ranges)

    def _note(self, index: int, end: int) -> None:
        known = self._due.get(index)
        self._due[index] = _Due(
            time.monotonic() + LATE_SECONDS, end if known is None else min(end, known.end)
        )

    def send_due(self, now: float | None = None) -> None:
        """Send the newest parameters of the partitions whose time has come.

        If somebody commits meanwhile, these may land after what that commit publishes: the
        partition has its turn again, `LATE_SECONDS` later.
        """
        now = time.monotonic() if now is None else now
        due = {index: each.end for index, each in self._due.items() if each.at <= now}
        if not due:
            return
        ends = self._ends(due)
        for index, end in due.items():
            if ends[index] == end or self._send(index):
                del self._due[index]
            else:
                self._note(index, -1)

    def _send(self, index: int) -> bool:
        """Send the newest parameters that are stored; return whether there are none newer yet."""
        keys = PartitionKeys(index)
        applied = self._store.cursors.read(keys).pair.apply
        messages = newest_parameters(self._store, models_in(self._store.client, keys))
        if messages:
            self._producer.publish(messages)
        return self._ends([index])[index] <= applied

    def _ends(self, indexes: Iterable[int]) -> dict[int, int]:
        """Return where these partitions of ``lethe.commits`` end now."""
        partitions = commit_partitions(self._reader)
        wanted = {index: partitions[index] for index in indexes}
        ends = self._reader.ends(wanted.values())
        return {index: ends[partition] for index, partition in wanted.items()}
