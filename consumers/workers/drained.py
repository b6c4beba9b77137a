"""Whether anything is left to do: watermarks against the ends of partitions.

It is judged from outside the workers, so that it counts what any process has done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from lethe.consumers.cdc.mapping import Mapping, intake_watermark
from lethe.consumers.commits.journal import commit_partitions
from lethe.consumers.contract import topics
from lethe.consumers.erasures.models import read_models
from lethe.consumers.erasures.sweep import unchecked
from lethe.consumers.log.base import Partition, Reader
from lethe.consumers.versions.refresh_schedule import is_stuck
from lethe.engine.store.layout.keys import PartitionKeys
from lethe.engine.store.layout.state import ModelState
from lethe.engine.store.membership import models_in, registered_models
from lethe.engine.store.store import ModelStore


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """How many records of a partition are not processed yet."""

    partition: Partition
    next_offset: int
    waiting: int


def lags(
    reader: Reader, store: ModelStore, topic: str, position: Callable[[Partition], str] = str
) -> Iterator[PartitionLag]:
    """Yield each partition's lag; without a watermark, all of its records wait.

    ``position`` gives the name of a partition's watermark.
    """
    for partition in reader.partitions(topic):
        bounds = reader.bounds(partition)
        stored = store.cursors.watermark(position(partition))
        next_offset = bounds.begin if stored is None else stored
        if topic == topics.ROW_CHANGES:  # what expired before it was read waits no longer
            next_offset = max(next_offset, bounds.begin)
        yield PartitionLag(partition, next_offset, max(0, bounds.end - next_offset))


def stuck(state: ModelState) -> str:
    """Return the message about deferred requests for which no rebuild is pending."""
    return (
        f"model {state.model_id!r}: {len(state.deferred)} requests are deferred and no rebuild is "
        "pending, because the last one failed (the log line with action=refresh_failed says why); "
        "`lethe refresh --due` schedules another. If it fails again, register the model with "
        "--replace and a larger --ridge, or scaled features"
    )


class Drained:
    """Checks whether topics are drained; one thread uses it.

    ``mapping``: of change data capture, if an intake worker runs.
    """

    def __init__(self, reader: Reader, store: ModelStore, mapping: Mapping | None = None) -> None:
        self._reader = reader
        self._store = store
        self._mapping = mapping

    def topics(self, names: Iterable[str]) -> bool:
        """Return whether every record of these topics is processed; checks them in this order."""
        return all(
            lag.waiting == 0 for name in names for lag in lags(self._reader, self._store, name)
        )

    def commits(self) -> bool:
        """Return whether every commit is applied and published, those of halted models, too."""
        partitions = commit_partitions(self._reader)
        ends = self._reader.ends(partitions)
        keys = [PartitionKeys(partition.index) for partition in partitions]
        return all(
            not cursors.behind
            and cursors.pair.lower >= ends[partition]
            and (cursors.pair.apply == ends[partition] or not models_in(self._store.client, key))
            for partition, key, cursors in zip(
                partitions, keys, self._store.cursors.read_all(keys), strict=True
            )
        )

    def changes(self) -> bool:
        """Return whether every change of a table is read, and its requests are in the log."""
        if self._mapping is None:
            return True
        position = partial(intake_watermark, self._mapping)
        return all(
            lag.waiting == 0
            for name in self._mapping.topics
            for lag in lags(self._reader, self._store, name, position)
        )

    def registrations(self) -> bool:
        """Return whether every registration was searched for subjects that are erased."""
        return not unchecked(self._store, read_models(self._store))

    def refreshes(self) -> str:
        """Return which refresh is still needed, as a line for a person; empty if none is.

        If topics are drained and this names a refresh again and again, nobody is going to do it:
        its rebuild has failed, or its job was lost.
        """
        for model in registered_models(self._store.client):
            state = self._store.load_model(model)
            if is_stuck(state):
                return stuck(state)
            if state.meta.pending_job is not None:
                return (
                    f"model {model!r} waits for refresh {state.meta.pending_job.job_id}, and no "
                    f"record of {topics.REFRESH_JOBS} is left; `lethe refresh --due` sends it "
                    "again when it is an hour old"
                )
        return ""

    def close(self) -> None:
        """Release the reader."""
        self._reader.close()
