"""Measure `lethe serve` under many clients beside bare acknowledged sends, at one rate, in turns.

    python scripts/http_load.py [--log kafka|streams] [--requests N] [--clients N] [--rate R]

On Kafka it uses the broker that LETHE_TEST_KAFKA names, or starts one of its own (scripts/kafka).

Clients and bare senders are threads of a process of their own. Both send the same records at the
same times: ``rate`` a second together, each thread at its own moments, whether or not the last
answer was slow. They take turns, so that what else the machine does meets both. Then every request
is looked up: each must be in the log once and have one final receipt, and the model must have lost
exactly the rows that were asked for.
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
from kafka import KafkaProducer

from harness.servers import NoKafka, kafka
from harness.tables import table
from lethe.consumers.contract import topics
from lethe.consumers.contract.events import DeletionRequest
from lethe.consumers.contract.requests import deletion_message
from lethe.consumers.log.base import Message, TopicSpec
from lethe.consumers.service.connect import open_runtime
from lethe.consumers.service.settings import Settings, load_settings

MODEL = "load"
BARE = "lethe.load-bare"
"""A topic that nobody reads, for the bare sends: as many partitions, the same records."""

TURNS = 4
_START_SECONDS = 60.0
_LETHE = Path(sys.executable).with_name("lethe")


@dataclass(frozen=True)
class Turn:
    """What one turn sends: requests ``first`` up to ``last``, by ``clients`` threads."""

    first: int
    last: int
    clients: int
    rate: float

    def moments(self, client: int) -> Iterator[tuple[int, float]]:
        """Yield the requests of one thread, and when each is sent, in seconds."""
        for number in range(self.first + client, self.last, self.clients):
            yield number, (number - self.first) / self.rate


def request_of(number: int) -> DeletionRequest:
    """Return request ``number``: it deletes row ``number``."""
    return DeletionRequest(
        request_id=f"request-{number}", model_id=MODEL, row_ids=(f"row-{number}",)
    )


def paced(turn: Turn, sender: Callable[[], Callable[[DeletionRequest], None]]) -> list[float]:
    """Send a turn from its threads; return how long each request took, in milliseconds."""
    took: list[float] = []
    barrier = threading.Barrier(turn.clients)

    def run(client: int) -> None:
        send = sender()
        barrier.wait()
        begun = time.perf_counter()
        for number, moment in turn.moments(client):
            request = request_of(number)
            time.sleep(max(0.0, begun + moment - time.perf_counter()))
            sent = time.perf_counter()
            send(request)
            took.append((time.perf_counter() - sent) * 1e3)

    threads = [threading.Thread(target=run, args=(client,)) for client in range(turn.clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return took


# -- the two ways to send -------------------------------------------------------------------------


def over_http(turn: Turn, url: str) -> list[float]:
    """Send over HTTP, each client on a connection of its own."""
    address = urlsplit(url)

    def sender() -> Callable[[DeletionRequest], None]:
        client = http.client.HTTPConnection(address.hostname or "", address.port, timeout=60)

        def send(request: DeletionRequest) -> None:
            body = request.model_dump_json(include={"request_id", "row_ids"})
            client.request(
                "POST", f"/v1/models/{MODEL}/deletions", body, {"Content-Type": "application/json"}
            )
            answer = client.getresponse()
            content = answer.read()
            if answer.status != http.client.ACCEPTED:
                raise RuntimeError(f"{answer.status}: {content.decode()}")

        return send

    return paced(turn, sender)


def bare(turn: Turn, settings: Settings) -> list[float]:
    """Send the same records to the log, and wait for each acknowledgement."""
    with ExitStack() as stack:
        if settings.kafka_bootstrap_servers is None:
            runtime = stack.enter_context(open_runtime(settings))

            def sender() -> Callable[[DeletionRequest], None]:
                producer = runtime.log.producer()
                return lambda request: producer.publish([_bare(request)])
        else:
            shared = KafkaProducer(
                bootstrap_servers=settings.kafka_bootstrap_servers.split(","), acks="all"
            )
            stack.callback(shared.close)

            def send(request: DeletionRequest) -> None:
                message = _bare(request)
                headers = list(message.headers)
                future = shared.send(BARE, key=message.key, value=message.value, headers=headers)
                future.get(timeout=60)

            def sender() -> Callable[[DeletionRequest], None]:
                return send

        return paced(turn, sender)


def _bare(request: DeletionRequest) -> Message:
    message = deletion_message(request, None)
    return Message(BARE, message.key, message.value, message.headers)


def in_a_process(function: Callable[..., list[float]], *arguments: object) -> list[float]:
    """Return what a function returns, called in a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, arguments)


# -- the system -----------------------------------------------------------------------------------


@contextmanager
def running(environment: dict[str, str], *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run a command of `lethe` beside the measurement."""
    process = subprocess.Popen(
        [_LETHE, *arguments], env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        text=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=_START_SECONDS)


def register(environment: dict[str, str], directory: Path, rows: int) -> None:
    """Register a small linear model of invented rows."""
    draw = np.random.default_rng(0)
    X = draw.normal(size=(rows, 3))
    y = X @ [1.0, -2.0, 0.5] + draw.normal(scale=0.1, size=rows)
    lines = ["id,a,b,c,y"]
    lines += [
        f"row-{i}," + ",".join(f"{value:.6g}" for value in (*X[i], y[i])) for i in range(rows)
    ]
    file = directory / "rows.csv"
    file.write_text("\n".join(lines) + "\n")
    names = ["--id", "id", "--target", "y", "--kind", "linear", "--ridge", "1"]
    command = [str(_LETHE), "register", MODEL, "--data", str(file), *names, "--error-budget", "0.5"]
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)


def lost_and_doubled(
    settings: Settings, count: int, environment: dict[str, str]
) -> dict[str, float]:
    """Return how many requests are not in the log, are there twice, or have no receipt."""
    found: Counter[str] = Counter()
    with open_runtime(settings) as runtime, closing(runtime.log.reader()) as reader:
        for partition in reader.partitions(topics.DELETIONS):
            offset, end = 0, reader.bounds(partition).end
            while offset < end:
                records, offset = reader.read(partition, offset, 1.0, 1_000)
                for record in records:
                    found[json.loads(record.value or b"")["request_id"]] += 1
        # Only now: on Redis Streams, what a worker has processed is gone from the log.
        subprocess.run(
            [_LETHE, "work", "--until-idle"], env=environment, check=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        store = runtime.store()
        state = store.load_model(MODEL)
        receipts = [store.receipt(MODEL, f"request-{i}") for i in range(count)]
    return {
        "lost": sum(found[f"request-{i}"] == 0 for i in range(count)),
        "doubled": sum(times > 1 for times in found.values()),
        "without a receipt": sum(receipt is None for receipt in receipts),
        "rows deleted": state.meta.rows_deleted,
    }


def measure(
    given: argparse.Namespace, bootstrap: str | None, directory: Path
) -> dict[str, dict[str, float]]:
    """Return the figures."""
    flags = {"kafka_bootstrap_servers": bootstrap, "data_dir": directory}
    settings = load_settings(flags)
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("LETHE_")},
        "LETHE_DATA_DIR": str(directory),
        "LETHE_HTTP_PORT": "0",
        "LETHE_SERVER_RATE": "0",
        **({} if bootstrap is None else {"LETHE_KAFKA_BOOTSTRAP_SERVERS": bootstrap}),
    }
    register(environment, directory, 2 * given.requests)
    with open_runtime(settings) as runtime:
        runtime.log.ensure_topics([TopicSpec(BARE, settings.partitions)])
    took: dict[str, list[list[float]]] = {"HTTP": [], "bare": []}
    with running(environment, "serve", "--port", "0", "--json") as server:
        assert server.stdout is not None  # noqa: S101 (mypy)
        url = json.loads("".join(iter(server.stdout.readline, "}\n")) + "}")["url"]
        cuts = [given.requests * i // TURNS for i in range(TURNS + 1)]
        for first, last in itertools.pairwise(cuts):
            turn = Turn(first, last, given.clients, given.rate)
            took["bare"].append(in_a_process(bare, turn, settings))
            took["HTTP"].append(in_a_process(over_http, turn, url))
    figures = {
        way: {
            f"p{percent}": statistics.median(float(np.percentile(turn, percent)) for turn in turns)
            for percent in (50, 99)
        }
        for way, turns in took.items()
    }
    return {**figures, "checks": lost_and_doubled(settings, given.requests, environment)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; 1 if a request was lost or doubled."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--log", choices=["kafka", "streams"], default="kafka")
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument(
        "--rate", type=float, default=200.0, help="requests a second, of all together"
    )
    parser.add_argument("--json", type=Path, metavar="FILE")
    given = parser.parse_args(arguments)
    try:
        with tempfile.TemporaryDirectory() as directory:
            broker = kafka(Path(directory) / "kafka") if given.log == "kafka" else nullcontext()
            with broker as bootstrap:
                figures = measure(given, bootstrap, Path(directory))
    except NoKafka as missing:
        print(missing, file=sys.stderr)
        return 3
    rows = [
        (way, *(f"{figures[way][name]:.1f}" for name in ("p50", "p99"))) for way in ("bare", "HTTP")
    ]
    checks = figures["checks"]
    print(table(("way", "p50, ms", "p99, ms"), rows))
    print(", ".join(f"{name}: {number:g}" for name, number in checks.items()))
    if given.json is not None:
        given.json.write_text(json.dumps(figures, indent=2) + "\n")
    sound = not (checks["lost"] or checks["doubled"] or checks["without a receipt"])
    return 0 if sound and checks["rows deleted"] == given.requests else 1


if __name__ == "__main__":
    sys.exit(main())
