"""The log in Kafka, for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lethe.consumers.log.kafka.log import KafkaLog


def kafka_log(
    bootstrap: str,
    client_id: str = "tests",
    session_seconds: float = 10.0,
    connect_seconds: float = 10.0,
) -> KafkaLog:
    """Return the log in Kafka."""
    from lethe.consumers.log.kafka.log import KafkaLog  # it warns where pytest does not listen yet

    return KafkaLog(
        bootstrap,
        client_id=client_id,
        session_seconds=session_seconds,
        connect_seconds=connect_seconds,
    )
