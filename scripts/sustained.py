"""How many deletions a second one model takes, for how long, and how long each of them waits.

Requests of one row each are sent at a steady rate to a real Valkey, whose Streams are the log, and
`lethe work` runs beside: ``python scripts/sustained.py --rate 500 --seconds 600``. The delay of a
request is the time from when it was due to when its final receipt is in the log, so that a producer
that lags behind does not make it shorter.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # the platform is the tests' own

import numpy as np  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402
from threadpoolctl import threadpool_limits  # noqa: E402

from lethe.consumers.contract import topics  # noqa: E402
from lethe.consumers.log.base import Message  # noqa: E402
from lethe.consumers.log.streams.log import StreamsLog  # noqa: E402
from lethe.consumers.service.telemetry.logs import configure_logging  # noqa: E402
from lethe.engine.store.server.connection import connect  # noqa: E402
from tests.support.families import make  # noqa: E402
from tests.support.platform import Platform, row_ids, seal_file  # noqa: E402
from tests.support.servers import ValkeyProcess  # noqa: E402

LETHE = [sys.executable, "-c", "from lethe.consumers.cli.main import run; run()", "work"]
_PERIOD = 0.02  # seconds between two sends
_PATIENCE = 120.0  # seconds without a receipt after which the rest is given up
_FINAL = ("APPLIED", "ALREADY_APPLIED", "REJECTED")


@dataclass
class Received:
    """What became of requests, by their numbers: when each was final, and which had waited."""

    final: dict[int, float] = field(default_factory=dict)
    deferred: set[int] = field(default_factory=set)
    refused: int = 0
    last: float = field(default_factory=time.perf_counter)


def receive(platform: Platform, received: Received, stop: threading.Event) -> None:
    """Read receipts as they come, until told to stop."""
    reader = StreamsLog(connect(platform.url)).reader()
    offsets = {one: reader.bounds(one).begin for one in reader.partitions(topics.RECEIPTS)}
    while not stop.is_set():
        for partition, offset in offsets.items():
            records, offsets[partition] = reader.read(partition, offset, 0.005, 5_000)
            now = time.perf_counter()
            for record in records:
                receipt = json.loads(record.value or b"{}")
                number = int(receipt["request_id"])
                received.last = now
                if receipt["status"] in _FINAL:
                    received.final.setdefault(number, now)
                    received.refused += receipt["status"] == "REJECTED"
                else:
                    received.deferred.add(number)
    reader.close()


def register(platform: Platform, rows: int, features: int, *, in_files: bool) -> None:
    """Register a linear model of random rows, as ``m``."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((rows, features))
    y = X @ rng.standard_normal((features, 1)) + rng.standard_normal((rows, 1))
    data = replace(make("benign", "linear"), X=X, y=y, weight=np.ones(rows))
    url = platform.folder() if in_files else None
    platform.register("m", data, method="exact", exact_sums=True, rows_url=url, subjects=False)


def environment(platform: Platform, directory: Path) -> dict[str, str]:
    """Return the settings of workers on a platform."""
    return {
        **os.environ,
        **dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), "1"),
        "LETHE_REDIS_URL": platform.url,
        "LETHE_SEAL_KEY_FILE": str(seal_file(directory)),
        "LETHE_LOG_LEVEL": "ERROR",
    }


def send(platform: Platform, rate: int, seconds: float) -> list[float]:
    """Send requests at a rate; return when each was due."""
    names = row_ids(platform.data["m"])
    order = np.random.default_rng(1).permutation(len(names))
    due: list[float] = []
    begin = time.perf_counter()
    total = min(int(rate * seconds), len(names) - 1)
    while len(due) < total:
        now = time.perf_counter()
        until = min(int((now - begin) * rate) + 1, total)
        messages = []
        for number in range(len(due), until):
            body = {"request_id": str(number), "model_id": "m", "row_ids": [names[order[number]]]}
            messages.append(Message(topics.DELETIONS, b"m", json.dumps(body).encode()))
            due.append(begin + number / rate)
        platform.producer.publish(messages)
        time.sleep(max(0.0, _PERIOD - (time.perf_counter() - now)))
    return due


def measure(platform: Platform, rate: int, seconds: float) -> tuple[list[float], Received]:
    """Send, and wait until all requests are final; return when each was due, and receipts."""
    received, stop = Received(), threading.Event()
    reading = threading.Thread(target=receive, args=(platform, received, stop))
    reading.start()
    try:
        due = send(platform, rate, seconds)
        while len(received.final) < len(due):
            if time.perf_counter() - received.last > _PATIENCE:
                break
            time.sleep(0.05)
    finally:
        stop.set()
        reading.join()
    return due, received


def report(due: list[float], received: Received) -> Table:
    """Return the delays of each minute, and what came of the requests as a whole."""
    table = Table("minute", "sent", "median s", "99 % s", "longest s", "deferred")
    when = np.array(due)
    final = np.array([received.final.get(i, np.inf) for i in range(len(due))])
    minutes = ((when - when[0]) // 60).astype(int)
    for minute in (*np.unique(minutes), -1):
        chosen = np.flatnonzero((minutes == minute) | (minute < 0))
        delays = final[chosen] - when[chosen]
        table.add_row(
            "all" if minute < 0 else str(minute + 1),
            str(len(chosen)),
            *(f"{np.quantile(delays, q, method='higher'):.3f}" for q in (0.5, 0.99, 1.0)),
            str(len(received.deferred.intersection(chosen.tolist()))),
        )
    return table


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--features", type=int, default=50)
    parser.add_argument("--rate", type=int, default=500, help="deletions a second")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--files", action="store_true", help="rows in files")
    given = parser.parse_args()
    configure_logging("ERROR")
    console = Console()
    with tempfile.TemporaryDirectory() as directory, threadpool_limits(1):
        server = ValkeyProcess(Path(directory))
        server.start()
        platform = Platform(StreamsLog(connect(server.url)), f"{server.url}/0", 16)
        try:
            register(platform, given.rows, given.features, in_files=given.files)
            with subprocess.Popen(LETHE, env=environment(platform, Path(directory))) as worker:
                try:
                    due, received = measure(platform, given.rate, given.seconds)
                finally:
                    worker.terminate()
            state = platform.load("m")
            console.print(report(due, received))
            console.print(
                f"{state.version} versions, {state.meta.generation} refreshes, "
                f"{received.refused} rejected, {len(due) - len(received.final)} without a receipt"
            )
        finally:
            platform.close()
            server.close()


if __name__ == "__main__":
    main()
