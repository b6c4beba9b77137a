"""A real PostgreSQL with Debezium in a real Kafka Connect, started by `scripts/cdc`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from tests.support.servers import ROOT, Lifeline, Missing

CDC_SCRIPT = ROOT / "scripts" / "cdc"
HOW_TO_CDC = (
    "no change data capture to test with: scripts/cdc runs it (apt-get install postgresql "
    "openjdk-17-jre-headless maven, or `make setup-all` as root)"
)


def cdc_script(*arguments: str) -> str:
    """Run scripts/cdc and return what it printed; `Missing` when this machine cannot."""
    done = subprocess.run(
        [sys.executable, str(CDC_SCRIPT), *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode == 2:
        raise Missing(f"{HOW_TO_CDC}; it said: {done.stderr.strip().splitlines()[-1]}")
    if done.returncode != 0:
        raise RuntimeError(f"scripts/cdc {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout.strip()


class Debezium:
    """A database of our own, and a connector that captures its tables into ``kafka``."""

    def __init__(self, data: Path, kafka: str, settings: Mapping[str, str] | None = None) -> None:
        data.mkdir(parents=True, exist_ok=True)
        self.data = data
        self.address = ""
        self._options = ["--kafka", kafka, "--data", str(data)]
        for name, value in (settings or {}).items():
            self._options += ["--set", f"{name}={value}"]
        self._lifeline = Lifeline(data / "lifeline")

    def start(self, sql: str = "") -> None:
        """Start what does not run; a new database executes ``sql`` before it is captured."""
        if not self.address:
            self._lifeline.hold()
            stop = [sys.executable, str(CDC_SCRIPT), "stop", "--delete", "--data", str(self.data)]
            self._lifeline.watch(stop)
        script = self.data / "tables.sql"
        script.write_text(sql)
        self.address = cdc_script("start", *self._options, "--sql", str(script))

    def wait_for_snapshot(self) -> None:
        """Return once the connector has noted that its first snapshot is over.

        Killed before, it takes another one, and never sends what was deleted in between.
        """
        deadline = time.monotonic() + 120.0
        while b'"snapshot_completed":true' not in self._offsets():
            assert time.monotonic() < deadline, "the snapshot does not end"
            time.sleep(0.1)

    def _offsets(self) -> bytes:
        try:
            return (self.data / "connect.offsets").read_bytes()
        except FileNotFoundError:
            return b""

    def kill_connect(self) -> None:
        """Kill Kafka Connect with SIGKILL."""
        os.kill(int((self.data / "connect.pid").read_text()), signal.SIGKILL)

    def execute(self, sql: str) -> str:
        """Run SQL in the database; return what psql prints, unaligned."""
        command = ["psql", "-XqAt", "-v", "ON_ERROR_STOP=1", self.address, "-c", sql]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def close(self) -> None:
        """Stop both and remove the database."""
        if self.address:
            cdc_script("stop", "--delete", "--data", str(self.data))
        self._lifeline.release()
