"""What the group consumer and the reader share: settings, and conversion of records."""

from __future__ import annotations

from typing import Any

from kafka import TopicPartition

from lethe.consumers.log.base import Partition, Record
from lethe.consumers.log.kafka.connection import METADATA_SECONDS, Server
from lethe.consumers.log.kafka.repairs import read_odd_header_names

# A broker answers an empty fetch after this time, which bounds how long a seek waits.
FETCH_WAIT_MS = 20
# Limits on what one fetch brings into memory. The request topic's largest batch is 1 MiB, and a
# broker sends one batch even if it is larger than these.
MAX_PARTITION_FETCH_BYTES = 2 * 1_048_576
MAX_FETCH_BYTES = 16 * 1_048_576
# Longest time between two checks of the rebalance listener and of the metadata.
SLICE_SECONDS = 0.1
CLOSE_SECONDS = 2.0


def reading_settings(server: Server) -> dict[str, Any]:
    """Return the settings of every consumer; the client's defaults would lose requests."""
    read_odd_header_names()
    return server.settings() | {
        "enable_auto_commit": False,
        "auto_offset_reset": "none",  # we seek ourselves; an offset out of range is an alarm
        "isolation_level": "read_committed",
        "allow_auto_create_topics": False,
        "check_crcs": True,
        "metrics_enabled": False,
        "fetch_min_bytes": 1,
        "fetch_max_wait_ms": FETCH_WAIT_MS,
        "fetch_max_bytes": MAX_FETCH_BYTES,
        "max_partition_fetch_bytes": MAX_PARTITION_FETCH_BYTES,
        "metadata_max_age_ms": int(METADATA_SECONDS * 1000),
    }


def topic_partition(partition: Partition) -> Any:
    """Return the client's identity of a partition, which has no topic id."""
    return TopicPartition(partition.topic, partition.index)


def to_record(partition: Partition, fetched: Any) -> Record:
    """Convert the client's record to a `Record`; a header without a value gets an empty one."""
    return Record(
        partition,
        fetched.offset,
        fetched.key,
        fetched.value,
        tuple((name, value or b"") for name, value in fetched.headers or ()),
        fetched.timestamp,
        None if fetched.leader_epoch == -1 else fetched.leader_epoch,
    )
