"""The topics of docs/events.md, and the settings for creating missing ones."""

from __future__ import annotations

from lethe.consumers.log.base import TopicSpec
from lethe.engine.store.layout.keys import COMMIT_PARTITIONS

DELETIONS = "lethe.deletions"
ROW_CHANGES = "lethe.row-changes"
COMMITS = "lethe.commits"
RECEIPTS = "lethe.receipts"
VERSIONS = "lethe.versions"
MODELS = "lethe.models"
REFRESH_JOBS = "lethe.refresh-jobs"
DEAD_LETTERS = "lethe.dead-letters"
ERASURES = "lethe.erasures"
ERASURE_RECEIPTS = "lethe.erasure-receipts"
SUPPRESSIONS = "lethe.suppressions"

FOR_EVER = -1
_DAY_MS = 86_400_000
_HOUR_MS = 3_600_000
_REQUEST_BYTES = 1_114_112  # 1 MiB of request, and 64 KiB for key and headers
_DEAD_LETTER_BYTES = _REQUEST_BYTES + 8192  # plus what the worker adds


def specs(partitions: int = COMMIT_PARTITIONS) -> list[TopicSpec]:
    """Return the topics that `register` and `work` create if they are missing.

    ``commits`` always has `COMMIT_PARTITIONS`. If ``deletions`` has as many, one worker is the only
    writer of a model's commits. With another number, or a producer that partitions differently,
    there can be two writers, which is slower but just as correct.
    """
    return [
        TopicSpec(
            DELETIONS,
            partitions,
            retention_ms=30 * _DAY_MS,
            until_released=True,
            max_message_bytes=_REQUEST_BYTES,
            # The broker's clock: a producer must not determine how long its request has waited.
            extra={"message.timestamp.type": "LogAppendTime"},
        ),
        TopicSpec(
            ROW_CHANGES,
            partitions,
            # Values of rows. Kafka removes whole segments, by the time of their newest record: the
            # oldest is gone after both together, within T (docs/erased-data.md). Redis Streams,
            # which no backup of the store can be without, remove them once they are processed.
            retention_ms=18 * _HOUR_MS,
            until_released=True,
            max_message_bytes=_REQUEST_BYTES,
            extra={"message.timestamp.type": "LogAppendTime", "segment.ms": str(5 * _HOUR_MS)},
        ),
        TopicSpec(
            COMMITS,
            COMMIT_PARTITIONS,
            retention_ms=30 * _DAY_MS,
            until_released=True,
            max_message_bytes=8 << 20,
            extra={
                "message.timestamp.type": "LogAppendTime",
                "retention.bytes": "-1",
                "unclean.leader.election.enable": "false",
            },
        ),
        TopicSpec(RECEIPTS, partitions, retention_ms=90 * _DAY_MS),
        TopicSpec(VERSIONS, partitions, retention_ms=FOR_EVER),
        TopicSpec(MODELS, partitions, compacted=True),
        # It had one partition once. A model's jobs may be done in any order, and more than once.
        TopicSpec(REFRESH_JOBS, partitions, retention_ms=7 * _DAY_MS, grows=True),
        TopicSpec(DEAD_LETTERS, 1, retention_ms=30 * _DAY_MS, max_message_bytes=_DEAD_LETTER_BYTES),
        TopicSpec(
            ERASURES,
            1,
            retention_ms=30 * _DAY_MS,
            until_released=True,
            max_message_bytes=_REQUEST_BYTES,
            extra={"message.timestamp.type": "LogAppendTime"},
        ),
        # A combined receipt has some 200 bytes a model.
        TopicSpec(ERASURE_RECEIPTS, 1, retention_ms=90 * _DAY_MS, max_message_bytes=8 << 20),
        # Who is erased, without names: the newest word on each subject stays for ever.
        TopicSpec(SUPPRESSIONS, 1, compacted=True),
    ]
