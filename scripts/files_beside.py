"""A deletion where rows are in files beside one where they are in the store, and what each keeps.

Two models of the same rows are on a real Valkey whose Streams are the log, with `lethe work
deletions` beside: ``python scripts/files_beside.py --features 1000 --rows 20000``. Requests go to
both in turn: one of a subject with ten rows, and one of ten rows of ten subjects. A delay is the
time from a request to its receipt in the log. The store's bytes are those of all keys of a model,
before and after the deletions.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # the platform is the tests' own

import numpy as np  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402
from threadpoolctl import threadpool_limits  # noqa: E402

from lethe.consumers.contract import topics  # noqa: E402
from lethe.consumers.log.streams.log import StreamsLog  # noqa: E402
from lethe.consumers.registration.training_data import TrainingData  # noqa: E402
from lethe.consumers.service.telemetry.logs import configure_logging  # noqa: E402
from lethe.engine.store.layout.config import LimitsRecord  # noqa: E402
from lethe.engine.store.layout.keys import ModelKeys  # noqa: E402
from lethe.engine.store.server.connection import connect  # noqa: E402
from tests.support.families import make  # noqa: E402
from tests.support.platform import Platform, config_of, seal_file, training_data  # noqa: E402
from tests.support.servers import ValkeyProcess  # noqa: E402

LETHE = [sys.executable, "-c", "from lethe.consumers.cli.main import run; run()", "work"]
STORE, FILES = "in-store", "in-files"
OF_A_SUBJECT = 10


class OneBlock:
    """A table that is one block."""

    def __init__(self, table: TrainingData) -> None:
        self.rows = len(table.ids)
        self._table = table

    def blocks(self) -> Iterator[TrainingData]:
        """Yield it."""
        yield self._table


def rows_of(rows: int, features: int) -> TrainingData:
    """Return random rows, ten of each subject, scattered over the table."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((rows, features))
    y = X @ rng.standard_normal((features, 1)) + rng.standard_normal((rows, 1))
    data = replace(make("benign", "linear"), X=X, y=y, weight=np.ones(rows))
    table = training_data(data, subjects=False)
    order = rng.permutation(rows)
    people = {
        f"subject-{i}": [table.ids[row] for row in order[start : start + OF_A_SUBJECT]]
        for i, start in enumerate(range(0, rows, OF_A_SUBJECT))
    }
    return replace(table, subjects=people)


def register(platform: Platform, table: TrainingData) -> None:
    """Register both models."""
    data = replace(make("benign", "linear"), X=table.X, y=table.y)
    exact_sums = table.X.shape[1] < 200
    for model in (STORE, FILES):
        config = config_of(data, model, "exact", 10.0, LimitsRecord()).model_copy(
            update={"exact_sums": exact_sums, "subject_namespace": "default"}
        )
        if model == STORE:
            platform.registrar().register(config, table)
        else:
            config = config.model_copy(update={"rows_url": platform.folder()})
            platform.file_registrar().register_in_files(config, OneBlock(table))


def bytes_of(platform: Platform, model: str) -> int:
    """Return how many bytes the store has for a model."""
    client = platform.raw()
    keys = client.scan_iter(match=f"*{{{ModelKeys(model).partition.tag}}}:{model}:*", count=1000)
    return sum(client.memory_usage(key, samples=0) or 0 for key in keys)


class Delays:
    """Sends requests one at a time, and waits for the receipt of each."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._reader = StreamsLog(connect(platform.url)).reader()
        partitions = self._reader.partitions(topics.RECEIPTS)
        self._offsets = {one: self._reader.bounds(one).end for one in partitions}
        self._count = 0

    def of(self, model: str, body: dict[str, object]) -> float:
        """Send a request; return how many seconds its receipt took."""
        self._count += 1
        named = {"request_id": str(self._count), "model_id": model, **body}
        begin = time.perf_counter()
        self._platform.send_raw(json.dumps(named).encode(), model.encode())
        for receipt in self._receipts():
            if receipt["request_id"] == named["request_id"]:
                if receipt["status"] != "APPLIED":
                    raise SystemExit(f"not applied: {receipt}")
                return time.perf_counter() - begin
        raise AssertionError("receipts do not end")

    def _receipts(self) -> Iterator[dict[str, object]]:
        while True:
            for partition, offset in self._offsets.items():
                found, self._offsets[partition] = self._reader.read(partition, offset, 0.0, 100)
                yield from (json.loads(one.value or b"{}") for one in found)


def measure(platform: Platform, table: TrainingData, requests: int) -> Table:
    """Delete from both in turn; return a table of the delays."""
    delays, people = Delays(platform), list(table.subjects)
    one, ten = iter(people), iter(people[len(people) // 2 :])
    found: dict[tuple[str, str], list[float]] = {}
    for turn in range(requests + 5):
        subject = next(one)
        strangers = [table.subjects[next(ten)][0] for _ in range(OF_A_SUBJECT)]
        bodies: tuple[tuple[str, dict[str, object]], ...] = (
            ("a subject of ten rows", {"subject_id": subject}),
            ("ten rows of ten subjects", {"row_ids": strangers}),
        )
        for what, body in bodies:
            for model in (STORE, FILES) if turn % 2 else (FILES, STORE):
                seconds = delays.of(model, body)
                if turn >= 5:  # the first ones read the state
                    found.setdefault((what, model), []).append(1e3 * seconds)
    shown = Table(
        "request", "store p50 ms", "files p50 ms", "ratio", "store p95 ms", "files p95 ms"
    )
    for what in dict.fromkeys(what for what, _ in found):
        store, files = found[what, STORE], found[what, FILES]
        p50s, p95s = ([float(np.quantile(one, q)) for one in (store, files)] for q in (0.5, 0.95))
        ratio = f"{p50s[1] / p50s[0]:.2f}"
        shown.add_row(what, *(f"{x:.1f}" for x in p50s), ratio, *(f"{x:.1f}" for x in p95s))
    return shown


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--features", type=int, default=50)
    parser.add_argument("--requests", type=int, default=100, help="of each kind, to each model")
    given = parser.parse_args()
    configure_logging("ERROR")
    console = Console(width=120)
    with tempfile.TemporaryDirectory() as directory, threadpool_limits(1):
        server = ValkeyProcess(Path(directory))
        server.start()
        platform = Platform(StreamsLog(connect(server.url)), f"{server.url}/0", 16)
        try:
            table = rows_of(given.rows, given.features)
            register(platform, table)
            before = [bytes_of(platform, model) for model in (STORE, FILES)]
            environment = {
                **os.environ,
                **dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), "1"),
                "LETHE_REDIS_URL": platform.url,
                "LETHE_SEAL_KEY_FILE": str(seal_file(Path(directory))),
                "LETHE_LOG_LEVEL": "ERROR",
            }
            with subprocess.Popen([*LETHE, "deletions"], env=environment) as worker:
                try:
                    console.print(measure(platform, table, given.requests))
                finally:
                    worker.terminate()
            after = [bytes_of(platform, model) for model in (STORE, FILES)]
            kept = Table("", "rows in the store", "rows in files")
            kept.add_row("bytes of the model in the store", *(f"{x:,}" for x in before))
            kept.add_row("after these deletions", *(f"{x:,}" for x in after))
            console.print(kept)
        finally:
            platform.close()
            server.close()


if __name__ == "__main__":
    main()
