"""Which requests to models the log has already, so that a worker does not send them once more.

A worker that takes erasures over does not know what was sent for them. Models answer a repeat, but
it costs them as much as a request, and they may be far behind just then.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import NamedTuple

from lethe.consumers.contract import topics
from lethe.consumers.contract.requests import ERASURE
from lethe.consumers.log.base import Message, Partition, Reader, Record
from lethe.consumers.log.scan import extent_of, scan
from lethe.engine.store.store import ModelStore

MOST_RECORDS = 100_000
"""Undecided records in all partitions together. If there are more, nothing is looked for."""

_OFTEN = 500  # records between two calls of ``keepalive``


class Place(NamedTuple):
    """Where the log has a record."""

    partition: Partition
    offset: int


class AlreadySent:
    """The undecided requests of erasures, as they were when erasures were taken over.

    ``keepalive`` is called while they are read, so that the log does not take the worker for dead.
    One thread uses it.
    """

    def __init__(self, store: ModelStore, reader: Reader, keepalive: Callable[[], None]) -> None:
        self._store = store
        self._reader = reader
        self._keepalive = keepalive
        self._places: dict[bytes, Place] | None = None

    def forget(self) -> None:
        """Have the log read again when it is needed: erasures were taken over."""
        self._places = None

    def take(self, message: Message) -> Place | None:
        """Return where the log has a request already, with the same value and headers.

        No watermark had passed that request: whoever reads it decides it, or has decided it
        already. Once taken, it is not returned again.
        """
        if self._places is None:
            self._places = self._read()
        return self._places.pop(_digest(message), None)

    def _read(self) -> dict[bytes, Place]:
        extent = extent_of(self._reader, topics.DELETIONS)
        starts = {
            partition: max(self._store.cursors.watermark(str(partition)) or 0, bounds.begin)
            for partition, bounds in extent.items()
        }
        places: dict[bytes, Place] = {}
        if sum(extent[partition].end - starts[partition] for partition in extent) > MOST_RECORDS:
            return places
        for partition, bounds in extent.items():
            for record in scan(self._reader, partition, starts[partition], bounds.end):
                if record.offset % _OFTEN == 0:
                    self._keepalive()
                if record.value is not None and ERASURE.encode() in record.value:
                    places[_digest(record)] = Place(partition, record.offset)
        return places


def _digest(sent: Message | Record) -> bytes:
    return hashlib.sha256(repr((sent.value, sent.headers)).encode()).digest()
