"""Predicted beside measured: the real thing at three sizes, with features between those calibrated.

Requests come independently of each other; a latency runs from when a request was due.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.side import Asked, Side, worker_side
from capacity.calibration import WHERE, Calibrated, empty_store, job, used_bytes
from capacity.simulation import Outcome, Place, poisson, simulate
from capacity.sizing import most
from harness.results import Row, read_table

D, N = 50, 2_000
PLANS = ((1, 10.0, 200), (10, 60.0, 1_200), (10, 0.0, 5_000))
"""Models, requests a second, requests; 0: `NEAR` of what is predicted at most."""
NEAR = 0.8
NAMES = {"throughput": "1/s", "p50": "ms", "p99": "ms", "memory": "MB"}


@dataclass
class Run:
    """A run of requests at their times."""

    latencies: list[float]
    seconds: float


def run(side: Side, times: list[float], models: list[int]) -> Run:
    """Send requests when they are due; return what was seen."""
    counts = dict.fromkeys(set(models), 1)
    asked = []
    for model in models:
        asked.append(Asked(model, [counts[model]]))
        counts[model] += 1
    first = side.sent + 1
    requests = side.requests(asked)
    side.ends.skip_versions()
    begin = time.perf_counter() + 0.1

    def send() -> None:
        at = 0
        while at < len(times):
            time.sleep(max(0.0, begin + times[at] - time.perf_counter()))
            due = int(np.searchsorted(times, time.perf_counter() - begin, side="right"))
            due = max(due, at + 1)
            side.ends.send(requests[at:due])
            at = due

    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    latencies: list[float] = []
    while len(latencies) < len(times):
        for version in side.ends.next_versions():
            now = time.perf_counter() - begin
            latencies += [now - times[int(name[-7:]) - first] for name in version.request_ids]
    end = time.perf_counter() - begin
    sender.join()
    return Run(latencies, end)


def figures(latencies: object, seconds: float, number: int, memory: float) -> dict[str, float]:
    """Return what is compared."""
    p50, p99 = np.quantile(np.asarray(latencies), (0.5, 0.99)) * 1e3
    return {
        "throughput": number / seconds, "p50": float(p50), "p99": float(p99), "memory": memory / 1e6
    }  # fmt: skip


def predicted(calibrated: Calibrated, models: int, rate: float, number: int) -> Outcome:
    """Return what the simulation says of a worker alone, at other times than those measured."""
    costs = calibrated.costs("linear", D)
    return simulate(*poisson(rate, number, models, 11), costs, Place(), seed=12)


def against(directory: Path, seed: int, calibrated: Calibrated) -> Iterator[tuple[str, Row]]:
    """Yield a row for each size and figure: predicted, measured, ratio."""
    empty = empty_store(directory / "empty")
    for models, given, number in PLANS:
        rate = given or NEAR * most(calibrated.costs("linear", D), models, 256)
        expected = predicted(calibrated, models, rate, number)
        place = directory / f"against-{models}-{number}"
        with worker_side(place, job("linear", N, D, models, seed), None) as side:
            memory = used_bytes(side) - empty
            for model in range(models):
                side.ask(model, [0])
            times, which = poisson(rate, number, models, seed)
            seen = run(side, times.tolist(), which.tolist())
        guess = figures(
            expected.latencies,
            expected.end,
            number,
            models * calibrated.model_bytes("linear", N, D) + calibrated.besides_bytes(),
        )
        found = figures(seen.latencies, seen.seconds, number, memory)
        for name, unit in NAMES.items():
            yield (
                "against",
                {
                    "models": models, "rate": rate, "requests": number, "figure": name,
                    "unit": unit, "predicted": guess[name], "measured": found[name],
                    "ratio": guess[name] / found[name],
                },
            )  # fmt: skip


def compared(name: str = "against") -> str:
    """Return a table of results/capacity in Markdown: predicted, measured, their ratio."""
    rows = ["| models | requests/s | | predicted | measured | ratio |", "|---|---|---|---|---|---|"]
    rows += [
        f"| {row['models']} | {row['rate']:.0f} | {row['figure']}, {row['unit']} "
        f"| {row['predicted']:.4g} | {row['measured']:.4g} | {row['ratio']:.2f} |"
        for row in read_table(WHERE / f"{name}.csv")
    ]
    return "\n".join(rows)
