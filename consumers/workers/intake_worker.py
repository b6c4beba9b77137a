"""The intake worker: reads changes of a database, and sends the requests that they ask for.

It reads the topics of a mapping (`consumers.cdc`) in a group of its own. A position moves only
once every request before it is acknowledged, so that a worker that is killed reads some changes
again. Each then makes the same requests, with the same ids, and these have no further effect.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Unpack

from lethe.consumers.cdc.mapping import Mapping as TableMapping, intake_watermark
from lethe.consumers.cdc.translate import Shape, Translated, translate
from lethe.consumers.contract.requests import request_message
from lethe.consumers.contract.signatures import Signer
from lethe.consumers.deletions.dead_letters import dead_letter
from lethe.consumers.deletions.validate import Invalid
from lethe.consumers.log.base import Log, Message, Partition, Record
from lethe.consumers.service.telemetry.steps import IntakeStep
from lethe.consumers.workers.lag import LagGauge
from lethe.consumers.workers.partition_worker import PartitionWorker, Reporting
from lethe.engine.errors import InvalidData
from lethe.engine.store.layout.keys import ModelKeys
from lethe.engine.store.layout.meta import Meta
from lethe.engine.store.lookup import read_summary
from lethe.engine.store.membership import live_members, registered_models
from lethe.engine.store.server.connection import reachable
from lethe.engine.store.store import ModelStore

GROUP = "lethe-intake"
_LAG_SECONDS = 2.0  # between two looks at the ends of the topics
_RECORDS = 500
"""Changes read in one poll. Their requests are sent together; the client limits their bytes."""


def intake_group(mapping: TableMapping) -> str:
    """Return the consumer group of a mapping: processes with another mapping are another group."""
    return f"{GROUP}-{mapping.digest}"


def read_shapes(store: ModelStore, mapping: TableMapping) -> Mapping[str, Shape]:
    """Return the shapes of the models of a mapping whose rows are corrected.

    Raises
    ------
    InvalidData
        A model is not registered: its requests would be answered UNKNOWN_MODEL and be gone. Or
        rows would be inserted without their subject, and a subject's request would pass them over.
    """
    registered = registered_models(store.client)
    missing = next((model for model in mapping.models if model not in registered), None)
    if missing is not None:
        raise InvalidData(
            f"the mapping names model {missing!r}, which is not registered: register it first; "
            "deletions since its data were exported are then applied"
        )
    corrected = {
        model for table in mapping.tables if table.updates == "correct" for model in table.models
    }
    metas = {model: read_summary(store.client, model).meta for model in sorted(corrected)}
    for table in mapping.tables:
        if table.key_changes == "correct" and table.subject is None:
            for model in table.models:
                _refuse_subjects(store, metas[model], table.table)
    return {
        model: Shape(meta.config.feature_names, meta.config.target_names)
        for model, meta in metas.items()
    }


def _refuse_subjects(store: ModelStore, meta: Meta, table: str) -> None:
    """Refuse a model whose rows have subjects, where the mapping names none."""
    model_id = meta.config.model_id
    where = ModelKeys(model_id).dataset(meta.dataset_key)
    with reachable(store.client):
        exists: Any = store.client.exists(where.subjects)
    in_files = meta.row_files is not None and meta.config.subject_namespace is not None
    if exists or in_files:
        raise InvalidData(
            f'the rows of model {model_id!r} have subjects: with key_changes = "correct", '
            f"table {table} needs the columns of the subject in the mapping"
        )


class IntakeWorker(PartitionWorker):
    """Reads the topics of a mapping; one thread runs it.

    Parameters
    ----------
    log, store, reporting
        As `PartitionWorker` has them.
    mapping, shapes
        Which table feeds which models, and the shapes of those whose rows are corrected.
    signer
        Signs the requests, where these must be signed.
    """

    def __init__(
        self,
        log: Log,
        store: ModelStore,
        mapping: TableMapping,
        shapes: Mapping[str, Shape],
        *,
        signer: Signer | None = None,
        **reporting: Unpack[Reporting],
    ) -> None:
        super().__init__(
            log,
            store,
            "intake",
            intake_group(mapping),
            mapping.topics,
            reporting,
            known_as=lambda topic: f"{topic}/{mapping.digest}",
            goes_on=self._changes_lost,
            name_of=lambda partition: intake_watermark(mapping, partition),
        )
        self._mapping = mapping
        self._shapes = shapes
        self._signer = signer
        self._gauge = LagGauge(self._consumer, self._metrics, self._health)
        self._due = 0.0
        self._streamed: set[Partition] = set()

    def _room(self) -> int:
        return _RECORDS

    def _poll(self, timeout: float) -> Sequence[Record]:
        self._at_step(IntakeStep.POLL)
        return super()._poll(timeout)

    def _process(self, records: Sequence[Record]) -> int:
        """Send the requests that some changes ask for, and move past them."""
        if records:
            translated = [
                (record, translate(record, self._mapping, self._shapes)) for record in records
            ]
            self._send(translated)
            self._look_for_snapshots(translated)
            self._at_step(IntakeStep.ADVANCE)
            self._advance({record.partition for record in records})
            self._report(translated)
        self._measure()
        return len(records)

    def _measure(self) -> None:
        """Report progress, and now and then how much is left to read."""
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + _LAG_SECONDS
            self._gauge.last = self._gauge.waiting(self._assignment.positions)
        self._health.progress(self._gauge.last)

    # -- requests -----------------------------------------------------------------------------

    def _send(self, translated: Sequence[tuple[Record, Translated]]) -> None:
        """Send all requests and dead letters, and wait until they are acknowledged.

        Rows go in under their new ids before they go out under the old ones: a worker that dies in
        between finds the old ids live, and sends both again.
        """
        self._at_step(IntakeStep.SEND)
        self._producer.publish(self._insertions(one for _, one in translated))
        self._at_step(IntakeStep.DELETE)
        messages: list[Message] = []
        for record, one in translated:
            messages += [request_message(each, self._signer) for each in one.corrections]
            messages += [request_message(each, self._signer) for each in one.deletions]
            if one.code is not None:
                messages.append(dead_letter(Invalid(record, one.code, one.detail)))
        self._producer.publish(messages)

    def _insertions(self, translated: Iterable[Translated]) -> list[Message]:
        """Return the rows that move to another id: those that the models have under the old one."""
        insertions = [each for one in translated for each in one.insertions]
        store, messages = self._store, list[Message]()
        for model_id in sorted({each.request.model_id for each in insertions}):
            moved = [each for each in insertions if each.request.model_id == model_id]
            former = {each.former for each in moved}
            live = set(live_members(store.client, model_id, sorted(former), store.row_keys))
            for each in moved:  # one may move on under the id that it has just been given
                if each.former in live:
                    messages.append(request_message(each.request, self._signer))
                    live.update(each.request.row_ids)
            if not former <= live:
                self._logger.info(
                    "rows whose primary key changed are not in the model, so they are not "
                    "inserted under the new one",
                    action="not_moved",
                    model=model_id,
                    rows=len(former - live),
                )
        return messages

    def _look_for_snapshots(self, translated: Sequence[tuple[Record, Translated]]) -> None:
        """Say so if a snapshot was taken again: what was deleted before it may be in no record.

        A connector that does not remember its place, or was killed before it had noted the end of
        its snapshot, takes another one, and goes on with the changes after that.
        """
        again: set[str] = set()
        for record, one in translated:
            partition = record.partition
            if not one.snapshot:
                self._streamed.add(partition)
            elif partition in self._streamed or (one.first and record.offset > 0):
                self._streamed.discard(partition)
                again.add(partition.topic)
        for topic in sorted(again):
            self._changes_lost(topic, "the connector took a snapshot again")

    def _changes_lost(self, topic: str, reason: str) -> bool:
        """Say that changes were lost, and go on with those that are there."""
        tables = self._mapping.by_topic[topic].values()
        self._logger.error(
            "changes may be in no record: export the tables and run "
            "`lethe reconcile MODEL --data FILE` for each of the models",
            action="changes_lost",
            models=sorted({model for table in tables for model in table.models}),
            reason=reason,
        )
        return True

    # -- reports ------------------------------------------------------------------------------

    def _report(self, translated: Sequence[tuple[Record, Translated]]) -> None:
        """Count and log what became of records: never a value, and no id of a row."""
        outcomes = Counter(one.outcome for _, one in translated)
        for outcome, number in outcomes.items():
            self._metrics.changes.labels(outcome).inc(number)
        self._logger.info("changes read", action="intake", outcomes=dict(outcomes))
        for record, one in translated:
            if one.code is None:
                continue
            self._metrics.dead_letters.inc()
            self._logger.warning(
                "dead letter",
                action="intake",
                status=one.code,
                reason=one.detail,
                topic=record.partition.topic,
                partition=record.partition.index,
                offset=record.offset,
            )
