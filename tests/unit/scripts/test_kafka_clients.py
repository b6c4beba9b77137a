"""`scripts/kafka_clients.py` measures on a Kafka, or says in a line that there is none."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.conftest import need_confluent
from tests.support.servers import ROOT


def test_a_missing_kafka_is_one_line_and_exit_code_3() -> None:
    need_confluent()
    environment = {**os.environ, "PATH": "", "JAVA_HOME": ""}  # no java
    environment.pop("LETHE_TEST_KAFKA", None)
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "kafka_clients.py")],
        capture_output=True, text=True, check=False, env=environment,
    )  # fmt: skip

    assert done.returncode == 3
    [line] = done.stderr.splitlines()
    assert line.startswith("no Kafka to measure on: ")
    assert "java" in line
    assert done.stdout == ""
