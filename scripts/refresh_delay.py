"""How long polishes of small models and deletions take beside the rebuild of a large model.

With one lane, as refresh workers had until there were several, and with the lanes that
`lethe work` has, in turns, on Redis Streams and a real Valkey: ``python scripts/refresh_delay.py``.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # the platform is the tests' own

import numpy as np  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402
from threadpoolctl import threadpool_limits  # noqa: E402

from lethe.consumers.log.streams.log import StreamsLog  # noqa: E402
from lethe.consumers.service.telemetry.logs import configure_logging  # noqa: E402
from lethe.consumers.workers.refresh_worker import RefreshWorker  # noqa: E402
from lethe.consumers.workers.supervisor import REFRESH_LANES  # noqa: E402
from lethe.engine.refresh.size import RefreshSize  # noqa: E402
from lethe.engine.store.server.connection import connect  # noqa: E402
from tests.support.families import make  # noqa: E402
from tests.support.platform import Platform, store_at  # noqa: E402
from tests.support.servers import ValkeyProcess  # noqa: E402
from tests.support.worker_process import WorkerProcess  # noqa: E402

SMALL = ("small-0", "small-1", "small-2", "small-3")
_LOOK_SECONDS = 0.005


def work(url: str, lanes: int) -> None:
    """Run a refresh worker until the process is killed."""
    stores = [store_at(url) for _ in range(lanes)]
    RefreshWorker(StreamsLog(connect(url)), store_at(url), lanes=stores).run(threading.Event())


def register(platform: Platform, model: str, rows: int, features: int) -> None:
    """Register a logistic model of random rows."""
    rng = np.random.default_rng(len(model))
    X = rng.standard_normal((rows, features))
    y = (X @ rng.standard_normal((features, 1)) + rng.standard_normal((rows, 1)) > 0).astype(float)
    data = replace(make("benign", "logistic"), X=X, y=y, weight=np.ones(rows))
    platform.register(model, data, "logistic", budget=10.0)


def seconds_until(true: Callable[[], bool]) -> float:
    """Wait for something; return for how long."""
    begin = time.perf_counter()
    while not true():
        time.sleep(_LOOK_SECONDS)
    return time.perf_counter() - begin


def next_version(platform: Platform, model: str) -> Callable[[], bool]:
    """Return whether a model has a newer version than now, as a function."""
    before = platform.load(model).version
    return lambda: platform.load(model).version > before


class Measured:
    """One round: seconds of polishes and deletions, and of the rebuild that they ran beside."""

    def __init__(self, platform: Platform, lanes: int, deleted: int) -> None:
        self.polishes: list[float] = []
        self.deletions: list[float] = []
        arguments = [sys.executable, __file__, "--worker", platform.url, "--lanes", str(lanes)]
        with subprocess.Popen(arguments) as worker:
            try:
                self._polish(platform, SMALL[0])  # it has its partitions
                self.polishes.clear()
                rebuilt = next_version(platform, "large")
                platform.order("large", RefreshSize.REBUILD)
                begin = time.perf_counter()
                time.sleep(1.0)
                while not rebuilt():
                    model = SMALL[len(self.polishes) % len(SMALL)]
                    done = next_version(platform, model)
                    platform.send_index(model, deleted + len(self.deletions))
                    self.deletions.append(seconds_until(done))
                    self._polish(platform, model)
                self.rebuild = time.perf_counter() - begin
            finally:
                worker.kill()

    def _polish(self, platform: Platform, model: str) -> None:
        done = next_version(platform, model)
        platform.order(model, RefreshSize.POLISH)
        self.polishes.append(seconds_until(done))


def measure(url: str, rows: int, rounds: int) -> list[tuple[int, Measured]]:
    """Register the models, and return what was measured with how many lanes, in turns."""
    platform = Platform(StreamsLog(connect(url)), f"{url}/0", 16)
    for model in SMALL:
        register(platform, model, 5_000, 20)
    register(platform, "large", rows, 50)
    deleting = WorkerProcess(platform, "", roles="deletions")
    turns = [1, REFRESH_LANES] * rounds
    try:
        return [(lanes, Measured(platform, lanes, 1_000 * i)) for i, lanes in enumerate(turns)]
    finally:
        deleting.stop()
        platform.close()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=300_000, help="of the large model")
    parser.add_argument("--rounds", type=int, default=2, help="of each kind")
    parser.add_argument("--worker", metavar="URL", help=argparse.SUPPRESS)
    parser.add_argument("--lanes", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    configure_logging("ERROR")
    if given.worker is not None:
        work(given.worker, given.lanes)
    with tempfile.TemporaryDirectory() as directory, threadpool_limits(1):
        server = ValkeyProcess(Path(directory))
        server.start()
        try:
            measured = measure(server.url, given.rows, given.rounds)
        finally:
            server.close()
    table = Table("lanes", "rebuild s", "polishes", "median s", "longest s", "deletion median s")
    for lanes, one in measured:
        table.add_row(
            str(lanes),
            f"{one.rebuild:.1f}",
            str(len(one.polishes)),
            f"{np.median(one.polishes):.2f}",
            f"{max(one.polishes):.2f}",
            f"{np.median(one.deletions):.3f}",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
