"""Going on after a topic was lost, made again, or has lost its end: a person's decision.

`lethe recover --topic` says what is known of the loss. The topic's new id is then the one that the
store knows, and workers read it from its beginning. A topic that has lost its end is made again
here, because under its old id the store and all commits know by offset what was decided, and other
records may lie at those offsets by now. Records that it still has and that may not have been
processed are sent again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from lethe.consumers.commits.publish import job_message
from lethe.consumers.contract import topics
from lethe.consumers.contract.events import RefreshRequested
from lethe.consumers.log.base import Log, Message, Partition, Producer, Reader, Record
from lethe.consumers.log.kept import Kept, check_kept
from lethe.consumers.log.scan import scan
from lethe.consumers.service.topic_watch import (
    RecordsExpired,
    fault_of,
    look_up,
    loss_of,
    start_offset,
)
from lethe.consumers.suppression.suppressions import restart_list
from lethe.engine.errors import InvalidData, LogReset, LogUnavailable
from lethe.engine.store.cursors import Watermark
from lethe.engine.store.layout.keys import (
    ERASED,
    ERASURE_RECEIPTS,
    SIGNED_ERASURE_RECEIPTS,
)
from lethe.engine.store.log_view import LogView
from lethe.engine.store.lookup import read_summaries
from lethe.engine.store.membership import registered_models
from lethe.engine.store.store import ModelStore
from lethe.engine.store.topics import KnownTopic, Loss

REQUESTS = ("DELETIONS", "ROW_CHANGES", "ERASURES", "REFRESH_JOBS")
"""The topics whose records workers process, by their names in `consumers.contract.topics`."""

MARGIN_MS = 3_600_000
"""Records that the log took up to an hour before the newest answered one are sent again, too: what
was done is not done twice, and brokers' clocks differ."""


_LOOKS, _PAUSE_SECONDS = 20, 0.5
"""How often it is looked whether a topic is deleted."""


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """What a recovery of a topic would do, for a person to approve.

    Attributes
    ----------
    topic, faults
        The topic, and what is wrong with it and with its partitions.
    known, present
        The topic as the store knows it, and the partitions that the log has.
    since_ms
        When the log took the newest record up to which every record had its answer; 0 if unknown.
    unread
        Partitions of the known topic of which nothing was ever processed.
    expired
        Partitions that begin after their watermarks: work goes on at these offsets.
    remake
        Whether the topic is deleted and created again.
    """

    topic: str
    faults: Sequence[str]
    known: KnownTopic
    present: Sequence[Partition]
    since_ms: int = 0
    unread: Sequence[int] = ()
    expired: Sequence[tuple[Partition, int]] = ()
    remake: bool = False

    @property
    def loss(self) -> Loss:
        """What is kept of the loss."""
        return loss_of(self.topic, "; ".join(self.faults), self.since_ms)


class TopicRecovery:
    """Finds out what topics have lost, and goes on without it; one thread uses it.

    Parameters
    ----------
    store, reader
        What knows the topics, and how far they were processed; and the log.
    """

    def __init__(self, store: ModelStore, reader: Reader) -> None:
        self._store = store
        self._reader = reader

    def plan(self, topic: str) -> TopicPlan:
        """Find out what was lost; changes nothing.

        Raises
        ------
        InvalidData
            The topic is none of Lethe's, or has lost nothing that the store knew; or it is
            ``lethe.commits``.
        """
        names = sorted(spec.name for spec in topics.specs() if spec.name != topics.COMMITS)
        if topic not in names:
            raise InvalidData(
                f"{topic} is not a topic that this recovers: {', '.join(names)}. For "
                f"{topics.COMMITS}, recover its models: `lethe recover MODEL`"
            )
        plan = self.find(topic)
        if plan is None:
            raise InvalidData(f"{topic} has all that the store knows of it: nothing is lost")
        return plan

    def find(self, topic: str) -> TopicPlan | None:
        """Return what a topic has lost of what the store knows of it, None if nothing."""
        known = self._store.topics.read().get(topic)
        if known is None:
            return None
        present = look_up(self._reader, topic, known)
        former = [Partition(topic, known.topic_id, index) for index in range(known.partitions)]
        plan = TopicPlan(topic, [], known, present, *self._processed(former))
        fault = fault_of(topic, known, present)
        if fault is not None:
            same = bool(present) and present[0].topic_id == known.topic_id
            return replace(plan, faults=[fault], remake=same)
        plan = self._partitions(plan) if topic in request_topics() else self._view(plan)
        return plan if plan.faults else None

    def run(self, plan: TopicPlan, log: Log, producer: Producer) -> Loss:
        """Go on with the topic that is there, or with a new one; return what is kept of the loss.

        No worker may run meanwhile.

        Raises
        ------
        LogUnavailable
            The log cannot be reached, or refuses; run it again.
        """
        loss = plan.loss
        if plan.expired and not plan.remake:
            producer.publish(self._pending_jobs(plan.topic))
            self._store.topics.record(loss)
            self._store.cursors.set_watermarks({str(p): begin for p, begin in plan.expired})
            return loss
        rest = list(self._unprocessed(plan)) if plan.remake else []
        present = self._make_again(plan, log)
        if plan.topic == topics.SUPPRESSIONS:
            restart_list(self._store, producer)
        producer.publish([*rest, *self._pending_jobs(plan.topic)])
        if plan.topic == topics.ERASURE_RECEIPTS:
            for view in self._views(plan.topic):
                view.restart(keep=False)
        self._store.cursors.forget_watermarks(
            [f"{plan.known.topic_id}/{index}" for index in range(plan.known.partitions)]
        )
        self._store.topics.accept(KnownTopic(present[0].topic_id, len(present)), loss)
        return loss

    def _pending_jobs(self, topic: str) -> Iterator[Message]:
        """Yield the jobs that models wait for, if the topic may have lost them or their results.

        A job that is done twice changes nothing.
        """
        if topic not in (topics.DELETIONS, topics.REFRESH_JOBS):
            return
        for summary in read_summaries(self._store.client, registered_models(self._store.client)):
            meta, pending = summary.meta, summary.meta.pending_job
            if pending is not None:
                job = RefreshRequested(
                    job_id=pending.job_id,
                    model_id=summary.model_id,
                    generation=meta.generation,
                    version=summary.version,
                    reason=pending.reason,
                )
                yield job_message(job, datetime.now(UTC))

    def _make_again(self, plan: TopicPlan, log: Log) -> Sequence[Partition]:
        """Return the partitions of the topic to go on with, which is created where there is none.

        Raises
        ------
        LogUnavailable
            The log still has the topic that was deleted.
        """
        if plan.remake:
            log.delete_topic(plan.topic)
            for _ in range(_LOOKS):  # not every broker may know it at once
                if not self._reader.partitions(plan.topic):
                    break
                time.sleep(_PAUSE_SECONDS)
        [spec] = [spec for spec in topics.specs() if spec.name == plan.topic]
        log.ensure_topics([replace(spec, partitions=plan.known.partitions)])
        present = self._reader.partitions(plan.topic)
        if not present or (plan.remake and present[0].topic_id == plan.known.topic_id):
            raise LogUnavailable(
                f"{plan.topic} has not been deleted and created again yet: run this again"
            )
        return present

    # -- what was lost --------------------------------------------------------------------------

    def _processed(self, former: Sequence[Partition]) -> tuple[int, list[int]]:
        """Return the time up to which all was answered, and the partitions never processed."""
        watermarks = {p.index: self._store.cursors.marked(str(p)) for p in former}
        marks = [one.mark for one in watermarks.values() if one is not None]
        times = [0 if mark is None else mark.answered_ms for mark in marks]
        return min(times, default=0), [i for i, one in watermarks.items() if one is None]

    def _partitions(self, plan: TopicPlan) -> TopicPlan:
        """Compare each partition with its watermark."""
        for partition in plan.present:
            watermark = self._store.cursors.marked(str(partition))
            bounds = self._reader.bounds(partition)
            try:
                start_offset(partition, watermark, bounds, self._reader)
            except RecordsExpired as error:
                expired = [*plan.expired, (partition, bounds.begin)]
                plan = replace(plan, faults=[*plan.faults, _first(error)], expired=expired)
            except LogReset as error:
                plan = replace(plan, faults=[*plan.faults, _first(error)], remake=True)
        return plan

    def _view(self, plan: TopicPlan) -> TopicPlan:
        """Compare a topic with the view that the store has of it."""
        [partition, *_] = plan.present
        for view in self._views(plan.topic):
            reached = view.reached()
            if reached.topic_id != partition.topic_id:
                continue
            compacted = plan.topic == topics.SUPPRESSIONS
            kept = Kept(partition, reached.offset, reached.digest, compacted=compacted)
            try:
                check_kept(self._reader, kept, self._reader.bounds(partition).end, "")
            except LogReset as error:
                return replace(plan, faults=[_first(error).rstrip(": ")], remake=True)
        return plan

    def _views(self, topic: str) -> list[LogView]:
        """Return the views that the store has of a topic."""
        names = {
            topics.SUPPRESSIONS: [(ERASED, "subjects")],
            topics.ERASURE_RECEIPTS: [
                (ERASURE_RECEIPTS, "receipts"),
                (SIGNED_ERASURE_RECEIPTS, "signed-receipts"),
            ],
        }
        return [LogView(self._store.client, key, name) for key, name in names.get(topic, ())]

    def _unprocessed(self, plan: TopicPlan) -> Iterator[Message]:
        """Yield the records that a topic still has and that may not be processed."""
        for partition in plan.present:
            watermark = self._store.cursors.marked(str(partition))
            bounds = self._reader.bounds(partition)
            for record in scan(self._reader, partition, bounds.begin, bounds.end):
                if _may_be_open(record, watermark):
                    yield Message(
                        plan.topic,
                        record.key or b"",
                        record.value,
                        record.headers,
                        partition=partition.index,
                    )


def request_topics() -> tuple[str, ...]:
    """Return the topics whose records workers process."""
    return tuple(getattr(topics, name) for name in REQUESTS)


def _may_be_open(record: Record, watermark: Watermark | None) -> bool:
    """Return whether a record may lack its final answer: by its offset, or by its time."""
    if watermark is None or watermark.mark is None or record.offset >= watermark.offset:
        return True
    return record.timestamp_ms >= watermark.mark.answered_ms - MARGIN_MS


def _first(error: LogReset) -> str:
    """Return what an error says happened, without its advice."""
    return str(error).partition(". ")[0]
