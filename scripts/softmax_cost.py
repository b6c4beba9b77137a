"""What a request to a softmax model costs, beside one to a model of each class against the rest.

``python scripts/softmax_cost.py``: one-row deletions through a deletion worker, on a real Valkey
and the log in memory, in turns of 20; medians of the worker's time.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # the platform is the tests' own

import numpy as np  # noqa: E402
from threadpoolctl import threadpool_limits  # noqa: E402

from lethe.consumers.service.telemetry.logs import configure_logging  # noqa: E402
from tests.support.families import Data  # noqa: E402
from tests.support.memory_log import MemoryLog  # noqa: E402
from tests.support.platform import Platform  # noqa: E402
from tests.support.servers import ValkeyProcess  # noqa: E402

KINDS = ("logistic", "softmax")
_TURN = 20


def data_of(kind: str, rows: int, d: int, classes: int) -> Data:
    """Return rows of so many classes; an intercept is one of the d coordinates."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((rows, d - 1))
    margin = 1.5 * X @ rng.standard_normal((d - 1, classes)) / np.sqrt(d)
    y = np.eye(classes)[np.argmax(margin + rng.gumbel(size=margin.shape), axis=1)]
    return Data("classes", kind, X, y, np.ones(rows), 1.0, True, np.arange(rows))


def measured(platform: Platform, requests: int) -> dict[str, list[float]]:
    """Return the seconds that each request took the worker, by kind."""
    worker, seconds = platform.deletion_worker(), {kind: list[float]() for kind in KINDS}
    for start in range(0, requests, _TURN):
        for kind in KINDS:
            for row in range(start, min(start + _TURN, requests)):
                platform.send_index(kind, row)
                begin = time.perf_counter()
                while worker.run_once(0.0) == 0:
                    pass
                seconds[kind].append(time.perf_counter() - begin)
    return seconds


def main() -> None:
    """Measure, and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--d", type=int, default=200)
    parser.add_argument("--classes", type=int, default=5)
    parser.add_argument("--requests", type=int, default=200)
    options = parser.parse_args()
    configure_logging("CRITICAL")
    with threadpool_limits(1), tempfile.TemporaryDirectory() as folder:
        server = ValkeyProcess(Path(folder) / "valkey")
        server.start()
        platform = Platform(MemoryLog(), server.url)
        try:
            for kind in KINDS:
                data = data_of(kind, options.rows, options.d, options.classes)
                platform.register(kind, data, budget=10.0)
            seconds = measured(platform, options.requests)
        finally:
            platform.close()
            server.close()
    medians = {kind: statistics.median(each[1:]) for kind, each in seconds.items()}
    for kind, median in medians.items():
        print(f"{kind}: {1e3 * median:.1f} ms a request")
    print(f"softmax over logistic: {medians['softmax'] / medians['logistic']:.2f}")


if __name__ == "__main__":
    main()
