"""What encrypted row records cost: registration, and a request from poll to watermark.

    python scripts/row_keys.py

Two stores of the same model, one with a store of row keys and one without, on embedded servers with
appendfsync always; requests in turns, so that both meet the same machine. docs/erased-data.md.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np
import structlog
from threadpoolctl import threadpool_limits

from benchmarks.synthetic import LocalWorker, model_id, register_model, request
from harness.timing import seconds
from lethe.consumers.service.embedded_valkey import EmbeddedValkey
from lethe.engine.fit.objective import Kind
from lethe.engine.store.server.connection import Barrier, connect
from lethe.engine.store.server.row_keys import RowKeys
from lethe.engine.store.store import ModelStore

N, D, REQUESTS = 2000, (100, 1000), 100
ROWS = (1, 10)
_WARM_UP = 5


@contextmanager
def workers() -> Iterator[tuple[LocalWorker, LocalWorker]]:
    """Yield a worker on a store without row keys, and one with them."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        urls = [stack.enter_context(EmbeddedValkey(directory / str(i))).url for i in range(3)]
        found = []
        for url, keys in ((urls[0], None), (urls[1], RowKeys(connect(urls[2])))):
            client = connect(url)
            found.append(LocalWorker(ModelStore(client, Barrier(client, required=True), keys)))
            found[-1].worker.run_once(0.0)
        yield found[0], found[1]


def delete(worker: LocalWorker, number: int, d: int, rows: range) -> float:
    """Delete rows of the model of d features; return the seconds of the worker's turn."""
    worker.send([request(number, d, rows)])
    taken: list[int] = []
    lasted = seconds(lambda: taken.append(worker.worker.run_once(0.0)))
    if taken != [1]:
        raise RuntimeError(f"request {number}: {taken} records were taken")
    return lasted


def main() -> None:
    """Measure and print."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    numbers = count()
    with threadpool_limits(1), workers() as both:
        for d in D:
            took = [
                seconds(
                    partial(register_model, one.registrar, model_id(d), Kind.LINEAR, N, d, seed=1)
                )
                for one in both
            ]
            say(f"register n={N} d={d}", took)
            first = 0
            for k in ROWS:
                samples = []
                for _ in range(REQUESTS if k == 1 else REQUESTS // 2):
                    rows = range(first, first + k)
                    samples.append([delete(one, next(numbers), d, rows) for one in both])
                    first += k
                medians = np.median(np.array(samples[_WARM_UP:]), axis=0)
                say(f"request d={d} k={k}, median", medians.tolist())


def say(what: str, times: list[float]) -> None:
    """Print a line."""
    plain, sealed = times
    ratio = sealed / plain
    print(f"{what:28} {1e3 * plain:9.2f} ms  encrypted {1e3 * sealed:9.2f} ms  x {ratio:.2f}")


if __name__ == "__main__":
    main()
