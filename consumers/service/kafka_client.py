"""The log in Kafka, using the client named in the settings."""

from __future__ import annotations

from lethe.consumers.log.base import Log
from lethe.consumers.log.kafka.settings import SESSION_SECONDS
from lethe.consumers.service.configuration.credentials import kafka_access, librdkafka_access
from lethe.consumers.service.configuration.settings import Settings
from lethe.consumers.service.extras import extra


def kafka_log(
    settings: Settings,
    client_id: str,
    *,
    bootstrap: str | None = None,
    session_seconds: float = SESSION_SECONDS,
) -> Log:
    """Return the log at ``bootstrap``, by default the servers in the settings.

    Each client is imported only when it is needed: importing kafka-python takes 0.2 s, and
    confluent-kafka is an optional extra.

    Raises
    ------
    InvalidData
        ``LETHE_KAFKA_CLIENT=confluent`` and confluent-kafka is not installed, or the settings for
        authentication cannot be used.
    """
    servers = bootstrap or settings.kafka_bootstrap_servers or ""
    if settings.kafka_client == "kafka-python":
        from lethe.consumers.log.kafka.kafka_python.log import KafkaPythonLog  # noqa: PLC0415

        return KafkaPythonLog(
            servers,
            client_id=client_id,
            access=kafka_access(settings),
            session_seconds=session_seconds,
        )
    with extra("confluent", "LETHE_KAFKA_CLIENT=confluent"):
        from lethe.consumers.log.kafka.confluent.log import ConfluentLog  # noqa: PLC0415
    return ConfluentLog(
        servers,
        client_id=client_id,
        access=librdkafka_access(settings),
        session_seconds=session_seconds,
    )
