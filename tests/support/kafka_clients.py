"""The log in Kafka by either of its clients, for tests.

``LETHE_TEST_KAFKA_CLIENT=confluent`` has every test that does not name a client use the second
one; it is ``kafka-python`` otherwise, as it is for users.
"""

from __future__ import annotations

import os

from lethe.consumers.log.base import Log
from tests.conftest import need_confluent

CLIENTS = ("kafka-python", "confluent")
SESSION_SECONDS = 10.0


def chosen_client() -> str:
    """Return the client that tests use if they name none."""
    return os.environ.get("LETHE_TEST_KAFKA_CLIENT", CLIENTS[0])


def kafka_log(
    bootstrap: str,
    client_id: str = "tests",
    session_seconds: float = SESSION_SECONDS,
    connect_seconds: float = 10.0,
    client: str | None = None,
) -> Log:
    """Return the log in Kafka."""
    if (client or chosen_client()) == "confluent":
        need_confluent()
        from lethe.consumers.log.kafka.confluent.log import ConfluentLog

        return ConfluentLog(
            bootstrap,
            client_id=client_id,
            session_seconds=session_seconds,
            connect_seconds=connect_seconds,
        )
    from lethe.consumers.log.kafka.kafka_python.log import KafkaPythonLog

    return KafkaPythonLog(
        bootstrap,
        client_id=client_id,
        session_seconds=session_seconds,
        connect_seconds=connect_seconds,
    )
