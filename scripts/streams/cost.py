"""Part 6: the cost of a deletion against K, the rows deleted in this generation before it.

`engine.deletion.stream.delete` alone, along a stream (a state that is used twice would copy its V).
And what compacting costs, from which follows what it saves.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

import numpy as np

from lethe.engine.deletion.methods import method_named
from lethe.engine.deletion.stream import Generation, Stream, begin, delete
from lethe.engine.fit.objective import Array
from lethe.engine.fit.precompute import Precomputation, precompute
from lethe.engine.refresh.kinds import compact
from streams.data import StreamData, make
from streams.followed import median_us
from streams.papers_formula import objective_of, rows_of
from streams.records import Record, where

PART = "cost"
Curve = TypeVar("Curve", float, Array)
METHODS = ("exact", "pru")


@dataclass(frozen=True, slots=True)
class Plan:
    """Sizes; ``edges`` of the ranges of K that are timed, ``folded`` the K compacted at."""

    n: int = 20_000
    d: int = 500
    edges: tuple[int, ...] = (0, 32, 64, 128, 256, 512, 768, 1024, 1536, 2048, 3072, 4096)
    folded: tuple[int, ...] = (64, 256, 1024)
    batches: tuple[int, ...] = (1, 10, 100)


QUICK = Plan(n=600, d=40, edges=(0, 64, 128, 256), folded=(32, 128), batches=(1, 10))

_FEWEST = 3  # samples that a median is made of


def run(plan: Plan, seed: int) -> Iterator[Record]:
    """Time batches of each size at each K, then compact."""
    data = make("linear", "isotropic", n=plan.n, d=plan.d, deletions=plan.n, seed=seed)
    made = precompute(objective_of(data), rows_of(data))
    for k in plan.batches:
        for method in METHODS:
            yield from _against_deleted(plan, data, made, k, method)
    yield from _compacting(plan, data, made)


def _state(data: StreamData, made: Precomputation) -> tuple[Generation, Stream]:
    return begin(0, objective_of(data), made)


def _record(plan: Plan, method: str, k: int | None, K: float, seconds: list[float]) -> Record:
    return {
        "part": PART,
        "kind": "linear",
        "data": "isotropic",
        "n": plan.n,
        "d": plan.d,
        "method": method,
        "k": k,
        "K": K,
        "batch_us": median_us(seconds),
        "samples": len(seconds),
    }


def _against_deleted(
    plan: Plan, data: StreamData, made: Precomputation, k: int, method: str
) -> Iterator[Record]:
    """Time every batch of one stream; medians over ranges of K."""
    rows, chosen = rows_of(data), method_named(method)
    generation, stream = _state(data, made)
    timed: list[tuple[float, float]] = []
    for gone in range(0, plan.edges[-1], k):
        batch = data.order[gone : gone + k]
        U, W = rows.take(batch), made.dual_rows[batch]
        started = time.perf_counter()
        stream = delete(generation, stream, U, W, chosen).stream
        timed.append((gone, time.perf_counter() - started))
    K, seconds = np.array(timed).T
    for low, high in pairwise(plan.edges):
        inside = (low <= K) & (high > K)
        if inside.sum() >= _FEWEST:
            mean, found = float(K[inside].mean()), list(seconds[inside])
            yield {**_record(plan, method, k, mean, found), "range": f"{low} to {high - 1}"}


def _compacting(plan: Plan, data: StreamData, made: Precomputation) -> Iterator[Record]:
    """Time `engine.refresh.kinds.compact` with K rows to fold in."""
    rows, chosen = rows_of(data), method_named("exact")
    for K in plan.folded:
        generation, stream = _state(data, made)
        gone, left = data.order[:K], np.sort(data.order[K:])
        stream = delete(generation, stream, rows.take(gone), made.dual_rows[gone], chosen).stream
        live, W = rows.take(left), made.dual_rows[left]
        seconds = []
        for _ in range(3):
            started = time.perf_counter()
            compact(generation, stream, made.factor, live, W)
            seconds.append(time.perf_counter() - started)
        yield _record(plan, "compact", None, K, seconds)


@dataclass(frozen=True, slots=True)
class Interval:
    """The cost of compacting every C rows, fitted to the measurements; all in microseconds.

    A single deletion costs ``fixed + slope K``, a compact ``once + a_row K``.
    """

    fixed: float
    slope: float
    once: float
    a_row: float
    longest: float

    def step(self, C: Curve) -> Curve:
        """Return the mean cost of a deletion, compacting left out."""
        return self.fixed + self.slope * C / 2

    def total(self, C: Curve) -> Curve:
        """Return the mean cost of a deletion and its share of compacting."""
        return self.step(C) + self.once / C + self.a_row

    @property
    def best(self) -> float:
        """The interval at which `total` is least: sqrt(2 once / slope)."""
        if self.slope <= 0:  # nothing is gained by compacting
            return self.longest
        return float(np.sqrt(2 * max(self.once, 0.0) / self.slope))


def interval(records: Sequence[Record], method: str) -> Interval:
    """Fit the cost of single deletions and of compacting by least squares."""
    singles = where(records, part=PART, method=method, k=1)
    slope, fixed = line(singles)
    a_row, once = line(where(records, part=PART, method="compact"))
    return Interval(fixed, slope, once, a_row, max(float(record["K"]) for record in singles))


def line(records: Sequence[Record]) -> tuple[float, float]:
    """Return slope and intercept of time against K, in microseconds."""
    K = np.array([record["K"] for record in records], dtype=np.float64)
    slope, fixed = np.polyfit(K, [record["batch_us"] for record in records], 1)
    return float(slope), float(fixed)
