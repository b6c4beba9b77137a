"""What Lethe repairs in kafka-python: still needed, and done."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing

import pytest
from kafka import KafkaConsumer

from lethe.consumers.log.kafka.connection import Connection
from lethe.consumers.log.kafka.server import Server
from lethe.consumers.log.kafka.versions import REPAIRS, Repair
from tests.conftest import give_up
from tests.support.servers import ROOT, KafkaProcess, Missing

pytestmark = [pytest.mark.kafka, pytest.mark.xdist_group("kafka")]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Which defects the installed version has; the script stops its broker for a while."""
    script = ROOT / "scripts" / "kafka_python_defects.py"
    broker = KafkaProcess(tmp_path_factory.mktemp("defects"))
    with closing(broker):
        try:
            broker.start()
        except Missing as missing:
            give_up(missing)
        done = subprocess.run(
            [sys.executable, str(script), "--data", str(broker.data)],
            capture_output=True, text=True, check=True, timeout=300,
        )  # fmt: skip
        _, *lines = done.stdout.splitlines()
        yield {name: state for state, name in map(str.split, lines)}


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
