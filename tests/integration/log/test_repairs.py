"""What Lethe repairs in kafka-python: still needed, and done."""

from __future__ import annotations

import subprocess
import sys

import pytest
from kafka import KafkaConsumer

from lethe.consumers.log.kafka.connection import Connection
from lethe.consumers.log.kafka.server import Server
from lethe.consumers.log.kafka.versions import REPAIRS, Repair
from tests.support.servers import ROOT

pytestmark = [pytest.mark.kafka, pytest.mark.xdist_group("kafka")]


@pytest.fixture(scope="module")
def found(kafka_bootstrap: str) -> dict[str, str]:
    """Return which defects the installed version has; the script starts a broker of its own."""
    del kafka_bootstrap  # where there is no Kafka, it says so
    script = ROOT / "scripts" / "kafka_python_defects.py"
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=True, timeout=300
    )
    _, *lines = done.stdout.splitlines()
    return {name: state for state, name in map(str.split, lines)}


@pytest.mark.parametrize("repair", REPAIRS, ids=lambda repair: repair.defect)
def test_each_repair_is_still_needed(repair: Repair, found: dict[str, str]) -> None:
    """If this fails, kafka-python has been mended: take out the repair and its line."""
    assert found[repair.defect] == "there", f"{repair.by} may go"


def test_a_client_that_is_closed_before_it_has_sent_everything_leaves_no_socket(
    kafka_bootstrap: str,
) -> None:
    """kafka-python would leave it to the garbage collector."""
    connection = Connection(Server((kafka_bootstrap,), "test", {}, 30.0))
    consumer, sockets = connection.open(KafkaConsumer), []
    consumer.topics()
    for one in connection._client._manager._conns.values():
        one.transport._write_buffer.append(b"not sent yet")
        sockets.append(one.transport._sock)
    consumer.close()
    assert sockets
    assert all(one.fileno() == -1 for one in sockets)
