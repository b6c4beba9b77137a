"""What kafka-python is told: sizes, times, and the settings that keep requests safe.

Every setting that could lose or duplicate a request is explicit, because the client's defaults are
meant for other uses. The names are kafka-python's, which are Kafka's with underscores.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lethe.consumers.log.base import TopicSpec

CONNECT_SECONDS = 10.0
REQUEST_SECONDS = 10.0
# A dead worker's partitions wait for this long. The client's heartbeats run on a thread of their
# own, so a long computation does not end a session; MAX_POLL_SECONDS limits that.
SESSION_SECONDS = 10.0
# A worker that computes for longer than this without a poll loses its partitions.
MAX_POLL_SECONDS = 300.0
# A recreated topic is noticed within this time, or at once if its offsets do not match.
METADATA_SECONDS = 2.0
# How long brokers may be silent before a poll raises; a change of leader takes less.
UNREACHABLE_SECONDS = 5.0
# Longest time spent in one call into the client before other work is checked.
SLICE_SECONDS = 0.1
RETRY_SECONDS = 0.05
CLOSE_SECONDS = 2.0
DELIVERY_SECONDS = 30.0
TOPIC_SECONDS = 15.0
HINT_SECONDS = 0.5

MAX_REQUEST_BYTES = 8 * 1_048_576 + 65_536
"""Largest request of a producer: 8 MiB, the largest limit of any of our topics, and 64 KiB more.
Each topic has a limit of its own; its broker rejects larger messages."""

# A broker answers an empty fetch after this time, which bounds how long a seek waits.
FETCH_WAIT_MS = 20
# Limits on what one fetch brings into memory, still compressed. The request topic's largest batch
# is 1 MiB, and a broker sends one batch even if it is larger than these.
MAX_PARTITION_FETCH_BYTES = 2 * 1_048_576
MAX_FETCH_BYTES = 16 * 1_048_576

READING: Mapping[str, Any] = {
    "enable_auto_commit": False,
    "isolation_level": "read_committed",
    "check_crcs": True,
    "fetch_min_bytes": 1,
    "fetch_max_bytes": MAX_FETCH_BYTES,
    "max_partition_fetch_bytes": MAX_PARTITION_FETCH_BYTES,
}

SENDING: Mapping[str, Any] = {
    "acks": "all",
    "enable_idempotence": True,
    "max_in_flight_requests_per_connection": 5,  # ordered, with idempotence
    "retries": 1_000_000,  # the delivery timeout is the bound
    "delivery_timeout_ms": int(DELIVERY_SECONDS * 1000),
    "linger_ms": 0,
}


def group_settings(group: str, session_seconds: float) -> dict[str, Any]:
    """Return the settings of a member of ``group`` that may be silent for ``session_seconds``."""
    return {
        "group_id": group,
        "session_timeout_ms": int(session_seconds * 1000),
        "heartbeat_interval_ms": int(min(1.0, session_seconds / 4) * 1000),
        "max_poll_interval_ms": int(max(MAX_POLL_SECONDS, session_seconds) * 1000),
    }


def topic_settings(spec: TopicSpec) -> dict[str, str]:
    """Return the settings that a topic is created with.

    Uncompressed: the broker decompresses and checks what producers send, and consumers fetch plain
    batches of bounded size. Set the same on existing topics.
    """
    settings = {
        "cleanup.policy": "compact" if spec.compacted else "delete",
        "max.message.bytes": str(spec.max_message_bytes),
        "compression.type": "uncompressed",
    }
    if spec.retention_ms is not None:
        settings["retention.ms"] = str(spec.retention_ms)
    return settings | dict(spec.extra)
