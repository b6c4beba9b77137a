"""A Kafka for a run, with a data directory that goes with the run."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.results import ROOT


class NoKafka(Exception):
    """There is no Kafka to be had; the message says why."""


@contextmanager
def kafka(directory: Path) -> Iterator[str]:
    """Yield the address of ``LETHE_TEST_KAFKA``, or of a broker that runs for this block.

    Raises
    ------
    NoKafka
        Neither is to be had.
    """
    if given := os.environ.get("LETHE_TEST_KAFKA"):
        yield given
        return
    data = ["--data", str(directory)]
    started = _script("start", "--port", "0", *data)
    try:
        if started.returncode != 0:
            raise NoKafka((started.stderr.strip() or "scripts/kafka failed").splitlines()[-1])
        yield started.stdout.strip()
    finally:
        _script("stop", *data)


def _script(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts" / "kafka"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)
