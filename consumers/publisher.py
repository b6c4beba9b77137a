"""Step 7: publish what is committed, stage by stage, and trim what is acknowledged.

Parameters, receipts, version: each acknowledged before the next. A crash in between repeats
messages byte for byte, which subscribers drop.
"""

from __future__ import annotations

from collections.abc import Iterable

from consumers.log.base import Message, Producer
from engine.store.keys import ModelKeys
from engine.store.outbox import BATCH, Entry, Outbox, Stage


class Publisher:
    """Drains outboxes into a log; one thread uses it."""

    def __init__(self, outbox: Outbox, producer: Producer) -> None:
        self._outbox = outbox
        self._producer = producer

    def publish(self, models: Iterable[ModelKeys]) -> int:
        """Publish everything that waits for these models; return how many messages.

        Raises
        ------
        LogUnavailable, StoreUnavailable
            Some messages may be in the log; call again later, nothing is lost.
        """
        published = 0
        remaining = list(models)
        while remaining:
            waiting = {keys: self._outbox.read(keys) for keys in remaining}
            waiting = {keys: entries for keys, entries in waiting.items() if entries}
            for stage in Stage:
                self._producer.publish(
                    message(entry)
                    for entries in waiting.values()
                    for _, entry in entries
                    if entry.stage is stage
                )
            for keys, entries in waiting.items():
                self._outbox.trim(keys, [entry_id for entry_id, _ in entries])
                published += len(entries)
            # What was read in full is drained: a commit after that read publishes for itself.
            remaining = [keys for keys, entries in waiting.items() if len(entries) >= BATCH]
        return published


def message(entry: Entry) -> Message:
    """Return an entry as a message of the log."""
    return Message(entry.topic, entry.key, entry.value, entry.headers)
