"""The loop of every worker: the partitions that it reads, how far it has come, and its end.

A turn: forget the partitions that others have by now, resume new ones at their watermarks, poll,
leave out what was lost meanwhile, process the rest. After an error that passes, the next turn goes
back to the watermarks. A worker's own module says only what is done with the records.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import ClassVar, TypedDict

from lethe.consumers.log.base import Log, Partition, Record
from lethe.consumers.service.keepalive import Keepalive
from lethe.consumers.service.loop import keep_turning
from lethe.consumers.service.telemetry.health import Health
from lethe.consumers.service.telemetry.logs import logger
from lethe.consumers.service.telemetry.metrics import Metrics
from lethe.consumers.service.telemetry.steps import AtStep, no_hook
from lethe.consumers.service.topic_watch import TopicWatch
from lethe.consumers.workers.assignment import Assignment
from lethe.consumers.workers.leases import Announcement
from lethe.engine.store.store import ModelStore

POLL_SECONDS = 0.5


class Reporting(TypedDict, total=False):
    """Where a worker reports: measurements, liveness, and the name of each step as it is reached.

    Crash tests kill it in ``at_step`` (`service.telemetry.steps`). With a ``role``, it says in the
    store that it lives, and what it reads.
    """

    metrics: Metrics
    health: Health
    at_step: AtStep
    role: str


class PartitionWorker(ABC):
    """Reads topics as a member of a group, and moves its partitions' watermarks; in one thread.

    Parameters
    ----------
    log, store
        Where records are, and where the watermarks are kept.
    name, group, reads
        What it is called in log lines, its consumer group, and the topics of the group.
    reporting
        Where it reports.
    watches
        The topics that must stay those that the store knows; None: those that are read.
    known_as, goes_on, name_of
        As `TopicWatch` and `Assignment` have them.
    """

    poll_seconds = POLL_SECONDS
    releases: ClassVar[bool] = False  # whether the log may remove what is processed

    def __init__(
        self,
        log: Log,
        store: ModelStore,
        name: str,
        group: str,
        reads: Sequence[str],
        reporting: Reporting,
        *,
        watches: Sequence[str] | None = None,
        known_as: Callable[[str], str] = str,
        goes_on: Callable[[str, str], bool] | None = None,
        name_of: Callable[[Partition], str] = str,
    ) -> None:
        self._store = store
        self._metrics = reporting.get("metrics") or Metrics()
        self._health = reporting.get("health") or Health()
        self._at_step = reporting.get("at_step", no_hook)
        self._logger = logger(name)
        self._consumer = log.consumer(group, reads)
        self._producer = log.producer()
        self._reader = log.reader()
        role = reporting.get("role")
        self._lease = None if role is None else Announcement(self._consumer, store, role)
        announce = self._lease or (lambda: None)
        self._keepalive = Keepalive(self._consumer, self._health, announce)
        names = watches or reads
        self._watch = TopicWatch(
            store.topics, self._reader, names, known_as=known_as, goes_on=goes_on
        )
        self._assignment = Assignment(
            self._consumer, store, self._reader, self._logger, self._watch, name_of=name_of
        )
        self._stop = threading.Event()
        self._rewind = False

    def run(self, stop: threading.Event) -> None:
        """Work until ``stop`` is set; wait for servers that are away, without losing anything.

        Raises
        ------
        LogReset
            A topic lost records, and work cannot go on with those that are there.
        """
        self._stop = stop
        keep_turning(
            stop, self.run_once, recover=self.recover, health=self._health, logger=self._logger
        )

    def recover(self) -> None:
        """Forget what was read: the next turn goes back to the watermarks."""
        self._rewind = True

    def run_once(self, timeout: float | None = None) -> int:
        """Take one turn; return how many records it had."""
        self._drop_lost()
        fresh = self._consumer.take_assigned()
        if self._rewind or self._starts_anew(fresh):
            fresh |= self._consumer.assignment()
        if fresh:
            self._forget(fresh)
            self._resume()
            self._assignment.take_over(fresh)
            self._rewind = False
        records = self._poll(self.poll_seconds if timeout is None else timeout)
        if lost := self._drop_lost():  # those of them that are assigned again are read again, too
            records = [record for record in records if record.partition not in lost]
        self._assignment.move(records)
        done = self._process(records)
        self._watch.check_if_due()
        return done

    def idle(self) -> bool:
        """Return whether every record of the assigned partitions is processed."""
        assigned, positions = self._consumer.assignment(), self._assignment.positions
        return (
            bool(assigned)
            and not self._rewind
            and not self._is_busy()
            and all(self._consumer.bounds(p).end <= positions.get(p, 0) for p in assigned)
        )

    def close(self) -> None:
        """Leave the group and release connections; the next worker takes what is unfinished."""
        self._consumer.close()
        if self._lease is not None:
            self._lease.end()
        self._producer.close()
        self._reader.close()

    # -- what a worker says -------------------------------------------------------------------

    @abstractmethod
    def _room(self) -> int:
        """Return how many records a poll may return."""

    @abstractmethod
    def _process(self, records: Sequence[Record]) -> int:
        """Process records; return how many count as done."""

    def _first_unfinished(self, partition: Partition) -> int | None:
        """Return the offset of the first record that was read and is not processed for good."""
        del partition
        return None

    def _is_busy(self) -> bool:
        """Return whether something that was read is unfinished."""
        return False

    def _starts_anew(self, fresh: frozenset[Partition]) -> bool:
        """Return whether all partitions are resumed, and not only those that are new."""
        del fresh
        return False

    def _forget(self, partitions: frozenset[Partition]) -> None:  # noqa: B027 - may be nothing
        """Forget what was read of partitions that were lost, or that are read again."""

    def _lose(self, partitions: frozenset[Partition]) -> None:
        """Forget what was read of partitions that others have by now."""
        self._forget(partitions)

    def _resume(self) -> None:  # noqa: B027 - may be nothing
        """Do what is needed before partitions are resumed at their watermarks."""

    # -- the loop -----------------------------------------------------------------------------

    def _drop_lost(self) -> frozenset[Partition]:
        """Forget the partitions that other workers have by now; return them."""
        lost = self._assignment.drop_lost()
        if lost:
            self._lose(lost)
        return lost

    def _poll(self, timeout: float) -> Sequence[Record]:
        self._keepalive.check()
        return self._consumer.poll(timeout, self._room())

    def _watermarks(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """Return the offsets below which every record is processed for good."""
        waiting = {partition: self._first_unfinished(partition) for partition in partitions}
        positions = self._assignment.positions
        return {p: positions[p] if first is None else first for p, first in waiting.items()}

    def _advance(self, partitions: Iterable[Partition]) -> None:
        """Move watermarks up to the first record that is not processed for good."""
        offsets = self._watermarks(partitions)
        self._store.cursors.set_watermarks(self._assignment.watermarks(offsets))
        self._acknowledge(offsets)

    def _acknowledge(self, offsets: Mapping[Partition, int]) -> None:
        """Tell the log of watermarks that are stored: a hint for people and tools."""
        self._consumer.commit_hint(self._assignment.hints(offsets))
        if self.releases:
            for partition, offset in offsets.items():
                self._consumer.release(partition, offset)
