"""Whether anything is left to do: watermarks against the ends of partitions.

Seen from outside the workers, so that it counts what any process decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from consumers.log.base import Partition, Reader
from engine.store.store import ModelStore


@dataclass(frozen=True, slots=True)
class Lag:
    """How many records of a partition are not decided yet."""

    partition: Partition
    next_offset: int
    waiting: int


def lags(reader: Reader, store: ModelStore, topic: str) -> Iterator[Lag]:
    """Return each partition's lag. A partition without a watermark waits from its beginning."""
    for partition in reader.partitions(topic):
        bounds = reader.bounds(partition)
        stored = store.watermark(str(partition))
        decided = bounds.begin if stored is None else stored
        yield Lag(partition, decided, max(0, bounds.end - decided))


class Drained:
    """Asks whether topics are drained; one thread uses it."""

    def __init__(self, reader: Reader, store: ModelStore) -> None:
        self._reader = reader
        self._store = store

    def topics(self, names: Iterable[str]) -> bool:
        """Return whether every record of these topics is decided, looking in this order."""
        return all(
            lag.waiting == 0 for name in names for lag in lags(self._reader, self._store, name)
        )

    def pending(self) -> bool:
        """Return whether some model waits for a refresh."""
        return any(
            self._store.load_model(model).meta.pending_job is not None
            for model in self._store.model_ids()
        )

    def close(self) -> None:
        """Release the reader."""
        self._reader.close()
