"""What both Kafka clients share: sizes, timeouts, and the settings of new topics."""

from __future__ import annotations

from lethe.consumers.log.base import Message, TopicSpec
from lethe.engine.errors import InvalidData

CONNECT_SECONDS = 10.0
# A dead worker's partitions wait for this long. The clients' heartbeats run on threads of their
# own, so a long computation does not end a session; MAX_POLL_SECONDS limits that.
SESSION_SECONDS = 10.0

MAX_REQUEST_BYTES = 8 * 1_048_576 + 65_536
"""Largest request of a producer: 8 MiB, the largest limit of any of our topics, and 64 KiB more.
Each topic has a limit of its own; its broker rejects larger messages."""


def too_large(message: Message) -> InvalidData:
    """Return the error for a message that the producer or the topic's broker rejects."""
    return InvalidData(
        f"a message of {len(message.value or b'')} bytes for topic {message.topic} is too large "
        f"(see its max.message.bytes; no topic takes more than {MAX_REQUEST_BYTES} with key and "
        "headers)"
    )


def kafka_settings(spec: TopicSpec) -> dict[str, str]:
    """Return the settings that a topic is created with."""
    settings = {
        "cleanup.policy": "compact" if spec.compacted else "delete",
        "max.message.bytes": str(spec.max_message_bytes),
        "compression.type": "uncompressed",
    }
    if spec.retention_ms is not None:
        settings["retention.ms"] = str(spec.retention_ms)
    return settings | dict(spec.extra)
