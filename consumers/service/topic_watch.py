"""Notices that a topic is not the one that the store knows, or has lost records of it.

The store knows the id of each topic (`engine.store.topics`) and, for each partition that a worker
reads, how far it was read and the digest of the record just below (`engine.store.cursors`).
`lethe.commits` has cursors of its own, which hold the same (`consumers.commits.recovery.fold`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import UTC, datetime

from lethe.consumers.contract import topics
from lethe.consumers.contract.events import rfc3339
from lethe.consumers.log.base import Bounds, Log, Partition, Reader, TopicSpec
from lethe.consumers.log.kept import Kept, check_kept
from lethe.consumers.service.telemetry.logs import logger
from lethe.engine.errors import LogReset, LogUnavailable
from lethe.engine.store.cursors import Watermark
from lethe.engine.store.topics import KnownTopic, KnownTopics, Loss

WATCH_SECONDS = 10.0
"""Between two looks of a worker at the ids of its topics."""

_LOOKS, _PAUSE_SECONDS = 4, 1.0
"""A topic that is missing, or short of partitions, is looked for again: a broker that has just
started may not know it yet."""


class RecordsExpired(LogReset):
    """Retention, or a person, has removed records before they were processed."""


class TopicWatch:
    """Compares topics with what the store knows of them; one thread uses it.

    Parameters
    ----------
    known, reader
        What the store knows, and the log.
    names
        The topics that are looked at.
    known_as
        Returns the name under which the store knows a topic.
    goes_on
        Called with a topic, and how it differs; returns whether work goes on with what is there.
        By default only jobs are dispensable: a lost one is ordered again.
    """

    def __init__(
        self,
        known: KnownTopics,
        reader: Reader,
        names: Iterable[str],
        *,
        known_as: Callable[[str], str] = str,
        goes_on: Callable[[str, str], bool] | None = None,
    ) -> None:
        self._known = known
        self._reader = reader
        self._names = tuple(names)
        self._known_as = known_as
        self.goes_on = goes_on or _without_jobs
        self._first: dict[str, str] = {}
        self._due = 0.0

    def check_if_due(self) -> None:
        """Check now and then; raises what `check` raises."""
        if time.monotonic() >= self._due:
            self.check()

    def check(self, partitions: Collection[Partition] = ()) -> None:
        """Check all topics, and that these partitions belong to them; note those that are new.

        Raises
        ------
        LogReset
            A topic is missing, was made again, or has fewer partitions than before.
        LogUnavailable
            A topic was made again, and a person has accepted that meanwhile: read everything
            again.
        """
        known = self._known.read()
        for topic in self._names:
            self._check(topic, known.get(self._known_as(topic)), partitions)
        self._due = time.monotonic() + WATCH_SECONDS

    def _check(
        self, topic: str, known: KnownTopic | None, partitions: Collection[Partition]
    ) -> None:
        present = look_up(self._reader, topic, known)
        fault = fault_of(topic, known, [*present, *(p for p in partitions if p.topic == topic)])
        name = self._known_as(topic)
        if fault is not None and not (present and self.goes_on(topic, fault)):
            raise LogReset(f"{fault}. {advice(topic)}")
        if fault is not None:
            known = _topic(present)
            self._known.accept(known, loss_of(name, fault))
        elif present and (known is None or known.partitions < len(present)):
            known = _topic(present)
            self._known.note(name, known)
        if known is None:
            return
        first = self._first.setdefault(topic, known.topic_id)
        if first != known.topic_id:
            self._first[topic] = known.topic_id
            raise LogUnavailable(
                f"{topic} was made again, and the loss was accepted: reading from its beginning"
            )


def _without_jobs(topic: str, reason: str) -> bool:
    if topic == topics.REFRESH_JOBS:
        logger("work").warning("jobs were lost", action="jobs_lost", reason=reason)
    return topic == topics.REFRESH_JOBS


def look_up(reader: Reader, topic: str, known: KnownTopic | None) -> Sequence[Partition]:
    """Return a topic's partitions; ask again before it counts as lost."""
    for _ in range(_LOOKS):
        present = reader.partitions(topic)
        if known is None or len(present) >= known.partitions:
            break
        if present and present[0].topic_id != known.topic_id:
            break
        time.sleep(_PAUSE_SECONDS)
    return present


def fault_of(topic: str, known: KnownTopic | None, present: Sequence[Partition]) -> str | None:
    """Return how a topic differs from the one that the store knows, None if it does not."""
    if known is None:
        return None
    if not present:
        return f"{topic} is gone: the store knows it by id {known.topic_id}"
    other = next((p.topic_id for p in present if p.topic_id != known.topic_id), None)
    if other is not None:
        return f"{topic} was made again: the store knows it by id {known.topic_id}, not {other}"
    there = len({partition.index for partition in present})
    if there < known.partitions:
        return f"{topic} has {there} partitions, but had {known.partitions}"
    return None


def _topic(present: Sequence[Partition]) -> KnownTopic:
    return KnownTopic(present[0].topic_id, len(present))


def advice(topic: str) -> str:
    """Return what to do about a topic that has lost records."""
    command = "lethe recover MODEL" if topic == topics.COMMITS else f"lethe recover --topic {topic}"
    return (
        f"Records that it had acknowledged may be lost. Restore it, or run `{command}`, which says "
        "what may be lost and goes on without it"
    )


def loss_of(topic: str, reason: str, since_ms: int | None = None) -> Loss:
    """Return a loss that is accepted now."""
    since = rfc3339(datetime.fromtimestamp(since_ms / 1000, UTC)) if since_ms else ""
    return Loss(topic, reason, rfc3339(datetime.now(UTC)), since)


def ensure_known(
    log: Log, known: KnownTopics, specs: Sequence[TopicSpec], accepting: Collection[str] = ()
) -> None:
    """Create the topics that neither the log nor the store has; never one that the store knows.

    ``accepting``: topics whose loss was accepted, or is noticed by cursors of their own.

    Raises
    ------
    LogReset
        A topic that the store knows is gone, was made again, or has fewer partitions.
    """
    reader = log.reader()
    try:
        stored = known.read()
        names = [spec.name for spec in specs if spec.name not in accepting]
        TopicWatch(known, reader, [name for name in names if name in stored]).check()
        missing = [s for s in specs if s.grows or s.name in accepting or s.name not in stored]
        log.ensure_topics(missing)
        for name in accepting:
            present = reader.partitions(name)
            fault = fault_of(name, stored.get(name), present)
            if present and fault is not None:
                known.accept(_topic(present), loss_of(name, fault))
        TopicWatch(known, reader, [spec.name for spec in specs]).check()
    finally:
        reader.close()


# -- the partitions that workers read -------------------------------------------------------------


def start_offset(
    partition: Partition, watermark: Watermark | None, bounds: Bounds, reader: Reader
) -> int:
    """Return the offset at which to resume reading a partition.

    Raises
    ------
    LogReset
        The log ends before the watermark or what was read, or has another record there; or
        (`RecordsExpired`) it begins after the watermark.
    """
    if watermark is None:
        return bounds.begin
    name, offset, mark = f"{partition.topic}/{partition.index}", watermark.offset, watermark.mark
    lost_its_end = f"it has lost its end. {advice(partition.topic)}"
    known = Kept(partition, offset)
    if mark is not None and mark.read >= offset:
        known = Kept(partition, mark.read, mark.digest)
    check_kept(reader, known, bounds.end, lost_its_end)
    if offset < bounds.begin and partition.topic != topics.ROW_CHANGES:
        raise RecordsExpired(
            f"{name} begins at offset {bounds.begin}, but {offset} is the next to process: "
            f"{bounds.begin - offset} records were removed before they were processed. "
            f"{advice(partition.topic)}"
        )
    return max(offset, bounds.begin)
