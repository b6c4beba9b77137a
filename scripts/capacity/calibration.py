"""Service times and sizes, measured on the real thing and written to results/capacity.

Requests wait while the worker pauses; how long it takes them tells, with as many models and records
a turn as each case has, what a turn, a model and a request take (least squares, none negative). The
bench's worker, embedded Valkey with its append-only file, Redis Streams, one BLAS thread.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from bench.side import Asked, Side, worker_side
from bench.synthetic import model_id
from bench.worker import Job
from capacity.simulation import Costs
from harness.results import RESULTS, Row, read_table
from lethe.consumers.service.embedded_valkey import EmbeddedValkey
from lethe.engine.fit.objective import Kind
from lethe.engine.store.layout.keys import ModelKeys
from lethe.engine.store.server.connection import connect
from scale import LETHE, Process, draw

WHERE = RESULTS / "capacity"
MODELS, ROUNDS, ALONE = 16, 3, 150
RECORDS = {8: 512, 256: 1024}
"""Records of a poll, and requests of a case."""
KINDS = {"linear": Kind.LINEAR, "logistic": Kind.LOGISTIC}
FEATURES = (20, 100)
FILE_ROWS = (50_000, 250_000)
QUANTILES = np.linspace(0.01, 0.99, 50)


def job(kind: str, n: int, d: int, models: int, seed: int, records: int = 256) -> Job:
    """Return a worker's job: linear models have exact sums, as those of the service have."""
    return Job(
        role="deletions", redis_url="", kind=KINDS[kind], models=models, n=n, d=d, seed=seed,
        shared=True, exact_sums=kind == "linear", records=records,
    )  # fmt: skip


@dataclass
class Drained:
    """Requests that waited: how many turns, models and requests; seconds of all and the store."""

    size: tuple[float, float, float]
    seconds: float
    store: float


def processor(side: Side) -> float:
    """Return the processor seconds that the store has taken."""
    with closing(connect(side.job.redis_url)) as client:
        found = client.info("cpu")
    return float(found["used_cpu_user"]) + float(found["used_cpu_sys"])


def key_bytes(side: Side, pattern: str) -> float:
    """Return the bytes of the keys that match, by ``MEMORY USAGE``."""
    with closing(connect(side.job.redis_url)) as client:
        pipeline = client.pipeline(transaction=False)
        for key in client.scan_iter(match=pattern, count=1000):
            pipeline.memory_usage(key, samples=0)
        return float(sum(size or 0 for size in pipeline.execute()))


def used_bytes(side: Side) -> float:
    """Return the bytes that a store uses."""
    with closing(connect(side.job.redis_url)) as client:
        return float(client.info("memory")["used_memory"])


def model_bytes(side: Side, model: int) -> float:
    """Return the bytes of a model's keys."""
    return key_bytes(side, ModelKeys(model_id(model)).head.removesuffix("head") + "*")


def drain(side: Side, asked: Sequence[Asked], records: int) -> Drained:
    """Let requests of one row wait; return what they took once the worker went on."""
    turns = [asked[i : i + records] for i in range(0, len(asked), records)]
    batches = sum(len({one.model for one in turn}) for turn in turns)
    side.pause()
    side.ends.send(side.requests(asked))
    used, begin = processor(side), time.perf_counter()
    side.work()
    left = len(asked)
    while left > 0:
        left -= sum(len(version.request_ids) for version in side.ends.next_versions())
    seconds = time.perf_counter() - begin
    size = (float(len(turns)), float(batches), float(len(asked)))
    return Drained(size, seconds, processor(side) - used)


def solved(drained: Sequence[Drained], of: str) -> list[float]:
    """Return the seconds of a turn, a model and a request that explain these best."""
    values = np.array([getattr(one, of) for one in drained])
    A = np.array([one.size for one in drained]) / values[:, None]
    return [float(x) for x in nnls(A, np.ones(len(values)))[0]]


def calibrate(directory: Path, seed: int) -> Iterator[tuple[str, Row]]:
    """Measure; yield rows and the table of each: ``turns``, ``spread``, ``store``."""
    rng, empty = np.random.default_rng(seed), empty_store(directory / "empty")
    for kind in KINDS:
        for d in FEATURES:
            drained: list[Drained] = []
            for records, number in RECORDS.items():
                n = 1500 if records == 8 else 3000
                place = directory / f"{kind}-{d}-{records}"
                with worker_side(place, job(kind, n, d, MODELS, seed, records), None) as side:
                    stored = model_bytes(side, 0)
                    besides = used_bytes(side) - empty - MODELS * stored
                    rows = [iter(rng.permutation(n).tolist()) for _ in range(MODELS)]
                    for model in range(MODELS):  # a fold may follow the first commit
                        side.ask(model, [next(rows[model])])
                    for turn in range(ROUNDS):
                        for models in ([turn], list(range(MODELS))):
                            asked = [
                                Asked(model, [next(rows[model])])
                                for model in models
                                for _ in range(number // len(models))
                            ]
                            drained.append(
                                drain(
                                    side, [asked[i] for i in rng.permutation(len(asked))], records
                                )
                            )
                    alone = [
                        alone_seconds(side, i % 8 + 8, next(rows[i % 8 + 8]))
                        for i in range(ALONE if records == 256 else 0)
                    ]
                    commits = key_bytes(side, "*lethe.commits*") / side.sent
                row: Row = {"kind": kind, "n": n, "d": d, "records": records, "bytes": stored}
                yield "store", row | {"besides_bytes": besides, "commit_bytes": commits}
            whole, store = solved(drained, "seconds"), solved(drained, "store")
            names = ("turn", "model", "request")
            yield (
                "turns",
                {
                    "kind": kind, "d": d,
                    **{f"{name}_ms": 1e3 * x for name, x in zip(names, whole, strict=True)},
                    **{f"store_{name}_ms": 1e3 * x for name, x in zip(names, store, strict=True)},
                    "answer_ms": 1e3 * (float(np.mean(alone)) - sum(whole)),
                },
            )  # fmt: skip
            levels = np.quantile(np.array(alone) / np.mean(alone), QUANTILES)
            for share, factor in zip(QUANTILES, levels / levels.mean(), strict=True):
                yield "spread", {"kind": kind, "d": d, "quantile": share, "factor": factor}


def alone_seconds(side: Side, model: int, row: int) -> float:
    """Return the seconds of one request while nothing else waits."""
    time.sleep(0.02)
    return side.ask(model, [row])


def empty_store(directory: Path) -> float:
    """Return the bytes of a store without models."""
    with EmbeddedValkey(directory) as server, closing(connect(server.url)) as client:
        return float(client.info("memory")["used_memory"])


def in_files(directory: Path) -> Iterator[tuple[str, Row]]:
    """Measure models with rows in files: bytes, and processor seconds of a rebuild that is ordered.

    A worker process begins, rebuilds and ends: what two sizes differ by is the rows'.
    """
    for d in FEATURES:
        for n in FILE_ROWS:
            home = directory / f"files-{d}-{n}"
            home.mkdir()
            # Apart, for memory goes back to the system with its process.
            drawing = get_context("spawn").Process(target=draw, args=(home / "table", n, d))
            drawing.start()
            drawing.join()
            data, rows = home / "data", home / "rows"
            register = [*LETHE, "register", "big", "--data", str(home / "table"), "--id", "id"]
            register += ["--target", "y", "--subject", "person", "--kind", "linear"]
            registered = Process([*register, "--ridge", "1", "--rows", str(rows)], data).wait()
            worker = Process([*LETHE, "work"], data)
            order = [*LETHE, "refresh", "big", "--size", "rebuild", "--wait", "600"]
            Process(order, data).wait()
            worked = worker.stop()
            yield (
                "files",
                {
                    "n": n, "d": d,
                    "bytes": sum(p.stat().st_size for p in rows.rglob("*") if p.is_file()),
                    "register_s": registered.processor, "work_s": worked.processor,
                },
            )  # fmt: skip


class Calibrated:
    """What results/capacity says, for any number of features: linear in d squared between."""

    def __init__(self, where: Path = WHERE) -> None:
        self._turns = read_table(where / "turns.csv")
        self._spread = read_table(where / "spread.csv")
        self._store = read_table(where / "store.csv")
        self._files = read_table(where / "files.csv")

    def costs(self, kind: str, d: int) -> Costs:
        """Return the seconds of a turn."""
        turns = [row for row in self._turns if row["kind"] == kind]
        squares = [float(row["d"]) ** 2 for row in turns]

        def at(name: str) -> float:
            slope = np.polyfit(squares, [float(row[name]) for row in turns], 1)
            return float(np.polyval(slope, float(d) ** 2)) / 1e3

        def three(prefix: str) -> tuple[float, float, float]:
            first, second, third = (
                max(at(f"{prefix}{name}_ms"), 0.0) for name in ("turn", "model", "request")
            )
            return first, second, third

        nearest = min((float(row["d"]) for row in turns), key=lambda one: abs(one - d))
        spread = tuple(
            float(row["factor"])
            for row in self._spread
            if row["kind"] == kind and float(row["d"]) == nearest
        )
        return Costs(three(""), three("store_"), at("answer_ms"), spread)

    def sizes(self, kind: str) -> NDArray[np.float64]:
        """Return the bytes of a row, of a number of a row, and of a model for each d squared."""
        rows = [row for row in self._store if row["kind"] == kind]
        A = np.array([[row["n"], row["n"] * row["d"], row["d"] ** 2] for row in rows], float)
        values = np.array([row["bytes"] for row in rows], float)
        return np.asarray(nnls(A / values[:, None], np.ones(len(values)))[0])

    def model_bytes(self, kind: str, n: float, d: int) -> float:
        """Return the bytes of a model in the store."""
        return float(self.sizes(kind) @ (n, n * d, float(d) ** 2))

    def besides_bytes(self) -> float:
        """Return the bytes of a store's connections, topics and registrations: the mean."""
        return float(np.mean([float(row["besides_bytes"]) for row in self._store]))

    def commit_bytes(self, kind: str) -> float:
        """Return the bytes of a request in ``lethe.commits``, the most that was measured."""
        return max(float(row["commit_bytes"]) for row in self._store if row["kind"] == kind)

    def file_bytes(self, n: float, d: int) -> float:
        """Return the bytes of a model's files."""
        A = np.array([[row["n"], row["n"] * row["d"]] for row in self._files], float)
        values = np.array([row["bytes"] for row in self._files], float)
        found = nnls(A / values[:, None], np.ones(len(values)))[0]
        return float(found @ (n, n * d))

    def rebuild_seconds(self, n: float, d: int) -> float:
        """Return the processor seconds of a rebuild that reads a model's files."""
        A = np.array([[1, row["n"], row["n"] * row["d"]] for row in self._files], float)
        values = np.array([row["work_s"] for row in self._files], float)
        found = nnls(A, values)[0]
        return float(found[1:] @ (n, n * d))
