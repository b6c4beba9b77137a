"""Measure `lethe serve` under many clients beside bare acknowledged sends, at one rate, in turns.

    python scripts/http_load.py [--log kafka|streams] [--requests N] [--clients N] [--rate R]

On Kafka it uses the broker that LETHE_TEST_KAFKA names, or starts one of its own (scripts/kafka).

Each thread has a connection to the server and a bare sender. For one second all threads send bare,
for the next the same records over HTTP, and so on: what else the machine does meets both ways
alike. ``rate`` is that of all threads together, each at its own moments, whether or not the last
answer was slow; a request that is due before the last one was answered counts from when it was due.
The client writes to a socket and reads from it, and nothing more: its own cost would count as the
server's. Then every request is looked up: each must be in the log once and have one final receipt,
and the model must have lost exactly the rows that were asked for.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
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
from lethe.consumers.contract.requests import request_message
from lethe.consumers.log.base import Message, TopicSpec
from lethe.consumers.service.configuration.settings import load_settings
from lethe.consumers.service.connect import Runtime, open_runtime

MODEL = "load"
BARE = "lethe.load-bare"
"""A topic that nobody reads, for the bare sends: as many partitions, the same records."""

TURN_SECONDS = 1.0
WAYS = ("bare", "HTTP")
_START_SECONDS = 60.0
_ANSWER_SECONDS = 60.0
_LETHE = Path(sys.executable).with_name("lethe")

Send = Callable[[DeletionRequest], None]


def request_of(number: int) -> DeletionRequest:
    """Return request ``number``: it deletes row ``number``."""
    return DeletionRequest(
        request_id=f"request-{number}", model_id=MODEL, row_ids=(f"row-{number}",)
    )


@dataclass(frozen=True)
class Load:
    """How many requests are sent each way, by how many threads, at which rate of them all."""

    requests: int
    clients: int
    rate: float

    def moments(self, client: int) -> Iterator[tuple[str, int, float]]:
        """Yield what one thread sends: the way, the request, and when, in seconds."""
        turn = max(int(self.rate * TURN_SECONDS), 1)
        for first in range(0, self.requests, turn):
            last = min(first + turn, self.requests)
            for i, way in enumerate(WAYS):
                begin = first + i * (last - first) + first  # of both ways together
                for number in range(first + (client - first) % self.clients, last, self.clients):
                    yield way, number, (begin + number - first) / self.rate


def paced(load: Load, sender: Callable[[], dict[str, Send]]) -> dict[str, list[float]]:
    """Send from all threads; return how long each request took, in milliseconds, by its way.

    ``sender`` is called once for each thread, before any of them begins.
    """
    took: dict[str, list[float]] = {way: [] for way in WAYS}
    failures: list[BaseException] = []
    barrier = threading.Barrier(load.clients)

    def run(client: int) -> None:
        try:
            send = sender()
            barrier.wait()
            begun = time.perf_counter()
            for way, number, moment in load.moments(client):
                request, due = request_of(number), begun + moment
                time.sleep(max(0.0, due - time.perf_counter()))
                send[way](request)
                took[way].append((time.perf_counter() - due) * 1e3)
        except BaseException as error:
            failures.append(error)
            barrier.abort()

    threads = [threading.Thread(target=run, args=(client,)) for client in range(load.clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return took


# -- the two ways to send -------------------------------------------------------------------------


def over_http(url: str, stack: ExitStack) -> Send:
    """Return what sends over one connection, and reads the whole answer."""
    address = urlsplit(url)
    connection = stack.enter_context(
        socket.create_connection((address.hostname, address.port), _ANSWER_SECONDS)
    )
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    head = (
        f"POST /v1/models/{MODEL}/deletions HTTP/1.1\r\nHost: {address.netloc}\r\n"
        "Content-Type: application/json\r\nContent-Length: "
    )

    def send(request: DeletionRequest) -> None:
        body = request.model_dump_json(include={"request_id", "row_ids"})
        connection.sendall(f"{head}{len(body)}\r\n\r\n{body}".encode())
        answer = b""
        while not answer.endswith(b"}"):  # the end of an answer's JSON, and of every problem
            received = connection.recv(65_536)
            if not received:
                break
            answer += received
        if not answer.startswith(b"HTTP/1.1 202 "):
            raise RuntimeError(f"not accepted: {answer.decode()}")

    return send


def bare(runtime: Runtime, stack: ExitStack) -> Callable[[], Send]:
    """Return what makes a sender of the same records to the log, each acknowledged."""
    bootstrap = runtime.settings.kafka_bootstrap_servers
    if bootstrap is None:

        def own() -> Send:
            producer = stack.enter_context(closing(runtime.log.producer()))
            return lambda request: producer.publish([_bare(request)])

        return own
    shared = stack.enter_context(
        closing(KafkaProducer(bootstrap_servers=bootstrap.split(","), acks="all"))
    )

    def send(request: DeletionRequest) -> None:
        message = _bare(request)
        headers = list(message.headers)
        future = shared.send(BARE, key=message.key, value=message.value, headers=headers)
        future.get(timeout=_ANSWER_SECONDS)

    return lambda: send


def _bare(request: DeletionRequest) -> Message:
    message = request_message(request, None)
    return Message(BARE, message.key, message.value, message.headers)


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


def processor_seconds(process: subprocess.Popen[str]) -> float:
    """Return how much processor time the threads of a process have used (Linux)."""
    threads = Path(f"/proc/{process.pid}/task").glob("*/schedstat")
    return sum(int(one.read_text().split()[0]) for one in threads) / 1e9


def lost_and_doubled(runtime: Runtime, count: int, environment: dict[str, str]) -> dict[str, float]:
    """Return how many requests are not in the log, are there twice, or have no receipt."""
    found: Counter[str] = Counter()
    with closing(runtime.log.reader()) as reader:
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
    load = Load(given.requests, given.clients, given.rate)
    with open_runtime(settings) as runtime, ExitStack() as stack:
        runtime.log.ensure_topics([TopicSpec(BARE, settings.partitions)])
        server = stack.enter_context(running(environment, "serve", "--port", "0", "--json"))
        assert server.stdout is not None  # noqa: S101 (mypy)
        url = json.loads("".join(iter(server.stdout.readline, "}\n")) + "}")["url"]
        connections = stack.enter_context(ExitStack())
        bare_sender = bare(runtime, connections)
        before = processor_seconds(server)
        took = paced(load, lambda: {"bare": bare_sender(), "HTTP": over_http(url, connections)})
        used = processor_seconds(server) - before
        connections.close()
        checks = lost_and_doubled(runtime, given.requests, environment)
    figures = {
        way: {f"p{percent}": float(np.percentile(took[way], percent)) for percent in (50, 99)}
        for way in WAYS
    }
    figures["HTTP"]["processor ms"] = used * 1e3 / given.requests
    return {**figures, "checks": checks}


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
    rows = [(way, *(f"{figures[way][name]:.1f}" for name in ("p50", "p99"))) for way in WAYS]
    checks = figures["checks"]
    print(table(("way", "p50, ms", "p99, ms"), rows))
    http, ratio = figures["HTTP"], figures["HTTP"]["p99"] / figures["bare"]["p99"]
    print(f"p99: {ratio:.2f} times bare; {http['processor ms']:.2f} ms of processor time a request")
    print(", ".join(f"{name}: {number:g}" for name, number in checks.items()))
    if given.json is not None:
        given.json.write_text(json.dumps(figures, indent=2) + "\n")
    sound = not (checks["lost"] or checks["doubled"] or checks["without a receipt"])
    return 0 if sound and checks["rows deleted"] == given.requests else 1


if __name__ == "__main__":
    sys.exit(main())
