"""The log in Kafka, as the settings describe it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lethe.consumers.log.kafka.settings import SESSION_SECONDS
from lethe.consumers.service.configuration.credentials import kafka_access
from lethe.consumers.service.configuration.settings import Settings

if TYPE_CHECKING:
    from lethe.consumers.log.kafka.log import KafkaLog


def kafka_log(
    settings: Settings,
    client_id: str,
    *,
    bootstrap: str | None = None,
    session_seconds: float = SESSION_SECONDS,
) -> KafkaLog:
    """Return the log at ``bootstrap``, by default the servers in the settings.

    Raises
    ------
    InvalidData
        The settings for authentication cannot be used.
    """
    from lethe.consumers.log.kafka.log import KafkaLog  # noqa: PLC0415 - importing takes 0.2 s

    return KafkaLog(
        bootstrap or settings.kafka_bootstrap_servers or "",
        client_id=client_id,
        access=kafka_access(settings),
        session_seconds=session_seconds,
    )
