"""Deletion workers as queues: a discrete-event simulation of turns, models and stores.

A worker takes what waits in its partitions, at most so many records, and answers them together. Its
turn takes a constant, a part for each model and a part for each request. What of that is the
store's processor time waits for those of other workers: a server runs one command at a time.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds of a turn: constant, for each model, for each request; in all, and of the store.

    ``answer`` is what passes besides, on the way in and out. A turn takes its seconds times one of
    ``spread``, drawn evenly; their mean is 1.
    """

    whole: tuple[float, float, float]
    store: tuple[float, float, float] = (0.0, 0.0, 0.0)
    answer: float = 0.0
    spread: tuple[float, ...] = (1.0,)

    def seconds(self, models: float, requests: float) -> float:
        """Return how long a turn takes on average."""
        return float(np.dot(self.whole, (1.0, models, requests)))

    def store_seconds(self, models: float, requests: float) -> float:
        """Return how much of it is the store's processor time."""
        return float(np.dot(self.store, (1.0, models, requests)))


@dataclass(frozen=True, slots=True)
class Place:
    """How many workers share how many partitions, on how many primaries of the store."""

    workers: int = 1
    partitions: int = 16
    primaries: int = 1
    records: int = 256


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of the requests: seconds to the answer of each, and the time of the last."""

    latencies: NDArray[np.float64]
    end: float
    turns: int

    def quantile(self, share: float) -> float:
        """Return the seconds within which this share of requests was answered."""
        return float(np.quantile(self.latencies, share))


def poisson(
    rate: float, number: int, models: int, seed: int
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return times and models of requests that come independently of each other."""
    rng = np.random.default_rng(seed)
    return np.cumsum(rng.exponential(1.0 / rate, number)), rng.integers(0, models, number)


def simulate(
    times: Sequence[float] | NDArray[np.float64],
    models: Sequence[int] | NDArray[np.int64],
    costs: Costs,
    place: Place | None = None,
    seed: int = 0,
) -> Outcome:
    """Let requests come at these times for these models; return what becomes of them."""
    where = place or Place()
    rng = np.random.default_rng(seed)
    order = itertools.count()
    events: list[tuple[float, int, str, int]] = [
        (float(time), next(order), "comes", number) for number, time in enumerate(times)
    ]
    heapq.heapify(events)
    waiting: list[deque[int]] = [deque() for _ in range(where.workers)]
    turn: list[list[int]] = [[] for _ in range(where.workers)]
    free = [0.0] * where.primaries
    latencies, turns, end = np.full(len(times), np.nan), 0, 0.0
    held = [0.0] * where.workers  # the store's part of the turn under way

    def begin(worker: int, now: float) -> None:
        nonlocal turns
        queue = waiting[worker]
        if turn[worker] or not queue:
            return
        turn[worker] = [queue.popleft() for _ in range(min(where.records, len(queue)))]
        turns += 1
        size = len({int(models[number]) for number in turn[worker]}), len(turn[worker])
        whole = costs.seconds(*size) * costs.spread[rng.integers(len(costs.spread))]
        held[worker] = min(whole, costs.store_seconds(*size))
        heapq.heappush(events, (now + whole - held[worker], next(order), "stores", worker))

    while events:
        now, _, what, which = heapq.heappop(events)
        if what == "comes":
            worker = int(models[which]) % where.partitions % where.workers
            waiting[worker].append(which)
            begin(worker, now)
        elif what == "stores":
            primary = int(models[turn[which][0]]) % where.partitions % where.primaries
            free[primary] = max(free[primary], now) + held[which]
            heapq.heappush(events, (free[primary], next(order), "ends", which))
        else:
            for number in turn[which]:
                latencies[number] = now - times[number] + costs.answer
            turn[which], end = [], now
            begin(which, now)
    return Outcome(latencies, end, turns)
