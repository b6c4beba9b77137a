"""What both clients of Kafka agree on: sizes, times, and how a topic is made."""

from __future__ import annotations

from lethe.consumers.log.base import Message, TopicSpec
from lethe.engine.errors import InvalidData

CONNECT_SECONDS = 10.0
# A dead worker's partitions stand still for this long. The clients' heartbeats run on threads of
# their own, so a long computation does not end a session; MAX_POLL_SECONDS is for that.
SESSION_SECONDS = 10.0

MAX_REQUEST_BYTES = 8 * 1_048_576 + 65_536
"""What a producer sends at all: 8 MiB, the most that a topic of ours takes, and 64 KiB around it.
What a topic takes is the topic's own setting; its broker refuses the rest."""


def too_large(message: Message) -> InvalidData:
    """Return the error for a message that the producer or the topic's broker refuses."""
    return InvalidData(
        f"a message of {len(message.value or b'')} bytes for topic {message.topic}, which takes "
        f"less (its max.message.bytes; no topic takes more than {MAX_REQUEST_BYTES} with key and "
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
