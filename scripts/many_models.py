"""A thousand small models on one worker: what it costs, and how long it takes to replace it.

Models of 200 rows and 10 features, a fifth of them logistic, are registered on a real Valkey, whose
Streams are the log. Single deletions go to all of them in turn, at a steady rate, while `lethe
work` runs: one worker, then two, and a backlog that is there before either starts. Workers are
killed with SIGKILL at the moment when one more request is sent to every model; another runs
already, or is started at once. At the end every request has one receipt and every row is deleted
once, or the exit code is 1. ``python scripts/many_models.py --models 1000``.

A delay is the time from when a request is sent to the server's time of the version that names it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import IO, Any

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
from lethe.consumers.workers.leases import read_leases  # noqa: E402
from lethe.engine.store.server.connection import connect  # noqa: E402
from sustained import LETHE, environment  # noqa: E402
from tests.proof.chaos.load import make  # noqa: E402
from tests.support.platform import Platform, row_ids  # noqa: E402
from tests.support.servers import ValkeyProcess  # noqa: E402

ROWS, FEATURES = 200, 10
_PERIOD = 0.02  # seconds between two sends
_PATIENCE = 120.0  # seconds without a receipt after which the rest is given up
_STAND_SECONDS = 4.0  # until two workers share the partitions; leases are renewed each 1.5 s
_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")
_FINAL = ("APPLIED", "ALREADY_APPLIED", "REJECTED")


@dataclass
class Worker:
    """One `lethe work`, and what it said."""

    process: subprocess.Popen[bytes]
    said: Path
    log: IO[bytes]

    def cost(self) -> tuple[float, float]:
        """Return processor seconds so far, and resident megabytes now."""
        stat = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return (int(stat[11]) + int(stat[12])) / _TICKS, pages * _PAGE / 1e6

    def wait_for(self, since: float = 0.0) -> float:
        """Wait until it reads partitions of requests that it took over since; return when."""
        while not (found := [moment for moment in self._taken_over() if moment > since]):
            if self.process.poll() is not None:
                raise RuntimeError(f"a worker ended: {self.said.read_text()[-500:]}")
            time.sleep(0.05)
        return found[0]

    def _taken_over(self) -> list[float]:
        found = []
        for line in self.said.read_text().splitlines():
            said = json.loads(line) if line.startswith("{") and line.endswith("}") else {}
            if said.get("action") == "take_over" and topics.DELETIONS in said["partitions"]:
                found.append(datetime.fromisoformat(said["timestamp"]).timestamp())
        return found

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End it."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)
        self.process.wait(60)
        self.log.close()


@dataclass
class Killed:
    """A worker that was killed: when, how many models it had, and who took over when."""

    how: str
    at: float
    models: set[str]
    first: int  # number of the first request that was sent with the kill
    began: float = 0.0  # when another one began to read its partitions


@dataclass
class Span:
    """A while in which nothing went wrong: which requests, and what the workers cost."""

    what: str
    first: int
    end: int
    seconds: float
    processor: float
    memory: float  # megabytes of all workers at its end


@dataclass
class Stream:
    """Sends deletions of single rows to all models in turn."""

    platform: Platform
    names: list[str]
    sent: int = 0
    times: dict[int, float] = field(default_factory=dict)

    def send(self, count: int) -> None:
        """Send the next requests."""
        messages = []
        for number in range(self.sent, self.sent + count):
            turn, model = divmod(number, len(self.names))
            name = self.names[model]
            rows = row_ids(self.platform.data[name])
            body = {"request_id": str(number), "model_id": name, "row_ids": [rows[turn]]}
            messages.append(Message(topics.DELETIONS, name.encode(), json.dumps(body).encode()))
        self.times |= dict.fromkeys(range(self.sent, self.sent + count), time.time())
        self.platform.producer.publish(messages)
        self.sent += count

    @contextlib.contextmanager
    def beside(self, rate: float) -> Iterator[Callable[[], int]]:
        """Send at a rate while the block runs; it gets what sends one more to every model."""
        stop, lock = threading.Event(), threading.Lock()

        def run() -> None:
            begin, done = time.monotonic(), 0
            while not stop.wait(_PERIOD):
                if count := int((time.monotonic() - begin) * rate) - done:
                    done += count
                    with lock:
                        self.send(count)

        def burst() -> int:
            with lock:
                first = self.sent
                self.send(len(self.names))
                return first

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield burst
        finally:
            stop.set()
            thread.join()


class Measured:
    """The platform, its workers, and the figures."""

    def __init__(self, platform: Platform, directory: Path, models: int, rate: float) -> None:
        self.platform = platform
        self.directory = directory
        self.rate = rate
        self.workers: list[Worker] = []
        self.killed: list[Killed] = []
        self.spans: list[Span] = []
        self._made = 0
        self._receipts: dict[Any, int] = {}
        self._answered: set[str] = set()
        self.stream = Stream(platform, register(platform, models))
        self._reader = platform.log.reader()

    # -- workers ------------------------------------------------------------------------------

    def start(self) -> Worker:
        """Start a worker."""
        self._made += 1
        said = self.directory / f"worker-{self._made}.log"
        settings = environment(self.platform, self.directory)
        settings |= {"LETHE_LOG_LEVEL": "INFO", "LETHE_LOG_FORMAT": "json", "LETHE_HTTP_PORT": "0"}
        log = said.open("wb")
        process = subprocess.Popen(LETHE, env=settings, stderr=log, stdout=log)
        self.workers.append(Worker(process, said, log))
        return self.workers[-1]

    def kill(self, victim: Worker, how: str, burst: Callable[[], int]) -> Killed:
        """Kill a worker, and send one request to every model."""
        models = self._models_of(victim)
        at = time.time()
        victim.end(signal.SIGKILL)
        self.workers.remove(victim)
        self.killed.append(Killed(how, at, models, burst()))
        return self.killed[-1]

    def _models_of(self, worker: Worker) -> set[str]:
        """Return the models whose requests a worker reads, as it says in the store."""
        pid = worker.process.pid
        mine = {
            index
            for lease in read_leases(self.platform.store)
            if (lease.role, lease.pid) == ("deletions", pid)
            for index in lease.partitions[topics.DELETIONS]
        }
        partition_for = self._reader.partition_for
        return {
            name
            for name in self.stream.names
            if partition_for(topics.DELETIONS, name.encode()).index in mine
        }

    # -- waiting ------------------------------------------------------------------------------

    def drain(self) -> None:
        """Wait until every request has a final receipt."""
        last = time.monotonic()
        while (left := self.stream.sent - len(self._answered)) > 0:
            for partition in self._reader.partitions(topics.RECEIPTS):
                bounds = self._reader.bounds(partition)
                at = self._receipts.get(partition, bounds.begin)
                if bounds.end > at:
                    records, self._receipts[partition] = self._reader.read(
                        partition, at, 0.01, 5_000
                    )
                    for receipt in (json.loads(one.value or b"{}") for one in records):
                        if receipt["status"] in _FINAL:
                            self._answered.add(receipt["request_id"])
            if self.stream.sent - len(self._answered) < left:
                last = time.monotonic()
            elif time.monotonic() - last > _PATIENCE:
                raise TimeoutError(f"{left} requests have no receipt")
            time.sleep(0.1)

    # -- what is measured ---------------------------------------------------------------------

    def calm(self, what: str, seconds: float) -> None:
        """Send at the rate while nothing goes wrong."""
        with self._span(what), self.stream.beside(self.rate):
            time.sleep(seconds)

    def backlog(self, what: str, turns: int) -> None:
        """Have the workers do requests that all are there when they begin."""
        with self._span(what):
            for _ in range(turns):
                self.stream.send(len(self.stream.names))

    @contextlib.contextmanager
    def _span(self, what: str) -> Iterator[None]:
        begin, first = time.monotonic(), self.stream.sent
        before = sum(worker.cost()[0] for worker in self.workers)
        yield
        self.drain()
        seconds, costs = time.monotonic() - begin, [worker.cost() for worker in self.workers]
        processor, memory = (sum(each) for each in zip(*costs, strict=True))
        self.spans.append(Span(what, first, self.stream.sent, seconds, processor - before, memory))

    def replace_with_another(self, how: str) -> None:
        """Kill one of two workers while requests flow."""
        with self.stream.beside(self.rate) as burst:
            time.sleep(_STAND_SECONDS)
            killed = self.kill(self.workers[0], how, burst)
            killed.began = self.workers[0].wait_for(killed.at)
            time.sleep(_STAND_SECONDS)
        self.drain()

    def replace_at_once(self, how: str) -> None:
        """Kill the only worker while requests flow, and start another."""
        with self.stream.beside(self.rate) as burst:
            time.sleep(_STAND_SECONDS)
            killed = self.kill(self.workers[0], how, burst)
            killed.began = self.start().wait_for()
            time.sleep(_STAND_SECONDS)
        self.drain()

    # -- afterwards ---------------------------------------------------------------------------

    def read(self, topic: str) -> list[tuple[float, dict[str, Any]]]:
        """Return every record of a topic, and when the server took it."""
        found = []
        for partition in self._reader.partitions(topic):
            bounds = self._reader.bounds(partition)
            at = bounds.begin
            while at < bounds.end:
                records, at = self._reader.read(partition, at, 1.0, 5_000)
                found += [
                    (one.timestamp_ms / 1e3, json.loads(one.value or b"{}")) for one in records
                ]
        return sorted(found, key=lambda pair: pair[0])

    def judge(self) -> list[str]:
        """Return what is wrong: requests or rows that were lost or counted twice."""
        wrong = []
        final: dict[str, set[str]] = {str(number): set() for number in range(self.stream.sent)}
        for _, receipt in self.read(topics.RECEIPTS):
            if receipt["status"] in _FINAL:
                final[receipt["request_id"]].add(json.dumps(receipt))
        for number, receipts in final.items():
            if [json.loads(one)["status"] for one in receipts] != ["APPLIED"]:
                wrong.append(f"request {number}: {sorted(receipts)}")
        for name, versions in self.versions().items():
            numbers = sorted(versions)
            named = Counter(one for _, said in versions.values() for one in said["request_ids"])
            asked = Counter(
                str(number)
                for number in range(self.stream.sent)
                if self.stream.names[number % len(self.stream.names)] == name
            )
            if numbers != list(range(len(numbers))) or named != asked:
                differs = sorted((named - asked) | (asked - named))
                wrong.append(
                    f"{name}: {len(numbers)} versions to {numbers[-1]}, requests {differs}"
                )
            deleted = self.platform.load(name).meta.rows_deleted
            if deleted != len(asked):
                wrong.append(f"{name}: {deleted} rows are deleted, and {len(asked)} were asked for")
        return wrong

    def versions(self) -> dict[str, dict[int, tuple[float, dict[str, Any]]]]:
        """Return each model's versions by number, as they were first published."""
        found: dict[str, dict[int, tuple[float, dict[str, Any]]]] = {
            name: {} for name in self.stream.names
        }
        for moment, said in self.read(topics.VERSIONS):
            known = found[said["model_id"]].setdefault(said["version"], (moment, said))
            if known[1]["digest"] != said["digest"]:
                raise RuntimeError(f"{said['model_id']} has two versions {said['version']}")
        return found

    def tables(self) -> list[Table]:
        """Return the figures."""
        sent = self.stream.times
        done = {
            int(request): moment
            for versions in self.versions().values()
            for moment, said in versions.values()
            for request in said["request_ids"]
        }
        return [self._calm_table(sent, done), self._kill_table(sent, done)]

    def _calm_table(self, sent: dict[int, float], done: dict[int, float]) -> Table:
        table = Table(
            *("workers", "requests", "a second", "p50 ms", "p99 ms", "longest ms"),
            *("processor ms a request", "resident MB"),
        )
        for span in self.spans:
            numbers = range(span.first, span.end)
            delays = [1e3 * (done[number] - sent[number]) for number in numbers]
            seconds = max(done[number] for number in numbers) - min(sent[one] for one in numbers)
            table.add_row(
                *(span.what, str(len(numbers)), f"{len(numbers) / seconds:.0f}"),
                *(f"{np.quantile(delays, q, method='higher'):.0f}" for q in (0.5, 0.99, 1.0)),
                *(f"{1e3 * span.processor / len(numbers):.2f}", f"{span.memory:.0f}"),
            )
        return table

    def _kill_table(self, sent: dict[int, float], done: dict[int, float]) -> Table:
        table = Table(
            *("kill -9", "models", "partitions read again s", "first version s", "all models s"),
            *("of it, after reading began", "longest delay s"),
        )
        for killed in self.killed:
            theirs = [
                number
                for number in sent
                if self.stream.names[number % len(self.stream.names)] in killed.models
                and done[number] > killed.at
            ]
            burst = [
                number
                for number in theirs
                if killed.first <= number < killed.first + len(self.stream.names)
            ]
            last = max(done[number] for number in burst)
            late = [done[one] - sent[one] for one in theirs if sent[one] <= last]
            table.add_row(
                *(killed.how, str(len(killed.models)), f"{killed.began - killed.at:.1f}"),
                f"{min(done[number] for number in theirs) - killed.at:.1f}",
                *(f"{last - killed.at:.1f}", f"{last - killed.began:.1f}", f"{max(late):.1f}"),
            )
        return table


def register(platform: Platform, models: int) -> list[str]:
    """Register the models; return their names."""
    rng, names = np.random.default_rng(0), [f"model-{number:04d}" for number in range(models)]
    for number, name in enumerate(names):
        logistic = number % 5 == 0
        data = make(rng, "logistic" if logistic else "linear", ROWS, FEATURES)
        platform.register(name, data, method="exact", exact_sums=not logistic)
    return names


def measure(measured: Measured, seconds: float, kills: int) -> None:
    """Go through everything."""
    measured.start().wait_for()
    measured.calm("1, first time", seconds)
    measured.calm("1", seconds)
    measured.backlog("1, a backlog", 5)
    measured.start().wait_for()
    time.sleep(_STAND_SECONDS)
    measured.calm("2", seconds)
    measured.backlog("2, a backlog", 5)
    for turn in range(kills):
        if turn:
            measured.start().wait_for()
            time.sleep(_STAND_SECONDS)
        measured.replace_with_another("another runs")
    for _ in range(kills):
        measured.replace_at_once("another is started")


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, default=1_000)
    parser.add_argument("--rate", type=float, default=100.0, help="deletions a second, of all")
    parser.add_argument("--seconds", type=float, default=30.0, help="of each calm measurement")
    parser.add_argument("--kills", type=int, default=2, help="of each kind")
    given = parser.parse_args()
    configure_logging("ERROR")
    console = Console(width=140)
    with tempfile.TemporaryDirectory() as directory, threadpool_limits(1):
        server = ValkeyProcess(Path(directory) / "store")
        server.start()
        platform = Platform(StreamsLog(connect(server.url)), f"{server.url}/0", 16)
        measured = None
        try:
            measured = Measured(platform, Path(directory), given.models, given.rate)
            measure(measured, given.seconds, given.kills)
            wrong = measured.judge()
            console.print(f"{measured.stream.sent} requests, {len(wrong)} things wrong")
            for line in wrong[:20]:
                console.print(line)
            for table in () if wrong else measured.tables():
                console.print(table)
            return int(bool(wrong))
        finally:
            for worker in measured.workers if measured else ():
                worker.end()
            platform.close()
            server.close()


if __name__ == "__main__":
    sys.exit(main())
